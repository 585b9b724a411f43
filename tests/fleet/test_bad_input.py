"""What is wrong with the input is said clearly, and a store is whole or not there."""

from __future__ import annotations

import errno
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from logs import COLUMNS, Attempt, Log, Outage, names

import holdfast.fleet as fleet
from holdfast import cli
from holdfast.errors import HoldfastError, InputError, StoreError
from holdfast.fleet import store as store_module
from holdfast.fleet.schema import STORE_VERSION
from holdfast.fleet.simulation.simulated_log import simulate

LOG = Log([Attempt(1, ("n1",), 0, 1000, "NODE_FAIL"), Attempt(1, ("n1",), 1001, 2000)])


def ended(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[Any, str, str]:
    with pytest.raises(SystemExit) as stop:
        cli.main(["fleet", *map(str, arguments)])
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    return stop.value.code, captured.out, captured.err


def numbers_of(value: Any) -> Iterator[float]:
    if isinstance(value, dict):
        for part in value.values():
            yield from numbers_of(part)
    elif isinstance(value, list):
        for part in value:
            yield from numbers_of(part)
    elif isinstance(value, float):
        yield value


STRANGERS = {
    "a picture": b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 40,
    "prose": b"Dear operator,\nthe cluster is slow today.\nYours, a user\n",
    "nothing": b"",
    "a blank line": b"\n",
    "somebody else's CSV": b"a,b,c\n1,2,3\n",
    "JSON of something else": b'{"hello": ["world"]}\n',
    "zeros": bytes(100_000),
}


@pytest.mark.parametrize("kind", STRANGERS)
def test_a_file_that_is_no_log(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "log.txt"
    path.write_bytes(STRANGERS[kind])
    code, out, err = ended(capsys, "ingest", path, "-o", tmp_path / "store")
    assert (code, out) == (2, "")
    assert str(path) in err
    assert not (tmp_path / "store" / "store.json").exists()


def reported(capsys: pytest.CaptureFixture[str], store: Path, *options: object) -> Any:
    """The JSON of the whole report, which holds every analysis, and the page is written."""
    page = store.parent / "report.html"
    code, out, err = ended(capsys, "report", store, "--json", "--html", page, *options)
    assert (code, err) == (0, "")
    assert page.read_text().rstrip().endswith("</html>")
    found = json.loads(out, parse_constant=pytest.fail)
    assert all(map(math.isfinite, numbers_of(found)))
    return found


def test_a_log_with_a_header_only(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Nothing ran in the time asked for: no error, and sentences instead of numbers."""
    path = tmp_path / "sacct.txt"
    path.write_text("|".join(COLUMNS) + "\n")
    assert ended(capsys, "ingest", path, "-o", tmp_path / "store")[0] == 0
    found = reported(capsys, tmp_path / "store")
    assert "No attempt" in found["findings"][0]
    assert found["mttf"] is None
    code, _, err = ended(capsys, "mttf", tmp_path / "store", "--min-gpus", "0")
    assert code == 2
    assert "no attempt" in err


def test_a_log_without_failures(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    store = Log([Attempt(j, names(20), 1000 * j, 1000 * j + 900) for j in range(30)]).store(
        tmp_path
    )
    found = reported(capsys, store)
    assert found["mttf"]["rate_per_1000_node_days"] == 0
    assert found["mttf"]["ci95"][0] == 0 < found["mttf"]["ci95"][1]
    assert found["mttf"]["mttf_node_days"] is None
    assert found["goodput"]["lost_first_order"] == found["goodput"]["lost_second_order"] == 0
    text = " ".join(found["findings"])
    assert "no infrastructure failure" in text
    assert "inf" not in text.replace("infrastructure", "")


def test_a_log_without_gpus_or_nodes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Some sites print four columns only."""
    store = LOG.store(tmp_path, ["JobID", "State", "Start", "End"])
    found = reported(capsys, store)
    assert found["goodput"]["failures"] == 1
    assert found["mttf"] is None
    code, _, err = ended(capsys, "mttf", store, "--min-gpus", "0")
    assert code == 2
    assert "no node-days" in err


def test_a_log_of_events_only(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Node outages of Slurm without any attempt."""
    store = Log(outages=[Outage("n1", 0, 500), Outage("n2", 3000, None)]).store(tmp_path)
    assert reported(capsys, store)["status"]["attempts"] == 0


def test_a_log_without_duplicates_says_so_first(
    capsys: pytest.CaptureFixture[str], testbed: Path, tmp_path: Path
) -> None:
    source = testbed / "sacct_all.psv.gz"
    code, out, _ = ended(capsys, "ingest", source, "-o", tmp_path / "store")
    assert code == 0
    assert "WARNING: this log was written without `sacct -D`" in " ".join(out.split())
    code, out, _ = ended(capsys, "report", tmp_path / "store", "--min-gpus", "0")
    assert code == 0
    first = " ".join(out.split(" 2. ")[0].split())
    assert "sacct --duplicates" in first.replace("`", "")
    assert "too low" in first


def damaged(folder: Path, how: str) -> Path:
    """A store with something wrong."""
    path = LOG.store(folder)
    manifest = path / "store.json"
    text = manifest.read_text()
    facts = json.loads(text)
    part = path / facts["tables"]["attempts"][0]
    match how:
        case "cut off":
            manifest.write_text(text[: len(text) // 2])
        case "empty":
            manifest.write_text("")
        case "not an object":
            manifest.write_text("[]")
        case "no tables":
            manifest.write_text(json.dumps({"version": STORE_VERSION}))
        case "newer":
            manifest.write_text(json.dumps({**facts, "version": STORE_VERSION + 1}))
        case "a file is missing":
            part.unlink()
        case "a file is cut off":
            part.write_bytes(part.read_bytes()[:100])
        case _:
            raise ValueError(how)
    return path


DAMAGES = {
    "cut off": "damaged",
    "empty": "damaged",
    "not an object": "damaged",
    "no tables": "damaged",
    "newer": "newer-version",
    "a file is missing": "damaged",
    "a file is cut off": "damaged",
}


@pytest.mark.quick(3)
@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_store(capsys: pytest.CaptureFixture[str], tmp_path: Path, how: str) -> None:
    path = damaged(tmp_path, how)
    for command in ("status", "report"):
        code, out, err = ended(capsys, command, path)
        assert (code, out) == (2, ""), command
        assert str(path) in err
    with pytest.raises(StoreError) as error:
        fleet.report(path)
    assert error.value.code == DAMAGES[how]


def test_stores_that_are_no_place_to_write_to(tmp_path: Path) -> None:
    sources = LOG.write(tmp_path / "logs")
    (tmp_path / "file").write_text("")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("")
    simulate("small", tmp_path / "simulated", days=1)
    codes = {"file": "output-exists", "full": "output-exists", "simulated": "conflict"}
    for name, code in codes.items():
        with pytest.raises(StoreError) as error:
            fleet.ingest(sources, tmp_path / name)
        assert error.value.code == code
    for name in ("nowhere", "full"):
        with pytest.raises(StoreError) as error:
            fleet.status(tmp_path / name)
        assert error.value.code == "not-found"


@pytest.mark.parametrize("how", ["cut off", "newer"])
def test_a_damaged_store_is_not_written_over(tmp_path: Path, how: str) -> None:
    path = damaged(tmp_path, how)
    before = (path / "store.json").read_bytes()
    with pytest.raises(StoreError):
        fleet.ingest([tmp_path / "logs" / "sacct.psv"], path)
    assert (path / "store.json").read_bytes() == before


class FullDisk:
    """Stands for a call that works `left` times, and then the disk is full."""

    def __init__(self, real: Any, left: int) -> None:
        self.real, self.left = real, left

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        if self.left == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.left -= 1
        return self.real(*arguments, **named)


@pytest.mark.quick(1)
@pytest.mark.parametrize(("what", "left"), [("parquet", 0), ("parquet", 1), ("manifest", 0)])
def test_a_full_disk_leaves_the_store_as_it_was(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, what: str, left: int
) -> None:
    path = LOG.store(tmp_path / "one")
    before = fleet.status(path).to_dict()
    manifest = (path / "store.json").read_bytes()
    more = Log([Attempt(7, ("n2",), 5000, 6000)]).write(tmp_path / "two")
    with monkeypatch.context() as patch:
        if what == "parquet":
            full = FullDisk(pq.ParquetWriter.write_table, left)
            patch.setattr(pq.ParquetWriter, "write_table", lambda *a, **k: full(*a, **k))
        else:
            patch.setattr(store_module, "atomic_file", FullDisk(None, 0))
        with pytest.raises(StoreError) as told:
            fleet.ingest(more, path)
        assert told.value.code == "unwritable"
    assert "No space left on device" in str(told.value)
    assert (path / "store.json").read_bytes() == manifest
    assert fleet.status(path).to_dict() == before
    # With room again the same call does it.
    assert fleet.ingest(more, path).attempts == 3
    assert fleet.status(path).attempts == 3


def test_a_full_disk_in_a_new_store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    sources = LOG.write(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(store_module, "atomic_file", FullDisk(None, 0))
        with pytest.raises(StoreError, match="No space left"):
            fleet.ingest(sources, tmp_path / "store")
    assert not (tmp_path / "store" / "store.json").exists()
    with pytest.raises(StoreError, match="is not a fleet store"):
        fleet.open(tmp_path / "store")
    assert fleet.ingest(sources, tmp_path / "store").attempts == 2


def test_a_window_after_the_end(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    store = LOG.store(tmp_path)
    found = reported(capsys, store, "--since", "2099-01-01")
    assert found["status"]["attempts"] == found["goodput"]["failures"] == 0
    code, _, err = ended(capsys, "mttf", store, "--since", "2099-01-01", "--min-gpus", "0")
    assert code == 2
    assert "--since" in err


def test_assumptions_that_make_no_sense() -> None:
    for name in ("check_before_s", "preemption_slack_s", "min_gpus", "lemon_window_s"):
        with pytest.raises(InputError, match=f"invalid .*{name}"):
            fleet.Assumptions(**{name: -1})
    with pytest.raises(HoldfastError, match="checkpoint interval of zero"):
        fleet.Assumptions(checkpoint_interval_s=0)
    for name in ("check_before_s", "init_s", "preemption_grace_s"):
        with pytest.raises(InputError, match=name):
            fleet.Assumptions(**{name: math.nan})
        with pytest.raises(InputError, match=name):
            fleet.Assumptions(**{name: math.inf})


# --- Node lists that are none --------------------------------------------------------------------

LISTS = ("n[1-", "n[3-1]", "n[0-99999999]")
MAP = """table = "attempts"
[columns]
job_id = "JobID"
state = "State"
submit_s = "Start"
start_s = "Start"
end_s = "End"
nodes = "NodeList"
"""
TIMES = "2025-03-01T10:00:00|2025-03-01T12:00:00"


@pytest.mark.parametrize("mapped", [False, True])
def test_attempts_whose_node_list_is_none_are_counted(tmp_path: Path, mapped: bool) -> None:
    lines = [f"{n}|NODE_FAIL|{TIMES}|{nodes}" for n, nodes in enumerate((*LISTS, "a[1-2]", ""))]
    path, column_map = tmp_path / "log.csv", tmp_path / "map.toml"
    path.write_text("\n".join(["JobID|State|Start|End|NodeList", *lines]) + "\n")
    column_map.write_text(MAP)
    name = "mapped" if mapped else "sacct"
    store = tmp_path / "store"
    fleet.ingest([path], store, format=name, column_map=column_map if mapped else None)
    log = fleet.open(store)
    facts = [source["facts"] for source in log.store.facts["sources"]]
    assert [each["unreadable_node_lists"] for each in facts] == [len(LISTS)]
    nodes = log.arrow(f"SELECT nodes FROM {log.attempts} ORDER BY job_id")
    assert [row["nodes"] for row in nodes.to_pylist()] == [[], [], [], ["a1", "a2"], []]


@pytest.mark.parametrize("node", [*LISTS, "n[1-3]", "n1,n2"])
@pytest.mark.parametrize(
    ("name", "header", "row"),
    [
        ("node-log", "node,start,end,cause", '"{}",2025-03-01T14:31:07Z,2025-03-01T16:10:00Z,x'),
        ("health-csv", "time,node,check", '2025-03-01T14:30:58Z,"{}",check iblink'),
        (
            "slurm-events",
            "Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User",
            "atlas|{}|2025-03-01T14:31:07|2025-03-01T16:10:00|DOWN*|x|root(0)",
        ),
    ],
)
def test_a_list_in_the_place_of_one_node_is_a_reject(
    tmp_path: Path, name: str, header: str, row: str, node: str
) -> None:
    path = tmp_path / "log"
    path.write_text("\n".join([header, row.format("n1"), row.format(node)]) + "\n")
    with pytest.raises(InputError) as refused:
        fleet.ingest([path], tmp_path / "store", format=name)
    assert refused.value.code == "too-many-rejects"
    assert "line 3: node is a list" in (refused.value.found or "")
    result = fleet.ingest([path], tmp_path / "store", format=name, max_reject_share=0.5)
    assert (result.rejected, result.node_outages + result.health_events) == (1, 1)
