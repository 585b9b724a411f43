"""How messages put things: values, names, and what was most likely meant by a word that is not known."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable
from typing import Any

from holdfast.data.croissant.document.model import Field, FileObject, FileSet, RecordSet

_MOST = 2000  # options that are looked through


def quoted(value: Any) -> str:
    """A JSON value as a message shows it: in its own syntax, shortened in the middle."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 90 else f"{text[:60]} ... {text[-20:]}"


def called(node: FileObject | FileSet | RecordSet | Field) -> str:
    """What a message calls a node: its class and id."""
    return f"{type(node).__name__} {quoted(node.id)}"


def bare(term: str) -> str:
    """A term without its prefix, as it is mostly written."""
    return term.partition(":")[2]


def and_others(number: int) -> str:
    """That so many more have the same fault; nothing of none."""
    return f" (and {number} more)" if number else ""


def did_you_mean(word: str, options: Iterable[str]) -> str:
    """The question after what was most likely meant; ``""`` where nothing is near."""
    return question(nearest(word, options))


def question(meant: str) -> str:
    """The question whether that was meant; ``""`` of nothing."""
    return f"Did you mean {quoted(meant)}?" if meant else ""


def nearest(word: str, options: Iterable[str]) -> str:
    """The option that is nearest to a word, or ``""``.

    First the same in another case, then the most alike of those that are the same up to the last slash,
    then the same after it, then the most alike of all.
    """
    folded: dict[str, str] = {}
    ends: dict[str, str] = {}
    for option in options:
        if option and len(folded) < _MOST:
            folded.setdefault(option.casefold(), option)
            ends.setdefault(option.rpartition("/")[2].casefold(), option)
    head, slash, end = word.casefold()[:200].rpartition("/")
    beside = {
        option.rpartition("/")[2]: meant
        for option, meant in folded.items()
        if slash and option.rpartition("/")[0] == head and meant != word
    }
    meant = folded.get(word.casefold()) or _alike(end, beside, 0.6) or ends.get(end)
    if meant is None or meant == word:
        meant = _alike(word.casefold()[:200], folded, 0.72)
    return "" if meant == word else meant or ""


def _alike(word: str, options: dict[str, str], cutoff: float) -> str | None:
    """What stands under the key that is most like a word."""
    close = difflib.get_close_matches(word, options, n=1, cutoff=cutoff)
    return options[close[0]] if close else None
