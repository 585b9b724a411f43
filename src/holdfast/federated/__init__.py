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
    from holdfast.federated.contribution_ledger import verify_ledger
    from holdfast.federated.datasets import read_examples, split_examples
    from holdfast.federated.device_gap import characterize
    from holdfast.federated.diffusion import dif_maml
    from holdfast.federated.engine import run
    from holdfast.federated.processing import capture
    from holdfast.federated.results import FederatedRun
    from holdfast.federated.rule_study import study
    from holdfast.federated.secure_aggregation import Privacy
    from holdfast.federated.sensor import Profile, read_profiles
    from holdfast.federated.training import Settings, Task
    from holdfast.federated.update_files import aggregate_files
    from holdfast.federated.updates import Failure, Update

_HOMES = {
    "RULES": "aggregation",
    "Failure": "updates",
    "FederatedRun": "results",
    "Privacy": "secure_aggregation",
    "Profile": "sensor",
    "Settings": "training",
    "Task": "training",
    "Update": "updates",
    "aggregate": "aggregation",
    "aggregate_files": "update_files",
    "capture": "processing",
    "characterize": "device_gap",
    "dif_maml": "diffusion",
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
    "Failure",
    "FederatedRun",
    "Privacy",
    "Profile",
    "Settings",
    "Task",
    "Update",
    "aggregate",
    "aggregate_files",
    "capture",
    "characterize",
    "dif_maml",
    "read_examples",
    "read_profiles",
    "run",
    "run_config",
    "split_examples",
    "study",
    "verify_ledger",
]

__getattr__ = lazily(__name__, _HOMES)
