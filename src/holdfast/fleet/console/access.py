"""Who may ask the console: host names, the token, and the headers that every answer carries.

Without a token the console answers only under a name of the loopback, so that no web page can reach it
by a name that it made to resolve here (DNS rebinding). With a token it answers under any name to whoever
shows the token: as ``Authorization: Bearer``, or as the password of ``Basic``, for which browsers ask their
user. Each person may have a token of their own; what an operator decides is a POST, which must come from a
page of this console (its origin, and a word that only its pages know). Every other route only reads.
"""

from __future__ import annotations

import base64
import hmac
import ipaddress
import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from holdfast.errors import InputError, MissingExtraError
from holdfast.fleet.live.settings import Person

try:
    from starlette.datastructures import Headers, MutableHeaders
    from starlette.responses import Response
except ModuleNotFoundError as error:
    raise MissingExtraError("fastapi", "console") from error

SHORTEST_TOKEN = 16  # Characters of the shortest token that is accepted

OPEN = "/static/"  # Files below this need no token: the look of a refusal

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

# Makes a page from a status, what is wrong, and what to do
Refusal = Callable[[int, str, str], Response]


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
        tokens: what lets in, and whom (None: a reader without a name); none: the loopback only.
        refuse: makes the page of a refusal.

    The scope of a request that is let in has its `Person` under ``person``.
    """

    def __init__(self, app: Any, *, tokens: Mapping[str, Person | None], refuse: Refusal) -> None:
        self._app = app
        self._refuse = refuse
        self._tokens = tokens

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
                headers.update(HEADERS)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        refusal = self._refusal(Headers(scope=scope), scope)
        await (refusal or self._app)(scope, receive, with_headers)

    def _refusal(self, headers: Headers, scope: Any) -> Response | None:
        """What to say instead of a page; None: let it through."""
        if not self._tokens:
            if is_loopback(headers.get("host", "")):
                return None
            return self._refuse(
                421,
                f"This console answers on this machine only, not as {headers.get('host', '')!r}.",
                "Open it as http://127.0.0.1 or http://localhost, or start it with a token.",
            )
        shown = shown_token(headers.get("authorization", ""))
        for token, person in self._tokens.items():
            if hmac.compare_digest(shown.encode(), token.encode()):
                scope["person"] = person
                return None
        if scope["path"].startswith(OPEN):
            return None
        refused = self._refuse(
            401,
            "The token is wrong." if shown else "This console needs a token.",
            "Any user name; the password is the token that it was started with.",
        )
        refused.headers["WWW-Authenticate"] = 'Basic realm="holdfast", charset="UTF-8"'
        return refused


_SECRET = secrets.token_bytes(32)  # Of this process


def word_for(person: Person) -> str:
    """What a form for a person carries, so that no other site's form is taken for it."""
    return hmac.new(_SECRET, person.name.encode(), "sha256").hexdigest()


def is_own(headers: Headers, person: Person, word: str) -> bool:
    """Whether a form was on a page of this console, for this person."""
    origin = headers.get("origin")
    here = origin is None or urlsplit(origin).netloc == headers.get("host")
    return here and hmac.compare_digest(word.encode(), word_for(person).encode())


def shown_token(authorization: str) -> str:
    """The token in an Authorization header; "" if there is none."""
    kind, _, value = authorization.strip().partition(" ")
    if kind.lower() == "bearer":
        return value.strip()
    if kind.lower() == "basic":
        with suppress(ValueError):  # not base64, not UTF-8
            return base64.b64decode(value.strip(), validate=True).decode().partition(":")[2]
    return ""


def is_loopback(host: str) -> bool:
    """Whether a Host header names this machine's loopback, with or without a port."""
    try:
        parts = urlsplit(f"//{host}")
        whole = parts.netloc == host and "@" not in host and (parts.port or 0) >= 0
        name = parts.hostname or ""
        return whole and (name == "localhost" or ipaddress.ip_address(name).is_loopback)
    except ValueError:  # no port, no address
        return False
