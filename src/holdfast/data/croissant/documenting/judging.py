"""Whether a text says something, and which texts a value holds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Literal

from holdfast.data.croissant.documenting.statements import Kind

_NOTHING = re.compile(
    r"(?:n\s*+/?+\s*+\.?a\.?|none|nil|null|unknown|undefined|unspecified|tb[adc]|to\s?do|fix\s?me|xxx+|\?+|-+|\.+"
    r"|to be (?:added|announced|confirmed|decided|defined|determined|done|filled in)"
    r"|not (?:applicable|available|known|provided|specified|stated)|no (?:information|answer|data)"
    r"|(?:more )?information needed|coming soon|lorem ipsum\b.*|place\s?holder"
    r"|<[^<>]*>|\[[^\[\]]*\]|\{[^{}]*\})",
    re.IGNORECASE,
)
_WORDS_OF_A_SENTENCE = 4

State = Literal["stated", "short", "placeholder", "empty"]


def judge(text: str, kind: Kind) -> State:
    """Whether a text says something.

    Returns:
        ``"empty"`` for white space, ``"placeholder"`` for words that stand in the place of an answer
        ("None", "TBD", "[More Information Needed]"), ``"short"`` for prose of fewer than four words.
    """
    bare = text.strip().strip("\"'*_").strip()
    if not bare:
        return "empty"
    if _NOTHING.fullmatch(bare.rstrip(".!") or bare):
        return "placeholder"
    if (
        kind == "prose"
        and len(re.findall(r"\w+", bare)) < _WORDS_OF_A_SENTENCE
        and not _is_dense(bare)
    ):
        return "short"
    return "stated"


def _is_dense(text: str) -> bool:
    """Whether the writing puts no spaces between words, so that words cannot be counted."""
    return sum("\u2e80" <= letter <= "\uffdc" for letter in text) >= 2 * _WORDS_OF_A_SENTENCE


def texts(value: Any) -> Iterator[str]:
    """The texts of a JSON value: plain, in a list, with a language, or as the name of a thing."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (int, float)):
        yield str(value)
    elif isinstance(value, list):
        for part in value:
            yield from texts(part)
    elif isinstance(value, dict):
        bare = {key.rpartition(":")[2]: part for key, part in value.items()}
        for key in ("@value", "@list", "@set", "itemListElement", "item"):
            if key in bare:
                yield from texts(bare[key])
                return
        said = [bare[key] for key in ("name", "description", "text", "url", "@id") if key in bare]
        if said:
            yield ": ".join(part for part in said[:2] if isinstance(part, str))
        else:  # a map of languages
            for key, part in bare.items():
                if not key.startswith("@"):
                    yield from texts(part)
