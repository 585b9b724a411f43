"""Opening a model by its name."""

from __future__ import annotations

from pathlib import Path

from holdfast.errors import InputError
from holdfast.lm.models.caching import Cached
from holdfast.lm.models.protocol import LanguageModel

_FORMS = "ngram:FILE.arpa, hf:FOLDER or hf:NAME, openai:URL#MODEL"


def load(name: str) -> LanguageModel:
    """Open a model.

    Args:
        name: ``ngram:FILE`` (ARPA; ``?words``, ``?pieces``, ``?normalise``), ``hf:FOLDER`` (``?device=``,
            ``?dtype=``, ``?bos=``, ``?batch=``, ``?cache_mb=``), or ``openai:URL#MODEL`` (a server that
            speaks OpenAI's protocol and tells log-probabilities). A server's answers are remembered
            (`Cached`); the others do that themselves.

    Raises:
        InputError: if the name or what it points to is not understood.
        MissingExtraError: if the library behind it is not installed.
    """
    kind, colon, place = name.partition(":")
    if kind not in ("ngram", "hf", "gguf", "openai") and Path(name).exists():
        prefixed = f"{'hf' if Path(name).is_dir() else 'ngram'}:{name}"
        raise InputError(
            "the name of the model does not say its kind",
            code="unknown-name",
            found=repr(name),
            expected=_FORMS,
            remedy=f"write {prefixed}",
        )
    if not colon or not place:
        raise InputError(
            "unknown kind of model", code="unknown-name", found=repr(name), expected=_FORMS
        )
    # Each backend is imported when it is asked for: some bring libraries that take seconds to load.
    if kind == "ngram":
        from holdfast.lm.models.ngram import open_ngram

        return open_ngram(place)
    if kind == "hf":
        from holdfast.lm.models.huggingface import open_huggingface

        return open_huggingface(place)
    if kind == "gguf":
        raise InputError(
            "GGUF files are not read directly",
            code="unsupported",
            place=name,
            remedy="start llama.cpp's server (llama-server -m FILE) and name it: "
            "openai:http://127.0.0.1:8080/v1#NAME?tokenizer=hf:DIR",
        )
    if kind == "openai":
        from holdfast.lm.models.endpoint import open_endpoint

        return Cached(open_endpoint(name))
    raise InputError("unknown kind of model", code="unknown-name", found=kind, expected=_FORMS)
