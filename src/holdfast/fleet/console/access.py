"""Who may ask the console: host names, the token, and the headers that every answer carries.

Without a token the console answers only under a name of the loopback, so that no web page can reach it
by a name that it made to resolve here (DNS rebinding). With a token it answers under any name to whoever
has shown the token: as ``Authorization: Bearer``, as the cookie that ``?token=`` or the sign-in form
sets, and in no other way. What changes something must come from the console's own pages.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Callable
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from holdfast.errors import InputError, MissingExtraError

try:
    from starlette.datastructures import Headers, MutableHeaders
    from starlette.responses import RedirectResponse, Response
except ModuleNotFoundError as error:
    raise MissingExtraError("fastapi", "console") from error

SHORTEST_TOKEN = 16
"""Characters of the shortest token that is accepted."""
SIGN_IN = "/session"
OPEN = "/static/"
"""Pages below this need no token: the look of the sign-in page."""
LARGEST_BODY = 65_536

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}

Refusal = Callable[[int, str, str, str], Response]
"""Makes a page from a status, what is wrong, what to do, and the address that was asked for."""


def check_token(token: str) -> None:
    """Refuse a token that could be guessed.

    Raises:
        InputError: if it is too short.
    """
    if len(token) < SHORTEST_TOKEN:
        raise InputError(
            "the token is too short to be a secret",
            code="token-too-short",
            found=f"{len(token)} characters",
            expected=f"{SHORTEST_TOKEN} or more",
            remedy="make one with `openssl rand -hex 16`",
        )


class Access:
    """ASGI middleware: lets in who may ask, and adds the headers.

    Args:
        app: what answers.
        token: needed to be let in; None: the loopback only, without a token.
        refuse: makes the page of a refusal.
    """

    def __init__(self, app: Any, *, token: str | None, refuse: Refusal) -> None:
        self._app = app
        self._refuse = refuse
        self._token = None if token is None else token.encode()
        # The cookie proves that its bearer had the token, and does not give it away.
        made = hashlib.sha256(b"" if token is None else token.encode()).hexdigest()
        self._cookie = f"holdfast_{made[:8]}"  # consoles on one host keep apart
        self._proof = hmac.new(self._token or b"", b"holdfast console", "sha256").hexdigest()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # the console has no web sockets

        async def with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        answer = await self._answer(scope, receive)
        await (answer or self._app)(scope, receive, with_headers)

    async def _answer(self, scope: Any, receive: Any) -> Response | None:
        """What to say instead of a page; None: let it through."""
        headers = Headers(scope=scope)
        if self._token is None and not is_loopback(headers.get("host", "")):
            return self._refuse(
                421,
                f"This console answers on this machine only, not as {headers.get('host', '')!r}.",
                "Open it as http://127.0.0.1 or http://localhost, or start it with a token.",
                "/",
            )
        if scope["method"] not in ("GET", "HEAD") and not same_origin(headers):
            return self._refuse(
                403,
                "The request came from a page of another site.",
                "Use the form on the console's own page.",
                "/",
            )
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > LARGEST_BODY:
            return self._refuse(413, "The request is too large.", "Send fewer changes.", "/")
        if self._token is None or scope["path"].startswith(OPEN):
            return None
        if scope["path"] == SIGN_IN and scope["method"] == "POST":
            return self._sign_in(scope, dict(await read_form(receive)))
        return self._ask_for_token(scope, headers)

    def _ask_for_token(self, scope: Any, headers: Headers) -> Response | None:
        kind, _, bearer = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and self._is_token(bearer.strip()):
            return None
        if hmac.compare_digest(self._shown(headers).encode(), self._proof.encode()):
            return None
        asked = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        rest = urlencode([(name, value) for name, value in asked if name != "token"])
        address = scope["path"] + (f"?{rest}" if rest else "")
        given = [value for name, value in asked if name == "token"]
        if given and scope["method"] == "GET" and self._is_token(given[0]):
            return self._let_in(scope, address)
        refused = self._refuse(
            401,
            "The token is wrong." if given or kind else "This console needs a token.",
            "Type the token that it was started with.",
            address,
        )
        refused.headers["WWW-Authenticate"] = "Bearer"
        return refused

    def _sign_in(self, scope: Any, form: dict[str, str]) -> Response:
        address = form.get("next", "/")
        if self._is_token(form.get("token", "").strip()):
            return self._let_in(scope, address)
        what = "Type the token that it was started with."
        return self._refuse(401, "The token is wrong.", what, address)

    def _let_in(self, scope: Any, address: str) -> Response:
        # "//host" and "/\host" would lead to another site.
        local = address.startswith("/") and not address.startswith(("//", "/\\"))
        answer = RedirectResponse(address if local else "/", status_code=303)
        proxied = Headers(scope=scope).get("x-forwarded-proto", "")
        secure = "https" in (scope.get("scheme"), proxied)
        answer.set_cookie(
            self._cookie, self._proof, path="/", httponly=True, secure=secure, samesite="lax"
        )
        return answer

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self._token or b"")

    def _shown(self, headers: Headers) -> str:
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(self._cookie)
        except CookieError:
            return ""
        return "" if cookie is None else cookie.value


def is_loopback(host: str) -> bool:
    """Whether a Host header names this machine's loopback, with or without a port."""
    try:
        parts = urlsplit(f"//{host}")
        whole = parts.netloc == host and "@" not in host and (parts.port or 0) >= 0
        name = parts.hostname or ""
        return whole and (name == "localhost" or ipaddress.ip_address(name).is_loopback)
    except ValueError:  # no port, no address
        return False


def same_origin(headers: Headers) -> bool:
    """Whether a request comes from a page of the console, or from no page at all."""
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site in ("same-origin", "none")
    origin = headers.get("origin")
    return origin is None or urlsplit(origin).netloc == headers.get("host")


async def read_form(receive: Any) -> list[tuple[str, str]]:
    """The fields of a submitted form, in order."""
    body, more = b"", True
    while more and len(body) <= LARGEST_BODY:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    return parse_qsl(body[:LARGEST_BODY].decode("utf-8", "replace"), keep_blank_values=True)
