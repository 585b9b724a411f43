"""A threaded HTTP/1.1 server of byte ranges on loopback that counts, throttles and misbehaves on demand.

    with RangeServer(folder) as server:
        server.fail("/a.pcr", "drop", times=2)
        ...  # read server.url + "/a.pcr"
        assert (server.requests, server.bytes) == (3, 1000)

As a script it serves a folder until it is ended and prints its port:

    python range_server.py FOLDER --bytes-per-second 20e6 --latency-ms 20 --port 0

`GET /.counters` answers {"requests", "bytes", "heads"} of the objects; `GET /.counters?reset` sets them
to 0 afterwards. `GET /BUCKET/?list-type=2&prefix=P` lists a folder as S3 does.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import formatdate
from pathlib import Path
from types import TracebackType
from typing import Literal, NamedTuple
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.sax.saxutils import escape

Kind = Literal[
    "ignore-range",
    "truncate",
    "short",
    "shift",
    "flip",
    "drop",
    "stall",
    "404",
    "403",
    "416",
    "503",
]
"""What a request can meet.

ignore-range: 200 and the whole file. truncate: half of the promised body, then the connection closes.
short: 206 with half of the range and headers that say so. shift: 206 with another range of that length.
flip: one byte in the middle of the body is wrong. drop: closed without an answer. stall: no answer
until the server stops. A number: that status.
"""

REASONS = {
    200: "OK",
    206: "Partial Content",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    416: "Range Not Satisfiable",
    503: "Service Unavailable",
}


class Seen(NamedTuple):
    """One request, as the server answered it."""

    method: str
    path: str
    range: str
    """The Range header; empty if there was none."""
    status: int


@dataclass
class _Fault:
    kind: Kind
    path: str | None
    times: float

    def meets(self, path: str) -> bool:
        return self.times > 0 and (self.path is None or self.path == path)


class Bucket:
    """Bytes a second that all connections share.

    The line is a clock that says until when it is taken. A chunk is sent once the line has carried it. A
    transfer may use the line from its own start on, even if its thread woke late, so lateness is no loss;
    time in which nothing was to be sent is never credited.
    """

    CREDIT_S = 0.05  # of lateness at most: a client that does not read leaves the line unused

    def __init__(self, bytes_per_second: float) -> None:
        self.rate = bytes_per_second
        self.chunk = int(max(4096, min(1 << 18, bytes_per_second * 0.004)))
        self._lock = threading.Lock()
        self._taken_until = 0.0

    def carry(self, size: int, transfer_start: float) -> None:
        """Wait until the line has carried so many bytes."""
        with self._lock:
            now = time.monotonic()
            start = max(self._taken_until, transfer_start, now - self.CREDIT_S)
            self._taken_until = until = start + size / self.rate
        if until > now:
            time.sleep(until - now)


@dataclass
class _Request:
    method: str
    target: str
    headers: dict[str, str] = field(default_factory=dict)


class RangeServer:
    """Serves the files of a folder; usable in a `with` block.

    Args:
        folder: what is served, with its subfolders.
        bytes_per_second: of bodies, shared by all connections; None for as fast as it goes.
        latency_s: waited before each answer.
        port: 0 for any that is free.
    """

    def __init__(
        self,
        folder: str | Path,
        bytes_per_second: float | None = None,
        latency_s: float = 0.0,
        port: int = 0,
    ) -> None:
        self.folder = Path(folder).resolve()
        self.latency_s = latency_s
        self.bucket = None if bytes_per_second is None else Bucket(bytes_per_second)
        self.seen: list[Seen] = []
        self.requests_of: Counter[str] = Counter()
        self.bytes_of: Counter[str] = Counter()
        self.heads = 0
        self.versions = {"ETag", "Last-Modified"}
        """Headers that say which version of a file is sent; many servers send neither."""
        self._faults: list[_Fault] = []
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._connections: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", port), backlog=256)
        self.port: int = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._acceptor = threading.Thread(target=self._accept, daemon=True)

    # -- for tests ---------------------------------------------------------------------------------

    @property
    def requests(self) -> int:
        """GETs of objects."""
        return sum(self.requests_of.values())

    @property
    def bytes(self) -> int:
        """Bytes of bodies that were sent for them."""
        return sum(self.bytes_of.values())

    def reset(self) -> None:
        """Set the counters to 0."""
        with self._lock:
            self.requests_of.clear()
            self.bytes_of.clear()
            self.seen.clear()
            self.heads = 0

    def fail(self, path: str | None, kind: Kind, times: float = 1) -> None:
        """Answer the next `times` GETs of a path (None: of any) with a fault."""
        with self._lock:
            self._faults.append(_Fault(kind, path, times))

    def heal(self) -> None:
        """Forget the faults that are left."""
        with self._lock:
            self._faults.clear()

    def start(self) -> RangeServer:
        """Serve from threads of this process."""
        self._acceptor.start()
        return self

    def close(self) -> None:
        """End all connections; when it returns, nothing is served any more."""
        self._stopped.set()
        # A thread that waits in accept() is woken by a connection, not by close().
        with socket.socket() as knock:
            knock.settimeout(1)
            knock.connect_ex(("127.0.0.1", self.port))
        if self._acceptor.is_alive():
            self._acceptor.join()
        self._listener.close()
        with self._lock:
            for connection in self._connections:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()

    def __enter__(self) -> RangeServer:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # -- connections -------------------------------------------------------------------------------

    def _accept(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            if self._stopped.is_set():
                connection.close()
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._connections.add(connection)
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        pending = b""
        try:
            while True:
                while (end := pending.find(b"\r\n\r\n")) < 0:
                    more = connection.recv(65536)
                    if not more:
                        return
                    pending += more
                head, pending = pending[:end].decode("latin-1"), pending[end + 4 :]
                if not self._answer(connection, _parse(head)):
                    return
        except OSError:
            pass  # the client went away, or the server is being closed
        finally:
            with self._lock:
                self._connections.discard(connection)
            connection.close()

    def _answer(self, connection: socket.socket, request: _Request) -> bool:
        """Serve one request; False if the connection is to be closed."""
        url = urlsplit(request.target)
        path = unquote(url.path)
        query = parse_qs(url.query, keep_blank_values=True)
        if path == "/.counters":
            return self._tell_counters(connection, reset="reset" in query)
        if request.method == "GET" and "list-type" in query:
            return self._list(
                connection, path, query.get("prefix", [""])[0], quoted="encoding-type" in query
            )
        fault = self._enter(request, path)
        if self.latency_s:
            time.sleep(self.latency_s)
        if fault == "drop":
            return False
        if fault == "stall":
            self._stopped.wait()
            return False
        if request.method not in ("GET", "HEAD"):
            return self._refuse(connection, request, path, 405)
        if fault is not None and fault.isdigit():
            return self._refuse(connection, request, path, int(fault))
        file = (self.folder / path.lstrip("/")).resolve()
        if self.folder not in file.parents or not file.is_file():
            return self._refuse(connection, request, path, 404)
        handle = os.open(file, os.O_RDONLY)
        try:
            return self._send_file(connection, request, path, handle, fault)
        finally:
            os.close(handle)

    def _enter(self, request: _Request, path: str) -> Kind | None:
        """Count a request; the fault that it meets."""
        with self._lock:
            if request.method == "HEAD":
                self.heads += 1
                return None
            self.requests_of[path] += 1
            for fault in self._faults:
                if fault.meets(path):
                    fault.times -= 1
                    return fault.kind
        return None

    def _send_file(
        self,
        connection: socket.socket,
        request: _Request,
        path: str,
        handle: int,
        fault: Kind | None,
    ) -> bool:
        stat = os.fstat(handle)
        size = stat.st_size
        asked = request.headers.get("range", "") if fault != "ignore-range" else ""
        span = _span(asked, size)
        if span is None:
            return self._refuse(
                connection, request, path, 416, f"Content-Range: bytes */{size}\r\n"
            )
        start, end = span
        if fault == "short":
            end = start + (end - start) // 2
        if fault == "shift":
            moved = 1 if end < size else -1
            start, end = start + moved, end + moved
        versions = {
            "ETag": f'"{stat.st_ino:x}-{stat.st_mtime_ns:x}-{size:x}"',
            "Last-Modified": formatdate(stat.st_mtime, usegmt=True),
        }
        status = 206 if asked else 200
        head = (
            f"{_status_line(status)}Content-Length: {end - start}\r\nAccept-Ranges: bytes\r\n"
            f"Content-Type: application/octet-stream\r\n"
            + "".join(
                f"{name}: {value}\r\n" for name, value in versions.items() if name in self.versions
            )
            + (f"Content-Range: bytes {start}-{end - 1}/{size}\r\n" if asked else "")
            + "\r\n"
        )
        self._note(request, path, status)
        has_body = request.method == "GET" and end > start
        connection.sendall(head.encode(), socket.MSG_MORE if has_body else 0)
        if not has_body:
            return True
        if fault == "flip":
            body = bytearray(os.pread(handle, end - start, start))
            body[len(body) // 2] ^= 0x10
            self._count(path, len(body))
            connection.sendall(body)
            return True
        if fault == "truncate":
            end = start + (end - start) // 2
        self._send(connection, path, handle, start, end)
        return fault != "truncate"

    def _send(
        self, connection: socket.socket, path: str, handle: int, start: int, end: int
    ) -> None:
        begun = time.monotonic()
        while start < end:
            chunk = min(end - start, self.bucket.chunk if self.bucket else 1 << 20)
            if self.bucket:
                self.bucket.carry(chunk, begun)
            # Counted first: who has the last byte finds it counted.
            self._count(path, chunk)
            until = start + chunk
            while start < until:
                start += os.sendfile(connection.fileno(), handle, start, until - start)

    def _count(self, path: str, size: int) -> None:
        with self._lock:
            self.bytes_of[path] += size

    def _note(self, request: _Request, path: str, status: int) -> None:
        with self._lock:
            self.seen.append(Seen(request.method, path, request.headers.get("range", ""), status))

    # -- answers that are no file ------------------------------------------------------------------

    def _refuse(
        self,
        connection: socket.socket,
        request: _Request,
        path: str,
        status: int,
        extra: str = "",
    ) -> bool:
        self._note(request, path, status)
        head = f"{_status_line(status)}Content-Length: 0\r\n{extra}\r\n"
        connection.sendall(head.encode())
        return True

    def _tell_counters(self, connection: socket.socket, *, reset: bool) -> bool:
        told = {"requests": self.requests, "bytes": self.bytes, "heads": self.heads}
        if reset:
            self.reset()
        return _tell(connection, json.dumps(told), "application/json")

    def _list(self, connection: socket.socket, bucket: str, prefix: str, *, quoted: bool) -> bool:
        """S3's ListObjectsV2, on one page."""
        root = self.folder / bucket.strip("/")
        found = []
        for file in sorted(root.rglob("*")):
            key = file.relative_to(root).as_posix()
            if file.is_file() and key.startswith(prefix):
                stat = file.stat()
                when = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(stat.st_mtime))
                found.append(
                    f"<Contents><Key>{escape(quote(key) if quoted else key)}</Key>"
                    f"<LastModified>{when}</LastModified>"
                    f"<ETag>&quot;{stat.st_mtime_ns:x}&quot;</ETag><Size>{stat.st_size}</Size>"
                    "<StorageClass>STANDARD</StorageClass></Contents>"
                )
        body = (
            '<?xml version="1.0" encoding="UTF-8"?>'
            '<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
            f"<Name>{escape(bucket.strip('/'))}</Name><Prefix>{escape(prefix)}</Prefix>"
            f"<KeyCount>{len(found)}</KeyCount><MaxKeys>1000</MaxKeys>"
            f"{'<EncodingType>url</EncodingType>' if quoted else ''}"
            f"<IsTruncated>false</IsTruncated>{''.join(found)}</ListBucketResult>"
        )
        return _tell(connection, body, "application/xml")


def _tell(connection: socket.socket, text: str, kind: str) -> bool:
    body = text.encode()
    head = f"{_status_line(200)}Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    connection.sendall(head.encode() + body)
    return True


def _status_line(status: int) -> str:
    return f"HTTP/1.1 {status} {REASONS[status]}\r\n"


def _parse(head: str) -> _Request:
    first, *lines = head.split("\r\n")
    method, target, _ = first.split(" ", 2)
    pairs = (line.split(":", 1) for line in lines if ":" in line)
    return _Request(method, target, {key.strip().lower(): value.strip() for key, value in pairs})


def _span(asked: str, size: int) -> tuple[int, int] | None:
    """[start, end) of a Range header of one range; None if nothing of it exists."""
    if not asked:
        return 0, size
    first, last = asked.removeprefix("bytes=").split("-")
    if not first:
        return (max(0, size - int(last)), size) if size and int(last) else None
    start, end = int(first), min(size, int(last) + 1 if last else size)
    return (start, end) if start < end else None


def main() -> None:
    """Serve a folder until the process is ended."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--bytes-per-second", type=float, default=None)
    parser.add_argument("--latency-ms", type=float, default=0.0)
    parser.add_argument("--port", type=int, default=0)
    options = parser.parse_args()
    server = RangeServer(
        options.folder, options.bytes_per_second, options.latency_ms / 1000, options.port
    )
    server.start()
    print(server.port, flush=True)
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        server.close()


if __name__ == "__main__":
    main()
