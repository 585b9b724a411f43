"""What goes wrong in this training, each fault once: two ranks die, one never enters a collective.

HOLDFAST_FAULTS="kill:3:85,kill:0:165,hang:1:235,slow:2:4" in the environment: what, which rank, at which
step (or how many times slower). A fault that has struck leaves a file, so that a restart gets past it.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

PLANNED = [fault.split(":") for fault in os.environ.get("HOLDFAST_FAULTS", "").split(",") if fault]


def slowness(rank: int) -> int:
    """How many times this rank must do its work."""
    return max(
        [int(times) for what, who, times in PLANNED if (what, who) == ("slow", str(rank))],
        default=1,
    )


def strike(folder: Path, rank: int, step: int) -> None:
    """Let happen what is planned for this rank and step, unless it already has."""
    for what, who, when in PLANNED:
        if what == "slow" or (int(who), int(when)) != (rank, step):
            continue
        struck = folder / f"{what}-{who}-{when}"
        if struck.exists():
            continue
        struck.touch()
        if what == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        while what == "hang":
            time.sleep(60)
