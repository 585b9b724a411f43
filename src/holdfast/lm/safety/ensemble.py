"""How the verdicts of several annotators become one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from holdfast.command import Options, Positive, option


@Options
@dataclass(frozen=True)
class Ensemble:
    """Annotators whose verdicts count, and how their verdicts become one."""

    annotators: Annotated[tuple[str, ...], option(metavar="NAME")] = ()
    """Annotator whose verdicts count; may be given several times (default: all of the run)."""
    rule: Annotated[Literal["majority", "any-unsafe"], option("--ensemble")] = "majority"
    """Majority of the valid verdicts, or unsafe as soon as one annotator says so."""
    tie: Literal["unsafe", "safe", "invalid"] = "unsafe"
    """Verdict where as many annotators say safe as unsafe."""
    min_valid: Positive = 1
    """Number of valid verdicts that an item needs."""


EVERY = Ensemble()
"""The majority of all annotators of a run."""
