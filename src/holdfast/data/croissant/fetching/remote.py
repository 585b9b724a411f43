"""A remote file read in place: what is asked for is fetched, and a little more where it is read on."""

from __future__ import annotations

import io
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

from holdfast.data.croissant.fetching.fetcher import Fetcher
from holdfast.remote import Buffer, Retry, read_span

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_MOST_AHEAD = 8 << 20
_MOST_KEPT = 32 << 20


class RemoteFile(io.RawIOBase):
    """A binary file over requests for ranges: for zipfile, Parquet and the like.

    It begins with the file's last bytes, where such formats have their directory. Reading on from where the
    last request ended doubles what is asked for, up to 8 MiB; 32 MiB of what came last are kept. All
    responses are of one version of the file.

    Args:
        url: of the file.
        fetcher: whose connections are used.
        block: bytes that are asked for at least.

    Raises:
        RangesRefused: if the server does not send parts.
        InputError: if it does not send this file.
    """

    def __init__(self, url: str, fetcher: Fetcher, block: int = 1 << 16) -> None:
        super().__init__()
        self._url, self._block, self._ahead = url, block, block
        self._source, self._wait = fetcher.source(url), fetcher.wait
        self._runs: OrderedDict[int, Buffer] = OrderedDict()  # start -> bytes, last used at the end
        self._lock = threading.Lock()
        self._position = self._end_of_last = 0
        data, first = read_span(self._source, (-block, 0), Retry(url, sleep=self._wait))
        self._version = first.version
        self.size = first.version.size or 0
        """Bytes of the file."""
        self._keep(self.size - len(data), data)

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
            begin = next(
                (at for at, run in self._runs.items() if at <= start < at + len(run)), None
            )
            if begin is None:
                later = min((at for at in self._runs if at > start), default=self.size)
                self._ahead = (
                    min(2 * self._ahead, _MOST_AHEAD) if start == self._end_of_last else self._block
                )
                stop = min(max(end, start + self._ahead), later)
                retry = Retry(self._url, sleep=self._wait)
                self._keep(start, read_span(self._source, (start, stop), retry, self._version)[0])
                self._end_of_last, begin = stop, start
            self._runs.move_to_end(begin)
            run = self._runs[begin]
            parts.append(run[start - begin : end - begin])
            start += len(parts[-1])
        return b"".join(parts)

    def _keep(self, start: int, data: Buffer) -> None:
        total = sum(map(len, self._runs.values()))
        while self._runs and total + len(data) > _MOST_KEPT:
            total -= len(self._runs.popitem(last=False)[1])
        self._runs[start] = data
