"""Runs: the prompts of a specification, the responses of a system, the judgements of annotators."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa

from holdfast import progress
from holdfast.answer import Answer, Section, Table, Unknown
from holdfast.command import option
from holdfast.config import read_config
from holdfast.errors import InputError
from holdfast.lm.safety.annotators import Annotator, Judge, Judged, open_annotator
from holdfast.lm.safety.asking import Tally, Task, ask_all, check_budget, longest
from holdfast.lm.safety.journal import ANNOTATION, ATTEMPT, RESPONSE, Journal, Statement, create
from holdfast.lm.safety.pacing import Budget
from holdfast.lm.safety.specification import Content, Specification, read_specification
from holdfast.lm.safety.systems import (
    REFUSED,
    Messages,
    Reply,
    System,
    answer_of,
    is_blank,
    open_system,
)
from holdfast.numbers import counted

Money = Annotated[float | None, option(metavar="AMOUNT", at_least=0)]
Rows = Iterator[tuple[Any, ...]]
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
            facts = {
                "specification": asdict(specification),
                "system": opened.name,
                "fingerprint": await opened.fingerprint(),
            }
            create(Path(output), facts, Content(specification))
            with Journal(Path(output), write=True) as journal:
                return await _complete(journal, opened, budget)
        finally:
            await opened.close()

    return asyncio.run(begin())


def _specification(journal: Journal) -> Specification:
    return read_config(journal.facts["specification"], Specification, "the test specification")


def resume(folder: str | Path, /, *, budget: Money = None) -> RunSummary:
    """Ask what has no response yet, and judge what has no judgement; nothing else is sent.

    Args:
        folder: Folder of the run.
        budget: Stop before the cost, with that of earlier sessions, passes AMOUNT.

    Raises:
        InputError: if the folder has no run, or the system is not the one that answered before.
    """

    async def go_on() -> RunSummary:
        with Journal(Path(folder), write=True) as journal:
            if next(journal.pages(_UNANSWERED), None) is None:
                return await _complete(journal, None, None)  # the system is needed no more
            system = open_system(journal.facts["system"], _specification(journal).system)
            try:
                check_budget(budget, system)
                if await system.fingerprint() != journal.facts["fingerprint"]:
                    raise InputError(
                        "the system is not the one that answered before",
                        code="system-changed",
                        path=folder,
                        place=system.name,
                        remedy="start a new run: responses of two systems cannot be graded together",
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
    judged = [] if tally.stopped else await _annotate_all(journal, _annotators(journal))
    journal.note("ended", tally.stopped)
    return summarize(journal, [tally, *judged], time.perf_counter() - begin)


async def _respond(journal: Journal, system: System, budget: float | None) -> Tally:
    settings = _specification(journal).system

    def tasks() -> Iterator[Task]:
        for place, item, prompt in journal.pages(_UNANSWERED):
            yield _task(system, place, item, settings.messages(prompt), settings.max_tokens)

    def store(task: Task, reply: Reply) -> Statement:
        blank = reply.finish == REFUSED or is_blank(answer_of(reply.text))
        response = (reply.text, blank, reply.finish, reply.served_by)
        return RESPONSE, (task.place, *response)

    total = journal.value("SELECT (SELECT count(*) FROM item) - (SELECT count(*) FROM response)")
    spent = journal.value("SELECT coalesce(sum(cost), 0) FROM attempt WHERE annotator IS NULL")
    with progress.track("asking", total, "items") as bar:
        return await ask_all(tasks(), system, journal, None, store, Budget(budget, spent), bar)


def _task(system: System, place: int, item: str, messages: Messages, most: int) -> Task:
    tokens = longest(messages)
    # An English token has about four bytes; the price is kept for the most that it may be.
    return Task(place, item, messages, tokens // 4 + most, system.limits.cost(tokens, most))


# --- Judgements ----------------------------------------------------------------------------------


def annotate(
    folder: str | Path,
    /,
    annotators: Annotated[Sequence[str], option("--annotator", metavar="NAME")] = (),
) -> RunSummary:
    """Let annotators judge the responses of a run; the system under test is not needed.

    Args:
        folder: Folder of the run.
        annotators: llama-guard-3:SYSTEM, judge:FILE.toml:SYSTEM, rules:FILE.toml, python:MODULE:FUNCTION
            or replay:FILE; may be given several times (default: those of the specification).

    Raises:
        InputError: if the folder has no run, or there is no annotator.
    """
    begin = time.perf_counter()
    with Journal(Path(folder), write=True) as journal:
        opened = [open_annotator(name) for name in annotators] or _annotators(journal)
        if not opened:
            remedy = "name one, such as --annotator rules:FILE.toml"
            raise InputError("no annotator", code="no-data", place="--annotator", remedy=remedy)
        tallies = asyncio.run(_annotate_all(journal, opened))
        return summarize(journal, tallies, time.perf_counter() - begin)


def _annotators(journal: Journal) -> list[Annotator]:
    """Those of the specification."""
    specification = _specification(journal)
    return [open_annotator(name, specification.folder) for name in specification.annotators]


async def _annotate_all(journal: Journal, annotators: Sequence[Annotator]) -> list[Tally]:
    """Judge what each annotator has not judged yet."""
    tallies = []
    for annotator in annotators:
        try:
            number = journal.annotator_number(annotator.name, await annotator.fingerprint())
            rows = journal.pages(_UNJUDGED.format(number=number))
            if annotator.judge is not None:
                tallies.append(await _judge(journal, annotator.judge, number, rows))
            else:
                tallies.append(await _ask_judge(journal, annotator, number, rows))
        finally:
            if annotator.system is not None:
                await annotator.system.close()
    return tallies


def _judged(item: str, hazard: str, prompt: str, text: str) -> Judged:
    """What an annotator sees: the answer, not the reasoning."""
    return Judged(item, hazard, prompt, answer_of(text))


async def _judge(journal: Journal, judge: Judge, number: int, rows: Rows) -> Tally:
    """By rules, a function or recorded judgements."""
    tally = Tally()
    statements: list[Statement] = []
    for place, *response in rows:
        try:
            verdict, detail = await judge(_judged(*response))
        except Exception as error:  # of a function of the user: its item stays without a judgement
            failure = f"{type(error).__name__}: {error}"[:300]
            attempt = (place, number, time.time(), 0.0, "error", failure, None, None, None)
            statements.append((ATTEMPT, attempt))
            tally.attempts["error"] += 1
        else:
            statements.append((ANNOTATION, (number, place, verdict, detail)))
        if len(statements) >= _PAGE:
            journal.write(statements)
            statements = []
    journal.write(statements)
    return tally


async def _ask_judge(journal: Journal, annotator: Annotator, number: int, rows: Rows) -> Tally:
    """By a model."""
    system, messages, read = annotator.system, annotator.messages, annotator.read
    assert system and messages and read  # noqa: PT018  # an annotator judges or asks

    def tasks() -> Iterator[Task]:
        for place, *response in rows:
            yield _task(system, place, response[0], messages(_judged(*response)), 64)

    def store(task: Task, reply: Reply) -> Statement:
        return ANNOTATION, (number, task.place, *read(reply.text))

    with progress.track("judging", None, "responses") as bar:
        return await ask_all(tasks(), system, journal, number, store, Budget(None), bar)


# --- What came of it -----------------------------------------------------------------------------


@dataclass(frozen=True)
class RunSummary(Answer):
    """How far a run is.

    Args:
        run: its folder; name, content: of its specification; system: under test.
        items: prompts; answered: those with a response; blank: of these, without a word; refused: of these,
            by a field of the answer or a content filter.
        lost: prompts without a response.
        sent: requests of this session, by outcome.
        annotators: per annotator: safe, unsafe, invalid, missing.
        failures: of all sessions: failure, times, last (what was met the last time), at (that time).
        prompt_tokens, completion_tokens, cost: of all sessions, as far as the system says.
        seconds: of this session.
        stopped: why nothing more was sent; empty: everything was asked.
        lowest_concurrency: to which the limits of the system brought it down.
    """

    run: Path
    name: str
    content: str
    system: str
    items: int
    answered: int
    blank: int
    refused: int
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
        return int(bool(self.unknowns()))

    def sections(self) -> Sequence[Section]:
        """Responses, judgements, failures."""
        sentence = (
            f"{self.answered:,} of {counted(self.items, 'item')} have a response "
            f"({self.blank:,} blank, {self.refused:,} refused); "
            f"{counted(sum(self.sent.values()), 'request')} in {self.seconds:.1f} s."
        )
        judged = Table(pa.Table.from_pylist(self.annotators), empty="No annotator has judged yet.")
        failures = Table(pa.Table.from_pylist(self.failures), detail=not self.unknowns())
        tables = [judged, *([failures] if self.failures else [])]
        return [Section("run", "How far is the run?", sentence, tables=tables)]

    def unknowns(self) -> Sequence[Unknown]:
        """What is missing."""
        missing = sum(row["missing"] for row in self.annotators)
        if not (self.lost or missing or self.stopped):
            return ()
        why = f": {self.stopped}" if self.stopped else ""
        text = f"{self.lost:,} items have no response, {missing:,} no judgement{why}."
        return [Unknown(text, f"holdfast lm safety resume {self.run}")]


def summarize(journal: Journal, tallies: Sequence[Tally] = (), seconds: float = 0.0) -> RunSummary:
    """How far a run is.

    Args:
        journal: of the run.
        tallies: of this session.
        seconds: of this session.
    """
    [responses] = journal.records(
        f"""SELECT count(*) AS items, count(text) AS answered, count(*) - count(text) AS lost,
        count(*) FILTER (WHERE blank AND finish != '{REFUSED}') AS blank,
        count(*) FILTER (WHERE finish = '{REFUSED}') AS refused
        FROM item LEFT JOIN response USING (place)"""
    )
    [used] = journal.records(
        """SELECT coalesce(sum(prompt_tokens), 0) AS prompt_tokens, coalesce(sum(cost), 0) AS cost,
        coalesce(sum(completion_tokens), 0) AS completion_tokens FROM attempt"""
    )
    return RunSummary(
        run=journal.folder,
        name=journal.facts["specification"]["name"],
        content=journal.facts["content"],
        system=journal.facts["system"],
        **responses,
        sent=dict(sum((tally.attempts for tally in tallies), Counter())),
        annotators=journal.records(
            """SELECT name AS annotator, count(*) FILTER (WHERE verdict = 'safe') AS safe,
            count(*) FILTER (WHERE verdict = 'unsafe') AS unsafe,
            count(*) FILTER (WHERE verdict = 'invalid') AS invalid,
            (SELECT count(*) FROM response JOIN item USING (place)
                WHERE NOT blank AND persona != 'benign') - count(verdict) AS missing
            FROM annotator LEFT JOIN annotation ON number = annotator GROUP BY number"""
        ),
        failures=journal.records(
            """SELECT outcome AS failure, count(*) AS times, coalesce(detail, '') AS last,
            strftime('%Y-%m-%d %H:%M:%SZ', max(at), 'unixepoch') AS at
            FROM attempt WHERE outcome != 'ok' GROUP BY outcome ORDER BY times DESC"""
        ),
        **used,
        seconds=round(seconds, 3),
        stopped="; ".join(filter(None, (tally.stopped for tally in tallies))),
        lowest_concurrency=int(min((tally.lowest for tally in tallies if tally.lowest), default=0)),
    )
