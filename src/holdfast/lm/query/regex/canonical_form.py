"""The one form of a language: equal languages have equal arrays."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from holdfast.lm.query.regex import _kernels as kernels
from holdfast.lm.query.regex.dfa import ByteDfa


def canonical(
    classes: npt.NDArray[np.int64],
    table: npt.NDArray[np.int32],
    final: npt.NDArray[np.bool_],
    parted: bool = False,
) -> ByteDfa:
    """The minimal automaton; bytes are parted only as the language does, and all is in order of bytes.

    Args:
        classes: [256] a number for each byte, of a column of the table.
        table: [states, columns] the state that follows, or -1; state 0 is the start.
        final: [states].
        parted: it is known that no two states are alike.
    """
    # Columns in the order of their first bytes, so that states are numbered by the same order.
    first_bytes: dict[int, int] = {}
    numbers = [first_bytes.setdefault(number, len(first_bytes)) for number in classes.tolist()]
    small, ends = kernels.minimal(np.ascontiguousarray(table[:, list(first_bytes)]), final, parted)
    if not len(ends):
        return ByteDfa(np.zeros(256, np.uint8), np.empty((0, 1), np.int32), np.empty(0, np.bool_))
    seen: dict[bytes, int] = {}
    merged = [
        seen.setdefault(column.tobytes(), len(seen)) for column in np.ascontiguousarray(small.T)
    ]
    kept: list[int] = []
    for column, number in enumerate(merged):
        if number == len(kept):
            kept.append(column)
    return ByteDfa(
        np.array([merged[number] for number in numbers], np.uint8),
        small if len(kept) == small.shape[1] else np.ascontiguousarray(small[:, kept]),
        ends,
    )
