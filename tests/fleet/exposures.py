"""Exposure and blame from rows written by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from holdfast.fleet.lemon_statistics import BlameExposure, Evidence


def exposure(
    nodes: Sequence[str], kinds: Sequence[int] = (), failure_node: Sequence[str] = (), **rows: Any
) -> BlameExposure:
    """Rows of exposure (node, size, node_days) and of blame (failure_size, _blame, _known, _node)."""
    failures = len(rows["failure_size"])
    used, blamed = (
        np.array([nodes.index(name) for name in each], np.int64)
        for each in (rows["node"], failure_node or [nodes[0]] * failures)
    )
    failed = [rows[f"failure_{name}"] for name in ("size", "blame", "known")]
    return Evidence.from_rows(
        kinds or [0] * len(nodes),
        [used, rows["size"], rows["node_days"]],
        [np.arange(failures), blamed, *failed],
    ).exposure
