"""A token index as a finite-state acceptor, for comparison with `holdfast.automata`."""

from __future__ import annotations

import numpy as np

from holdfast.automata import Fst
from holdfast.automata.semirings import semiring_of
from holdfast.lm.query.tokens.token_index import TokenIndex


def token_acceptor(index: TokenIndex) -> Fst:
    """All weights one: token t is label t + 1, since 0 is epsilon."""
    ring = semiring_of("tropical")
    label = index.tokens + np.int32(1)
    final = np.where(index.final, ring.one, ring.zero).astype(ring.dtype)
    weight = np.full(len(label), ring.one, ring.dtype)
    if index.start < 0:
        final = final[:0]
    offsets = index.offsets[: len(final) + 1]
    return Fst(
        offsets, label, label, index.nextstate, weight, final, index.start, ring, None, None
    ).checked()
