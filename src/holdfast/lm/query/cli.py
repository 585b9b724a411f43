"""`holdfast lm query plan`, `search`, `sample`, `mass`, `count` and `many`."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from holdfast.command import (
    Answer,
    Count,
    Facts,
    Options,
    Output,
    Positive,
    common,
    option,
    room,
)
from holdfast.errors import InputError
from holdfast.lm.query.live import Notes, watching
from holdfast.lm.query.options import Model, QueryOptions, open_model
from holdfast.progress import remark

if TYPE_CHECKING:
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
    question, vocabulary = query.build(), _tokenizer(tokenizer)
    answer = planning.plan(question, vocabulary)
    if svg is None or vocabulary is None:
        return answer
    planning.draw(question, vocabulary, svg)
    return replace(answer, picture=svg)


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
        matches = asking.search(opened, query.build(), n, **vars(how), watch=watch).result()
    notes.show(matches.notes)
    return _rows(matches, matches.to_dict(), ROW, form)


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
    return _rows(drawn, rows, ("text", "share"), form)


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

    question, opened, notes = query.build(), open_model(model), Notes()
    with watching(notes) as watch:
        bounds = asking.mass(opened, question, tol, **vars(how), watch=watch)
    notes.show(bounds.notes)
    return bounds


@app.command
def count(
    *, query: QueryOptions, tokenizer: TokenizerName = None, longest: Count | None = None
) -> Answer:
    """Count the texts that match and the token sequences that spell them, exactly.

    Args:
        longest: Also count the token sequences of each length up to N tokens.
    """
    from holdfast.lm.query import asking

    return asking.count(query.build(), _tokenizer(tokenizer), longest)


@app.command
def many(
    questions: Path,
    /,
    *,
    out: Annotated[Output, option("--output", "-o", "--out", metavar="FILE")],
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
    from holdfast.lm.query.many import Records, ask_many
    from holdfast.lm.query.questions import read_questions

    read = read_questions(questions)
    records = ask_many(
        read.models, read.queries, read.ask, read.options, processes=processes, ray=ray, out=out
    )
    return Records(records, out)


def _rows(
    answer: Answer, rows: Iterable[Mapping[str, Any]], columns: Sequence[str], form: str
) -> Answer:
    """The answer; or its rows as JSON lines or CSV, and nothing more on the terminal."""
    if common().as_json or form == "table":
        return answer
    for gap in answer.unknowns():
        remark(gap.text)
    if form == "jsonl":
        for row in rows:
            print(json.dumps(row, ensure_ascii=False))
        return Facts(answer.to_dict(), answer.exit_code)
    writer = csv.DictWriter(sys.stdout, columns, lineterminator="\n")
    writer.writeheader()
    for row in rows:  # truth values as in JSON
        writer.writerow(
            {
                key: str(value).lower() if isinstance(value, bool) else value
                for key, value in row.items()
            }
        )
    return Facts(answer.to_dict(), answer.exit_code)


def _tokenizer(name: str | None) -> Tokenizer | None:
    if name is None:
        return None
    from holdfast.lm.tokenizers.loading import load_tokenizer

    tokenizer = load_tokenizer(name)
    for text in tokenizer.remarks:
        remark(f"{name}: {text}")
    return tokenizer
