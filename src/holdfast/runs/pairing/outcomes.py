"""What an ended command says of its nodes: they work, they do not, or nothing.

Exit code 0 is a pass, a time limit that passed is a hang and counts as a failure, any other code is a
failure. But a test that never began says nothing of the nodes: codes named by the user, and what
Slurm prints when it does not start a step, make it ``not_run``. Codes 126 and 127 (and Slurm's
word for it) mean that the command itself could not be run.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from holdfast.runs.pairing.execution import Execution
from holdfast.runs.pairing.records import Outcome

COMMAND_CODES = (126, 127)
"""Exit codes of a shell: command not executable, command not found."""

_NOT_STARTED = re.compile(
    r"srun: error: (?:Unable to (?:allocate resources|create step)|Invalid node name|"
    r"Node .* not in your job|Required node not available)"
    r"|srun: Required node not available"
)
_QUEUED = re.compile(r"srun: job \d+ queued and waiting for resources")
_ALLOCATED = re.compile(r"srun: job \d+ has been allocated resources")
_NO_PROGRAM = re.compile(
    r"(?:slurmstepd|srun): error: execve\(\): .*: (?:No such file|Permission denied)"
)


def outcome_of(done: Execution, not_run_codes: Collection[int] = ()) -> Outcome:
    """Passed, failed, timed_out or not_run."""
    if done.exit_code == 0:
        return "passed"
    if done.exit_code is None:
        waited = _QUEUED.search(done.output_tail) and not _ALLOCATED.search(done.output_tail)
        return "not_run" if waited else "timed_out"
    if done.exit_code in not_run_codes or _NOT_STARTED.search(done.output_tail):
        return "not_run"
    return "failed"


def command_unusable(done: Execution) -> bool:
    """The command could not be run: it is not there, or not executable."""
    if done.exit_code in (0, None):
        return False
    return done.exit_code in COMMAND_CODES or _NO_PROGRAM.search(done.output_tail) is not None
