from __future__ import annotations

import json
from pathlib import Path

import pytest
from reading import read, rejected, rows

from holdfast.errors import InputError
from holdfast.fleet.formats.batch import ReadOptions
from holdfast.fleet.formats.monitors import PROMETHEUS

BASE = 1_767_571_200


def write(path: Path, *series: object, kind: str = "matrix") -> Path:
    path.write_text(
        json.dumps({"status": "success", "data": {"resultType": kind, "result": series}})
    )
    return path


def test_xids_and_up(tmp_path: Path) -> None:
    xids = {
        "metric": {
            "__name__": "DCGM_FI_DEV_XID_ERRORS",
            "gpu": "3",
            "Hostname": "n1",
            "instance": "x:9400",
        },
        "values": [
            [BASE + 100, "31"],
            [BASE + 160, "31"],
            [BASE + 220, "79"],
            [BASE + 280, "79"],
            [BASE + 340, "0"],
            [BASE + 400, "48"],
        ],
    }
    up = {
        "metric": {"__name__": "up", "job": "node", "instance": "n2:9100"},
        "values": [
            [BASE + 100, "0"],
            [BASE + 160, "1"],
            [BASE + 220, "0"],
            [BASE + 280, "0"],
            [BASE + 340, "1"],
        ],
    }
    tables = read(PROMETHEUS, write(tmp_path / "q.json", xids, up))
    assert rows(tables["health"], "time_s", "node", "check", "xid", "message") == [
        (BASE + 220.0, "n1", "xid 79", 79, "gpu 3"),
        (BASE + 400.0, "n1", "xid 48", 48, "gpu 3"),
        (BASE + 220.0, "n2", "up node", None, "scrape failed"),
    ]
    assert rejected(tables) == []


def test_series_that_cannot_be_used(tmp_path: Path) -> None:
    tables = read(
        PROMETHEUS,
        write(
            tmp_path / "q.json",
            {"metric": {"__name__": "up"}, "values": []},
            {"metric": {"__name__": "node_load1", "instance": "a"}, "values": []},
            {"metric": {"__name__": "up", "instance": "a"}, "values": [[1]]},
        ),
    )
    assert tables["health"].num_rows == 0
    assert [reason.partition(": ")[0] for _, reason in rejected(tables)] == [
        "series 1",
        "series 2",
        "series 3",
    ]


@pytest.mark.parametrize(
    "text", ["{", '{"data": 3}', '{"data": {"resultType": "vector", "result": []}}']
)
def test_another_answer(tmp_path: Path, text: str) -> None:
    path = tmp_path / "q.json"
    path.write_text(text)
    with pytest.raises(InputError, match="range query"):
        list(PROMETHEUS.read(path, ReadOptions()))
