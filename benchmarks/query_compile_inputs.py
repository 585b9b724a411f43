"""Nine regular expressions such as guided decoding is asked for, vocabularies, and texts to try."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np

from holdfast.lm.query.regex.dfa import DEAD, ByteDfa
from holdfast.lm.tokenizers.loading import load_tokenizer
from holdfast.lm.tokenizers.tokenizer import Tokenizer

_OCTET = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
PATTERNS = {
    "date": "[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])",
    "time": "([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9])?( ?(AM|PM|am|pm))?",
    "IP address": rf"({_OCTET}\.){{3}}{_OCTET}",
    "SSN": "[0-9]{3}-[0-9]{2}-[0-9]{4}",
    "phone": r"(\+1 ?)?(\([0-9]{3}\) ?|[0-9]{3}[-. ])[0-9]{3}[-. ][0-9]{4}",
    "e-mail": r"[a-zA-Z0-9._%+-]+@[a-zA-Z0-9-]+(\.[a-zA-Z0-9-]+)*\.[a-zA-Z]{2,8}",
    "URL": r"https?://(www\.)?[a-zA-Z0-9-]+(\.[a-zA-Z0-9-]+)+(/[a-zA-Z0-9._~%-]*)*(\?[a-zA-Z0-9=&_-]*)?",
    "JSON-like": (
        r'\{ ?"name": ?"[^"\\\x00-\x1f]{1,40}", ?"age": ?[0-9]{1,3}, '
        r'?"tags": ?\[("[a-z]+"(, ?"[a-z]+")*)?\] ?\}'
    ),
    "long repetition": r"([A-Za-z]{1,20} ){1,10}[A-Za-z]{1,20}\.",
}
SMALL_LANGUAGES = ("(a|aa)", "(a|ab)(c|bcd)?", "a(cd)?", "(acd|a)")
"""Where it shows that a matcher takes the first alternative that fits, or stops where a text may end."""
VOCABULARIES = {"GPT-2": "gpt2:{}", "cl100k": "tiktoken:{}/cl100k_base.tiktoken"}


def vocabulary(name: str, folder: Path) -> Tokenizer:
    """One of `VOCABULARIES`, from the folder with the files."""
    return load_tokenizer(VOCABULARIES[name].format(folder))


def texts(dfa: ByteDfa, number: int, seed: int = 1) -> list[str]:
    """Texts of a language by random walks that prefer to end, and as many near misses of each kind."""
    chance = random.Random(seed)
    found: dict[str, None] = {}
    for _ in range(number):
        text = _walk(dfa, chance).decode()
        found[text] = None
        for miss in _misses(text, chance):
            found[miss] = None
    return list(found)


def _walk(dfa: ByteDfa, chance: random.Random) -> bytes:
    spelled, state = bytearray(), 0
    while True:
        # A class first, then a byte of it: else letters, which are many, would crowd out what ends a loop.
        # ASCII where there is a choice, so that texts stay readable.
        ahead = np.flatnonzero(dfa.next[state] != DEAD)
        if dfa.final[state] and (not len(ahead) or chance.random() < 0.2):
            return bytes(spelled)
        plain = np.intersect1d(ahead, dfa.classes[:128])
        label = chance.choice((plain if len(plain) and chance.random() < 0.95 else ahead).tolist())
        byte = int(chance.choice(np.flatnonzero(dfa.classes == label).tolist()))
        spelled.append(byte)
        state = int(dfa.next[state, label])


def _misses(text: str, chance: random.Random) -> list[str]:
    """One letter more, less, doubled, changed, or two exchanged."""
    if not text:
        return ["a"]
    at = chance.randrange(len(text))
    other = chance.choice('a0 .-@/"é')
    return [
        text[:at] + text[at + 1 :],
        text[:at] + other + text[at:],
        text[:at] + text[at] + text[at:],
        text[:at] + other + text[at + 1 :],
        text[:at] + text[at : at + 2][::-1] + text[at + 2 :],
        text[:at],
    ]
