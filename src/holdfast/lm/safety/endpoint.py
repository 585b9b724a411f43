"""Systems behind a server that speaks OpenAI's ``/v1/chat/completions``, asked through aiohttp."""

from __future__ import annotations

import hashlib
import json
import textwrap
from typing import Any

import aiohttp

from holdfast.errors import InputError
from holdfast.lm.models.naming import at_least, server_key, split_endpoint, split_options
from holdfast.lm.safety.answers import is_filtered, read_json, read_reply
from holdfast.lm.safety.specification import Settings
from holdfast.lm.safety.systems import LIMIT_OPTIONS, Failure, Limits, Messages, Reply
from holdfast.remote import TRANSIENT_STATUSES, retry_after

_LONGEST_ANSWER = 16 << 20
_OVERLOADED = frozenset({502, 503, 504, 529})
_FATAL = frozenset({401, 402, 403, 404, 405})
_STABLE = ("id", "root", "parent", "owned_by", "max_model_len", "meta")
"""What `/models` says of a model and a server's clock does not change."""


def open_endpoint(name: str, settings: Settings) -> Endpoint:
    """A model behind a server.

    Args:
        name: ``openai:http://host:port/v1#MODEL``; options: those of `Limits`, and ``timeout`` (seconds
            for a whole answer, 120 by default). The key is read from the environment, HOLDFAST_API_KEY or
            OPENAI_API_KEY, and never written.
        settings: longest response, temperature.

    Raises:
        InputError: if the name cannot be read, or holds a password.
    """
    options = {**LIMIT_OPTIONS, "timeout": at_least(1e-3, float)}
    front, limits = split_options(name, options)
    timeout_s = limits.pop("timeout", 120.0)
    return Endpoint(name, *split_endpoint(front), settings, Limits(**limits), timeout_s)


class Endpoint:
    """One model of one server.

    Args:
        name: as the user gave it.
        url: up to and with ``/v1``.
        model: as the server names it.
        settings: longest response, temperature.
        limits: concurrency, retries, rates, prices.
        timeout_s: for a whole answer, however slowly it drips.
    """

    def __init__(
        self, name: str, url: str, model: str, settings: Settings, limits: Limits, timeout_s: float
    ) -> None:
        self.name, self.limits = name, limits
        self._url, self._model, self._timeout_s = url, model, timeout_s
        self._fields = {"max_tokens": settings.max_tokens, "temperature": settings.temperature}
        self._key = server_key()
        self._open: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close the connections."""
        if self._open is not None:
            await self._open.close()

    async def fingerprint(self) -> str:
        """Digest of the URL, the model, and what the server says about it at ``/models``."""
        try:
            listed = read_json(await self._send("GET", "/models", None))
        except Failure as failure:
            if failure.kind not in ("refused", "malformed") and not failure.fatal:
                raise InputError(
                    "the server does not answer",
                    code="network",
                    path=self._url,
                    found=failure.detail,
                    remedy="check the URL (most servers want /v1 at its end) and that the server runs",
                ) from failure
            listed = {}  # not every server has the list; what is wrong with the key shows when it is asked
        models = listed.get("data") if isinstance(listed, dict) else None
        models = models if isinstance(models, list) else []
        models = [model for model in models if isinstance(model, dict)]
        mine = next((model for model in models if model.get("id") == self._model), {})
        facts = [self._url, self._model, {key: mine[key] for key in _STABLE if key in mine}]
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

    async def ask(self, messages: Messages, item: str = "") -> Reply:
        """The first choice of the server's answer; a refusal of a content filter is one, too."""
        body = {"model": self._model, "messages": list(messages), **self._fields}
        answer = await self._send("POST", "/chat/completions", body)
        return read_reply(answer)

    def _session(self) -> aiohttp.ClientSession:
        if self._open is None:  # it belongs to the event loop in which it is made
            self._open = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),  # the pace says how many
                timeout=aiohttp.ClientTimeout(total=self._timeout_s),
                headers={"Authorization": f"Bearer {self._key}"} if self._key else {},
            )
        return self._open

    async def _send(self, method: str, path: str, body: Any) -> bytes:
        try:
            async with self._session().request(
                method, self._url + path, json=body, allow_redirects=False
            ) as response:
                content = await response.content.read(_LONGEST_ANSWER)
                while not response.content.at_eof():
                    more = await response.content.read(_LONGEST_ANSWER)
                    content += more
                    if len(content) > _LONGEST_ANSWER:
                        raise Failure("malformed", "an answer of more than 16 MiB")
        except TimeoutError as error:
            raise Failure("timeout", f"no whole answer within {self._timeout_s:g} s") from error
        except (aiohttp.ClientPayloadError, aiohttp.ServerDisconnectedError) as error:
            raise Failure("malformed", self._masked(str(error))) from error
        except (aiohttp.ClientError, OSError) as error:
            raise Failure("network", self._masked(str(error) or type(error).__name__)) from error
        if response.status != 200 and not _is_filtered(response.status, content):
            raise self._failure(response, content)
        return bytes(content)

    def _failure(self, response: aiohttp.ClientResponse, content: bytes) -> Failure:
        status = response.status
        detail = self._masked(f"status {status}: {content[:2000].decode(errors='replace')}")
        wait_s = retry_after(response.headers.get("Retry-After"))
        if status == 429:
            # OpenAI's way to say that an account is empty: waiting does not help.
            return Failure("rate-limit", detail, wait_s, fatal="insufficient_quota" in detail)
        if status in _OVERLOADED:
            return Failure("overload", detail, wait_s)
        if status in TRANSIENT_STATUSES or status >= 500:
            return Failure("server", detail, wait_s)
        return Failure("refused", detail, fatal=status in _FATAL)

    def _masked(self, text: str) -> str:
        """A text of the server, without the key should it repeat it."""
        return textwrap.shorten(text.replace(self._key, "***") if self._key else text, 300)


def _is_filtered(status: int, content: bytes) -> bool:
    """Whether a client error is the refusal of a content filter."""
    if not 400 <= status < 500:
        return False
    try:
        return is_filtered(read_json(content))
    except Failure:
        return False
