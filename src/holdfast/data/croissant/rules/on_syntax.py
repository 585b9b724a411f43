"""CR00x: the text: whether it is JSON."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.data.croissant.document.reading import Document
from holdfast.data.croissant.rules.clauses import JSON
from holdfast.data.croissant.rules.context import Context
from holdfast.data.croissant.rules.findings import ERROR, WARNING
from holdfast.data.croissant.rules.table import Breach, rule

CODES = frozenset({"CR001", "CR002", "CR003"})

_TWICE = "duplicate-key"
_BYTES = ("bom", "encoding", "odd-space")
_CONTEXTS = ("context", "remote-context")
# After these it is not known what else the description says.
_CUTS = frozenset({"truncated", "unterminated", "extra", "unexpected", "too-deep", "no-json-ld"})


def is_cut(document: Document) -> bool:
    """Whether so much of the text cannot be read that nothing can be said of the rest."""
    return any(slip.kind in _CUTS for slip in document.syntax)


@rule("CR001", ERROR, JSON, "Correct the text here; an editor for JSON marks the place.")
def not_json(context: Context) -> Iterator[Breach]:
    """The text is JSON."""
    for slip in context.document.syntax:
        if slip.kind not in (_TWICE, *_BYTES, *_CONTEXTS):
            yield Breach(slip.at, slip.message, offset=slip.offset)


@rule("CR002", ERROR, JSON, "Keep one of the two; programs differ in which they take.")
def key_twice(context: Context) -> Iterator[Breach]:
    """No object has a key twice."""
    for slip in context.document.syntax:
        if slip.kind == _TWICE:
            yield Breach(slip.at, slip.message, offset=slip.offset)


@rule("CR003", WARNING, JSON, "Save it as UTF-8 without a byte order mark.", must=True)
def odd_bytes(context: Context) -> Iterator[Breach]:
    """The text is UTF-8 without a byte order mark, with no spaces but JSON's."""
    for slip in context.document.syntax:
        if slip.kind in _BYTES:
            yield Breach(slip.at, slip.message, offset=slip.offset)
