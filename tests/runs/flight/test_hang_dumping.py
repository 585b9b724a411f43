"""A process dumps its own record: whose it is, who is in which group, where its threads stand."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import InputError, MissingExtraError
from holdfast.runs.flight.dumping import dump_flight_record
from holdfast.runs.flight.verdict import hang

PROGRAM = """
import sys, threading
from pathlib import Path
import torch, torch.distributed as dist
import holdfast.runs as runs

folder = Path(sys.argv[1])
runs.dump_flight_record(folder / "before.json", rank=5)
store = dist.HashStore()
dist.init_process_group("gloo", store=store, rank=0, world_size=1)
group = dist.new_group([0], group_desc="tp")
dist.all_reduce(torch.ones(4), group=group)

def dump():
    for place in (folder, folder / "deep" / "mine.json"):
        runs.dump_flight_record(place)

def wait_for(thread):
    thread.start()
    thread.join()

wait_for(threading.Thread(target=dump, name="watcher"))
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("records")
    subprocess.run([sys.executable, "-W", "ignore", "-c", PROGRAM, str(folder)], check=True)
    return folder


def record(path: Path) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(path.read_text())
    return told


def test_it_says_whose_it_is(written: Path) -> None:
    told = record(written / "rank_0.json")["holdfast"]
    assert (told["rank"], told["world_size"]) == (0, 1)
    assert {"name": "1", "description": "tp", "ranks": [0]} in told["groups"]
    assert told["dumped_ns"] > 1_700_000_000_000_000_000
    assert told["host"]
    assert told["pid"]


def test_it_says_where_the_threads_stand(written: Path) -> None:
    threads = record(written / "rank_0.json")["holdfast"]["threads"]
    assert threads[0]["name"] == "MainThread"
    assert "wait_for" in [frame["name"] for frame in threads[0]["frames"]]
    assert "watcher" not in [each["name"] for each in threads]


def test_it_holds_pytorchs_entries(written: Path) -> None:
    (entry,) = record(written / "rank_0.json")["entries"]
    assert entry["profiling_name"] == "gloo:all_reduce"
    assert entry["process_group"] == ["1", "tp"]


def test_nothing_is_left_beside_it(written: Path) -> None:
    found = {str(path.relative_to(written)) for path in written.rglob("*") if path.is_file()}
    assert found == {"before.json", "rank_0.json", "deep/mine.json"}


def test_before_the_group_exists_the_given_rank_stands(written: Path) -> None:
    told = record(written / "before.json")
    assert told["holdfast"]["rank"] == 5
    assert "entries" not in told


def test_it_can_be_judged(written: Path) -> None:
    found = hang(written / "deep" / "mine.json")
    assert found.verdict == "no_hang"
    assert found.evidence.world_size == 1


def test_without_torch_in_the_process_there_is_nothing_to_dump(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match="holdfast\\[torch\\]"):
        dump_flight_record(tmp_path / "rank_0.json")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    with pytest.raises(InputError, match="has not imported torch"):
        dump_flight_record(tmp_path / "rank_0.json")
    assert not list(tmp_path.iterdir())
