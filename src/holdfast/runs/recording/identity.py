"""Who a process is: its rank, what launched it, the machine it runs on, how long it has lived."""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path

from holdfast.errors import InputError

_SAFE_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_SOURCES = (("RANK", ("WORLD_SIZE",)), ("SLURM_PROCID", ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")))


def checked_run_id(run_id: str) -> str:
    """A run id that can be the name of a folder.

    Raises:
        InputError: for anything else than letters, digits, ``.``, ``_``, ``-`` (not first), 128 of them.
    """
    if not isinstance(run_id, str) or not _SAFE_RUN_ID.fullmatch(run_id):
        raise InputError(
            "invalid run id",
            code="invalid-value",
            found=repr(run_id),
            expected="1 to 128 letters, digits, '.', '_' or '-', the first a letter or digit",
        )
    return run_id


def rank_of_process(
    rank: int | None, world_size: int | None, environment: Mapping[str, str] = os.environ
) -> tuple[int, int]:
    """Rank and number of ranks: as given, else as torchrun or Slurm says, else 0 of 1.

    Raises:
        InputError: if they are not integers, or the rank is not one of the ranks.
    """
    if rank is None or world_size is None:
        told_rank, told_size = _told(environment)
        rank = told_rank if rank is None else int(rank)
        world_size = (told_size or rank + 1) if world_size is None else int(world_size)
    if not 0 <= rank < world_size:
        raise InputError(
            "the rank is not one of the ranks",
            code="out-of-range",
            found=f"rank {rank} of {world_size}",
            expected="0 <= rank < world_size",
            remedy="give both rank= and world_size=, or neither where RANK and WORLD_SIZE are set",
        )
    return rank, world_size


def launch_of_process(environment: Mapping[str, str] = os.environ) -> str:
    """The same text on all ranks that were started together, where a launcher tells; else empty.

    Letters, digits, ``.``, ``_`` and ``-``: it names a folder. torchrun's own run id is ``none`` unless
    chosen, so the port of this start's store stands beside it.
    """
    if environment.get("TORCHELASTIC_RUN_ID"):
        names = ("TORCHELASTIC_RUN_ID", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT")
        kind = "torchrun"
    elif environment.get("SLURM_JOB_ID"):
        step = "SLURM_STEP_ID" if "SLURM_STEP_ID" in environment else "SLURM_STEPID"
        names = ("SLURM_JOB_ID", step, "SLURM_RESTART_COUNT")
        kind = "slurm"
    else:
        return ""
    parts = [kind, *(environment.get(name, "0") for name in names)]
    return re.sub(r"[^A-Za-z0-9._-]", "_", "-".join(parts))[:128]


def boot_id() -> str:
    """Boot id of the running kernel; empty if the system does not provide it."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def lived_s() -> float:
    """Seconds since this process began; 0 where the system does not tell."""
    try:
        # After the command's name, which is in brackets and may hold anything: field 22, in ticks
        # since the boot.
        fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
        begun = int(fields[19]) / os.sysconf("SC_CLK_TCK")
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - begun)
    except (OSError, ValueError, IndexError, AttributeError):
        return 0.0


def checked_amount(name: str, value: float | None, least: float = 0.0) -> float | None:
    """A finite number above `least`, or None.

    Raises:
        InputError: if it is none.
    """
    if value is None:
        return None
    number = float(value)
    if not math.isfinite(number) or number <= least:
        raise InputError(
            f"{name} is out of range",
            code="out-of-range",
            found=f"{value!r}",
            expected=f"more than {least:g}",
        )
    return number


def _told(environment: Mapping[str, str]) -> tuple[int, int | None]:
    for rank_name, size_names in _SOURCES:
        if rank_name in environment:
            sizes = [name for name in size_names if name in environment]
            size = _integer(environment, sizes[0]) if sizes else None
            return _integer(environment, rank_name), size
    return 0, None


def _integer(environment: Mapping[str, str], name: str) -> int:
    text = environment[name]
    if not text.strip().isdecimal():
        raise InputError(
            "the environment does not say which rank this is",
            code="invalid-value",
            place=name,
            found=repr(text),
            expected="a whole number",
            remedy="give rank= and world_size=",
        )
    return int(text)
