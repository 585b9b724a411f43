"""Plain Python values out of things: texts, flags, numbers, shapes."""

from __future__ import annotations

from collections.abc import Iterator
from re import compile as pattern
from typing import Any

from holdfast.data.croissant.document.terms import Thing, Value, term_of

_WHOLE = pattern(r"[-+]?[0-9]{1,18}")


def texts(thing: Thing, term: str) -> tuple[str, ...]:
    """Every text of a term; of a reference, its id."""
    return tuple(text for value in thing.values(term) if (text := text_of(value)))


def text_of(value: Value) -> str | None:
    """A value as a text: a text, a number as it reads, or the id of a reference."""
    if value.thing is not None:
        return value.thing.id
    if isinstance(value.value, str):
        return value.value
    if isinstance(value.value, int | float) and not isinstance(value.value, bool):
        return str(value.value)
    return None


def text(thing: Thing, term: str) -> str | None:
    """The text of a term: of several languages, the document's own, English, or the first."""
    texts = [value for value in thing.values(term) if isinstance(value.value, str)]
    for language in (thing.context.language, "en", None):
        for value in texts:
            if value.language == language:
                return str(value.value)
    return str(texts[0].value) if texts else None


def loose_text(thing: Thing, term: str) -> str | None:
    """The same where a number or a reference may stand for a text, as in versions, sizes and URLs."""
    return text(thing, term) or next(iter(texts(thing, term)), None)


def flag(thing: Thing, term: str) -> bool:
    """Whether a term is true, in any of its spellings."""
    return any(
        value.value is True
        or (isinstance(value.value, str) and value.value.rpartition("/")[2].lower() == "true")
        for value in thing.values(term)
    )


def integer(thing: Thing, term: str) -> int | None:
    """The whole number of a term, which may be written as a text."""
    for value in thing.values(term):
        number = value.value
        if isinstance(number, str):
            number = _whole(number)
        if isinstance(number, float) and number.is_integer():
            number = int(number)
        if isinstance(number, int) and not isinstance(number, bool):
            return number
    return None


def shape(thing: Thing, term: str) -> tuple[int, ...] | None:
    """The sizes of an array, from ``"-1,3"``, ``"(-1,)"``, ``[-1, 3]`` or ``3``; None if they are none."""
    sizes: list[int] = []
    for value in thing.values(term):
        if isinstance(value.value, (bool, dict)):
            return None
        written = str(value.value).strip().strip("()[]").rstrip(",")
        for part in written.split(","):
            size = _whole(part)
            if size is None:
                return None
            sizes.append(size)
    return tuple(sizes) or None


def _whole(text: str) -> int | None:
    return int(text) if _WHOLE.fullmatch(text.strip()) else None


def types(thing: Thing, term: str) -> tuple[str, ...]:
    """The canonical types or properties that a term names, each once."""
    names = (text_of(value) for value in thing.values(term))
    return tuple(dict.fromkeys(term_of(name, thing.context) for name in names if name))


def place(thing: Thing) -> dict[str, Any]:
    """What every `Node` has: where it stands, term -> the pointer of its value, and its types."""
    pointers = {entry.term: entry.at for entry in thing.entries}
    if thing.id_at is not None:
        pointers["@id"] = thing.id_at
    if thing.types_at is not None:
        pointers["@type"] = thing.types_at
    return {"at": thing.at, "written": pointers, "types": thing.types}


def plain(thing: Thing, term: str) -> tuple[Any, ...]:
    """Every value of a term as plain JSON."""
    return tuple(value.value for value in thing.values(term))


def things(thing: Thing, *terms: str) -> Iterator[Thing]:
    """Every thing under any of some terms."""
    for term in terms:
        for value in thing.values(term):
            if value.thing is not None:
                yield value.thing
