"""CR213 to CR218: what files are contained in, and the patterns that choose them."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.data.croissant.document.model import Container, FileObject, FileSet
from holdfast.data.croissant.document.vocabulary import format_of
from holdfast.data.croissant.rules import forms
from holdfast.data.croissant.rules.clauses import FILE_OBJECT, FILE_SET
from holdfast.data.croissant.rules.findings import Severity
from holdfast.data.croissant.rules.graphs import cycles
from holdfast.data.croissant.rules.table import Breach, Context, question, quoted, rule

ERROR, WARNING = Severity.ERROR, Severity.WARNING

_TABLES = frozenset(
    ["csv", "tsv", "json", "jsonl", "parquet", "arrow", "text", "html", "pdf", "xml", "yaml"]
)


@rule(
    "CR213",
    ERROR,
    FILE_OBJECT,
    "Give the @id of a FileObject or FileSet of distribution.",
    must=True,
)
def dangling_container(context: Context) -> Iterator[Breach]:
    """What contains a file is a file or set of files of this description."""
    for part, container in _containers(context):
        if container.target and container.target not in context.resources:
            target = container.target
            other = "a record set" if target in context.record_sets else "a field"
            known = target in context.record_sets or target in context.fields
            found = f"{other}, which contains no files" if known else "not in distribution"
            yield Breach(
                container.at,
                f"{type(part).__name__} {quoted(part.id)} is contained in {quoted(target)}, "
                f"which is {found}",
                question(context.meant(target, context.resources)),
            )


@rule(
    "CR214",
    ERROR,
    FILE_OBJECT,
    "Take out one containedIn of the circle.",
)
def container_cycle(context: Context) -> Iterator[Breach]:
    """No file contains itself."""
    for circle in _circles(context):
        part = context.resources[circle[0]]
        at = next(c.at for c in part.contained_in if c.target == circle[1 % len(circle)])
        yield Breach(at, f"containedIn goes round: {_round(circle)}")


def _circles(context: Context) -> list[list[str]]:
    """Ids of files that contain one another."""
    parts = context.resources.values()
    return cycles({part.id: [held.target for held in part.contained_in] for part in parts})


@rule(
    "CR215",
    WARNING,
    FILE_OBJECT,
    "Name an archive, a repository or a FileSet; or read a list of files with the transform readLines.",
)
def no_archive(context: Context) -> Iterator[Breach]:
    """What contains a file is something that contains files."""
    circling = {identity for circle in _circles(context) for identity in circle}
    for part, container in _containers(context):
        holder = context.resources.get(container.target)
        if not isinstance(holder, FileObject) or holder.id in circling:
            continue
        if holder.is_repository or not holder.encoding_formats:
            continue
        reads = any(step.read_lines or step.un_archive for step in container.transforms)
        if not (reads or _may_be_archive(holder)):
            yield Breach(
                container.at,
                f"{type(part).__name__} {quoted(part.id)} is contained in {quoted(holder.id)}, whose "
                f"format {quoted(holder.encoding_formats[0])} is no archive",
            )


def _may_be_archive(holder: FileObject) -> bool:
    """Whether a file may hold others: any but a table, a text or a medium."""
    return any(
        format_of(value) not in _TABLES and not value.startswith(("image/", "audio/", "video/"))
        for value in holder.encoding_formats
    )


@rule(
    "CR216",
    WARNING,
    FILE_SET,
    'Give includes, a glob pattern such as "*.jpg".',
)
def no_patterns(context: Context) -> Iterator[Breach]:
    """A set of files says which files it includes."""
    for part in context.metadata.file_sets:
        manifest = any(step.read_lines for held in part.contained_in for step in held.transforms)
        if context.lacks(part, "cr:includes") and not manifest:
            where = "its container" if part.contained_in else "the description's folder"
            yield Breach(
                part.at,
                f"FileSet {quoted(part.id)} has no includes, and so holds every file of {where}",
            )


@rule(
    "CR217",
    ERROR,
    FILE_SET,
    "Write patterns relative to the root of the container.",
)
def escaping_pattern(context: Context) -> Iterator[Breach]:
    """Patterns stay inside the container."""
    for name, at, value in _patterns(context):
        if wrong := forms.pattern_escapes(value):
            yield Breach(at, f"{name} {quoted(value)} {wrong}")


@rule(
    "CR218",
    WARNING,
    FILE_SET,
    "Write a glob pattern, relative to the root of the container.",
)
def odd_pattern(context: Context) -> Iterator[Breach]:
    """Patterns can match something."""
    for name, at, value in _patterns(context):
        if (wrong := forms.pattern(value)) and not forms.pattern_escapes(value):
            yield Breach(at, f"{name} {quoted(value)} {wrong}")


def _containers(context: Context) -> Iterator[tuple[FileObject | FileSet, Container]]:
    for part in context.resources_written:
        for container in part.contained_in:
            yield part, container


def _patterns(context: Context) -> Iterator[tuple[str, str, str]]:
    for part in context.metadata.file_sets:
        for name in ("includes", "excludes"):
            for at, value in context.values(part, f"cr:{name}"):
                if isinstance(value, str):
                    yield name, at, value


def _round(circle: list[str]) -> str:
    return " > ".join(quoted(step) for step in (*circle, circle[0]))
