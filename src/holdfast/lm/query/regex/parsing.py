"""RE2's syntax, with ``&`` and ``~``: from a pattern to its tree."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NoReturn

from holdfast.lm.query.regex.character_reader import CharacterReader
from holdfast.lm.query.regex.characters import EVERYTHING, Ranges, negated
from holdfast.lm.query.regex.syntax import (
    Assertion,
    Choice,
    Complement,
    Join,
    Meet,
    Node,
    Repeat,
    Text,
)

LONGEST_REPETITION = 1000
"""The largest count in braces, as in RE2."""
DEEPEST_NESTING = 100
"""Groups within groups."""

_PLAIN = re.compile(r"[^\\.\[()*+?{|&~^$]+")
_BRACES = re.compile(r"\{([0-9]+)(,([0-9]*))?\}")
_FLAGS = re.compile(r"\(\?([imsU]*)(-[imsU]+)?([:)])")
_NAME = re.compile(r"\(\?P?<([A-Za-z0-9_]+)>")
_NOT_LINE_END = negated(((10, 10),))

# What other dialects have and this one has not: how it begins, what it is, and what to do instead.
_FOREIGN_GROUPS = (
    ("(?=", "look-ahead", "use `&` for what must match as well"),
    ("(?!", "negative look-ahead", "use `&~(...)` for what must not match"),
    ("(?<=", "look-behind", "write the text before it as part of the pattern"),
    ("(?<!", "negative look-behind", "use `~(...)` for what must not come before"),
    (
        "(?>",
        "an atomic group",
        "use (?:...): the whole language is meant, and nothing is tried in turn",
    ),
    (
        "(?P=",
        "a back-reference",
        "list what it can be; no automaton remembers what a group matched",
    ),
    ("(?P>", "a call of a group", "write the group out"),
    ("(?(", "a condition", "write both cases as alternatives"),
    ("(?#", "a comment", "leave it out"),
    ("(?|", "a branch reset", "use (?:...)"),
    ("(?R", "recursion", "write the pattern out to the depth that is needed"),
)


@dataclass(frozen=True)
class Syntax:
    """A pattern, understood."""

    tree: Node
    sets: tuple[Ranges, ...]
    """The sets of characters that its `Text` nodes name by number."""
    assertions: frozenset[str]
    """Kinds of assertions that occur."""
    names_space: bool
    """Whether the space is named, outside of complements and negated classes."""


def parse(pattern: str, ignore_case: bool = False) -> Syntax:
    """The tree of a pattern.

    Raises:
        InputError: at the first character that is not RE2 syntax, or that no automaton can express.
    """
    parser = _Parser(pattern, ignore_case)
    tree = parser.choice(0)
    if parser.at < len(pattern):
        parser.refuse(
            "a group is closed that was never opened",
            parser.at,
            remedy=r"write \) for the character",
        )
    return Syntax(tree, tuple(parser.numbers), frozenset(parser.assertions), parser.names_space)


def _joined(items: list[Node]) -> Node:
    """Parts one after another; texts that touch are one."""
    parts: list[Node] = []
    for item in items:
        last = parts[-1] if parts else None
        if isinstance(item, Text) and isinstance(last, Text):
            parts[-1] = Text(last.sets + item.sets)
        else:
            parts.append(item)
    return parts[0] if len(parts) == 1 else Join(tuple(parts))


class _Parser(CharacterReader):
    """One method for each level of the grammar."""

    def __init__(self, pattern: str, ignore_case: bool) -> None:
        super().__init__(pattern, ignore_case)
        self.lines = False
        """Whether ^ and $ are the edges of lines."""
        self.dot_all = False
        """Whether . takes line ends."""
        self.assertions: set[str] = set()

    def choice(self, depth: int) -> Node:
        """Branches between ``|``, each of sequences between ``&``; up to a parenthesis or the end."""
        branches: list[Node] = []
        parts: list[Node] = []
        while True:
            parts.append(self.sequence(depth))
            mark = self.pattern[self.at : self.at + 1]
            if mark == "&":
                self.at += 1
                continue
            branches.append(parts[0] if len(parts) == 1 else Meet(tuple(parts)))
            if mark != "|":
                return branches[0] if len(branches) == 1 else Choice(tuple(branches))
            parts = []
            self.at += 1

    def sequence(self, depth: int) -> Node:
        """Atoms with their repetitions, one after another."""
        pattern = self.pattern
        items: list[Node] = []
        repeatable = False  # whether there is something that a repetition could follow
        while self.at < len(pattern):
            char = pattern[self.at]
            if char in "|&)":
                break
            if char in "*+?" or (char == "{" and _BRACES.match(pattern, self.at)):
                if not repeatable:
                    self.refuse(
                        "nothing precedes the repetition",
                        self.at,
                        remedy=f"write \\{char} for the character",
                    )
                items[-1] = self.repeated(items[-1])
                repeatable = False
                continue
            run = _PLAIN.match(pattern, self.at)
            if run:
                text = run.group()
                self.at = run.end()
                numbers = tuple([self.character(char) for char in text])
                # A repetition takes the last character alone.
                if len(numbers) > 1 and pattern[self.at : self.at + 1] in ("*", "+", "?", "{"):
                    items.append(Text(numbers[:-1]))
                    numbers = numbers[-1:]
                items.append(Text(numbers))
                repeatable = True
                continue
            if pattern.startswith("\\Q", self.at):
                quoted = self.quotation()
                items += [Text((number,)) for number in quoted]
                repeatable = repeatable or bool(quoted)
                continue
            flags = _FLAGS.match(pattern, self.at) if char == "(" else None
            if flags and flags.group(3) == ")":
                self.switch(flags)
                self.at = flags.end()
                repeatable = False
                continue
            items.append(self.atom(depth))
            repeatable = True
        return _joined(items)

    def quotation(self) -> list[int]:
        r"""The characters of ``\Q...\E``."""
        end = self.pattern.find("\\E", self.at + 2)
        quoted = self.pattern[self.at + 2 : end if end >= 0 else len(self.pattern)]
        self.at = end + 2 if end >= 0 else len(self.pattern)
        return [self.character(char) for char in quoted]

    def repeated(self, part: Node) -> Node:
        """The part with the repetition that stands here."""
        pattern, start = self.pattern, self.at
        char = pattern[start]
        if char == "{":
            braces = _BRACES.match(pattern, start)
            assert braces is not None
            least = int(braces.group(1)[:9])
            most: int | None = least
            if braces.group(2):
                most = int(braces.group(3)[:9]) if braces.group(3) else None
            for count in (least, most or 0):
                if count > LONGEST_REPETITION:
                    self.refuse(
                        "a repetition is too long",
                        start,
                        found=braces.group(),
                        expected=f"counts up to {LONGEST_REPETITION:,}, as in RE2",
                        remedy="repeat a group that repeats: (?:x{1000}){2}",
                    )
            if most is not None and most < least:
                self.refuse(
                    "a repetition ends before it begins",
                    start,
                    found=braces.group(),
                    expected="{least,most}",
                )
            self.at = braces.end()
        else:
            least, most = {"*": (0, None), "+": (1, None), "?": (0, 1)}[char]
            self.at += 1
        if pattern.startswith("?", self.at):
            self.at += 1  # lazy: the same language
        if pattern[self.at : self.at + 1] in ("*", "+", "?") or _BRACES.match(pattern, self.at):
            possessive = pattern[self.at] == "+"
            self.refuse(
                "a possessive repetition" if possessive else "a repetition of a repetition",
                start,
                found=pattern[start : self.at + 1],
                expected="one repetition",
                remedy="leave the + out: nothing is tried in turn"
                if possessive
                else "put the first into a group: (?:x*)*",
            )
        return Repeat(part, least, most)

    def switch(self, flags: re.Match[str]) -> None:
        """Turn flags on and off."""
        for letters, on in ((flags.group(1), True), ((flags.group(2) or ""), False)):
            for letter in letters:
                if letter == "i":
                    self.fold = on
                elif letter == "m":
                    self.lines = on
                elif letter == "s":
                    self.dot_all = on

    def atom(self, depth: int) -> Node:
        """One character, class, assertion, group or complement."""
        pattern, start = self.pattern, self.at
        char = pattern[start]
        if char == "(":
            return self.group(depth)
        if char == "[":
            return Text((self.number(self.bracket()),))
        if char == "\\":
            return self.escape()
        self.at += 1
        if char == ".":
            return Text((self.number(EVERYTHING if self.dot_all else _NOT_LINE_END),))
        if char in "^$":
            kind = "start" if char == "^" else "end"
            return self.assertion(f"line {kind}" if self.lines else kind, start)
        if char == "~":
            if depth >= DEEPEST_NESTING:
                self.too_deep(start)
            if self.at == len(pattern) or pattern[self.at] in "|&)*+?":
                self.refuse(
                    "nothing follows the complement",
                    start,
                    expected="a character, a class or a group after ~",
                    remedy=r"write \~ for the character",
                )
            self.negations += 1
            if pattern.startswith("\\Q", self.at):
                part: Node = Text(tuple(self.quotation()))
            else:
                part = self.operand(depth + 1)
            self.negations -= 1
            return Complement(part)
        return Text((self.character(char),))  # a brace that begins no repetition

    def operand(self, depth: int) -> Node:
        """The atom that a complement takes: of literal characters, one."""
        char = self.pattern[self.at]
        if char in "\\.[(^$~":
            return self.atom(depth)
        self.at += 1
        return Text((self.character(char),))

    def assertion(self, kind: str, start: int) -> Assertion:
        """The empty text, where its surroundings are so."""
        self.assertions.add(kind)
        return Assertion(kind, start + 1)

    def too_deep(self, start: int) -> NoReturn:
        self.refuse(
            "groups are nested too deeply",
            start,
            expected=f"at most {DEEPEST_NESTING} levels",
            remedy="leave out groups that are not needed",
        )

    def group(self, depth: int) -> Node:
        """A group, of whatever kind; its flags end with it."""
        pattern, start = self.pattern, self.at
        if depth >= DEEPEST_NESTING:
            self.too_deep(start)
        before = self.fold, self.lines, self.dot_all
        flags, name = _FLAGS.match(pattern, start), _NAME.match(pattern, start)
        if flags:
            self.switch(flags)
            self.at = flags.end()
        elif name:
            self.at = name.end()
        elif pattern.startswith("(?", start):
            for beginning, what, remedy in _FOREIGN_GROUPS:
                if pattern.startswith(beginning, start):
                    self.refuse(
                        f"{what} is not regular syntax", start, found=beginning, remedy=remedy
                    )
            self.refuse(
                "an unknown kind of group",
                start,
                expected="(?:...), (?P<name>...), (?<name>...) or flags of imsU",
            )
        else:
            self.at = start + 1
        inside = self.choice(depth + 1)
        if self.at >= len(pattern):
            self.refuse(
                "a group is not closed",
                start,
                expected="a closing parenthesis",
                remedy=r"write \( for the character",
            )
        self.at += 1
        self.fold, self.lines, self.dot_all = before
        return inside

    def escape(self) -> Node:
        """What a backslash outside of a class begins."""
        start = self.at
        letter = self.pattern[start + 1 : start + 2]
        kinds = {"A": "start", "z": "end", "b": "word edge", "B": "no word edge"}
        if letter in kinds and letter:
            self.at += 2
            return self.assertion(kinds[letter], start)
        named = self.named_class()
        if named is None:
            code = self.code_point()
            self.note(code, code)
            named = self.folded(((code, code),))
        return Text((self.number(named),))
