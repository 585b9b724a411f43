"""Buckets of job size: 1 GPU, up to one node of 8, then doubling."""

from __future__ import annotations

from typing import TYPE_CHECKING

import ibis

if TYPE_CHECKING:
    import ibis.expr.types as ir

BUCKET_TOPS = (0, 1, 8, *(2**k for k in range(4, 21)))


def bucket_top(gpus: ir.NumericValue) -> ir.NumericValue:
    """Largest job size (GPUs) of the bucket that `gpus` falls into; 0: no GPU."""
    filled = gpus.fill_null(0)
    steps = [(filled <= top, ibis.literal(top, "int64")) for top in BUCKET_TOPS]
    return ibis.cases(*steps, else_=ibis.literal(2 * BUCKET_TOPS[-1], "int64"))


def bucket_bottom(top: int) -> int:
    """Smallest job size (GPUs) of the bucket with the given top."""
    return {0: 0, 1: 1, 8: 2}.get(top, top // 2 + 1)


def bucket_label(top: int) -> str:
    """The bucket as people read it: "17-32"."""
    bottom = bucket_bottom(top)
    return f"{top:,}" if bottom == top else f"{bottom:,}–{top:,}"
