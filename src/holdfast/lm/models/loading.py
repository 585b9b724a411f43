"""Opening a model by its name."""

from __future__ import annotations

from holdfast.errors import InputError
from holdfast.lm.models.protocol import LanguageModel

_FORMS = "ngram:FILE.arpa"


def load(name: str) -> LanguageModel:
    """Open a model.

    Args:
        name: ``ngram:FILE`` (ARPA; ``?words``, ``?pieces``, ``?normalise``).

    Raises:
        InputError: if the name or what it points to is not understood.
    """
    kind, colon, place = name.partition(":")
    if not colon or not place:
        raise InputError("this names no model", found=repr(name), expected=_FORMS)
    # Each backend is imported when it is asked for: some bring libraries that take seconds to load.
    if kind == "ngram":
        from holdfast.lm.models.ngram import open_ngram

        return open_ngram(place)
    raise InputError("unknown kind of model", found=kind, expected=_FORMS)
