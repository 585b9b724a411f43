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

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from holdfast.errors import InputError
from holdfast.lm.query.many import OPTIONS, Ask
from holdfast.lm.query.queries import Query
from holdfast.lm.tokenizers.reading import unread_code


@dataclass(frozen=True)
class Questions:
    """What a file asks."""

    models: tuple[str, ...]
    queries: Mapping[str, Query]
    ask: Ask = "mass"
    options: Mapping[str, Any] = field(default_factory=dict)


def read_questions(path: Path) -> Questions:
    """The questions of a file.

    Raises:
        InputError: if it cannot be read, or a key or a value in it is not known.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(
            "the questions cannot be read", code=unread_code(error), path=path, found=error.strerror
        ) from error
    except ValueError as error:
        raise InputError(
            "the questions file is not valid TOML",
            code="invalid-syntax",
            path=path,
            found=str(error),
        ) from error
    _known(content, {"models", "ask", "options", "query"}, path, None)
    models = content.get("models", [])
    if not isinstance(models, list) or not all(isinstance(model, str) for model in models):
        raise InputError(
            "models are named in a list",
            code="invalid-value",
            path=path,
            place="models",
            found=repr(models),
            expected='["ngram:FILE", ...]',
        )
    ask = content.get("ask", "mass")
    if ask not in OPTIONS:
        raise InputError(
            "no such question",
            code="unknown-name",
            path=path,
            place="ask",
            found=repr(ask),
            expected=", ".join(OPTIONS),
        )
    options = content.get("options", {})
    _table(options, path, "options")
    _known(options, OPTIONS[ask], path, "options")
    tables = content.get("query", [])
    if not isinstance(tables, list) or not tables:
        raise InputError(
            "no query in the file",
            code="no-data",
            path=path,
            expected="[[query]] with name and regex",
        )
    queries: dict[str, Query] = {}
    for number, table in enumerate(tables, 1):
        name, query = _query(table, path, f"query {number}")
        if name in queries:
            raise InputError(
                "two queries of one name",
                code="duplicate",
                path=path,
                place=f"query {number}",
                found=name,
            )
        queries[name] = query
    return Questions(tuple(models), queries, ask, options)


def _query(table: Any, path: Path, place: str) -> tuple[str, Query]:
    _table(table, path, place)
    kinds = get_type_hints(Query) | {"name": str}
    _known(table, set(kinds), path, place)
    for key in ("name", "regex"):
        if key not in table:
            raise InputError(f"a query without {key}", code="missing-key", path=path, place=place)
    for key, value in table.items():
        if not _fits(value, kinds[key]):
            raise InputError(
                "a value of the wrong kind",
                code="invalid-value",
                path=path,
                place=f"{place}, {key}",
                found=repr(value),
                expected=_readable(kinds[key]),
            )
    name = table.pop("name")
    return name, Query(**table)


def _fits(value: Any, kind: Any) -> bool:
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    allowed = get_args(kind) if isinstance(kind, UnionType) else (kind,)
    if isinstance(value, bool):
        return bool in allowed
    return isinstance(value, allowed) or (isinstance(value, int) and float in allowed)


def _readable(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return ", ".join(map(repr, get_args(kind)))
    names = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}
    kinds = get_args(kind) if isinstance(kind, UnionType) else (kind,)
    return next(names[each] for each in kinds if each in names)


def _table(value: Any, path: Path, place: str) -> None:
    if not isinstance(value, dict):
        raise InputError(
            "not a table", code="invalid-value", path=path, place=place, found=repr(value)
        )


def _known(
    table: Mapping[str, Any], known: frozenset[str] | set[str], path: Path, place: str | None
) -> None:
    for key in table:
        if key not in known:
            raise InputError(
                "a key that is not known",
                code="unknown-key",
                path=path,
                place=place,
                found=key,
                expected=", ".join(sorted(known)),
            )
