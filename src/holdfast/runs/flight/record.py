"""One dump as columns: the central structure of the hang analysis.

A dump has at most some thousand entries and a few dozen distinct operations: an entry is one row of
`ENTRY`, which refers to the tables `Dump.groups` and `Dump.operations`. Stacks are left out;
`compact.frames_of` fetches them for the few entries that need them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

SCHEDULED, STARTED, LEFT, COMPLETED = 0, 1, 2, 3
"""States of an entry. LEFT: the caller has gone on, but whether the operation succeeded is not
recorded (gloo records only that)."""
STATES = {"scheduled": SCHEDULED, "started": STARTED, "completed": COMPLETED}

ENTRY = np.dtype(
    [
        ("record", np.int64),  # position in the rank's own history, from 0
        ("group", np.int32),  # index into `Dump.groups`
        ("sequence", np.int64),  # of the collective in its group; of p2p: its p2p sequence
        ("operation", np.int32),  # index into `Dump.operations`
        ("state", np.int8),
        ("p2p", np.bool_),
        ("created_ns", np.int64),  # wall clock of the rank, since 1970
        ("timeout_ms", np.int64),
    ],
    align=True,
)

Group = tuple[str, str]
"""Name and description of a process group, the same on all its ranks."""


@dataclass(frozen=True)
class Operation:
    """What a rank asked for: two entries with equal operations did the same thing."""

    name: str
    """Without backend and peers: ``all_reduce``, ``send``."""
    backend: str
    """``nccl``, ``gloo``, ...; empty where the dump does not say."""
    input_sizes: tuple[tuple[int, ...], ...]
    """Shape of each input tensor."""
    output_sizes: tuple[tuple[int, ...], ...]
    input_dtypes: tuple[str, ...]
    output_dtypes: tuple[str, ...]
    peers: tuple[int, int] | None = None
    """Source and destination of send and recv, as ranks of the group."""


@dataclass(frozen=True)
class Dump:
    """What one rank recorded."""

    file: str
    rank: int | None
    """From the content, where it says so; else None until the file name is read."""
    version: str
    world_size: int | None
    dumped_ns: int | None
    """When the dump was made, where it says so."""
    host: str
    groups: tuple[Group, ...]
    members: Mapping[Group, tuple[int, ...]]
    """Global ranks of a group, where the dump says so."""
    unnamed_members: tuple[int, ...]
    """Ranks that the dump lists without saying of which group (gloo)."""
    operations: tuple[Operation, ...]
    entries: NDArray[np.void]
    """In `ENTRY`, in the order in which they were recorded."""
    rows_set_aside: int = 0
    """Entries that could not be understood."""
    stacks: bool = False
    """Whether entries carry stacks; `frames_of` fetches them."""
    threads: tuple[Mapping[str, Any], ...] = ()
    """Stacks of the threads when the dump was made, where it has them: name and frames, innermost
    first."""
