"""The ETTR of the last so many minutes, all along the run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from holdfast.runs.goodput.ledger import PARTS, Ledger
from holdfast.runs.goodput.spans import FloatArray

WINDOWS = 10
"""By default a window is this part of the wall time."""


@dataclass(frozen=True)
class RollingEttr:
    """Productive time over time in a window that moves over the run."""

    window_s: float
    end_s: tuple[float, ...]
    """Run time at the end of each window; the first is the first that is full."""
    ettr: tuple[float, ...]

    def to_dict(self) -> dict[str, Any]:
        """The key ``rolling`` of the JSON."""
        return {
            "window_s": self.window_s,
            "end_s": list(self.end_s),
            "ettr": list(self.ettr),
        }


def rolling_ettr(ledger: Ledger, window_s: float | None = None) -> RollingEttr:
    """The ETTR of each window of a whole number of the ledger's bins, nearest to the one asked for.

    Args:
        ledger: the books.
        window_s: length of the window; None: a tenth of the wall time.
    """
    wall = ledger.window.wall_s
    if wall <= 0:
        return RollingEttr(0.0, (), ())
    bins = ledger.binned.shape[2]
    asked = wall / WINDOWS if window_s is None else window_s
    width = min(max(round(asked / ledger.bin_s), 1), bins)
    productive: FloatArray = ledger.binned[:, PARTS.index("productive")].sum(axis=0)
    total = np.concatenate([[0.0], np.cumsum(productive)])
    share = (total[width:] - total[:-width]) / (width * ledger.bin_s)
    ends = ledger.bin_s * np.arange(width, bins + 1)
    return RollingEttr(
        window_s=width * ledger.bin_s,
        end_s=tuple(ends.tolist()),
        ettr=tuple(np.clip(share, 0.0, 1.0).tolist()),
    )
