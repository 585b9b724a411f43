"""The context of a migrated description: the recommended one, with what the document defines besides."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from holdfast.data.croissant.document.contexts import Context
from holdfast.data.croissant.document.model import Version
from holdfast.data.croissant.document.vocabulary import CONTEXTS, NAMESPACES, PREFIXES, canonical

_HTTP, _HTTPS = "http://schema.org/", "https://schema.org/"
_OURS = ("sc", "cr", "rai")

NEWEST: Version = "1.1"
"""The version that descriptions are migrated to."""


class Spelling:
    """How canonical terms are written in a migrated description.

    Args:
        context: the document's ``@context`` as it was.
        before: what its context meant.
    """

    def __init__(self, context: Any, before: Context) -> None:
        # The language and the base of the document stay what they were, also where it had none.
        kept = {"@language": before.language, "@base": before.base}
        self.written: dict[str, Any] = {
            key: value for key, value in kept.items() if value is not None
        }
        self.written |= {key: part for key, part in CONTEXTS[NEWEST].items() if key != "@language"}
        # The standard's http and the https of nearly all descriptions mean the same, but mlcroissant up to
        # 1.1.1 takes the latter alone: a description keeps what it had.
        if before.vocab != _HTTP and before.iri("sc:name") != f"{_HTTP}name":
            self.written |= {"@vocab": _HTTPS, "sc": _HTTPS}
        self.dropped: list[tuple[str, Any]] = []
        self._spare: dict[str, Any] = {}
        self._context = self._read()
        parts = context if isinstance(context, list) else [context]
        for part in parts:
            for name, value in part.items() if isinstance(part, dict) else ():
                if not name.startswith("@"):
                    self._keep(name, value, before)
        self._context = self._read()

    def key(self, term: str, key: str) -> str:
        """The key of a term that was written as `key`, adding to the context what it needs."""
        prefix, colon, name = term.partition(":")
        if not colon:
            return key
        if prefix == "cr" and name not in self.written:
            self._define(name, term)
        if prefix in ("cr", "sc", "dct") and self._means(name, term):
            return name
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
        """Keep other names of what the recommended context defines only where a text begins with them."""
        text = json.dumps(metadata)
        self.written |= {
            name: value
            for name, value in self._spare.items()
            if f'"{name}:' in text or f'"{name}"' in text
        }

    def _keep(self, name: str, value: Any, before: Context) -> None:
        """Keep what the document defines, unless the recommended context says it, or says otherwise."""
        definition = before.definitions.get(name)
        iri = (definition.iri if definition else None) or ""
        term = NAMESPACES.get(iri) or canonical(iri)
        ours = term.partition(":")[0] in _OURS or term == "dct:conformsTo"
        if name in self.written:
            now = self._context.definitions.get(name)
            now_iri = (now.iri if now else None) or ""
            if not ours and term != (NAMESPACES.get(now_iri) or canonical(now_iri)):
                self.dropped.append((name, value))
        elif not ours:
            self.written[name] = value
        elif iri in NAMESPACES:
            self._spare[name] = value
        elif isinstance(value, dict) and value.keys() - {"@id"}:  # it says how values are written
            self._spare[name] = {**value, "@id": canonical(iri)}

    def _means(self, text: str, term: str) -> bool:
        meant = self._context.meant(text)
        return meant is not None and canonical(meant) == term

    def _define(self, name: str, value: str) -> None:
        self.written[name] = value
        self._context = self._read()

    def _read(self) -> Context:
        return Context().extended(self.written | self._spare, "", lambda *_: None)
