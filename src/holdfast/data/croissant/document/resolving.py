"""Plain JSON made into things: contexts applied, lists and language maps taken apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from holdfast.data.croissant.document.contexts import Context, Definition
from holdfast.data.croissant.document.slips import Slip, escaped
from holdfast.data.croissant.document.terms import Entry, Terms, Thing, Value, known_term
from holdfast.data.croissant.document.vocabulary import (
    JSON_TERMS,
    LEGACY_NAMESPACE,
    PREFIXES,
    RECOMMENDED_CONTEXT,
)


def resolve(value: Any) -> Terms:
    """The things of a document's JSON."""
    return _Resolver().terms(value)


class _Resolver:
    def __init__(self) -> None:
        self._slips: list[Slip] = []
        self._legacy = False

    def terms(self, value: Any) -> Terms:
        tops = value if isinstance(value, list) else [value]
        starts = [""] if not isinstance(value, list) else [f"/{i}" for i in range(len(tops))]
        declared = any(isinstance(top, dict) and "@context" in top for top in tops)
        start = Context() if declared else Context().extended(RECOMMENDED_CONTEXT, "", self._tell)
        roots: list[Thing] = []
        context = start
        for at, top in zip(starts, tops, strict=True):
            if not isinstance(top, dict):
                continue
            if "@context" in top:
                context = start.extended(top["@context"], f"{at}/@context", self._tell)
            graph = next((key for key in top if context.keyword(key) == "@graph"), None)
            if graph is None:
                roots.append(self._thing(top, at, start))
                continue
            nodes = top[graph] if isinstance(top[graph], list) else [top[graph]]
            for index, node in enumerate(nodes):
                if isinstance(node, dict):
                    inside = f"/{index}" if isinstance(top[graph], list) else ""
                    roots.append(self._thing(node, f"{at}/{escaped(graph)}{inside}", context))
        return Terms(
            dataset=_dataset(roots),
            roots=tuple(roots),
            context=context,
            declared=declared,
            legacy=self._legacy or _declares_legacy(context),
            slips=tuple(dict.fromkeys(self._slips)),
            _roots_by_id={
                root.context.identity(root.id): root
                for root in reversed(roots)
                if root.id is not None and not root.is_reference
            },
        )

    def _tell(self, kind: str, at: str, message: str) -> None:
        self._slips.append(Slip(kind, at, -1, message))

    def _see(self, iri: str | None) -> str | None:
        if iri and iri.startswith(LEGACY_NAMESPACE):
            self._legacy = True
        return iri

    def _thing(self, raw: Mapping[str, Any], at: str, context: Context) -> Thing:
        if "@context" in raw:
            context = context.extended(raw["@context"], f"{at}/@context", self._tell)
        identity, id_at, types, types_at = None, None, [], None
        rest = []
        for key, value in raw.items():
            keyword = context.keyword(key)
            if keyword == "@id" and isinstance(value, str):
                identity, id_at = value, f"{at}/{escaped(key)}"
            elif keyword == "@type":
                types_at = f"{at}/{escaped(key)}"
                types = value if isinstance(value, list) else [value]
            elif keyword != "@context":
                rest.append((key, keyword, value))
        names = tuple(
            known_term(self._see(context.meant(name)), name, shared=False)
            for name in types
            if isinstance(name, str)
        )
        foreign = any(
            name.startswith("sc:") and name not in ("sc:Dataset", "sc:DataDownload")
            for name in names
        )
        return Thing(
            at=at,
            id=identity,
            types=names,
            types_written=tuple(types),
            types_at=types_at,
            id_at=id_at,
            entries=tuple(
                self._entry(key, keyword, value, at, context, shared=not foreign)
                for key, keyword, value in rest
            ),
            context=context,
            raw=raw,
        )

    def _entry(
        self, key: str, keyword: str | None, value: Any, at: str, context: Context, *, shared: bool
    ) -> Entry:
        at = f"{at}/{escaped(key)}"
        if keyword:
            return Entry(keyword, key, at, value, (Value(at, value),), keyword)
        iri = context.iri(key)
        term = known_term(self._see(context.meant(key)), key, shared=shared)
        definition = context.definitions.get(key) or Definition(None)
        if definition.type == "@json":
            return Entry(term, key, at, value, (Value(at, value),), iri)
        if term in JSON_TERMS:
            return Entry(term, key, at, value, (_json(value, at),), iri)
        if definition.scoped is not None:
            context = context.extended(definition.scoped, at, self._tell)
        language = context.language if definition.language is None else definition.language
        values = tuple(self._values(value, at, context, definition, language))
        return Entry(term, key, at, value, values, iri)

    def _values(
        self, value: Any, at: str, context: Context, definition: Definition, language: str | None
    ) -> Iterator[Value]:
        if isinstance(value, list):
            for index, item in enumerate(value):
                yield from self._values(item, f"{at}/{index}", context, definition, language)
            return
        if not isinstance(value, dict):
            if value is not None:
                yield Value(
                    at,
                    value,
                    None,
                    (language or None) if isinstance(value, str) else None,
                    definition.type,
                )
            return
        if "@language" in definition.container and not any(context.keyword(key) for key in value):
            for tag, texts in value.items():
                inside = f"{at}/{escaped(tag)}"
                yield from self._values(
                    texts, inside, context, Definition(None), None if tag == "@none" else tag
                )
            return
        keys = {context.keyword(key): key for key in value}
        for keyword in ("@list", "@set"):
            if keyword in keys:
                key = keys[keyword]
                inside = f"{at}/{escaped(key)}"
                yield from self._values(value[key], inside, context, definition, language)
                return
        if "@value" in keys:
            said = {name: value.get(keys[name]) for name in ("@language", "@type") if name in keys}
            yield Value(
                f"{at}/{escaped(keys['@value'])}",
                value[keys["@value"]],
                None,
                said.get("@language"),
                said.get("@type"),
            )
            return
        yield Value(at, value, self._thing(value, at, context))


def _json(value: Any, at: str) -> Value:
    """A value that is JSON: as written, or taken out of JSON-LD's expanded form."""
    if isinstance(value, list) and len(value) == 1 and _is_boxed(value[0]):
        return Value(f"{at}/0/@value", value[0]["@value"])
    return Value(f"{at}/@value", value["@value"]) if _is_boxed(value) else Value(at, value)


def _is_boxed(value: Any) -> bool:
    return isinstance(value, dict) and "@value" in value and value.keys() <= {"@value", "@type"}


def _declares_legacy(context: Context) -> bool:
    """Whether a context knows Croissant's vocabulary of version 0.8 and no newer one."""
    iris = [definition.iri or "" for definition in context.definitions.values()]
    return LEGACY_NAMESPACE in iris and PREFIXES["cr"] not in iris


def _dataset(roots: list[Thing]) -> Thing | None:
    """The dataset among the things at the top: by its type, else by what only datasets have."""
    for thing in roots:
        if "sc:Dataset" in thing.types:
            return thing
    for term in ("sc:distribution", "cr:recordSet"):
        for thing in roots:
            if thing.entry(term):
                return thing
    return next((thing for thing in roots if not thing.is_reference), None)
