"""One training run from inside: where its time went, what stopped it, which rank or node to blame.

    with holdfast.runs.RunRecorder("events", "my-run") as recorder:
        ...                                        # the training
    holdfast.runs.breakdown("events").parts

Names are imported when they are first used; nothing here needs torch but `Checkpoints`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import lazily

if TYPE_CHECKING:
    from holdfast.runs.checkpointing.checkpoints import Checkpoints
    from holdfast.runs.diagnosis.diagnosing import diagnose
    from holdfast.runs.execution.launching import execute
    from holdfast.runs.flight.dumping import dump_flight_record
    from holdfast.runs.flight.verdict import hang
    from holdfast.runs.goodput.accounting import breakdown
    from holdfast.runs.goodput.report import report
    from holdfast.runs.pairing.plan import plan_pairs
    from holdfast.runs.pairing.running import run_pairs
    from holdfast.runs.pairing.solve import solve_pairs
    from holdfast.runs.recording.reading import read_run
    from holdfast.runs.recording.recorder import RunRecorder
    from holdfast.runs.straggling.scores import stragglers
    from holdfast.runs.watching.watcher import replay, watch

_HOMES = {
    "Checkpoints": "checkpointing.checkpoints",
    "RunRecorder": "recording.recorder",
    "breakdown": "goodput.accounting",
    "diagnose": "diagnosis.diagnosing",
    "dump_flight_record": "flight.dumping",
    "execute": "execution.launching",
    "hang": "flight.verdict",
    "plan_pairs": "pairing.plan",
    "read_run": "recording.reading",
    "replay": "watching.watcher",
    "report": "goodput.report",
    "run_pairs": "pairing.running",
    "solve_pairs": "pairing.solve",
    "stragglers": "straggling.scores",
    "watch": "watching.watcher",
}

__all__ = [
    "Checkpoints",
    "RunRecorder",
    "breakdown",
    "diagnose",
    "dump_flight_record",
    "execute",
    "hang",
    "plan_pairs",
    "read_run",
    "replay",
    "report",
    "run_pairs",
    "solve_pairs",
    "stragglers",
    "watch",
]

__getattr__ = lazily(__name__, _HOMES)
