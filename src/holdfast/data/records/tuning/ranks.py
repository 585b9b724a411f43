"""Ranks agree on what they measured, so that all of them take the same choice."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from holdfast.data.records.tuning.scores import Score
from holdfast.errors import HoldfastError


class OtherRankFailed(HoldfastError):
    """A probe failed on another rank; its message stands in that rank's log."""


def together(group: Any = None) -> bool:
    """Whether this process is one of several ranks of `torch.distributed`."""
    try:
        import torch.distributed as dist
    except ImportError:
        return False
    started = dist.is_available() and dist.is_initialized()
    return bool(started and dist.get_world_size(group) > 1)


def agree(
    fidelities: Sequence[int],
    scores: Sequence[Score] | None,
    loss: float | None,
    bound: bool,
    failed: bool = False,
    group: Any = None,
) -> tuple[tuple[Score, ...], float | None, bool]:
    """What the ranks found together: one all-reduce of a few numbers.

    A score is the mean over ranks, its error that of the mean of independent measurements; the loss is
    the mean over the ranks that have one; the job is bound by storage if any rank is, because the others
    wait for it.

    Args:
        fidelities: those probed, the same on every rank; empty if no probe was due.
        scores: this rank's, one for each of `fidelities`; None if its probe failed.
        loss: this rank's mean training loss, if known.
        bound: whether this rank waits for storage.
        failed: whether this rank's probe failed.
        group: the process group.

    Returns:
        Scores, loss and `bound`, the same on every rank.

    Raises:
        OtherRankFailed: if the probe failed on another rank but not here.
    """
    import torch
    import torch.distributed as dist

    held = scores if scores is not None else [Score(g, math.nan, None) for g in fidelities]
    numbers = [float(failed), float(bound), float(loss is not None), loss or 0.0]
    for one in held:
        numbers += [
            one.value,
            one.error**2 if one.error is not None else math.nan,
            float(one.freedom),
        ]
    on_device = dist.get_backend(group) == "nccl"
    packed = torch.tensor(
        numbers, dtype=torch.float64, device=torch.device("cuda") if on_device else None
    )
    dist.all_reduce(packed, group=group)
    ranks = dist.get_world_size(group)
    failures, bounds, losses, total, *rest = packed.tolist()
    if failures and not failed:
        raise OtherRankFailed(f"the probe of gradients failed on {failures:.0f} other ranks")
    agreed = []
    for fidelity, place in zip(fidelities, range(0, len(rest), 3), strict=True):
        value, variance, freedom = rest[place : place + 3]
        error = math.sqrt(variance) / ranks if math.isfinite(variance) else None
        agreed.append(Score(fidelity, value / ranks, error, round(freedom)))
    return tuple(agreed), total / losses if losses else None, bounds > 0
