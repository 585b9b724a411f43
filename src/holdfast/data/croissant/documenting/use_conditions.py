"""Conditions of use as sentences: DUO terms, ODRL policies, and what else ``usageInfo`` holds.

Works on JSON whose keys are canonical terms (see `document.model`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

# The Data Use Ontology's codes and what they are called, https://www.ebi.ac.uk/ols4/ontologies/duo.
DUO = {
    "0000004": "no restriction",
    "0000006": "health, medical or biomedical research",
    "0000007": "disease-specific research",
    "0000011": "population origins or ancestry research only",
    "0000012": "research-specific restrictions",
    "0000015": "no general methods research",
    "0000016": "genetic studies only",
    "0000018": "not-for-profit, non-commercial use only",
    "0000019": "publication required",
    "0000020": "collaboration required",
    "0000021": "ethics approval required",
    "0000022": "geographical restriction",
    "0000024": "publication moratorium",
    "0000025": "time limit on use",
    "0000026": "user-specific restriction",
    "0000027": "project-specific restriction",
    "0000028": "institution-specific restriction",
    "0000029": "return of results to the database or resource",
    "0000042": "general research use",
    "0000043": "clinical care use",
    "0000044": "population origins or ancestry research prohibited",
    "0000045": "not-for-profit organisations only",
    "0000046": "non-commercial use only",
}
_DUO = re.compile(r"(?:duo:|http://purl\.obolibrary\.org/obo/DUO_|DUO[_:])(\d{7})", re.IGNORECASE)
_RULES = {
    "odrl:permission": "Permitted",
    "odrl:prohibition": "Forbidden",
    "odrl:obligation": "Required",
    "odrl:duty": "Required",
}
_OPERATORS = {
    "eq": "is",
    "neq": "is not",
    "lt": "is less than",
    "lteq": "is at most",
    "gt": "is greater than",
    "gteq": "is at least",
    "isA": "is a kind of",
    "isAnyOf": "is any of",
    "isAllOf": "is all of",
    "isNoneOf": "is none of",
    "isPartOf": "is part of",
    "hasPart": "has as a part",
}


def listed(value: Any) -> list[Any]:
    """The values of a property: JSON-LD writes a list of one without brackets."""
    return value if isinstance(value, list) else [] if value is None else [value]


def use_sentences(usage_info: Any) -> Iterator[str]:
    """One sentence for each term, policy rule or text of a ``sc:usageInfo`` property."""
    for value in listed(usage_info):
        if isinstance(value, str):
            if named := called(value):
                yield _sentence(named)
        elif isinstance(value, dict):
            rules = [
                (verb, rule)
                for key, verb in _RULES.items()
                for rule in listed(value.get(key))
                if isinstance(rule, dict)
            ]
            if not rules and (name := called(value)):
                yield _sentence(name)
            for verb, rule in rules:
                yield _rule(verb, rule)


def _sentence(text: str) -> str:
    begun = text if "://" in text.split(" ")[0] else text[0].upper() + text[1:]
    return f"{begun.rstrip('.')}."


def _rule(verb: str, rule: dict[str, Any]) -> str:
    actions = [called(one) for one in listed(rule.get("odrl:action"))]
    sentence = f"{verb}: {' and '.join(one for one in actions if one) or 'use'}"
    conditions = [_condition(one) for one in listed(rule.get("odrl:constraint"))]
    duties = [
        _rule("required", one) for one in listed(rule.get("odrl:duty")) if isinstance(one, dict)
    ]
    if conditions:
        sentence += f", if {'; and if '.join(conditions)}"
    if duties:
        sentence += f"; {'; '.join(duties)}"
    return f"{sentence.rstrip('.')}."


def _condition(value: Any) -> str:
    if not isinstance(value, dict):
        return called(value)
    left, operator, right = (
        value.get(f"odrl:{part}") for part in ("leftOperand", "operator", "rightOperand")
    )
    words = _OPERATORS.get(_local(called(operator)), called(operator) or "is")
    stated = " or ".join(called(one) for one in listed(right))
    said = f"{called(left) or 'the use'} {words} {stated}" if stated else ""
    name = value.get("sc:name")
    if isinstance(name, str) and name.strip():
        return f"{name} ({said})" if said else name
    return said or called(value)


def called(value: Any) -> str:
    """What a term, a thing or an address is called."""
    if isinstance(value, list):
        return ", ".join(filter(None, map(called, value)))
    if isinstance(value, dict):
        if "@value" in value:
            return called(value["@value"])
        for key in ("sc:termCode", "sc:url", "@id"):
            code = value.get(key)
            if isinstance(code, str) and (known := _duo(code)):
                name = value.get("sc:name")
                return (
                    f"{name} ({known[0]})" if isinstance(name, str) else f"{known[1]} ({known[0]})"
                )
        for key in (
            "sc:name",
            "prov:label",
            "rdfs:label",
            "foaf:name",
            "dct:title",
            "sc:url",
            "@id",
        ):
            if (text := called(value.get(key))) != "":
                return text
        return called(value.get("sc:description"))
    if value is None:
        return ""
    if isinstance(value, str) and (known := _duo(value)):
        return f"{known[1]} ({known[0]})"
    return str(value).strip()


def _duo(text: str) -> tuple[str, str] | None:
    found = _DUO.fullmatch(text.strip())
    return None if found is None else (f"DUO_{found[1]}", DUO.get(found[1], "a DUO term"))


def _local(name: str) -> str:
    return re.split(r"[:/#]", name)[-1]
