"""Tests and their results: the two JSON-lines formats of the pair test.

A *plan* is one object a test, as `plan` prints it:

    {"round": 1, "test": "r1-0001", "nodes": ["node1", "node2"], "why": "pair", "repeats": 1}

*Results* are one object an execution, appended when it is over and never changed:

=============== =======================================================================
``round``       of the plan
``test``        identifier in the plan; a triple that ran as two pairs has ``.1`` and ``.2``
``nodes``       the nodes that took part
``attempt``     1, 2, ...: repeats of one test
``outcome``     ``passed``, ``failed``, ``timed_out`` (it hung: counts as failed) or ``not_run``
                (the test could not start: says nothing of the nodes)
``exit_code``   of the command, 128 + number after a signal; null when it was stopped
``seconds``     how long it ran
``timed_out``   true: it was stopped at its time limit
``started_at``  UTC, ISO 8601
``command``     what was run
``template``    the same with its placeholders
``output_tail`` the end of what it printed
=============== =======================================================================

Only ``nodes`` and one of ``outcome``, ``exit_code`` and ``timed_out`` are needed, so that results of
other tools can be brought in.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from msgspec import Meta, convert

from holdfast.errors import InputError
from holdfast.lines import Reject, Rejects
from holdfast.runs.pairing.nodes import checked_name, is_stdin, read_input

Outcome = Literal["passed", "failed", "timed_out", "not_run"]

MOST_REJECTED = 0.1
"""Share of lines that may be unusable before a file of results is refused."""

Count = Annotated[int, Meta(ge=1)]
Nodes = Annotated[tuple[str, ...], Meta(min_length=2, max_length=3)]


@dataclass(frozen=True)
class PairTest:
    """One test of a plan: a command to be run on two (or three) nodes together."""

    round: Count
    test: str
    """Identifier, unique over all rounds: ``r2-0003``."""
    nodes: Nodes
    why: str = "pair"
    """``pair`` (everyone is paired), ``suspect`` (a suspect beside a good node), ``suspects`` (two suspects
    in a new combination), ``together`` and ``apart`` (to explain a contradiction), ``confirm`` (once
    more, to be surer)."""
    repeats: Count = 1
    """How often the command is run."""

    def to_dict(self) -> dict[str, Any]:
        """One line of a plan."""
        return {**asdict(self), "nodes": list(self.nodes)}


@dataclass(frozen=True)
class PairResult:
    """What one execution of a test showed; the fields are those of the format."""

    nodes: Nodes
    outcome: Outcome
    round: Count = 1
    test: str = ""
    attempt: Count = 1
    exit_code: int | None = None
    seconds: float | None = None
    started_at: str | None = None
    command: str = ""
    template: str = ""
    output_tail: str = ""

    @property
    def timed_out(self) -> bool:
        """It was stopped at its time limit."""
        return self.outcome == "timed_out"

    @property
    def failed(self) -> bool:
        """It ended badly or not at all: evidence against its nodes."""
        return self.outcome in ("failed", "timed_out")

    def to_dict(self) -> dict[str, Any]:
        """One line of results."""
        return {
            "round": self.round,
            "test": self.test,
            "nodes": list(self.nodes),
            "attempt": self.attempt,
            "outcome": self.outcome,
            "exit_code": self.exit_code,
            "seconds": self.seconds,
            "timed_out": self.timed_out,
            "started_at": self.started_at,
            "command": self.command,
            "template": self.template,
            "output_tail": self.output_tail,
        }


Record = TypeVar("Record", PairTest, PairResult)


@dataclass(frozen=True)
class Results(Sequence[PairResult]):
    """The results of a file, in its order, and the lines that are none."""

    rows: tuple[PairResult, ...]
    set_aside: tuple[Reject, ...] = ()
    path: Path | None = None

    def __getitem__(self, index: Any) -> Any:
        return self.rows[index]

    def __len__(self) -> int:
        return len(self.rows)


def line_of(record: PairTest | PairResult) -> str:
    """A record as a line of JSON, with its newline."""
    return json.dumps(record.to_dict(), ensure_ascii=False, allow_nan=False) + "\n"


def read_plan(path: str | Path) -> list[PairTest]:
    """Read the tests of a plan (``-``: standard input).

    Raises:
        InputError: if a line is not a test, an identifier occurs twice, or there are no tests.
    """
    tests: list[PairTest] = []
    seen: set[str] = set()
    for number, text in enumerate(_text(path).splitlines(), 1):
        if not text.strip():
            continue
        try:
            test = _test(text)
        except ValueError as error:
            raise InputError(
                f"invalid test: {error}",
                code="unknown-format",
                path=path,
                place=f"line {number}",
                found=text[:120],
                expected='{"round": 1, "test": "r1-0001", "nodes": ["node1", "node2"]}',
                remedy="write the plan with `holdfast runs pairtest plan`",
            ) from None
        if test.test in seen:
            raise InputError(
                f"the test {test.test!r} is there twice",
                code="duplicate",
                path=path,
                place=f"line {number}",
            )
        seen.add(test.test)
        tests.append(test)
    return tests


def read_results(path: str | Path) -> Results:
    """Read the results in a file (``-``: standard input).

    A last line truncated by a kill, and other invalid lines, are rejected.

    Raises:
        InputError: if more than a tenth of the lines (and more than one) are invalid.
    """
    rows: list[PairResult] = []
    aside = Rejects(Path(path), most=sys.maxsize)
    for number, text in enumerate(_text(path).split("\n"), 1):
        if not text.strip():
            continue
        try:
            rows.append(_result(text))
        except ValueError as error:
            aside.add(number, str(error), text)
    if aside.count > 1:
        expected = '{"nodes": ["node1", "node2"], "exit_code": 0, ...}'
        remedy = "give the file that `holdfast runs pairtest run -o` wrote"
        aside.check(len(rows) + aside.count, MOST_REJECTED, expected, remedy)
    return Results(tuple(rows), tuple(aside.rows), None if is_stdin(path) else Path(path))


def as_results(results: Iterable[PairResult] | str | Path) -> Results:
    """Results as given: a file's name, or results that are already read."""
    if isinstance(results, (str, Path)):
        return read_results(results)
    if isinstance(results, Results):
        return results
    return Results(tuple(results))


def renamed(test: PairTest, suffix: str, nodes: tuple[str, ...]) -> PairTest:
    """A part of a test: some of its nodes, with a separate identifier."""
    return replace(test, test=test.test + suffix, nodes=nodes)


def _text(path: str | Path) -> str:
    """The text of a file or of standard input; invalid UTF-8 is replaced."""
    try:
        return read_input(path).decode("utf-8", "replace")
    except FileNotFoundError:
        raise InputError("file not found", code="not-found", path=path) from None
    except OSError as error:
        raise InputError(
            f"this file cannot be read: {error.strerror}", code="unreadable", path=path
        ) from None


def _test(text: str) -> PairTest:
    record = _object(text)
    for key in ("round", "test"):
        if key not in record:
            raise ValueError(f"{key!r} is missing")
    return _of_nodes(convert(record, PairTest))


def _result(text: str) -> PairResult:
    record = _object(text)
    hung, code = record.get("timed_out") is True, record.get("exit_code")
    if "outcome" not in record and not hung and code is None:
        raise ValueError("neither 'outcome' nor 'exit_code' is there")
    told = "timed_out" if hung else "passed" if code == 0 else "failed"
    return _of_nodes(convert({"outcome": told, **record}, PairResult))


def _object(text: str) -> dict[str, Any]:
    """The fields of a record that say something."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("no JSON") from None
    if not isinstance(value, dict):
        raise ValueError("no JSON object")  # noqa: TRY004 - one kind of error for a bad line
    return {key: field for key, field in value.items() if field is not None}


def _of_nodes(record: Record) -> Record:
    for node in record.nodes:
        checked_name(node)
    if len(set(record.nodes)) < len(record.nodes):
        raise ValueError("'nodes' names a node twice")
    return record
