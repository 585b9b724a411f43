"""Conditions of use and provenance, each as a line, in the terms in which they are written.

Works on JSON whose keys are canonical terms (see `document.model`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

_NAMES = (
    "sc:name",
    "prov:label",
    "rdfs:label",
    "foaf:name",
    "dct:title",
    "sc:termCode",
    "sc:url",
    "@id",
)


def listed(value: Any) -> list[Any]:
    """The values of a property: JSON-LD writes a list of one without brackets."""
    return value if isinstance(value, list) else [] if value is None else [value]


def use_lines(usage_info: Any) -> Iterator[str]:
    """One line for each term, policy or text of a ``sc:usageInfo`` property."""
    for value in listed(usage_info):
        policy = isinstance(value, dict) and any(key.startswith("odrl:") for key in value)
        line = json.dumps(value, ensure_ascii=False) if policy else called(value)
        if line:
            yield line


def provenance_lines(what: str, thing: Mapping[str, Any]) -> Iterator[str]:
    """One line for each PROV-O statement, and ``isBasedOn``, about a thing.

    Args:
        what: how the line calls it, for example ``"Dataset"``.
        thing: its JSON object.
    """
    for term, values in thing.items():
        if term.startswith("prov:") or term == "sc:isBasedOn":
            for value in listed(values):
                yield f"{what}: {term} {called(value) or json.dumps(value, ensure_ascii=False)}"


def called(value: Any) -> str:
    """What a term, a thing or an address is called."""
    if isinstance(value, list):
        return ", ".join(filter(None, map(called, value)))
    if isinstance(value, dict):
        names = (called(value.get(key)) for key in ("@value", *_NAMES, "sc:description"))
        return next(filter(None, names), "")
    return "" if value is None else str(value).strip()
