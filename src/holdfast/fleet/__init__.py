"""What a cluster did and would do: ingest, attribution, failure model, ETTR, goodput, lemon nodes.

    store = holdfast.fleet.ingest(["sacct.txt", "health.jsonl"], "store")
    log = holdfast.fleet.open("store")
    holdfast.fleet.goodput(log).lost_gpu_hours

Names are imported when they are first used, so that a command that needs one does not pay for all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import lazily

if TYPE_CHECKING:  # written so, a name is public to type checkers
    from holdfast.fleet.assumptions import Assumptions as Assumptions
    from holdfast.fleet.attribution import attribute as attribute
    from holdfast.fleet.checkpoint_interval import daly_interval as daly_interval
    from holdfast.fleet.checkpoint_interval import (
        optimal_checkpoint_interval as optimal_checkpoint_interval,
    )
    from holdfast.fleet.checkpoint_interval import young_interval as young_interval
    from holdfast.fleet.console.serving import serve as serve
    from holdfast.fleet.ettr_forms import ettr as ettr
    from holdfast.fleet.ettr_forms import expected_ettr as expected_ettr
    from holdfast.fleet.ettr_forms import optimal_ettr as optimal_ettr
    from holdfast.fleet.ettr_measured import measured_ettr as measured_ettr
    from holdfast.fleet.ettr_monte_carlo import monte_carlo_ettr as monte_carlo_ettr
    from holdfast.fleet.ettr_solve import solve as solve
    from holdfast.fleet.failure_model import FailureModel as FailureModel
    from holdfast.fleet.failures import mttf as mttf
    from holdfast.fleet.fleet_report import report as report
    from holdfast.fleet.ingestion import ingest as ingest
    from holdfast.fleet.lemon_model import LemonDetector as LemonDetector
    from holdfast.fleet.log import FleetLog as FleetLog
    from holdfast.fleet.log import open_log
    from holdfast.fleet.losses import goodput as goodput
    from holdfast.fleet.node_ranking import lemons as lemons
    from holdfast.fleet.preemption import preemptions as preemptions
    from holdfast.fleet.simulation.calibration import calibrate as calibrate
    from holdfast.fleet.simulation.comparison import whatif as whatif
    from holdfast.fleet.simulation.scenario import Scenario as Scenario
    from holdfast.fleet.simulation.scenario import scenario as scenario
    from holdfast.fleet.simulation.simulated_log import simulate as simulate
    from holdfast.fleet.state_mix import status as status
    from holdfast.fleet.store import Store as Store

    open = open_log  # as `gzip.open`

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

__all__ = list(_HOMES)

__getattr__ = lazily(__name__, _HOMES)
