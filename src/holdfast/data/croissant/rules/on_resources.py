"""CR2xx: files and sets of files: where they are, their formats, checksums, containers and patterns."""

from __future__ import annotations

import mimetypes
from collections.abc import Iterator

from holdfast.data.croissant.document.charsets import charset_of, is_charset
from holdfast.data.croissant.document.model import FileObject, FileSet, Source
from holdfast.data.croissant.document.vocabulary import ENCODING_FORMATS, format_of
from holdfast.data.croissant.rules import forms
from holdfast.data.croissant.rules.context import (
    Context,
    about,
    cycles,
    malformed,
    missing,
    way_round,
)
from holdfast.data.croissant.rules.table import ERROR, NOTE, WARNING, Breach, rule
from holdfast.data.croissant.rules.wording import called, did_you_mean, quoted

_REGISTERED = frozenset(mimetypes.MimeTypes().types_map[True].values())
_PLACEHOLDERS = frozenset(
    {"sha256", "md5", "foo", "bar", "baz", "todo", "tbd", "none", "null", "unknown", "n/a"}
)


@rule(
    "CR203",
    ERROR,
    "FileObject",
    "Give contentUrl: a URL, or a path beside the description (inside the archive with containedIn).",
    must=True,
)
def no_url(context: Context) -> Iterator[Breach]:
    """A file says where its bytes are."""
    return missing(context, context.metadata.file_objects, "sc:contentUrl")


@rule(
    "CR204", ERROR, "FileObject", "Give encodingFormat, a media type such as text/csv.", must=True
)
def no_format(context: Context) -> Iterator[Breach]:
    """A file or set of files says its format."""
    return missing(context, context.resources_written, "sc:encodingFormat")


@rule(
    "CR205",
    WARNING,
    "FileObject",
    "Give a registered media type, or the URL of a page about the format.",
)
def unknown_format(context: Context) -> Iterator[Breach]:
    """A format is a media type that is known, in a text encoding that there is, or a URL."""
    for part in context.resources_written:
        for at, value in context.values(part, "sc:encodingFormat"):
            if not isinstance(value, str):
                continue
            charset = charset_of([value])
            if charset and not is_charset(charset):
                yield Breach(at, f"no text encoding is called {quoted(charset)}", severity=ERROR)
            bare = value.partition(";")[0].strip().lower()
            media = bare in _REGISTERED or bare.startswith(("image/", "audio/", "video/"))
            if not (media or format_of(value)) and forms.web_address(value):
                near = did_you_mean(value, ENCODING_FORMATS)
                yield Breach(at, f"encodingFormat {quoted(value)} is not a known format", near)


@rule(
    "CR206",
    ERROR,
    "Checksums",
    "Give the SHA-256 of the file (sha256sum FILE), or leave the property out.",
    must=True,
)
def bad_sha256(context: Context) -> Iterator[Breach]:
    """sha256 is 64 hexadecimal digits or the base64 of 32 bytes."""
    for part in context.metadata.file_objects:
        value = part.sha256
        if value is None or not (wrong := forms.checksum(value, 64)):
            continue
        hint, severity = "", ERROR
        if part.is_repository:
            wrong, severity = f"{wrong}; a repository has no bytes to check", NOTE
        elif not forms.checksum(value, 32):
            wrong, hint = (
                f"{wrong}; it is as long as an MD5",
                "If it is the file's MD5, name it md5.",
            )
            if context.old or "://" in (part.content_url or ""):
                severity = WARNING
        elif context.old or _is_placeholder(value) or "://" in value:
            wrong, severity = f"{wrong}; nothing can be checked", WARNING
        yield Breach(part.where("sc:sha256"), f"sha256 {quoted(value)} {wrong}", hint, severity)


def _is_placeholder(checksum: str) -> bool:
    return checksum.strip().casefold() in _PLACEHOLDERS


@rule("CR207", ERROR, "Checksums", "Give the MD5 of the file, or better its sha256.")
def bad_md5(context: Context) -> Iterator[Breach]:
    """md5 is 32 hexadecimal digits or the base64 of 16 bytes."""
    for part in context.metadata.file_objects:
        if part.md5 is not None and (wrong := forms.checksum(part.md5, 32)):
            vague = context.old or part.is_repository or _is_placeholder(part.md5)
            severity = WARNING if vague else None
            message = f"md5 {quoted(part.md5)} {wrong}"
            yield Breach(part.where("cr:md5"), message, severity=severity)


@rule("CR208", NOTE, "Checksums", "Give sha256, so that a changed or broken file is noticed.")
def no_checksum(context: Context) -> Iterator[Breach]:
    """A file has a checksum unless the dataset is live."""
    for part in () if context.metadata.is_live else context.metadata.file_objects:
        thing = context.thing(part)
        meant = thing is not None and context.is_meant(thing, "sc:sha256")
        hashed = meant or not {"sc:sha256", "cr:md5", "sc:md5"}.isdisjoint(part.written)
        if not (hashed or part.contained_in or part.is_repository):
            yield about(part, "has no checksum")


@rule(
    "CR210", ERROR, "FileObject", "Give a URL, or a path relative to the folder of the description."
)
def escaping_url(context: Context) -> Iterator[Breach]:
    """A contentUrl stays inside the description's folder, or the archive."""
    return malformed(context, context.metadata.file_objects, forms.resource_path, "sc:contentUrl")


@rule("CR211", ERROR, "FileObject", "Give an https:// URL or a path.")
def unknown_scheme(context: Context) -> Iterator[Breach]:
    """A contentUrl has a scheme that can be fetched."""
    for part in context.metadata.file_objects:
        url = part.content_url or ""
        if scheme := forms.unknown_scheme(url):
            message = f"contentUrl {quoted(url)} has the unknown scheme {quoted(scheme)}"
            hint = did_you_mean(scheme, forms.SCHEMES)
            yield Breach(part.where("sc:contentUrl"), message, hint)


@rule(
    "CR213",
    ERROR,
    "FileObject",
    "Give the @id of a FileObject or FileSet of distribution.",
    must=True,
)
def dangling_container(context: Context) -> Iterator[Breach]:
    """What contains a file is a file or set of files of this description."""
    for part, container in _containers(context):
        target = container.target
        if target and target not in context.resources:
            found = "not in distribution"
            if target in context.record_sets or target in context.fields:
                other = "a record set" if target in context.record_sets else "a field"
                found = f"{other}, which contains no files"
            message = f"{called(part)} is contained in {quoted(target)}, which is {found}"
            yield Breach(container.at, message, context.did_you_mean(target, context.resources))


@rule("CR214", ERROR, "FileObject", "Take out one containedIn of the circle.")
def container_cycle(context: Context) -> Iterator[Breach]:
    """No file contains itself."""
    for circle in _circles(context):
        part = context.resources[circle[0]]
        at = next(c.at for c in part.contained_in if c.target == circle[1 % len(circle)])
        yield Breach(at, f"containedIn goes round: {way_round(circle)}")


def _circles(context: Context) -> list[list[str]]:
    """Ids of files that contain one another."""
    parts = context.resources.values()
    return cycles({part.id: [held.target for held in part.contained_in] for part in parts})


@rule("CR217", ERROR, "FileSet", "Write patterns relative to the root of the container.")
def escaping_pattern(context: Context) -> Iterator[Breach]:
    """Patterns stay inside the container."""
    patterns = ("cr:includes", "cr:excludes")
    return malformed(context, context.metadata.file_sets, forms.pattern_escapes, *patterns)


def _containers(context: Context) -> Iterator[tuple[FileObject | FileSet, Source]]:
    for part in context.resources_written:
        for container in part.contained_in:
            yield part, container
