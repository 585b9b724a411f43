"""Values as JSON can hold them."""

from __future__ import annotations

import dataclasses
import datetime
import math
from collections.abc import Mapping, Set
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any


def plain(value: Any) -> Any:
    """A value as JSON can hold it: NaN and infinities null, times ISO, Arrow tables as records.

    Raises:
        TypeError: if a part of it has no such form.
    """
    if value is None or isinstance(value, (bool, int, str)):
        return value.value if isinstance(value, Enum) else value
    if isinstance(value, (float, Decimal)):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    if isinstance(value, Set):
        return sorted(plain(part) for part in value)
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, PurePath):
        return str(value)
    for convert in ("to_pylist", "as_py", "tolist", "to_dict", "item"):  # Arrow, NumPy, results
        if hasattr(value, convert):
            return plain(getattr(value, convert)())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)
        }
    raise TypeError(f"a result holds a {type(value).__name__}, which JSON cannot")
