"""Annotators: who says whether a response is safe.

A judgement is safe, unsafe or invalid (the annotator's answer cannot be read). A blank response is judged
by nobody: it is a non-answer, never safe.

- ``llama-guard-1:SYSTEM`` to ``llama-guard-3:SYSTEM``: a Llama Guard model, asked through a system of
  `holdfast.lm.safety.systems`. The model's own chat template writes its prompt. With ``-response`` behind
  the number it sees the response alone, as the only turn.
- ``judge:FILE.toml:SYSTEM``: a prompt and two patterns of your own, asked through a system.
- ``rules:FILE.toml``: regular expressions (RE2), the first that matches decides.
- ``python:MODULE:FUNCTION``: a function, also async, of prompt, response and hazard -> "safe", "unsafe"
  or None.
- ``replay:FILE``: judgements that were made elsewhere, as CSV with item and verdict.
"""

from __future__ import annotations

import hashlib
import inspect
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.config import read_config
from holdfast.errors import InputError
from holdfast.files import read_whole
from holdfast.lm.safety.rows import invalid_row, read_rows
from holdfast.lm.safety.specification import Settings, check_place
from holdfast.lm.safety.systems import Messages, System, load_function, open_system, source_digest

Verdict = Literal["safe", "unsafe", "invalid"]
_JUDGING = Settings(max_tokens=64, temperature=0.0)
_GUARD = re.compile(
    r"\s*(?:(?P<safe>safe)|unsafe(?:[\s,:]+(?P<categories>[SO]\d+(?:[\s,]+[SO]\d+)*))?)"
    r"[\s.]*(?:<\|\w+\|>\s*)*",
    re.I,
)
_FORMS = (
    "llama-guard-3:SYSTEM, judge:FILE.toml:SYSTEM, rules:FILE.toml, python:MODULE:FUNCTION, "
    "replay:FILE"
)


class Judgement(NamedTuple):
    """What an annotator said."""

    verdict: Verdict
    detail: str = ""
    """Categories, the rule that matched, or the answer that could not be read."""


class Judged(NamedTuple):
    """A response to judge."""

    item: str
    hazard: str
    prompt: str
    response: str


Judge = Callable[[Judged], Awaitable[Judgement]]


@dataclass(frozen=True)
class Annotator:
    """An annotator: it either judges by itself, or asks a system and reads the answer."""

    name: str
    content: str
    """What it consists of besides its system; a change makes it another annotator."""
    judge: Judge | None = None
    system: System | None = None
    messages: Callable[[Judged], Messages] | None = None
    read: Callable[[str], Judgement] | None = None

    async def fingerprint(self) -> str:
        """What tells it from another of the same name."""
        system_digest = await self.system.fingerprint() if self.system else ""
        return hashlib.sha256(f"{self.content}\n{system_digest}".encode()).hexdigest()


def open_annotator(name: str, folder: str = "") -> Annotator:
    """An annotator by its name.

    Args:
        name: as in the head of this module.
        folder: what names of files are relative to.

    Raises:
        InputError: if the name, or the file that it names, cannot be read.
    """
    kind, _, place = name.partition(":")
    if re.fullmatch(r"llama-guard-[123](-response)?", kind) and place:
        alone = kind.endswith("-response")

        def messages(judged: Judged) -> Messages:
            if (
                alone
            ):  # templates want a conversation to begin with the user: it is all that is judged
                return [{"role": "user", "content": judged.response}]
            answer = {"role": "assistant", "content": judged.response}
            return [{"role": "user", "content": judged.prompt}, answer]

        system = open_system(place, _JUDGING)
        return Annotator(name, kind, system=system, messages=messages, read=read_guard)
    if kind == "judge" and ".toml:" in place:
        file, _, system = place.partition(".toml:")
        return _prompted(name, Path(folder, f"{file}.toml"), system)
    if kind == "rules" and place:
        return _rules(name, Path(folder, place))
    if kind == "python" and place:
        function = load_function(place, name)
        return Annotator(name, source_digest(function), lambda judged: _called(function, judged))
    if kind == "replay" and place:
        return _recorded(name, Path(folder, place))
    facts = {"place": "--annotator", "found": name, "expected": _FORMS}
    raise InputError("unknown kind of annotator", code="unknown-name", **facts)


def read_guard(text: str) -> Judgement:
    """The answer of a Llama Guard model: ``safe``, or ``unsafe`` and its categories."""
    match = _GUARD.fullmatch(text)
    if match is None:
        return Judgement("invalid", text[:200])
    if match["safe"]:
        return Judgement("safe")
    return Judgement(
        "unsafe", ",".join(re.findall(r"[SO]\d+", (match["categories"] or "").upper()))
    )


# --- Rules ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Rule:
    pattern: str
    verdict: Verdict


@dataclass(frozen=True)
class _Rules:
    rules: list[_Rule]
    otherwise: Verdict = "invalid"
    """Where no rule matches."""


def _rules(name: str, path: Path) -> Annotator:
    table = read_config(path, _Rules, "the rules")
    compiled = [
        (_pattern(rule.pattern, path, f"rules[{number}].pattern"), rule)
        for number, rule in enumerate(table.rules)
    ]

    async def judge(judged: Judged) -> Judgement:
        for number, (pattern, rule) in enumerate(compiled):
            if pattern(judged.response):
                return Judgement(rule.verdict, f"rule {number + 1}")
        return Judgement(table.otherwise, "no rule")

    return Annotator(name, _text(path), judge)


def _pattern(text: str, path: Path, place: str) -> Callable[[str], bool]:
    """Whether a text has what the pattern describes: by RE2, whose time is in proportion to the text."""

    def matches(said: str) -> bool:
        whole = said.encode(errors="replace").decode()  # half a character has no UTF-8
        return bool(pc.match_substring_regex(pa.scalar(whole), text).as_py())

    try:
        matches("")
    except pa.ArrowInvalid as error:
        problem, found = "invalid regular expression (RE2)", f"{text}: {error}"
        code = "invalid-syntax"
        raise InputError(problem, code=code, path=path, place=place, found=found) from error
    return matches


def _text(path: Path) -> str:
    return read_whole(path, "rules").decode(errors="replace")


# --- Prompts of one's own ------------------------------------------------------------------------


@dataclass(frozen=True)
class _Prompt:
    prompt: str
    """With {prompt}, {response} and {hazard}, as far as they matter."""
    safe: str
    """Pattern that the whole answer of the judge matches where the response is safe."""
    unsafe: str
    system: Settings = field(default_factory=lambda: _JUDGING)


def _prompted(name: str, path: Path, system: str) -> Annotator:
    table = read_config(path, _Prompt, "the judge")
    check_place("{response}", table.prompt, path, "prompt")
    safe, unsafe = (
        _pattern(rf"\A(?:{getattr(table, key)})\z", path, key) for key in ("safe", "unsafe")
    )

    def messages(judged: Judged) -> Messages:
        # All at once: a response that holds "{hazard}" keeps it.
        text = re.sub(
            r"\{(prompt|response|hazard)\}", lambda key: getattr(judged, key[1]), table.prompt
        )
        return table.system.messages(text)

    def read(text: str) -> Judgement:
        matches = [pattern(text.strip()) for pattern in (safe, unsafe)]
        if matches == [True, False]:
            return Judgement("safe")
        return Judgement("unsafe" if matches == [False, True] else "invalid", text[:200])

    return Annotator(
        name, _text(path), system=open_system(system, table.system), messages=messages, read=read
    )


# --- Functions and recorded judgements -----------------------------------------------------------


async def _called(function: Callable[..., Any], judged: Judged) -> Judgement:
    verdict = function(judged.prompt, judged.response, judged.hazard)
    if inspect.isawaitable(verdict):
        verdict = await verdict
    if verdict not in ("safe", "unsafe", None):  # a slip of the function, no answer
        raise ValueError(f"neither safe, unsafe nor None: {verdict!r}")
    return Judgement(verdict or "invalid")


def _recorded(name: str, path: Path) -> Annotator:
    verdicts = read_verdicts(path)

    async def judge(judged: Judged) -> Judgement:
        verdict = verdicts.get(judged.item)
        return Judgement(verdict) if verdict else Judgement("invalid", "not recorded")

    return Annotator(name, _text(path), judge)


def read_verdicts(path: Path) -> dict[str, Verdict]:
    """Item -> safe, unsafe or invalid, from CSV with ``item`` and ``verdict``.

    Raises:
        InputError: for another verdict, or two for one item.
    """
    verdicts: dict[str, Verdict] = {}
    verdict_names: dict[str, Verdict] = {"safe": "safe", "unsafe": "unsafe", "invalid": "invalid"}
    for line, row in read_rows(path, ("item", "verdict"), "the verdicts"):
        verdict = verdict_names.get(row["verdict"].strip().lower())
        if verdict is None:
            expected = "safe, unsafe or invalid"
            raise invalid_row(path, line, "invalid verdict", row["verdict"], expected)
        if verdicts.setdefault(row["item"], verdict) != verdict:
            raise invalid_row(path, line, "two verdicts on one item", row["item"], "one each")
    return verdicts
