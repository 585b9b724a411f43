"""Every parameter that an answer about a fleet assumes and that a log does not contain."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path

from holdfast.errors import InputError


@dataclass(frozen=True)
class Assumptions:
    """What the analyses assume; printed with every answer. The defaults are the paper's.

    Source: Kokolis et al., "Revisiting Reliability in Large-Scale Machine Learning Research
    Clusters", arXiv 2410.21680v2.

    Attributes:
        check_before_s: A check explains the end of an attempt if it fired at most this long before
            it ...
        check_after_s: ... or at most this long after it.
        min_gpus: The failure rate counts attempts with more GPUs than this; 0 counts every attempt.
        checkpoint_interval_s: Assumed time between checkpoints: a failure loses half of it on
            average.
        init_s: Unproductive time after each start of a job (u0); None: 5 min, or less where short
            completed attempts show that it takes less (`FleetLog.init_s`).
        write_s: Time that a checkpoint write stops the job (w).
        save_on_signal: Whether a preempted job saves its work in its grace period; else it loses as
            a failed one does.
        preemption_grace_s: Time from the preemption signal to the kill, for a quality of service
            whose grace is unknown.
        preemption_slack_s: A preemptor starts at most grace plus this long after the end of the
            attempt it displaced.
        crash_loop_requeues: A crash loop is this many requeues of one run after infrastructure
            failures ...
        crash_loop_window_s: ... within this time.
        long_run_s: Measured ETTR is taken over job runs that spent at least this long on their
            nodes.
        incident_gap_s: Events of one node (checks that explain failures, else the failures) closer
            together than this are one incident.
        lemon_window_s: Lemon signals are counted over this time before the end of the log.
        lemon_fdr: False discovery rate at which a node is called a lemon.
        chain_by_name: Chain attempts also across job ids by (user, name, working directory, size).
        taxonomy: TOML file with symptoms, domains and check names; None: the one that holdfast
            ships.
    """

    check_before_s: float = 600.0
    check_after_s: float = 300.0
    min_gpus: int = 128
    checkpoint_interval_s: float = 3600.0
    init_s: float | None = None
    write_s: float = 0.0
    save_on_signal: bool = False
    preemption_grace_s: float = 300.0
    preemption_slack_s: float = 300.0
    crash_loop_requeues: int = 3
    crash_loop_window_s: float = 86_400.0
    long_run_s: float = 86_400.0
    incident_gap_s: float = 60.0
    lemon_window_s: float = 28 * 86_400.0
    lemon_fdr: float = 0.05
    chain_by_name: bool = False
    taxonomy: Path | None = None

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not isinstance(value, int | float) or isinstance(value, bool):
                continue
            if not (math.isfinite(value) and value >= 0):
                raise InputError(
                    f"invalid assumption {name}",
                    code="invalid-value",
                    found=str(value),
                    expected="a finite number, zero or more",
                )
        if self.checkpoint_interval_s == 0:
            raise InputError(
                "a checkpoint interval of zero would mean that a failure never loses work",
                code="invalid-value",
                expected="a time above zero, for example 60m",
            )

    def to_dict(self) -> dict[str, object]:
        """The parameters by name, times in seconds."""
        return {k: str(v) if isinstance(v, Path) else v for k, v in asdict(self).items()}
