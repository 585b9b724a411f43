"""Meaning of a description's keys: JSON-LD contexts, as far as datasets use them.

Source: https://www.w3.org/TR/json-ld11/ (context processing and IRI expansion). Nothing is ever fetched:
the contexts of schema.org and MLCommons are built in, and any other remote one is reported as a slip.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast
from urllib.parse import urljoin

from holdfast.data.croissant.document.slips import escaped
from holdfast.data.croissant.document.vocabulary import (
    CONTEXTS,
    OTHER_PREFIXES,
    PREFIXES,
    RECOMMENDED_CONTEXT,
)

KEYWORDS = frozenset(
    f"@{name}"
    for name in (
        *(
            "base",
            "container",
            "context",
            "direction",
            "graph",
            "id",
            "import",
            "included",
            "index",
            "json",
        ),
        *(
            "language",
            "list",
            "nest",
            "none",
            "prefix",
            "propagate",
            "protected",
            "reverse",
            "set",
            "type",
        ),
        *("value", "version", "vocab"),
    )
)
_SCHEMA_ORG = {"@vocab": PREFIXES["sc"], "schema": PREFIXES["sc"], "type": "@type", "id": "@id"}
_MAX_STEPS = 100  # of definitions that lean on one another

# Tells of a mistake: kind, pointer, message.
Tell = Callable[[str, str, str], None]


@dataclass(frozen=True, slots=True)
class Definition:
    """What a context says of one term.

    Attributes:
        iri: what it stands for: an IRI in full or a keyword; None if it is to be ignored.
        type: the type of its values: ``@id``, ``@vocab``, ``@json`` or an IRI.
        container: ``@language``, ``@list`` ...; several for a list of them.
        language: of its texts; empty where they have none whatever the context says.
        scoped: a context for what stands below it.
    """

    iri: str | None
    type: str | None = None
    container: frozenset[str] = frozenset()
    language: str | None = None
    scoped: Any = None


@dataclass(frozen=True, slots=True)
class Context:
    """The meaning of keys at one place.

    Attributes:
        vocab: the namespace of keys that nothing else defines.
        base: what relative ids are relative to.
        language: of texts that name none.
        definitions: term -> what it means.
    """

    vocab: str | None = None
    base: str | None = None
    language: str | None = None
    definitions: Mapping[str, Definition] = field(default_factory=dict)

    def extended(self, written: Any, at: str, tell: Tell) -> Context:
        """This context and what one written at a pointer adds to it."""
        if written is None:
            return Context()
        if isinstance(written, list):
            context = self
            for index, part in enumerate(written):
                context = context.extended(part, f"{at}/{index}", tell)
            return context
        if isinstance(written, str):
            known = _remote(written)
            if known is None:
                tell(
                    "remote-context",
                    at,
                    f"the context {written[:120]} is unknown and is not fetched",
                )
                return self
            return self.extended(known, at, lambda *_: None)
        if not isinstance(written, dict):
            tell("context", at, "a context is an object, an address or a list of them")
            return self
        return _Reading(self, written, at, tell).context()

    def keyword(self, key: str) -> str | None:
        """The keyword that a key stands for, by itself or as an alias; None for every other key."""
        if key.startswith("@"):
            return key
        definition = self.definitions.get(key)
        return definition.iri if definition and (definition.iri or "").startswith("@") else None

    def iri(self, text: str) -> str | None:
        """What a key or a type means by this context alone; None if it means nothing.

        An undeclared prefix is taken for the scheme of an IRI, as JSON-LD has it.
        """
        if text in self.definitions:
            return self.definitions[text].iri
        if text in KEYWORDS:
            return text
        prefix, colon, rest = text.partition(":")
        if colon and prefix:
            return self._compact(prefix, rest) or text
        return None if self.vocab is None else self.vocab + text

    def meant(self, text: str) -> str | None:
        """The same, with the well-known prefixes where the context declares none."""
        prefix, colon, rest = text.partition(":")
        if colon and text not in self.definitions and not rest.startswith("//"):
            known = PREFIXES.get(prefix) or OTHER_PREFIXES.get(prefix)
            if known and prefix not in self.definitions:
                return known + rest
        return self.iri(text)

    def identity(self, text: str) -> str:
        """An id such that two spellings of one node are equal: in full where the context says how."""
        prefix, colon, rest = text.partition(":")
        compact = self._compact(prefix, rest) if colon and prefix else None
        if compact:
            return compact
        return _joined(self.base, text) if self.base and not colon else text

    def _compact(self, prefix: str, rest: str) -> str | None:
        definition = self.definitions.get(prefix)
        if rest.startswith("//") or prefix == "_" or definition is None or definition.iri is None:
            return None
        return None if definition.iri.startswith("@") else definition.iri + rest


class _Reading:
    """One object of a context, whose terms may be defined by terms that stand further down."""

    def __init__(self, before: Context, written: Mapping[str, Any], at: str, tell: Tell) -> None:
        self._written = written
        self._at = at
        self._tell = tell
        self._before = before
        self._done: dict[str, Definition] = dict(before.definitions)
        self._under_way: set[str] = set()
        self._vocab = before.vocab

    def context(self) -> Context:
        context = self._before
        for keyword, name in (("@language", "language"), ("@base", "base"), ("@vocab", "vocab")):
            if keyword in self._written:
                value = self._written[keyword]
                if value is not None and not isinstance(value, str):
                    self._say(keyword, f"{keyword} is a text")
                    continue
                if keyword == "@base" and value and context.base:
                    value = _joined(context.base, value)
                context = replace(context, **cast("dict[str, Any]", {name: value}))
        if context.vocab and ":" in context.vocab and "://" not in context.vocab:
            prefix, _, rest = context.vocab.partition(":")
            definition = self._define(prefix)
            if definition and definition.iri:
                context = replace(context, vocab=definition.iri + rest)
        self._vocab = context.vocab
        for term in self._written:
            if not term.startswith("@"):
                self._define(term)
        return replace(context, definitions=self._done)

    def _say(self, term: str, message: str) -> None:
        self._tell("context", f"{self._at}/{escaped(term)}", message)

    def _define(self, term: str) -> Definition | None:
        """The definition of a term: of this context, or of those before it."""
        if term not in self._written or term in self._under_way or term.startswith("@"):
            if term in self._under_way:
                self._say(term, f"{term[:80]} is defined by itself")
            return self._before.definitions.get(term)
        if self._done.get(term) is not self._before.definitions.get(term):
            return self._done[term]
        if len(self._under_way) > _MAX_STEPS:
            self._say(term, f"{term[:80]} leans on too many other terms")
            return None
        self._under_way.add(term)
        self._done[term] = definition = self._read(term, self._written[term])
        self._under_way.discard(term)
        return definition

    def _read(self, term: str, value: Any) -> Definition:
        if value is None:
            return Definition(None)
        if isinstance(value, str):
            return Definition(self._iri(term, value))
        if not isinstance(value, dict):
            self._say(term, "a term is defined by a text or an object")
            return Definition(None)
        identity = value.get("@id", term)
        kind = value.get("@type")
        container = value.get("@container") or ()
        language = (value["@language"] or "") if "@language" in value else None
        containers = [container] if isinstance(container, str) else container
        if not isinstance(containers, (list, tuple)):
            containers = ()
        if identity is not None and not isinstance(identity, str):
            self._say(term, "the @id of a term is a text")
            identity = term
        return Definition(
            None if identity is None else self._iri(term, identity),
            self._iri(term, kind) if isinstance(kind, str) else None,
            frozenset(part for part in containers if isinstance(part, str)),
            language if isinstance(language, str) else None,
            value.get("@context"),
        )

    def _iri(self, term: str, text: str) -> str | None:
        if text in KEYWORDS:
            return text
        if text != term and text in self._written:
            definition = self._define(text)
            return definition.iri if definition else None
        prefix, colon, rest = text.partition(":")
        if colon and prefix:
            if rest.startswith("//"):
                return text
            definition = self._define(prefix) if prefix != term else None
            if definition and definition.iri:
                return definition.iri + rest
            known = PREFIXES.get(prefix) or OTHER_PREFIXES.get(prefix)
            return known + rest if known and prefix not in self._written else text
        if text in self._before.definitions and text != term:
            return self._before.definitions[text].iri
        return self._vocab + text if self._vocab is not None else None


def _joined(base: str, text: str) -> str:
    """A relative URL, resolved; unchanged if the base is not a URL."""
    try:
        return urljoin(base, text)
    except ValueError:
        return text


def _remote(address: str) -> Mapping[str, Any] | None:
    """A context that is known by its address."""
    host, _, path = address.partition("://")[2].removeprefix("www.").partition("/")
    path = path.rstrip("/").lower()
    if host == "schema.org" and path in (
        "",
        "docs/jsonldcontext.json",
        "docs/jsonldcontext.jsonld",
    ):
        return _SCHEMA_ORG
    if host == "mlcommons.org" and path.startswith("croissant"):
        return CONTEXTS["1.0"] if "1.0" in path else RECOMMENDED_CONTEXT
    return None
