"""Names and constants as DuckDB's SQL writes them."""

from __future__ import annotations

from collections.abc import Iterable


def literal(text: str) -> str:
    """A text as a string constant."""
    return "'" + text.replace("'", "''") + "'"


def identifier(name: str) -> str:
    """A name as a quoted identifier."""
    return '"' + name.replace('"', '""') + '"'


def texts(values: Iterable[str]) -> str:
    """Texts as a list constant."""
    return "[" + ", ".join(map(literal, values)) + "]"
