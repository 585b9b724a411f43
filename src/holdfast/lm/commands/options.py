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


INCOMPLETE = 1
"""Exit code of a command whose answer is not complete."""
INTERRUPTED = 130


class Encodings(Enum):
    """Which token sequences count."""

    prefix_canonical = "prefix-canonical"
    all = "all"
    canonical = "canonical"


class Format(Enum):
    """Output format."""

    table = "table"
    jsonl = "jsonl"
    csv = "csv"


ModelOption = Annotated[
    str,
    typer.Option(
        "--model",
        metavar="MODEL",
        help="Model: hf:DIR or hf:NAME, ngram:FILE.arpa, or openai:URL#NAME?tokenizer=...",
    ),
]
TokenizerOption = Annotated[
    str | None,
    typer.Option(
        "--tokenizer",
        metavar="TOKENIZER",
        help="Tokenizer: gpt2:DIR, tiktoken:FILE, sentencepiece:FILE or hf:DIR.",
    ),
]
FormatOption = Annotated[
    Format, typer.Option("--format", help="Output format: table, jsonl (JSON lines) or csv.")
]
BudgetOption = Annotated[
    int | None,
    typer.Option(
        "--budget",
        metavar="N",
        min=1,
        help="Maximum number of evaluations, tokens that the model computes (default: 100,000).",
    ),
]
BatchOption = Annotated[
    int, typer.Option("--batch", metavar="N", min=1, help="Prefixes per call of the model.")
]
StateOption = Annotated[
    Path | None,
    typer.Option(
        "--state", metavar="FILE", help="Save the search to FILE; rerun the command to resume."
    ),
]

_QUERY = {
    "regex": Annotated[
        str,
        typer.Option(
            "--regex",
            metavar="REGEX",
            help="Regular expression of the whole text (after --prompt: of the rest), in RE2 syntax; "
            "& is and, ~ is not.",
        ),
    ],
    "prefix": Annotated[
        str | None,
        typer.Option(
            "--prefix",
            metavar="REGEX",
            help="Prefix of the text, a regular expression; used as context, not scored.",
        ),
    ],
    "prompt": Annotated[
        str | None,
        typer.Option(
            "--prompt",
            metavar="TEXT",
            help="Plain text in front of the regex, which then describes the rest; not scored.",
        ),
    ],
    "messages": Annotated[
        str | None,
        typer.Option(
            "--messages",
            metavar="JSON|FILE",
            help="Conversation in front of the text, rendered with the tokenizer's chat template: "
            "a JSON list of objects with role and content.",
        ),
    ],
    "special_tokens": Annotated[
        bool,
        typer.Option(
            "--special-tokens",
            help="Read special tokens in the prefix or prompt as tokens (default: as plain text).",
        ),
    ],
    "encodings": Annotated[
        Encodings,
        typer.Option(
            "--encodings",
            help="Token sequences that count: canonical (the tokenizer's own encoding), all, "
            "or all after a canonical prefix.",
        ),
    ],
    "top_k": Annotated[
        int | None,
        typer.Option(
            "--top-k", metavar="K", help="Restrict decoding to the K most probable tokens."
        ),
    ],
    "top_p": Annotated[
        float | None,
        typer.Option(
            "--top-p",
            metavar="P",
            help="Restrict decoding to the most probable tokens of total probability P.",
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
            help="Include texts within N inserted, deleted or replaced characters.",
        ),
    ],
    "exclude": Annotated[
        str | None,
        typer.Option("--exclude", metavar="REGEX", help="Exclude texts that match REGEX."),
    ],
    "eos": Annotated[
        bool,
        typer.Option(
            "--eos/--no-eos",
            help="Require the model to end after the text (default: it may continue in any way).",
        ),
    ],
    "ignore_case": Annotated[
        bool, typer.Option("--ignore-case", help="Match upper and lower case alike.")
    ],
    "heal": Annotated[
        bool,
        typer.Option("--heal", help="Allow a token to span the end of the prefix (token healing)."),
    ],
    "max_tokens": Annotated[
        int | None, typer.Option("--max-tokens", metavar="N", help="Maximum number of tokens.")
    ],
}


def opened(name: str, quiet: bool) -> LanguageModel:
    """The model of that name; its remarks are printed."""
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
        if settings["messages"] is not None:
            from holdfast.lm.tokenizers.chat import read_messages

            settings["messages"] = read_messages(settings["messages"])
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
