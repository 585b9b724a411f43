"""The error for an argument that is out of its range."""

from __future__ import annotations

from holdfast.errors import InputError


def invalid(
    what: str, found: object, expected: str, *, place: str | None = None, code: str = "out-of-range"
) -> InputError:
    """The error: what is invalid, what was found, and what was expected."""
    return InputError(
        f"invalid {what}", code=code, place=place, found=str(found), expected=expected
    )
