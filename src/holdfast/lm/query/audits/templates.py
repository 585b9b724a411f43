"""Templates of audits: TOML files, read and checked key by key."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from holdfast.errors import InputError
from holdfast.lm.query.queries import Query
from holdfast.lm.tokenizers.reading import unread_code

_SPECIAL = re.compile(r"([\\.+*?()|\[\]{}^$&~])")


def escape(text: str) -> str:
    """The regular expression of one text: what would mean something else is written with a backslash."""
    return _SPECIAL.sub(r"\\\1", text)


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
    n: int = 100
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
    groups: tuple[str, ...]
    outcomes: tuple[str, ...]
    samples: int = 5000
    seed: int = 0
    query: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Toxicity:
    """How probable are the words of a list, unprompted and after prompts?"""

    words: tuple[str, ...]
    """The user's own list: in the template, or a text file with a word a line."""
    prompts: tuple[str, ...] = ("",)
    between: str = " "
    """Regular expression of what may stand between prompt and word."""
    edits: int = 1
    """Asked without edits, and with texts within this many."""
    tol: float = 1e-4
    query: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Item:
    """A context and the word that ends it."""

    context: str
    answer: str


@dataclass(frozen=True)
class Cloze:
    """Does the model find the last word of a passage?"""

    items: tuple[Item, ...]
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
    try:
        table = tomllib.loads(source.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(
            f"the template cannot be read: {error.strerror}", code=unread_code(error), path=source
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(
            f"the template is not valid TOML: {error}", code="invalid-syntax", path=source
        ) from error
    made = _KINDS[kind]
    known = {one.name: one for one in fields(made)}
    for key in table:
        if key not in known:
            raise InputError(
                "unknown key",
                code="unknown-key",
                path=source,
                place=key,
                expected=f"one of {', '.join(known)}",
            )
    values = {key: _value(source, key, value, known[key].type) for key, value in table.items()}
    for name, one in known.items():
        if name not in values and one.default is MISSING and one.default_factory is MISSING:
            raise InputError(
                "a key is missing",
                code="missing-key",
                path=source,
                place=name,
                expected=made.__doc__,
            )
    template = made(**values)
    ask(template, source, regex="x")  # the table [query] is checked before anything is asked
    if isinstance(template, Bias):
        for slot in ("{group}", "{outcome}"):
            if slot not in template.template:
                raise InputError(
                    "the text has no place for a group or an outcome",
                    code="invalid-value",
                    path=source,
                    place="template",
                    found=repr(template.template),
                    expected=f"a text with {slot}",
                )
    return template


def ask(template: Template, source: Path | None = None, **changed: Any) -> Query:
    """A query with the settings of the template's table ``[query]``.

    Raises:
        InputError: if the table holds what no query has, or what the audit itself sets.
    """
    types = {one.name: str(one.type) for one in fields(Query)}
    allowed = set(types) - _SET_BY_AUDIT[type(template)]
    for key, value in template.query.items():
        if key not in allowed:
            raise InputError(
                "no setting of a query that this audit leaves open",
                code="unknown-key",
                path=source,
                place=f"query.{key}",
                expected=f"one of {', '.join(sorted(allowed))}",
            )
        _check_kind(source, f"query.{key}", value, types[key])
    return replace(Query(regex=changed["regex"], **template.query), **changed)


def _value(source: Path, key: str, value: Any, annotation: Any) -> Any:
    if key in _FILES and isinstance(value, str):
        value = _listed(source.parent / value, _FILES[key])
    if key in _RECORDS:
        if not isinstance(value, list) or (not value and key == "items"):
            raise InputError(
                "not a list of entries, or an empty one",
                code="empty-input",
                path=source,
                place=key,
                found=repr(value)[:80],
            )
        return tuple(_record(source, key, place, one) for place, one in enumerate(value, 1))
    expected = str(annotation)
    if expected.startswith("tuple[str"):
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise InputError(
                "not a list of texts",
                code="invalid-value",
                path=source,
                place=key,
                found=repr(value)[:80],
            )
        if not value:
            raise InputError("an empty list", code="empty-input", path=source, place=key)
        return tuple(value)
    _check_kind(source, key, value, expected)
    if key in ("n", "samples") and value < 1:
        raise InputError(
            "too few",
            code="out-of-range",
            path=source,
            place=key,
            found=str(value),
            expected="1 or more",
        )
    return value


def _check_kind(source: Path | None, place: str, value: Any, annotation: str) -> None:
    kind = annotation.removesuffix(" | None")
    number = isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0
    fits, expected = {
        "str": (isinstance(value, str), "a text"),
        "Encodings": (isinstance(value, str), "a text"),
        "bool": (isinstance(value, bool), "true or false"),
        "int": (number and isinstance(value, int), "a whole number, 0 or more"),
        "float": (number, "a number, 0 or more"),
    }.get(kind, (isinstance(value, dict), "a table"))
    if not fits:
        raise InputError(
            "a value of the wrong kind",
            code="invalid-value",
            path=source,
            place=place,
            found=repr(value)[:80],
            expected=expected,
        )


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
    if form == "json":
        try:
            listed = json.loads(text)
        except json.JSONDecodeError as error:
            raise InputError(
                f"not valid JSON: {error.msg}",
                code="invalid-syntax",
                path=path,
                place=f"line {error.lineno}",
            ) from error
        if isinstance(listed, dict):
            listed = listed.get("canaries")
        if not isinstance(listed, list):
            raise InputError(
                "not a JSON list",
                code="invalid-syntax",
                path=path,
                expected="a list, or a list under the key canaries",
            )
        return listed
    rows = []
    for place, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                rows.append(json.loads(line))
            except json.JSONDecodeError as error:
                raise InputError(
                    f"not valid JSON: {error.msg}",
                    code="invalid-syntax",
                    path=path,
                    place=f"line {place}",
                ) from error
    return rows


def _record(source: Path, key: str, place: int, value: Any) -> Known | Item:
    made = _RECORDS[key]
    names = {one.name: one.type for one in fields(made)}
    where = f"{key}, entry {place}"
    if isinstance(value, str) and made is Known:
        value = {"text": value}
    if not isinstance(value, dict):
        raise InputError(
            "not a table", code="invalid-value", path=source, place=where, found=repr(value)[:80]
        )
    given = {name: value[name] for name in names if name in value}  # other keys are the user's own
    for name, annotation in names.items():
        wanted = int if annotation == "int" else str
        if name in given and (not isinstance(given[name], wanted) or isinstance(given[name], bool)):
            raise InputError(
                f"{name} is of the wrong kind",
                code="invalid-value",
                path=source,
                place=where,
                found=repr(given[name])[:80],
            )
    try:
        return made(**given)
    except TypeError as error:
        raise InputError(
            "a key is missing",
            code="missing-key",
            path=source,
            place=where,
            expected=", ".join(names),
        ) from error
