"""Descriptions opened from files, folders, URLs, stdin or dicts: JSON, or a web page that carries it."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from re import IGNORECASE
from re import compile as pattern
from typing import Any, TypeAlias, Union
from urllib.parse import quote, urljoin

from holdfast.data.croissant.document.building import build
from holdfast.data.croissant.document.json_text import Parsed, parse
from holdfast.data.croissant.document.model import Metadata
from holdfast.data.croissant.document.resolving import resolve
from holdfast.data.croissant.document.slips import Lines, Slip
from holdfast.data.croissant.document.terms import Terms
from holdfast.data.croissant.fetching.access import TIMEOUT_S, Access, is_remote
from holdfast.errors import InputError
from holdfast.files import read_whole
from holdfast.remote import bare

MAX_SCRIPTS = 20  # of a web page, that are looked into
NAMES = ("croissant.json", "metadata.json")  # of a description in a folder
MAX_BYTES = 256 << 20
"""Largest description that is fetched from a URL."""

DescriptionSource: TypeAlias = Union[str, Path, Mapping[str, Any], "Document"]
"""A file, a folder with one, a URL, ``"-"`` (stdin), the JSON as a dict, or an opened description."""

# After these slips it is not known what else the description says.
_CUTS = frozenset({"empty", "truncated", "syntax", "extra", "too-deep", "no-json-ld"})
_BAD_BYTES = pattern(r"[\udc80-\udcff]+")
_SCRIPT = pattern(r"<!--|<script\b([^<>]*)>", IGNORECASE)
_SCRIPT_END = pattern(r"</script\b", IGNORECASE)
_NOT_LINE_END = pattern(r"[^\r\n]")


@dataclass(frozen=True)
class Document:
    """A description as it is written: its text, its values, and where each stands.

    Attributes:
        path: the file; as text, the URL, ``stdin`` or ``dict``. Positions refer to it.
        text: its characters, without a byte order mark; of a dict, its indented JSON.
        encoding_slips: what is wrong with its bytes.
        base: the folder or the URL in which relative paths start.
    """

    path: Path | str
    text: str
    parsed: Parsed
    lines: Lines
    encoding_slips: tuple[Slip, ...] = ()
    base: Path | str = Path()

    @property
    def value(self) -> Any:
        """The description as plain JSON."""
        return self.parsed.value

    @cached_property
    def syntax(self) -> tuple[Slip, ...]:
        """Every mistake of spelling: of the bytes, the JSON, and the contexts."""
        contexts = (replace(slip, offset=self.parsed.offset(slip.at)) for slip in self.terms.slips)
        slips = (*self.encoding_slips, *self.parsed.slips, *contexts)
        return tuple(sorted(slips, key=lambda slip: slip.offset))

    @property
    def cut(self) -> Slip | None:
        """The first slip after which nothing can be said of the rest; None where all was read."""
        return next((slip for slip in self.parsed.slips if slip.kind in _CUTS), None)

    @cached_property
    def terms(self) -> Terms:
        """The description as things with canonical terms."""
        return resolve(self.value)

    def offset(self, pointer: str, *, key: bool = False) -> int:
        """Where a value begins, or its key; of the nearest value around it if the pointer leads nowhere."""
        return self.parsed.offset(pointer, key=key)

    def place(self, pointer: str, *, key: bool = False) -> tuple[int, int]:
        """The line and column of the same, both from 1, columns in characters."""
        return self.lines.place(self.offset(pointer, key=key))


def open_description(
    source: DescriptionSource,
    *,
    cache: str | Path | None = None,
    offline: bool = False,
    timeout: float = TIMEOUT_S,
    public_only: bool = False,
) -> Document:
    """Open a description; every function of this package takes the result instead of its source.

    Args:
        source: a JSON file, a web page that carries JSON-LD, a folder that holds ``croissant.json`` or
            ``metadata.json`` (or one other JSON file that declares a ``@context``), the URL of such a file,
            ``"-"`` for stdin, or the JSON as a dict.
        cache: folder for fetched files; None for the user's cache folder.
        offline: of a URL, take the copy that the cache has.
        timeout: seconds to wait for a server.
        public_only: refuse servers whose address is not public.

    Raises:
        InputError: not found, not fetched, no or more than one description in a folder, no JSON object, or
            one that is cut short. Every lesser mistake is in `Document.syntax`.
    """
    return read_document(source, Access(cache, offline, timeout, public_only))


def read_document(source: DescriptionSource, access: Access | None = None) -> Document:
    """The same, with the use of the network as one value."""
    document = read_anything(source, access)
    value = document.value
    described = isinstance(value, dict) or (
        isinstance(value, list) and any(isinstance(item, dict) for item in value)
    )
    if described and document.cut is None:
        return document
    slip = document.cut or next(iter(document.parsed.slips), None)
    line, column = document.lines.place(slip.offset if slip else 0)
    raise InputError(
        "the description is not complete JSON" if described else "the file holds no description",
        code="invalid-syntax" if described else "no-data",
        path=document.path,
        place=f"line {line}, column {column}",
        found=slip.message if slip else f"{json.dumps(value)[:60]}",
        expected='a JSON object such as {"@context": ..., "@type": "sc:Dataset", ...}',
        remedy="name the JSON-LD file of the dataset; `data croissant validate` lists its mistakes",
    )


def read_anything(source: DescriptionSource, access: Access | None = None) -> Document:
    """The same, also where a file holds no JSON object, or nothing at all.

    Raises:
        InputError: not found, not fetched, or no or more than one description in a folder.
    """
    if isinstance(source, Document):
        return source
    if isinstance(source, Mapping):
        return parse_document(_dumped(source), "dict", Path.cwd())
    if isinstance(source, str) and is_remote(source):
        return _fetched(source, access or Access())
    if str(source) == "-":
        return parse_document(sys.stdin.buffer.read(), "stdin", Path.cwd())
    file = _file(Path(source))
    return parse_document(read_whole(file, "a Croissant description"), file)


def parse_document(data: bytes, path: str | Path, base: str | Path | None = None) -> Document:
    """A description from bytes.

    Args:
        data: the bytes.
        path: what errors name: a path, or text that is none.
        base: where relative paths start; None for the folder of `path`.
    """
    text, slips = _decoded(data)
    lines = Lines(text)
    page = text.lstrip()[:1] == "<"
    parsed = _embedded(text, lines) if page else parse(text, lines)
    if base is None:
        path = Path(path)
        base = path.parent
    return Document(path, text, parsed, lines, slips, base)


def read_metadata(path: DescriptionSource) -> Metadata:
    """What a description says.

    Args:
        path: as `open_description` takes it.

    Raises:
        InputError: as `open_description`.
    """
    return build(read_document(path))


def located(metadata: Metadata, base: Path | str) -> Metadata:
    """The metadata of a description whose files are to be read: relative paths beside a URL are URLs.

    Args:
        metadata: of the description.
        base: `Document.base`.
    """
    if isinstance(base, Path):
        return metadata
    return replace(
        metadata,
        file_objects=tuple(
            part
            if part.contained_in
            else replace(part, content_url=_beside(base, part.content_url))
            for part in metadata.file_objects
        ),
    )


def _beside(base: str, url: str | None) -> str | None:
    """Resolve a contentUrl; one that already has a scheme is unchanged."""
    if not url or is_remote(url) or url.startswith("file:"):
        return url
    # "%" stays: published paths are percent-encoded already. "#" and "?" are part of a file's name.
    return urljoin(base, quote(url, safe="/%:@!$&'()*+,;=~"))


def _dumped(value: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(value, indent=2, ensure_ascii=False).encode(errors="surrogatepass")
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(
            "the description cannot be written as JSON",
            code="invalid-value",
            path="dict",
            found=str(error),
            expected="a dict of what JSON can say: dicts, lists, text, numbers, booleans, None",
        ) from error


def _fetched(url: str, access: Access) -> Document:
    """The description at a URL, by way of the cache: resumed, asked for again only if it changed."""
    from holdfast.data.croissant.fetching.fetcher import Fetcher
    from holdfast.data.croissant.fetching.file_requests import FileRequest

    request = FileRequest(url=url, most=MAX_BYTES, formats=("application/ld+json", "text/html"))
    with Fetcher(access=access) as fetcher:
        [file] = fetcher.fetch_all([request])
    data = read_whole(file.path, "a Croissant description")
    return parse_document(data, bare(url), file.final_url or bare(url))


def _file(path: Path) -> Path:
    """The description that a path names."""
    if not path.is_dir():
        return path
    named = [path / name for name in NAMES if (path / name).is_file()]
    if len(named) > 1:  # data may be called so too
        named = [file for file in named if _declares(file)] or named
    found = named or sorted(
        file for file in path.iterdir() if file.suffix in (".json", ".jsonld") and _declares(file)
    )
    if len(found) == 1:
        return found[0]
    if not found:
        raise InputError(
            "the folder holds no description",
            code="no-data",
            path=path,
            expected=" or ".join(NAMES),
            remedy="name the file, or write a description with `holdfast data croissant describe`",
        )
    raise InputError(
        "the folder holds more than one description",
        code="conflict",
        path=path,
        found=", ".join(file.name for file in found[:10]),
        expected="one",
        remedy="name the file",
    )


def _declares(file: Path) -> bool:
    """Whether a JSON file may be a description: by its beginning, data may be large."""
    try:
        with file.open("rb") as stream:
            return b"@context" in stream.read(65536).replace(b"\0", b"")
    except OSError:
        return False


def _decoded(data: bytes) -> tuple[str, tuple[Slip, ...]]:
    """Bytes as text, whatever their encoding, and what is wrong with them."""
    encoding = json.detect_encoding(data)
    slips = []
    if encoding == "utf-8-sig":
        slips.append(
            Slip("bom", "", 0, "the file begins with a byte order mark, which JSON does not allow")
        )
    elif encoding != "utf-8":
        slips.append(
            Slip("encoding", "", 0, f"the file is encoded in {encoding.upper()}; JSON is UTF-8")
        )
    if not encoding.startswith("utf-8"):
        return data.decode(encoding, errors="replace"), tuple(slips)
    text = data.decode(encoding, errors="surrogateescape")
    bad = _BAD_BYTES.search(text)
    if not bad:
        return text, tuple(slips)
    first = len(text[: bad.start()].encode()) + (3 if slips else 0)
    shown = bad[0][:8].encode(errors="surrogateescape").hex(" ")
    said = f"these bytes are not UTF-8: {shown} (byte {first} of the file)"
    slips.append(Slip("not-utf-8", "", bad.start(), said))
    return _BAD_BYTES.sub(lambda run: "\ufffd" * len(run[0]), text), tuple(slips)


def _embedded(text: str, lines: Lines) -> Parsed:
    """The description that a web page carries: the first dataset, else the first JSON-LD at all."""
    first = None
    for start, end in _scripts(text)[:MAX_SCRIPTS]:
        # Everything around it is blanked out, so that positions are those of the page.
        blank = _NOT_LINE_END.sub(" ", text[:start])
        parsed = parse(blank + text[start:end], lines)
        dataset = resolve(parsed.value).dataset
        if dataset is not None and "sc:Dataset" in dataset.types:
            return parsed
        first = first or parsed
    slip = Slip(
        "no-json-ld", "", 0, "this is a web page without a script of type application/ld+json"
    )
    return first or Parsed(None, (slip,), 0)


def _scripts(text: str) -> list[tuple[int, int]]:
    """Where the JSON-LD of a web page begins and ends."""
    scripts = []
    at = 0
    while opening := _SCRIPT.search(text, at):
        if opening[0] == "<!--":
            end = text.find("-->", opening.end())
            end = len(text) if end < 0 else end
        else:
            closing = _SCRIPT_END.search(text, opening.end())
            end = closing.start() if closing else len(text)
            if "application/ld+json" in opening[1].lower():
                scripts.append((opening.end(), end))
        at = max(end, opening.end())
    return scripts
