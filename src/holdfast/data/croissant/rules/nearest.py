"""What was most likely meant by a word that is not known."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_MOST = 2000  # options that are looked through


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
