"""What a description states of the responsible-AI vocabulary, and which of its questions are open."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from holdfast.answer import Answer, Finding, Section, Table, Value, measured
from holdfast.data.croissant.cards.canonical import vocabulary_properties
from holdfast.data.croissant.cards.statements import BY_NAME, GROUPS, TERMS, Term
from holdfast.data.croissant.document.building import build
from holdfast.data.croissant.document.reading import DescriptionSource, read_document
from holdfast.numbers import counted

Standing = Literal["stated", "placeholder", "absent"]
STANDINGS: tuple[Standing, ...] = ("stated", "placeholder", "absent")

# Words that stand in the place of an answer.
_NO_ANSWER = frozenset(
    {"", "na", "nil", "none", "null", "tba", "tbd", "todo", "unknown", "unspecified"}
    | {"moreinformationneeded", "notapplicable", "notavailable", "notprovided", "tobedetermined"}
)
# Which key of an object says what it is called, the best first.
_NAMES = (
    *("@value", "@list", "@set", "itemListElement", "item"),
    *("name", "description", "text", "url", "@id"),
)


@dataclass(frozen=True)
class Statement:
    """What a description says under one property of the vocabulary.

    Attributes:
        term: the property's name without prefix.
        standing: "placeholder" where only words such as "TBD" stand there, or none.
        texts: what it says.
        at: pointers of the values.
    """

    term: str
    standing: Standing
    texts: tuple[str, ...] = ()
    at: tuple[str, ...] = ()

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
            "question": "" if self.standing == "stated" else self.meaning.question,
        }


@dataclass(frozen=True, kw_only=True)
class Rai(Answer):
    """The responsible-AI statements of one description.

    Attributes:
        path: the description.
        conforms: whether it says that it conforms to the vocabulary.
        statements: all twenty properties, in the vocabulary's order of use cases.
    """

    path: Path | str
    conforms: bool
    statements: tuple[Statement, ...]

    @property
    def stated(self) -> int:
        """How many of the twenty say something."""
        return sum(one.standing == "stated" for one in self.statements)

    @property
    def groups(self) -> list[dict[str, Any]]:
        """Each use case: how many of its properties, own or borrowed, have each standing."""
        groups = []
        for group in GROUPS:
            counts = Counter(
                one.standing
                for one in self.statements
                if one.meaning.home == group.id or one.term in group.borrowed
            )
            groups.append(
                {
                    "id": group.id,
                    "title": group.title,
                    "of": counts.total(),
                    **{standing: counts[standing] for standing in STANDINGS},
                }
            )
        return groups

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
            "groups": self.groups,
            "statements": [one.to_dict() for one in self.statements],
        }

    def values(self) -> Sequence[Value]:
        """How many statements are made."""
        return measured(self, stated=", higher", statements="")

    def findings(self) -> Sequence[Finding]:
        """How many statements are made."""
        counts = f"{self.stated} of {len(self.statements)}"
        return [Finding(f"{counts} statements of the RAI vocabulary present.", "groups")]

    def sections(self) -> Sequence[Section]:
        """Each use case, and the open questions."""
        groups = pa.Table.from_pylist(
            [
                {"use_case": one["title"], **{k: one[k] for k in ("stated", "of")}}
                for one in self.groups
            ]
        )
        sections = [Section("groups", "Which use cases are covered?", "", tables=[Table(groups)])]
        if self.questions:
            rows = [{"property": f"rai:{t}", "question": text} for t, text in self.questions]
            table, said = Table(pa.Table.from_pylist(rows)), counted(len(rows), "question")
            sections.append(
                Section("questions", "Which questions are open?", f"{said}.", tables=[table])
            )
        return sections


def rai(path: DescriptionSource) -> Rai:
    """The responsible-AI statements of a description, and what is missing from them.

    Whether a statement is true, or enough, nobody but a reader can tell: it counts as stated where any
    text but a placeholder stands there.

    Raises:
        InputError: if the file cannot be read as a JSON object.
    """
    document = read_document(path)
    properties = list(vocabulary_properties(document, "rai:"))
    statements = []
    for term in TERMS:
        pairs = [pair for pair in properties if pair[0].term == f"rai:{term.name}"]
        words = tuple(text.strip() for _, value in pairs for text in texts(value))
        standing: Standing = "placeholder" if pairs else "absent"
        if any(map(is_answer, words)):
            standing = "stated"
        places = tuple(one.at for one, _ in pairs)
        statements.append(Statement(term.name, standing, words, places))
    return Rai(
        path=document.path,
        conforms=any("/croissant/RAI" in one for one in build(document).conforms_to),
        statements=tuple(statements),
    )


def is_answer(text: str) -> bool:
    """Whether a text is more than white space or a placeholder, such as "TBD"."""
    return re.sub(r"[\W_]", "", text).casefold() not in _NO_ANSWER


def texts(value: Any) -> Iterator[str]:
    """The texts of a JSON value: plain, in a list, in several languages, or as the name of a thing."""
    if isinstance(value, (list, tuple)):
        for part in value:
            yield from texts(part)
    elif isinstance(value, Mapping):
        bare = {re.split("[:/#]", key)[-1]: part for key, part in value.items()}
        named = [bare[name] for name in _NAMES if name in bare][:1]
        yield from texts(named or [part for key, part in bare.items() if not key.startswith("@")])
    elif value is not None and not isinstance(value, bool):
        yield str(value)
