"""CR1xx: what is said of the dataset as a whole."""

from __future__ import annotations

import re
from collections.abc import Iterator

from holdfast.data.croissant.rules import forms
from holdfast.data.croissant.rules.context import Context, malformed
from holdfast.data.croissant.rules.table import ERROR, NOTE, WARNING, Breach, rule
from holdfast.data.croissant.rules.wording import bare, did_you_mean, quoted

VERSIONS = tuple(f"http://mlcommons.org/croissant/{number}" for number in ("1.0", "1.1"))
_DATES = ("sc:datePublished", "sc:dateCreated", "sc:dateModified")
_EXAMPLES = {
    "sc:name": '"..." with the title of the dataset',
    "sc:description": '"..." with what the dataset holds',
    "sc:url": '"https://..." with the address of the dataset\'s page',
    "sc:license": '"https://..." with the address of the licence, or its SPDX identifier',
    "sc:creator": '{"@type": "Person", "name": "..."}, or "Organization"',
    "sc:datePublished": '"2024-05-31"',
}


# Brought by version 1.1.
@rule("CR102", ERROR, "Required", "Give name and description.", must=True)
def required(context: Context) -> Iterator[Breach]:
    """A dataset has a name and a description."""
    wanted = ("sc:name", "sc:description")
    if (
        context.lacks(context.metadata, *wanted, "sc:url", "sc:license", "sc:creator")
        and not context.old
    ):
        # Some descriptions only tell loaders where the data are, and leave the rest to a web page.
        message = "the description says nothing of the dataset: no name, description or url"
        yield Breach(context.metadata.at, message, "Add name, description and url.", WARNING)
        return
    yield from _lacking(context, *wanted)


@rule("CR103", WARNING, "Required", "Give url, license, creator and datePublished.", must=True)
def expected(context: Context) -> Iterator[Breach]:
    """A dataset has a URL, a licence, a creator and the date on which it was published."""
    if not context.old:
        yield from _lacking(context, "sc:url", "sc:license", "sc:creator", "sc:datePublished")


def _lacking(context: Context, *terms: str) -> Iterator[Breach]:
    """That the dataset lacks properties, and what they may look like."""
    for term in terms:
        if context.lacks(context.metadata, term):
            hint = f'Add "{bare(term)}": {_EXAMPLES[term]}.'
            yield Breach(context.metadata.where(term), f"the dataset has no {bare(term)}", hint)


@rule(
    "CR104",
    ERROR,
    "Namespaces",
    'Add "conformsTo": "http://mlcommons.org/croissant/1.1" (dct:conformsTo in @context).',
    must=True,
)
def no_version(context: Context) -> Iterator[Breach]:
    """A dataset says which version of Croissant it conforms to."""
    metadata = context.metadata
    if context.old or any(map(_of_croissant, metadata.conforms_to)):
        return
    if context.lacks(metadata, "dct:conformsTo"):
        message = "the dataset does not say which version of Croissant it conforms to"
        yield Breach(metadata.where("dct:conformsTo"), message)
    for stated in metadata.conforms_to[:1]:
        message = f"conformsTo is {quoted(stated)}, which is not a version of Croissant"
        yield Breach(metadata.where("dct:conformsTo"), message, did_you_mean(stated, VERSIONS))


def _of_croissant(value: str) -> bool:
    return re.match(r"https?://mlcommons\.org/croissant/(?!RAI)", value) is not None


@rule("CR107", NOTE, "Recommended", "Add those that are known.")
def recommended(context: Context) -> Iterator[Breach]:
    """A dataset has a version, keywords, a publisher and a citation."""
    wanted = ("sc:version", "sc:keywords", "sc:publisher", "cr:citeAs")
    lacking = [term for term in wanted if context.lacks(context.metadata, term)]
    if "cr:citeAs" in lacking and "sc:citation" in context.metadata.written:
        lacking.remove("cr:citeAs")
    if lacking:
        listed = " or ".join(", ".join(map(bare, lacking)).rsplit(", ", 1))
        yield Breach(context.metadata.at, f"the dataset has no {listed}")


@rule("CR110", WARNING, "Required", "Write it like 2024-05-31.", must=True)
def bad_date(context: Context) -> Iterator[Breach]:
    """Dates are written as ISO 8601 says."""
    return malformed(context, [context.metadata], forms.date, *_DATES)
