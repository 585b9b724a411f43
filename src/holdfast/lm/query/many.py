"""Run many queries on many models: each pair is a separate task, its answer stored in a file when done.

The file holds one JSON object per line: ``name``, ``model``, ``ask``, ``options`` and ``query`` (values
that differ from the defaults) identify the pair; ``answer`` is the result, or ``error`` the error. A pair
with an answer in the file is skipped. One that failed, or whose query, options or model changed, is run
again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from holdfast.answer import Answer, Section, Table
from holdfast.config import unknown_key
from holdfast.errors import HoldfastError, InputError
from holdfast.fanout import fan_out
from holdfast.files import Journal
from holdfast.lm.models.protocol import LanguageModel
from holdfast.lm.query.queries import Query
from holdfast.lm.query.results import how_many
from holdfast.numbers import bounds, counted
from holdfast.progress import track

Ask = Literal["mass", "search", "count"]
OPTIONS: Mapping[Ask, frozenset[str]] = {
    "mass": frozenset({"tol", "batch", "budget"}),
    "search": frozenset({"n", "batch", "budget"}),
    "count": frozenset({"longest"}),
}
"""Options of each question."""


@dataclass(frozen=True)
class Pair:
    """One query of one model."""

    name: str
    """Name of the query."""
    model: str
    """Model, as `load` accepts it."""
    query: Query
    ask: Ask
    options: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The question as JSON, as stored in a record."""
        changed = {
            one.name: getattr(self.query, one.name)
            for one in fields(Query)
            if one.name == "regex" or getattr(self.query, one.name) != one.default
        }
        return {
            "name": self.name,
            "model": self.model,
            "ask": self.ask,
            "options": dict(self.options),
            "query": changed,
        }


@dataclass(frozen=True)
class Records(Answer):
    """Answers to many questions."""

    records: list[dict[str, Any]]
    """As `ask_many` gives them."""
    out: Path

    def failed(self) -> int:
        """Questions that failed."""
        return sum("error" in record for record in self.records)

    @property
    def exit_code(self) -> int:
        """1 if some question failed."""
        return int(self.failed() > 0)

    def to_dict(self) -> list[dict[str, Any]]:
        """The records."""
        return self.records

    def written(self) -> Mapping[str, Path]:
        """The file of records."""
        return {"answers": self.out}

    def sections(self) -> Sequence[Section]:
        """Every question with its answer."""
        rows = [
            {
                "model": record["model"],
                "query": record["name"],
                "question": record["ask"],
                "answer": _in_words(record),
            }
            for record in self.records
        ]
        sentence = f"{counted(len(rows), 'question')}, {self.failed()} failed."
        table = Table(pa.Table.from_pylist(rows))
        return [Section("answers", "What did the models answer?", sentence, tables=[table])]


def _in_words(record: Mapping[str, Any]) -> str:
    """The answer of a record in a line."""
    answer = record.get("answer")
    if answer is None:
        return str(record["error"]).partition("\n")[0]
    if record["ask"] == "mass":
        return bounds(answer["lower"], answer["upper"])
    if record["ask"] == "count":
        return f"{how_many(answer['strings'])} texts, {how_many(answer['token_paths'])} sequences"
    texts = ", ".join(repr(match["text"]) for match in answer["matches"][:3]) or "none"
    return texts if answer["complete"] else f"{texts} (not complete: {answer['stopped']})"


def ask_many(
    models: Sequence[str],
    queries: Mapping[str, Query],
    ask: Ask = "mass",
    options: Mapping[str, Any] | None = None,
    *,
    processes: int | None = None,
    ray: str | None = None,
    out: Path | None = None,
) -> list[dict[str, Any]]:
    """Ask every query of every model.

    Args:
        models: names of models, as `load` takes them.
        queries: queries by name.
        ask: what is asked of each: its mass, its most probable texts, or how many texts it has.
        options: of the question: see `OPTIONS`.
        processes: of this machine; None: one for each processor. Each loads the models that it is given.
        ray: the address of a Ray cluster in place of processes, where the models have the same names.
        out: file of records that is written as answers arrive; what it holds already is not asked again.

    Returns:
        A record for each pair: models in the order given, and for each the queries. A pair that failed has
        ``error`` in place of ``answer``; the others are asked all the same. Only ``evaluations`` may depend
        on processes: a model that is asked twice remembers.

    Raises:
        InputError: if an option is not known, or `out` holds something else or is being written by another
            process.
        MissingExtraError: if Ray is asked for and not installed.
    """
    options = options or {}
    for option in options:
        if option not in OPTIONS[ask]:
            raise unknown_key(option, OPTIONS[ask], "options")
    pairs = [
        Pair(name, model, query, ask, options)
        for model in models
        for name, query in queries.items()
    ]
    with ExitStack() as stack:
        journal = stack.enter_context(Journal(out)) if out is not None else None
        known = dict(_records(journal)) if journal is not None else {}
        missing = [pair for pair in pairs if _key(pair.to_dict()) not in known]
        bar = stack.enter_context(track(f"asking {len(models)} models", len(missing), "questions"))
        for _, record in fan_out(missing, answered, processes=processes, ray=ray):
            if _interrupted(record):
                raise KeyboardInterrupt
            known[_key(record)] = record
            if journal is not None:
                journal.append((json.dumps(record, ensure_ascii=False) + "\n").encode())
            bar.advance(1)
    return [known[_key(pair.to_dict())] for pair in pairs]


def answered(pair: Pair) -> dict[str, Any]:
    """The record of one pair."""
    record = pair.to_dict()
    try:
        record["answer"] = _answer(_opened(pair.model), pair)
    except HoldfastError as error:
        record["error"] = str(error)
    except Exception as error:  # a bug in one answer must not cost the others
        record["error"] = f"{type(error).__name__}: {error}"
    return record


def _answer(model: LanguageModel, pair: Pair) -> dict[str, Any]:
    from holdfast.lm.query import asking

    if pair.ask == "count":
        return asking.count(pair.query, model.tokenizer, **pair.options).to_dict()
    if pair.ask == "mass":
        return asking.mass(model, pair.query, **pair.options).to_dict()
    found = asking.search(model, pair.query, **pair.options)
    return {
        "matches": found.to_dict(),
        "complete": found.complete,
        "lower": found.lower,
        "upper": found.upper,
        "evaluations": found.cost.evaluations,
        "stopped": found.stopped,
        "decoding": found.decoding,
    }


_last: dict[str, LanguageModel] = {}
"""The model that this process asked last: the pairs of a model follow each other."""


def _opened(name: str) -> LanguageModel:
    from holdfast.lm.models.loading import load

    if name not in _last:
        _last.clear()
        _last[name] = load(name)
    return _last[name]


def _interrupted(record: Mapping[str, Any]) -> bool:
    """Whether the user interrupted the query: its answer is not stored, and the run ends."""
    return (record.get("answer") or {}).get("stopped") == "interrupted"


# --- The file ------------------------------------------------------------------------------------


def _key(record: Mapping[str, Any]) -> str:
    """What must be equal for an answer to stand."""
    asked = {name: record.get(name) for name in ("name", "model", "ask", "options", "query")}
    return json.dumps(asked, sort_keys=True)


def _records(journal: Journal) -> Iterator[tuple[str, dict[str, Any]]]:
    """The records with an answer."""
    for number, line in enumerate(journal.lines(), 1):
        try:
            record = json.loads(line)
        except ValueError:
            record = None
        if not isinstance(record, dict) or not {"model", "query", "ask"} <= set(record):
            raise InputError(
                "not a record of an answer",
                code="damaged",
                path=journal.path,
                place=f"line {number}",
                found=repr(line[:60]),
                remedy="write the answers to a file of their own",
            )
        if "answer" in record:
            yield _key(record), record
