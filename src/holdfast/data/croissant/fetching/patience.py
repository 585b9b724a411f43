"""How long a server that fails is asked again, and after which pauses."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable

from holdfast.data.croissant.fetching.answers import PassingFault
from holdfast.data.croissant.fetching.urls import bare
from holdfast.errors import InputError

TRIES = 7
"""Requests in a row that may fail without bringing a byte."""
STALLS = 2
"""Of these, how many may wait for the whole timeout: a dead server costs twice the timeout, not minutes."""
_FIRST_WAIT_S, _LONGEST_WAIT_S, _LONGEST_ASKED_WAIT_S = 0.5, 30.0, 300.0

Wait = Callable[[float], object]

_log = logging.getLogger(__name__)


class Patience:
    """Waits between requests for one thing: 0.5 s x 2^n less up to a half at random, or as the server asks.

    Args:
        url: for the message.
        wait: waits some seconds; may raise to end all.
    """

    def __init__(self, url: str, wait: Wait) -> None:
        self._url, self._wait = url, wait
        self._failures = self._stalls = 0

    def progress(self) -> None:
        """Something came: failures are counted from none again."""
        self._failures = self._stalls = 0

    def after(self, fault: PassingFault, kept: int = 0) -> None:
        """Wait before the next request.

        Args:
            fault: what the last one met.
            kept: bytes that need not be fetched again.

        Raises:
            InputError: if it is time to give up.
        """
        self._failures += 1
        self._stalls += fault.stalled
        if self._failures >= TRIES or self._stalls >= STALLS:
            rest = f": the {kept:,} bytes that are here are kept" if kept else ""
            longer = ", or with a longer timeout" if fault.stalled else ""
            raise InputError(
                "the server does not send this file",
                code="network",
                path=bare(self._url),
                found=f"{fault}; tried {self._failures} times",
                remedy=f"run this again later{longer}{rest}",
            ) from fault
        if fault.stalled:  # said also where no bar is shown: the user waits for something
            _log.warning("%s: %s; trying again", bare(self._url), fault)
        if fault.wait_s is not None:
            self._wait(min(fault.wait_s, _LONGEST_ASKED_WAIT_S))
        else:
            longest = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2.0 ** (self._failures - 1))
            self._wait(longest * (1 - random.random() / 2))  # many clients shall not return at once
