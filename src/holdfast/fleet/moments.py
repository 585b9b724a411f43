"""Epoch seconds as people and programs read them."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from holdfast.durations import parse_duration
from holdfast.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa


def moment(epoch_s: float) -> datetime:
    """The time in UTC."""
    return datetime.fromtimestamp(float(epoch_s), UTC)


def minute(epoch_s: float) -> str:
    """The time as people read it, "2026-11-20 10:49 UTC"."""
    return f"{moment(epoch_s):%Y-%m-%d %H:%M} UTC"


def with_times(table: pa.Table, *columns: str) -> pa.Table:
    """The table with columns of epoch seconds (``"stop_s"``) as times in UTC."""
    import pyarrow as pa

    for name in columns:
        times = table[name].cast(pa.float64()).cast(pa.int64(), safe=False)
        place = table.column_names.index(name)
        table = table.set_column(place, name, times.cast(pa.timestamp("s", "UTC")))
    return table


def iso(epoch_s: float | None) -> str | None:
    """ISO 8601 in UTC, whole seconds; None for an unknown time."""
    return None if epoch_s is None or math.isnan(epoch_s) else iso_time(epoch_s)


def iso_time(epoch_s: float) -> str:
    """ISO 8601 of a known time."""
    return moment(epoch_s).strftime("%Y-%m-%dT%H:%M:%SZ")


def since_s(text: str, end_s: float) -> float:
    """The start of a window: "30d" before `end_s`, or an ISO time (UTC where it names no zone).

    Raises:
        InputError: if it is neither.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        try:
            unit = not text[-1:].isdigit()  # of 30 nobody knows whether it is days or seconds
            return end_s - parse_duration(text if unit else "")
        except ValueError as error:
            raise InputError(
                "--since is neither a duration nor a time",
                code="invalid-syntax",
                found=text,
                expected="for example 30d, 12h, 2026-11-20 or 2026-11-20T10:49:15+01:00",
            ) from error
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
