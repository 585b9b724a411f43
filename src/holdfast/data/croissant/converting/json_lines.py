"""Records as JSON holds them."""

from __future__ import annotations

import base64
import datetime
import json
import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any


def json_line(record: Mapping[str, Any]) -> str:
    """A record as one line of JSON (RFC 8259), without the end of the line.

    Dates and times are written as ISO 8601 says, durations in seconds, bytes in base64; NaN is null, and an
    infinity the text ``"Infinity"``, as JSON has no number for it.
    """
    try:
        return _ENCODER.encode(record)
    except ValueError:  # NaN or an infinity somewhere: rare, so looked for only now
        return _ENCODER.encode(_finite(record))


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return None if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(part) for part in value]
    return value


def _other(value: Any) -> Any:
    """What the encoder does not know: dates, decimals, bytes and the like."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    return str(value)


_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=_other)
