"""`holdfast runs pairtest`: JSON lines from one command to the next, sentences for people, exit codes."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from holdfast import cli, progress

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "pairtest"
COMMAND = f'FAULTY="node3 node8" sh {EXAMPLES / "stand-in.sh"} {{a}} {{b}}'

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    monkeypatch.setattr(progress, "_quiet", False)
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str, stdin: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(stdin.encode())))
        with pytest.raises(SystemExit) as ended:
            cli.main(["runs", "pairtest", *arguments])
        captured = capsys.readouterr()
        code = ended.value.code
        assert isinstance(code, int)
        return code, captured.out, captured.err

    return call


def lines(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def test_plan_run_solve_through_pipes(run: Run) -> None:
    code, planned, said = run("plan", "node[1-8]")
    assert code == 0
    assert said == "round 1: 4 tests\n"
    assert lines(planned)[0] == {
        "round": 1,
        "test": "r1-0001",
        "nodes": ["node1", "node2"],
        "why": "pair",
        "repeats": 1,
    }
    code, results, said = run("run", "-", "--command", COMMAND, "--rounds", "all", stdin=planned)
    assert code == 0
    assert "node3 and node8 are faulty" in said or "node8 and node3 are faulty" in said
    assert {"round", "test", "nodes", "exit_code", "seconds", "timed_out", "output_tail"} <= set(
        lines(results)[0]
    )
    code, solved, _ = run("solve", "-", "--json", stdin=results)
    assert code == 0
    found = json.loads(solved)
    assert set(found["faulty"]) == {"node3", "node8"}
    assert found["complete"] is True
    assert found["next"] is None
    assert {node["node"]: node["state"] for node in found["nodes"]}["node4"] == "good"


def test_round_by_round_with_files(run: Run, tmp_path: Path) -> None:
    hosts = tmp_path / "hosts.txt"
    hosts.write_text("\n".join(f"node{number}" for number in range(1, 10)), encoding="utf-8")
    code, out, said = run("plan", "hosts.txt", "-o", "p1.jsonl")
    assert code == 0
    assert "Round 1" in out
    assert said == "plan: p1.jsonl\n"
    code, out, said = run("run", "p1.jsonl", "--command", COMMAND, "-o", "r.jsonl", "-j", "2")
    assert code == 0
    assert "5 executions in 1 round" in out
    assert said == "results: r.jsonl\n"

    code, out, _ = run("solve", "r.jsonl")
    assert code == 0
    assert "are suspects" in out
    advised = out.splitlines()[-1]
    assert advised.strip().startswith("holdfast runs pairtest plan --from r.jsonl | holdfast runs ")
    assert "-o r.jsonl" in advised
    assert run("solve", "r.jsonl", "--check")[0] == 1

    code, second, said = run("plan", "--from", "r.jsonl")
    assert said == "round 2: 4 tests\n"
    assert all(test["round"] == 2 for test in lines(second))
    code, out, _ = run("run", "-", "--command", COMMAND, "-o", "r.jsonl", "--json", stdin=second)
    assert set(json.loads(out)["faulty"]) == {"node3", "node8"}
    code, third, said = run("plan", "--from", "r.jsonl")  # one suspect more than good nodes
    assert said == "round 3: 1 test\n"
    run("run", "-", "--command", COMMAND, "-o", "r.jsonl", stdin=third)
    code, out, said = run("plan", "--from", "r.jsonl")
    assert (code, out, said) == (0, "", "nothing is left that a test could tell\n")
    code, out, _ = run("solve", "r.jsonl", "-v", "--nodes", "node[1-10]")
    assert "node10" in out
    assert "No result for node10." in out


def test_the_advised_command_runs(run: Run, tmp_path: Path) -> None:
    """A template with quotes of both kinds comes back as it was."""
    import shlex

    _, planned, _ = run("plan", "node[1-4]")
    template = """sh -c 'test "{a}" != node1' && echo "it's {b}" """
    run("run", "-", "--command", template, "-o", "my results.jsonl", stdin=planned)
    _, out, _ = run("solve", "my results.jsonl", "--json")
    words = shlex.split(json.loads(out)["next"]["command"])
    assert words[words.index("--command") + 1] == template
    assert words[-1] == "my results.jsonl"


def test_all_is_well(run: Run) -> None:
    _, planned, _ = run("plan", "a[1-4]", "--quiet")
    _, results, _ = run("run", "-", "--command", "true {nodes}", stdin=planned)
    code, out, said = run("solve", "-", "--check", stdin=results)
    assert (code, out.strip(), said) == (0, "All 4 nodes work.", "")


def test_everything_fails(run: Run) -> None:
    _, planned, _ = run("plan", "a[1-4]")
    _, results, _ = run("run", "-", "--command", "false {nodes}", "--rounds", "9", stdin=planned)
    _, out, _ = run("solve", "-", stdin=results)
    assert "No test passed (6 tests on 4 nodes)" in out
    assert "the command fails everywhere" in out
    assert "No further test of these nodes can tell more." in out


def test_what_a_test_prints_does_not_reach_the_terminal_raw(run: Run) -> None:
    _, planned, _ = run("plan", "a[1-2]")
    _, results, _ = run(
        "run", "-", "--command", r"printf '\033[2J'; exit 1 # {nodes}", stdin=planned
    )
    assert "\033" not in results
    _, out, _ = run("solve", "-", stdin=results)
    assert "\033" not in out


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("plan",), "no nodes given"),
        (("plan", "node1"), "at least two nodes"),
        (("plan", "node[1-"), "invalid host list"),
        (("plan", "./none.txt"), "cannot be read"),
        (("plan", "--from", "none.jsonl"), "file not found"),
        (("plan", "a[1-4]", "-o", "none/p.jsonl"), "cannot be written"),
        (("run", "none.jsonl", "--command", "x {nodes}"), "file not found"),
        (("solve", "none.jsonl"), "file not found"),
        (("solve", "-"), "no results"),
        (("run", "-", "--command", "x {host}"), "nothing fills"),
        (("run", "-", "--command", "x"), "does not name"),
    ],
)
def test_bad_input(run: Run, arguments: tuple[str, ...], problem: str) -> None:
    code, out, said = run(*arguments)
    assert (code, out) == (2, "")
    assert problem in said


@pytest.mark.parametrize(
    "option", [("--rounds", "0"), ("--rounds", "some"), ("--timeout", "soon"), ("--jobs", "0")]
)
def test_bad_options(run: Run, option: tuple[str, str]) -> None:
    code, _, _ = run("run", "-", "--command", "x {nodes}", *option)
    assert code == 2
