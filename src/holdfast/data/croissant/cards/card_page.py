"""The card of a dataset: one page that says what it is, what is in it, and what its author says of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.answer import Answer
from holdfast.data.croissant.cards.rai_statements import is_answer, rai, texts
from holdfast.data.croissant.document.building import build
from holdfast.data.croissant.document.model import FileObject, Metadata
from holdfast.data.croissant.document.reading import DescriptionSource, read_document
from holdfast.data.croissant.files.hashing import checksum_of, parse_size
from holdfast.data.croissant.rules.checking import validate
from holdfast.numbers import counted, size
from holdfast.report import Finding, Page, Section, Table, Unknown, write

_ROWS = 2000  # of a table
_EXAMPLES = 3  # of a field


@dataclass(frozen=True)
class Card(Answer):
    """A card that was written.

    Attributes:
        path: the description.
        out: the HTML file.
        bytes: its size.
        content: what stands on it.
    """

    path: Path | str
    out: Path
    bytes: int
    content: Page

    def to_dict(self) -> dict[str, Any]:
        """The JSON that programs read."""
        return {
            "path": str(self.path),
            "out": str(self.out),
            "size_bytes": self.bytes,
            "title": self.content.title,
            "findings": [f"{one.lead} {one.text}".strip() for one in self.content.findings],
            "unknowns": [one.text for one in self.content.unknowns],
        }

    def page(self) -> Page:
        """The card."""
        return self.content

    def findings(self) -> Sequence[Finding]:
        """Those of the card."""
        return self.content.findings

    def sections(self) -> Sequence[Section]:
        """Those of the card."""
        return self.content.sections

    def unknowns(self) -> Sequence[Unknown]:
        """Those of the card."""
        return self.content.unknowns


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
    metadata = build(document)
    statements = rai(document)
    validation = validate(document)
    stated = cut(", ".join(texts(metadata.licenses)), 120)
    license_text = stated or "none stated: ask the creators before use"
    open_questions = counted(len(statements.questions), "question")
    fields = _rows(metadata)
    resources = _resources(metadata)
    splits = [row for row in fields if "Split" in row["type"]]
    return Page(
        title=cut(metadata.name, 200) or "A dataset without a name",
        subtitle=cut(metadata.url, 200),
        inputs=_inputs(metadata, Path(document.path).name),
        findings=[
            Finding(_contents(metadata), "contents"),
            Finding(f"{license_text}.", lead="License:"),
            Finding(
                f"{statements.stated} of {len(statements.statements)} are made; {open_questions} open.",
                "said",
                lead="Responsible-AI statements:",
            ),
            *validation.findings(),
        ],
        sections=[
            Section("about", "What is it?", cut(metadata.description, 4000) or "No description."),
            _section("contents", "What is in it?", resources, "file or set of files"),
            _section("records", "What does each record look like?", fields, "field"),
            _section("splits", "Which splits?", splits, "field that defines or names a split"),
            _section(
                "said",
                "Responsible AI: collection, annotation, bias, use",
                [
                    {
                        "about": one.meaning.label,
                        "says": cut(" / ".join(one.texts), 2000) or f"? {one.meaning.question}",
                    }
                    for one in statements.statements
                ],
                "statement of the RAI vocabulary or, where it is not made, open question",
            ),
            *validation.sections(),
        ],
        unknowns=list(_unknowns(metadata, len(statements.questions))),
        footer=f"Made from {Path(document.path).name} alone: no file of the dataset was read.",
    )


def _section(name: str, question: str, rows: Sequence[dict[str, str]], what: str) -> Section:
    """A section of one table."""
    table = Table(
        pa.Table.from_pylist(list(rows[:_ROWS])), caption=f"One row per {what}.", detail=True
    )
    return Section(name, question, f"{counted(len(rows), 'row')}.", tables=[table] if rows else [])


def _inputs(metadata: Metadata, file: str) -> list[tuple[str, str]]:
    rows: dict[str, Any] = {
        "Description": f"{file}, Croissant {metadata.version}",
        "Version": metadata.dataset_version,
        "License": metadata.licenses,
        "Creators": metadata.creators,
        "Publishers": metadata.publishers,
        "Published": metadata.date_published,
        "Modified": metadata.date_modified,
        "Keywords": metadata.keywords,
        "Cite as": metadata.cite_as,
    }
    lines = {label: cut(", ".join(texts(value)), 900) for label, value in rows.items()}
    return [(label, text) for label, text in lines.items() if is_answer(text)]


def _outer(metadata: Metadata) -> list[FileObject]:
    """The files that are in no other."""
    files = metadata.file_objects
    return [part for part in files if not part.contained_in and not part.is_repository]


def _contents(metadata: Metadata) -> str:
    """How many record sets, fields, files and bytes there are."""
    fields = sum(1 for _ in metadata.fields())
    counts = [counted(len(metadata.file_objects), "file")]
    if metadata.file_sets:
        counts.append(counted(len(metadata.file_sets), "set of files", "sets of files"))
    outer = _outer(metadata)
    known = [found.bytes for part in outer if (found := parse_size(part.content_size))]
    least = "" if len(known) == len(outer) else "at least "
    weight = f", {least}{size(sum(known))}" if known else ""
    records = f"{counted(len(metadata.record_sets), 'record set')} with {counted(fields, 'field')}"
    return f"{records}, from {' and '.join(counts)}{weight}."


def _resources(metadata: Metadata) -> list[dict[str, str]]:
    rows = []
    for part in (*metadata.file_objects, *metadata.file_sets):
        is_file = isinstance(part, FileObject)
        where = part.content_url if is_file else ", ".join(part.includes) or "every file"
        rows.append(
            {
                "id": part.id,
                "kind": "file" if is_file else "set of files",
                "format": ", ".join(part.encoding_formats),
                "size": (part.content_size or "") if is_file else "",
                "where": where or "",
                "inside": ", ".join(one.target for one in part.contained_in),
                "description": cut(part.description),
            }
        )
    return rows


def _rows(metadata: Metadata) -> list[dict[str, str]]:
    """One row per field; those of a split are recognised by their type or by what they reference."""
    splits = {part.id for part in metadata.record_sets if "cr:Split" in part.data_types}
    rows = []
    for records, part in metadata.fields():
        types = [name.rpartition(":")[2] for name in part.data_types]
        targets = {one.target.rpartition("/")[0] for one in part.references}
        if "Split" not in types and (records.id in splits or targets & splits):
            types.append("Split")
        inline = records.data or (records.examples if isinstance(records.examples, list) else ())
        shown = [row for row in inline[:_EXAMPLES] if isinstance(row, dict)]
        names = dict.fromkeys((part.id, part.key, part.short))
        values = [row[name] for row in shown for name in names if name in row]
        rows.append(
            {
                "record_set": records.id,
                "field": part.id,
                "type": ", ".join(types) + (" list" if part.is_list else ""),
                "from": part.source.target if part.source else "",
                "references": ", ".join(one.target for one in part.references),
                "examples": "; ".join(cut(_shown(value), 60) for value in values),
                "description": cut(part.description),
            }
        )
    return rows


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _unknowns(metadata: Metadata, open_questions: int) -> Iterator[Unknown]:
    yield Unknown(
        "Whether the data are as described: only the description was read.",
        "holdfast data croissant validate --data holds it against the files.",
    )
    unsure = [part.id for part in _outer(metadata) if checksum_of(part.sha256, part.md5) is None]
    if unsure:
        yield Unknown(
            f"Whether {counted(len(unsure), 'file')} will be what the author had: no usable checksum "
            f"is stated for {cut(', '.join(unsure), 200)}.",
            "A sha256 of 64 hexadecimal digits lets every reader check.",
        )
    if metadata.is_live:
        yield Unknown("What the data will be tomorrow: the dataset is live.")
    if open_questions:
        yield Unknown(
            f"{counted(open_questions, 'question')} on collection, labelling, bias and use, which "
            "the author has not answered."
        )


def cut(text: str | None, most: int = 160) -> str:
    """A text on one line, cut off where it is long."""
    line = " ".join((text or "").split())
    return line if len(line) <= most else f"{line[: most - 1].rstrip()}…"
