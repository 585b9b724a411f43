"""The card of a dataset: one page that says what it is, what is in it, and what its author says of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.data.croissant.document.building import build
from holdfast.data.croissant.document.model import Metadata
from holdfast.data.croissant.document.reading import DescriptionSource, read_document
from holdfast.data.croissant.documenting.assessing import rai
from holdfast.data.croissant.documenting.completeness import Rai
from holdfast.data.croissant.documenting.judging import judge, texts
from holdfast.data.croissant.documenting.relations import (
    split_names,
    splits_section,
)
from holdfast.data.croissant.documenting.sections import (
    contents_section,
    cut,
    records_section,
    resources_text,
)
from holdfast.data.croissant.documenting.soundness import (
    Checked,
    checked,
    rai_section,
    sound_section,
)
from holdfast.data.croissant.documenting.use_conditions import called
from holdfast.data.croissant.files.hashing import checksum_of, parse_size
from holdfast.numbers import counted, number, size
from holdfast.report import Finding, Page, Section, Tile, Unknown, write

_ABOUT = 900
_DESCRIPTION = 4000


@dataclass(frozen=True)
class Card:
    """A card that was written.

    Attributes:
        path: the description.
        out: the HTML file.
        bytes: its size.
        page: what stands on it.
    """

    path: Path | str
    out: Path
    bytes: int
    page: Page

    def to_dict(self) -> dict[str, Any]:
        """The JSON that programs read."""
        return {
            "path": str(self.path),
            "out": str(self.out),
            "size_bytes": self.bytes,
            "title": self.page.title,
            "findings": [f"{one.lead} {one.text}".strip() for one in self.page.findings],
            "unknowns": [one.text for one in self.page.unknowns],
        }


def card(path: DescriptionSource, out: str | Path) -> Card:
    """Write the card of a description as one HTML page that needs no network.

    Args:
        path: the description, as `open_description` takes it; no file of the dataset is read.
        out: the HTML file to write, whole or not at all.

    Raises:
        InputError: if the description cannot be read as a JSON object.
        HoldfastError: if the page cannot be written.
    """
    document = read_document(path)
    page = card_page(document)
    written = write(page, out)
    return Card(document.path, written, written.stat().st_size, page)


def card_page(source: DescriptionSource) -> Page:
    """The page, before it is written.

    Raises:
        InputError: if the description cannot be read as a JSON object.
    """
    document = read_document(source)
    path, metadata = document.path, build(document)
    said = rai(document)
    found = checked(document)
    sections = [
        _about_section(metadata),
        contents_section(metadata),
        records_section(metadata),
        splits_section(metadata),
        rai_section(said),
        sound_section(found),
    ]
    return Page(
        title=cut(metadata.name, 200) or "A dataset without a name",
        subtitle=cut(metadata.url, 200),
        inputs=_inputs(path, metadata),
        findings=_findings(metadata, said, found),
        tiles=_tiles(metadata, said),
        sections=sections,
        unknowns=_unknowns(metadata, said, found),
        footer=f"Made from {Path(path).name} alone: no file of the dataset was read.",
    )


def _about_section(metadata: Metadata) -> Section:
    text = cut(metadata.description, _DESCRIPTION)
    return Section(id="about", question="What is it?", sentence=text or "No description.")


def _inputs(path: str | Path, metadata: Metadata) -> list[tuple[str, str]]:
    version = metadata.dataset_version
    rows = [
        ("Description", f"{Path(path).name}, Croissant {metadata.version}"),
        (
            "Version",
            f"{version or ''}{' (live: its files change)' if metadata.is_live else ''}".strip(),
        ),
        ("License", named(metadata.licenses)),
        ("Creators", named(metadata.creators)),
        ("Publishers", named(metadata.publishers)),
        ("Published", metadata.date_published or ""),
        ("Modified", metadata.date_modified or ""),
        ("Keywords", ", ".join(metadata.keywords)),
        ("Cite as", metadata.cite_as or ""),
    ]
    return [
        (label, cut(value, _ABOUT)) for label, value in rows if judge(value, "list") == "stated"
    ]


def named(values: tuple[Any, ...]) -> str:
    """Licences, people and organisations by their names."""
    return ", ".join(filter(None, (_name(one) for one in values)))


def _name(value: Any) -> str:
    if isinstance(value, Mapping):
        bare = {str(key).rsplit(":", 1)[-1].rsplit("/", 1)[-1]: part for key, part in value.items()}
        for key in ("name", "url", "@id"):
            if said := " ".join(texts(bare.get(key))):
                return said
        return ""
    return called(value)


def _bytes(metadata: Metadata) -> tuple[int, bool, int]:
    """The bytes of files that are in no other, whether all state their size, and how many do."""
    outer = [
        part for part in metadata.file_objects if not part.contained_in and not part.is_repository
    ]
    sizes = [parse_size(part.content_size) for part in outer]
    known = [one for one in sizes if one is not None]
    whole = bool(known) and len(known) == len(outer)
    return sum(one.bytes for one in known), whole, len(known)


def _findings(metadata: Metadata, said: Rai, found: Checked) -> list[Finding]:
    fields = sum(1 for _ in metadata.fields())
    total, whole, known = _bytes(metadata)
    weight = f", {'' if whole else 'at least '}{size(total)}" if known else ""
    records = f"{counted(len(metadata.record_sets), 'record set')} with {counted(fields, 'field')}"
    made = [
        Finding(
            f"{records}, from {resources_text(metadata)}{weight}."
            if metadata.record_sets
            else f"No record is described, and {resources_text(metadata)}{weight}.",
            "contents",
        )
    ]
    licence = cut(named(metadata.licenses), 120)
    made.append(
        Finding(
            f"{licence}." if licence else "none stated: ask the creators before use.",
            lead="License:",
        )
    )
    names = split_names(metadata)
    if names:
        made.append(
            Finding(
                f"{', '.join(names[:8])}{' …' if len(names) > 8 else ''}.",
                "splits",
                lead=counted(len(names), "split") + ":",
            )
        )
    counts = Counter(one.standing for one in said.statements)
    weak = counts["short"] + counts["placeholder"] + counts["empty"]
    text = f"{said.stated} of {len(said.statements)} are made"
    if weak:
        text += f", {weak} {'says' if weak == 1 else 'say'} too little"
    if said.questions:
        text += f"; {counted(len(said.questions), 'question')} open"
    made.append(Finding(f"{text}.", "said", lead="Responsible-AI statements:"))
    made.append(Finding(found.sentence, "sound", lead=found.lead))
    return made


def _tiles(metadata: Metadata, said: Rai) -> list[Tile]:
    total, whole, known = _bytes(metadata)
    value, unit = size(total).split(" ") if known else ("–", "")
    fields = sum(1 for _ in metadata.fields())
    sets = len(metadata.file_sets)
    more = f"and {counted(sets, 'set of files', 'sets of files')}" if sets else ""
    partial = f"of {counted(known, 'file')} that state it" if known else "no file states its size"
    weight = Tile("Bytes", value, unit, note="" if whole else partial, section_id="contents")
    tiles = [
        Tile("Files", number(len(metadata.file_objects)), note=more, section_id="contents"),
        *([weight] if metadata.file_objects else []),
        Tile("Record sets", number(len(metadata.record_sets)), section_id="records"),
        Tile("Fields", number(fields), section_id="records"),
        Tile("Splits", number(len(split_names(metadata))), section_id="splits"),
    ]
    stated = f"of {len(said.statements)}"
    return [*tiles, Tile("RAI statements", number(said.stated), stated, section_id="said")]


def _unknowns(metadata: Metadata, said: Rai, found: Checked) -> list[Unknown]:
    made = [
        Unknown(
            "Whether the data are as described: only the description was read.",
            "holdfast data croissant validate --data holds it against the files.",
        )
    ]
    outer = [
        part for part in metadata.file_objects if not part.contained_in and not part.is_repository
    ]
    unsure = [part.id for part in outer if checksum_of(part.sha256, part.md5) is None]
    if unsure:
        made.append(
            Unknown(
                f"Whether {counted(len(unsure), 'file')} will be what the author had: no usable checksum "
                f"is stated for {cut(', '.join(unsure), 200)}.",
                "A sha256 of 64 hexadecimal digits lets every reader check.",
            )
        )
    if metadata.is_live:
        made.append(
            Unknown(
                "What the data will be tomorrow: the dataset is live.",
                "A lock file keeps what you have read.",
            )
        )
    untyped = [
        part.id for _, part in metadata.fields() if not part.data_types and not part.sub_fields
    ]
    if untyped:
        made.append(
            Unknown(
                f"The type of {counted(len(untyped), 'field')}: {cut(', '.join(untyped), 200)}.",
                "dataType says so.",
            )
        )
    shown = sum(
        records.data is not None or records.examples is not None for records in metadata.record_sets
    )
    if shown < len(metadata.record_sets):
        made.append(
            Unknown(
                f"What values look like in {counted(len(metadata.record_sets) - shown, 'record set')}, "
                "which show none.",
                "A few records under examples let a reader see them without a download.",
            )
        )
    if said.stated < len(said.statements):
        made.append(
            Unknown(
                f"{counted(len(said.questions), 'question')} on collection, labelling, bias and use, "
                "which the author has not answered.",
                "They stand under what the author has said.",
            )
        )
    return made
