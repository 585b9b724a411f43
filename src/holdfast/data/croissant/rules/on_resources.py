"""CR2xx: files and sets of files: where they are, their formats and checksums."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from pathlib import PurePosixPath

from holdfast.data.croissant.document.vocabulary import ENCODING_FORMATS, format_of
from holdfast.data.croissant.rules import forms
from holdfast.data.croissant.rules.clauses import CHECKSUMS, FILE_OBJECT, LIVE
from holdfast.data.croissant.rules.findings import Severity
from holdfast.data.croissant.rules.table import Breach, Context, did_you_mean, quoted, rule

ERROR, WARNING, NOTE = Severity.ERROR, Severity.WARNING, Severity.NOTE

_ALIKE = 0.6  # of two names that differ by a slip
_ALIKE_OWN = 0.75  # where somebody's own name, such as text/x-lean, is as likely
_PLACEHOLDERS = frozenset(
    {"sha256", "md5", "foo", "bar", "baz", "todo", "tbd", "none", "null", "unknown", "n/a"}
)


@rule(
    "CR203",
    ERROR,
    FILE_OBJECT,
    "Give contentUrl: a URL, or a path beside the description (inside the archive with containedIn).",
    must=True,
)
def no_url(context: Context) -> Iterator[Breach]:
    """A file says where its bytes are."""
    for part in context.metadata.file_objects:
        if context.lacks(part, "sc:contentUrl"):
            yield Breach(part.at, f"FileObject {quoted(part.id)} has no contentUrl")


@rule(
    "CR204",
    ERROR,
    FILE_OBJECT,
    "Give encodingFormat, a media type such as text/csv.",
    must=True,
)
def no_format(context: Context) -> Iterator[Breach]:
    """A file or set of files says its format."""
    for part in context.resources_written:
        if context.lacks(part, "sc:encodingFormat"):
            yield Breach(part.at, f"{type(part).__name__} {quoted(part.id)} has no encodingFormat")


@rule(
    "CR205",
    WARNING,
    FILE_OBJECT,
    "Give a registered media type, or the URL of a page about the format.",
)
def unknown_format(context: Context) -> Iterator[Breach]:
    """A format is a media type that tools know, or a URL."""
    for part in context.resources_written:
        for at, value in context.values(part, "sc:encodingFormat"):
            if not isinstance(value, str) or format_of(value):
                continue
            wrong = forms.media_type(value)
            near = did_you_mean(value, _formats_near(value))
            if "," in value:
                near = "Write several formats as a list of texts."
            if wrong or near or not _registered(value):
                known = wrong or "is no format that is known here"
                yield Breach(at, f"encodingFormat {quoted(value)} {known}", near)


def _formats_near(value: str) -> list[str]:
    """Formats whose own name, without the family and `x-`, is like one's: families are alike anyway."""

    def own(name: str) -> str:
        return name.rpartition("/")[2].casefold().removeprefix("x-")

    matcher = difflib.SequenceMatcher(b=own(value)[:200])
    cutoff = _ALIKE_OWN if "/x-" in value else _ALIKE
    found = []
    for name in ENCODING_FORMATS:
        matcher.set_seq1(own(name))
        if matcher.ratio() >= cutoff:
            found.append(name)
    return found


def _registered(value: str) -> bool:
    """Whether a format of no special meaning here may well be one: a URL, or a type of a known family."""
    family = value.partition("/")[0]
    return not forms.web_address(value) or family in {
        "image",
        "audio",
        "video",
        "text",
        "font",
        "model",
    }


@rule(
    "CR206",
    ERROR,
    CHECKSUMS,
    "Give the SHA-256 of the file (sha256sum FILE), or leave the property out.",
    must=True,
)
def bad_sha256(context: Context) -> Iterator[Breach]:
    """sha256 is 64 hexadecimal digits or the base64 of 32 bytes."""
    for part in context.metadata.file_objects:
        value, at = part.sha256, part.where("sc:sha256")
        if value is None or not (wrong := forms.checksum(value, 64)):
            continue
        message = f"sha256 {quoted(value)} {wrong}"
        if part.is_repository:
            yield Breach(at, f"{message}; a repository has no bytes to check", severity=NOTE)
        elif not forms.checksum(value, 32):
            remote = part.content_url is not None and "://" in part.content_url
            yield Breach(
                at,
                f"{message}; it is as long as an MD5",
                "If it is the file's MD5, name it md5.",
                WARNING if remote or context.old else ERROR,
            )
        elif context.old or value.strip().casefold() in _PLACEHOLDERS or "://" in value:
            yield Breach(at, f"{message}; nothing can be checked", severity=WARNING)
        else:
            yield Breach(at, message)


@rule(
    "CR207",
    ERROR,
    CHECKSUMS,
    "Give the MD5 of the file, or better its sha256.",
)
def bad_md5(context: Context) -> Iterator[Breach]:
    """md5 is 32 hexadecimal digits or the base64 of 16 bytes."""
    for part in context.metadata.file_objects:
        if part.md5 is not None and (wrong := forms.checksum(part.md5, 32)):
            placeholder = context.old or part.md5.strip().casefold() in _PLACEHOLDERS
            yield Breach(
                part.where("cr:md5"),
                f"md5 {quoted(part.md5)} {wrong}",
                severity=WARNING if placeholder or part.is_repository else None,
            )


@rule(
    "CR208",
    NOTE,
    CHECKSUMS,
    "Give sha256, so that a changed or broken file is noticed.",
)
def no_checksum(context: Context) -> Iterator[Breach]:
    """A file has a checksum unless the dataset is live."""
    for part in context.metadata.file_objects:
        hashed: object = {"sc:sha256", "cr:md5", "sc:md5"} & part.written.keys()
        thing = context.thing(part)
        hashed = hashed or (thing and context.is_meant(thing, "sc:sha256"))
        if not (hashed or part.contained_in or part.is_repository or context.metadata.is_live):
            yield Breach(part.at, f"FileObject {quoted(part.id)} has no checksum")


@rule(
    "CR209",
    NOTE,
    LIVE,
    "Leave out the checksums of files that are still written to.",
)
def live_checksums(context: Context) -> Iterator[Breach]:
    """A live dataset has checksums only on files that never change."""
    hashed = [part for part in context.metadata.file_objects if part.sha256 or part.md5]
    if context.metadata.is_live and hashed and not all(part.is_repository for part in hashed):
        at = context.metadata.where("cr:isLiveDataset")
        yield Breach(
            at, f"the dataset is live, and files have checksums, such as {quoted(hashed[0].id)}"
        )


@rule(
    "CR210",
    ERROR,
    FILE_OBJECT,
    "Give a URL, or a path relative to the folder of the description.",
)
def escaping_url(context: Context) -> Iterator[Breach]:
    """A contentUrl stays inside the description's folder, or the archive."""
    for part in context.metadata.file_objects:
        if part.content_url and (wrong := forms.resource_path(part.content_url)):
            yield Breach(
                part.where("sc:contentUrl"), f"contentUrl {quoted(part.content_url)} {wrong}"
            )


@rule(
    "CR211",
    ERROR,
    FILE_OBJECT,
    "Give an https:// URL or a path.",
)
def unknown_scheme(context: Context) -> Iterator[Breach]:
    """A contentUrl has a scheme that can be fetched."""
    for part in context.metadata.file_objects:
        if part.content_url and (scheme := forms.unknown_scheme(part.content_url)):
            yield Breach(
                part.where("sc:contentUrl"),
                f"contentUrl {quoted(part.content_url)} has the unknown scheme {quoted(scheme)}",
                did_you_mean(scheme, forms.SCHEMES),
            )


@rule(
    "CR212",
    WARNING,
    FILE_OBJECT,
    'Write it like "117743 B" or "36.8 KB".',
)
def bad_size(context: Context) -> Iterator[Breach]:
    """A contentSize is a number and a unit of bytes."""
    for part in context.metadata.file_objects:
        if part.content_size is not None and (wrong := forms.content_size(part.content_size)):
            yield Breach(
                part.where("sc:contentSize"), f"contentSize {quoted(part.content_size)} {wrong}"
            )


@rule(
    "CR219",
    WARNING,
    FILE_OBJECT,
    "Correct encodingFormat or contentUrl.",
)
def wrong_ending(context: Context) -> Iterator[Breach]:
    """A file's format fits the end of its name."""
    for part in context.metadata.file_objects:
        ending = PurePosixPath((part.content_url or "").partition("?")[0]).suffix.casefold()
        claimed = {format_of(value) for value in part.encoding_formats}
        if ending in _ENDINGS and claimed and claimed <= _CLAIMS and not claimed & _ENDINGS[ending]:
            yield Breach(
                part.where("sc:encodingFormat"),
                f"encodingFormat {quoted(part.encoding_formats[0])} does not fit "
                f"{quoted(part.content_url)}",
            )


# The end of a name -> the formats that it may stand for.
_ENDINGS = {
    ".csv": {"csv"},
    ".tsv": {"tsv", "csv"},
    ".json": {"json", "jsonl"},
    ".jsonl": {"jsonl", "json"},
    ".parquet": {"parquet"},
    ".zip": {"zip"},
    ".tar": {"tar"},
}
_CLAIMS = frozenset[str | None]().union(*_ENDINGS.values())
