"""The bundled cluster with recorded trainings: its parts against `sacct` by hand, and `runs report`."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from holdfast import fleet, runs
from holdfast.fleet import Assumptions
from holdfast.ledger import ledger

CLUSTER = Path(__file__).parents[2] / "examples" / "ledger"
GPUS = 2
"""Of each of the four nodes, and of each training."""


def test_the_recorded_cluster_adds_up_by_hand(tmp_path: Path) -> None:
    fleet.ingest([CLUSTER], tmp_path)
    log = fleet.open(tmp_path, assumptions=Assumptions(checkpoint_interval_s=60, init_s=1))
    found = ledger(log, [CLUSTER / "runs"])
    seconds = {part: (hours or 0) * 3600 for part, hours in found.hours.items()}
    assert found.capacity is not None
    # 1. From the first start to the last end: 10:57:25 to 11:04:21.
    assert found.capacity * 3600 == pytest.approx(4 * GPUS * 416)
    assert sum(seconds.values()) == pytest.approx(4 * GPUS * 416)
    # 2. node01 was down from 11:00:44 to 11:01:47, node04 drained from 10:57:44 on.
    assert seconds["out_of_service"] == pytest.approx(GPUS * (63 + 397))
    # 3. What `sacct` says of every attempt, one row each beside those of its steps.
    with (CLUSTER / "sacct.psv").open(encoding="utf-8", newline="") as source:
        rows = [row for row in csv.DictReader(source, delimiter="|") if "." not in row["JobID"]]
    held = sum(
        int(row["ElapsedRaw"]) * (1 if row["JobName"] in ("look", "sweep") else GPUS)
        for row in rows
        if row["NodeList"] != "None assigned"
    )
    assert found.allocated * 3600 == pytest.approx(held)
    # 4. Job 5 waited for node02, in 36 s + 111 s + 43 s beside two idle GPUs; three starts took a second.
    assert seconds["idle_while_waiting"] == pytest.approx(GPUS * (36 + 111 + 43) + 3)
    # 5. The rest of what trained is what the records tell.
    made = [runs.breakdown(CLUSTER / "runs" / name).parts for name in ("bytes", "bytes-far")]
    for part in ("productive", "replayed", "data_wait", "checkpoint"):
        assert seconds[part] == pytest.approx(GPUS * sum(each[part] for each in made)), part
    assert seconds["replayed"] > 0
    assert 0 < seconds["unrecorded"] < 0.01 * found.capacity * 3600
