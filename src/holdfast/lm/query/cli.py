"""`holdfast lm query plan`, `search`, `sample`, `mass`, `count` and `many`."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from holdfast.command import (
    Answer,
    Count,
    Options,
    Output,
    Positive,
    Printed,
    common,
    facts,
    option,
    room,
)
from holdfast.errors import InputError
from holdfast.lm.query.live import Notes, match_table, watching
from holdfast.lm.query.options import Model, QueryOptions, exit_code, open_model
from holdfast.numbers import bounds, counted, number, probability
from holdfast.progress import remark
from holdfast.report.terminal import table

if TYPE_CHECKING:
    from rich.table import Table

    from holdfast.answer import Page
    from holdfast.lm.query.planning import Plan
    from holdfast.lm.query.results import Counts, Mass, Matches, Samples
    from holdfast.lm.tokenizers.tokenizer import Tokenizer

app = room("query", "Query a model with regular expressions.")

TokenizerName = Annotated[
    str | None,
    option(
        "--tokenizer",
        metavar="TOKENIZER",
        help="Tokenizer: gpt2:DIR, tiktoken:FILE, sentencepiece:FILE or hf:DIR.",
    ),
]
Batch = Annotated[Positive, option(help="Prefixes per call of the model.")]
Format = Annotated[
    Literal["table", "jsonl", "csv"],
    option("--format", help="Output format: table, jsonl (JSON lines) or csv."),
]


@Options
@dataclass(frozen=True)
class SearchOptions:
    """How the model is called, and when a search ends."""

    batch: Batch = 64
    budget: Positive | None = None
    """Maximum number of evaluations, tokens that the model computes (default: 100,000)."""
    state: Annotated[Path | None, option(metavar="FILE")] = None
    """Save the search to FILE; rerun the command to resume."""


@app.command
def plan(
    *,
    query: QueryOptions,
    tokenizer: TokenizerName = None,
    svg: Annotated[Path | None, option(metavar="FILE")] = None,
) -> Answer:
    """Explain a query without running the model: languages, automata, prompts.

    Args:
        svg: Draw the token sequences to FILE; canonical ones in color.
    """
    from holdfast.lm.query import planning

    if svg is not None and tokenizer is None:
        raise InputError("--svg needs --tokenizer", code="conflict", place="--svg")
    asked, vocabulary = query.build(), _tokenizer(tokenizer)
    found = planning.plan(asked, vocabulary)
    if svg is None or vocabulary is None:
        return Printed(found, _planned)
    planning.draw(asked, vocabulary, svg)
    return Printed(found, _planned, wrote={"picture": svg})


@app.command
def search(
    *,
    query: QueryOptions,
    model: Model,
    n: Annotated[Positive, option("--n")] = 10,
    how: SearchOptions = SearchOptions(),
    form: Format = "table",
) -> Answer:
    """Find the most probable texts, in proven order, each once with all its encodings.

    Exit code 1 if the search stopped before the order was proven; such rows say proven: false.

    Args:
        n: Number of texts.
    """
    from holdfast.lm.query import asking
    from holdfast.lm.query.results import ROW

    opened, notes = open_model(model), Notes()
    with watching(notes) as watch:
        found = asking.search(opened, query.build(), n, **vars(how), watch=watch).result()
    notes.show(found.notes)
    code = exit_code(found.stopped, not found.complete)
    return _rows(found, found.to_dict(), ROW, form, _matches, code)


@app.command
def sample(
    *,
    query: QueryOptions,
    model: Model,
    n: Annotated[Positive, option("--n")] = 1000,
    seed: int = 0,
    method: Annotated[str, option(metavar="METHOD")] = "auto",
    batch: Batch = 64,
    form: Format = "table",
) -> Answer:
    """Draw texts that match, with importance weights that correct for masking.

    Without --eos a text ends as soon as it matches.

    Args:
        n: Number of samples.
        seed: Random seed (same seed, same samples).
        method: Sampling method: local (token by token, weighted), exact (n-gram models) or auto.
    """
    from holdfast.lm.query import asking

    drawn = asking.sample(open_model(model), query.build(), n, seed, method=method, batch=batch)  # type: ignore[arg-type]
    Notes().show(drawn.notes)
    rows = [{"text": text, "share": share} for text, share in drawn.texts]
    return _rows(drawn, rows, ("text", "share"), form, _samples, exit_code(drawn.stopped, False))


@app.command
def mass(
    *,
    query: QueryOptions,
    model: Model,
    tol: Annotated[float, option(metavar="GAP", at_least=0)] = 1e-3,
    how: SearchOptions = SearchOptions(),
) -> Answer:
    """Bound the probability that the output starts with (--eos: is) a text that matches.

    Args:
        tol: Stop when the bounds are this close.
    """
    from holdfast.lm.query import asking

    asked, opened, notes = query.build(), open_model(model), Notes()
    with watching(notes) as watch:
        found = asking.mass(opened, asked, tol, **vars(how), watch=watch)
    notes.show(found.notes)

    def page() -> Page:
        from holdfast.lm.query.pages import mass_page

        return mass_page(asked, opened.name, found)

    return Printed(
        found,
        _bounds,
        make_page=page,
        exit_code=exit_code(found.stopped, False),
    )


@app.command
def count(
    *, query: QueryOptions, tokenizer: TokenizerName = None, longest: Count | None = None
) -> Answer:
    """Count the texts that match and the token sequences that spell them, exactly.

    Args:
        longest: Also count the token sequences of each length up to N tokens.
    """
    from holdfast.lm.query import asking

    return Printed(asking.count(query.build(), _tokenizer(tokenizer), longest), _counted)


@app.command
def many(
    questions: Path,
    /,
    *,
    out: Annotated[Output, option("--out", "-o", metavar="FILE")],
    processes: Positive | None = None,
    ray: Annotated[str | None, option(metavar="URL")] = None,
) -> Answer:
    """Run many queries on many models in parallel; finished answers are reused.

    Exit code 1 if some query failed.

    Args:
        questions: TOML file of models and queries.
        out: Output file, one JSON object per answer; rerun to resume.
        processes: Number of worker processes (default: all cores).
        ray: Address of a Ray cluster to use instead of processes.
    """
    from holdfast.lm.query.many import ask_many
    from holdfast.lm.query.questions import read_questions

    read = read_questions(questions)
    records = ask_many(
        read.models, read.queries, read.ask, read.options, processes=processes, ray=ray, out=out
    )
    failed = any("error" in record for record in records)
    return Printed(list(records), _asked, wrote={"answers": out}, exit_code=int(failed))


# --- For people ----------------------------------------------------------------------------------


def _rows(
    result: Any,
    rows: Iterable[Mapping[str, Any]],
    columns: Sequence[str],
    form: str,
    render: Callable[[Any], Table],
    code: int,
) -> Answer:
    """The answer as a table or JSON; or its rows as JSON lines or CSV."""
    if common().as_json or form == "table":
        return Printed(result, render, exit_code=code)
    if form == "jsonl":
        for row in rows:
            print(json.dumps(row, ensure_ascii=False))
        return facts(result.to_dict(), code)
    writer = csv.DictWriter(sys.stdout, columns, lineterminator="\n")
    writer.writeheader()
    for row in rows:  # truth values as in JSON
        writer.writerow(
            {
                key: str(value).lower() if isinstance(value, bool) else value
                for key, value in row.items()
            }
        )
    return facts(result.to_dict(), code)


def _tokenizer(name: str | None) -> Tokenizer | None:
    if name is None:
        return None
    from holdfast.lm.tokenizers.loading import load_tokenizer

    tokenizer = load_tokenizer(name)
    for text in tokenizer.remarks:
        remark(f"{name}: {text}")
    return tokenizer


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
    return match_table(
        found.found,
        complete=found.complete,
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


def _samples(drawn: Samples) -> Table:
    return table(
        {"text": "left", "share": "right"},
        [(text, number(share, 4)) for text, share in drawn.texts[:20]],
        caption=f"method {drawn.method}; mass {probability(drawn.mass)} ± {probability(drawn.mass_error)} "
        f"(standard error); effective sample size {number(drawn.effective, 0)} of "
        f"{number(len(drawn.drawn))} for the mass",
    )


def _asked(records: list[dict[str, Any]]) -> Table:
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
        [(one["model"], one["name"], one["ask"], cell(one)) for one in records],
    )
