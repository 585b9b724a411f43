"""One description in other spellings of JSON-LD that mean the same."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

from hypothesis import strategies as st

NAMESPACES = {
    "https://schema.org/": ("http://schema.org/", "https://schema.org/"),
    "http://schema.org/": ("http://schema.org/", "https://schema.org/"),
    "http://mlcommons.org/croissant/": ("http://mlcommons.org/croissant/",),
    "http://mlcommons.org/croissant/RAI/": ("http://mlcommons.org/croissant/RAI/",),
    "http://mlcommons.org/schema/": ("http://mlcommons.org/schema/",),
    "http://purl.org/dc/terms/": ("http://purl.org/dc/terms/",),
    "https://www.wikidata.org/wiki/": (
        "https://www.wikidata.org/wiki/",
        "http://www.wikidata.org/entity/",
    ),
    "http://www.w3.org/ns/prov#": ("http://www.w3.org/ns/prov#",),
}
JSON_KEYS = {"data", "examples", "value"}
PREFIXES = ("s", "p", "x-y", "q2")


def iri_of(name: str, context: dict[str, Any]) -> str:
    """The IRI of a key or type, by the plain contexts that the suite has."""
    definition = context.get(name, name)
    text = definition.get("@id", name) if isinstance(definition, dict) else definition
    prefix, colon, rest = text.partition(":")
    if not colon:
        return context["@vocab"] + text
    return text if rest.startswith("//") or prefix not in context else context[prefix] + rest


def split(iri: str) -> tuple[str, str]:
    """Namespace and name."""
    cut = max(iri.rfind("/"), iri.rfind("#")) + 1
    return iri[:cut], iri[cut:]


class Respelling:
    """Rewrites a description by draws of Hypothesis."""

    def __init__(self, draw: Any, document: dict[str, Any]) -> None:
        self._draw = draw
        self._old = document["@context"]
        self._document = document
        self.context: dict[str, Any] = copy.deepcopy(self._old)
        self._names: dict[str, str] = {}
        self._id = draw(st.sampled_from(["@id", "id", "kennung"]))
        self._type = draw(st.sampled_from(["@type", "type", "art"]))
        for key, keyword in ((self._id, "@id"), (self._type, "@type")):
            if key != keyword:
                self.context[key] = keyword

    def document(self) -> dict[str, Any]:
        """The description in another spelling."""
        body = self._node(
            {key: value for key, value in self._document.items() if key != "@context"}
        )
        context: Any = self.context
        if self._draw(st.booleans()):
            keys = sorted(self.context)
            half = [
                key for key in keys if key.startswith("@") or self.context[key] in ("@id", "@type")
            ]
            first = {key: self.context[key] for key in keys}
            context = [first, {key: self.context[key] for key in half}]
        return {"@context": context, **body}

    def _name(self, name: str, *, key: bool) -> str:
        """Another name of a key or type; always the same for one."""
        if name.startswith("@"):
            return {"@id": self._id, "@type": self._type}.get(name, name)
        kept = f"{key}{name}"
        if kept not in self._names:
            self._names[kept] = self._new_name(name, key=key)
        return self._names[kept]

    def _new_name(self, name: str, *, key: bool) -> str:
        way = self._draw(st.sampled_from(["same", "prefix", "full", "alias", "object"]))
        namespace, local = split(iri_of(name, self._old))
        spelling = self._draw(st.sampled_from(NAMESPACES.get(namespace, (namespace,))))
        # A JSON or IRI typed term keeps its definition: only the plain name and an alias can carry one.
        typed = isinstance(self._old.get(name), dict) and local not in JSON_KEYS | {"dataType"}
        if way == "same" or typed or namespace not in NAMESPACES:
            return name
        if way == "full":
            return spelling + local
        if way == "prefix":
            prefix = self._draw(st.sampled_from(PREFIXES))
            if self.context.setdefault(prefix, spelling) != spelling:
                return spelling + local
            return f"{prefix}:{local}"
        alias = f"{'k' if key else 't'}_{len(self._names)}"
        self.context[alias] = spelling + local if way == "alias" else {"@id": spelling + local}
        return alias

    def _node(self, node: dict[str, Any]) -> dict[str, Any]:
        found = {}
        for key, value in node.items():
            if key == "@type":
                types = value if isinstance(value, list) else [value]
                names = [self._name(name, key=False) for name in types]
                found[self._type] = (
                    names if self._draw(st.booleans()) or len(names) > 1 else names[0]
                )
            elif key in JSON_KEYS or key.startswith("@") or isinstance(self._old.get(key), dict):
                plain = key in JSON_KEYS or key.startswith("@")
                found[self._name(key, key=True)] = value if plain else self._value(key, value)
            else:
                found[self._name(key, key=True)] = self._value(key, value)
        return found

    def _value(self, key: str, value: Any) -> Any:
        if isinstance(value, dict):
            plain = not (value.keys() & {"@value"}) and key not in ("name", "description")
            value = self._node(value) if plain else value
        elif isinstance(value, list):
            return [
                self._value(key, item) if isinstance(item, dict | str) else item for item in value
            ]
        elif key == "dataType":
            value = self._name(value, key=False)
        boxed = self._draw(st.integers(0, 9))
        if boxed == 0:
            return [value]
        if boxed == 1 and key not in ("name", "description"):
            return {"@set": [value]}
        if boxed == 2 and isinstance(value, str) and key not in ("name", "description", "dataType"):
            return {"@value": value}
        return value


def without_places(node: Any) -> Any:
    """A model without pointers, to compare what was built from two spellings."""
    if dataclasses.is_dataclass(node) and not isinstance(node, type):
        return (
            type(node).__name__,
            {
                field.name: without_places(getattr(node, field.name))
                for field in dataclasses.fields(node)
                if field.name
                not in ("at", "written", "licenses", "creators", "publishers", "properties")
            },
            sorted(node.written) if hasattr(node, "written") else None,
        )
    if isinstance(node, tuple):
        return tuple(without_places(item) for item in node)
    if isinstance(node, str) and node.startswith("/"):
        return "the id of what has none"
    return node
