"""Templates of audits: TOML files, read and checked key by key."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from holdfast.config import invalid_value, parse_config, read_config, unknown_key
from holdfast.errors import InputError
from holdfast.lm.query.queries import Query
from holdfast.lm.tokenizers.reading import unread_code

_SPECIAL = re.compile(r"([\\.+*?()|\[\]{}^$&~])")


def escape(text: str) -> str:
    """The regular expression of one text: what would mean something else is written with a backslash."""
    return _SPECIAL.sub(r"\\\1", text)


Positive = Annotated[int, Meta(ge=1)]
Texts = Annotated[tuple[str, ...], Meta(min_length=1)]


@dataclass(frozen=True)
class Known:
    """A text that was in the training data."""

    text: str
    repeats: int = 1
    """How often it stood there."""


@dataclass(frozen=True)
class Memorization:
    """Which texts of a pattern did the model memorise?"""

    regex: str
    prefix: str | None = None
    n: Positive = 100
    """Texts to extract."""
    known: tuple[Known, ...] = ()
    """Texts that were in the training data, to be looked for: a list, or a JSON file that holds one
    (itself, or as ``canaries``). Those that the pattern cannot match are left out."""
    query: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Bias:
    """Does what the model says depend on a group?"""

    template: str
    """A text with ``{group}`` and ``{outcome}``."""
    groups: Texts
    outcomes: Texts
    samples: Positive = 5000
    seed: int = 0
    query: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Toxicity:
    """How probable are the words of a list, unprompted and after prompts?"""

    words: Texts
    """The user's own list: in the template, or a text file with a word a line."""
    prompts: Texts = ("",)
    between: str = " "
    """Regular expression of what may stand between prompt and word."""
    edits: Annotated[int, Meta(ge=0)] = 1
    """Asked without edits, and with texts within this many."""
    tol: Annotated[float, Meta(ge=0)] = 1e-4
    query: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Item:
    """A context and the word that ends it."""

    context: str
    answer: str


@dataclass(frozen=True)
class Cloze:
    """Does the model find the last word of a passage?"""

    items: Annotated[tuple[Item, ...], Meta(min_length=1)]
    """A list, or a file of JSON lines with ``context`` and ``answer``."""
    word: str = "[A-Za-z']+"
    """Regular expression of any word."""
    end: str = "[.!?,;]"
    """Regular expression of what must follow the word, in the variants that demand an end mark."""
    stop_words: tuple[str, ...] = ()
    """Words never to be answered, for the variant without them (a list, or a text file)."""
    query: Mapping[str, Any] = field(default_factory=dict)


Template = Memorization | Bias | Toxicity | Cloze

_FILES = {"known": "json", "items": "jsonl", "words": "lines", "stop_words": "lines"}
_RECORDS: Mapping[str, type[Known | Item]] = {"known": Known, "items": Item}
_SET_BY_AUDIT: Mapping[type[Template], set[str]] = {
    Memorization: {"regex", "prefix", "prompt"},
    Bias: {"regex", "prefix", "prompt"},
    Toxicity: {"regex", "prefix", "prompt", "edits", "eos"},
    Cloze: {"regex", "prefix", "prompt", "eos"},
}
_KINDS: Mapping[str, type[Template]] = {
    "memorization": Memorization,
    "bias": Bias,
    "toxicity": Toxicity,
    "cloze": Cloze,
}


def read_template(path: str | Path, kind: str) -> Template:
    """The template of an audit.

    Args:
        path: a TOML file; files that it names lie beside it.
        kind: ``memorization``, ``bias``, ``toxicity`` or ``cloze``.

    Raises:
        InputError: if the file, a key or a value is not what the audit expects.
    """
    source = Path(path)
    made = _KINDS[kind]
    names = [one.name for one in fields(made)]
    table = dict(parse_config(source, "the template"))
    for key in [key for key in _FILES if key in table and key in names]:
        if isinstance(table[key], str):
            table[key] = _listed(source.parent / table[key], _FILES[key])
        if key in _RECORDS and isinstance(table[key], list):
            table[key] = [_record(_RECORDS[key], value) for value in table[key]]
    try:
        template: Template = read_config(table, made, "the template")
        ask(template, regex="x")  # the table [query] is checked before anything is asked
    except InputError as error:
        raise InputError(**vars(error) | {"path": str(source)}) from error
    if isinstance(template, Bias):
        for slot in ("{group}", "{outcome}"):
            if slot not in template.template:
                problem, found = (
                    "the text has no place for a group or an outcome",
                    template.template,
                )
                raise invalid_value(problem, source, "template", repr(found), f"a text with {slot}")
    return template


def ask(template: Template, **changed: Any) -> Query:
    """A query with the settings of the template's table ``[query]``.

    Raises:
        InputError: if the table holds what no query has, or what the audit itself sets.
    """
    allowed = {one.name for one in fields(Query)} - _SET_BY_AUDIT[type(template)]
    for key in template.query:
        if key not in allowed:
            raise unknown_key(key, allowed, "query")
    try:
        query = read_config({"regex": changed["regex"], **template.query}, Query, "the query")
    except InputError as error:
        raise InputError(**vars(error) | {"place": f"query.{error.place}"}) from error
    return replace(query, **changed)


def _listed(path: Path, form: str) -> Sequence[Any]:
    """What a file beside the template lists."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"the list cannot be read: {error}", code=unread_code(error), path=path
        ) from error
    if form == "lines":
        return [line.strip() for line in text.splitlines() if line.strip()]
    documents = [(1, text)] if form == "json" else enumerate(text.splitlines(), 1)
    rows = []
    for place, document in documents:
        try:
            rows += [json.loads(document)] if document.strip() else []
        except (ValueError, RecursionError) as error:
            line = f"line {place + getattr(error, 'lineno', 1) - 1}"
            raise InputError(
                "not valid JSON", code="invalid-syntax", path=path, place=line, found=str(error)
            ) from error
    if form == "jsonl":
        return rows
    listed = rows[0].get("canaries") if rows and isinstance(rows[0], dict) else [*rows, None][0]
    if not isinstance(listed, list):
        raise InputError(
            "not a JSON list",
            code="invalid-syntax",
            path=path,
            expected="a list, or a list under the key canaries",
        )
    return listed


def _record(made: type[Known | Item], value: Any) -> Any:
    """An entry of a list without the keys that are the user's own."""
    if isinstance(value, str) and made is Known:
        return {"text": value}
    names = {one.name for one in fields(made)}
    return {key: value[key] for key in value if key in names} if isinstance(value, dict) else value
