"""CR00x and CR01x: the text, and what its keys and types mean: the context, prefixes, misspellings."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sized

from holdfast.data.croissant.document.slips import escaped
from holdfast.data.croissant.document.terms import Entry
from holdfast.data.croissant.document.vocabulary import canonical
from holdfast.data.croissant.rules.context import Context
from holdfast.data.croissant.rules.table import ERROR, JSON, WARNING, Breach, rule
from holdfast.data.croissant.rules.wording import quoted

# What a loader cannot do without: where these mean something else, nothing is found. Not `replace`, which
# the standard explains and its own recommended context forgets.
_NAMES = """
    recordSet field subField source fileObject fileSet extract column fileProperty jsonPath transform regex
    separator format data dataType references parentField"""
_LOADED = frozenset(f"cr:{name}" for name in _NAMES.split())
_FEW = 3  # terms that are reported one by one

CODES = frozenset({"CR001", "CR002", "CR003"})

_TWICE = ("duplicate-key",)
_BYTES = ("bom", "encoding")
_CONTEXTS = ("context", "remote-context")


@rule("CR001", ERROR, JSON, "Correct the text here; an editor for JSON marks the place.")
def not_json(context: Context) -> Iterator[Breach]:
    """The text is JSON."""
    kinds = {slip.kind for slip in context.document.syntax}
    return _slips(context, kinds.difference(_TWICE, _BYTES, _CONTEXTS))


def _slips(context: Context, kinds: Collection[str]) -> Iterator[Breach]:
    for slip in context.document.syntax:
        if slip.kind in kinds:
            yield Breach(slip.at, slip.message, offset=slip.offset)


@rule("CR002", ERROR, JSON, "Keep one of the two; programs differ in which they take.")
def key_twice(context: Context) -> Iterator[Breach]:
    """No object has a key twice."""
    return _slips(context, _TWICE)


@rule("CR003", WARNING, JSON, "Save it as UTF-8 without a byte order mark.", must=True)
def odd_bytes(context: Context) -> Iterator[Breach]:
    """The text is UTF-8 without a byte order mark."""
    return _slips(context, _BYTES)


@rule("CR010", ERROR, "Required", "Add the @context that the standard recommends.", must=True)
def no_context(context: Context) -> Iterator[Breach]:
    """A description has a @context."""
    top = context.document.terms.dataset
    if top and not context.document.terms.declared and not context.is_meant(top, "@context"):
        yield Breach("", "the description has no @context: no program knows what its keys mean")


def _uses(found: Sized) -> str:
    return f" ({len(found)} uses)" if len(found) > 1 else ""


@rule("CR012", ERROR, "Appendix 1 JSON-LD context", must=True)
def term_of_another(context: Context) -> Iterator[Breach]:
    """Croissant's terms are Croissant's by the @context."""
    if not context.document.terms.declared or _has_remote_context(context):
        return
    uses = _foreign(context)
    if len(uses) > _FEW:
        names = ", ".join(term.partition(":")[2] for term in uses)
        message = f"the @context does not say that these are terms of Croissant: {names}"
        hint = "Take the @context that the standard recommends."
        severity = WARNING if _LOADED.isdisjoint(uses) else ERROR
        yield Breach("/@context", message, hint, severity, key=True)
        return
    for term, entries in uses.items():
        first = entries[0]
        meaning = f"means {first.iri}" if first.iri else "means nothing"
        message = f"{quoted(first.key)} {meaning} in this @context, not {term}{_uses(entries)}"
        hint, at = f'Add "{first.key}": "{term}" to @context.', first.at
        own = context.document.value["@context"]
        if isinstance(own, dict) and first.key in own:
            hint, at = f'Let it be "{term}".', f"/@context/{escaped(first.key)}"
        yield Breach(at, message, hint, ERROR if term in _LOADED else WARNING, key=True)


def _has_remote_context(context: Context) -> bool:
    """Whether a context is named that is not known here: no one can say what it defines."""
    return any(slip.kind == "remote-context" for slip in context.document.syntax)


def _foreign(context: Context) -> dict[str, list[Entry]]:
    """Terms of Croissant that the @context gives another meaning, with their uses."""
    uses: dict[str, list[Entry]] = {}
    for part in context.parts:
        for entry in part.thing.entries if part.role != "other" else ():
            if _elsewhere(entry):
                uses.setdefault(entry.term, []).append(entry)
    return uses


def _elsewhere(entry: Entry) -> bool:
    """Whether a term was known by its name alone, its IRI being another vocabulary's."""
    prefix = entry.term.partition(":")[0]
    if prefix not in ("cr", "rai", "dct") or entry.term == "cr:containedIn":
        return False
    if entry.iri is None:
        return True
    meant = canonical(entry.iri)
    # A prefix that is not declared is another rule's.
    return meant.startswith("sc:") and ":" not in entry.key


@rule("CR013", WARNING, "Namespaces", "Correct the @context.")
def odd_context(context: Context) -> Iterator[Breach]:
    """The @context is one that JSON-LD allows, with addresses that are whole."""
    bare = len(_foreign(context)) > _FEW  # then that is already reported
    for slip in context.document.syntax:
        whole = slip.kind == "context" and slip.at == "/@context"
        if slip.kind in _CONTEXTS and not (bare and whole):
            yield Breach(slip.at, slip.message, key=True)


@rule(
    "CR014", WARNING, "Using External Vocabularies", "Correct the name, or take the property out."
)
def unknown_property(context: Context) -> Iterator[Breach]:
    """Every property is one that its vocabulary has, and stands where it has a meaning."""
    for slip in context.misspelt:
        if slip is context.instead(slip.part.thing):
            continue
        key = slip.entry.key
        meant = slip.meant.rpartition(":")[2]
        prefix, colon, _ = key.rpartition(":")
        if meant and colon and not meant.startswith("@"):
            meant = f"{prefix}:{meant}"
        hint = f"Did you mean {quoted(meant)}?" if meant else ""
        if meant == key:  # the @context spells it otherwise
            hint = f"In @context, let {quoted(key)} be {quoted(slip.meant)}."
        yield Breach(slip.entry.at, slip.fault, hint, ERROR if slip.needed else None, key=True)
