from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from reading import read, rejected, rows

from holdfast.errors import InputError
from holdfast.fleet.formats.batch import ReadOptions
from holdfast.fleet.formats.tabular import MAPPED, load_map

MAP = """
table = "attempts"
delimiter = ";"
[columns]
job_id = "Job"
state = "Status"
submit_s = "Queued"
start_s = "Started"
end_s = "Ended"
nodes = "Hosts"
gpus = "GPUs"
time_limit_s = "Limit"
[values.state]
"Failed (node)" = "NODE_FAIL"
[time]
format = "%d.%m.%Y %H:%M"
zone = "Europe/Berlin"
"""
TEN = 1782900000  # 2026-07-01 12:00 in Berlin


def options(tmp_path: Path, text: str) -> ReadOptions:
    path = tmp_path / "map.toml"
    path.write_text(text)
    return ReadOptions(column_map=path)


def test_a_foreign_csv(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text(
        "Job;Status;Queued;Started;Ended;Hosts;GPUs;Limit;Other\n"
        "7;Failed (node);01.07.2026 11:00;01.07.2026 12:00;01.07.2026 12:30;n[1-2];16;1-00:00:00;x\n"
        "a8;completed;01.07.2026 12:00;;;;gres/gpu=8;3600;y\n"
        "9;weird;01.07.2026 12:00;;;;1;1;\n"
        "10;COMPLETED;someday;;;;1;1;\n"
        "11;COMPLETED\n"
    )
    tables = read(MAPPED, path, options(tmp_path, MAP))
    columns = [
        "job_id",
        "state",
        "submit_s",
        "start_s",
        "end_s",
        "runtime_s",
        "nodes",
        "node_count",
        "gpus",
        "time_limit_s",
    ]
    assert rows(tables["attempts"], *columns) == [
        ("7", "NODE_FAIL", TEN - 3600, TEN, TEN + 1800, 1800, ["n1", "n2"], 2, 16, 86400),
        ("a8", "COMPLETED", TEN, None, None, None, [], 0, 8, 3600),
    ]
    assert tables["attempts"].column("job_id_raw")[0].as_py() == 7
    assert rejected(tables) == [
        (4, "unknown state weird"),
        (5, "no submit_s that can be read"),
        (6, "another number of fields than the header"),
    ]


def test_parquet_with_its_own_types(tmp_path: Path) -> None:
    path = tmp_path / "jobs.parquet"
    table = pa.table(
        {
            "id": pa.array([1, 2], pa.int64()),
            "state": ["COMPLETED", "nonsense"],
            "t0": pa.array([TEN, TEN], pa.timestamp("s", "UTC")),
            "t1": pa.array([TEN * 1000 + 5, TEN * 1000], pa.int64()),
            "hosts": pa.array([["n1", "n2"], []]),
        }
    )
    pq.write_table(table, path)
    text = """
        [columns]
        job_id = "id"
        state = "state"
        start_s = "t0"
        end_s = "t1"
        nodes = "hosts"
    """
    tables = read(MAPPED, path, options(tmp_path, text))
    assert rows(tables["attempts"], "job_id", "submit_s", "start_s", "end_s", "nodes") == [
        ("1", TEN, TEN, TEN, ["n1", "n2"])
    ]
    assert rejected(tables) == [(2, "unknown state nonsense")]


def test_health_and_outages(tmp_path: Path) -> None:
    path = tmp_path / "x.tsv"
    path.write_text("when\twhere\twhat\n2026-07-01T10:00:00Z\tn1\txid 79\n")
    text = '[columns]\n{0} = "when"\nnode = "where"\n{1} = "what"\n'
    health = 'table = "health"\n' + text.format("time_s", "check")
    found = read(MAPPED, path, options(tmp_path, health))["health"]
    assert rows(found, "time_s", "node", "check", "xid") == [(TEN, "n1", "xid 79", 79)]
    outages = 'table = "node_outages"\n' + text.format("start_s", "cause")
    found = read(MAPPED, path, options(tmp_path, outages))["node_outages"]
    assert rows(found, "start_s", "node", "state", "cause") == [(TEN, "n1", "FAILURE", "xid 79")]


def test_names_formats_and_defaults_of_a_map(tmp_path: Path) -> None:
    path = tmp_path / "outages.csv"
    path.write_text(
        "Host,From,Till,Why\n"
        "n1,01.07.2026 10:00,2026-07-01T11:00:00Z,worn\n"
        "n2,01.07.26 10:00,,x\n"  # the year 26
        "n3,01.07.2026 10:00,soon,\n"
        ",01.07.2026 10:00,,\n"
    )
    text = """
        table = "node_outages"
        skip_without = "node"
        columns = {node = ["Node", "Host"], start_s = "From", end_s = "Till", cause = "Why"}
        defaults = {cluster = "a"}
        time = {format = ["iso", "%d.%m.%Y %H:%M"]}
    """
    tables = read(MAPPED, path, options(tmp_path, text))
    assert rows(tables["node_outages"], "cluster", "node", "start_s", "end_s", "cause") == [
        ("a", "n1", TEN, TEN + 3600, "worn")
    ]
    assert rejected(tables) == [
        (3, "no start time that can be read"),
        (4, "no end time that can be read"),
    ]


@pytest.mark.parametrize("origin", ["2023-01-01T00:00:00Z", "2023-01-01T08:00:00+08:00"])
def test_times_since_the_start_of_a_trace(tmp_path: Path, origin: str) -> None:
    """The columns of Alibaba's trace of 2023."""
    text = "table = 'attempts'\n[columns]\njob_id = 'name'\nstate = 'pod_phase'\n"
    text += "submit_s = 'creation_time'\nstart_s = 'scheduled_time'\nend_s = 'deletion_time'\n"
    told = options(tmp_path, f"{text}[time]\norigin = {origin}\n")
    names = ["name", "pod_phase", "creation_time", "scheduled_time", "deletion_time"]
    columns = [["a", "b", "c"], ["COMPLETED", "FAILED", "FAILED"], [0, 12, None], [9437497, 13, 1]]
    table = pa.table([*columns, [9437500.0, None, 2.0]], names=names)
    pq.write_table(table, tmp_path / "pods.parquet")
    lines = ["name,pod_phase,creation_time,scheduled_time,deletion_time"]
    lines += ["a,COMPLETED,0,9437497,9437500.0", "b,FAILED,12,13,", "c,FAILED,x,1,2"]
    (tmp_path / "pods.csv").write_text("\n".join(lines))
    begin = 1672531200
    for path in (tmp_path / "pods.parquet", tmp_path / "pods.csv"):
        tables = read(MAPPED, path, told)
        assert rows(tables["attempts"], "submit_s", "start_s", "end_s") == [
            (begin, begin + 9437497, begin + 9437500),
            (begin + 12, begin + 13, None),
        ]
        assert [line for line, _ in rejected(tables)] == [3 + (path.suffix == ".csv")]


@pytest.mark.parametrize(
    ("text", "place", "code"),
    [
        ("table = 'jobs'", "table", "unknown-name"),
        ("other = 1", "other", "unknown-key"),
        ("[columns]\nstate = 'a'", "columns.job_id", "invalid-value"),
        ("[columns]\njob = 'a'", "columns.job", "unknown-key"),
        ("[columns]\njob_id = 3", "columns.job_id", "invalid-value"),
        (
            "[columns]\nstate='b'\nstart_s='c'\njob_id='a'\n[values.node]\na='b'",
            "values.node",
            "invalid-value",
        ),
        (
            "[columns]\nstate='b'\nstart_s='c'\njob_id='a'\n[time]\nzone='Mars'",
            "time.zone",
            "invalid-value",
        ),
        (
            "[columns]\nstate='b'\nstart_s='c'\njob_id='a'\n[time]\nunit='s'",
            "time.unit",
            "unknown-key",
        ),
        (
            "[columns]\nstate='b'\nstart_s='c'\nend_s='d'\njob_id='a'\n[time]\norigin='soon'",
            "time.origin",
            "invalid-value",
        ),
        ("not toml", None, "invalid-syntax"),
    ],
)
def test_what_a_map_may_not_say(tmp_path: Path, text: str, place: str | None, code: str) -> None:
    path = tmp_path / "map.toml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        load_map(path)
    assert (caught.value.code, caught.value.place) == (code, place)
    assert caught.value.path == str(path)


def test_a_column_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("Job;Status;When\n")
    with pytest.raises(InputError) as caught:
        read(MAPPED, path, options(tmp_path, MAP))
    assert "found: Job, Status, When" in str(caught.value)
    assert "columns.start_s" in str(caught.value)


def test_no_map(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("a;b\n")
    with pytest.raises(InputError, match="--map"):
        read(MAPPED, path)


@pytest.mark.parametrize(
    ("job", "gpus", "reason"),
    [
        ("7.0", "16.0", None),
        ("7", " 16 ", None),
        ("7", "16.", None),
        ("7.0", "gres/gpu=16", None),
        ("7", "16.5", "no gpus that can be read"),
        ("7", "2 x 8", "no gpus that can be read"),
        ("7", "1e1", "no gpus that can be read"),
        ("7", "sixteen", "no gpus that can be read"),
    ],
)
def test_whole_numbers_in_other_clothes(
    job: str, gpus: str, reason: str | None, tmp_path: Path
) -> None:
    """As pandas writes an integer column as soon as one row has none."""
    path = tmp_path / "jobs.csv"
    path.write_text(
        "Job;Status;Queued;Started;Ended;Hosts;GPUs;Limit\n"
        f"{job};COMPLETED;01.07.2026 11:00;01.07.2026 12:00;01.07.2026 12:30;n[1-2];{gpus};\n"
        ";COMPLETED;01.07.2026 11:00;01.07.2026 12:00;01.07.2026 12:30;n[1-2];;\n"
    )
    tables = read(MAPPED, path, options(tmp_path, MAP))
    found = rows(tables["attempts"], "job_id", "job_id_raw", "gpus")
    assert found == ([] if reason else [("7", 7, 16)])
    assert [each for _, each in rejected(tables)][:1] == [reason or "no job_id that can be read"]


def test_ids_of_steps_stay(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    line = "COMPLETED;01.07.2026 11:00;01.07.2026 12:00;01.07.2026 12:30;n[1-2];8;\n"
    path.write_text(f"Job;Status;Queued;Started;Ended;Hosts;GPUs;Limit\n7.0;{line}7.1;{line}")
    tables = read(MAPPED, path, options(tmp_path, MAP))
    assert rows(tables["attempts"], "job_id") == [("7.0",), ("7.1",)]


@pytest.mark.parametrize("nothing", ["", "nan", "NaN", "N/A"])
def test_no_count_is_no_reject(nothing: str, tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text(
        "Job;Status;Queued;Started;Ended;Hosts;GPUs;Limit\n"
        f"7;COMPLETED;01.07.2026 11:00;01.07.2026 12:00;01.07.2026 12:30;n[1-2];{nothing};\n"
    )
    tables = read(MAPPED, path, options(tmp_path, MAP))
    assert (rows(tables["attempts"], "job_id", "gpus"), rejected(tables)) == ([("7", None)], [])
