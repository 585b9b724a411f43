"""Files of questions for `ask_many`: queries by name and models, in TOML.

models = ["ngram:small.arpa", "hf:tiny"]
ask = "mass"               # or search, count

[options]
tol = 1e-4

[[query]]
name = "phone"
regex = "[0-9]{3} [0-9]{4}"
prefix = "Call me at "
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from holdfast.config import read_config, unknown_key
from holdfast.errors import InputError
from holdfast.lm.query.many import OPTIONS, Ask
from holdfast.lm.query.queries import Query


@dataclass(frozen=True)
class Questions:
    """What a file asks."""

    models: tuple[str, ...]
    queries: Mapping[str, Query]
    ask: Ask = "mass"
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class _Named(Query):
    name: str


@dataclass(frozen=True)
class _File:
    """The keys of the file."""

    query: tuple[_Named, ...]
    models: tuple[str, ...] = ()
    ask: Ask = "mass"
    options: Mapping[str, Any] = field(default_factory=dict)


def read_questions(path: Path) -> Questions:
    """The questions of a file.

    Raises:
        InputError: if it cannot be read, or a key or a value in it is not known.
    """
    content = read_config(path, _File, "the questions file")
    for key in content.options:
        if key not in OPTIONS[content.ask]:
            raise unknown_key(key, OPTIONS[content.ask], "options", path)
    queries: dict[str, Query] = {}
    for number, entry in enumerate(content.query):
        if entry.name in queries:
            raise InputError(
                "two queries of one name",
                code="duplicate",
                path=path,
                place=f"query[{number}].name",
                found=entry.name,
            )
        queries[entry.name] = Query(**{one.name: getattr(entry, one.name) for one in fields(Query)})
    if not queries:
        raise InputError(
            "no query in the file",
            code="no-data",
            path=path,
            expected="[[query]] with name and regex",
        )
    return Questions(content.models, queries, content.ask, content.options)
