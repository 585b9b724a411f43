"""How ranks, operations and places in a program read in a sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.runs.flight.alignment import AlignedGroup
from holdfast.runs.flight.record import COMPLETED, LEFT, STARTED, Operation
from holdfast.runs.ranks import ranges

MOST_PIECES = 6
STATE_NAMES = {COMPLETED: "completed", LEFT: "left", STARTED: "started"}
LIBRARIES = (
    *("site-packages/", "dist-packages/", "lib/python3", "/torch/distributed/", "<frozen"),
    *("/holdfast/runs/execution/", "/holdfast/runs/recording/"),
)


def ranks_are(ranks: Sequence[int]) -> str:
    """``Rank 2`` or ``Ranks 0 and 1``."""
    return f"{'Rank' if len(ranks) == 1 else 'Ranks'} {ranges(ranks)}"


def lower(text: str) -> str:
    """Inside a sentence."""
    return text[:1].lower() + text[1:]


def plural(ranks: Sequence[int], one: str, many: str) -> str:
    """The verb for so many ranks."""
    return one if len(ranks) == 1 else many


def state_name(state: int) -> str:
    """The word for a state."""
    return STATE_NAMES.get(state, "scheduled")


def group_name(group: AlignedGroup, groups: Sequence[AlignedGroup]) -> str:
    """The label, and the members where another group has the same label."""
    if sum(other.label == group.label for other in groups) > 1:
        return f"{group.label} (ranks {ranges(group.ranks)})"
    return group.label


def request(operation: Operation) -> str:
    """What one rank asked for: ``all_reduce of [[4096]] Float``."""
    sizes = operation.input_sizes or operation.output_sizes
    types = operation.input_dtypes or operation.output_dtypes
    if not sizes:
        return operation.name
    shown = ", ".join(str(list(each)) for each in sizes[:3])
    more = f", … ({len(sizes)} tensors)" if len(sizes) > 3 else ""
    return f"{operation.name} of {shown}{more} {', '.join(sorted(set(types)))}".rstrip()


def where(frames: Sequence[Mapping[str, Any]]) -> str:
    """The innermost frame of the user's own code: ``load_batch (train.py:94)``; else of any."""
    own = [frame for frame in frames if not any(each in frame["filename"] for each in LIBRARIES)]
    for frame in own or frames:
        return f"{frame['name']} ({frame['filename']}:{frame['line']})"
    return ""
