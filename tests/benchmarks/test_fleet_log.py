"""The generated log is what it says it is: read back by other means than holdfast's."""

from __future__ import annotations

import io
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from ClusterShell.NodeSet import NodeSet

from fleet_log import Truth, write_log


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Truth]:
    folder = tmp_path_factory.mktemp("log")
    truth = write_log(
        folder, 20_000, 64, 3_000, seed=7, rate_per_node_day=0.1, lemon_share=0.05, nasty_share=0
    )
    return folder, truth


@pytest.fixture(scope="module")
def rows(log: tuple[Path, Truth]) -> pd.DataFrame:
    return pd.read_csv(log[0] / "sacct.psv", sep="|", quoting=3, keep_default_na=False)


def test_counts_are_the_truths(log: tuple[Path, Truth], rows: pd.DataFrame) -> None:
    _, truth = log
    assert len(rows) == truth.attempts == 20_000
    assert rows.JobIDRaw.nunique() == truth.jobs
    assert dict(Counter(rows.State.str.split().str[0])) == truth.states


def test_columns_agree_with_each_other(rows: pd.DataFrame) -> None:
    ended = rows[rows.End != "Unknown"]
    times = ended[["Submit", "Eligible", "Start", "End"]].apply(pd.to_datetime)
    assert (times.diff(axis=1).iloc[:, 1:] >= pd.Timedelta(0)).all(axis=None)
    assert ((times.End - times.Start).dt.total_seconds() == ended.ElapsedRaw).all()
    widths = [len(NodeSet(text)) for text in ended.NodeList]
    assert (np.array(widths) == ended.NNodes).all()
    gpus = ended.AllocTRES.str.extract(r"gres/gpu=(\d+)")[0].astype(int)
    assert (np.maximum(1, gpus // 8) == ended.NNodes).all()


def test_requeued_jobs_keep_their_id_and_start_after_their_last_end(rows: pd.DataFrame) -> None:
    again = rows.JobIDRaw == rows.JobIDRaw.shift()
    ended = pd.to_datetime(rows.End.replace("Unknown", None)).shift()
    assert again.sum() > 1000
    assert (pd.to_datetime(rows.Submit)[again] > ended[again]).all()
    before = set(rows.State.shift()[again])
    assert before == {"PREEMPTED", "REQUEUED", "NODE_FAIL", "FAILED"}


def test_failures_follow_the_hazards(log: tuple[Path, Truth]) -> None:
    _, truth = log
    assert sum(truth.node_failures.values()) == truth.failures
    by_lemons = sum(truth.node_failures.get(node, 0) for node in truth.lemons)
    # 3 of 64 nodes, 15 times the rate: 45 of 106 failures, give or take four standard errors.
    share, error = 45 / 106, (45 / 106 * 61 / 106 / truth.failures) ** 0.5
    assert truth.failures > 100
    assert abs(by_lemons / truth.failures - share) < 4 * error + 0.05  # nodes are not used evenly


def test_failed_attempts_of_broken_nodes_had_a_check(
    log: tuple[Path, Truth], rows: pd.DataFrame
) -> None:
    folder, truth = log
    lines = (folder / "health.jsonl").read_text(encoding="utf-8").splitlines()
    events = pd.DataFrame(map(json.loads, lines))
    assert len(events) == truth.health_events == 3_000
    assert events.time.is_monotonic_increasing
    high = events[events.severity == "HIGH"]
    ends = pd.to_datetime(rows.End.replace("Unknown", None), utc=True)
    failed = rows[rows.State.isin(["FAILED", "NODE_FAIL"])]
    for event in high.itertuples():
        age = (ends[failed.index] - pd.Timestamp(event.time)).dt.total_seconds()
        near = failed.NodeList[(age > 0) & (age <= 301)]
        assert any(event.node in NodeSet(nodes) for nodes in near)


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in "ab":
        write_log(tmp_path / name, 500, 16, 100, seed=3)
    for file in ("sacct.psv", "health.jsonl", "scontrol_nodes.txt"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_nasty_names_break_lines_fields_and_encodings(tmp_path: Path) -> None:
    truth = write_log(tmp_path, 2_000, 16, 100, seed=3, nasty_share=0.05)
    raw = (tmp_path / "sacct.psv").read_bytes()
    assert truth.nasty_names > 50
    assert raw.count(b"\n") > truth.attempts + 1
    with pytest.raises(UnicodeDecodeError):
        raw.decode("utf-8")
    widths = Counter(line.count(b"|") for line in io.BytesIO(raw))
    assert len(widths) > 2
