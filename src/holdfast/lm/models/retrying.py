"""JSON requests to a server that may be busy, slow or gone."""

from __future__ import annotations

import json
import random
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.errors import InputError
from holdfast.lm.models.naming import server_key
from holdfast.remote import TRANSIENT_STATUSES, Retry, TransientError, Web, retry_after

if TYPE_CHECKING:
    import requests


@dataclass(eq=False)
class RefusedRequest(Exception):
    """The server answered that the request is wrong: the same one again would be refused again."""

    status: int
    message: str
    code: str = ""
    """The code or type of the error, where the server gives one."""

    def __str__(self) -> str:
        return f"{self.message or 'no message'} (status {self.status})"


class NoAnswer(Exception):
    """No usable answer after the last retry; says what the last attempt met."""


class Requests:
    """Sends JSON and reads JSON.

    Transient statuses, timeouts, connections that break and answers that are not JSON are tried again after
    the pauses of `holdfast.remote.Retry`.

    Args:
        timeout_s: longest wait for a connection and between two pieces of an answer.
        retries: requests after the first.
        sleep: how to wait some seconds; True means that waiting was ended, and nothing is sent again.
        on_retry: called for each request that is sent again.
        seed: of the random part of pauses.
    """

    def __init__(
        self,
        timeout_s: float,
        retries: int,
        sleep: Callable[[float], object],
        on_retry: Callable[[], object],
        seed: int = 0,
    ) -> None:
        self._web = Web(timeout_s)
        self._attempts = retries + 1
        self._sleep = sleep
        self._on_retry = on_retry
        self._random = random.Random(seed)
        self._key = server_key()
        self.close = self._web.close

    def send(self, method: str, url: str, body: Any = None) -> Any:
        """What the server answers, read as JSON.

        Raises:
            RefusedRequest: if the server refuses the request itself.
            NoAnswer: if the last retry failed too.
            InputError: if the URL is invalid.
        """

        def sleep(seconds: float) -> object:
            self._on_retry()
            return self._sleep(seconds)

        attempts = self._attempts
        retry = Retry(url, attempts, stalls=attempts, sleep=sleep, rng=self._random)
        while True:
            try:
                return self._once(method, url, body)
            except TransientError as error:
                try:
                    retry.after(error)
                except InputError as last:
                    raise NoAnswer(last.found) from None

    def _once(self, method: str, url: str, body: Any) -> Any:
        # The key as a function: a password in .netrc would otherwise take its place.
        response = self._web.request(
            method, url, json=body, auth=self._signed, allow_redirects=False
        )
        if response.status_code == 200:
            try:
                return json.loads(response.content)
            except ValueError:
                raise TransientError("the answer is not JSON") from None
        message, code = self._error(response)
        if response.status_code not in TRANSIENT_STATUSES:
            raise RefusedRequest(response.status_code, message, code)
        failure = f"status {response.status_code}" + (f", {message}" if message else "")
        raise TransientError(failure, retry_after(response.headers.get("Retry-After")))

    def _signed(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if self._key:
            request.headers["Authorization"] = f"Bearer {self._key}"
        return request

    def _error(self, response: requests.Response) -> tuple[str, str]:
        """(message, code) of an error answer; without the key, should the server repeat it."""
        try:
            told = json.loads(response.content)
        except ValueError:
            told = response.text
        while isinstance(told, dict) and isinstance(told.get("error"), (dict, str)):
            told = told["error"]
        if isinstance(told, dict):
            message = told.get("message") or told.get("detail") or json.dumps(told)
            code = " ".join(str(told[name]) for name in ("code", "type") if told.get(name))
        else:
            message, code = told, ""
        text = message if isinstance(message, str) else json.dumps(message)
        if self._key:
            text = text.replace(self._key, "***")
        return textwrap.shorten(text, 300), code
