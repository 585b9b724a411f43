"""Records as JSON holds them."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any
from uuid import UUID

from holdfast.plain import plain


def json_line(record: Mapping[str, Any]) -> str:
    """A record as one line of JSON (RFC 8259), without the end of the line.

    Dates and times are written as ISO 8601 says, durations in seconds, bytes in base64; NaN is null, and an
    infinity the text ``"Infinity"``, as JSON has no number for it. What Unicode takes for the end of a line
    is escaped: many programs end a line there.
    """
    try:
        line = _ENCODER.encode(record)
    except ValueError:  # NaN or an infinity somewhere: rare, so looked for only now
        line = _ENCODER.encode(_finite(record))
    return line if line.isascii() else _LINE_END.sub(lambda end: f"\\u{ord(end[0]):04x}", line)


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
    return str(value) if isinstance(value, UUID) else plain(value)


_LINE_END = re.compile("[\x85\u2028\u2029]")
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=_other)
