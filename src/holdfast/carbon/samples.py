"""What a reader of a grid signal finds in a file, before it is brought to hours of UTC."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import cast

from holdfast.carbon.signals import HOUR_S, Kind, refused


@dataclass
class Samples:
    """What a reader found in a file, in its own unit and order.

    Attributes:
        times: start of each sample; texts are read by `instants`.
        values: in `unit`; NaN where there is none.
        places: for messages.
        step_s: length of a sample, at most.
        clock: time zone that the format states, of times that name none.
        repeats: several samples may be of the same time.
    """

    times: Sequence[datetime | str] = ()
    values: list[float] = field(default_factory=list)
    places: list[str] = field(default_factory=list)
    kind: Kind = "average"
    unit: str = "gCO2/kWh"
    zone: str = ""
    basis: str = ""
    scope: str = ""
    step_s: int = HOUR_S
    clock: str = ""
    repeats: bool = False
    notes: list[str] = field(default_factory=list)


def kind_of(path: Path, place: str, text: str) -> Kind:
    """A kind of signal as a file names it; ``invalid-value`` for another."""
    if text not in ("average", "marginal", "price"):
        problem, expected = "unknown kind of signal", "average, marginal or price"
        raise refused(problem, "invalid-value", path, place, text, expected)
    return cast("Kind", text)
