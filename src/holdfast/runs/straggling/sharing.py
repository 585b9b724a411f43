"""What the slow ranks have in common: one host, one rack, one pipeline stage."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from holdfast.runs.straggling.matrix import StepMatrix
from holdfast.stats import benjamini_hochberg

LEAST_SLOW = 2
"""One slow rank has nothing to share."""


@dataclass(frozen=True)
class Shared:
    """A label that the slow ranks carry more often than chance would have it."""

    label: str
    """For example ``"rack"``."""
    value: str
    slow: int
    """Slow ranks with this value."""
    ranks: int
    """Ranks with this value."""
    p_value: float
    """P(at least as many slow ones) if the slow ranks were drawn at random (hypergeometric)."""
    q_value: float
    """Benjamini-Hochberg over all values of all labels."""

    @property
    def name(self) -> str:
        """Label and value: ``"rack 7"``; a value that holds its label stands alone."""
        named_after = self.value.lower().startswith(self.label.lower())
        return self.value if named_after else f"{self.label} {self.value}"

    @property
    def sentence(self) -> str:
        """How many of its ranks are slow."""
        q = "q < 0.0001" if self.q_value < 1e-4 else f"q = {self.q_value:.4f}"
        return f"{self.slow:,} of the {self.ranks:,} ranks with {self.name} are slow ({q})."


def shared(matrix: StepMatrix, slow: npt.NDArray[np.bool_], *, alpha: float) -> tuple[Shared, ...]:
    """The labels that explain the slow ranks, the surest first.

    One-sided Fisher test: of R ranks K are slow, n carry the value, k do both;
    p = P(X >= k), X hypergeometric(R, K, n). Values that one rank or all ranks carry are not tested.

    Args:
        matrix: its labels.
        slow: [R] which ranks are slow.
        alpha: the false discovery rate.
    """
    from scipy.stats import hypergeom

    total, members = slow.size, np.flatnonzero(slow).tolist()
    if len(members) < LEAST_SLOW:
        return ()
    of_all = _carriers(matrix, range(total))
    of_slow = _carriers(matrix, members)
    tested = [(pair, n) for pair, n in sorted(of_all.items()) if 1 < n < total]
    if not tested:
        return ()
    p = [
        float(hypergeom.sf(of_slow[pair] - 1, total, len(members), n)) if of_slow[pair] else 1.0
        for pair, n in tested
    ]
    q = benjamini_hochberg(p).tolist()
    made = [
        Shared(label, value, of_slow[label, value], n, p[i], q[i])
        for i, ((label, value), n) in enumerate(tested)
        if q[i] <= alpha and of_slow[label, value] >= LEAST_SLOW
    ]
    return tuple(sorted(made, key=lambda each: (each.p_value, -each.ranks, each.label)))


def _carriers(matrix: StepMatrix, ranks: range | list[int]) -> Counter[tuple[str, str]]:
    """How many of the ranks carry each label and value."""
    return Counter(pair for rank in ranks for pair in matrix.labels[rank].items())
