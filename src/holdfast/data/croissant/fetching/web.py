"""Web servers: requests over kept connections, and what their refusals mean."""

from __future__ import annotations

import os
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

from holdfast.data.croissant.fetching.access import Access, is_public
from holdfast.data.croissant.fetching.answers import CHUNK, Answer, PassingFault, Span
from holdfast.data.croissant.fetching.parts import Version
from holdfast.data.croissant.fetching.urls import bare, without_query
from holdfast.errors import InputError

if TYPE_CHECKING:
    import requests
    from urllib3.connectionpool import HTTPConnectionPool

_CONNECT_S = 10.0
"""Longest wait for a connection, unless the timeout is shorter."""
_CONNECTIONS = 64  # that are kept
_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")
_HUB = "https://huggingface.co"


def hub_endpoint() -> str:
    """Where Hugging Face's hub is: ``$HF_ENDPOINT``, else its own address."""
    return os.environ.get("HF_ENDPOINT", "").rstrip("/") or _HUB


class Web:
    """Requests from many threads, each over a connection that is kept for the next.

    Names and passwords are taken from .netrc; ``$HF_TOKEN`` is sent to the hub alone, and to nobody to whom
    it redirects. With `Access.public_only` there is neither .netrc nor a proxy.
    """

    def __init__(self, access: Access | None = None) -> None:
        self.access = access or Access()
        self._lock = threading.Lock()
        self._session: requests.Session | None = None

    def close(self) -> None:
        """Close the connections."""
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
                    if self.access.public_only:
                        adapter.poolmanager.pool_classes_by_scheme = _public_pools()
                    self._session.mount(scheme, adapter)
                # A proxy would connect in our place, and a stranger's description shall use no password.
                self._session.trust_env = not self.access.public_only
            return self._session

    def get(self, url: str, headers: dict[str, str] | None = None) -> requests.Response:
        """The answer, its body not read; error answers are raised.

        Raises:
            PassingFault: no connection, or an answer that asks to come again.
            InputError: refused, or no URL.
        """
        import requests

        token = os.environ.get("HF_TOKEN")
        timeout = self.access.timeout
        signed = bool(token) and urlsplit(url).netloc == urlsplit(hub_endpoint()).netloc

        def sign(request: requests.PreparedRequest) -> requests.PreparedRequest:
            request.headers["Authorization"] = f"Bearer {token}"
            return request

        try:
            response = self._opened().get(
                url,
                headers=headers,
                stream=True,
                timeout=(min(_CONNECT_S, timeout), timeout),
                # A function: a password in .netrc would otherwise take the token's place.
                auth=sign if signed else None,
            )
        except requests.Timeout as error:
            raise PassingFault(f"no response within {timeout:g} s", stalled=True) from error
        except requests.TooManyRedirects as error:
            raise InputError(
                "the server redirects without end",
                code="network",
                path=bare(url),
                remedy=_OTHER_PLACE,
            ) from error
        except requests.exceptions.InvalidSchema as error:
            raise InputError(
                "the server redirects to an address that is not fetched",
                code="unsupported",
                path=bare(url),
                found=str(error).rpartition(" for ")[2],
                expected="one that begins with http:// or https://",
                remedy=_OTHER_PLACE,
            ) from error
        except (requests.ConnectionError, requests.exceptions.ChunkedEncodingError) as error:
            raise PassingFault(f"the connection failed ({_cause(error)})") from error
        except (requests.RequestException, ValueError) as error:
            raise InputError(
                "invalid URL", code="invalid-value", path=bare(url), found=type(error).__name__
            ) from error
        if response.status_code in (200, 206, 304, 416):
            return response
        response.close()
        if response.status_code in _PASSING:
            raise PassingFault(
                f"status {response.status_code} {response.reason}".rstrip(),
                _retry_after(response.headers.get("Retry-After")),
            )
        raise refused(url, response.status_code, response.reason, signed=signed)


class WebSource:
    """One file of a web server."""

    def __init__(self, web: Web, url: str) -> None:
        self._web, self._url = web, url

    def ask(
        self,
        span: Span | None,
        *,
        same_as: Version | None = None,
        unless: Version | None = None,
        decode: bool = False,
    ) -> Answer:
        """See `Source`."""
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
        return answered(self._web.get(self._url, headers), decode=decode, asked=bool(span))


def answered(response: requests.Response, *, decode: bool = False, asked: bool = True) -> Answer:
    """What an answer says of the file."""
    headers = response.headers
    etag, modified = headers.get("ETag"), headers.get("Last-Modified")
    encoding = headers.get("Content-Encoding", "").strip().lower().replace("identity", "")
    length = headers.get("Content-Length", "")
    answer = Answer(
        "whole",
        Version(int(length) if length.isdigit() and not encoding else None, etag, modified),
        content_type=headers.get("Content-Type", ""),
        encoding=encoding,
        final_url=without_query(response.url) if response.history else bare(response.url),
        body=_Body(response, decode),
    )
    if response.status_code == 304:
        answer.kind = "unchanged"
    elif response.status_code == 416:
        answer.kind = "no range"
        total = headers.get("Content-Range", "").rpartition("/")[2]
        answer.version = Version(int(total) if total.isdigit() else None, etag, modified)
    elif response.status_code == 206:
        found = _RANGE.fullmatch(headers.get("Content-Range", "").strip())
        if not found or not asked:
            response.close()
            raise PassingFault("a partial response without a valid Content-Range")
        total = found[3]
        answer.kind, answer.start, answer.end = "part", int(found[1]), int(found[2]) + 1
        answer.version = Version(int(total) if total.isdigit() else None, etag, modified)
    return answer


class _Body:
    def __init__(self, response: requests.Response, decode: bool) -> None:
        self._response, self._decode = response, decode

    def chunks(self) -> Iterator[bytes]:
        from urllib3.exceptions import HTTPError, ReadTimeoutError

        try:
            yield from self._response.raw.stream(CHUNK, decode_content=self._decode)
        except ReadTimeoutError as error:
            raise PassingFault("the server stopped sending", stalled=True) from error
        except (HTTPError, OSError) as error:
            raise PassingFault(f"the response broke off ({_cause(error)})") from error

    def close(self) -> None:
        self._response.close()

    def abort(self) -> None:
        with suppress(OSError, ValueError, RuntimeError):
            self._response.raw.shutdown()


_OTHER_PLACE = "open the URL in a browser; give a copy that you have by --map ID=PATH"


def not_public(url: str, found: str) -> InputError:
    """The error of a place that `Access.public_only` keeps from being asked."""
    return InputError(
        "this address is not public, and only public ones may be fetched",
        code="private-address",
        path=bare(url),
        found=found,
        expected="http or https on a public address",
        remedy="leave out --public-only (public_only) if you trust the description",
    )


def _public_pools() -> dict[str, type[HTTPConnectionPool]]:
    """Pools whose connections are closed, before anything is sent, unless they lead to a public address.

    The address is that of the connected peer: no name, redirect or second look-up can pass another one.
    """
    from urllib3.connection import HTTPConnection, HTTPSConnection
    from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

    class PublicHTTP(HTTPConnection):
        def _new_conn(self) -> socket.socket:
            return _checked(super()._new_conn(), f"http://{self.host}:{self.port}")

    class PublicHTTPS(HTTPSConnection):
        def _new_conn(self) -> socket.socket:
            return _checked(super()._new_conn(), f"https://{self.host}:{self.port}")

    class HTTPPool(HTTPConnectionPool):
        ConnectionCls = PublicHTTP  # type: ignore[assignment]

    class HTTPSPool(HTTPSConnectionPool):
        ConnectionCls = PublicHTTPS  # type: ignore[assignment]

    return {"http": HTTPPool, "https": HTTPSPool}


def _checked(connection: socket.socket, url: str) -> socket.socket:
    address = connection.getpeername()[0]
    if not is_public(address):
        connection.close()
        raise not_public(url, address)
    return connection


def refused(url: str, status: int, reason: str, *, signed: bool = False) -> InputError:
    """The error of a server's refusal, with what can be done about it."""
    parts = urlsplit(url)
    hub = parts.netloc == urlsplit(hub_endpoint()).netloc
    key = (
        "set HF_TOKEN to a token of your account" if not signed else "check that HF_TOKEN is valid"
    )
    login = f"write 'machine {parts.hostname} login NAME password SECRET' into ~/.netrc"
    known = {
        401: ("the server asks for a login", "permission", key if hub else login),
        403: (
            "the server refuses access to this file",
            "permission",
            f"{key}, and accept the dataset's terms on its page"
            if hub
            else f"{login}; {_OTHER_PLACE}",
        ),
        404: ("file not found on the server", "not-found", f"check the URL; {_OTHER_PLACE}"),
        407: ("the proxy asks for a login", "permission", "put it into HTTPS_PROXY"),
        410: ("the file was removed from the server", "not-found", _OTHER_PLACE),
    }
    problem, code, remedy = known.get(
        status, ("the server refuses the request", "network", _OTHER_PLACE)
    )
    return InputError(
        problem,
        code=code,
        path=bare(url),
        found=f"status {status} {reason or ''}".rstrip(),
        remedy=remedy,
    )


def next_page(response: requests.Response) -> str | None:
    """The URL of the Link header's rel="next" (RFC 8288)."""
    link = response.links.get("next", {}).get("url")
    return urljoin(response.url, link) if link else None


def _retry_after(text: str | None) -> float | None:
    """Seconds that a Retry-After header asks for, as a number or as a date."""
    if text is None:
        return None
    if text.strip().isdigit():
        return float(text)
    try:
        until = parsedate_to_datetime(text)
    except ValueError:
        return None
    return max(0.0, (until.replace(tzinfo=until.tzinfo or UTC) - datetime.now(UTC)).total_seconds())


def _cause(error: BaseException) -> str:
    """The innermost reason of an error, without addresses of objects and without URLs."""
    while True:
        inner = error.__cause__ or error.__context__ or getattr(error, "reason", None)
        if not isinstance(inner, BaseException):
            break
        error = inner
    return getattr(error, "strerror", None) or type(error).__name__
