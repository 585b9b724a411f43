"""What the commands share: the options that make a query, the model, and the form of the answer."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.console import remark
from holdfast.lm.query.queries import Query

if TYPE_CHECKING:
    from holdfast.lm.models.protocol import LanguageModel


class Encodings(Enum):
    """Which token sequences count."""

    prefix_canonical = "prefix-canonical"
    all = "all"
    canonical = "canonical"


class Method(Enum):
    """How samples are drawn."""

    auto = "auto"
    local = "local"
    smc = "smc"
    exact = "exact"


class Format(Enum):
    """The form of the answer."""

    table = "table"
    jsonl = "jsonl"
    csv = "csv"


ModelOption = Annotated[
    str,
    typer.Option(
        "--model",
        metavar="MODEL",
        help="hf:DIR, ngram:FILE.arpa, gguf:FILE or openai:URL#NAME?tokenizer=...",
    ),
]
TokenizerOption = Annotated[
    str | None,
    typer.Option(
        "--tokenizer",
        metavar="TOKENIZER",
        help="gpt2:DIR, tiktoken:FILE, sentencepiece:FILE or hf:DIR.",
    ),
]
FormatOption = Annotated[
    Format,
    typer.Option("--format", help="A table for people, JSON lines or CSV for programs."),
]
BudgetOption = Annotated[
    int | None,
    typer.Option("--budget", metavar="N", min=1, help="Stop after N prefixes; bounds stay valid."),
]
BatchOption = Annotated[
    int, typer.Option("--batch", metavar="N", min=1, help="Prefixes given to the model together.")
]
StateOption = Annotated[
    Path | None,
    typer.Option(
        "--state",
        metavar="FILE",
        help="Keep the state of the search here; the same command again goes on from it.",
    ),
]

_QUERY = {
    "regex": Annotated[
        str,
        typer.Option(
            "--regex", metavar="REGEX", help="The whole texts, in RE2's syntax; & is and, ~ not."
        ),
    ],
    "prefix": Annotated[
        str | None,
        typer.Option(
            "--prefix", metavar="REGEX", help="How the texts start; given to the model, not asked."
        ),
    ],
    "encodings": Annotated[
        Encodings,
        typer.Option(
            "--encodings",
            help="Token sequences that count: canonical (what the tokenizer makes of the text), all of "
            "them, or all after a canonical prefix.",
        ),
    ],
    "top_k": Annotated[
        int | None,
        typer.Option("--top-k", metavar="K", help="Decode among the K most probable tokens only."),
    ],
    "top_p": Annotated[
        float | None,
        typer.Option(
            "--top-p", metavar="P", help="Decode among the most probable tokens up to mass P."
        ),
    ],
    "temperature": Annotated[
        float, typer.Option("--temperature", metavar="T", help="Temperature of decoding.")
    ],
    "edits": Annotated[
        int,
        typer.Option(
            "--edits",
            metavar="N",
            help="Also texts within N inserted, deleted or replaced characters.",
        ),
    ],
    "exclude": Annotated[
        str | None,
        typer.Option("--exclude", metavar="REGEX", help="Leave out texts that match this."),
    ],
    "eos": Annotated[
        bool,
        typer.Option(
            "--eos/--no-eos",
            help="The text, then its end (event exact); or whatever starts with it (event prefix).",
        ),
    ],
    "ignore_case": Annotated[
        bool, typer.Option("--ignore-case", help="Upper and lower case are the same.")
    ],
    "heal": Annotated[
        bool, typer.Option("--heal", help="Let a token span the end of the prefix (token healing).")
    ],
    "max_tokens": Annotated[
        int | None,
        typer.Option("--max-tokens", metavar="N", help="Follow no token sequence beyond N tokens."),
    ],
}


def opened(name: str, quiet: bool) -> LanguageModel:
    """The model of that name; what is odd about it is told."""
    from holdfast.lm.models.loading import load

    model = load(name)
    for odd in (*model.tokenizer.remarks, *getattr(model, "remarks", ())):
        remark(f"{name}: {odd}", quiet)
    return model


def asks(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of a query in the place of its parameter `query`."""
    signature = inspect.signature(command, eval_str=True)
    given = {one.name: one.default for one in fields(Query)}

    def run(**options: Any) -> Any:
        settings = {name: options.pop(name) for name in _QUERY}
        settings["encodings"] = settings["encodings"].value
        return command(query=Query(**settings), **options)

    parameters: list[inspect.Parameter] = []
    for one in signature.parameters.values():
        if one.name != "query":
            parameters.append(one.replace(kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        for name, annotation in _QUERY.items():
            default = inspect.Parameter.empty if given[name] is MISSING else given[name]
            parameters.append(
                inspect.Parameter(
                    name,
                    inspect.Parameter.KEYWORD_ONLY,
                    default=Encodings(default) if name == "encodings" else default,
                    annotation=annotation,
                )
            )
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run
