"""One question to a live source, and how it can fail: each failure is a named state.

===============  ==================================================================================
state            what it says
===============  ==================================================================================
ok               the last poll succeeded
away             no connection, no answer in time, or an error of the server
refused          the token is missing, wrong or expired
unknown-version  the server does not offer a version of its interface that is known
half-written     the answer broke off, again and again
behind           the server has forgotten what changed since the last poll; all was listed again
clock-off        its clock is more than a minute from this machine's; its times are kept as they are
bad-answer       the answer is whole, and not what the interface promises
unwritable       the spool on this machine cannot be written
===============  ==================================================================================
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from pathlib import Path
from threading import Event
from typing import Any

from holdfast.errors import InputError
from holdfast.fleet.formats.json_lines import parsed
from holdfast.remote import (
    TRANSIENT_STATUSES,
    Retry,
    TransientError,
    Web,
    retry_after,
    web_chunks,
)

CLOCK_S = 60.0  # Difference of two clocks from which it is told
ATTEMPTS = 3  # of one question; the next poll asks again


class Trouble(Exception):
    """A source that did not answer as it should.

    Attributes:
        state: one of those above.
    """

    def __init__(self, state: str, text: str) -> None:
        super().__init__(" ".join(text.split()))
        self.state = state


class BrokenOffError(TransientError):
    """An answer that is not whole."""


BEARER = {"Authorization": "Bearer {token}"}  # Of most servers


class Server:
    """Asks one server for JSON; a secret is sent in a header only, and to no other host.

    Args:
        url: its base, without user and password.
        token_env: environment variable that holds the token; "": none.
        token_file: file that holds it, read at every question, so that a new one is used at once.
        headers: header -> value, in which "{token}" is the token; left out without one.
        halt: set when nothing should be asked again.
        first_s: pause before the second attempt.
        timeout_s: longest silence of the server.

    Attributes:
        now_s: the server's clock at its last answer that stated it.
    """

    def __init__(
        self,
        url: str,
        *,
        token_env: str = "",
        token_file: str = "",
        headers: Mapping[str, str] = BEARER,
        halt: Event,
        first_s: float = 1.0,
        timeout_s: float = 60.0,
    ) -> None:
        self.url = url.rstrip("/")
        self._token_env, self._token_file, self._headers = token_env, token_file, headers
        self._halt, self._first_s = halt, first_s
        self._web = Web(timeout_s)
        self.now_s = time.time()

    def ask(
        self, path: str, read: Callable[[str], Any] = parsed, /, **parameters: str | float
    ) -> Any:
        """What the server answers to a GET, as JSON.

        Args:
            path: below the base.
            read: makes something of the text; raises ValueError if that is not whole.
            parameters: of the question.

        Raises:
            Trouble: if there is no whole answer.
        """
        retry = Retry(
            self.url, ATTEMPTS, stalls=ATTEMPTS, first_s=self._first_s, sleep=self._halt.wait
        )
        while True:
            try:
                return self._once(path, parameters, read)
            except TransientError as error:
                try:
                    retry.after(error)
                except InputError:
                    broken = isinstance(error, BrokenOffError)
                    raise Trouble("half-written" if broken else "away", str(error)) from error

    def _once(self, path: str, parameters: Mapping[str, Any], read: Callable[[str], Any]) -> Any:
        try:
            response = self._web.request(
                "GET",
                self.url + path,
                params=parameters,
                headers=self._signed(),
                allow_redirects=False,  # where the token would go along
                stream=True,
            )
        except InputError as error:
            raise Trouble("away", str(error)) from error
        try:
            body = b"".join(web_chunks(response, decode=True))
        except TransientError as error:
            raise BrokenOffError(str(error)) from error
        finally:
            response.close()
        status = response.status_code
        with suppress(KeyError, ValueError):
            self.now_s = parsedate_to_datetime(response.headers["Date"]).timestamp()
        said = f"status {status} {response.reason or ''}".rstrip()
        if status in (401, 403):
            raise Trouble("refused", f"{said}: the token is missing, wrong or expired")
        if status == 404:
            raise Trouble("unknown-version", f"{said}: {path}")
        if status == 410:
            raise Trouble("behind", f"{said}: {path}")
        if status in TRANSIENT_STATUSES:
            raise TransientError(said, retry_after(response.headers.get("Retry-After")))
        if status != 200:
            raise Trouble("bad-answer", said)
        try:
            return read(body.decode(errors="replace"))
        except (ValueError, RecursionError) as error:
            raise BrokenOffError(f"not whole JSON ({len(body):,} bytes)") from error

    def _signed(self) -> dict[str, str]:
        token = os.environ.get(self._token_env, "") if self._token_env else ""
        if self._token_file:
            try:
                token = Path(self._token_file).read_text().strip()
            except (OSError, UnicodeDecodeError) as error:
                raise Trouble("refused", f"the token cannot be read: {error}") from error
        if not token:
            if self._token_env:
                raise Trouble("refused", f"${self._token_env} is not set")
            return {k: v for k, v in self._headers.items() if "{token}" not in v}
        return {key: value.replace("{token}", token) for key, value in self._headers.items()}


def clock_trouble(there_s: float, here_s: float) -> Trouble | None:
    """Whether two clocks differ; the data of the poll are kept all the same."""
    off_s = there_s - here_s
    if abs(off_s) <= CLOCK_S:
        return None
    ahead = "ahead of" if off_s > 0 else "behind"
    return Trouble("clock-off", f"its clock is {abs(off_s):,.0f} s {ahead} this machine's")
