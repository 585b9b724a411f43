"""What touches a live cluster: `sacct` run for `ingest`, and the commands that would drain lemon nodes.

Nothing here changes the cluster: the commands are printed for review.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from holdfast.errors import InputError
from holdfast.fleet.node_ranking import Lemons
from holdfast.numbers import number, probability

SACCT = ("sacct", "--allusers", "--duplicates", "--parsable2", "--format=ALL", "--allclusters")


@contextmanager
def sacct_output(since: str, timezone: str = "UTC") -> Iterator[Path]:
    """Run `sacct` on a login node and hold its output as a file while the block runs.

    Args:
        since: its ``--starttime``, such as ``now-7days``.
        timezone: the zone in which it is to write its times.

    Raises:
        InputError: if `sacct` is not installed (``not-found``), or ends with an error (``unavailable``).
    """
    with TemporaryDirectory(prefix="holdfast-") as folder:
        path = Path(folder) / "sacct.psv"
        line = [*SACCT, f"--starttime={_expanded(since)}"]
        try:
            with path.open("wb") as file:
                # Slurm writes the times of its process's zone; in UTC no hour occurs twice.
                run = subprocess.run(
                    line,
                    env={**os.environ, "TZ": timezone, "SLURM_TIME_FORMAT": "standard"},
                    stdout=file,
                    stderr=subprocess.PIPE,
                    text=True,
                    check=False,
                )
        except FileNotFoundError as error:
            raise InputError(
                "`sacct` not found",
                code="not-found",
                remedy="run this on a login node of the cluster, or ingest a file that sacct wrote",
            ) from error
        if run.returncode:
            raise InputError(
                "`sacct` ended with an error",
                code="unavailable",
                found=run.stderr.strip()[-500:] or f"exit code {run.returncode}",
                remedy=f"try it by hand: {shlex.join(line)}",
            )
        yield path


def _expanded(since: str) -> str:
    """`now-7d` as `sacct` reads it: it knows the unit's whole name only."""
    units = {"d": "days", "h": "hours", "w": "weeks", "m": "minutes"}
    if since.startswith("now-") and since[4:-1].isdigit() and since[-1] in units:
        return since[:-1] + units[since[-1]]
    return since


def drain_commands(result: Lemons) -> str:
    """Lines that would take the lemon nodes out of service, in Slurm and in Kubernetes, to be reviewed."""
    rows = {row["node"]: row for row in result.nodes.to_pylist()}
    slurm = ["# Slurm"]
    kubernetes = ["# Kubernetes"]
    doubtful = [f"# Doubtful: {each.text}" for each in result.unknowns() if each.doubt]
    for name in result.lemons:
        row = rows[name]
        cluster, _, node = name.rpartition(":")
        reason = (
            f"holdfast: {number(row['failures'], 1)} failures in {number(row['node_days'])} node-days, "
            f"q = {probability(row['q_value'])}"
        ).replace("−", "-")
        where = ["-M", cluster] if cluster else []
        change = ["update", f"nodename={node}", "state=drain", f"reason={reason}"]
        slurm.append(shlex.join(["scontrol", *where, *change]))
        kubernetes.append(shlex.join(["kubectl", "cordon", node]))
    alone = [f"# {row['node']}: only job {row['job_id']} fails on it" for row in result.one_job]
    commands = [*slurm, *kubernetes] if result.lemons else ["# no lemon node"]
    return "\n".join([*doubtful, *alone, *commands])


class DrainCommands(Lemons):
    """The ranking of the nodes, which a terminal shows as the commands that would drain the lemons."""

    def rendered(self, verbose: bool) -> str:
        """What the terminal prints."""
        return drain_commands(self)
