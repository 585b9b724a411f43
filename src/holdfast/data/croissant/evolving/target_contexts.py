"""The context of a migrated description: the recommended one, with what the document defines besides."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from holdfast.data.croissant.document.contexts import Context
from holdfast.data.croissant.document.model import Version
from holdfast.data.croissant.document.vocabulary import CONTEXTS, NAMESPACES, PREFIXES, canonical

_HTTP, _HTTPS = "http://schema.org/", "https://schema.org/"
_OURS = ("sc", "cr", "rai")


class Spelling:
    """How canonical terms are written in a migrated description.

    Args:
        given: the document's ``@context`` as it was.
        before: what its context meant.
        to: the version that is migrated to.
    """

    def __init__(self, given: Any, before: Context, to: Version) -> None:
        self._before = before
        self._spare: list[str] = []
        self.written: dict[str, Any] = dict(CONTEXTS[to])
        # The standard's http and the https of nearly all descriptions mean the same, but mlcroissant up to
        # 1.1.1 takes the latter alone: a description keeps what it had.
        if before.vocab != _HTTP and before.iri("sc:name") != f"{_HTTP}name":
            self.written |= {"@vocab": _HTTPS, "sc": _HTTPS}
        self.dropped: list[tuple[str, Any]] = []
        self._set_language()
        self._keep(given)
        self._context = self._read()

    def key(self, term: str, key: str) -> str:
        """The key of a term that was written as `key`, adding to the context what it needs."""
        prefix, colon, name = term.partition(":")
        if not colon:
            return key
        if term == "dct:conformsTo":
            return "conformsTo"
        if prefix == "cr":
            if name not in self.written:
                self._define(name, f"cr:{name}")
            return name if self._means(name, term) else term
        if prefix == "sc":
            return name if self._means(name, term) else term
        return self.name(term, key)

    def name(self, term: str, written: str) -> str:
        """A type, or a term of another vocabulary; as it was written where that means the same still."""
        prefix, colon, _ = term.partition(":")
        if colon and prefix in PREFIXES:
            if prefix not in self.written:
                self._define(prefix, PREFIXES[prefix])
            if self._means(term, term):
                return term
        return written if self._means(written, term) else term

    def prune(self, metadata: Mapping[str, Any]) -> None:
        """Drop other names of what the recommended context defines, unless a text begins with them."""
        text = json.dumps({key: part for key, part in metadata.items() if key != "@context"})
        for name in self._spare:
            if f'"{name}:' not in text and f'"{name}"' not in text:
                self.written.pop(name, None)

    def _means(self, text: str, term: str) -> bool:
        meant = self._context.meant(text)
        return meant is not None and canonical(meant) == term

    def _define(self, name: str, value: str) -> None:
        self.written[name] = value
        self._context = self._read()

    def _read(self) -> Context:
        return Context().extended(self.written, "", lambda *_: None)

    def _set_language(self) -> None:
        """The language and the base of the document stay what they were, also where it had none."""
        self.written.pop("@language")
        kept = {}
        if self._before.language is not None:
            kept["@language"] = self._before.language
        if self._before.base is not None:
            kept["@base"] = self._before.base
        self.written = kept | self.written

    def _keep(self, given: Any) -> None:
        for name, value in _entries(given):
            if name in self.written or name.startswith("@"):
                if not name.startswith("@") and not self._same(name):
                    self.dropped.append((name, value))
            elif not self._is_ours(name):
                self.written[name] = value
            elif (kept := self._respelt(name, value)) is not None:
                self.written[name] = kept
                self._spare.append(name)

    def _same(self, name: str) -> bool:
        """Whether the recommended context means by a name what the document did."""
        left, right = (self._before.definitions.get(name), self._read().definitions.get(name))
        if left is None or right is None or left.iri is None or right.iri is None:
            return left is right
        spelt = (
            NAMESPACES.get(left.iri, canonical(left.iri)),
            NAMESPACES.get(right.iri, canonical(right.iri)),
        )
        return spelt[0] == spelt[1] or spelt[0].partition(":")[0] in _OURS

    def _respelt(self, name: str, value: Any) -> Any:
        """A definition of ours that says more than a name: a prefix, or how values are written."""
        iri = self._before.definitions[name].iri or ""
        if iri in NAMESPACES:
            return value
        says_more = isinstance(value, dict) and value.keys() - {"@id"}
        return {**value, "@id": canonical(iri)} if says_more else None

    def _is_ours(self, name: str) -> bool:
        """Whether a definition is only another name of what the recommended context defines."""
        definition = self._before.definitions.get(name)
        if definition is None or definition.iri is None:
            return False
        prefix = NAMESPACES.get(definition.iri) or canonical(definition.iri).partition(":")[0]
        return prefix in _OURS or definition.iri == PREFIXES["dct"] + "conformsTo"


def _entries(given: Any) -> Iterator[tuple[str, Any]]:
    for part in given if isinstance(given, list) else [given]:
        if isinstance(part, dict):
            yield from part.items()
