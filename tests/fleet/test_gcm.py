from __future__ import annotations

import json
from pathlib import Path

import pytest
from reading import read, rejected, rows

from holdfast.fleet.formats.monitors import GCM

RECORD = {
    "node": "n1",
    "gpu_node_id": None,
    "cluster": "c",
    "derived_cluster": "c",
    "health_check": "check dcgmi nvlink error",
    "type": "prolog",
    "result": 2,
    "_msg": "replay errors on link 4",
    "job_id": 7,
    "start_time": 1782907199.5,
    "end_time": 1782907200.25,
}


def nested(record: dict[str, object]) -> dict[str, object]:
    sections: dict[str, dict[str, object]] = {"int": {}, "normal": {}, "double": {}}
    for key, value in record.items():
        kind = (
            "double" if isinstance(value, float) else "int" if isinstance(value, int) else "normal"
        )
        sections[kind][key] = value
    return dict(sections)


def otlp(record: dict[str, object]) -> dict[str, object]:
    def value(item: object) -> dict[str, object]:
        if isinstance(item, float):
            return {"doubleValue": item}
        return {"intValue": str(item)} if isinstance(item, int) else {"stringValue": item}

    attributes = [{"key": k, "value": value(v)} for k, v in record.items() if v is not None]
    return {"resourceLogs": [{"scopeLogs": [{"logRecords": [{"attributes": attributes}] * 2}]}]}


@pytest.mark.parametrize(
    ("lines", "count"),
    [
        ([RECORD, RECORD], 2),
        ([nested(RECORD), nested(RECORD)], 2),
        ([[RECORD, RECORD], [RECORD]], 3),
        ([otlp(RECORD)], 2),
    ],
    ids=["flat", "nested", "stdout", "otlp"],
)
def test_every_shape(tmp_path: Path, lines: list[object], count: int) -> None:
    path = tmp_path / "checks.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    tables = read(GCM, path)
    assert rejected(tables) == []
    assert (
        rows(tables["health"], "time_s", "node", "check", "severity", "result", "message")
        == [
            (
                1782907200.25,
                "n1",
                "check dcgmi nvlink error",
                "",
                "fail",
                "replay errors on link 4",
            )
        ]
        * count
    )


@pytest.mark.parametrize(("code", "result"), [(0, "ok"), (1, "warn"), (2, "fail"), (3, "warn")])
def test_exit_codes(tmp_path: Path, code: int, result: str) -> None:
    path = tmp_path / "checks.jsonl"
    path.write_text(json.dumps({**RECORD, "result": code}) + "\n")
    assert rows(read(GCM, path)["health"], "result") == [(result,)]


@pytest.mark.parametrize("wrap", [lambda record: record, lambda record: [record]])
def test_bad_lines(tmp_path: Path, wrap: object) -> None:
    path = tmp_path / "checks.jsonl"
    good = json.dumps(wrap(RECORD))  # type: ignore[operator]
    nameless = json.dumps(wrap({**RECORD, "node": None}))  # type: ignore[operator]
    path.write_text(f"{good}\n{nameless}\n{good[:40]}\n7\n")
    tables = read(GCM, path)
    assert tables["health"].num_rows == 1
    assert [line for line, _ in rejected(tables)] == [2, 3, 4]
    assert rejected(tables)[0] == (2, "no node")
