"""What a description states of the responsible-AI vocabulary: found, judged, put into sentences."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from holdfast.data.croissant.document.building import build
from holdfast.data.croissant.document.reading import DescriptionSource, read_document
from holdfast.data.croissant.document.vocabulary import canonical
from holdfast.data.croissant.documenting.canonical import Said, plain, said_everywhere
from holdfast.data.croissant.documenting.completeness import Rai, Statement
from holdfast.data.croissant.documenting.judging import State, judge, texts
from holdfast.data.croissant.documenting.statements import (
    ALSO_CALLED,
    BY_NAME,
    GROUPS,
    TERMS,
    Term,
)
from holdfast.data.croissant.documenting.use_conditions import listed, provenance_lines, use_lines

_ORDER: dict[State, int] = {"stated": 3, "short": 2, "placeholder": 1, "empty": 0}


def rai(path: DescriptionSource) -> Rai:
    """The responsible-AI statements of a description, and what is missing from them.

    Raises:
        InputError: if the file cannot be read as a JSON object.
    """
    document = read_document(path)
    metadata = build(document)
    said = list(said_everywhere(document))
    found = {term.name: [one for one in said if meant(one.term) == term.name] for term in TERMS}
    unknown = [
        (one.written, one.at)
        for one in said
        if one.term.startswith("rai:") and meant(one.term) is None
    ]
    root = plain(document)
    return Rai(
        path=document.path,
        conforms=any("/croissant/RAI" in one for one in metadata.conforms_to),
        statements=tuple(_statement(term, found[term.name]) for term in TERMS),
        unknown=tuple(unknown),
        use_conditions=tuple(_conditions(root)),
        provenance=tuple(_provenance(root)),
        dataset=_dataset(root),
    )


def meant(term: str) -> str | None:
    """The property that a canonical term means, also where it is misspelt."""
    prefix, _, name = term.partition(":")
    if prefix != "rai":
        return None
    if name in BY_NAME:
        return name
    if name in ALSO_CALLED:
        return ALSO_CALLED[name]
    lower = {known.lower(): known for known in (*BY_NAME, *ALSO_CALLED)}
    near = get_close_matches(name.lower(), lower, n=1, cutoff=0.85)
    return ALSO_CALLED.get(lower[near[0]], lower[near[0]]) if near else None


def _statement(term: Term, found: Sequence[Said]) -> Statement:
    if not found:
        return Statement(term.name, "absent")
    said = [(text, judge(text, term.kind)) for one in found for text in texts(one.value)]
    best: State = max((state for _, state in said), key=_ORDER.__getitem__, default="empty")
    proper = f"rai:{term.name}"
    misspelt = all(one.term != proper for one in found)
    written = tuple(dict.fromkeys(one.written for one in found))
    remarks = [
        f"{one.written} is called {proper} in the vocabulary."
        for one in found
        if one.term != proper or canonical(one.iri or "") != proper
    ]
    words = tuple(
        text.strip() for text, state in said if state in ("stated", "short", "placeholder")
    )
    if term.kind == "time" and best == "stated" and not any(map(_is_time, words)):
        remarks.append(f"{written[0]} is not an ISO 8601 date or interval.")
    return Statement(
        term.name,
        "misspelt" if misspelt and best == "stated" else best,
        words,
        tuple(one.at for one in found),
        written,
        " ".join(dict.fromkeys(remarks)),
    )


_TIME = re.compile(
    r"\d{4}(-\d\d(-\d\d)?)?([T ]\d\d:?\d\d(:?\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?)?|P[\dYMWDTHS.]+|\.\."
)


def _is_time(text: str) -> bool:
    return all(_TIME.fullmatch(part.strip()) for part in re.split(r"/|--", text))


def _dataset(root: Mapping[str, Any]) -> dict[str, bool]:
    aliases = {"cr:citeAs": ("cr:citeAs", "sc:citation")}
    return {
        term: any(
            any(judge(text, "list") == "stated" for text in texts(root.get(name)))
            or (isinstance(root.get(name), (dict, list, bool)) and bool(listed(root.get(name))))
            for name in aliases.get(term, (term,))
        )
        for group in GROUPS
        for term in group.dataset
    }


def _says(value: Any) -> bool:
    """Whether a property of the dataset has a value that is more than a placeholder."""
    said = list(texts(value))
    return any(judge(text, "list") == "stated" for text in said) if said else bool(listed(value))


def _conditions(root: Mapping[str, Any]) -> Iterator[str]:
    yield from use_lines(root.get("sc:usageInfo"))
    for what, thing in _parts(root):
        for line in use_lines(thing.get("sc:usageInfo")):
            yield f"{what}: {line}"


def _provenance(root: dict[str, Any]) -> Iterator[str]:
    yield from provenance_lines("Dataset", root)
    for what, thing in _parts(root):
        yield from provenance_lines(what, thing)


_KINDS = {
    "sc:distribution": "File",
    "cr:recordSet": "Record set",
    "cr:field": "Field",
    "cr:subField": "Field",
    "cr:annotation": "Annotation",
}


def _parts(thing: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every file, record set and field, with what a sentence calls it."""
    for term, kind in _KINDS.items():
        for part in listed(thing.get(term)):
            if isinstance(part, dict):
                name = part.get("@id") or part.get("sc:name") or "without a name"
                yield f"{kind} {name}", part
                yield from _parts(part)
