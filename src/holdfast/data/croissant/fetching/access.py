"""How the network may be used for one description and its files."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import InputError

TIMEOUT_S = 30.0
"""Longest wait for a connection and between two pieces of a response, where nothing else is asked for."""


@dataclass(frozen=True, slots=True)
class Access:
    """How the network may be used.

    Attributes:
        cache: folder for fetched files; None for the user's cache folder.
        offline: make no request; use what the cache has.
        timeout: seconds to wait for a connection, and for more bytes of a response.
        public_only: refuse servers whose address is not public, also after redirects.

    Raises:
        InputError: a timeout that is not a positive number.
    """

    cache: str | Path | None = None
    offline: bool = False
    timeout: float = TIMEOUT_S
    public_only: bool = False

    def __post_init__(self) -> None:
        if not (0 < self.timeout < math.inf):
            raise InputError(
                "invalid timeout",
                code="out-of-range",
                place="timeout",
                found=f"{self.timeout:g}",
                expected="a positive number of seconds",
            )
