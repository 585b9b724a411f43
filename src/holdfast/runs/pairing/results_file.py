"""The file of results as it grows: whole lines, appended by one writer at a time."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from types import TracebackType

from holdfast.errors import InputError
from holdfast.runs.pairing.records import PairResult, line_of


class ResultsFile:
    """Appends results to a file, each by one write; what a kill cut off is left to the reader."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> ResultsFile:
        try:
            self._file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
        except OSError as error:
            raise InputError(
                f"results cannot be written here: {error.strerror}",
                code="unwritable",
                path=self.path,
            ) from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._file)
            raise InputError(
                "another run is writing these results",
                code="conflict",
                path=self.path,
                remedy="wait for its end",
            ) from None
        size = os.fstat(self._file).st_size
        if size and os.pread(self._file, 1, size - 1) != b"\n":
            os.write(self._file, b"\n")  # ends the line that a kill cut in half
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._file)

    def append(self, result: PairResult) -> None:
        """Add one result."""
        data = line_of(result).encode("utf-8", "replace")
        while data:
            data = data[os.write(self._file, data) :]
