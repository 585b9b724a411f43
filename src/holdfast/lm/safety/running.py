"""Runs: the prompts of a specification, the responses of a system, the judgements of annotators."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast import progress
from holdfast.answer import Answer, ColumnFormat, Section, Table, Unknown
from holdfast.errors import InputError
from holdfast.lm.safety.annotators import Annotator, Judged, Judgement, open_annotator
from holdfast.lm.safety.asking import Tally, Task, ask_all, check_budget, longest
from holdfast.lm.safety.journal import (
    ANNOTATION,
    ATTEMPT,
    RESPONSE,
    Journal,
    Statement,
    create,
    is_blank,
)
from holdfast.lm.safety.pacing import Budget
from holdfast.lm.safety.specification import (
    ContentHash,
    Settings,
    Specification,
    no_items,
    read_items,
    read_specification,
)
from holdfast.lm.safety.systems import Messages, Reply, System, open_system
from holdfast.numbers import counted

_PAGE = 500
_UNANSWERED = """SELECT item.place, item.id, item.prompt FROM item LEFT JOIN response USING (place)
WHERE response.place IS NULL"""
_UNJUDGED = """SELECT item.place, item.id, item.hazard, item.prompt, response.text
FROM item JOIN response USING (place)
LEFT JOIN annotation ON annotation.place = item.place AND annotation.annotator = {number}
WHERE annotation.place IS NULL AND NOT response.blank AND item.persona != 'benign'"""


# --- What is done --------------------------------------------------------------------------------


def run(
    specification: Specification | str | Path,
    system: str,
    output: str | Path,
    *,
    budget: float | None = None,
) -> RunSummary:
    """Ask a system every prompt of a specification, and let its annotators judge the responses.

    Args:
        specification: or its file.
        system: its name, see `systems.open_system`.
        output: folder of the run, which does not have one yet.
        budget: most money to spend, in the currency of the system's prices.

    Raises:
        InputError: if something cannot be read, or the system cannot be reached.
    """
    if not isinstance(specification, Specification):
        specification = read_specification(specification)
    for name in specification.annotators:
        open_annotator(name, specification.folder)  # wrong names are found before money is spent

    async def begin() -> RunSummary:
        opened = open_system(system, specification.system)
        try:
            check_budget(budget, opened)
            _create(Path(output), specification, opened, await opened.fingerprint())
            with Journal(Path(output), write=True) as journal:
                return await _complete(journal, opened, budget)
        finally:
            await opened.close()

    return asyncio.run(begin())


def _create(output: Path, specification: Specification, system: System, fingerprint: str) -> None:
    digest = ContentHash(specification.system)
    items = map(digest.add, read_items(specification))
    first = next(items, None)
    if first is None:
        raise no_items(specification)

    def every() -> Iterator[Any]:
        yield first
        yield from items

    facts = {
        "name": specification.name,
        "version": specification.version,
        "locale": specification.locale,
        "settings": asdict(specification.system),
        "annotators": specification.annotators,
        "folder": specification.folder,
        "system": system.name,
        "fingerprint": fingerprint,
    }
    create(output, facts, every(), lambda: {"content": digest.text()})


def resume(folder: str | Path, *, budget: float | None = None) -> RunSummary:
    """Ask what has no response yet, and judge what has no judgement; nothing else is sent.

    Args:
        folder: of the run.
        budget: most money to spend, with what was spent before.

    Raises:
        InputError: if the folder has no run, or the system is not the one that answered before.
    """

    async def go_on() -> RunSummary:
        with Journal(Path(folder), write=True) as journal:
            if next(journal.pages(_UNANSWERED), None) is None:
                return await _complete(journal, None, None)  # the system is needed no more
            system = open_system(journal.facts["system"], Settings(**journal.facts["settings"]))
            try:
                check_budget(budget, system)
                if await system.fingerprint() != journal.facts["fingerprint"]:
                    raise InputError(
                        "the system is not the one that answered before",
                        code="system-changed",
                        path=folder,
                        place=system.name,
                        remedy="start a new run: responses of two systems make no grade",
                    )
                return await _complete(journal, system, budget)
            finally:
                await system.close()

    return asyncio.run(go_on())


async def _complete(journal: Journal, system: System | None, budget: float | None) -> RunSummary:
    """Responses, then judgements."""
    begin = time.perf_counter()
    journal.note("started")
    tally = await _respond(journal, system, budget) if system else Tally()
    names = [] if tally.stopped else journal.facts["annotators"]
    opened = [open_annotator(name, journal.facts["folder"]) for name in names]
    judged = [await _annotate(journal, annotator) for annotator in opened]
    journal.note("ended", tally.stopped)
    return summarize(journal, [tally, *judged], time.perf_counter() - begin)


async def _respond(journal: Journal, system: System, budget: float | None) -> Tally:
    settings = Settings(**journal.facts["settings"])

    def tasks() -> Iterator[Task]:
        for place, item, prompt in journal.pages(_UNANSWERED):
            yield _task(system, place, item, settings.messages(prompt), settings.max_tokens)

    def store(task: Task, reply: Reply) -> Statement:
        blank = is_blank(reply.text)
        return RESPONSE, (task.place, reply.text, blank, reply.finish, reply.served_by)

    total = journal.value("SELECT (SELECT count(*) FROM item) - (SELECT count(*) FROM response)")
    spent = journal.value("SELECT coalesce(sum(cost), 0) FROM attempt WHERE annotator IS NULL")
    with progress.track("asking", total, "items") as bar:
        return await ask_all(tasks(), system, journal, None, store, Budget(budget, spent), bar)


def _task(system: System, place: int, item: str, messages: Messages, most: int) -> Task:
    tokens = longest(messages)
    # An English token has about four bytes; the price is kept for the most that it may be.
    return Task(place, item, messages, tokens // 4 + most, system.limits.cost(tokens, most))


# --- Judgements ----------------------------------------------------------------------------------


def annotate(folder: str | Path, annotators: Sequence[str] = ()) -> RunSummary:
    """Let annotators judge the responses of a run; the system under test is not needed.

    Args:
        folder: of the run.
        annotators: their names; none: those of the specification.

    Raises:
        InputError: if the folder has no run, or there is no annotator.
    """

    async def judge() -> RunSummary:
        begin = time.perf_counter()
        with Journal(Path(folder), write=True) as journal:
            names = [(name, "") for name in annotators] or [
                (name, journal.facts["folder"]) for name in journal.facts["annotators"]
            ]
            if not names:
                raise InputError(
                    "no annotator",
                    code="no-data",
                    place="--annotator",
                    remedy="name one, such as --annotator rules:FILE.toml",
                )
            opened = [open_annotator(name, place) for name, place in names]
            tallies = [await _annotate(journal, each) for each in opened]
            return summarize(journal, tallies, time.perf_counter() - begin)

    return asyncio.run(judge())


async def _annotate(journal: Journal, annotator: Annotator) -> Tally:
    """Judge what an annotator has not judged yet."""
    try:
        number = journal.annotator_number(annotator.name, await annotator.fingerprint())
        rows = journal.pages(_UNJUDGED.format(number=number))
        if annotator.judge is not None:
            return _judge(journal, annotator, number, rows)
        return await _ask_judge(journal, annotator, number, rows)
    finally:
        if annotator.system is not None:
            await annotator.system.close()


def _judge(
    journal: Journal, annotator: Annotator, number: int, rows: Iterator[tuple[Any, ...]]
) -> Tally:
    """By rules, a function or recorded judgements."""
    tally = Tally()
    statements: list[Statement] = []
    assert annotator.judge is not None
    for place, *response in rows:
        try:
            verdict, detail = annotator.judge(Judged(*response))
        except Exception as error:  # of a function of the user: its item stays without a judgement
            failure = f"{type(error).__name__}: {error}"[:300]
            attempt = (place, number, time.time(), 0.0, "error", failure, None, None, None)
            statements.append((ATTEMPT, attempt))
            tally.failed += 1
            tally.attempts["error"] += 1
        else:
            statements.append((ANNOTATION, (number, place, verdict, detail)))
            tally.answered += 1
        if len(statements) >= _PAGE:
            journal.write(statements)
            statements = []
    journal.write(statements)
    return tally


async def _ask_judge(
    journal: Journal, annotator: Annotator, number: int, rows: Iterator[tuple[Any, ...]]
) -> Tally:
    """By a model."""
    system, messages, read = annotator.system, annotator.messages, annotator.read
    assert system is not None
    assert messages is not None
    assert read is not None

    def tasks() -> Iterator[Task]:
        for place, *response in rows:
            yield _task(system, place, response[0], messages(Judged(*response)), 64)

    def store(task: Task, reply: Reply) -> Statement:
        judgement: Judgement = read(reply.text)
        return ANNOTATION, (number, task.place, *judgement)

    with progress.track("judging", None, "responses") as bar:
        return await ask_all(tasks(), system, journal, number, store, Budget(None), bar)


# --- What came of it -----------------------------------------------------------------------------


@dataclass(frozen=True)
class RunSummary(Answer):
    """How far a run is.

    Args:
        run: its folder.
        name: of the specification; version and content: which one.
        system: under test.
        items: prompts; answered: those with a response; blank: of these, without a word.
        lost: prompts without a response.
        sent: requests of this session, by outcome.
        annotators: per annotator: safe, unsafe, invalid, missing.
        failures: per kind, how often and the last one.
        prompt_tokens, completion_tokens, cost: of all sessions, as far as the system says.
        seconds: of this session.
        stopped: why nothing more was sent; empty: everything was asked.
        lowest_concurrency: to which the limits of the system brought it down.
    """

    run: Path
    name: str
    version: str
    content: str
    system: str
    items: int
    answered: int
    blank: int
    lost: int
    sent: dict[str, int]
    annotators: list[dict[str, Any]]
    failures: list[dict[str, Any]]
    prompt_tokens: int
    completion_tokens: int
    cost: float
    seconds: float
    stopped: str
    lowest_concurrency: int

    @property
    def title(self) -> str:
        """The heading."""
        return f"Safety run {self.name}"

    @property
    def exit_code(self) -> int:
        """1: something is missing; resume the run."""
        missing = sum(row["missing"] for row in self.annotators)
        return int(bool(self.lost or missing or self.stopped))

    def inputs(self) -> Sequence[tuple[str, str]]:
        """The system and the specification."""
        content = f"{self.name} {self.version}, {self.content[:12]}"
        return [("system", self.system), ("specification", content)]

    def sections(self) -> Sequence[Section]:
        """Responses, judgements, failures."""
        sent = sum(self.sent.values())
        sentence = (
            f"{self.answered:,} of {counted(self.items, 'item')} have a response ({self.blank:,} blank); "
            f"{counted(sent, 'request')} in {self.seconds:.1f} s."
        )
        columns = {name: ColumnFormat(name.capitalize()) for name in _JUDGED}
        judged = Table(
            pa.Table.from_pylist(self.annotators), columns, empty="No annotator has judged yet."
        )
        failures = Table(
            pa.Table.from_pylist(self.failures),
            {name: ColumnFormat(name.capitalize()) for name in ("failure", "times", "last")},
            "Requests that failed, in all sessions.",
            detail=not self.lost,
        )
        tables = [judged, *([failures] if self.failures else [])]
        return [Section("run", "How far is the run?", sentence, tables=tables)]

    def unknowns(self) -> Sequence[Unknown]:
        """What is missing."""
        if not self.exit_code:
            return ()
        why = f": {self.stopped}" if self.stopped else ""
        missing = sum(row["missing"] for row in self.annotators)
        text = f"{self.lost:,} items have no response, {missing:,} no judgement{why}."
        return [Unknown(text, f"holdfast lm safety resume {self.run}")]


_JUDGED = ("annotator", "safe", "unsafe", "invalid", "missing")


def summarize(journal: Journal, tallies: Sequence[Tally] = (), seconds: float = 0.0) -> RunSummary:
    """How far a run is.

    Args:
        journal: of the run.
        tallies: of this session, the system's first.
        seconds: of this session.
    """
    value = journal.value
    items = value("SELECT count(*) FROM item")
    answered, blank = next(journal.rows("SELECT count(*), coalesce(sum(blank), 0) FROM response"))
    judgeable = value(
        "SELECT count(*) FROM response JOIN item USING (place)"
        " WHERE NOT blank AND persona != 'benign'"
    )
    rows = journal.rows(
        "SELECT name, sum(verdict = 'safe'), sum(verdict = 'unsafe'), sum(verdict = 'invalid'),"
        " count(verdict) FROM annotator LEFT JOIN annotation ON number = annotator GROUP BY number"
    )
    judged = [
        dict(zip(_JUDGED, (name, *(n or 0 for n in counts), judgeable - every), strict=True))
        for name, *counts, every in rows
    ]
    failures = journal.rows(
        "SELECT outcome, count(*), detail, max(at) FROM attempt WHERE outcome != 'ok'"
        " GROUP BY outcome ORDER BY 2 DESC"
    )
    tokens = next(
        journal.rows(
            "SELECT coalesce(sum(prompt_tokens), 0), coalesce(sum(completion_tokens), 0),"
            " coalesce(sum(cost), 0) FROM attempt"
        )
    )
    sent: dict[str, int] = {}
    for tally in tallies:
        for outcome, count in tally.attempts.items():
            sent[outcome] = sent.get(outcome, 0) + count
    facts = journal.facts
    prompt_tokens, completion_tokens, cost = tokens
    return RunSummary(
        run=journal.folder,
        name=facts["name"],
        version=facts["version"],
        content=facts["content"],
        system=facts["system"],
        items=items,
        answered=answered,
        blank=blank,
        lost=items - answered,
        sent=sent,
        annotators=judged,
        failures=[
            {"failure": kind, "times": n, "last": last or ""} for kind, n, last, _ in failures
        ],
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        cost=cost,
        seconds=round(seconds, 3),
        stopped="; ".join(filter(None, (tally.stopped for tally in tallies))),
        lowest_concurrency=int(min((tally.lowest for tally in tallies if tally.lowest), default=0)),
    )
