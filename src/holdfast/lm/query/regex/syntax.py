"""What a regular expression says: the tree that the parser makes of it."""

from __future__ import annotations

from typing import NamedTuple


class Text(NamedTuple):
    """Characters one after another, each from a set."""

    sets: tuple[int, ...]
    """Numbers of sets in `Syntax.sets`."""


class Join(NamedTuple):
    """Parts one after another; no parts are the empty text."""

    parts: tuple[Node, ...]


class Choice(NamedTuple):
    """One branch of several."""

    branches: tuple[Node, ...]


class Repeat(NamedTuple):
    """A part, `least` to `most` times; without end where `most` is None."""

    part: Node
    least: int
    most: int | None


class Assertion(NamedTuple):
    """The empty text, where its surroundings are of a kind."""

    kind: str
    """``start``, ``end``, ``line start``, ``line end``, ``word edge`` or ``no word edge``."""
    place: int
    """Its character in the pattern, from 1."""


class Meet(NamedTuple):
    """Texts that match every part."""

    parts: tuple[Node, ...]


class Complement(NamedTuple):
    """Texts that do not match the part."""

    part: Node


Node = Text | Join | Choice | Repeat | Assertion | Meet | Complement
EMPTY = Join(())
