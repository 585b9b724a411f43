"""Domains of settings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.errors import InputError


def check_limits(
    values: Mapping[str, Any],
    limits: Mapping[str, tuple[bool, str]],
    place: str = "",
    path: Path | None = None,
) -> None:
    """Refuse settings outside their domain.

    Args:
        values: name -> value of each setting.
        limits: name -> whether the value is valid, and what is expected.
        place: of the settings in the configuration, with a dot at its end.
        path: of the file.

    Raises:
        InputError: ``out-of-range``.
    """
    for name, (valid, expected) in limits.items():
        if not valid:
            raise InputError(
                "setting out of range",
                code="out-of-range",
                path=path,
                place=place + name,
                found=str(values[name]),
                expected=expected,
            )
