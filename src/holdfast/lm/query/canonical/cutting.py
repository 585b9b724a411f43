r"""Where a pattern cuts a text into words, as an automaton over bytes and a mark.

The words of a text are not told from a word alone: `` don't`` is cut in front of ``'t``, ``.'t`` is
not. But texts with a mark at each cut are a regular language, and for every text exactly one marking
belongs to it. The automaton follows, character by character,

* the ways in which the pattern may match the word at hand, in the order in which it tries them; those
  behind one that has matched are dropped, for they are not taken any more;
* the ways that must fail: at a mark some way has matched, and those which it tries before that one, and
  which are still open, would have been taken had they matched.

A mark is right iff a way matches in front of it and the open ways before that one never match. Texts that
end with a matched word, and no open way that matches there, are accepted.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from holdfast.lm.query.canonical.marking import MarkedLanguage, marked_language
from holdfast.lm.query.canonical.patterns import Look, Match, Program, Take, Try, read_pattern

_END = -1
_MATCHED = -1
_MOST_CONFIGURATIONS = 2_000
_MOST_SETS = 20_000

Ways = tuple[int, ...]


@dataclass(frozen=True)
class _Configuration:
    """What is known between two characters."""

    open: Ways
    """Instructions that the word at hand has reached, in the order in which they are tried."""
    failing: frozenset[int]
    """Instructions from which no match may come."""
    began: bool = True
    """Whether the text has a character."""


@cache
def cut_language(pattern: str) -> MarkedLanguage | None:
    """The texts with a mark wherever the pattern cuts them; None if the pattern cannot be analysed.

    That is so if it uses unknown syntax, may match nothing, or leaves out characters of some text.
    """
    program = read_pattern(pattern)
    if program is None:
        return None
    cutter = _Cutter(program)
    explored = cutter.explore()
    if explored is None or not cutter.covers_every_text(*explored):
        return None
    outcomes, final = explored
    return marked_language(program.alike, outcomes, final)


class _Cutter:
    """Runs a program along every text at once."""

    def __init__(self, program: Program):
        self.program = program
        self.groups = program.members.shape[1]
        self._reached: dict[tuple[Ways, int], Ways] = {}

    def reached(self, ways: Ways, group: int) -> Ways:
        """The `Take` instructions (and -1 for a match) that ways come to in front of a character, in order.

        Args:
            ways: instructions.
            group: that of the next character; -1 at the end of the text.
        """
        known = self._reached.get((ways, group))
        if known is not None:
            return known
        places: list[int] = []
        seen: set[int] = set()
        waiting = list(reversed(ways))
        while waiting:
            number = waiting.pop()
            if number in seen:
                continue
            seen.add(number)
            instruction = self.program.instructions[number]
            if isinstance(instruction, Try):
                waiting.extend(reversed(instruction.targets))
            elif isinstance(instruction, Look):
                if group == _END:
                    passes = instruction.at_end
                else:
                    inside = bool(self.program.members[instruction.kind, group])
                    passes = inside == instruction.inside
                if passes:
                    waiting.append(instruction.follows)
            else:
                places.append(_MATCHED if isinstance(instruction, Match) else number)
        answer = self._reached[ways, group] = tuple(places)
        return answer

    def taken(self, ways: Ways, group: int) -> Ways:
        """The instructions behind those `Take`s which take a character of a group."""
        behind = []
        for number in ways:
            instruction = self.program.instructions[number]
            assert isinstance(instruction, Take)
            if self.program.members[instruction.kind, group]:
                behind.append(instruction.follows)
        return tuple(dict.fromkeys(behind))

    def after(self, before: _Configuration, group: int, cut: bool) -> _Configuration | None:
        """The configuration after a character, with a mark in front of it or without; None if wrong."""
        must_fail = self.reached(tuple(sorted(before.failing)), group)
        if _MATCHED in must_fail:
            return None
        failing = self.taken(must_fail, group)
        ways = self.reached(before.open, group)
        matched = ways.index(_MATCHED) if _MATCHED in ways else len(ways)
        if cut:
            if matched == len(ways) or not before.began:
                return None
            failing += self.taken(ways[:matched], group)
            ways = self.reached((self.program.start,), group)
        else:
            ways = ways[:matched]
        ways = self.taken(ways, group)
        return _Configuration(ways, frozenset(failing)) if ways else None

    def may_end(self, at: _Configuration) -> bool:
        """Whether the text may end in a configuration."""
        if not at.began:
            return True
        if _MATCHED in self.reached(tuple(sorted(at.failing)), _END):
            return False
        return _MATCHED in self.reached(at.open, _END)

    def explore(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.bool_]] | None:
        """What `marked_language` takes: outcomes of every configuration, and whether a text may end."""
        found = [_Configuration((self.program.start,), frozenset(), began=False)]
        number = {found[0]: 0}
        rows: list[list[list[int]]] = []
        while len(rows) < len(found):
            row: list[list[int]] = [[], []]
            for cut in (False, True):
                for group in range(self.groups):
                    follows = self.after(found[len(rows)], group, cut)
                    if follows is not None and follows not in number:
                        number[follows] = len(found)
                        found.append(follows)
                    row[cut].append(-1 if follows is None else number[follows])
            rows.append(row)
            if len(found) > _MOST_CONFIGURATIONS:
                return None
        return np.array(rows, np.int32), np.array([self.may_end(each) for each in found])

    def covers_every_text(
        self, outcomes: npt.NDArray[np.int32], final: npt.NDArray[np.bool_]
    ) -> bool:
        """Whether each text is cut into words that leave nothing out."""
        first = frozenset({0})
        seen, waiting = {first}, [first]
        while waiting:
            at = waiting.pop()
            if not final[list(at)].any() or len(seen) > _MOST_SETS:
                return False
            rows = outcomes[list(at)].reshape(-1, self.groups)
            for group in range(self.groups):
                follows = frozenset(rows[:, group].tolist()) - {-1}
                if follows not in seen:
                    seen.add(follows)
                    waiting.append(follows)
        return True
