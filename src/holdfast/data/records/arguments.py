"""Numbers and words that users give, refused where they are none of those that may be."""

from __future__ import annotations

import math
from collections.abc import Collection

from holdfast.errors import InputError


def check_number(place: str, value: float | None, least: float, most: float = math.inf) -> None:
    """Refuse a number that is below or above its bounds, infinite, or not a number; None passes.

    Raises:
        InputError: naming it.
    """
    if value is not None and (not least <= value <= most or value == math.inf):
        raise InputError(
            f"invalid {place}",
            code="out-of-range",
            place=place,
            found=str(value),
            expected=f"{least} or more" if most == math.inf else f"{least} to {most}",
        )


def check_choice(place: str, value: str, choices: Collection[str]) -> None:
    """Refuse a word that is none of the choices.

    Raises:
        InputError: naming it.
    """
    if value not in choices:
        raise InputError(
            f"invalid {place}",
            code="invalid-value",
            place=place,
            found=repr(value),
            expected=", ".join(choices),
        )
