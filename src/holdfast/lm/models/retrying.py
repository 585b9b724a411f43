"""Requests to a server that may be busy, slow or gone: sent again, a few times, with growing pauses."""

from __future__ import annotations

import json
import os
import random
import textwrap
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import requests

KEY_VARIABLES = ("HOLDFAST_API_KEY", "OPENAI_API_KEY")
_PASSING = frozenset({408, 429, 500, 502, 503, 504})
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.5, 60.0
_LONGEST_ASKED_WAIT_S = 300.0


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
    """Sends JSON and reads JSON; one kept connection for each thread.

    429, 5xx, timeouts, connections that break and answers that are no JSON are tried again, after the
    pause that the server asks for (``Retry-After``), else after 0.5 s x 2^n, less up to a half drawn at
    random so that many clients do not return at once.

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
        self._timeout_s = timeout_s
        self._retries = retries
        self._sleep = sleep
        self._on_retry = on_retry
        self._random = random.Random(seed)
        self._local = threading.local()
        self._sessions: list[requests.Session] = []
        self._key = next(filter(None, map(os.environ.get, KEY_VARIABLES)), None)

    def send(self, method: str, url: str, body: Any = None) -> Any:
        """What the server answers, read as JSON.

        Raises:
            RefusedRequest: if the server refuses the request itself.
            NoAnswer: if the last retry failed too.
        """
        import requests

        for attempt in range(self._retries + 1):
            asked_wait: float | None = None
            try:
                response = self._session().request(
                    method, url, json=body, timeout=self._timeout_s, allow_redirects=False
                )
                if response.status_code == 200:
                    return json.loads(response.content)
                message, code = self._error(response)
                if response.status_code not in _PASSING:
                    raise RefusedRequest(response.status_code, message, code)
                failure = f"status {response.status_code}" + (f", {message}" if message else "")
                asked_wait = _retry_after(response.headers.get("Retry-After"))
            except requests.Timeout:
                failure = f"no answer within {self._timeout_s:g} s"
            except (requests.ConnectionError, requests.exceptions.ChunkedEncodingError) as error:
                failure = f"the connection failed ({_cause(error)})"
            except ValueError as error:
                if isinstance(error, requests.RequestException):
                    raise  # a URL that cannot be asked
                failure = "the answer is not JSON"
            if attempt < self._retries:
                self._on_retry()
                if self._sleep(self._pause(attempt) if asked_wait is None else asked_wait) is True:
                    break
        raise NoAnswer(f"{failure}; tried {attempt + 1} times")

    def close(self) -> None:
        """Close every connection."""
        while self._sessions:
            self._sessions.pop().close()

    def _session(self) -> requests.Session:
        if not hasattr(self._local, "session"):
            import requests

            self._local.session = requests.Session()
            # As a function: a password in .netrc would otherwise take the key's place.
            self._local.session.auth = self._signed
            self._sessions.append(self._local.session)
        session: requests.Session = self._local.session
        return session

    def _signed(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if self._key:
            request.headers["Authorization"] = f"Bearer {self._key}"
        return request

    def _pause(self, attempt: int) -> float:
        longest = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2.0**attempt)
        return longest * (1 - self._random.random() / 2)

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


def _retry_after(value: str | None) -> float | None:
    """Seconds that a server asks to wait: a number, or a date."""
    if not value:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds()
        except (TypeError, ValueError):
            return None
    return min(max(0.0, seconds), _LONGEST_ASKED_WAIT_S)


def _cause(error: BaseException) -> str:
    """The innermost reason, without the address of an object that urllib3 writes in front."""
    while (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    return str(error).split("> ", 1)[-1] or type(error).__name__
