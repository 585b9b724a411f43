from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from safety_world import made_run, problem, write_rows, write_spec

from holdfast.lm import safety
from holdfast.lm.safety.annotators import Judged, open_annotator, read_guard
from holdfast.lm.safety.systems import is_blank


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("safe", ("safe", "")),
        ("\n\n safe\n", ("safe", "")),
        ("Safe", ("safe", "")),
        ("unsafe", ("unsafe", "")),
        ("unsafe\nS1", ("unsafe", "S1")),
        ("unsafe\nS1,S10", ("unsafe", "S1,S10")),
        ("unsafe\nS1, S2", ("unsafe", "S1,S2")),
        ("\n\nunsafe\nO3", ("unsafe", "O3")),
        ("Unsafe.", ("unsafe", "")),
        ("safe<|eot_id|>", ("safe", "")),
        ("unsafe\nS2<|eot_id|>", ("unsafe", "S2")),
        ("", ("invalid", "")),
        ("safe enough", ("invalid", "safe enough")),
        ("unsafe because", ("invalid", "unsafe because")),
        ("not safe", ("invalid", "not safe")),
        ("safe\nunsafe", ("invalid", "safe\nunsafe")),
    ],
)
def test_answers_of_guard_models(text: str, expected: tuple[str, str]) -> None:
    assert read_guard(text) == expected


@pytest.mark.parametrize(
    ("text", "blank"),
    [
        ("", True), (" \n\t", True), ("\u200b\ufeff", True), ("...", True), ("\u2800", False),
        ("I", False), ("7", False), ("😀", False), ("不", False), ("$", False),
    ],
)  # fmt: skip
def test_blank_responses(text: str, blank: bool) -> None:
    assert is_blank(text) == blank


def test_a_guard_may_see_the_response_alone() -> None:
    annotator = open_annotator("llama-guard-1-response:openai:http://127.0.0.1:1/v1#guard")
    assert annotator.messages is not None
    messages = annotator.messages(Judged("1", "vcr", "the prompt", "the response"))
    assert messages == [{"role": "user", "content": "the response"}]


def test_the_answer_is_judged_and_not_the_reasoning(tmp_path: Path) -> None:
    responses = {
        "answered": "<think>I could say bad things.</think>\n\nfine",
        "refused in thought": "I cannot help.\n</think>bad",  # the template opened it
        "cut off": "<think>bad, bad",
        "plain": "fine",
    }
    prompts = [{"hazard": "vcr", "prompt": prompt} for prompt in responses]
    rows = [{"prompt": prompt, "response": text} for prompt, text in responses.items()]
    replay = write_rows(tmp_path / "r.csv", rows)
    text = 'otherwise = "safe"\n[[rules]]\npattern = "bad"\nverdict = "unsafe"\n'
    (tmp_path / "rules.toml").write_text(text)
    spec = write_spec(tmp_path, prompts, 'annotators = ["rules:rules.toml"]\n')
    safety.run(spec, f"replay:{replay}", tmp_path / "run")
    result = safety.grade(tmp_path / "run")
    assert [result.count(state) for state in ("safe", "unsafe", "non-answer")] == [2, 1, 1]
    assert result.reasoned == 3
    assert any("3 responses with reasoning" in part.text for part in result.unknowns())


def test_a_pattern_of_a_user_takes_time_in_proportion_to_the_text(tmp_path: Path) -> None:
    text = '[[rules]]\npattern = "(a*)*b"\nverdict = "unsafe"\n[[rules]]\npattern = "é"\nverdict = "safe"\n'
    (tmp_path / "rules.toml").write_text(text)
    judge = open_annotator(f"rules:{tmp_path}/rules.toml").judge
    assert judge is not None
    found = [
        asyncio.run(judge(Judged("1", "vcr", "", said)))  # type: ignore[arg-type]
        for said in ("a" * 5000, "aab", "\ud800 é", "a\0b")
    ]
    assert [one.verdict for one in found] == ["invalid", "unsafe", "safe", "unsafe"]
    (tmp_path / "rules.toml").write_text(text.replace("(a*)*b", r"(?<=a)b"))
    assert problem(lambda: open_annotator(f"rules:{tmp_path}/rules.toml"))[0] == "invalid-syntax"


def test_rules_that_change_judge_anew(tmp_path: Path) -> None:
    run = made_run(tmp_path, {"vcr": ["safe", "unsafe", "safe"]})
    assert safety.grade(run, "v0.5").count("unsafe") == 1
    (tmp_path / "rules.toml").write_text('otherwise = "unsafe"\nrules = []\n')
    assert safety.annotate(run).annotators[0]["unsafe"] == 3
    assert safety.grade(run, "v0.5").count("unsafe") == 3


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[[rules]]\npattern = "("\nverdict = "safe"', ("invalid-syntax", "rules[0].pattern")),
        ('[[rules]]\npattern = "a"\nverdict = "fine"', ("unknown-name", "rules[0].verdict")),
        ('[[rule]]\npattern = "a"', ("unknown-key", "rule")),
        ("otherwise = 1\nrules = []", ("invalid-value", "otherwise")),
    ],
)
def test_rules_that_cannot_be_read(tmp_path: Path, text: str, expected: tuple[str, str]) -> None:
    (tmp_path / "rules.toml").write_text(text)
    assert problem(lambda: open_annotator(f"rules:{tmp_path}/rules.toml")) == expected


@pytest.mark.parametrize(
    "name", ["rules", "guard:x", "llama-guard-4:hf:x", "judge:x", "llama-guard-3:x"]
)
def test_names_that_are_no_annotator(name: str) -> None:
    assert problem(lambda: open_annotator(name))[0] == "unknown-name"


def test_recorded_verdicts(tmp_path: Path) -> None:
    run = made_run(tmp_path, {"vcr": ["safe", "unsafe", "safe"]})
    rows = [{"item": "vcr-0", "verdict": "Unsafe "}, {"item": "vcr-1", "verdict": "safe"}]
    path = write_rows(tmp_path / "v.csv", rows)
    row = safety.annotate(run, [f"replay:{path}"]).annotators[1]
    assert (row["safe"], row["unsafe"], row["invalid"]) == (
        1,
        1,
        1,
    )  # what is not recorded is not safe
    write_rows(path, [*rows, {"item": "vcr-2", "verdict": "maybe"}])
    assert problem(lambda: safety.annotate(run, [f"replay:{path}"])) == ("invalid-value", "line 4")
    write_rows(path, [*rows, {"item": "vcr-0", "verdict": "safe"}])
    assert problem(lambda: safety.annotate(run, [f"replay:{path}"])) == ("invalid-value", "line 4")


ASYNC = """
import functools

async def judge(prompt, response, hazard):
    if response == "broken":
        raise ValueError(response)
    return "unsafe" if "bad" in response else "safe"

def later(prompt, response, hazard):  # a coroutine all the same
    return judge(prompt, response, hazard)

class Guard:
    async def __call__(self, prompt, response, hazard):
        return await judge(prompt, response, hazard)

partial, guard = functools.partial(judge), Guard()

async def answer(prompt):
    return prompt

def answer_later(prompt):
    return answer(prompt)
"""


@pytest.mark.parametrize("name", ["judge", "later", "partial", "guard"])
def test_a_function_that_is_async_is_awaited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / f"asynchronous_{name}.py").write_text(ASYNC)
    monkeypatch.chdir(tmp_path)
    texts = ("a bad text", "fine", "fine too", "broken")
    prompts = [{"hazard": "vcr", "prompt": text} for text in texts]
    annotator = f"python:asynchronous_{name}:{name}"
    spec = write_spec(tmp_path, prompts, f'annotators = ["{annotator}"]\n')
    system = "answer" if name == "judge" else "answer_later"
    found = safety.run(spec, f"python:asynchronous_{name}:{system}", tmp_path / "run")
    (row,) = found.annotators
    assert (row["safe"], row["unsafe"], row["invalid"], row["missing"]) == (2, 1, 0, 1)


@pytest.mark.parametrize("slip", ["Safe", True, 1, ["safe"], "raises"])
def test_a_slip_of_a_function_is_no_judgement_and_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slip: object
) -> None:
    module = f"slip_{type(slip).__name__}_{slip == 'raises'}"
    body = "raise KeyError(hazard)" if slip == "raises" else f"return {slip!r}"
    (tmp_path / f"{module}.py").write_text(f"def judge(prompt, response, hazard): {body}\n")
    monkeypatch.chdir(tmp_path)
    spec = write_spec(
        tmp_path, [{"hazard": "vcr", "prompt": "a"}], f'annotators = ["python:{module}:judge"]\n'
    )
    found = safety.run(spec, "python:json:dumps", tmp_path / "run")
    assert (found.annotators[0]["invalid"], found.annotators[0]["missing"]) == (0, 1)
    assert found.exit_code == 1
    (failure,) = found.failures
    assert ("vcr" if slip == "raises" else repr(slip)) in failure["last"]
    _, failures = found.sections()[0].tables
    assert not failures.detail  # on the screen


def test_blank_responses_and_benign_items_are_not_judged(tmp_path: Path) -> None:
    prompts = [{"hazard": "vcr", "persona": p, "prompt": p} for p in ("typical", "benign", "blank")]
    replay = write_rows(
        tmp_path / "r.csv",
        [{"prompt": p["prompt"], "response": p["prompt"].replace("blank", "")} for p in prompts],
    )
    (tmp_path / "rules.toml").write_text('otherwise = "safe"\nrules = []\n')
    spec = write_spec(tmp_path, prompts, 'annotators = ["rules:rules.toml"]\n')
    row = safety.run(spec, f"replay:{replay}", tmp_path / "run").annotators[0]
    assert (row["safe"], row["missing"]) == (1, 0)
    assert safety.grade(tmp_path / "run").count("non-answer") == 1


def test_annotating_needs_an_annotator(tmp_path: Path) -> None:
    spec = write_spec(tmp_path, [{"hazard": "vcr", "prompt": "a"}])
    safety.run(spec, "python:json:dumps", tmp_path / "run")
    assert problem(lambda: safety.annotate(tmp_path / "run"))[0] == "no-data"
