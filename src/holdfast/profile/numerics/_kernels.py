"""Compiled code: sorting keys of 32 bits by their digits."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def radix_sort(keys, spare):  # type: ignore[no-untyped-def]  # uint32 [n], and as many to work in
    """Sort unsigned keys in three passes, one per digit of 11 bits; returns one of the two arrays."""
    for shift in (0, 11, 22):
        place = np.zeros(2049, np.int64)
        for key in keys:
            place[((key >> shift) & 2047) + 1] += 1
        place = np.cumsum(place)  # where the next key with each digit goes
        for key in keys:
            digit = (key >> shift) & 2047
            spare[place[digit]] = key
            place[digit] += 1
        keys, spare = spare, keys
    return keys
