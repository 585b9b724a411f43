"""Traces: real ones of torch.profiler, made-up ones against plain JSON and counting, damaged ones."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import InputError
from holdfast.runs.straggling.scores import stragglers
from holdfast.runs.straggling.sources import read_matrix
from holdfast.runs.straggling.trace_events import Event, read_events
from holdfast.runs.straggling.traces import read_trace

HERE = Path(__file__).parent
CPU = HERE.parents[2] / "examples" / "stragglers" / "traces"
GPU = HERE / "gpu_traces"


def event(name: str, begin: float, end: float, category: str = "cpu_op") -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "ts": begin, "dur": end - begin, "pid": 1}


def write_trace(path: Path, events: list[Any], rank: int | None = None) -> Path:
    told = {} if rank is None else {"distributedInfo": {"rank": rank}}
    path.write_text(json.dumps({"schemaVersion": 1, **told, "traceEvents": events}))
    return path


# --- Real traces ---------------------------------------------------------------------------------


def test_the_slowed_rank_of_a_real_training_is_named() -> None:
    found = stragglers(CPU)
    assert [row["rank"] for row in found.persistent] == [2]
    assert found.matrix.ranks.tolist() == [0, 1, 2, 3]
    assert found.matrix.steps.tolist() == list(range(2, 10))


def test_the_slowest_rank_waits_least() -> None:
    matrix = read_matrix(CPU)
    assert matrix.waited_s is not None
    waited = np.median(matrix.waited_s, axis=1)
    assert waited.argmin() == 2
    # Waiting and own time make up the step, and all ranks have the same steps, up to the moments in
    # which processes leave a collective.
    whole = (matrix.waited_s + matrix.own_s).mean(axis=1)
    assert whole == pytest.approx(whole.mean(), rel=0.03)


def test_kernels_and_collectives_of_a_gpu_are_told_apart() -> None:
    one, other = (read_trace(path) for path in sorted(GPU.glob("*.gz")))
    assert (one.rank, other.rank) == (0, 1)
    matrix = read_matrix(GPU)
    fast, slow = np.median(matrix.own_s, axis=1)
    assert slow > 1.4 * fast  # it runs the forward pass nine times
    assert matrix.own_s.shape == (2, 8)


def test_ranges_of_the_device_do_not_move_steps() -> None:
    # In the real trace the device's copy of a step covers a twentieth of it.
    trace = read_trace(GPU / "rank_1.json.gz")
    assert ((trace.end - trace.begin) > 4000).all()


@pytest.mark.full
def test_a_training_profiled_now_gives_the_slowed_rank(tmp_path: Path) -> None:
    script = str(HERE / "traced_training.py")
    # Four processes on a busy machine: enough work and steps to stand out from the scheduler's noise.
    numbers = ["--slow", "1", "--slowness", "10", "--steps", "20"]
    command = [sys.executable, script, str(tmp_path), *numbers]
    for options in ([], ["--ddp"]):
        subprocess.run([*command, *options], check=True, timeout=300)
        found = stragglers(tmp_path)
        assert [row["rank"] for row in found.persistent] == [1]


# --- Own time ------------------------------------------------------------------------------------

spans = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 12), st.sampled_from(["gloo:all_reduce", "mm"])),
    max_size=25,
)


@given(spans)
@settings(max_examples=100, deadline=None)
def test_own_time_is_that_of_counting(tmp_path_factory: Any, drawn: list[Any]) -> None:
    folder = tmp_path_factory.mktemp("counted")
    events = [event(name, 10 + begin, 10 + begin + length) for begin, length, name in drawn]
    steps = [event("ProfilerStep#4", 10, 25), event("ProfilerStep#5", 25, 60)]
    trace = read_trace(write_trace(folder / "rank_0.json", [*events, *steps]))
    for index, (low, high) in enumerate([(10, 25), (25, 60)]):
        waits = 0
        for moment in np.arange(low, high) + 0.5:
            at = {e["name"] for e in events if e["ts"] <= moment < e["ts"] + e["dur"]}
            waits += at == {"gloo:all_reduce"}
        inside = trace.exposed.covered(trace.end) - trace.exposed.covered(trace.begin)
        assert inside[index] == pytest.approx(waits)


def test_kernels_decide_where_there_are_any(tmp_path: Path) -> None:
    events = [
        event("ProfilerStep#0", 0, 100, "user_annotation"),
        event("ProfilerStep#0", 0, 3, "gpu_user_annotation"),
        event("aten::mm", 0, 100),  # the host runs ahead: no work of the device
        event("gemm", 10, 40, "kernel"),
        event("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 30, 90, "kernel"),
        event("nccl:all_reduce", 30, 90, "gpu_user_annotation"),
        event("gloo:all_reduce", 0, 9, "gpu_user_annotation"),  # a range's shadow is no collective
        event("Memcpy DtoH", 80, 85, "gpu_memcpy"),
    ]
    trace = read_trace(write_trace(tmp_path / "a.json", events, rank=7))
    assert (trace.rank, trace.steps) == (7, (0,))
    assert trace.end.tolist() == [100]
    assert trace.exposed.begin.tolist() == [40, 85]
    assert trace.exposed.end.tolist() == [80, 90]


def test_traces_without_collectives_cannot_tell(tmp_path: Path) -> None:
    for rank in (0, 1):
        events = [event(f"ProfilerStep#{n}", 10 * n, 10 * n + 9) for n in range(3)]
        write_trace(tmp_path / f"t{rank}.json", events, rank)
    told = stragglers(tmp_path).to_dict()
    assert told["base"] == "unknown"
    assert told["ranks"][0]["persistent"] is None


def test_a_trace_without_steps_counts_as_one(tmp_path: Path) -> None:
    for rank in (0, 1):
        events = [event("mm", 5, 10 + rank), event("gloo:barrier", 10 + rank, 20)]
        write_trace(tmp_path / f"t{rank}.json", events, rank)
    found = stragglers(tmp_path)
    assert found.matrix.own_s.ravel() == pytest.approx([5e-6, 6e-6])
    assert any("profiler.step()" in remark for remark in found.matrix.remarks)


# --- The reader ----------------------------------------------------------------------------------

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=30),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3)
    ),
    max_leaves=8,
)
trace_objects = st.lists(st.dictionaries(st.text(max_size=9), values, max_size=4), max_size=6)
headers = st.dictionaries(
    st.text(max_size=9).filter(lambda key: key not in ("traceEvents", "host_name")),
    values,
    max_size=3,
)
FIELDS = ("ph", "cat", "name", "ts", "dur")


@given(headers, trace_objects, st.lists(st.sampled_from(FIELDS)), st.sampled_from([None, 1]))
@settings(max_examples=100, deadline=None)
def test_events_are_those_of_a_json_parser(
    tmp_path_factory: Any, around: Any, events: Any, fields: list[str], indent: int | None
) -> None:
    path = tmp_path_factory.mktemp("json") / "t.json"
    made = [{**each, **dict.fromkeys(fields, number)} for number, each in enumerate(events)]
    whole = {**around, "traceEvents": made, "host_name": "node7", **around}
    path.write_text(json.dumps(whole, indent=indent, ensure_ascii=False), encoding="utf-8")
    found = read_events(path)
    assert found.host_name == "node7"
    nothing = {"dur": 0}
    for each, event in zip(made, found.traceEvents, strict=True):
        assert [getattr(event, name) for name in FIELDS] == [
            each.get(name, nothing.get(name)) for name in FIELDS
        ]


def test_a_bare_array_is_a_trace_too(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(' [ {"ts": 1} , {"name": "b", "args": {"ts": 3}} ] ')
    assert read_events(path).traceEvents == [Event(ts=1), Event(name="b")]


def test_a_trace_may_hold_not_a_number(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(
        '{"traceEvents": [{"ts": NaN, "dur": 1, "ph": "X"}, {"ts": 1, "args": Infinity}]}'
    )
    assert [each.ts for each in read_events(path).traceEvents][1:] == [1]


@pytest.mark.parametrize("packed", [False, True])
def test_a_cut_trace_is_refused(tmp_path: Path, packed: bool) -> None:
    source = next(iter(sorted(CPU.iterdir())))
    whole = source.read_bytes() if packed else gzip.decompress(source.read_bytes())
    path = tmp_path / ("rank_0.json.gz" if packed else "rank_0.json")
    for share in (0.1, 0.5, 0.9, 0.999):
        path.write_bytes(whole[: int(share * len(whole))])
        with pytest.raises(InputError, match=r"cut off|cannot be read"):
            read_trace(path)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "cut off"),
        ("hello", "no trace"),
        ('{"a": 1}', "no trace"),
        ('{"traceEvents": {}}', "no trace"),
        ('{"traceEvents": [1, 2]}', "no trace"),
        ('{"traceEvents": [{"a": 1 2}]}', "no JSON"),
        ('{"traceEvents": [{"a" 1}]}' + " " * 200, "no JSON"),
        ('{"traceEvents": []}', "no events"),
        ('{"traceEvents": [{"ph": "X", "ts": "soon", "dur": 1}]}', "no events"),
        ("\x1f\x8bnonsense", "cannot be read"),
        ('{"traceEvents": [{"args": ' + "[" * 5000, "nested too deeply"),
    ],
)
def test_what_is_no_trace_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "rank_0.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError, match=problem):
        read_trace(path)


# --- Ranks ---------------------------------------------------------------------------------------


def test_the_name_of_the_file_may_tell_the_rank(tmp_path: Path) -> None:
    events = [event("mm", 0, 5), event("gloo:barrier", 5, 9)]
    assert read_trace(write_trace(tmp_path / "host-Rank12.pt.trace.json", events)).rank == 12
    with pytest.raises(InputError, match="which rank"):
        read_trace(write_trace(tmp_path / "worker.json", events))


def test_two_traces_of_a_rank_are_refused(tmp_path: Path) -> None:
    events = [event("mm", 0, 5)]
    paths = [write_trace(tmp_path / f"{name}.json", events, rank=3) for name in "ab"]
    with pytest.raises(InputError, match="two traces of rank 3"):
        stragglers(paths)


def test_one_trace_is_not_enough_and_missing_ones_are_told(tmp_path: Path) -> None:
    paths = sorted(CPU.iterdir())
    with pytest.raises(InputError, match="one trace cannot be compared"):
        stragglers(paths[:1])
    found = stragglers([paths[0], paths[2], paths[3]])
    assert found.matrix.ranks.tolist() == [0, 2, 3]
    assert any("1 have no trace" in remark for remark in found.matrix.remarks)


def test_traces_of_different_windows_share_no_step(tmp_path: Path) -> None:
    for rank in (0, 1):
        write_trace(tmp_path / f"t{rank}.json", [event(f"ProfilerStep#{rank}", 0, 9)], rank)
    with pytest.raises(InputError, match="no step is shared by two ranks"):
        stragglers(tmp_path)
