"""CR43x: transforms and formats: from what was extracted to the value."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from holdfast.data.croissant.document.model import Field, Source, Transform
from holdfast.data.croissant.document.vocabulary import format_of
from holdfast.data.croissant.rules import forms, kinds
from holdfast.data.croissant.rules.context import Context, malformed
from holdfast.data.croissant.rules.roles import STEPS
from holdfast.data.croissant.rules.table import ERROR, WARNING, Breach, rule
from holdfast.data.croissant.rules.wording import quoted
from holdfast.data.croissant.scanning.types import data_type


@rule("CR431", ERROR, "Transform", "Correct the regular expression.", must=True)
def bad_regex(context: Context) -> Iterator[Breach]:
    """A regular expression is one."""
    for at, said, wrong, _ in _regexes(context):
        if wrong:
            yield Breach(at, f"{said} {wrong}")


@rule("CR432", ERROR, "Transform", "Put parentheses around what the value is.", must=True)
def no_group(context: Context) -> Iterator[Breach]:
    """A regular expression has a group that captures the value."""
    for at, said, wrong, groups in _regexes(context):
        if not wrong and groups == 0:
            yield Breach(at, f"{said} has no capture group")


@rule(
    "CR434", ERROR, "Transform", "Write it without look-around, back-references and atomic groups."
)
def not_linear(context: Context) -> Iterator[Breach]:
    """A regular expression runs in time that grows with the text alone."""
    yield from malformed(context, _steps(context), forms.linear_regex, "cr:regex")
    yield from malformed(context, _steps(context), forms.linear_replacement, "cr:replace")


@rule(
    "CR435",
    ERROR,
    "Transform",
    "Give regex, separator, replace, jsonPath, format, readLines or unArchive.",
)
def no_step(context: Context) -> Iterator[Breach]:
    """A transform says what it does."""
    for step in _steps(context):
        if context.lacks(step, *STEPS, "cr:delimiter"):
            slip = context.instead(context.thing(step))
            why = f": {slip.fault}" if slip else ""
            at = slip.entry.at if slip else step.at
            yield Breach(at, f"the transform does nothing{why}", key=slip is not None)


@rule("CR437", ERROR, "Transform", "Give the text that divides the values.")
def empty_separator(context: Context) -> Iterator[Breach]:
    """A separator is some text."""
    for step in _steps(context):
        if step.separator == "":
            yield Breach(step.where("cr:separator"), "the separator is empty")


@rule("CR438", ERROR, "Transform", 'Write it like "pattern/replacement".')
def bad_replace(context: Context) -> Iterator[Breach]:
    """A replace has a pattern and a replacement."""
    return malformed(context, _steps(context), forms.replacement, "cr:replace")


@rule(
    "CR439",
    ERROR,
    "Format",
    "Write a pattern of CLDR, such as yyyy-MM-dd, or of strftime, such as %Y-%m-%d.",
)
def bad_date_format(context: Context) -> Iterator[Breach]:
    """The format of a date is a pattern of CLDR or strftime."""
    for field, nodes, _ in _formatted(context, "date", "datetime", "time"):
        check = partial(forms.date_format, data_type=data_type(field))
        yield from malformed(context, nodes, check, "cr:format")


@rule("CR440", ERROR, "Format", "Write a number pattern of CLDR, such as 0.##E0 or #,##0.00.")
def bad_number_format(context: Context) -> Iterator[Breach]:
    """The format of a number is a pattern of CLDR."""
    for _, nodes, typed in _formatted(context, "float", "integer"):
        for breach in malformed(context, nodes, forms.number_format, "cr:format"):
            # Columns of numbers are read without it.
            yield breach._replace(severity=WARNING) if typed else breach


@rule("CR442", ERROR, "Format", "Give the number of samples in a second, such as 16000.")
def bad_sampling_rate(context: Context) -> Iterator[Breach]:
    """A sampling rate is above zero."""
    for _, _, source in context.sources:
        nodes: tuple[Source | Transform, ...] = (source, *source.transforms)
        for node in nodes:
            if node.sampling_rate is not None and node.sampling_rate <= 0:
                at = node.where("cr:samplingRate")
                yield Breach(at, f"samplingRate {quoted(node.sampling_rate)} is not a rate")


def _steps(context: Context) -> Iterator[Transform]:
    for _, _, source in context.sources:
        yield from source.transforms
    for part in context.resources_written:
        for container in part.contained_in:
            yield from container.transforms


def _regexes(context: Context) -> Iterator[tuple[str, str, str, int]]:
    """Regular expressions: pointer, how a message shows it, what is wrong with it, number of groups."""
    for step in _steps(context):
        if step.regex is not None:
            said = f"regex {quoted(step.regex)}"
            yield step.where("cr:regex"), said, *forms.python_regex(step.regex)


def _formatted(
    context: Context, *made_of: str
) -> Iterator[tuple[Field, tuple[Source | Transform, ...], bool]]:
    """Fields of some kinds, where their format may stand, and whether the file's columns have types."""
    for field, role, source in context.sources:
        if role == "source" and kinds.kind(field.data_types) in made_of:
            part = context.resources.get(source.target)
            medias = part.encoding_formats if part else ()
            typed = any(format_of(media) in ("parquet", "arrow") for media in medias)
            yield field, (source, *source.transforms), typed
