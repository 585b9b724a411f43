"""Epoch seconds as people and programs read them."""

from __future__ import annotations

import math
from datetime import UTC, datetime


def iso(epoch_s: float | None) -> str | None:
    """ISO 8601 in UTC, whole seconds; None for an unknown time."""
    if epoch_s is None or math.isnan(epoch_s):
        return None
    return datetime.fromtimestamp(epoch_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
