"""Random regular expressions and texts, for comparisons with other engines."""

from __future__ import annotations

import random
import re

CHARACTERS = "abkAK1_- \né日😀ſß"
_MEMBERS = ("a-c", "A-Z", "0-9", "_", "é", "日-本", r"\d", r"\w", r"\s", r"\-", "k", r"\n")
_PLAIN_ATOMS = (".", r"\d", r"\W", r"\S", r"\w")
_RE2_ATOMS = (
    r"\p{L}",
    r"\P{Lu}",
    r"\p{Greek}",
    "[[:alpha:]]",
    r"[[:^space:]_]",
    r"\x{1F600}",
    r"\Qa.\E",
)
_COUNTS = ("*", "+", "?", "{2}", "{1,3}", "{2,}", "{0}", "*?", "+?", "{1,2}?")
_FLAGS = ("(?i:", "(?s:", "(?is-s:", "(?m:")
_ASSERTIONS = ("^", "$", r"\b", r"\B", r"\A", r"\z", "(?m:^)", "(?m:$)")


def text(rng: random.Random, longest: int = 5) -> str:
    """A short text of characters that patterns are likely to name."""
    return "".join(rng.choice(CHARACTERS) for _ in range(rng.randint(0, longest)))


def pattern(rng: random.Random, depth: int, *, re2: bool) -> str:
    """A pattern of the syntax that Python's `re` has as well, or of all that RE2 has."""
    kind = rng.random()
    if depth == 0 or kind < 0.3:
        atoms = [re.escape(rng.choice(CHARACTERS)), rng.choice("abk"), rng.choice(_PLAIN_ATOMS)]
        members = "".join(rng.choice(_MEMBERS) for _ in range(rng.randint(1, 3)))
        atoms.append(f"[{rng.choice(['', '^'])}{members}]")
        return rng.choice([*atoms, rng.choice(_RE2_ATOMS)] if re2 else atoms)
    inside = pattern(rng, depth - 1, re2=re2)
    if kind < 0.55:
        return inside + pattern(rng, depth - 1, re2=re2)
    if kind < 0.7:
        return f"(?:{inside}|{pattern(rng, depth - 1, re2=re2)})"
    if kind < 0.9 or not re2:
        return f"({inside}){rng.choice(_COUNTS)}"
    if kind < 0.95:
        return f"{rng.choice(_FLAGS)}{inside})"
    return rng.choice(_ASSERTIONS) + inside + rng.choice(["", "", *_ASSERTIONS])
