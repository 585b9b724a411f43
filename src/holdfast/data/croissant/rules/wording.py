"""How messages put things: values, names, and what was most likely meant by a word that is not known."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable
from itertools import islice
from typing import Any

from holdfast.data.croissant.document.model import Field, FileObject, FileSet, RecordSet

_MOST = 2000  # options that are looked through
_ALIKE = 0.72


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
    """The option that is most like a word, whatever their case; ``""`` if none is."""
    folded = {option.casefold(): option for option in islice(filter(None, options), _MOST)}
    close = difflib.get_close_matches(word.casefold()[:200], folded, n=1, cutoff=_ALIKE)
    return folded[close[0]] if close and folded[close[0]] != word else ""
