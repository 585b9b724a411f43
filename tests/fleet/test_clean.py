"""Impossible rows: one reject each, in every format, and no figure but the row's own changes."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from logs import COLUMNS, random_log, stamp

import holdfast.fleet as fleet
from holdfast.errors import InputError
from holdfast.fleet.formats import by_name
from holdfast.fleet.formats.batch import ReadOptions
from holdfast.fleet.store import Store

NASTY = [
    *(
        "",
        "0",
        "-1",
        "3",
        "99999999999",
        "9" * 30,
        "1e400",
        "NaN",
        "²",
        "Unknown",
        "None",
        "a",
        "\x00",
    ),
    *("2000-01-01T00:00:00", "1985-01-01T00:00:00", "2093-01-01T00:00:00", "9999-12-31T23:59:59"),
    *("2026-01-05T01:00:00", "2026-10-05T01:00:00", "1:99999999999", "gres/gpu=99999999999"),
    *("gres/gpu=-8", "cpu=1,gres/gpu=800000", "node[1-999999999]", "n[001", "99999999-00:00:00"),
    *("x|y", "x\ny", "1|2|3|4\n5", "NODE_FAIL", "COMPLETED", "n001,n002"),
]
TEXT = st.one_of(st.sampled_from(NASTY), st.text(max_size=8))

ROWS = """JobID|Submit|Start|End|State|NNodes|NodeList|AllocTRES|ElapsedRaw
1|2026-01-05T00:00:00|2026-01-05T00:00:00|2026-01-05T01:00:00|COMPLETED|1|n1|gres/gpu=8|3600
2|{submit}|{start}|{end}|NODE_FAIL|{nnodes}|n1|{tres}|{elapsed}
"""
GOOD = {
    "submit": "2026-01-05T02:00:00",
    "start": "2026-01-05T02:00:00",
    "end": "2026-01-05T03:00:00",
    "nnodes": "1",
    "tres": "gres/gpu=8",
    "elapsed": "3600",
}
IMPOSSIBLE = [
    {"end": "2000-01-01T00:00:00", "elapsed": ""},
    {"start": "1985-01-01T00:00:00"},
    {"end": "2093-01-01T00:00:00"},
    {"submit": "2093-01-01T00:00:00", "start": "2093-01-01T00:00:00", "end": "2093-01-01T01:00:00"},
    {"submit": "2026-01-06T00:00:00"},
    {"tres": "gres/gpu=99999999999"},
    {"tres": "gres/gpu=1000000"},
    {"submit": "99999999999"},
    {"end": "99999999999"},
    {"end": "2026-01-05T12:00:00", "elapsed": "0"},
    {"elapsed": "-5"},
    {"elapsed": "99999999"},
    {"nnodes": "99999999999"},
    {"nnodes": "0"},
]


@pytest.mark.quick(5)
@pytest.mark.parametrize("damage", IMPOSSIBLE, ids=str)
def test_an_impossible_row_is_one_reject(tmp_path: Path, damage: dict[str, str]) -> None:
    log = tmp_path / "log.psv"
    log.write_text(ROWS.format(**{**GOOD, **damage}))
    result = fleet.ingest([log], tmp_path / "store", max_reject_share=1)
    assert (result.attempts, result.rejected) == (1, 1)
    assert result.time_range == ("2026-01-05T00:00:00Z", "2026-01-05T01:00:00Z")
    opened = fleet.open(tmp_path / "store")
    [reject] = opened.rows(opened.table("rejects"))
    assert (reject["source"], reject["line"]) == (str(log), 3)
    assert fleet.status(tmp_path / "store").gpu_hours == 8


def figures(store: Path) -> None:
    """Every figure of a store is a finite number, zero or more."""
    log = fleet.open(store)
    state, goodput = fleet.status(log), fleet.goodput(log)
    values = [
        *state.table["gpu_hours"].to_pylist(),
        *state.table["share_by_gpu_time"].to_pylist(),
        state.gpu_hours,
    ]
    values += [goodput.total_gpu_hours, goodput.lost_first_order, goodput.lost_second_order]
    values += [row["node_days"] for row in fleet.lemons(log).nodes.to_pylist()]
    values += [fleet.mttf(log, min_gpus=0).model.rate_per_1000_node_days_]
    assert all(math.isfinite(value) and value >= 0 for value in values)


def stored(store: Path, without: str) -> list[dict[str, Any]]:
    rows = [
        row
        for file in Store.open(store).files("attempts")
        for row in pq.read_table(file).to_pylist()
    ]
    kept = [row for row in rows if without not in (row["job_id"], str(row["job_id_raw"]))]
    return sorted(kept, key=lambda row: (row["key"], row["attempt"]))


SMALL = random_log(5, jobs=25)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return SMALL.store(tmp_path_factory.mktemp("base"))


@st.composite
def damaged(draw: st.DrawFn) -> tuple[int, str, str]:
    return (
        draw(st.integers(0, len(SMALL.attempts) - 1)),
        draw(st.sampled_from(COLUMNS)),
        draw(TEXT),
    )


def check_damage(
    base: Path, tmp_path_factory: pytest.TempPathFactory, damage: tuple[int, str, str]
) -> Path:
    row, column, text = damage
    folder = tmp_path_factory.mktemp("damaged")
    files = SMALL.write(folder / "logs")
    rows = [each.fields() for each in SMALL.attempts]
    job = SMALL.attempts[row].job
    rows[row][column] = text
    lines = ["|".join(COLUMNS), *("|".join(each[name] for name in COLUMNS) for each in rows)]
    files[0].write_text("\n".join(lines) + "\n", newline="", errors="replace")
    try:
        fleet.ingest(files, folder / "store", max_reject_share=1)
    except InputError as error:  # a second cluster: the checks do not say of which they are
        if (column, error.code) != ("Cluster", "unknown-cluster"):
            raise
        return base
    taken = {str(each.job) for each in SMALL.attempts} - {str(job)}
    if column not in ("JobID", "JobIDRaw") or text not in taken:  # else two jobs are one
        own = rows[row][column] if column in ("JobID", "JobIDRaw") else str(job)
        found = [each for each in stored(folder / "store", str(job)) if each["job_id"] != own]
        assert found == stored(base, str(job))
    return folder / "store"


@pytest.mark.examples(3)
@settings(max_examples=6)
@given(damage=damaged())
def test_a_damaged_field_changes_its_own_row_only(
    base: Path, tmp_path_factory: pytest.TempPathFactory, damage: tuple[int, str, str]
) -> None:
    assert fleet.status(check_damage(base, tmp_path_factory, damage)).gpu_hours >= 0


@pytest.mark.full
@settings(max_examples=200)
@given(damage=damaged())
def test_any_damaged_field_changes_its_own_row_only(
    base: Path, tmp_path_factory: pytest.TempPathFactory, damage: tuple[int, str, str]
) -> None:
    figures(check_damage(base, tmp_path_factory, damage))


@pytest.mark.quick(6)
@pytest.mark.parametrize("text", ["", "²", "x|y"])
@pytest.mark.parametrize("column", ["JobID", "State"])
@pytest.mark.parametrize("row", [0, 40, len(SMALL.attempts) - 1])
def test_a_row_without_its_job_number_or_state_is_one_reject(
    base: Path, tmp_path_factory: pytest.TempPathFactory, row: int, column: str, text: str
) -> None:
    found = Store.open(check_damage(base, tmp_path_factory, (row, column, text)))
    (reject,) = pq.read_table(found.files("rejects")).to_pylist()
    assert reject["line"] == row + 2


def job(number: int) -> dict[str, Any]:
    """A job as `sacct --json` of Slurm 23.11 has it."""
    time = {
        "submission": 1_767_571_200,
        "start": 1_767_571_200,
        "end": 1_767_574_800,
        "elapsed": 3600,
    }
    tres = [{"type": "gres", "name": "gpu", "count": 8}, {"type": "node", "name": "", "count": 1}]
    return {
        "job_id": number,
        "name": "train",
        "user": "u",
        "cluster": "c",
        "nodes": "n1",
        "time": time,
        "state": {"current": ["COMPLETED"], "reason": "None"},
        "tres": {"allocated": tres, "requested": tres},
        "array": {"job_id": 0},
        "qos": "normal",
        "exit_code": {"return_code": {"set": True, "number": 0}},
        "association": {"user": "u"},
        "steps": [{"time": {"start": 1_767_571_200, "end": 1_767_574_800}, "state": ["COMPLETED"]}],
    }


def check(number: int) -> dict[str, Any]:
    return {"time": "2026-01-05T00:00:00Z", "node": f"n{number}", "check": "nvlink", "message": "m"}


def kubernetes_node(number: int) -> dict[str, Any]:
    stamp = "2026-01-05T00:00:00Z"
    condition = {"type": "DiskPressure", "status": "True", "lastTransitionTime": stamp}
    status = {"capacity": {"cpu": "8", "nvidia.com/gpu": "8"}, "conditions": [condition]}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": f"n{number}"},
        "status": status,
    }


RECORDS = {
    "sacct-json": job,
    "health-jsonl": check,
    "kubernetes": kubernetes_node,
}
VALUES = st.one_of(
    TEXT, st.integers(), st.floats(), st.none(), st.booleans(), st.lists(TEXT), st.just({"a": {}})
)


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths to every value inside nested dictionaries and lists, inner nodes included."""
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    found = []
    for key, item in inner:
        found.append((*path, key))
        if isinstance(item, dict | list):
            found += leaves(item, (*path, key))
    return found


@pytest.mark.examples(8)
@pytest.mark.parametrize("name", RECORDS)
@settings(max_examples=30)
@given(data=st.data())
def test_a_damaged_record_is_no_crash_and_leaves_the_others(
    name: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    records = [RECORDS[name](number) for number in (1, 2, 3)]
    whole = read(name, records, tmp_path_factory)
    *path, last = data.draw(st.sampled_from(leaves(records[1])))
    holder = records[1]
    for key in path:
        holder = holder[key]
    holder[last] = data.draw(VALUES)
    found = read(name, records, tmp_path_factory)
    missing = [row for row in whole if row not in found]
    assert len(missing) <= 1


def read(name: str, records: list[Any], folders: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Attempts or health events of a file with the records."""
    file = folders.getbasetemp() / f"{name}.log"
    lines = "\n".join(map(json.dumps, records))
    text = json.dumps({"jobs": records}) if name == "sacct-json" else lines
    file.write_text(text, errors="replace")
    rows = []
    for batch in by_name(name).batches(file, ReadOptions()):
        for key in {"attempts", "health"} & batch.tables.keys():
            rows += batch.tables[key].to_pylist()
    return rows


BINARY = {
    "random": bytes((i * 7919 + i * i * 31) % 256 for i in range(4000)),
    "carriage return": b"a|b\rc|d\n1|2\n",
    "zeros": bytes(4000),
    "utf-16": "a|b\n1|2\n".encode("utf-16"),
    "deep": b"[" * 60_000,
}


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", BINARY)
def test_a_binary_file_is_named_in_a_folder_and_refused_alone(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "log.psv").write_text(ROWS.format(**GOOD))
    (folder / "strange.bin").write_bytes(BINARY[name])
    result = fleet.ingest([folder], tmp_path / "store")
    assert result.not_recognised == [str(folder / "strange.bin")]
    assert result.attempts == 2
    with pytest.raises(InputError) as error:
        fleet.ingest([folder / "strange.bin"], tmp_path / "other")
    assert (error.value.code, error.value.exit_code) == ("unknown-format", 2)


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "xz": lzma.compress,
    "bz2": bz2.compress,
    "zst": lambda data: pa.compress(data, codec="zstd", asbytes=True),
}
SOURCES = {
    "psv": "\n".join(
        [ROWS.split("\n")[0]]
        + [
            f"{i}|2026-01-05T00:00:00|2026-01-05T00:00:00|2026-01-05T01:00:00|COMPLETED|1|n1|gres/gpu=8|3600"
            for i in range(10_000)
        ]
    ),
    "csv": "time,node,check,message\n"
    + "".join(f"2026-01-05T00:00:00Z,n{i},nvlink,m{i}\n" for i in range(20_000)),
    "jsonl": "".join(json.dumps(check(i)) + "\n" for i in range(10_000)),
    "json": json.dumps({"jobs": [job(i) for i in range(2_000)]}),
}


@pytest.mark.quick(5)
@pytest.mark.parametrize(
    ("packer", "where"),
    # Zstandard as Arrow writes it has no checksum: only an end that is missing shows.
    [
        pytest.param(
            p, w, marks=[] if w == ("cut" if p == "zst" else "middle") else pytest.mark.full
        )
        for p in PACKERS
        for w in ("head", "middle", "cut")
        if p != "zst" or w == "cut"
    ],
)
@pytest.mark.parametrize("kind", SOURCES)
def test_a_damaged_archive_is_set_aside_in_a_folder_and_refused_alone(
    tmp_path: Path, kind: str, packer: str, where: str
) -> None:
    data = bytearray(PACKERS[packer](SOURCES[kind].encode()))
    at = {"head": 40, "middle": len(data) // 2, "cut": 0}[where]
    if at:
        data[at : at + 8] = bytes(255 - each for each in data[at : at + 8])
    folder = tmp_path / "logs"
    folder.mkdir()
    bad, good = folder / f"a.{kind}.{packer}", folder / "good.psv"
    bad.write_bytes(data[:-50] if where == "cut" else data)
    good.write_text(ROWS.format(**GOOD))
    with pytest.raises(InputError) as error:
        fleet.ingest([bad], tmp_path / "alone")
    # Rubbish may show as broken JSON before a checksum does.
    assert error.value.code in ("unreadable", "invalid-syntax" if kind == "json" else "")
    assert error.value.path == str(bad)
    assert not (tmp_path / "alone" / "store.json").exists()
    for _ in range(2):  # again: what is good is known, what is damaged is named again
        found = fleet.ingest([folder], tmp_path / "store")
        assert (found.attempts, found.health_events) == (2, 0)
        assert [text.split(": ")[0] for text in found.unreadable] == [str(bad)]
    good.unlink()
    with pytest.raises(InputError) as error:
        fleet.ingest([folder], tmp_path / "other")
    assert error.value.path == str(bad)


def test_merged_outages_are_counted(tmp_path: Path) -> None:
    rows = [("n1", 0), ("n1", 0), ("n2", 0), ("n1", 600), ("n1", 600), ("n1", 600)]
    text = "node,start,end,cause\n" + "".join(
        f"{node},{stamp(at)},{stamp(at + 60)},disk\n" for node, at in rows
    )
    (tmp_path / "a.csv").write_text(text)
    found = fleet.ingest([tmp_path / "a.csv"], tmp_path / "store")
    assert (found.node_outages, found.to_dict()["node_outages_merged"]) == (3, 3)
    (tmp_path / "b.csv").write_text(text + f"n9,{stamp(0)},{stamp(9)},disk\n")
    found = fleet.ingest([tmp_path / "b.csv"], tmp_path / "store")
    assert (found.node_outages, found.node_outages_merged) == (4, 6)
    found = fleet.ingest([tmp_path / "b.csv"], tmp_path / "store")
    assert (found.node_outages, found.node_outages_merged) == (4, 0)


def test_a_log_in_utf_16(tmp_path: Path) -> None:
    (tmp_path / "log.psv").write_text(ROWS.format(**GOOD), encoding="utf-16")
    assert fleet.ingest([tmp_path / "log.psv"], tmp_path / "store").attempts == 2


def test_json_without_jobs(tmp_path: Path) -> None:
    (tmp_path / "log.json").write_text('{"jobs": [], "meta": {"slurm": {}}, "errors": []}')
    assert fleet.ingest([tmp_path / "log.json"], tmp_path / "store").attempts == 0
