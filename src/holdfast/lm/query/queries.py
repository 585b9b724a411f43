"""A question to a language model: which texts, after which prefix, by which rule of decoding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Encodings = Literal["all", "canonical", "prefix-canonical"]
Event = Literal["exact", "prefix"]


@dataclass(frozen=True)
class Query:
    """The texts that match a regular expression, and how the model is to be read.

    `regex` describes the whole text, the prefix included. With `prefix`, texts start with a string of that
    language, which is given: probabilities are conditional on it, and several prefix strings are equally
    likely. A prefix of plain text is easier given as `prompt`.
    """

    regex: str
    prefix: str | None = None
    encodings: Encodings = "prefix-canonical"
    """Which token sequences count. ``prefix-canonical``: the prefix is given in the tokens that the
    tokenizer makes of it, and every sequence that spells what follows counts. ``all``: the prefix too
    is only a text, however it is encoded (without a prefix the same). ``canonical``: only the sequence
    that the tokenizer makes of the whole text."""
    top_k: int | None = None
    """Tokens outside the k most probable (end of text included) have probability 0, chosen before the
    regex masks any. This rule, `top_p` and `temperature` apply from the first token that starts after
    the prefix."""
    top_p: float | None = None
    temperature: float = 1.0
    edits: int = 0
    """Also texts within this many inserted, deleted or replaced characters (after the prefix)."""
    exclude: str | None = None
    """Texts that match this are left out."""
    eos: bool = False
    """False: the output starts with a text of the language, whatever follows (event ``prefix``).
    True: the output is a text of the language, then ends (event ``exact``)."""
    ignore_case: bool = False
    heal: bool = False
    """Take the last token of the prefix back, so that a token may span its end and what follows (token
    healing)."""
    max_tokens: int | None = None
    """Longest token sequence; the mass beyond it counts in the upper bound only."""
    messages: Sequence[Mapping[str, str]] | None = None
    """A conversation (``role`` and ``content`` of each message), given to the model in front of every text
    as the tokenizer's chat template writes it; the texts are the answer."""
    prefix_tokens: Sequence[int] = ()
    """Token ids given to the model in front of every text, BOS left out; no part of the texts."""
    prompt: str | None = None
    """Plain text in front of every text of `regex`, which then describes the rest: given, as the one
    string of a prefix is, and part of the texts that come back. Excludes `prefix`."""
    special_tokens: bool = False
    """Read special tokens in `prompt` and in `prefix`, such as ``<|im_start|>``, as those tokens. Otherwise
    they are plain text, as is right for text from untrusted sources."""

    @property
    def event(self) -> Event:
        """The event whose probability is meant."""
        return "exact" if self.eos else "prefix"

    def decoding(self) -> dict[str, Any]:
        """The rule of decoding, where it departs from the model's own distribution."""
        given = {"top_k": self.top_k, "top_p": self.top_p}
        given = {name: value for name, value in given.items() if value is not None}
        return given | ({"temperature": self.temperature} if self.temperature != 1 else {})
