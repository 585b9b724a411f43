"""Properties that no vocabulary has, and what was meant by them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from holdfast.data.croissant.document.contexts import KEYWORDS
from holdfast.data.croissant.document.schema_org import THING_TERMS
from holdfast.data.croissant.document.terms import Entry
from holdfast.data.croissant.document.vocabulary import KNOWN_TERMS, PARENT_FIELD_TERMS, TERMS
from holdfast.data.croissant.rules.roles import EXTRACTS, STEPS, TARGETS, Part
from holdfast.data.croissant.rules.wording import nearest, quoted

# Of each group, a thing of the role needs one.
NEEDED: dict[str, tuple[tuple[str, ...], ...]] = {
    "dataset": (("sc:name",), ("sc:description",), ("sc:url",)),
    "file_object": (("sc:contentUrl",), ("sc:encodingFormat",)),
    "file_set": (("sc:encodingFormat",),),
    "field": (("cr:source", "cr:value", "cr:subField", "cr:references"), ("cr:dataType",)),
    "source": ((*TARGETS, "sc:distribution"),),
    "extract": (EXTRACTS,),
    "transform": ((*STEPS, "cr:delimiter"),),
}
_OURS = ("sc", "cr", "rai", "geocr")
_KEYWORDS = ("@id", "@type", "@value", "@context", "@language")


@dataclass(frozen=True, slots=True)
class Misspelt:
    """A property that is not known where it stands.

    Attributes:
        meant: the term that is near, ``""`` if none is.
        needed: whether the thing lacks that term, and must have it.
        elsewhere: the role of the things that have such a property, ``""`` if none does.
    """

    part: Part
    entry: Entry
    meant: str
    needed: bool
    elsewhere: str = ""

    @property
    def fault(self) -> str:
        """What is wrong with it, as messages say it."""
        if self.elsewhere:
            return (
                f"{quoted(self.entry.key)} has no meaning here; it belongs to {_a(self.elsewhere)}"
            )
        return f"{quoted(self.entry.key)} is not a property of {_a(self.part.role)}"


def _a(role: str) -> str:
    return f"{'an' if role[0] in 'aeiou' else 'a'} {role.replace('_', ' ')}"


def misspelt(parts: Iterable[Part]) -> list[Misspelt]:
    """Every property that is not known where it stands, in the order of the description."""
    found = []
    for part in parts:
        if part.role in ("other", "reference"):
            continue
        role = "field" if part.role == "annotation" else part.role
        allowed = (PARENT_FIELD_TERMS if role == "parent_field" else TERMS[role]) | THING_TERMS
        has = {entry.term for entry in part.thing.entries}
        for entry in part.thing.entries:
            if entry.term.startswith("@"):
                if entry.term not in KEYWORDS:
                    found.append(_keyword(part, entry, nearest(entry.term, _KEYWORDS)))
                continue
            prefix, _, name = entry.term.partition(":")
            if entry.term in allowed or prefix not in _OURS:
                continue
            if prefix == "sc" and entry.term in KNOWN_TERMS:
                continue  # schema.org allows it, if elsewhere
            bare = f"@{name.casefold()}"
            if bare in ("@id", "@type", "@context") and bare not in part.thing.raw:
                found.append(_keyword(part, entry, bare))
                continue
            elsewhere = next((other for other, terms in TERMS.items() if entry.term in terms), "")
            names = {term.partition(":")[2]: term for term in sorted(allowed)}
            near = "" if elsewhere else nearest(name, names)
            meant = names[near] if near else ""
            needed = any(meant in group and has.isdisjoint(group) for group in NEEDED.get(role, ()))
            found.append(Misspelt(part, entry, meant, needed, elsewhere))
    return found


def _keyword(part: Part, entry: Entry, meant: str) -> Misspelt:
    """A key that was most likely meant to be one of JSON-LD's own."""
    needed = meant in ("@type", "@context") and meant not in part.thing.raw
    return Misspelt(part, entry, meant, needed=needed)
