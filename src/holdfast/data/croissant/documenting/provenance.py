"""Where the data come from, as sentences: PROV-O statements and ``isBasedOn`` on any part.

Works on JSON whose keys are canonical terms (see `document.model`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from holdfast.data.croissant.documenting.use_conditions import called, listed

_VERBS = {
    "prov:wasDerivedFrom": "was derived from",
    "prov:hadPrimarySource": "has as its primary source",
    "prov:wasQuotedFrom": "was quoted from",
    "prov:wasRevisionOf": "is a revision of",
    "prov:specializationOf": "is a special case of",
    "prov:alternateOf": "is an alternative to",
    "prov:hadMember": "has as a part",
    "prov:wasGeneratedBy": "was made by",
    "prov:wasAttributedTo": "is attributed to",
    "prov:wasInfluencedBy": "was influenced by",
    "prov:generatedAtTime": "was made at",
    "prov:invalidatedAtTime": "is no longer valid since",
    "prov:atLocation": "is from",
    "sc:isBasedOn": "is based on",
}


def provenance_sentences(what: str, thing: dict[str, Any]) -> Iterator[str]:
    """One sentence for each statement about a thing.

    Args:
        what: how the sentence calls it, for example ``"The dataset"``.
        thing: its JSON object.
    """
    for term, verb in _VERBS.items():
        for value in listed(thing.get(term)):
            name = called(value)
            if name or isinstance(value, dict):
                yield f"{what} {verb} {name or 'something unnamed'}{_details(value)}."


def _details(value: Any) -> str:
    """What is said of an activity: who did it, with what, and when."""
    if not isinstance(value, dict):
        return ""
    parts = []
    if used := called(value.get("prov:used")):
        parts.append(f"which used {used}")
    if actor := called(value.get("prov:wasAssociatedWith")):
        parts.append(f"carried out by {actor}")
    start, end = (called(value.get(f"prov:{when}")) for when in ("startedAtTime", "endedAtTime"))
    if start and end:
        parts.append(f"from {start} to {end}")
    elif start or end:
        parts.append(f"from {start}" if start else f"until {end}")
    inner = [
        text.removeprefix("it ").removesuffix(".") for text in provenance_sentences("it", value)
    ]
    parts += [f"which {text}" for text in inner]
    return "".join(f", {part}" for part in parts)
