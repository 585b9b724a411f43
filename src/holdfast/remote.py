"""Files of servers, by ranges: the retry policy, what a response says, and web servers (by requests).

A `Source` gives ranges of one file as `Response`: here of web servers, in `holdfast.objects` of object
stores and other file systems. It fails in two ways: `TransientError`, after which `Retry` says whether and
when to try again, or an `InputError`, which is final.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import random
import re
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit, urlunsplit

from holdfast.errors import InputError

if TYPE_CHECKING:
    import requests

TRANSIENT_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})
OTHER_RANGE = "the server sent a different range than requested"
NO_END = 1 << 62
CHUNK = 1 << 18
"""Bytes of a response that are read at a time."""

_CONNECT_S = 10.0  # longest wait for a connection, unless the timeout is shorter
_CONNECTIONS = 64  # kept open
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")
_NAT64 = ipaddress.ip_network("64:ff9b::/96")

_log = logging.getLogger(__name__)

Buffer = bytes | memoryview
Span = tuple[int, int]
"""[start, end) in bytes; (-n, 0) for the last n."""


def bare(url: str) -> str:
    """The URL without user name and password.

    Raises:
        InputError: if it is not a URL.
    """
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise InputError(
            "not a URL", code="invalid-value", found=url, expected="scheme://host/path"
        ) from error
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


# --- Retries -------------------------------------------------------------------------------------


class TransientError(Exception):
    """A failure after which the same request may succeed.

    Attributes:
        wait_s: seconds that the server asked to wait; None where it did not.
        stalled: whether the server was silent for the whole timeout.
    """

    def __init__(self, reason: str, wait_s: float | None = None, *, stalled: bool = False) -> None:
        super().__init__(reason)
        self.wait_s, self.stalled = wait_s, stalled


class Retry:
    """Counts failures in a row and waits between attempts.

    The n-th pause lasts `first_s` x 2^(n-1), at most 60 s, less up to half of it at random, so that many
    clients do not return at once; or as long as the server asks, at most 300 s.

    Args:
        url: what is requested, for the message.
        attempts: failures in a row after which it gives up.
        stalls: of these, how many may last the whole timeout.
        first_s: seconds of the first pause.
        sleep: waits some seconds; returns True if nothing should be tried again.
        rng: draws the random part of pauses.
    """

    def __init__(
        self,
        url: str,
        attempts: int = 7,
        stalls: int = 2,
        first_s: float = 0.5,
        sleep: Callable[[float], object] | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._url, self._attempts, self._stalls, self._first_s = url, attempts, stalls, first_s
        self._sleep = time.sleep if sleep is None else sleep
        self._random = (rng or random).random
        self._failures = self._stalled = 0

    def progress(self) -> None:
        """Something arrived: count failures from 0 again."""
        self._failures = self._stalled = 0

    def after(self, error: TransientError) -> None:
        """Wait before the next attempt.

        Raises:
            InputError: if there should be none.
        """
        self._failures += 1
        self._stalled += error.stalled
        if self._failures < self._attempts and self._stalled < self._stalls:
            if error.stalled:  # said also where no bar is shown: the user waits for something
                _log.warning("%s: %s; trying again", bare(self._url), error)
            longest = min(60.0, self._first_s * 2.0 ** (self._failures - 1))
            asked = error.wait_s
            seconds = longest * (1 - self._random() / 2) if asked is None else min(asked, 300.0)
            if self._sleep(seconds) is not True:
                return
        raise InputError(
            "the server does not send this file",
            code="network",
            path=bare(self._url),
            found=f"{error}; tried {self._failures} times",
            remedy=f"try again later{', or with a longer timeout' * error.stalled}",
        ) from error


def retry_after(value: str | None) -> float | None:
    """Seconds that a Retry-After header asks to wait, as a number or as a date."""
    try:
        return max(0.0, float(value or ""))
    except ValueError:
        pass
    try:
        until = parsedate_to_datetime(value or "")
    except ValueError:
        return None
    return max(0.0, (until.replace(tzinfo=until.tzinfo or UTC) - datetime.now(UTC)).total_seconds())


# --- Responses -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Version:
    """How a server tells one version of a file from the next; None for what it does not state."""

    size: int | None = None
    etag: str | None = None
    modified: str | None = None

    @property
    def validator(self) -> str | None:
        """What may stand in If-Range (RFC 9110, 13.1.5): a strong ETag, else the date."""
        strong = self.etag and not self.etag.startswith("W/")
        return self.etag if strong else self.modified

    def agrees(self, other: Version) -> bool:
        """Whether both can be of one version, as far as both say."""
        pairs = ((self.size, other.size), (self.etag, other.etag), (self.modified, other.modified))
        return all(mine is None or theirs is None or mine == theirs for mine, theirs in pairs)


def _nothing() -> Any:
    return ()


@dataclass(slots=True)
class Response:
    """A response whose body was not read yet.

    Attributes:
        kind: "part" (bytes `start` to `end` of the file), "whole" (all of it), "unchanged" (it is of the
            version that was named) or "outside" (the file has no such bytes).
        encoding: a Content-Encoding that stands between the body and the file.
        final_url: where redirects led; without a query, which may hold a signature.
        chunks: yields the body; raises `TransientError` where it breaks off.
        close: ends the body.
    """

    kind: Literal["part", "whole", "unchanged", "outside"]
    version: Version
    start: int = 0
    end: int | None = None
    content_type: str = ""
    encoding: str = ""
    final_url: str = ""
    chunks: Callable[[], Iterable[Buffer]] = _nothing
    close: Callable[[], object] = _nothing


Source = Callable[..., Response]
"""Requests bytes of one file; may be called from many threads.

Args:
    span: None for the whole file.
    same_as: the version that the part should be of; the response may be of another.
    unless: send nothing if the file is still of this version.

Raises `TransientError` if the same request may succeed later, `InputError` if it will not.
"""


class RangesRefused(InputError):
    """A server that does not send parts of this file: fetch the whole."""


def read_span(
    source: Source, span: Span | None, retry: Retry, version: Version | None = None
) -> tuple[Buffer, Response]:
    """The bytes of a span, fewer where the file ends, and the response that began them.

    A body that breaks off is continued where it is still of the same version, else read anew: parts of
    two versions are never joined.

    Args:
        source: of the file.
        span: None for the whole file.
        retry: its failures are counted from 0 whenever more bytes than before arrived.
        version: the only one that is accepted; None for any.

    Raises:
        RangesRefused: if the server sends the whole file for a part of it.
        InputError: as `Source`; if `retry` gives up; ``changed`` if the file is not of `version`.
    """
    parts: list[Buffer] = []
    first: Response | None = None
    asked, pinned, have, farthest = span, version, 0, 0
    while True:
        try:
            response = source(asked, same_as=pinned)
            try:
                gone = response.kind == "outside"
                if pinned and (gone or not pinned.agrees(response.version)):
                    if version:
                        raise InputError(
                            "the file changed on the server while it was read",
                            code="changed",
                            path=response.final_url,
                            remedy="read it again",
                        )
                    parts, first, asked, pinned, have = [], None, span, None, 0
                    raise TransientError("the file changes while it is read")
                if gone:
                    return b"", response
                start, end = _bounds(span, response)
                if response.start != start + have:
                    raise TransientError(OTHER_RANGE)
                first, pinned = first or response, response.version
                for chunk in response.chunks():
                    parts.append(chunk)
                    have += len(chunk)
                    if end is not None and have >= end - start:
                        break
            finally:
                response.close()
            if end is None or have >= end - start:
                data = parts[0] if len(parts) == 1 else b"".join(parts)
                return memoryview(data)[: None if end is None else end - start], first
            error = TransientError("the response ended early")
        except TransientError as fault:
            error = fault
        if have > farthest:  # a file that changes again and again gets no farther
            farthest = have
            retry.progress()
        retry.after(error)
        if have:
            asked = (start + have, NO_END if end is None else end)


def _bounds(span: Span | None, response: Response) -> tuple[int, int | None]:
    """What a span means in the file of a response; the end is None where nothing states it."""
    size = response.version.size
    if span is None:
        return 0, size
    start, end = within(span, NO_END if size is None else size)
    refused = response.kind == "whole" and (start, end) != (0, size)
    if refused or response.encoding or (size is None and span[0] < 0):
        raise RangesRefused(
            "the server does not support range requests for this file",
            code="unsupported",
            path=response.final_url,
            remedy="fetch the whole file",
        )
    return start, end


def within(span: Span | None, size: int) -> Span:
    """What a span means in a file of this size."""
    if span is None:
        return 0, size
    start, end = span
    return (max(0, size + start), size) if start < 0 else (start, min(end, size))


# --- Web servers ---------------------------------------------------------------------------------


def is_public(address: str) -> bool:
    """Whether an IP address is of the public internet, also where IPv6 wraps one of IPv4."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour
        if ip in _NAT64:
            inner = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        if inner is not None:
            ip = inner
    return ip.is_global and not ip.is_multicast


def hub_endpoint() -> str:
    """Where Hugging Face's hub is: ``$HF_ENDPOINT``, else its own address."""
    return os.environ.get("HF_ENDPOINT", "").rstrip("/") or "https://huggingface.co"


class Web:
    """Requests from many threads, each over a connection that is kept for the next.

    Names and passwords are taken from .netrc; ``$HF_TOKEN`` is sent to the hub alone, and to no host to
    which it redirects.

    Args:
        timeout_s: longest wait for a connection (at most 10 s) and between two pieces of a response.
        public_only: refuse servers whose address is not public, also after redirects; use neither .netrc
            nor a proxy.
        elsewhere: what a user can do when a server refuses a file; ends remedies.
    """

    def __init__(
        self,
        timeout_s: float = 30.0,
        *,
        public_only: bool = False,
        elsewhere: str = "check the URL",
    ) -> None:
        self._timeout_s, self._public_only, self._elsewhere = timeout_s, public_only, elsewhere
        self._lock = threading.Lock()
        self._session: requests.Session | None = None

    def close(self) -> None:
        """Close the connections; it may still be used."""
        with self._lock:
            if self._session:
                self._session.close()
                self._session = None

    def _opened(self) -> requests.Session:
        """The session; its pool of connections may be used by many threads."""
        with self._lock:
            if self._session is None:
                import requests
                from requests.adapters import HTTPAdapter

                self._session = requests.Session()
                for scheme in ("http://", "https://"):
                    adapter = HTTPAdapter(pool_maxsize=_CONNECTIONS)
                    if self._public_only:
                        adapter.poolmanager.pool_classes_by_scheme = _public_pools()
                    self._session.mount(scheme, adapter)
                # A proxy would connect in our place, and no password should go to a stranger's server.
                self._session.trust_env = not self._public_only
            return self._session

    def request(self, method: str, url: str, **options: Any) -> requests.Response:
        """Any response, whatever its status; `options` are those of ``requests.Session.request``.

        Raises:
            TransientError: no connection, or no response in time.
            InputError: the URL is invalid, or redirects end nowhere.
        """
        import requests

        timeout = self._timeout_s
        try:
            return self._opened().request(
                method, url, timeout=(min(_CONNECT_S, timeout), timeout), **options
            )
        except requests.Timeout as error:
            raise TransientError(f"no response within {timeout:g} s", stalled=True) from error
        except (requests.TooManyRedirects, requests.exceptions.InvalidSchema) as error:
            endless = isinstance(error, requests.TooManyRedirects)
            raise InputError(
                "the server redirects to an address that is not fetched",
                code="network" if endless else "unsupported",
                path=bare(url),
                found="redirects without end" if endless else str(error).rpartition(" for ")[2],
                expected="one that begins with http:// or https://",
                remedy=self._elsewhere,
            ) from error
        except (requests.ConnectionError, requests.exceptions.ChunkedEncodingError) as error:
            raise TransientError(f"the connection failed ({_cause(error)})") from error
        except (requests.RequestException, ValueError) as error:
            raise InputError(
                "invalid URL", code="invalid-value", path=bare(url), found=type(error).__name__
            ) from error

    def get(self, url: str, headers: Mapping[str, str] | None = None) -> requests.Response:
        """A response of status 200, 206, 304 or 416, its body not read.

        Raises:
            TransientError: as `request`, or a status after which the server may be asked again.
            InputError: as `request`, or the server refuses.
        """
        token = os.environ.get("HF_TOKEN")
        hub = urlsplit(url).netloc == urlsplit(hub_endpoint()).netloc

        def sign(request: requests.PreparedRequest) -> requests.PreparedRequest:
            request.headers["Authorization"] = f"Bearer {token}"
            return request

        # A function: a password in .netrc would otherwise take the token's place.
        auth = sign if token and hub else None
        response = self.request("GET", url, headers=headers, stream=True, auth=auth)
        if response.status_code in (200, 206, 304, 416):
            return response
        response.close()
        status = f"status {response.status_code} {response.reason or ''}".rstrip()
        if response.status_code in TRANSIENT_STATUSES:
            raise TransientError(status, retry_after(response.headers.get("Retry-After")))
        if hub:
            login = "check that HF_TOKEN is valid" if auth else "set HF_TOKEN to a token of yours"
            login += ", and accept the terms on the dataset's page"
        else:
            host = urlsplit(url).hostname
            login = f"write 'machine {host} login NAME password SECRET' into ~/.netrc"
        problem, code, remedy = {
            401: ("the server asks for a login", "permission", login),
            403: ("the server refuses access to this file", "permission", login),
            404: ("file not found on the server", "not-found", "check the URL"),
            407: ("the proxy asks for a login", "permission", "put it into HTTPS_PROXY"),
            410: ("the file was removed from the server", "not-found", ""),
        }.get(response.status_code, ("the server refuses the request", "network", ""))
        remedy = "; ".join(filter(None, [remedy, self._elsewhere]))
        raise InputError(problem, code=code, path=bare(url), found=status, remedy=remedy)

    def open(
        self,
        url: str,
        span: Span | None = None,
        *,
        same_as: Version | None = None,
        unless: Version | None = None,
        decode: bool = False,
    ) -> Response:
        """Request bytes of the file at a URL, as `Source`."""
        headers = {"Accept-Encoding": "identity"}  # offsets are of the file, not of a packed form
        if span:
            start, end = span
            headers["Range"] = f"bytes={start}" if start < 0 else f"bytes={start}-{end - 1}"
            if same_as and same_as.validator:
                headers["If-Range"] = same_as.validator
        if unless and unless.etag:
            headers["If-None-Match"] = unless.etag
        elif unless and unless.modified:
            headers["If-Modified-Since"] = unless.modified
        return _read_head(self.get(url, headers), decode, asked=span is not None)


def _read_head(response: requests.Response, decode: bool, asked: bool) -> Response:
    """What the status and the headers of a response say of the file."""
    headers, status = response.headers, response.status_code
    encoding = headers.get("Content-Encoding", "").strip().lower().replace("identity", "")
    content_range = headers.get("Content-Range", "").strip()
    length = "" if encoding else headers.get("Content-Length", "")
    if status in (206, 416):
        length = content_range.rpartition("/")[2]
    size = int(length) if length.isdigit() else None
    place = urlsplit(bare(response.url))
    if response.history:
        place = place._replace(query="", fragment="")
    opened = Response(
        "whole",
        Version(size, headers.get("ETag"), headers.get("Last-Modified")),
        content_type=headers.get("Content-Type", ""),
        encoding=encoding,
        final_url=urlunsplit(place),
        chunks=lambda: web_chunks(response, decode),
        close=response.close,
    )
    if status == 304:
        opened.kind = "unchanged"
    elif status == 416:
        opened.kind = "whole" if size == 0 else "outside"
    elif status == 206:
        found = _CONTENT_RANGE.fullmatch(content_range)
        if not found or not asked:
            response.close()
            raise TransientError("a partial response without a valid Content-Range")
        opened.kind, opened.start, opened.end = "part", int(found[1]), int(found[2]) + 1
    return opened


def web_chunks(response: requests.Response, decode: bool) -> Iterator[bytes]:
    """The body of a response, as `Response.chunks`."""
    from urllib3.exceptions import HTTPError, ReadTimeoutError

    try:
        yield from response.raw.stream(CHUNK, decode_content=decode)
    except ReadTimeoutError as error:
        raise TransientError("the server stopped sending", stalled=True) from error
    except (HTTPError, OSError) as error:
        raise TransientError(f"the response broke off ({_cause(error)})") from error


def private_address(url: str, found: str) -> InputError:
    """The error of a server that is refused because its address is not public."""
    return InputError(
        "this address is not public, and only public ones may be fetched",
        code="private-address",
        path=bare(url),
        found=found,
        expected="http or https on a public address",
        remedy="leave out --public-only (public_only) if you trust the source",
    )


def _public_pools() -> dict[str, Any]:
    """Pools whose connections are closed, before anything is sent, unless they lead to a public address.

    The address is that of the connected peer: no name, redirect or second look-up can pass another one.
    """
    from urllib3 import connection, connectionpool

    class HTTP(connection.HTTPConnection):
        def _new_conn(self) -> socket.socket:
            return _checked(super()._new_conn(), f"http://{self.host}:{self.port}")

    class HTTPS(connection.HTTPSConnection):
        def _new_conn(self) -> socket.socket:
            return _checked(super()._new_conn(), f"https://{self.host}:{self.port}")

    class HTTPPool(connectionpool.HTTPConnectionPool):
        ConnectionCls = HTTP  # type: ignore[assignment]

    class HTTPSPool(connectionpool.HTTPSConnectionPool):
        ConnectionCls = HTTPS  # type: ignore[assignment]

    return {"http": HTTPPool, "https": HTTPSPool}


def _checked(connected: socket.socket, url: str) -> socket.socket:
    address = connected.getpeername()[0]
    if not is_public(address):
        connected.close()
        raise private_address(url, address)
    return connected


def _cause(error: BaseException) -> str:
    """The innermost reason of an error, without addresses of objects and without URLs."""
    while isinstance(
        inner := error.__cause__ or error.__context__ or getattr(error, "reason", None),
        BaseException,
    ):
        error = inner
    return getattr(error, "strerror", None) or type(error).__name__
