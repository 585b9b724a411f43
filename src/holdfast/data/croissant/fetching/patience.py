"""How long a server that fails is asked again, and after which pauses."""

from __future__ import annotations

import random
from collections.abc import Callable

from holdfast.data.croissant.fetching.answers import PassingFault
from holdfast.data.croissant.fetching.urls import bare
from holdfast.errors import InputError

TRIES = 7
"""Requests in a row that may fail without bringing a byte."""
_FIRST_WAIT_S, _LONGEST_WAIT_S, _LONGEST_ASKED_WAIT_S = 0.5, 30.0, 300.0

Wait = Callable[[float], object]


class Patience:
    """Waits between requests for one thing: 0.5 s x 2^n less up to a half at random, or as the server asks.

    Args:
        url: for the message.
        wait: waits some seconds; may raise to end all.
    """

    def __init__(self, url: str, wait: Wait) -> None:
        self._url, self._wait = url, wait
        self._failures = 0

    def progress(self) -> None:
        """Something came: failures are counted from none again."""
        self._failures = 0

    def after(self, fault: PassingFault, kept: int = 0) -> None:
        """Wait before the next request.

        Args:
            fault: what the last one met.
            kept: bytes that need not be fetched again.

        Raises:
            InputError: if it is time to give up.
        """
        self._failures += 1
        if self._failures >= TRIES:
            rest = f": the {kept:,} bytes that are here are kept" if kept else ""
            raise InputError(
                "the server does not send this file",
                path=bare(self._url),
                found=f"{fault}; tried {self._failures} times",
                remedy=f"run this again later{rest}",
            ) from fault
        if fault.wait_s is not None:
            self._wait(min(fault.wait_s, _LONGEST_ASKED_WAIT_S))
        else:
            longest = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2.0 ** (self._failures - 1))
            self._wait(longest * (1 - random.random() / 2))  # many clients shall not return at once
