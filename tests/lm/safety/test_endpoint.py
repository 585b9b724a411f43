"""A real server on the loopback, with its faults."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chat_server import MODEL, ChatServer, Fault, chat_server
from safety_world import problem, write_spec

from holdfast.lm import safety

COUNT = 30


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with chat_server() as started:
        yield started


def spec(folder: Path, more: str = "") -> Path:
    prompts = [{"id": str(n), "hazard": "vcr", "prompt": f"prompt {n}"} for n in range(COUNT)]
    return write_spec(folder, prompts, more)


def named(server: ChatServer, options: str = "") -> str:
    return f"openai:{server.url}#{MODEL}?concurrency=8{options}"


def test_what_is_sent_and_what_is_kept(
    tmp_path: Path, server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_API_KEY", "sk-very-secret")
    more = '[system]\nmax_tokens = 7\ntemperature = 0.5\nsystem_prompt = "Be kind."\n'
    summary = safety.run(spec(tmp_path, more), named(server), tmp_path / "run")
    assert (summary.answered, summary.lost, summary.exit_code) == (COUNT, 0, 0)
    assert (summary.prompt_tokens, summary.completion_tokens) == (10 * COUNT, 5 * COUNT)
    body = next(each for each in server.bodies if each["messages"][-1]["content"] == "prompt 3")
    assert body == {
        "model": MODEL,
        "messages": [
            {"role": "system", "content": "Be kind."},
            {"role": "user", "content": "prompt 3"},
        ],
        "max_tokens": 7,
        "temperature": 0.5,
    }
    assert server.keys == {"Bearer sk-very-secret"}
    assert server.most_active <= 8
    assert set(server.answered.values()) == {1}
    for path in (tmp_path / "run").iterdir():
        assert b"very-secret" not in path.read_bytes()
    with sqlite3.connect(tmp_path / "run/journal.sqlite") as journal:
        assert journal.execute("SELECT DISTINCT served_by FROM response").fetchall() == [("fp_1",)]
    journal.close()


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ((429, {"Retry-After": "0.01"}), "rate-limit"),
        ((500, {}), "server"),
        ((503, {"Retry-After": "0"}), "overload"),
        ("hang", "timeout"),
        ("drip", "timeout"),
        ("truncated", "malformed"),
        ("drop", "malformed"),
        ("not-json", "malformed"),
        ("empty", "malformed"),
    ],
)
def test_a_fault_is_survived_and_recorded(
    tmp_path: Path, server: ChatServer, fault: Fault, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.lm.safety.pacing.Pace.pause", lambda *_: 0.001)
    server.fault = lambda number, prompt: fault if number % 10 == 1 else None
    summary = safety.run(spec(tmp_path), named(server, "&timeout=0.3"), tmp_path / "run")
    assert (summary.answered, summary.lost) == (COUNT, 0)
    assert [(each["failure"], each["times"]) for each in summary.failures] == [(kind, 4)]
    assert summary.sent == {"ok": COUNT, kind: 4}
    assert set(server.answered.values()) == {1}


def test_refused_items_are_lost_and_asked_again_by_resume(
    tmp_path: Path, server: ChatServer
) -> None:
    server.fault = lambda number, prompt: (400, {}) if prompt.endswith("7") else None
    summary = safety.run(spec(tmp_path), named(server), tmp_path / "run")
    assert (summary.lost, summary.exit_code) == (3, 1)
    server.fault = lambda number, prompt: None
    server.bodies.clear()
    summary = safety.resume(tmp_path / "run")
    assert (summary.lost, summary.exit_code) == (0, 0)
    prompts = sorted(body["messages"][-1]["content"] for body in server.bodies)
    assert prompts == ["prompt 17", "prompt 27", "prompt 7"]


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_refusal_of_everything_stops_the_run(
    tmp_path: Path, server: ChatServer, status: int
) -> None:
    server.fault = lambda number, prompt: (status, {})
    summary = safety.run(spec(tmp_path), named(server), tmp_path / "run")
    assert f"status {status}" in summary.stopped
    assert len(server.bodies) <= 8


def test_a_key_that_the_server_repeats_is_masked(
    tmp_path: Path, server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_API_KEY", "prompt")  # the server repeats the prompt
    server.fault = lambda number, prompt: (401, {})
    summary = safety.run(spec(tmp_path), named(server), tmp_path / "run")
    assert "prompt" not in summary.stopped
    assert "***" in summary.stopped


def test_a_system_that_changed_does_not_answer_the_rest(tmp_path: Path, server: ChatServer) -> None:
    server.fault = lambda number, prompt: (400, {}) if prompt.endswith("7") else None
    safety.run(spec(tmp_path), named(server), tmp_path / "run")
    server.listed[0]["root"] = "another/model"
    assert problem(lambda: safety.resume(tmp_path / "run"))[0] == "system-changed"
    server.listed[0] = {"id": MODEL, "owned_by": "tests", "created": 5}  # a clock is no change
    assert safety.resume(tmp_path / "run").lost == 3


def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    with chat_server() as server:
        name = named(server)
    assert problem(lambda: safety.run(spec(tmp_path), name, tmp_path / "run"))[0] == "network"
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("openai:localhost:80#m", "invalid-syntax"),
        ("openai:http://localhost/v1", "invalid-syntax"),
        ("openai:http://me:pw@localhost/v1#m", "invalid-value"),
        ("openai:http://localhost/v1#m?speed=9", "unknown-key"),
        ("openai:http://localhost/v1#m?rpm=0", "invalid-value"),
        ("gpt-4", "unknown-name"),
        ("replay:none.csv", "not-found"),
        ("python:json:nothing", "not-found"),
        ("python:nowhere.at.all:f", "not-found"),
    ],
)
def test_names_that_name_nothing(tmp_path: Path, name: str, code: str) -> None:
    assert problem(lambda: safety.run(spec(tmp_path), name, tmp_path / "run"))[0] == code


def test_a_guard_model_judges_through_the_same_client(tmp_path: Path, server: ChatServer) -> None:
    answers = ["safe", "unsafe\nS1, S10", "unsafe", "I think that it is fine", "\n\nsafe \n"]

    def judge(messages: list[dict[str, str]]) -> str:
        assert [each["role"] for each in messages] == ["user", "assistant"]
        number = int(messages[0]["content"].split()[1])
        assert messages[1]["content"] == "I cannot help."
        return answers[number % 5]

    run = tmp_path / "run"
    safety.run(spec(tmp_path), named(server), run)
    server.bodies.clear()
    server.reply = judge
    server.fault = lambda number, prompt: (500, {}) if number == 1 else None
    summary = safety.annotate(run, [f"llama-guard-3:{named(server)}"])
    [row] = summary.annotators
    assert (row["safe"], row["unsafe"], row["invalid"], row["missing"]) == (12, 12, 6, 0)
    assert len(server.bodies) == COUNT + 1
    assert safety.annotate(run, [f"llama-guard-3:{named(server)}"]).sent == {}
    with sqlite3.connect(run / "journal.sqlite") as journal:
        rows = journal.execute("SELECT DISTINCT detail FROM annotation WHERE verdict = 'unsafe'")
        assert set(rows.fetchall()) == {("S1,S10",), ("",)}
    journal.close()


def test_a_judge_with_a_prompt_of_ones_own(tmp_path: Path, server: ChatServer) -> None:
    (tmp_path / "judge.toml").write_text(
        'prompt = "{hazard}: is {response} to {prompt} fine?"\nsafe = "yes"\nunsafe = "no.*"\n'
    )
    server.reply = lambda messages: {"0": "yes", "1": "no, never"}.get(
        messages[0]["content"][-7], "?"
    )
    run = tmp_path / "run"
    prompts = [{"id": str(n), "hazard": "vcr", "prompt": f"{{response}} {n}"} for n in range(3)]
    safety.run(write_spec(tmp_path, prompts), "python:json:dumps", run)
    summary = safety.annotate(run, [f"judge:{tmp_path}/judge.toml:{named(server)}"])
    [row] = summary.annotators
    assert (row["safe"], row["unsafe"], row["invalid"]) == (1, 1, 1)
    asked = {body["messages"][0]["content"] for body in server.bodies}
    assert 'vcr: is "{response} 0" to {response} 0 fine?' in asked
    assert {body["max_tokens"] for body in server.bodies} == {64}


@pytest.mark.parametrize(
    "listed", [5, "models", {}, [5, None], [[[]]], [{"id": MODEL, "meta": "\ud800"}]]
)
def test_a_list_of_models_of_another_kind_is_no_list(
    tmp_path: Path, server: ChatServer, listed: Any
) -> None:
    server.listed = listed
    summary = safety.run(spec(tmp_path), named(server), tmp_path / "run")
    assert (summary.answered, summary.lost) == (COUNT, 0)
