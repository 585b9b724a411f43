"""A web server on loopback that serves bytes from memory, as RFC 9110 says or as badly as a test wants.

with DataServer() as server:
    file = server.add("/a.csv", b"...", etag='"1"')
    file.faults += ["drop", "503"]
    ...  # fetch server.url + "/a.csv"
    assert file.sent == 3
"""

from __future__ import annotations

import gzip
import sys
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit


@dataclass(eq=False)
class Served:
    """One path.

    Attributes:
        faults: what the next requests meet, one each: "drop" (half of the body, then the connection
            closes), "stall" (half of the body, then silence until `release`), "short" (half of the range,
            honestly declared), "shift" (another range), "more" (a body longer than was asked for), a number
            (that status), or None (no fault).
        ranges: whether Range is honoured.
        judges: whether If-Range is honoured; a server that does not sends parts of whatever it has.
        packed: send it with Content-Encoding gzip, asked or not.
        unsized: send no Content-Length, in chunks.
        barrier: every request waits until so many are there at once.
        hold: a request for bytes at or after this offset waits for `release`, having set `held`.
        sent: bytes of bodies that were sent.
        asked: (Range header, status) of each request.
    """

    data: bytes
    etag: str | None = None
    modified: str | None = None
    content_type: str = "application/octet-stream"
    headers: dict[str, str] = field(default_factory=dict)
    faults: deque[str | None] = field(default_factory=deque)
    ranges: bool = True
    judges: bool = True
    packed: bool = False
    unsized: bool = False
    redirect: str | None = None
    barrier: threading.Barrier | None = None
    hold: int | None = None
    held: threading.Event = field(default_factory=threading.Event)
    release: threading.Event = field(default_factory=threading.Event)
    on_request: Callable[[Served], None] | None = None
    sent: int = 0
    asked: list[tuple[str, int]] = field(default_factory=list)
    authorizations: list[str] = field(default_factory=list)


class DataServer:
    """Serves what `add` was given; usable in a `with` block."""

    def __init__(self) -> None:
        self.files: dict[str, Served] = {}
        self.lock = threading.Lock()
        self._server = _Quiet(("127.0.0.1", 0), _handler(self))
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    def add(self, path: str, data: bytes = b"", **how: Any) -> Served:
        """Serve bytes at a path, which may have a query."""
        self.files[path] = Served(data, **how)
        return self.files[path]

    def __enter__(self) -> DataServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for file in self.files.values():
            file.release.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away, or was killed, is no news."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


def _handler(server: DataServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1
        disable_nagle_algorithm = True

        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            try:
                self._get()
                self.wfile.flush()
            except (ConnectionError, BrokenPipeError):
                self.close_connection = True

        def _get(self) -> None:
            file = server.files.get(self.path) or server.files.get(urlsplit(self.path).path)
            if file is None:
                self._say(404)
                return
            if file.on_request:
                file.on_request(file)
            with server.lock:
                fault = file.faults.popleft() if file.faults else None
                file.authorizations.append(self.headers.get("Authorization", ""))
            if file.barrier:
                file.barrier.wait(30)
            if fault and fault.isdigit():
                self._note(file, int(fault))
                self._say(int(fault), file.headers)
                return
            if file.redirect:
                self._note(file, 302)
                self._say(302, {"Location": file.redirect})
                return
            self._send(file, fault)

        def _send(self, file: Served, fault: str | None) -> None:
            told = {"Content-Type": file.content_type, **file.headers}
            if file.etag:
                told["ETag"] = file.etag
            if file.modified:
                told["Last-Modified"] = file.modified
            known = (self.headers.get("If-None-Match"), self.headers.get("If-Modified-Since"))
            if (file.etag and known[0] == file.etag) or (
                file.modified and known[0] is None and known[1] == file.modified
            ):
                self._note(file, 304)
                self._say(304, told)
                return
            body, status = file.data, 200
            if file.packed:
                body = gzip.compress(body, mtime=0)
                told["Content-Encoding"] = "gzip"
            wanted = self.headers.get("Range", "") if file.ranges else ""
            condition = self.headers.get("If-Range")
            if condition and file.judges and condition not in (file.etag, file.modified):
                wanted = ""
            if wanted:
                first, _, last = wanted.removeprefix("bytes=").partition("-")
                if not first:
                    start, end = max(0, len(body) - int(last)), len(body)
                else:
                    start, end = int(first), min(int(last) + 1 if last else len(body), len(body))
                if start >= end:
                    self._note(file, 416)
                    self._say(416, told | {"Content-Range": f"bytes */{len(body)}"})
                    return
                if fault == "short":
                    end = start + (end - start + 1) // 2
                if fault == "shift":
                    start, end = start - 1 if start else 1, end
                if fault == "more":
                    end = len(body)
                told["Content-Range"] = f"bytes {start}-{end - 1}/{len(body)}"
                told["Accept-Ranges"] = "bytes"
                whole, body, status = body, body[start:end], 206
                if file.hold is not None and end > file.hold:
                    self._note(file, status)
                    file.held.set()
                    file.release.wait(60)
                    raise ConnectionError
                del whole
            self._note(file, status)
            self.send_response(status)
            for name, value in told.items():
                self.send_header(name, value)
            if file.unsized:
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                half = len(body) // 2
                pieces = [body[:half]] if fault == "drop" else [body[:half], body[half:]]
                for piece in filter(None, pieces):
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                    self._count(file, len(piece))
                if fault != "drop":
                    self.wfile.write(b"0\r\n\r\n")
            else:
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                body = body[: len(body) // 2] if fault in ("drop", "stall") else body
                self._count(file, len(body))
                self.wfile.write(body)
                if fault == "stall":
                    self.wfile.flush()
                    file.release.wait(60)
            self.close_connection = self.close_connection or fault == "drop"

        def _say(self, status: int, headers: dict[str, str] | None = None) -> None:
            self.send_response(status)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            if status != 304:
                self.send_header("Content-Length", "0")
            self.end_headers()

        def _note(self, file: Served, status: int) -> None:
            with server.lock:
                file.asked.append((self.headers.get("Range", ""), status))

        def _count(self, file: Served, size: int) -> None:
            with server.lock:
                file.sent += size

    return Handler
