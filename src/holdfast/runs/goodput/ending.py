"""How an attempt ended, and which rank was first: from what each rank wrote last."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from holdfast.runs.diagnosis.rules import load

HUNG_USUALS = 10
HUNG_LEAST_S = 1.0
"""An attempt hung if its ranks lived on for ten usual steps, and for a second, without progress."""
FRESH_S = 3.0
FRESH_BEATS = 3
"""Ranks whose last lines are within either fell silent together."""

Kind = Literal["clean", "exception", "signal", "killed", "running"]
KINDS: dict[Kind, str] = {
    "clean": "ended well",
    "exception": "exception",
    "signal": "signal",
    "killed": "killed",
    "running": "still runs",
}

_TOLD: dict[Kind, tuple[str, str]] = {
    "clean": ("finished cleanly", ""),
    "exception": ("ended by an exception", "raised one that was not recorded"),
    "signal": ("ended by a signal", "was told to end"),
    "killed": ("was killed", "was gone before the others"),
    "running": ("has no end yet", ""),
}
"""Kind -> what is said of the attempt, and of the rank that was first."""

_OF_TORCH = ("RuntimeError:", "Dist", "Rendezvous", "torch.distributed.")
"""Exceptions of process groups. A `BrokenPipeError` is of a file, a store or a worker of the rank's own."""
_BROKEN_OFF = re.compile(
    "closed by|closed connection|reset by|refused|broken ?pipe|likely closed|0 bytes|EOFError|"
    "remote process exited",
    re.IGNORECASE,
)
"""Said by a rank whose connection ended: the process at its other end had ended. One that is frozen
keeps its connections."""


@dataclass(frozen=True)
class LastSigns:
    """The end of one rank's recording. Times are on one clock."""

    rank: int
    end: Literal["clean", "exception", "signal", "none"]
    """``none``: it wrote no end."""
    detail: str
    """The exception, ``"ValueError: no such layer"``; empty where it is not known."""
    last_s: float
    """Its last line."""
    beat_s: float
    """The longest time between its last lines: so much longer it may have lived."""
    node: str = ""
    """Where it ran; empty where it is not known."""

    @property
    def follows(self) -> bool:
        """Its exception says that other ranks were lost or did not come: theirs is the cause."""
        said = self.end == "exception" and self.detail.startswith(_OF_TORCH)
        found = load().rule_of(self.detail) if said else None
        return found is not None and found.kind == "cascade"


@dataclass(frozen=True)
class Ending:
    """How an attempt ended."""

    kind: Kind
    hung: bool = False
    """It stayed alive without progress until it ended so."""
    first: LastSigns | None = None
    """The rank that went first; None: nothing tells it."""

    def sentence(self, attempt: int) -> str:
        """How the attempt of this number ended: the one sentence of every command.

        Args:
            attempt: 1, 2, ...
        """
        if self.hung:
            kind, how = "hung", "fell silent before the others"
            nobody = "no rank fell silent before the others"
        else:
            kind, how = _TOLD[self.kind]
            nobody = "which rank was first cannot be told" if how else ""
        if self.first is None:
            return f"Attempt {attempt:,} {kind}{nobody and f'; {nobody}'}."
        if self.first.detail and not self.hung:
            how = f"raised {self.first.detail}" if self.kind == "exception" else how
        node = f" on {self.first.node}" if self.first.node else ""
        return f"Attempt {attempt:,} {kind}: rank {self.first.rank:,}{node} {how}."


def ending_of(
    ranks: Sequence[LastSigns], progress_s: float, usual_s: float | None, running: bool
) -> Ending:
    """How an attempt ended.

    1. All ranks ended cleanly, or it still runs.
    2. An exception that is a rank's own is the cause, unless another rank was gone before it.
    3. Else a rank that fell silent while all made progress was killed, if those that lived on say
       that its connection ended, or went on.
    4. Else ranks that lived on without progress hung; one that fell silent well before the others
       is the first.
    5. What is left are ends from outside (a signal, kills of all at once) and exceptions of ranks
       that lost each other, of which none is the first.

    Args:
        ranks: what each wrote last; at least one.
        progress_s: when any rank last made progress.
        usual_s: how long a step (before the first one: an initialisation) takes; None: not known.
        running: nothing says that it is over.
    """
    unclean = sorted(
        (each for each in ranks if each.end != "clean"), key=lambda each: (each.last_s, each.rank)
    )
    if not unclean:
        return Ending("clean")
    usual_s = math.inf if usual_s is None else usual_s
    hung_from_s = progress_s + max(HUNG_USUALS * usual_s, HUNG_LEAST_S)
    lived_on_s = max(each.last_s for each in ranks)
    stalled = lived_on_s > hung_from_s
    if running and all(each.end == "none" for each in unclean):
        return Ending("running", stalled, _silent_first(ranks) if stalled else None)
    follows = {each.rank: len(ranks) > 1 and each.follows for each in unclean}
    raised = [e for e in unclean if e.end == "exception" and e.detail and not follows[e.rank]]
    silent = [each for each in unclean if each.end == "none"]
    if raised and not (silent and silent[0].last_s + silent[0].beat_s < raised[0].last_s):
        return Ending("exception", first=raised[0])

    reactions = [e.last_s for e in unclean if e.end == "signal" or follows[e.rank]]
    reacted_s = min(reactions, default=-math.inf)
    # A rank without an end beside ranks that wrote theirs, and not after them, was gone before.
    gone = [e for e in silent if e.last_s + e.beat_s < lived_on_s or e.last_s <= reacted_s]
    told = [each.detail for each in unclean if follows[each.rank]]
    broken_off = bool(told) and all(_BROKEN_OFF.search(each) for each in told)
    if gone and gone[0].last_s <= hung_from_s and (raised or broken_off or not stalled):
        alone = len(gone) == 1 or gone[0].last_s + gone[0].beat_s < gone[1].last_s
        return Ending("killed", first=gone[0] if alone else None)
    kind: Kind = "killed" if unclean[0].end == "none" else unclean[0].end  # type: ignore[assignment]
    if stalled:
        return Ending(kind, True, _silent_first(ranks))
    return Ending(kind, first=unclean[0] if len(unclean) == 1 else None)


def _silent_first(ranks: Sequence[LastSigns]) -> LastSigns | None:
    """The rank whose lines stopped well before those of the others, if there is one."""
    first, *others = sorted(ranks, key=lambda each: each.last_s)
    fresh_s = max([FRESH_S, *(FRESH_BEATS * each.beat_s for each in others)])
    early = others and min(each.last_s for each in others) - first.last_s > fresh_s
    return first if early else None
