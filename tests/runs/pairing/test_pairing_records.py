"""Plans and results as files; host lists; templates of commands: what is read, what is refused."""

from __future__ import annotations

import io
import json
import shlex
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import InputError
from holdfast.files import Journal
from holdfast.runs.pairing.commands import Template
from holdfast.runs.pairing.nodes import expand_nodes
from holdfast.runs.pairing.plan import plan_pairs
from holdfast.runs.pairing.records import (
    PairResult,
    PairTest,
    line_of,
    read_plan,
    read_results,
)

NAMES = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,20}", fullmatch=True)
GROUPS = st.lists(NAMES, min_size=2, max_size=3, unique=True).map(tuple)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
RESULTS = st.builds(
    PairResult,
    nodes=GROUPS,
    outcome=st.sampled_from(["passed", "failed", "timed_out", "not_run"]),
    round=st.integers(1, 99),
    test=TEXTS,
    attempt=st.integers(1, 9),
    exit_code=st.none() | st.integers(0, 255),
    seconds=st.none() | st.floats(0, 1e6),
    command=TEXTS,
    template=TEXTS,
    output_tail=TEXTS,
)
TESTS = st.builds(
    PairTest, round=st.integers(1, 99), test=NAMES, nodes=GROUPS, repeats=st.integers(1, 5)
)


@settings(max_examples=50)
@given(rows=st.lists(RESULTS, max_size=6))
def test_results_come_back_as_written(
    tmp_path_factory: pytest.TempPathFactory, rows: list[PairResult]
) -> None:
    path = tmp_path_factory.mktemp("results") / "r.jsonl"
    with Journal(path, torn="end") as file:
        for row in rows:
            file.append(line_of(row).encode())
    assert list(read_results(path)) == rows
    lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    assert [json.loads(line)["timed_out"] for line in lines] == [row.timed_out for row in rows]


@settings(max_examples=50)
@given(rows=st.lists(TESTS, max_size=6, unique_by=lambda test: test.test))
def test_plans_come_back_as_written(
    tmp_path_factory: pytest.TempPathFactory, rows: list[PairTest]
) -> None:
    path = tmp_path_factory.mktemp("plan") / "p.jsonl"
    path.write_text("".join(map(line_of, rows)), encoding="utf-8")
    assert read_plan(path) == rows


@settings(max_examples=60)
@given(rows=st.lists(RESULTS, min_size=1, max_size=3), data=st.data())
def test_a_cut_anywhere_loses_one_result_and_spoils_none(
    tmp_path_factory: pytest.TempPathFactory, rows: list[PairResult], data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("cut") / "r.jsonl"
    whole = "".join(map(line_of, rows)).encode()
    kept = whole[: data.draw(st.integers(0, len(whole)))]
    path.write_bytes(kept)
    survivors = rows[: kept.count(b"\n")]
    more = PairResult(("x", "y"), "passed", test="after the cut")
    with Journal(path, torn="end") as file:
        file.append(line_of(more).encode())
    found = read_results(path)
    whole_last = (
        kept.count(b"\n") < len(rows) and kept.endswith(b"}") and len(found) == len(survivors) + 2
    )
    assert list(found) == [*survivors, *([rows[len(survivors)]] if whole_last else []), more]
    assert len(found.set_aside) <= 1


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "no JSON"),
        ("[1]", "no JSON object"),
        ('{"exit_code": 0}', "nodes"),
        ('{"nodes": ["a"], "exit_code": 0}', "nodes"),
        ('{"nodes": ["a", "a"], "exit_code": 0}', "twice"),
        ('{"nodes": ["a", "b; reboot"], "exit_code": 0}', "not a valid node name"),
        ('{"nodes": ["a", "-x"], "exit_code": 0}', "not a valid node name"),
        ('{"nodes": ["a", 7], "exit_code": 0}', "nodes"),
        ('{"nodes": ["a", "b"]}', "neither"),
        ('{"nodes": ["a", "b"], "exit_code": "0"}', "exit_code"),
        ('{"nodes": ["a", "b"], "exit_code": true}', "exit_code"),
        ('{"nodes": ["a", "b"], "outcome": "maybe"}', "outcome"),
        ('{"nodes": ["a", "b"], "exit_code": 0, "round": 0}', "round"),
        ('{"nodes": ["a", "b"], "exit_code": 0, "seconds": "1"}', "seconds"),
        ('{"nodes": ["a", "b"], "exit_code": 0, "test": 1}', "test"),
        ("[" * 100_000, "no JSON"),
    ],
)
def test_lines_that_are_no_results_are_set_aside(line: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text('{"nodes": ["a", "b"], "exit_code": 0}\n' + line + "\n", encoding="utf-8")
    found = read_results(path)
    assert [row.outcome for row in found] == ["passed"]
    (aside,) = found.set_aside
    assert aside.line == 2
    assert reason in aside.reason


def test_results_of_other_tools_need_two_keys(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(
        '{"nodes": ["a", "b"], "exit_code": 3}\n\n{"nodes": ["c", "d"], "timed_out": true}\n',
        encoding="utf-8",
    )
    assert [row.outcome for row in read_results(path)] == ["failed", "timed_out"]


def test_a_file_that_holds_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"\x00\xff binary\nmore\n" * 5)
    with pytest.raises(InputError, match="10 of 10 records") as caught:
        read_results(path)
    assert caught.value.place == "line 1"


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        '{"round": 1, "test": "t", "nodes": ["a"]}',
        "oops",
        '{"round": "1", "test": "t", "nodes": ["a", "b"]}',
    ],
)
def test_a_line_that_is_no_test_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text(
        '{"round": 1, "test": "r1-0001", "nodes": ["a", "b"]}\n' + text, encoding="utf-8"
    )
    with pytest.raises(InputError) as caught:
        read_plan(path)
    assert caught.value.place == "line 2"


def test_a_test_that_comes_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text(line_of(PairTest(1, "t", ("a", "b"))) * 2, encoding="utf-8")
    with pytest.raises(InputError, match="twice"):
        read_plan(path)


def test_nodes_from_lists_files_and_stdin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = tmp_path / "hosts.txt"
    hosts.write_text("# rack 1\ngpu7\ngpu[1-2]  # new\n\ngpu7\n", encoding="utf-8")
    assert expand_nodes(str(hosts)) == ["gpu7", "gpu1", "gpu2"]
    assert expand_nodes("node[1-3,10],login") == ["login", "node1", "node2", "node3", "node10"]
    assert expand_nodes(["b1", "a[2-1]" if False else "a[1-2]", "b1"]) == ["b1", "a1", "a2"]
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"x1\nx2\n")))
    assert expand_nodes("-") == ["x1", "x2"]


@pytest.mark.parametrize(
    "text",
    ["node[1-", "node[1-3", "a b", "$(reboot)", "", "a;b", "-w", "node[1-99999999]", "..", "None"],
)
def test_what_is_no_host_list_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        expand_nodes(text)


def test_bad_files_of_nodes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        expand_nodes(str(tmp_path / "missing.txt"))
    empty = tmp_path / "empty.txt"
    empty.write_text("# nobody\n", encoding="utf-8")
    with pytest.raises(InputError, match="no nodes"):
        expand_nodes(str(empty))
    binary = tmp_path / "binary"
    binary.write_bytes(b"a1\n\xff\x00\n")
    with pytest.raises(InputError) as caught:
        expand_nodes(str(binary))
    assert caught.value.place == "line 2"


@pytest.mark.parametrize("nodes", [[], ["a"], "a", ["a", "a"], ["a", "$(b)"]])
def test_a_plan_needs_two_nodes(nodes: list[str] | str) -> None:
    with pytest.raises(InputError):
        plan_pairs(nodes)


PAIR = PairTest(2, "r2-0001", ("n1", "n2"))
TRIPLE = PairTest(2, "r2-0001", ("n1", "n2", "n3"))


@pytest.mark.parametrize(
    ("template", "command"),
    [
        ("srun -w {a},{b} x", "srun -w n1,n2 x"),
        ("srun -N {n} -w {nodes} x > {test}.log", "srun -N 2 -w n1,n2 x > r2-0001.log"),
        ("{a} {b} ${HOME} {print $1} {1,2}", "n1 n2 ${HOME} {print $1} {1,2}"),
        ("{a} {b} {{a}} {{x}}", "n1 n2 {a} {x}"),
    ],
)
def test_placeholders(template: str, command: str) -> None:
    assert Template(template).command(PAIR) == command


def test_a_triple_is_one_test_or_two_pairs() -> None:
    (whole,) = Template("x {nodes}").parts(TRIPLE)
    assert whole == TRIPLE
    first, second = Template("x {a} {b}").parts(TRIPLE)
    assert (first.test, first.nodes) == ("r2-0001.1", ("n1", "n2"))
    assert (second.test, second.nodes) == ("r2-0001.2", ("n2", "n3"))


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        ("x {a} {b} {host}", "nothing fills"),
        ("x {a} {b} {c}", "nothing fills"),
        ("x {nodes} {}", None),
        ("x {a}", "does not name"),
        ("all_gather", "does not name"),
        ("x {{nodes}}", "does not name"),
    ],
)
def test_templates_that_cannot_be_filled(template: str, problem: str | None) -> None:
    if problem is None:
        assert Template(template).command(PAIR) == "x n1,n2 {}"
        return
    with pytest.raises(InputError, match=problem):
        Template(template)


@settings(max_examples=100)
@given(st.lists(st.text(max_size=12), min_size=2, max_size=3, unique=True), st.text(max_size=12))
def test_no_name_means_anything_to_the_shell(nodes: list[str], name: str) -> None:
    test = PairTest(1, name, tuple(nodes))
    try:
        command = Template("printf %s {nodes} {test}").command(test)
    except InputError:
        return
    assert shlex.split(command) == ["printf", "%s", ",".join(nodes), name]


def test_a_name_that_tries_reaches_no_shell(tmp_path: Path) -> None:
    test = PairTest(1, f"$(touch {tmp_path}/made)", ("a", "b"))
    command = Template("echo {a} {b} {test}").command(test)
    subprocess.run(["sh", "-c", command], check=True, capture_output=True)
    assert not (tmp_path / "made").exists()
    with pytest.raises(InputError, match="not safe"):
        Template("echo {a} {b}").command(PairTest(1, "t", ("a", f"$(touch {tmp_path}/made)")))
