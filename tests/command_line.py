"""Commands of a room, run in the process of the test."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from holdfast import cli
from holdfast.command import run


@dataclass(frozen=True)
class Result:
    """What a command printed and how it ended."""

    exit_code: int
    stdout_bytes: bytes
    stderr: str
    exception: Exception | None

    @property
    def stdout(self) -> str:
        """What stdout holds."""
        return self.stdout_bytes.decode()

    @property
    def output(self) -> str:
        """What both streams hold."""
        return self.stdout + self.stderr


def invoke(app: Any, words: Sequence[str | Path], stdin: bytes | str | None = None) -> Result:
    """Run a command line of a room; an exception is part of the result, with the code 1."""
    data = stdin.encode() if isinstance(stdin, str) else stdin or b""
    given, out, err = (io.TextIOWrapper(io.BytesIO(text), "utf-8") for text in (data, b"", b""))
    before, sys.stdin = sys.stdin, given
    code, exception = 1, None
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run(app, [str(word) for word in words])
    except Exception as error:
        exception = error
    finally:
        sys.stdin = before
    out.flush(), err.flush()
    printed, remarks = (stream.buffer.getvalue() for stream in (out, err))  # type: ignore[attr-defined]
    return Result(code, printed, remarks.decode(), exception)


def answer(capsys: pytest.CaptureFixture[str], *words: object, code: int = 0) -> Any:
    """The JSON of a command of the house, or of its error where it ends with another code than 0."""
    with pytest.raises(SystemExit) as ended:
        cli.main([*map(str, words), "--json"])
    printed = capsys.readouterr()
    assert ended.value.code == code, printed.err
    return json.loads(printed.out) if code == 0 else json.loads(printed.err)["error"]
