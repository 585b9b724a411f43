"""Logs that grow, read into the store while the console runs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class WatchStatus:
    """How the watching goes."""

    last_poll_s: float | None = None
    """When the logs were last looked at (epoch seconds); None: not yet."""
    rows: int = 0
    """Rows read since the start."""
    problems: tuple[str, ...] = ()
    """A sentence for each file that cannot be read."""
