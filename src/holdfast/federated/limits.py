"""Domains of settings: the same in a file and in Python."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from holdfast.config import read_config
from holdfast.plain import plain

Count = Annotated[int, Meta(ge=1)]
Natural = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Above = Annotated[float, Meta(gt=0, lt=1e300)]
NotNegative = Annotated[float, Meta(ge=0, lt=1e300)]
Share = Annotated[float, Meta(ge=0, le=1)]
Part = Annotated[float, Meta(gt=0, lt=1)]


def check(settings: Any) -> None:
    """Refuse settings of another type, or outside their domain.

    Args:
        settings: a dataclass, as `read_config` reads it from a file.

    Raises:
        InputError: ``invalid-value`` or ``unknown-name``; the place is the field.
    """
    read_config(plain(settings), type(settings), "the settings")
