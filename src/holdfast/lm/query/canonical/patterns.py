r"""What a splitter's pattern says, as a program that tries its alternatives in order.

Published patterns use little of the `regex` library's syntax: classes of characters, groups,
alternation, counted repetition (greedy, lazy, or possessive over one class), look-ahead at one
character, the end of the text. `read_pattern` takes exactly that and answers None to everything else.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
import numpy.typing as npt
import regex

CHARACTERS = 0x110000
_MOST_INSTRUCTIONS = 4_000

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Take:
    """Take one character of a class and continue."""

    kind: int
    follows: int


@dataclass(frozen=True)
class Try:
    """Try these in order."""

    targets: tuple[int, ...]


@dataclass(frozen=True)
class Look:
    """Continue if the next character is in a class (`inside`) or is not; `at_end` if there is none."""

    kind: int
    inside: bool
    at_end: bool
    follows: int


@dataclass(frozen=True)
class Match:
    """The word ends here."""


Instruction = Take | Try | Look | Match


@dataclass(frozen=True, eq=False)
class Program:
    """A pattern as instructions; it never matches the empty text."""

    instructions: tuple[Instruction, ...]
    start: int
    alike: npt.NDArray[np.int16]
    """[0x110000] group of every character; those of a group are in the same classes."""
    members: Bools
    """[classes, groups] the groups of each class."""


def read_pattern(pattern: str) -> Program | None:
    """The program of a splitter's pattern; None if it holds anything that this module does not know."""
    reader = _Reader(pattern)
    try:
        tree = reader.alternatives(fold=False)
        if reader.place < len(pattern) or _may_be_empty(tree):
            return None
        writer = _Writer()
        start = writer.write(tree, writer.add(Match()))
    except _UnknownError:
        return None
    classes = [_members(text) for text in reader.classes] or [np.zeros(CHARACTERS, np.bool_)]
    group = np.zeros(CHARACTERS, np.int64)
    members = np.zeros((len(classes), 1), np.bool_)
    for number, chosen in enumerate(classes):  # split the groups by one class after the other
        group = 2 * group + chosen
        kinds = np.flatnonzero(np.bincount(group))
        members = members[:, kinds // 2]
        members[number] = kinds % 2 == 1
        renumbered = np.zeros(kinds[-1] + 1, np.int64)
        renumbered[kinds] = np.arange(len(kinds))
        group = renumbered[group]
    return Program(tuple(writer.instructions), start, group.astype(np.int16), members)


# --- Reading -------------------------------------------------------------------------------------


class _UnknownError(Exception):
    """Something that is not known."""


@dataclass(frozen=True)
class _Class:
    number: int


@dataclass(frozen=True)
class _Sequence:
    parts: tuple[_Node, ...]


@dataclass(frozen=True)
class _Choice:
    options: tuple[_Node, ...]


@dataclass(frozen=True)
class _Repeat:
    part: _Node
    least: int
    most: int | None
    manner: Literal["greedy", "lazy", "possessive"]


@dataclass(frozen=True)
class _Guard:
    number: int
    inside: bool
    at_end: bool


_Node = _Class | _Sequence | _Choice | _Repeat | _Guard


class _Reader:
    """Recursive descent over the text of a pattern."""

    def __init__(self, pattern: str):
        self.pattern = pattern
        self.place = 0
        self.classes: list[str] = []
        """The text of every class, as the `regex` library reads it."""

    def alternatives(self, fold: bool) -> _Node:
        options = [self._sequence(fold)]
        while self._taken("|"):
            options.append(self._sequence(fold))
        return options[0] if len(options) == 1 else _Choice(tuple(options))

    def _sequence(self, fold: bool) -> _Node:
        parts: list[_Node] = []
        while self.place < len(self.pattern) and self.pattern[self.place] not in "|)":
            parts.append(self._repeated(self._part(fold, parts)))
        return _Sequence(tuple(parts))

    def _part(self, fold: bool, before: list[_Node]) -> _Node:
        for opening, inner_fold in (("(?:", fold), ("(?i:", True)):
            if self._taken(opening):
                return self._closed(self.alternatives(inner_fold))
        for opening, inside in (("(?!", False), ("(?=", True)):
            if self._taken(opening):
                inner = self._closed(self.alternatives(fold))
                while isinstance(inner, _Sequence) and len(inner.parts) == 1:
                    inner = inner.parts[0]
                if not isinstance(inner, _Class):
                    raise _UnknownError
                return _Guard(inner.number, inside, at_end=not inside)
        for opening in ("\\z", "\\Z"):
            if self._taken(opening):
                return self._end()
        if self._taken("$"):
            # It also stands in front of a last newline, which a run that takes newlines has taken.
            last = before[-1] if before else None
            if (
                isinstance(last, _Repeat)
                and last.most is None
                and last.manner != "lazy"
                and isinstance(last.part, _Class)
                and _members(self.classes[last.part.number])[ord("\n")]
            ):
                return self._end()
            raise _UnknownError
        return self._class(fold)

    def _end(self) -> _Node:
        return _Guard(self._numbered(r"[\s\S]"), inside=False, at_end=True)

    def _class(self, fold: bool) -> _Node:
        found = _ONE_CHARACTER.match(self.pattern, self.place)
        if found is None:
            raise _UnknownError
        self.place = found.end()
        text = found[0]
        if any(operator in text for operator in ("&&", "--", "||", "~~")):
            raise _UnknownError
        return _Class(self._numbered(f"(?i:{text})" if fold else text))

    def _numbered(self, text: str) -> int:
        if text not in self.classes:
            self.classes.append(text)
        return self.classes.index(text)

    def _repeated(self, part: _Node) -> _Node:
        found = _QUANTIFIER.match(self.pattern, self.place)
        if found is None:
            return part
        self.place = found.end()
        least, most = {"?": (0, 1), "*": (0, None), "+": (1, None)}.get(found["sign"], (0, None))
        if found["sign"].startswith("{"):
            least = int(found["least"])
            most = int(found["most"] or 0) or None if found["comma"] else least
        manner: Literal["greedy", "lazy", "possessive"] = "greedy"
        if found["manner"]:
            manner = "lazy" if found["manner"] == "?" else "possessive"
        if isinstance(part, _Guard) or (manner == "possessive" and not isinstance(part, _Class)):
            raise _UnknownError
        if most is None and _may_be_empty(part):
            raise _UnknownError
        return _Repeat(part, least, most, manner)

    def _closed(self, node: _Node) -> _Node:
        if not self._taken(")"):
            raise _UnknownError
        return node

    def _taken(self, text: str) -> bool:
        if not self.pattern.startswith(text, self.place):
            return False
        self.place += len(text)
        return True


_ONE_CHARACTER = regex.compile(
    r"""
      \[ \^? \]? (?: [^\\\[\]] | \\ (?: [pP]\{[^}]*\} | [sSdDwWnrtfv] | [^\w\s] ) )* \]
    | \\ (?: [pP] \{ [^}]* \} | [sSdDwWnrtfv] | x[0-9a-fA-F]{2} | u[0-9a-fA-F]{4} | [^\w\s] )
    | [^\\()\[\]{}*+?|^$]
    """,
    regex.VERBOSE,
)
_QUANTIFIER = regex.compile(
    r"(?P<sign>[?*+]|\{(?P<least>\d+)(?P<comma>,(?P<most>\d*))?\})(?P<manner>[?+]?)"
)


@cache
def _members(text: str) -> Bools:
    """[0x110000] the characters of a class."""
    chosen = np.zeros(CHARACTERS, np.bool_)
    for run in regex.finditer(f"(?:{text})+", _every_character()):
        chosen[run.start() : run.end()] = True
    return chosen


@cache
def _every_character() -> str:
    return "".join(map(chr, range(CHARACTERS)))


def _may_be_empty(node: _Node) -> bool:
    if isinstance(node, _Sequence):
        return all(_may_be_empty(part) for part in node.parts)
    if isinstance(node, _Choice):
        return any(_may_be_empty(option) for option in node.options)
    if isinstance(node, _Repeat):
        return node.least == 0 or _may_be_empty(node.part)
    return isinstance(node, _Guard)


# --- Writing -------------------------------------------------------------------------------------


class _Writer:
    """Writes a tree as instructions, from its end to its start."""

    def __init__(self) -> None:
        self.instructions: list[Instruction] = []

    def add(self, instruction: Instruction) -> int:
        if len(self.instructions) >= _MOST_INSTRUCTIONS:
            raise _UnknownError
        self.instructions.append(instruction)
        return len(self.instructions) - 1

    def write(self, node: _Node, follows: int) -> int:
        """Where the node begins, when `follows` comes after it."""
        if isinstance(node, _Class):
            return self.add(Take(node.number, follows))
        if isinstance(node, _Guard):
            return self.add(Look(node.number, node.inside, node.at_end, follows))
        if isinstance(node, _Sequence):
            for part in reversed(node.parts):
                follows = self.write(part, follows)
            return follows
        if isinstance(node, _Choice):
            return self.add(Try(tuple(self.write(option, follows) for option in node.options)))
        return self._write_repeat(node, follows)

    def _write_repeat(self, node: _Repeat, follows: int) -> int:
        leave = follows
        if (
            node.manner == "possessive"
        ):  # what was taken is kept: it ends only where no more is found
            assert isinstance(node.part, _Class)
            leave = self.add(Look(node.part.number, False, True, follows))

        def either(more: int) -> Try:
            return Try((leave, more) if node.manner == "lazy" else (more, leave))

        if node.most is None:
            begin = self.add(Match())  # replaced once the part is written
            self.instructions[begin] = either(self.write(node.part, begin))
        else:
            begin = follows
            for _ in range(node.most - node.least):
                begin = self.add(either(self.write(node.part, begin)))
        for _ in range(node.least):
            begin = self.write(node.part, begin)
        return begin
