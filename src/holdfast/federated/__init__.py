"""Learning on devices that differ: aggregation rules, an engine of rounds, failing clients.

result = federated.run(model, clients, test={"phone": (x, y)}, rule="krum", f=2)
result.mean_accuracy, result.worst_device, result.variance_over_devices
weights, state, failures = federated.aggregate("krum", current, updates, f=2)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import lazily

if TYPE_CHECKING:
    from holdfast.federated.aggregation import RULES, aggregate
    from holdfast.federated.configuration import run_config
    from holdfast.federated.contribution_ledger import Audit, verify_ledger
    from holdfast.federated.datasets import read_examples, split_examples
    from holdfast.federated.device_gap import Characterization, characterize
    from holdfast.federated.engine import run
    from holdfast.federated.processing import capture
    from holdfast.federated.results import FederatedRun
    from holdfast.federated.rule_study import Study, study
    from holdfast.federated.sensor import Profile, read_profiles
    from holdfast.federated.training import Settings, Task
    from holdfast.federated.update_files import aggregate_files
    from holdfast.federated.updates import Failure, Update

_HOMES = {
    "Audit": "contribution_ledger",
    "Characterization": "device_gap",
    "RULES": "aggregation",
    "Failure": "updates",
    "FederatedRun": "results",
    "Profile": "sensor",
    "Settings": "training",
    "Study": "rule_study",
    "Task": "training",
    "Update": "updates",
    "aggregate": "aggregation",
    "aggregate_files": "update_files",
    "capture": "processing",
    "characterize": "device_gap",
    "read_examples": "datasets",
    "read_profiles": "sensor",
    "run": "engine",
    "run_config": "configuration",
    "split_examples": "datasets",
    "study": "rule_study",
    "verify_ledger": "contribution_ledger",
}

__all__ = [
    "RULES",
    "Audit",
    "Characterization",
    "Failure",
    "FederatedRun",
    "Profile",
    "Settings",
    "Study",
    "Task",
    "Update",
    "aggregate",
    "aggregate_files",
    "capture",
    "characterize",
    "read_examples",
    "read_profiles",
    "run",
    "run_config",
    "split_examples",
    "study",
    "verify_ledger",
]

__getattr__ = lazily(__name__, _HOMES)
