"""What a line of a log means: the rules, as data to edit, and how a file of them is read.

The rules that ship are `rules.toml`, beside this module; a user's file is laid over them.
"""

from __future__ import annotations

import re
import string
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources
from pathlib import Path
from typing import Literal, cast

from holdfast.errors import InputError
from holdfast.fleet import taxonomy
from holdfast.fleet.taxonomy import DOMAINS, Taxonomy
from holdfast.runs.diagnosis.literals import (
    Sieve,
    compile_pattern,
    explosive,
    required,
    required_texts,
)

Kind = Literal["root", "vague", "cascade", "restart", "info"]
WEIGHTS: Mapping[str, int] = {"root": 80, "vague": 50, "cascade": 20, "restart": 0, "info": 0}
"""Default weight of a rule, by kind."""
TRACEBACK = "python_exception"
"""The rule for a traceback whose exception no other rule knows; it must exist."""
BUILT_IN = ("exception", "message", "frame")
"""Fields that a cause may name and that every traceback has."""

_KEYS = (
    "id",
    "kind",
    "patterns",
    "frame",
    "cause",
    "symptom",
    "domains",
    "weight",
    "remedy",
    "source",
)


@dataclass(frozen=True)
class Pattern:
    """A regular expression, and what its matches hold."""

    regex: re.Pattern[str]
    needs: frozenset[bytes] | None
    """In lower case, of which a matching line has one, and its key the key; None: none is known."""
    texts: frozenset[bytes] | None
    """The same for the line alone: longer texts, some of which leave nothing in a key."""

    def may_match(self, lower: bytes) -> bool:
        """Whether a line, or any line of a block, in lower case, could match."""
        return self.texts is None or any(text in lower for text in self.texts)


@dataclass(frozen=True)
class Rule:
    """One kind of trouble and how its lines look."""

    id: str
    kind: Kind
    """root: names what went wrong; vague: something went wrong here, why is not said; cascade:
    follows from trouble elsewhere; restart: the run begins again; info: never a cause."""
    patterns: tuple[Pattern, ...]
    """Searched in the line without its rank; the first that matches counts."""
    frame: re.Pattern[str] | None
    """If given, the rule is about tracebacks: one of the frames, ``file:line function``, matches."""
    cause: str
    """One sentence, in which ``{name}`` is what a group of the pattern found."""
    symptom: str | None
    """Id in the fleet's taxonomy; None: it has none for this (a fault of the program itself)."""
    domains: tuple[str, ...]
    """Who may be at fault; empty: as the taxonomy says of the symptom."""
    weight: int
    """0 to 100: of all that is found, the heaviest is the cause, and of equals the earliest."""
    remedy: str
    source: str


@dataclass(frozen=True)
class RuleSet:
    """Rules in the order in which they are tried."""

    rules: tuple[Rule, ...]
    taxonomy: Taxonomy

    @cached_property
    def patterns(self) -> list[tuple[int, Pattern]]:
        """Every pattern with the place of its rule, in the order in which they are tried."""
        return [
            (place, pattern)
            for place, rule in enumerate(self.rules)
            for pattern in rule.patterns
            if rule.frame is None
        ]

    @cached_property
    def sieve(self) -> Sieve:
        """Filter for the patterns that a line may match, by its key."""
        return Sieve([pattern.needs for _, pattern in self.patterns])

    def match(
        self, line: bytes, body: str, candidates: Sequence[int]
    ) -> tuple[int, dict[str, str]] | None:
        """The first rule that knows a line.

        Args:
            line: the line as it stands.
            body: the line as rules see it.
            candidates: places in `patterns`, from the `sieve`.

        Returns:
            The rule's place, and what the named groups found.
        """
        line = line.lower()
        for candidate in candidates:
            place, pattern = self.patterns[candidate]
            if pattern.may_match(line) and (found := pattern.regex.search(body)):
                return place, _named(found)
        return None

    def rule_of(self, text: str) -> Rule | None:
        """The first rule that knows a line."""
        found = self.match(text.encode(), text, range(len(self.patterns)))
        return None if found is None else self.rules[found[0]]

    def match_frames(self, said: str, frames: Sequence[str]) -> tuple[int, dict[str, str]] | None:
        """The first rule about frames that knows a traceback, by one of them and its last line."""
        for place, rule in enumerate(self.rules):
            if rule.frame is None or not any(map(rule.frame.search, frames)):
                continue
            if not rule.patterns:
                return place, {}
            for pattern in rule.patterns:
                if found := pattern.regex.search(said):
                    return place, _named(found)
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


def shipped_text() -> str:
    """The rules that ship, as TOML."""
    return resources.files("holdfast.runs.diagnosis").joinpath("rules.toml").read_text("utf-8")


@cache
def _shipped() -> tuple[Rule, ...]:
    return _parse(shipped_text(), None, taxonomy.load()).rules


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
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            "the rules cannot be read",
            code="unreadable",
            path=path,
            found=str(error),
            expected="a TOML file in UTF-8",
            remedy="leave --rules out to use those that ship; --print-rules prints them",
        ) from error
    return _parse(text, path, known)


def _parse(text: str, path: Path | None, known: Taxonomy) -> RuleSet:
    reader = _Reader(path, known)
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(
            "this is not TOML", code="invalid-syntax", path=path, found=str(error)
        ) from error
    reader.only(data, "", ("version", "extends", "rules"))
    if data.get("version", 1) != 1:
        raise reader.wrong("version", data["version"], "1")
    extends = data.get("extends", True)
    if not isinstance(extends, bool):
        raise reader.wrong("extends", extends, "true or false")
    given = tuple(reader.rules(data.get("rules", [])))
    base = _shipped() if path is not None else ()
    replaced = {rule.id for rule in given}
    kept = [rule for rule in base if rule.id not in replaced]
    if not extends:  # alone, but for the rule that must exist
        kept = [rule for rule in kept if rule.id == TRACEBACK]
    return RuleSet((*given, *kept), known)


class _Reader:
    """Checks a document piece by piece; every complaint names file and key."""

    def __init__(self, path: Path | None, known: Taxonomy) -> None:
        self.path = path
        self.taxonomy = known

    def wrong(self, key: str, found: object, expected: str) -> InputError:
        return InputError(
            "invalid rule file",
            code="invalid-value",
            path=self.path,
            place=key,
            found=repr(found),
            expected=expected,
        )

    def only(self, table: Mapping[str, object], place: str, allowed: Sequence[str]) -> None:
        for name in table:
            if name not in allowed:
                key = f"{place}.{name}" if place else name
                raise self.wrong(key, name, "one of the keys " + ", ".join(allowed))

    def rules(self, entries: object) -> Iterator[Rule]:
        if not isinstance(entries, list):
            raise self.wrong("rules", entries, "tables headed [[rules]]")
        seen = set()
        for number, entry in enumerate(entries):
            place = f"rules[{number}]"
            if not isinstance(entry, dict):
                raise self.wrong(place, entry, "a table")
            rule = self.rule(entry, place)
            if rule.id in seen:
                raise self.wrong(f"{place}.id", rule.id, "an id that no other rule has")
            seen.add(rule.id)
            yield rule

    def rule(self, entry: dict[str, object], place: str) -> Rule:
        name = self.text(entry, "id", place)
        place = f"{place} ({name})"
        self.only(entry, place, _KEYS)
        kind = entry.get("kind")
        if not isinstance(kind, str) or kind not in WEIGHTS:
            raise self.wrong(f"{place}.kind", kind, "one of " + ", ".join(WEIGHTS))
        patterns = tuple(self.patterns(entry, place))
        frame = self.pattern(entry["frame"], f"{place}.frame") if "frame" in entry else None
        if not patterns and frame is None and name != TRACEBACK:
            raise self.wrong(f"{place}.patterns", [], "one pattern or more")
        return Rule(
            id=name,
            kind=cast(Kind, kind),
            patterns=patterns,
            frame=frame.regex if frame else None,
            cause=self.cause(entry, place, [pattern.regex for pattern in patterns]),
            symptom=self.symptom(entry, place),
            domains=self.domains(entry, place),
            weight=self.weight(entry, place, WEIGHTS[kind]),
            remedy=self.text(entry, "remedy", place) if "remedy" in entry else "",
            source=self.text(entry, "source", place) if "source" in entry else "",
        )

    def text(self, entry: Mapping[str, object], name: str, place: str) -> str:
        value = entry.get(name)
        if not isinstance(value, str) or not value:
            raise self.wrong(f"{place}.{name}", value, "a text")
        return value

    def patterns(self, entry: Mapping[str, object], place: str) -> Iterator[Pattern]:
        given = entry.get("patterns", [])
        if not isinstance(given, list):
            raise self.wrong(f"{place}.patterns", given, "a list of regular expressions")
        for number, pattern in enumerate(given):
            yield self.pattern(pattern, f"{place}.patterns[{number}]")

    def pattern(self, pattern: object, place: str) -> Pattern:
        if not isinstance(pattern, str) or not pattern:
            raise self.wrong(place, pattern, "a regular expression")
        try:
            compiled = compile_pattern(pattern)
        except re.error as error:
            raise self.wrong(place, pattern, f"a regular expression ({error})") from error
        if explosive(pattern):
            raise self.wrong(
                place,
                pattern,
                "a regular expression without a repeat or a choice inside an open repeat: "
                "on some lines its search would not end",
            )
        return Pattern(compiled, required(pattern), required_texts(pattern))

    def cause(
        self, entry: Mapping[str, object], place: str, patterns: Sequence[re.Pattern[str]]
    ) -> str:
        text = self.text(entry, "cause", place)
        known = set(BUILT_IN).union(*(pattern.groupindex for pattern in patterns))
        try:
            named = {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}
        except ValueError as error:
            raise self.wrong(f"{place}.cause", text, f"a sentence ({error})") from error
        if strange := named - known:
            raise self.wrong(
                f"{place}.cause",
                "{" + sorted(strange)[0] + "}",
                "the name of a group in a pattern, or " + ", ".join(BUILT_IN),
            )
        return text

    def symptom(self, entry: Mapping[str, object], place: str) -> str | None:
        if "symptom" not in entry:
            return None
        name = self.text(entry, "symptom", place)
        if name not in self.taxonomy.symptoms:
            raise self.wrong(
                f"{place}.symptom", name, "one of " + ", ".join(sorted(self.taxonomy.symptoms))
            )
        return name

    def domains(self, entry: Mapping[str, object], place: str) -> tuple[str, ...]:
        value = entry.get("domains", [])
        if not isinstance(value, list) or any(each not in DOMAINS for each in value):
            raise self.wrong(f"{place}.domains", value, "some of " + ", ".join(DOMAINS))
        return tuple(value)

    def weight(self, entry: Mapping[str, object], place: str, default: int) -> int:
        value = entry.get("weight", default)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= 100:
            raise self.wrong(f"{place}.weight", value, "a whole number from 0 to 100")
        return value


def _named(found: re.Match[str]) -> dict[str, str]:
    return {name: text for name, text in found.groupdict().items() if text is not None}
