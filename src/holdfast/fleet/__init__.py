"""What a cluster did and would do: ingest, attribution, failure model, ETTR, goodput, lemon nodes.

    store = holdfast.fleet.ingest(["sacct.txt", "health.jsonl"], "store")
    log = holdfast.fleet.open("store")
    holdfast.fleet.goodput(log).lost_gpu_hours

Names are imported when they are first used, so that a command that needs one does not pay for all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import lazily

if TYPE_CHECKING:
    from holdfast.fleet.assumptions import Assumptions
    from holdfast.fleet.attribution import attribute
    from holdfast.fleet.checkpoint_interval import (
        daly_interval,
        optimal_checkpoint_interval,
        young_interval,
    )
    from holdfast.fleet.console.serving import serve
    from holdfast.fleet.ettr_forms import ettr, expected_ettr, optimal_ettr
    from holdfast.fleet.ettr_measured import measured_ettr
    from holdfast.fleet.ettr_monte_carlo import monte_carlo_ettr
    from holdfast.fleet.ettr_solve import solve
    from holdfast.fleet.failure_model import FailureModel
    from holdfast.fleet.failures import mttf
    from holdfast.fleet.fleet_report import report
    from holdfast.fleet.ingestion import ingest
    from holdfast.fleet.lemon_model import LemonDetector
    from holdfast.fleet.log import FleetLog
    from holdfast.fleet.log import open_log as open  # as `gzip.open`
    from holdfast.fleet.losses import goodput
    from holdfast.fleet.node_ranking import lemons
    from holdfast.fleet.preemption import preemptions
    from holdfast.fleet.simulation.calibration import calibrate
    from holdfast.fleet.simulation.comparison import whatif
    from holdfast.fleet.simulation.scenario import Scenario, scenario
    from holdfast.fleet.simulation.simulated_log import simulate
    from holdfast.fleet.state_mix import status
    from holdfast.fleet.store import Store

_HOMES = {
    "Assumptions": "assumptions",
    "FailureModel": "failure_model",
    "FleetLog": "log",
    "LemonDetector": "lemon_model",
    "Scenario": "simulation.scenario",
    "Store": "store",
    "attribute": "attribution",
    "calibrate": "simulation.calibration",
    "daly_interval": "checkpoint_interval",
    "ettr": "ettr_forms",
    "expected_ettr": "ettr_forms",
    "goodput": "losses",
    "ingest": "ingestion",
    "lemons": "node_ranking",
    "measured_ettr": "ettr_measured",
    "monte_carlo_ettr": "ettr_monte_carlo",
    "mttf": "failures",
    "open": "log:open_log",
    "optimal_checkpoint_interval": "checkpoint_interval",
    "optimal_ettr": "ettr_forms",
    "preemptions": "preemption",
    "report": "fleet_report",
    "scenario": "simulation.scenario",
    "serve": "console.serving",
    "simulate": "simulation.simulated_log",
    "solve": "ettr_solve",
    "status": "state_mix",
    "whatif": "simulation.comparison",
    "young_interval": "checkpoint_interval",
}

__all__ = [
    "Assumptions",
    "FailureModel",
    "FleetLog",
    "LemonDetector",
    "Scenario",
    "Store",
    "attribute",
    "calibrate",
    "daly_interval",
    "ettr",
    "expected_ettr",
    "goodput",
    "ingest",
    "lemons",
    "measured_ettr",
    "monte_carlo_ettr",
    "mttf",
    "open",
    "optimal_checkpoint_interval",
    "optimal_ettr",
    "preemptions",
    "report",
    "scenario",
    "serve",
    "simulate",
    "solve",
    "status",
    "whatif",
    "young_interval",
]

__getattr__ = lazily(__name__, _HOMES)
