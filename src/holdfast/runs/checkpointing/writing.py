"""The second stage of a save: `torch.distributed.checkpoint` writes, sums, and publishes at the end.

DCP itself brings together what publication needs: it gathers the results of all ranks and calls
`finish` on its coordinator only if every rank's files are written and synced. The checksums travel
with those results.
"""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.filesystem import FileSystem, FileSystemWriter
from torch.futures import Future

from holdfast import __version__
from holdfast.files import sync
from holdfast.runs.checkpointing.folder import Checkpoint
from holdfast.runs.checkpointing.manifest import WrittenFile, digits
from holdfast.runs.checkpointing.publication import Draft
from holdfast.runs.checkpointing.staging import Staging

_BUFFER_BYTES = 1 << 20


class SummedFile:
    """A file that is only appended to, with the CRC-32 of what went in."""

    def __init__(self, path: Path) -> None:
        self.failure: OSError | None = None
        """The first error of the system."""
        self._path = path
        self._file = path.open("wb", buffering=_BUFFER_BYTES)
        self._sum = 0
        self._size = 0

    def write(self, data: Any) -> int:
        """Append bytes."""
        view = memoryview(data).cast("B")
        self._sum = zlib.crc32(view, self._sum)
        self._size += view.nbytes
        with self._naming():
            return self._file.write(view)

    def tell(self) -> int:
        """Bytes so far."""
        return self._size

    def flush(self) -> None:
        """Write the buffered bytes to the operating system."""
        with self._naming():
            self._file.flush()

    def fileno(self) -> int:
        """File descriptor, after a flush, so that an fsync covers everything."""
        self.flush()
        return self._file.fileno()

    def close(self) -> None:
        """Close the file, synced."""
        if self._file.closed:
            return
        try:
            with self._naming():
                os.fsync(self.fileno())
        finally:
            self._file.close()

    @contextmanager
    def _naming(self) -> Iterator[None]:
        """Errors of the system name the file."""
        try:
            yield
        except OSError as error:
            named = OSError(error.errno, error.strerror, str(self._path))
            self.failure = self.failure or named
            raise named from error

    @property
    def written(self) -> WrittenFile:
        """What the manifest says of it."""
        return WrittenFile(self._path.name, self._size, digits(self._sum))


class SummingFileSystem(FileSystem):  # type: ignore[misc]  # torch is not typed here
    """The file system that DCP writes to; knows what was written."""

    def __init__(self) -> None:
        super().__init__()
        self.written: dict[str, WrittenFile] = {}
        self.failure: OSError | None = None

    @contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Iterator[Any]:
        """A new file."""
        file = SummedFile(Path(path))
        try:
            yield file
        finally:
            try:
                file.close()
            finally:
                self.failure = self.failure or file.failure
        self.written[file.written.name] = file.written

    def rename(self, path: str | os.PathLike[str], new_path: str | os.PathLike[str]) -> None:
        """Rename a file that was written."""
        super().rename(path, new_path)
        old = self.written.pop(Path(path).name)
        name = Path(new_path).name
        self.written[name] = WrittenFile(name, old.size_bytes, old.crc32)


class PublishingWriter(FileSystemWriter):  # type: ignore[misc]
    """Writes the draft of one save and, on the coordinator, makes it a checkpoint."""

    def __init__(self, draft: Draft, staging: Staging, world_size: int) -> None:
        # No copying ahead: what is written lies in host memory.
        super().__init__(draft.path, sync_files=True, per_thread_copy_ahead=0)
        self.fs = SummingFileSystem()
        self.draft = draft
        self.published: Checkpoint | None = None
        self._staging = staging
        self._staged_at = time.perf_counter()
        self._world_size = world_size

    def stage(self, state_dict: dict[str, Any]) -> dict[str, Any]:
        """Copy the state into host memory; the training waits for no more than this."""
        copied = self._staging.copy(state_dict)
        self._staged_at = time.perf_counter()
        return copied

    def write_data(self, plan: Any, planner: Any) -> Any:
        """Write this rank's files, synced, and add what they sum to to the results."""
        try:
            results = super().write_data(plan, planner).wait()
        except Exception as error:
            # torch closes its archive over a failed write and then complains of that alone.
            raise self.fs.failure or error from error
        sync(self.draft.path)
        told: Future[list[Any]] = Future()
        told.set_result([*results, *self.fs.written.values()])
        return told

    def finish(self, metadata: Any, results: list[list[Any]]) -> None:
        """Publish: all ranks have written and synced. Called on the coordinator only."""
        files = [one for each in results for one in each if isinstance(one, WrittenFile)]
        own = set(self.fs.written)
        super().finish(
            metadata,
            [[one for one in each if not isinstance(one, WrittenFile)] for each in results],
        )
        files += [file for name, file in self.fs.written.items() if name not in own]
        self.published = self.draft.publish(
            files, self._world_size, {"holdfast": __version__, "torch": torch.__version__}
        )

    @property
    def background_s(self) -> float:
        """How long ago the training was let go."""
        return time.perf_counter() - self._staged_at

    @property
    def size_bytes(self) -> int:
        """What this rank wrote."""
        return sum(file.size_bytes for file in self.fs.written.values())
