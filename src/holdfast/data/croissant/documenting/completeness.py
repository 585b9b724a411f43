"""How much of the responsible-AI vocabulary a description states, use case by use case."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from holdfast.data.croissant.documenting.statements import BY_NAME, GROUPS, TERMS, Group, Term
from holdfast.numbers import counted

Standing = Literal["stated", "short", "placeholder", "empty", "misspelt", "absent"]
STANDINGS: tuple[Standing, ...] = ("stated", "misspelt", "short", "placeholder", "empty", "absent")


@dataclass(frozen=True)
class Statement:
    """What a description says under one property of the vocabulary.

    Attributes:
        term: the property's name without prefix.
        standing: whether it says something; "misspelt" where it does so under a name that no program knows.
        texts: what it says.
        at: pointers of the values.
        written: the names it was written under.
        remark: what a reader of the statement should know.
    """

    term: str
    standing: Standing
    texts: tuple[str, ...] = ()
    at: tuple[str, ...] = ()
    written: tuple[str, ...] = ()
    remark: str = ""

    @property
    def meaning(self) -> Term:
        """The property: its label, its use case and the question it answers."""
        return BY_NAME[self.term]

    def to_dict(self) -> dict[str, Any]:
        """The JSON that programs read."""
        return {
            "term": f"rai:{self.term}",
            "group": self.meaning.home,
            "standing": self.standing,
            "texts": list(self.texts),
            "at": list(self.at),
            "written": list(self.written),
            "remark": self.remark,
            "question": "" if self.standing == "stated" else self.meaning.question,
        }


@dataclass(frozen=True)
class GroupScore:
    """How completely a use case is documented.

    Attributes:
        group: the use case.
        counts: standing -> number of its properties, own or borrowed, with that standing.
        dataset: canonical property of the dataset -> whether it is stated.
        cited: number of sentences on provenance or use conditions that belong to it.
    """

    group: Group
    counts: Mapping[Standing, int]
    dataset: Mapping[str, bool]
    cited: int = 0

    @property
    def of(self) -> int:
        """How many properties of the vocabulary belong to the use case."""
        return sum(self.counts.values())

    def to_dict(self) -> dict[str, Any]:
        """The JSON that programs read."""
        return {
            "id": self.group.id,
            "title": self.group.title,
            "of": self.of,
            **{standing: self.counts.get(standing, 0) for standing in STANDINGS},
            "dataset": dict(self.dataset),
            "cited": self.cited,
        }


@dataclass(frozen=True, kw_only=True)
class Rai:
    """The responsible-AI statements of one description.

    Attributes:
        path: the description.
        conforms: whether it says that it conforms to the vocabulary.
        statements: all twenty properties, in the vocabulary's order of use cases.
        unknown: names in the vocabulary's namespace that it does not have, with their pointers.
        use_conditions: sentences on who may do what.
        provenance: lines on where the data come from.
        dataset: which properties of the dataset itself are stated, of those that use cases name.
    """

    path: Path | str
    conforms: bool
    statements: tuple[Statement, ...]
    unknown: tuple[tuple[str, str], ...] = ()
    use_conditions: tuple[str, ...] = ()
    provenance: tuple[str, ...] = ()
    dataset: Mapping[str, bool]

    @property
    def stated(self) -> int:
        """How many of the twenty say something."""
        return sum(one.standing == "stated" for one in self.statements)

    @cached_property
    def score(self) -> tuple[GroupScore, ...]:
        """Each use case: its own properties and those it borrows."""
        standing = {one.term: one.standing for one in self.statements}
        cited = {
            "provenance": len(self.provenance),
            "use conditions": len(self.use_conditions),
            "": 0,
        }
        return tuple(
            GroupScore(
                group,
                Counter(
                    standing[term.name]
                    for term in TERMS
                    if term.home == group.id or term.name in group.borrowed
                ),
                {term: self.dataset[term] for term in group.dataset},
                cited[group.cites],
            )
            for group in GROUPS
        )

    @property
    def questions(self) -> list[tuple[str, str]]:
        """Property and question for all that is not stated, in the vocabulary's order."""
        return [
            (one.term, one.meaning.question) for one in self.statements if one.standing != "stated"
        ]

    def to_dict(self) -> dict[str, Any]:
        """The JSON that programs read."""
        return {
            "path": str(self.path),
            "conforms_to_rai": self.conforms,
            "stated": self.stated,
            "of": len(self.statements),
            "groups": [group.to_dict() for group in self.score],
            "statements": [one.to_dict() for one in self.statements],
            "unknown": [{"term": term, "at": at} for term, at in self.unknown],
            "use_conditions": list(self.use_conditions),
            "provenance": list(self.provenance),
        }

    def text(self) -> str:
        """The report for a terminal."""
        lines = [
            f"{self.stated} of {len(self.statements)} statements of the RAI vocabulary present."
        ]
        for group in self.score:
            parts = [
                f"{group.counts[standing]} {standing}"
                for standing in STANDINGS[1:]
                if group.counts.get(standing)
            ]
            extra = []
            if group.dataset:
                stated = sum(group.dataset.values())
                extra.append(f"{stated} of {len(group.dataset)} of the dataset's properties")
            if group.group.cites:
                extra.append(f"{counted(group.cited, 'statement')} on {group.group.cites}")
            head = (
                f"{group.counts.get('stated', 0)} of {group.of} stated"
                if group.of
                else "no properties"
            )
            notes = "; ".join(text for text in (", ".join(parts), *extra) if text)
            lines.append(f"  {group.group.title:24} {head:15}{f'  ({notes})' if notes else ''}")
        for title, sentences in (
            ("Conditions of use", self.use_conditions),
            ("Provenance", self.provenance),
        ):
            lines += ["", title, *(f"  {sentence}" for sentence in sentences)] if sentences else []
        if self.questions:
            lines += ["", "Open questions"]
            lines += [f"  rai:{term}: {question}" for term, question in self.questions]
        lines += [f"  {one.remark}" for one in self.statements if one.remark]
        lines += [f"  {at}: unknown term {term}" for term, at in self.unknown]
        return "\n".join(lines) + "\n"
