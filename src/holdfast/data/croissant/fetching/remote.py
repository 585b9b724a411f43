"""A remote file read in place: what is asked for is fetched, and a little more where it is read on."""

from __future__ import annotations

import io
import threading
import time
from collections import OrderedDict
from typing import TYPE_CHECKING

from holdfast.data.croissant.fetching.answers import OTHER_PART, Answer, PassingFault, RangesRefused
from holdfast.data.croissant.fetching.fetcher import Fetcher
from holdfast.data.croissant.fetching.parts import Version
from holdfast.data.croissant.fetching.patience import Patience
from holdfast.data.croissant.fetching.urls import bare
from holdfast.errors import InputError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_MOST_AHEAD = 8 << 20
_MOST_KEPT = 32 << 20


class RemoteFile(io.RawIOBase):
    """A binary file over requests for ranges: for zipfile, Parquet and the like.

    It begins with the file's last bytes, where such formats have their directory. Reading on from where the
    last request ended doubles what is asked for, up to 8 MiB; 32 MiB of what came last are kept. All
    answers are of one version of the file.

    Args:
        url: of the file.
        fetcher: whose connections are used.
        block: bytes that are asked for at least.

    Raises:
        RangesRefused: if the server does not send parts.
        InputError: if it does not send this file.
    """

    def __init__(self, url: str, fetcher: Fetcher, block: int) -> None:
        super().__init__()
        self.requests = 0
        """Answers that were read."""
        self.bytes_read = 0
        """Bytes that came."""
        self._url, self._block, self._ahead = url, block, block
        self._source = fetcher.source(url)
        self._wait = fetcher.wait if fetcher.wait is not None else time.sleep
        self._runs: OrderedDict[int, bytes] = OrderedDict()  # start -> bytes, last used at the end
        self._lock = threading.Lock()
        self._position = self._end_of_last = 0
        self._version = Version()
        self.size = self._measured()
        """Bytes of the file."""

    @property
    def etag(self) -> str | None:
        """Of the version that is read."""
        return self._version.etag

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """Where the next read begins."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to an offset from the start (0), from here (1) or from the end (2)."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size}[whence]
        if base + offset < 0:
            raise ValueError(f"no place in a file: {base + offset}")
        self._position = base + offset
        return self._position

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Fill a buffer, as far as the file goes."""
        view = memoryview(buffer).cast("B")
        data = self._take(len(view))
        view[: len(data)] = data
        return len(data)

    def readall(self) -> bytes:
        """The rest of the file."""
        return self._take(self.size)

    def _take(self, size: int) -> bytes:
        with self._lock:
            data = self._bytes(self._position, min(self._position + size, self.size))
            self._position += len(data)
            return data

    def _bytes(self, start: int, end: int) -> bytes:
        """The bytes [start, end): those that are here, and requests for the gaps between."""
        parts = []
        while start < end:
            held = next((at for at, run in self._runs.items() if at <= start < at + len(run)), None)
            if held is None:
                later = min((at for at in self._runs if at > start), default=self.size)
                self._ahead = (
                    min(2 * self._ahead, _MOST_AHEAD) if start == self._end_of_last else self._block
                )
                stop = min(max(end, start + self._ahead), later)
                self._keep(start, self._fetched(start, stop))
                self._end_of_last, held = stop, start
            self._runs.move_to_end(held)
            run = self._runs[held]
            parts.append(run[start - held : end - held])
            start += len(parts[-1])
        return b"".join(parts)

    def _keep(self, start: int, data: bytes) -> None:
        kept = sum(map(len, self._runs.values()))
        while self._runs and kept + len(data) > _MOST_KEPT:
            kept -= len(self._runs.popitem(last=False)[1])
        self._runs[start] = data

    def _measured(self) -> int:
        """The file's size; its end is kept."""
        patience = Patience(self._url, self._wait)
        while True:
            try:
                data, size = self._tail()
            except PassingFault as fault:
                patience.after(fault)
            else:
                self._keep(size - len(data), data)
                return size

    def _tail(self) -> tuple[bytes, int]:
        """The file's last bytes and its size."""
        answer = self._source.ask((-self._block, 0))
        size = answer.version.size
        if answer.kind == "no range" and size == 0:
            answer.close()
            return b"", 0
        whole = answer.kind == "whole" and size is not None and size <= self._block
        if size is None or answer.encoding or not (answer.kind == "part" or whole):
            answer.close()
            raise RangesRefused(
                "the server does not support range requests for this file",
                code="unsupported",
                path=bare(self._url),
                remedy="fetch the whole file",
            )
        self._version = answer.version
        length = min(self._block, size)
        if answer.kind == "part" and answer.start != size - length:
            answer.close()
            raise PassingFault(OTHER_PART)
        data = self._body(answer, length)
        if len(data) < length:
            raise PassingFault("the response ended early")
        return data, size

    def _fetched(self, start: int, end: int) -> bytes:
        """The bytes [start, end), asked for again as often as it takes."""
        patience = Patience(self._url, self._wait)
        got = bytearray()
        while start + len(got) < end:
            try:
                got += self._some(start + len(got), end)
            except PassingFault as fault:
                patience.after(fault)
            else:
                patience.progress()
        return bytes(got)

    def _some(self, start: int, end: int) -> bytes:
        """The first of the bytes [start, end), or all, out of one answer."""
        answer = self._source.ask((start, end), same_as=self._version)
        all_of_it = answer.kind == "whole" and (start, end) == (0, self.size)
        if not (answer.kind == "part" or all_of_it) or not self._version.agrees(answer.version):
            answer.close()
            raise InputError(
                "the file changed on the server while it was read",
                code="changed",
                path=bare(self._url),
                remedy="read it again",
            )
        if answer.start != start:
            answer.close()
            raise PassingFault(OTHER_PART)
        data = self._body(answer, end - start)
        if not data:
            raise PassingFault("the response was empty")
        return data

    def _body(self, answer: Answer, most: int) -> bytes:
        """What an answer brings, up to `most` bytes; what came before it broke off is used too."""
        assert answer.body is not None
        data = bytearray()
        try:
            for chunk in answer.body.chunks():
                data += chunk
                if len(data) >= most:
                    break
        except PassingFault:
            if not data:
                raise
        finally:
            answer.close()
        self.requests += 1
        self.bytes_read += len(data)
        return bytes(data[:most])


def open_remote(url: str, *, fetcher: Fetcher | None = None, block: int = 1 << 16) -> RemoteFile:
    """A remote file to be read in place; raises as `RemoteFile`."""
    return RemoteFile(url, fetcher or Fetcher(), block)
