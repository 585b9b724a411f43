"""Rules compared over seeds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from holdfast import federated
from holdfast.errors import InputError
from holdfast.fanout import fan_out
from holdfast.federated.rule_study import Study

SIGNS = Path(__file__).parents[2] / "examples" / "signs" / "photos"
CONFIG = """\
model = "linear"
data = {{ path = "{photos}", size = 8, clients = 8, test_share = 0.3 }}
devices = {{ shares = {{ maker-a-high = 1, maker-c-low = 1 }} }}
training = {{ rounds = 2, per_round = 3 }}
compare = {compare}
"""
RULES = (
    '[{ name = "fedavg" }, { name = "heteroswitch", switch = "never" }, { name = "median", f = 1 }]'
)


def test_rules_are_compared_on_the_same_clients(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(CONFIG.format(photos=SIGNS, compare=RULES))
    found = federated.study(tmp_path / "c.toml", seeds=2, leave_out=True)
    assert found.rules == ["fedavg", "heteroswitch switch=never", "median f=1"]
    rows = {(row["rule"], row["metric"]): row for row in found.rows}
    assert len(rows) == 3 * 4
    # Without a switch HeteroSwitch is FedAvg: in all metrics, to the last bit.
    for metric in ("mean_accuracy", "worst_accuracy", "variance", "left_out"):
        row, first = rows[found.rules[1], metric], rows["fedavg", metric]
        assert (row["difference"], row["difference_ci95"]) == (0, (0, 0))
        assert row["value"] == first["value"]
        # The interval of two values a, b is mean +- 12.706 |a - b| / 2.
        assert first["ci95"][0] <= first["value"] <= first["ci95"][1]
    again = federated.study(tmp_path / "c.toml", seeds=2, leave_out=True)
    assert again.rows == found.rows
    assert [part.id for part in found.sections()] == [
        "mean-accuracy",
        "worst-accuracy",
        "variance",
        "left-out",
    ]


@pytest.mark.full
def test_ray_changes_no_bit_of_a_run_or_a_study(tmp_path: Path) -> None:
    ray: Any = pytest.importorskip("ray")
    paths = []
    for place in ("here", "there"):
        paths.append(tmp_path / place / "c.toml")
        paths[-1].parent.mkdir()
        paths[-1].write_text(CONFIG.format(photos=SIGNS, compare=RULES))
    here = federated.run_config(paths[0])
    compared = federated.study(paths[0], seeds=2)
    ray.init(log_to_driver=False)
    try:
        [(_, there)] = fan_out(paths[1:], federated.run_config, ray="local")
        compared_there = federated.study(paths[1], seeds=2, ray="local")
    finally:
        ray.shutdown()
    assert there.history == here.history
    assert there.weights.keys() == here.weights.keys()
    for name, array in here.weights.items():
        assert there.weights[name].tobytes() == array.tobytes()
    assert compared_there.rows == compared.rows


def test_one_seed_has_no_interval(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(CONFIG.format(photos=SIGNS, compare=RULES))
    found = federated.study(tmp_path / "c.toml", seeds=1)
    assert found.unknowns()[0].doubt
    assert found.rows[0]["ci95"] == (-np.inf, np.inf)
    assert found.page().sections


@pytest.mark.parametrize(
    ("differences", "sure"),
    [
        ([(-0.2, -0.1), (-0.3, -0.1)], True),
        ([(-0.2, -0.1), (-0.3, 0.1)], False),
        ([(0.0, 0.0), (0.0, 0.0)], False),
        ([(-0.2, -0.1), (-0.1, -0.1)], False),  # equal counts in a few seeds
    ],
)
def test_a_best_baseline_may_be_chance(differences: list[Any], sure: bool) -> None:
    rows = [
        {"rule": str(k), "metric": "mean_accuracy", "value": -k, "ci95": (-k, -k)}
        | {"difference": -k, "difference_ci95": interval}
        for k, interval in enumerate([(0.0, 0.0), *differences])
    ]
    (section,) = Study(["0", "1", "2"], 5, rows, 0).sections()
    assert list(section.tables[0].columns) == ["rule", "value", "difference"]
    assert ("chance" in section.sentence) is not sure


@pytest.mark.parametrize("devices", ["", "devices = { shares = { maker-a-high = 1 } }"])
def test_one_device_cannot_be_left_out(tmp_path: Path, devices: str) -> None:
    text = CONFIG.format(photos=SIGNS, compare=RULES).splitlines()
    text[2] = devices
    (tmp_path / "c.toml").write_text("\n".join(text))
    with pytest.raises(InputError) as caught:
        federated.study(tmp_path / "c.toml", seeds=1, leave_out=True)
    assert (caught.value.code, caught.value.place) == ("invalid-value", "devices")


def test_nothing_to_compare(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(CONFIG.format(photos=SIGNS, compare='[{ name = "fedavg" }]'))
    with pytest.raises(InputError) as caught:
        federated.study(tmp_path / "c.toml")
    assert (caught.value.code, caught.value.place) == ("missing-key", "compare")
