"""What a line of a log means: the rules, as data to edit, and how a file of them is read.

The rules that ship are `rules.toml`, beside this module; a user's file is laid over them. All patterns are
searched for at once by google-re2, in time that grows with the text and with nothing else.
"""

from __future__ import annotations

import string
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import re2

from holdfast.config import invalid_value, read_config
from holdfast.fleet import taxonomy
from holdfast.fleet.taxonomy import DOMAINS, Domains, Taxonomy

Kind = Literal["root", "vague", "cascade", "restart", "info"]
WEIGHTS: Mapping[str, int] = {"root": 80, "vague": 50, "cascade": 20, "restart": 0, "info": 0}
"""Default weight of a rule, by kind."""
TRACEBACK = "python_exception"
"""The rule for a traceback whose exception no other rule knows; it must exist."""
BUILT_IN = ("exception", "message", "frame")
"""Fields that a cause may name and that every traceback has."""

_MEMORY = 128 << 20
"""Bytes that the automaton of all patterns may take; it is built as far as the text needs it."""
_PROBE = r"\x00holdfast\x00"
"""Matched once when patterns are compiled: an automaton that does not fit finds nothing, silently."""


@dataclass(frozen=True)
class Rule:
    """One kind of trouble and how its lines look; the fields are the format of a rule file."""

    id: str
    kind: Kind
    """root: names what went wrong; vague: something went wrong here, why is not said; cascade:
    follows from trouble elsewhere; restart: the run begins again; info: never a cause."""
    cause: str
    """One sentence, in which ``{name}`` is what a group of the pattern found."""
    patterns: tuple[str, ...] = ()
    """Searched in the line without its rank; the first that matches counts."""
    frame: str | None = None
    """If given, the rule is about tracebacks: one of the frames, ``file:line function``, matches."""
    symptom: str | None = None
    """Id in the fleet's taxonomy; None: it has none for this (a fault of the program itself)."""
    domains: Domains = ()
    """Who may be at fault; empty: as the taxonomy says of the symptom."""
    weight: int | None = None
    """0 to 100: of all that is found, the heaviest is the cause, and of equals the earliest."""
    lasting: bool = False
    """A state and not an event: survived only if the run went on after its last line."""
    remedy: str = ""
    source: str = ""

    @property
    def weighs(self) -> int:
        """Its weight, else that of its kind."""
        return WEIGHTS[self.kind] if self.weight is None else self.weight


@dataclass(frozen=True)
class _File:
    version: Literal[1] = 1
    extends: bool = True
    rules: tuple[Rule, ...] = ()


@dataclass(frozen=True)
class RuleSet:
    """Rules in the order in which they are tried."""

    rules: tuple[Rule, ...]
    taxonomy: Taxonomy

    @property
    def patterns(self) -> list[tuple[int, str]]:
        """Every pattern with the place of its rule, in the order in which they are tried."""
        return [
            (place, pattern)
            for place, rule in enumerate(self.rules)
            for pattern in rule.patterns
            if rule.frame is None
        ]

    def match(self, body: bytes) -> tuple[int, dict[str, str]] | None:
        """The first rule that knows a line, and what its named groups found.

        Args:
            body: the line as rules see it, without its rank.
        """
        patterns = self.patterns
        hits = searcher(tuple(pattern for _, pattern in patterns))(body)
        if not hits:
            return None
        place, pattern = patterns[min(hits)]
        return place, groups_of(pattern, body)

    def rule_of(self, text: str) -> Rule | None:
        """The first rule that knows a line."""
        found = self.match(text.encode("utf-8", "replace"))
        return None if found is None else self.rules[found[0]]

    def match_frames(self, line: str, frames: Sequence[str]) -> tuple[int, dict[str, str]] | None:
        """The first rule about frames that knows a traceback, by one of them and its last line."""
        body = line.encode("utf-8", "replace")
        for place, rule in enumerate(self.rules):
            if rule.frame is None:
                continue
            frame = compiled(rule.frame)
            if not any(frame.search(each.encode("utf-8", "replace")) for each in frames):
                continue
            if not rule.patterns:
                return place, {}
            for pattern in rule.patterns:
                if compiled(pattern).search(body):
                    return place, groups_of(pattern, body)
        return None

    def traceback_rule(self) -> int:
        """The place of the rule for tracebacks that no other rule knows."""
        return next(place for place, rule in enumerate(self.rules) if rule.id == TRACEBACK)

    def symptom_of(self, rule: Rule, groups: Mapping[str, str]) -> str | None:
        """The symptom of a match; that of its XID where it has one."""
        if number := groups.get("xid"):
            return self.taxonomy.symptom("xid", int(number))
        return rule.symptom

    def domains_of(self, rule: Rule, groups: Mapping[str, str]) -> tuple[str, ...]:
        """Who may be at fault for a match."""
        number = groups.get("xid")
        if number and (known := self.taxonomy.xids.get(int(number))):
            return known.domains
        if rule.domains:
            return rule.domains
        return self.taxonomy.symptoms[rule.symptom].domains if rule.symptom else DOMAINS


# --- Patterns ------------------------------------------------------------------------------------


def _options() -> Any:
    options = re2.Options()
    options.case_sensitive = False
    options.encoding = re2.Options.Encoding.LATIN1  # any byte is a character: none hides a match
    options.log_errors = False
    options.max_mem = _MEMORY
    return options


@cache
def compiled(pattern: str) -> Any:
    """A pattern, searched for in bytes without regard to case.

    Raises:
        re2.error: if it is no regular expression of RE2.
    """
    return re2.compile(pattern.encode(), _options())


@cache
def searcher(patterns: tuple[str, ...]) -> Callable[[bytes], list[int] | None]:
    """A search for all patterns in one pass: text -> places of those that match; None: none does.

    Raises:
        re2.error: if all patterns together are too large.
    """
    together = re2.Set.SearchSet(_options())
    for pattern in (*patterns, _PROBE):
        together.Add(pattern.encode())
    together.Compile()
    if together.Match(b"\0holdfast\0") is None:
        raise re2.error("the patterns together are too large")
    search: Callable[[bytes], list[int] | None] = together.Match
    return search


def groups_of(pattern: str, body: bytes) -> dict[str, str]:
    """What the named groups of a pattern find in a text that it matches."""
    found = compiled(pattern).search(body)
    return {
        name.decode(): text.decode("utf-8", "replace")
        for name, text in found.groupdict().items()
        if text is not None
    }


# --- Files of rules ------------------------------------------------------------------------------


def shipped_text() -> str:
    """The rules that ship, as TOML."""
    return resources.files("holdfast.runs.diagnosis").joinpath("rules.toml").read_text("utf-8")


@cache
def _shipped() -> tuple[Rule, ...]:
    # Checked by a test: a start should not compile each pattern by itself.
    return read_config(tomllib.loads(shipped_text()), _File, "the rules").rules


def load(path: str | Path | None = None, taxonomy_path: str | Path | None = None) -> RuleSet:
    """The built-in rules, optionally extended by a user's file.

    Args:
        path: a TOML file in the layout of `rules.toml`: its rules are tried first, and replace those
            with the same id; with ``extends = false`` they replace all. None: the built-in rules.
        taxonomy_path: the same for the fleet's taxonomy.

    Raises:
        InputError: if a file is missing, not valid TOML, or has an invalid entry.
    """
    known = taxonomy.load(None if taxonomy_path is None else Path(taxonomy_path))
    if path is None:
        return RuleSet(_shipped(), known)
    given = read_config(path, _File, "the rules")
    check(given.rules, Path(path), known)
    replaced = {rule.id for rule in given.rules}
    kept = [rule for rule in _shipped() if rule.id not in replaced]
    if not given.extends:  # alone, but for the rule that must exist
        kept = [rule for rule in kept if rule.id == TRACEBACK]
    found = RuleSet((*given.rules, *kept), known)
    try:
        searcher(tuple(pattern for _, pattern in found.patterns))
    except re2.error as error:
        expected = "patterns that fit into one automaton: smaller repeats, fewer of them"
        raise invalid_value("invalid rule file", Path(path), "rules", error, expected) from error
    return found


def check(rules: Sequence[Rule], path: Path | None, known: Taxonomy) -> None:
    """Refuse what the types of the fields allow and a rule may not say.

    Raises:
        InputError: with the key of the entry that is wrong.
    """
    wrong = partial(invalid_value, "invalid rule file", path)
    seen = set[str]()
    for number, rule in enumerate(rules):
        place = f"rules[{number}]"
        if not rule.id or rule.id in seen:
            raise wrong(f"{place}.id", repr(rule.id), "an id that no other rule has")
        seen.add(rule.id)
        place = f"{place} ({rule.id})"
        if not rule.patterns and rule.frame is None and rule.id != TRACEBACK:
            raise wrong(f"{place}.patterns", "none", "one pattern or more")
        if not 0 <= rule.weighs <= 100:
            raise wrong(f"{place}.weight", rule.weight, "a whole number from 0 to 100")
        if rule.symptom is not None and rule.symptom not in known.symptoms:
            symptoms = ", ".join(sorted(known.symptoms))
            raise wrong(f"{place}.symptom", rule.symptom, f"one of {symptoms}")
        named = set(BUILT_IN)
        keys = [f"patterns[{at}]" for at in range(len(rule.patterns))]
        texts = dict(zip(keys, rule.patterns, strict=True))
        for key, pattern in (
            texts if rule.frame is None else {**texts, "frame": rule.frame}
        ).items():
            try:
                named.update(name.decode() for name in compiled(pattern).groupindex)
            except re2.error as error:
                expected = f"a regular expression of RE2, which has no look-around ({error})"
                raise wrong(f"{place}.{key}", repr(pattern), expected) from error
        try:
            fields = {name for _, name, _, _ in string.Formatter().parse(rule.cause) if name}
        except ValueError as error:
            raise wrong(f"{place}.cause", rule.cause, f"a sentence ({error})") from error
        if strange := (fields - named if rule.cause else {""}):
            expected = "the name of a group in a pattern, or " + ", ".join(BUILT_IN)
            raise wrong(f"{place}.cause", "{" + sorted(strange)[0] + "}", expected)
