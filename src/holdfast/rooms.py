"""The rooms of the house, in one list (`rooms.toml`): help, `why`, README and docs/ follow it."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import MissingExtraError


@dataclass(frozen=True)
class Room:
    """What a user works with, and where it is found."""

    name: str
    """Words on the command line: ``"data records"``."""
    title: str
    """In the documentation and its navigation."""
    person: str
    """Who needs it first, as the README heads it: ``"You run a cluster"``."""
    page: str
    """In docs/."""
    extra: str
    """The extra of pyproject.toml with its libraries."""
    about: str
    """One sentence."""
    commands: Sequence[str] = ()
    """Names of its commands that do not start with its own."""
    also: Sequence[str] = ()
    """Other words that the command line takes for its first one."""
    gauges: str = ""
    """``module:function``: what it adds to `/metrics` of the console of a log, given records of runs."""

    @property
    def word(self) -> str:
        """The first word on the command line."""
        return self.name.partition(" ")[0]


ROOMS = tuple(
    Room(**row) for row in tomllib.loads(Path(__file__).with_suffix(".toml").read_text())["room"]
)
"""In the order in which everything lists them."""


def lacking(error: ImportError, words: Sequence[str]) -> MissingExtraError | None:
    """What says which extra to install; None where a library of holdfast's own is missing.

    Args:
        error: of a library that is not installed, or of a room raised from it.
        words: of the command line, from the room's name on.
    """
    cause = error.__cause__ or error
    library = (getattr(cause, "name", None) or "").partition(".")[0]
    line = f"{' '.join(words)} "
    named = [
        room
        for room in ROOMS
        if line.startswith((f"{room.name} ", *(f"{name} " for name in room.commands)))
    ]
    # Several rooms share a first word: the first of them has what they have in common.
    named += [room for room in ROOMS if line.startswith(f"{room.word} ")]
    if not isinstance(cause, ModuleNotFoundError) or library in ("", "holdfast") or not named:
        return None
    return MissingExtraError(library, named[0].extra)


def members(word: str) -> list[Room]:
    """The rooms whose name goes on after a first word."""
    return [room for room in ROOMS if room.word == word and room.name != word]
