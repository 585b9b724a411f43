"""What was most likely meant by a word that is not known."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_MOST = 2000  # options that are looked through


def nearest(word: str, options: Iterable[str]) -> str:
    """The option that is nearest to a word, or ``""``.

    First the same in another case, then the same after the last slash, then the most alike.
    """
    folded: dict[str, str] = {}
    ends: dict[str, str] = {}
    for option in options:
        if option and len(folded) < _MOST:
            folded.setdefault(option.casefold(), option)
            ends.setdefault(option.rpartition("/")[2].casefold(), option)
    meant = folded.get(word.casefold()) or ends.get(word.rpartition("/")[2].casefold())
    if meant is None or meant == word:
        close = difflib.get_close_matches(word.casefold()[:200], folded, n=1, cutoff=0.72)
        meant = folded[close[0]] if close else ""
    return "" if meant == word else meant
