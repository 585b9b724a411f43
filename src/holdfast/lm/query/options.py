"""What the commands share: the options that make a query, the model, and how an answer ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from holdfast.command import Options, option
from holdfast.lm.query.queries import Encodings, Query
from holdfast.progress import remark

if TYPE_CHECKING:
    from holdfast.lm.models.protocol import LanguageModel

Model = Annotated[
    str,
    option(
        metavar="MODEL",
        help="Model: hf:DIR or hf:NAME, ngram:FILE.arpa, or openai:URL#NAME?tokenizer=...",
    ),
]
_REGEX = option(metavar="REGEX", allow_leading_hyphen=True)
_TEXT = option(metavar="TEXT", allow_leading_hyphen=True)


@Options
@dataclass(frozen=True)
class QueryOptions:
    """A query, as the command line asks it."""

    regex: Annotated[str, _REGEX]
    """Regular expression of the text (after --prompt: of the rest), in RE2 syntax; & is and, ~ is not."""
    prefix: Annotated[str | None, _REGEX] = None
    """Prefix of the text, a regular expression; used as context, not scored."""
    prompt: Annotated[str | None, _TEXT] = None
    """Plain text in front of the regex, which then describes the rest; not scored."""
    messages: Annotated[str | None, option(metavar="JSON|FILE")] = None
    """JSON list of messages (role, content) before the text, rendered by the tokenizer's chat template."""
    special_tokens: bool = False
    """Read special tokens in the prefix or prompt as tokens (default: as plain text)."""
    encodings: Encodings = "prefix-canonical"
    """Token sequences that count: the tokenizer's own (canonical), all, or all after a canonical prefix."""
    top_k: Annotated[int | None, option(metavar="K")] = None
    """Restrict decoding to the K most probable tokens."""
    top_p: Annotated[float | None, option(metavar="P")] = None
    """Restrict decoding to the most probable tokens of total probability P."""
    temperature: Annotated[float, option(metavar="T")] = 1.0
    """Temperature of decoding."""
    edits: Annotated[int, option(metavar="N")] = 0
    """Include texts within N inserted, deleted or replaced characters."""
    exclude: Annotated[str | None, _REGEX] = None
    """Exclude texts that match REGEX."""
    eos: Annotated[bool, option(negative="--no-eos")] = False
    """Require the model to end after the text (default: it may continue in any way)."""
    ignore_case: bool = False
    """Match upper and lower case alike."""
    heal: bool = False
    """Allow a token to span the end of the prefix (token healing)."""
    max_tokens: Annotated[int | None, option(metavar="N")] = None
    """Maximum number of tokens."""

    def build(self) -> Query:
        """The query."""
        messages = None
        if self.messages is not None:
            from holdfast.lm.tokenizers.chat import read_messages

            messages = read_messages(self.messages)
        return Query(**vars(self) | {"messages": messages})


def open_model(name: str) -> LanguageModel:
    """The model of that name; its remarks are printed."""
    from holdfast.lm.models.loading import load

    model = load(name)
    for text in (*model.tokenizer.remarks, *getattr(model, "remarks", ())):
        remark(f"{name}: {text}")
    return model
