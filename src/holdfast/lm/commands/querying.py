"""`holdfast lm query plan`, `search`, `sample`, `mass`, `count` and `many`."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.console import JsonOption, QuietOption, emit, remark, table
from holdfast.errors import InputError
from holdfast.lm.commands.options import (
    BatchOption,
    BudgetOption,
    Format,
    FormatOption,
    Method,
    ModelOption,
    StateOption,
    TokenizerOption,
    opened,
)
from holdfast.lm.query.queries import Query
from holdfast.numbers import counted, number, probability

UNANSWERED = 1
INTERRUPTED = 130


@dataclass(frozen=True)
class Records:
    """The answers to many questions."""

    records: tuple[dict[str, Any], ...]

    def to_dict(self) -> list[dict[str, Any]]:
        """The JSON of it."""
        return list(self.records)


if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from holdfast.lm.query.planning import Plan
    from holdfast.lm.query.results import Counts, Mass, Matches, Samples
    from holdfast.lm.tokenizers.tokenizer import Tokenizer


def plan(
    query: Query,
    tokenizer: TokenizerOption = None,
    svg: Annotated[
        Path | None,
        typer.Option(
            "--svg", metavar="FILE", help="Draw the token sequences, canonical ones coloured."
        ),
    ] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """What a query is before a model is asked: its texts, its automata, its prompts."""
    from holdfast.lm.query import planning

    vocabulary = _tokenizer(tokenizer, quiet)
    emit(planning.plan(query, vocabulary), as_json, _planned)
    if svg is not None:
        if vocabulary is None:
            raise InputError("a picture of token sequences needs --tokenizer", place="--svg")
        planning.draw(query, vocabulary, svg)
        remark(f"picture: {svg}", quiet)


def count(
    query: Query,
    tokenizer: TokenizerOption = None,
    longest: Annotated[
        int | None,
        typer.Option("--longest", metavar="N", min=0, help="Count token sequences up to N tokens."),
    ] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """How many texts match, and how many token sequences spell them: exact, or infinite."""
    from holdfast.lm.query import asking

    emit(asking.count(query, _tokenizer(tokenizer, quiet), longest), as_json, _counted)


def search(
    query: Query,
    model: ModelOption,
    n: Annotated[int, typer.Option("--n", metavar="N", min=1, help="How many texts.")] = 10,
    batch: BatchOption = 64,
    budget: BudgetOption = None,
    state: StateOption = None,
    form: FormatOption = Format.table,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """The most probable texts, in order, each once with all its encodings."""
    from holdfast.lm.commands.live import watching
    from holdfast.lm.query import asking

    asked = opened(model, quiet)
    with watching(quiet or as_json) as watch:
        found = asking.search(asked, query, n, batch=batch, budget=budget, state=state, watch=watch)
    rows = found.to_dict()
    _print(found, rows, ("text", "logprob", "encodings"), form, as_json, _matches)
    if not found.complete:
        remark(f"not complete: {found.stopped}", quiet)
    _end_if_interrupted(found.stopped)


def mass(
    query: Query,
    model: ModelOption,
    tol: Annotated[
        float,
        typer.Option(
            "--tol", metavar="GAP", min=0, help="Gap between the bounds at which to stop."
        ),
    ] = 1e-3,
    batch: BatchOption = 64,
    budget: BudgetOption = None,
    state: StateOption = None,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Write a page: how the bounds closed."),
    ] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Bounds of the probability that the model writes a text that matches."""
    from holdfast.lm.commands.live import watching
    from holdfast.lm.query import asking

    asked = opened(model, quiet)
    with watching(quiet or as_json) as watch:
        found = asking.mass(asked, query, tol, batch=batch, budget=budget, state=state, watch=watch)
    emit(found, as_json, _bounds)
    if html is not None:
        from holdfast.lm.query.pages import mass_page
        from holdfast.report import write

        remark(f"report: {write(mass_page(query, asked.name, found), html)}", quiet)
    _end_if_interrupted(found.stopped)


def sample(
    query: Query,
    model: ModelOption,
    n: Annotated[int, typer.Option("--n", metavar="N", min=1, help="How many samples.")] = 1000,
    seed: Annotated[int, typer.Option("--seed", help="The same seed gives the same samples.")] = 0,
    method: Annotated[
        Method,
        typer.Option(
            "--method",
            help="Masked token by token, resampled on the way, or exact (n-gram models).",
        ),
    ] = Method.auto,
    batch: BatchOption = 64,
    form: FormatOption = Format.table,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Texts as the model would write them, each with its weight."""
    from holdfast.lm.query import asking

    drawn = asking.sample(opened(model, quiet), query, n, seed, method=method.value, batch=batch)
    rows = [{"text": text, "share": share} for text, share in drawn.texts]
    _print(drawn, rows, ("text", "share"), form, as_json, _samples)
    _end_if_interrupted(drawn.stopped)


def many(
    questions: Annotated[
        Path, typer.Argument(metavar="FILE", help="Models and queries, a TOML file.")
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", metavar="FILE", help="One JSON line an answer; kept, and gone on from."
        ),
    ],
    processes: Annotated[
        int | None,
        typer.Option("--processes", metavar="N", min=1, help="Processes; all cores if not given."),
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option("--ray", metavar="URL", help="Ray cluster in the place of processes."),
    ] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Many queries to many models, side by side; what was answered before is not asked again."""
    from holdfast.lm.query.many import ask_many
    from holdfast.lm.query.questions import read_questions

    read = read_questions(questions)
    records = ask_many(
        read.models, read.queries, read.ask, read.options, processes=processes, ray=ray, out=out
    )
    emit(Records(tuple(records)), as_json, _asked)
    remark(f"answers: {out}", quiet)
    if any("error" in record for record in records):
        raise typer.Exit(UNANSWERED)


def _end_if_interrupted(stopped: str | None) -> None:
    """Ctrl-C: what was found is printed, and the exit code tells that it is not all."""
    if stopped == "interrupted":
        raise typer.Exit(INTERRUPTED)


# --- For people ----------------------------------------------------------------------------------


def _print(
    result: Any,
    rows: Iterable[Mapping[str, Any]],
    columns: Sequence[str],
    form: Format,
    as_json: bool,
    render: Any,
) -> None:
    """The answer as a table or JSON, or its rows as JSON lines or CSV."""
    if as_json or form is Format.table:
        emit(result, as_json, render)
        return
    if form is Format.jsonl:
        for row in rows:
            print(json.dumps(row, ensure_ascii=False))
        return
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    sys.stdout.write(out.getvalue())


def _tokenizer(name: str | None, quiet: bool) -> Tokenizer | None:
    if name is None:
        return None
    from holdfast.lm.tokenizers.loading import load_tokenizer

    made = load_tokenizer(name)
    for odd in made.remarks:
        remark(f"{name}: {odd}", quiet)
    return made


def _how_many(count: int | str | None) -> str:
    return count if isinstance(count, str) else number(count)


def _counted(found: Counts) -> Table:
    rows = [("texts", _how_many(found.strings))]
    if found.token_paths is not None:
        rows.append(("token sequences", _how_many(found.token_paths)))
    rows += [(f"of {counted(size, 'token')}", number(paths)) for size, paths in found.by_length]
    return table({"": "left", "count": "right"}, rows)


def _planned(found: Plan) -> Table:
    rows = [
        ("texts", _how_many(found.strings)),
        ("for example", ", ".join(map(repr, found.examples))),
        ("states of the byte automaton", number(found.states)),
        ("kinds of bytes", number(found.classes)),
    ]
    if found.canonical_by is not None:
        rows.append(("canonical by", found.canonical_by))
    for prompt in found.prompts:
        given = " ".join(map(repr, prompt.tokens)) or "nothing"
        if prompt.given:
            given += f", then tokens that spell {prompt.given!r}"
        rows.append((f"prefix {prompt.text!r}" if prompt.text else "no prefix", f"given {given}"))
        rows.append(("", counted(prompt.first_tokens, "token") + " may follow"))
    return table({"": "left", "query": "left"}, rows)


def _matches(found: Matches) -> Table:
    return table(
        {"": "right", "text": "left", "log probability": "right", "encodings": "right"},
        [
            (place, match.text, number(match.logprob, 4), number(match.encodings))
            for place, match in enumerate(found.found, 1)
        ],
        caption=f"mass [{probability(found.lower)}, {probability(found.upper)}], "
        f"{counted(found.cost.evaluations, 'evaluation')} for "
        f"{counted(found.cost.nodes, 'prefix', 'prefixes')}",
    )


def _bounds(found: Mass) -> Table:
    decoding = ", ".join(f"{name}={value}" for name, value in found.decoding.items())
    return table(
        {
            "event": "left",
            "lower": "right",
            "upper": "right",
            "evaluations": "right",
            "ended by": "left",
        },
        [
            (
                found.event,
                number(found.lower),
                number(found.upper),
                number(found.evaluations),
                found.stopped,
            )
        ],
        caption=f"of the model decoded with {decoding}" if decoding else "",
    )


def _samples(drawn: Samples) -> RenderableType:
    return table(
        {"text": "left", "share": "right"},
        [(text, number(share, 4)) for text, share in drawn.texts[:20]],
        caption=f"method {drawn.method}; mass {probability(drawn.mass)} ± {probability(drawn.mass_error)} "
        "(standard error); "
        f"effective sample size {number(drawn.effective, 0)} of {number(len(drawn.drawn))}",
    )


def _asked(asked: Records) -> Table:
    def cell(record: Mapping[str, Any]) -> str:
        answer = record.get("answer")
        if answer is None:
            return str(record["error"]).partition("\n")[0]
        if record["ask"] == "mass":
            return f"[{probability(answer['lower'])}, {probability(answer['upper'])}]"
        if record["ask"] == "count":
            return f"{_how_many(answer['strings'])} texts, {_how_many(answer['token_paths'])} sequences"
        return ", ".join(repr(match["text"]) for match in answer[:3]) or "none"

    return table(
        {"model": "left", "query": "left", "asked": "left", "answer": "left"},
        [(one["model"], one["name"], one["ask"], cell(one)) for one in asked.records],
    )
