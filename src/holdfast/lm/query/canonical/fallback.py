"""Where SentencePiece writes a character in bytes: merging in characters, and the dummy prefix, as marks.

A character that has no piece is written as the tokens of its bytes, which never merge; every other
token is made of whole characters that have pieces. In the language made here a mark stands in front of
each character that is written in bytes, and tokens may end inside such a character only.
"""

from __future__ import annotations

import numpy as np

from holdfast.lm.query.canonical.marking import MarkedLanguage, marked_language
from holdfast.lm.query.canonical.pairs import PairFilter
from holdfast.lm.query.canonical.patterns import CHARACTERS
from holdfast.lm.tokenizers.tokenizer import Tokenizer

_IN_BYTES, _NEVER, _PIECE = range(3)
_SPACE_SIGN = "\u2581"


def fallback_language(tokenizer: Tokenizer, pairs: PairFilter) -> MarkedLanguage:
    """What canonical sequences spell, a mark in front of every character that is written in bytes.

    Texts other than the empty one begin with `tokenizer.lead`, and hold more than it. SentencePiece's
    sign for a space is read as a space, so that no text with that sign is spelled.
    """
    alike = np.full(CHARACTERS, _IN_BYTES, np.int16)
    alike[[ord(character) for character in pairs.base]] = _PIECE
    if _SPACE_SIGN not in pairs.base:
        tokens = tokenizer.encode(_SPACE_SIGN.encode())
        if tokenizer.spell(tokens) != _SPACE_SIGN.encode():
            alike[ord(_SPACE_SIGN)] = _NEVER
    lead = tokenizer.lead.decode()
    for group, character in enumerate(sorted(set(lead)), start=_PIECE + 1):
        alike[ord(character)] = group
    groups = int(alike.max()) + 1

    # Configurations: one for every character of the lead that was read, then one behind more than the lead.
    behind = len(lead) + 1
    outcomes = np.full((behind + 1, 2, groups), -1, np.int32)
    final = np.zeros(behind + 1, np.bool_)
    final[[0, behind]] = True
    for read, character in enumerate(lead):
        outcomes[read, 0, alike[ord(character)]] = read + 1
    for configuration in (len(lead), behind):
        outcomes[configuration, 0, _PIECE:] = behind
        outcomes[configuration, 1, _IN_BYTES] = behind
    return marked_language(alike, outcomes, final, stop_inside=(False, True))
