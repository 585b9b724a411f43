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
untried          its version was never tried live: the data are taken as its documentation describes them
bad-answer       the answer is whole, and not what the interface promises
unwritable       the spool on this machine cannot be written
===============  ==================================================================================

In the states of `WHOLE` the data are complete.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from threading import Event
from typing import Any, Generic, TypeVar

from holdfast.config import Duration
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

MINUTE = Duration(60)
CLOCK_S = 60.0  # Difference of two clocks from which it is told
ATTEMPTS = 3  # of one question; the next poll asks again
_STATES = {401: "refused", 403: "refused", 404: "unknown-version", 410: "behind"}
WHOLE = ("ok", "clock-off", "untried")


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


@dataclass(frozen=True)
class Source:
    """What tables of every kind of source have."""

    name: str
    url: str
    token_env: str = ""  # Environment variable that holds the token ...
    token_file: str = ""  # ... or a file, read at every question, so that a new one is used at once
    cluster: str = ""  # Of its nodes, where the source does not name it
    every: Duration = MINUTE


SourceT = TypeVar("SourceT", bound=Source)


class Server(Generic[SourceT]):
    """Asks one server for JSON; a secret is sent in a header only, and to no other host.

    Args:
        source: its URL is without user and password.
        halt: set when nothing should be asked again.
        first_s: pause before the second attempt.

    Attributes:
        now_s: the server's clock at its last answer that stated it.
    """

    def __init__(self, source: SourceT, halt: Event, first_s: float = 1.0) -> None:
        self.source, self.halt, self._first_s = source, halt, first_s
        self._web = Web(60.0)
        self.now_s = time.time()

    def headers(self, token: str) -> Mapping[str, str]:
        """The headers of a question; `token` may be empty."""
        return {"Authorization": f"Bearer {token}"} if token else {}

    def settle(self, now_s: float, troubles: Iterable[Trouble]) -> None:
        """End a poll: raise the first trouble; last whether two clocks differ.

        Args:
            now_s: the time there.
            troubles: of parts of the poll.
        """
        for each in troubles:
            raise each
        off_s = now_s - time.time()
        if abs(off_s) > CLOCK_S:
            ahead = "ahead of" if off_s > 0 else "behind"
            text = f"its clock is {abs(off_s):,.0f} s {ahead} this machine's"
            raise Trouble("clock-off", text)

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
            self.source.url, ATTEMPTS, stalls=ATTEMPTS, first_s=self._first_s, sleep=self.halt.wait
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
                self.source.url.rstrip("/") + path,
                params=parameters,
                headers=self.headers(self._token()),
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
        if status in TRANSIENT_STATUSES:
            raise TransientError(said, retry_after(response.headers.get("Retry-After")))
        if status != 200:
            raise Trouble(_STATES.get(status, "bad-answer"), f"{said}: {path}")
        try:
            return read(body.decode(errors="replace"))
        except (ValueError, RecursionError) as error:
            raise BrokenOffError(f"not whole JSON ({len(body):,} bytes)") from error

    def _token(self) -> str:
        variable, file = self.source.token_env, self.source.token_file
        token = os.environ.get(variable, "") if variable else ""
        if file:
            try:
                token = Path(file).read_text().strip()
            except (OSError, UnicodeDecodeError) as error:
                raise Trouble("refused", f"the token cannot be read: {error}") from error
        if variable and not token:
            raise Trouble("refused", f"${variable} is not set")
        return token
