"""Buckets of job size: 1 GPU, up to one node of 8, then doubling."""

from __future__ import annotations

BUCKET_TOPS = (0, 1, 8, *(2**k for k in range(4, 21)))


def bucket_top(gpus: str = "gpus") -> str:
    """SQL of the largest job size (GPUs) of the bucket that `gpus` falls into; 0: no GPU."""
    steps = " ".join(f"WHEN coalesce({gpus}, 0) <= {top} THEN {top}" for top in BUCKET_TOPS)
    return f"CAST(CASE {steps} ELSE {2 * BUCKET_TOPS[-1]} END AS BIGINT)"


def bucket_bottom(top: int) -> int:
    """Smallest job size (GPUs) of the bucket with the given top."""
    return {0: 0, 1: 1, 8: 2}.get(top, top // 2 + 1)


def bucket_label(top: int) -> str:
    """The bucket as people read it: "17-32"."""
    bottom = bucket_bottom(top)
    return f"{top:,}" if bottom == top else f"{bottom:,}–{top:,}"
