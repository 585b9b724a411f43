"""Dumps that PyTorch wrote while real processes hung: the verdict is the truth of the scene.

The gloo dumps are of torch 2.13, those of NCCL of torch 2.11 with several processes on one H200. Both
were made by `make_dumps`.
"""

from __future__ import annotations

import gzip
import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.runs.flight.compact import compact
from holdfast.runs.flight.dumps import Dumps, rank_in_name
from holdfast.runs.flight.reading_process import read_document
from holdfast.runs.flight.verdict import HangVerdict, hang, judge_dumps

DUMPS = Path(__file__).parent / "dumps"
MAKER = Path(__file__).parent / "make_dumps.py"
SCENES = sorted(path.parent.relative_to(DUMPS) for path in DUMPS.glob("*/*/truth.json"))


def truth_of(folder: Path) -> dict[str, Any]:
    told: dict[str, Any] = json.loads((folder / "truth.json").read_text())
    return told


def check(found: HangVerdict, expected: dict[str, Any]) -> None:
    told = found.to_dict()
    keys = ["verdict", "missing_ranks", "unknown_ranks"]
    keys += [key for key in ("group", "sequence") if expected[key] is not None]
    assert {key: told[key] for key in keys} == {key: expected[key] for key in keys}, found.sentence
    json.dumps(told)


def judged_here(folder: Path) -> HangVerdict:
    """As `hang`, without processes that read, and so without stacks."""
    dumps = {}
    for file in folder.iterdir():
        told = rank_in_name(file.name)
        assert told is not None
        dumps[told[0]] = replace(compact(read_document(file), str(file)), stacks=False)
    return judge_dumps(Dumps(dict(sorted(dumps.items())), ()))


@pytest.mark.parametrize("scene", SCENES, ids=str)
def test_the_verdict_is_what_happened(scene: Path) -> None:
    for folder in sorted((DUMPS / scene).iterdir()):
        if folder.is_dir():
            check(judged_here(folder), truth_of(DUMPS / scene))


@pytest.mark.full
@pytest.mark.parametrize("scene", SCENES, ids=str)
def test_the_reading_processes_change_nothing(scene: Path) -> None:
    for folder in sorted((DUMPS / scene).iterdir()):
        if folder.is_dir():
            check(hang(folder), truth_of(DUMPS / scene))


def test_json_and_pickles_hold_the_same_facts() -> None:
    scene = DUMPS / "gloo" / "subgroups"
    as_json, as_pickle = (judged_here(scene / part).to_dict() for part in ("json", "pickle"))
    assert as_json["evidence"]["operations"] == as_pickle["evidence"]["operations"]
    assert as_json["sentence"] == as_pickle["sentence"]


def test_the_root_is_told_from_its_consequences() -> None:
    found = judged_here(DUMPS / "nccl" / "subgroups" / "pickle")
    first, *behind = found.evidence.operations
    assert (first["group_ranks"], first["missing_ranks"]) == ([2, 3], [3])
    assert {tuple(each["group_ranks"]) for each in behind} == {(0, 2), (1, 3)}
    assert "2 other operations wait behind it" in found.sentence


def test_a_mismatch_shows_both_stacks() -> None:
    found = hang(DUMPS / "gloo" / "mismatched_operation" / "pickle")
    assert found.sequence == 2
    asked = {each["operation"]: each for each in found.evidence.differences}
    assert asked["all_reduce"]["ranks"] == [0, 2]
    assert asked["broadcast"]["ranks"] == [1]
    for each in asked.values():
        assert each["where"].startswith("mismatched_operation (tests/runs/flight/make_dumps.py:")
        assert len(each["stack"]) > 2


def test_a_device_that_has_not_started_is_named() -> None:
    found = judged_here(DUMPS / "nccl" / "device_busy" / "json")
    assert found.evidence.operations[0]["states"] == {"started": [0, 2], "scheduled": [1]}
    assert "on rank 1 the device has not started it" in found.sentence


def test_wrapped_buffers_are_compared_where_they_overlap() -> None:
    found = judged_here(DUMPS / "gloo" / "wrapped" / "json")
    assert found.evidence.lost == {
        "ranks": 3,
        "entries_most": 19,
        "entries_least": 18,
        "compared_from_sequence": 20,
    }


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "name",
    [
        "rank_{}",
        "trace{}.json",
        "node7-gpu1-nccl_trace_rank_{}",
        "dump.{}.pkl",
    ],
)
def test_any_name_that_tells_the_rank(tmp_path: Path, name: str) -> None:
    source = DUMPS / "gloo" / "never_enters" / "pickle"
    for rank in range(4):
        shutil.copy(source / f"nccl_trace_rank_{rank}", tmp_path / name.format(rank))
    check(hang(tmp_path), truth_of(DUMPS / "gloo" / "never_enters"))


def test_gzipped_dumps_and_both_formats_at_once(tmp_path: Path) -> None:
    scene = DUMPS / "gloo" / "never_enters"
    for rank in range(4):
        if rank % 2:
            content = (scene / "pickle" / f"nccl_trace_rank_{rank}").read_bytes()
            (tmp_path / f"rank_{rank}.gz").write_bytes(gzip.compress(content))
        else:
            shutil.copy(scene / "json" / f"rank_{rank}.json", tmp_path)
    check(hang(tmp_path), truth_of(DUMPS / "gloo" / "never_enters"))


def test_a_dump_of_another_job_is_set_aside(tmp_path: Path) -> None:
    for rank in range(4):
        shutil.copy(DUMPS / "gloo" / "never_enters" / "json" / f"rank_{rank}.json", tmp_path)
    document = json.loads((tmp_path / "rank_3.json").read_text())
    for entry in document["entries"]:
        entry["time_created_ns"] -= 30 * 3600 * 10**9
    (tmp_path / "rank_3.json").write_text(json.dumps(document))
    found = hang(tmp_path)
    assert found.missing_ranks == (2,)
    assert found.unknown_ranks == (3,)
    (aside,) = found.evidence.set_aside
    assert "30.0 h earlier" in aside.reason


def test_a_dump_of_a_job_of_another_size_is_set_aside(tmp_path: Path) -> None:
    for rank in range(4):
        shutil.copy(
            DUMPS / "nccl" / "never_enters" / "pickle" / f"nccl_trace_rank_{rank}", tmp_path
        )
    shutil.copy(DUMPS / "nccl" / "slow" / "pickle" / "nccl_trace_rank_2", tmp_path)
    found = hang(tmp_path)
    assert found.unknown_ranks == (2,)
    assert "it has 3 ranks, most have 4" in found.evidence.set_aside[0].reason


# --- Made now, and beside PyTorch's analyser -----------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize("scene", sorted(path.name for path in DUMPS.glob("gloo/*")))
def test_a_hang_made_now_gets_its_verdict(tmp_path: Path, scene: str) -> None:
    pytest.importorskip("torch")
    subprocess.run([sys.executable, MAKER, tmp_path, scene], check=True)
    for part in ("json", "pickle", "ours"):
        check(hang(tmp_path / scene / part), truth_of(tmp_path / scene))


@pytest.mark.full
@pytest.mark.parametrize(
    ("scene", "said"),
    [
        ("never_enters", "missing ranks: {2}"),
        ("slow", "missing ranks: {1}"),
        ("wrapped", "missing ranks: {0}"),
        ("mismatched_size", "SIZE_OR_SYNTAX_MISMATCH"),
        ("subgroups", "missing ranks: {3}"),
    ],
)
def test_pytorchs_analyser_agrees_where_it_answers(scene: str, said: str) -> None:
    pytest.importorskip("torch")
    script = Path(sys.executable).with_name("torchfrtrace")
    if not script.exists():
        pytest.skip("torchfrtrace is not installed")
    folder = DUMPS / "nccl" / scene / "pickle"
    command = [script, folder, "-p", "nccl_trace_rank_"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    told = answer.stdout + answer.stderr
    assert said in told
    ours = hang(folder)
    if ours.verdict == "missing_ranks":
        theirs = re.findall(r"missing ranks: \{([\d, ]+)\}", told)
        assert ", ".join(map(str, ours.missing_ranks)) in theirs


@pytest.mark.full
def test_pytorchs_analyser_gives_no_answer_for_gloo() -> None:
    """What ours is for: on torch 2.13 the other one dies on every gloo dump, for want of group names."""
    pytest.importorskip("torch")
    script = Path(sys.executable).with_name("torchfrtrace")
    if not script.exists():
        pytest.skip("torchfrtrace is not installed")
    folder = DUMPS / "gloo" / "never_enters" / "pickle"
    command = [script, folder, "-p", "nccl_trace_rank_"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert answer.returncode != 0
    assert "KeyError" in answer.stderr
