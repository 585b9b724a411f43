"""Errors for arguments: out of their range, or a transducer where an acceptor is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from holdfast.errors import InputError

if TYPE_CHECKING:
    from holdfast.automata.fst import Fst


def invalid(
    what: str, found: object, expected: str, *, place: str | None = None, code: str = "out-of-range"
) -> InputError:
    """The error: what is invalid, what was found, and what was expected."""
    return InputError(
        f"invalid {what}", code=code, place=place, found=str(found), expected=expected
    )


def check_acceptor(f: Fst, name: str, remedy: str = "project() one side") -> None:
    """Nothing, if the machine has the same labels on both sides.

    Raises:
        InputError: ``unsupported`` if not, naming the first arc.
    """
    if not f.is_acceptor:
        arc = int(np.argmax(f.ilabel != f.olabel))
        raise InputError(
            f"{name} is a transducer",
            code="unsupported",
            place=f"arc {arc}",
            found=f"input label {f.ilabel[arc]}, output label {f.olabel[arc]}",
            expected="an acceptor: both labels of an arc are the same",
            remedy=remedy,
        )
