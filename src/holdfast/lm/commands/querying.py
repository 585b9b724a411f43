"""`holdfast lm query plan`, `search`, `sample`, `mass`, `count` and `many`."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from holdfast.console import JsonOption, QuietOption, emit, remark, table
from holdfast.errors import InputError
from holdfast.lm.commands.live import Notes, watching
from holdfast.lm.commands.options import (
    INCOMPLETE,
    INTERRUPTED,
    BatchOption,
    BudgetOption,
    Format,
    FormatOption,
    ModelOption,
    StateOption,
    TokenizerOption,
    opened,
)
from holdfast.lm.query.queries import Query
from holdfast.numbers import bounds, counted, number, probability


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
            "--svg",
            metavar="FILE",
            help="Draw the token sequences to FILE; canonical ones in color.",
        ),
    ] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Explain a query without running the model: languages, automata, prompts."""
    from holdfast.lm.query import planning

    vocabulary = _tokenizer(tokenizer, quiet)
    emit(planning.plan(query, vocabulary), as_json, _planned)
    if svg is not None:
        if vocabulary is None:
            raise InputError("--svg needs --tokenizer", code="conflict", place="--svg")
        planning.draw(query, vocabulary, svg)
        remark(f"picture: {svg}", quiet)


def count(
    query: Query,
    tokenizer: TokenizerOption = None,
    longest: Annotated[
        int | None,
        typer.Option(
            "--longest",
            metavar="N",
            min=0,
            help="Also count the token sequences of each length up to N tokens.",
        ),
    ] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Count the texts that match and the token sequences that spell them, exactly."""
    from holdfast.lm.query import asking

    emit(asking.count(query, _tokenizer(tokenizer, quiet), longest), as_json, _counted)


def search(
    query: Query,
    model: ModelOption,
    n: Annotated[int, typer.Option("--n", metavar="N", min=1, help="Number of texts.")] = 10,
    batch: BatchOption = 64,
    budget: BudgetOption = None,
    state: StateOption = None,
    form: FormatOption = Format.table,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Find the most probable texts, in proven order, each once with all its encodings.

    Exit code 1 if the search stopped before the order was proven; such rows say proven: false.
    """
    from holdfast.lm.query import asking
    from holdfast.lm.query.results import ROW

    asked, notes = opened(model, quiet), Notes(quiet)
    with watching(quiet, as_json, notes) as watch:
        found = asking.search(
            asked, query, n, batch=batch, budget=budget, state=state, watch=watch
        ).result()
    _print(found, found.to_dict(), ROW, form, as_json, _matches)
    notes.show(found.notes)
    _end(found.stopped, incomplete=not found.complete, quiet=quiet)


def mass(
    query: Query,
    model: ModelOption,
    tol: Annotated[
        float,
        typer.Option("--tol", metavar="GAP", min=0, help="Stop when the bounds are this close."),
    ] = 1e-3,
    batch: BatchOption = 64,
    budget: BudgetOption = None,
    state: StateOption = None,
    html: Annotated[
        Path | None,
        typer.Option(
            "--html", metavar="FILE", help="Write an HTML report of how the bounds converged."
        ),
    ] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Bound the probability that the output starts with (--eos: is) a text that matches."""
    from holdfast.lm.query import asking

    asked, notes = opened(model, quiet), Notes(quiet)
    with watching(quiet, as_json, notes) as watch:
        found = asking.mass(asked, query, tol, batch=batch, budget=budget, state=state, watch=watch)
    emit(found, as_json, _bounds)
    notes.show(found.notes)
    if html is not None:
        from holdfast.lm.query.pages import mass_page
        from holdfast.report import write

        remark(f"report: {write(mass_page(query, asked.name, found), html)}", quiet)
    _end(found.stopped)


def sample(
    query: Query,
    model: ModelOption,
    n: Annotated[int, typer.Option("--n", metavar="N", min=1, help="Number of samples.")] = 1000,
    seed: Annotated[int, typer.Option("--seed", help="Random seed (same seed, same samples).")] = 0,
    method: Annotated[
        str,
        typer.Option(
            "--method",
            metavar="METHOD",
            help="Sampling method: local (token by token, weighted), exact (n-gram models) or auto.",
        ),
    ] = "auto",
    batch: BatchOption = 64,
    form: FormatOption = Format.table,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Draw texts that match, with importance weights that correct for masking.

    Without --eos a text ends as soon as it matches.
    """
    from holdfast.lm.query import asking

    drawn = asking.sample(opened(model, quiet), query, n, seed, method=method, batch=batch)  # type: ignore[arg-type]
    rows = [{"text": text, "share": share} for text, share in drawn.texts]
    _print(drawn, rows, ("text", "share"), form, as_json, _samples)
    Notes(quiet).show(drawn.notes)
    _end(drawn.stopped)


def many(
    questions: Annotated[
        Path, typer.Argument(metavar="FILE", help="TOML file of models and queries.")
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="Output file, one JSON object per answer; rerun to resume.",
        ),
    ],
    processes: Annotated[
        int | None,
        typer.Option(
            "--processes",
            metavar="N",
            min=1,
            help="Number of worker processes (default: all cores).",
        ),
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(
            "--ray", metavar="URL", help="Address of a Ray cluster to use instead of processes."
        ),
    ] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Run many queries on many models in parallel; finished answers are reused.

    Exit code 1 if some query failed.
    """
    from holdfast.lm.query.many import ask_many
    from holdfast.lm.query.questions import read_questions

    read = read_questions(questions)
    records = ask_many(
        read.models, read.queries, read.ask, read.options, processes=processes, ray=ray, out=out
    )
    emit(Records(tuple(records)), as_json, _asked)
    remark(f"answers: {out}", quiet)
    if any("error" in record for record in records):
        raise typer.Exit(INCOMPLETE)


def _end(stopped: str | None, incomplete: bool = False, quiet: bool = False) -> None:
    """The exit code says whether the printed answer is complete."""
    if incomplete:
        remark(f"not complete: {stopped}", quiet)
    if stopped == "interrupted":
        raise typer.Exit(INTERRUPTED)
    if incomplete:
        raise typer.Exit(INCOMPLETE)


# --- For people ----------------------------------------------------------------------------------


def _print(
    result: Any,
    rows: Iterable[Mapping[str, Any]],
    columns: Sequence[str],
    form: Format,
    as_json: bool,
    render: Any,
) -> None:
    """The answer as a table or JSON; or its rows as JSON lines or CSV."""
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
    for row in rows:  # truth values as in JSON
        writer.writerow(
            {
                key: str(value).lower() if isinstance(value, bool) else value
                for key, value in row.items()
            }
        )
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
        ("byte classes", number(found.classes)),
    ]
    if found.canonical_by is not None:
        rows.append(("canonical encodings by", found.canonical_by))
    for prompt in found.prompts:
        given = " ".join(map(repr, prompt.tokens)) or "nothing"
        if prompt.given:
            given += f", then tokens that spell {prompt.given!r}"
        rows.append((f"prefix {prompt.text!r}" if prompt.text else "no prefix", f"given {given}"))
        rows.append(("", counted(prompt.first_tokens, "token") + " may follow"))
    return table({"": "left", "query": "left"}, rows)


def _matches(found: Matches) -> Table:
    unsure = "" if found.complete else f"not complete ({found.stopped}): "
    unsure += "" if found.complete else f"{found.proven} of {len(found.found)} texts proven\n"
    columns: dict[str, Literal["left", "right"]] = {
        "": "right",
        "text": "left",
        "log probability": "right",
        "encodings seen": "right",
    }
    return table(
        columns if found.complete else columns | {"proven": "left"},
        [
            (
                place,
                match.text,
                number(match.logprob, 4),
                number(match.encodings_seen),
                *(() if found.complete else ("yes" if match.proven else "no",)),
            )
            for place, match in enumerate(found.found, 1)
        ],
        caption=f"{unsure}mass {bounds(found.lower, found.upper)}, "
        f"{counted(found.cost.evaluations, 'evaluation')} for "
        f"{counted(found.cost.nodes, 'prefix', 'prefixes')}",
    )


def _exactly(value: float) -> str:
    """Four significant digits; what is below 1 never reads as 1."""
    return probability(value) if 0.9995 <= value < 1 else number(value)


def _bounds(found: Mass) -> Table:
    decoding = ", ".join(f"{name}={value}" for name, value in found.decoding.items())
    return table(
        {
            "event": "left",
            "lower": "right",
            "upper": "right",
            "evaluations": "right",
            "stopped by": "left",
        },
        [
            (
                found.event,
                _exactly(found.lower),
                _exactly(found.upper),
                number(found.evaluations),
                found.stopped,
            )
        ],
        caption=f"decoding: {decoding}" if decoding else "",
    )


def _samples(drawn: Samples) -> RenderableType:
    return table(
        {"text": "left", "share": "right"},
        [(text, number(share, 4)) for text, share in drawn.texts[:20]],
        caption=f"method {drawn.method}; mass {probability(drawn.mass)} ± {probability(drawn.mass_error)} "
        f"(standard error); effective sample size {number(drawn.effective, 0)} of "
        f"{number(len(drawn.drawn))} for the mass",
    )


def _asked(asked: Records) -> Table:
    def cell(record: Mapping[str, Any]) -> str:
        answer = record.get("answer")
        if answer is None:
            return str(record["error"]).partition("\n")[0]
        if record["ask"] == "mass":
            return bounds(answer["lower"], answer["upper"])
        if record["ask"] == "count":
            return f"{_how_many(answer['strings'])} texts, {_how_many(answer['token_paths'])} sequences"
        texts = ", ".join(repr(match["text"]) for match in answer["matches"][:3]) or "none"
        return texts if answer["complete"] else f"{texts} (not complete: {answer['stopped']})"

    return table(
        {"model": "left", "query": "left", "question": "left", "answer": "left"},
        [(one["model"], one["name"], one["ask"], cell(one)) for one in asked.records],
    )
