"""Ranks held against those that do the same work, rather than against all."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from holdfast.errors import InputError
from holdfast.runs.straggling.matrix import StepMatrix


def compared_within(matrix: StepMatrix, label: str) -> StepMatrix:
    """The matrix as if all values of a label had equal work.

    Stages of a pipeline differ by how the model is cut. From each own time the step's median over the
    ranks with the same value is taken and the median over all ranks added, so that delays, scores and
    costs are against peers.

    Raises:
        InputError: if ranks lack the label, or none has a peer.
    """
    lacking = [
        int(r) for r, each in zip(matrix.ranks, matrix.labels, strict=True) if label not in each
    ]
    if lacking:
        known = sorted({name for each in matrix.labels for name in each})
        raise InputError(
            f"rank {lacking[0]} has no label {label}",
            code="missing-key",
            path=matrix.source,
            expected=", ".join(known) or "labels: none are known",
        )
    values = np.array([each[label] for each in matrix.labels])
    own = matrix.own_s.astype(np.float32, copy=True)
    whole = np.median(own, axis=0)
    alone = 0
    for value in np.unique(values):
        members = np.flatnonzero(values == value)
        alone += members.size == 1
        own[members] += whole - np.median(own[members], axis=0)
    if alone == np.unique(values).size:
        raise InputError(
            f"no two ranks have the same {label}",
            code="no-match",
            path=matrix.source,
            remedy="compare all ranks, without --within",
        )
    remarks = list(matrix.remarks)
    if alone:
        remarks.append(f"ranks that are the only one of their {label} are not judged: {alone:,}")
    return replace(matrix, own_s=own, peers=label, remarks=tuple(remarks))
