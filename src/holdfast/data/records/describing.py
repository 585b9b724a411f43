"""What a dataset is: its images, columns and classes, and what each fidelity costs and shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from holdfast.answer import Answer, ColumnFormat, Finding, Section, Table, Value, measured
from holdfast.data.records.format.manifest import Manifest
from holdfast.numbers import counted

if TYPE_CHECKING:
    from holdfast.data.records.reading.stores import Store


@dataclass(frozen=True, slots=True)
class Group:
    """What a dataset is at one fidelity."""

    group: int
    """The fidelity, 1..G."""
    scans_end: int
    """The last scan of it, of the ten of a colour image."""
    bytes: int
    """Bytes that one pass reads: metadata blocks and groups up to this one."""
    cumulative_fraction: float
    """The same as a share of the full fidelity's."""
    of_stripped: float | None
    """The same as a share of the source files without their metadata segments."""
    msssim: float | None
    """Mean MS-SSIM (RGB) of the images that were measured; None if none was."""


_COLUMNS = {
    "group": ColumnFormat("fidelity"),
    "scans_end": ColumnFormat("to scan"),
    "bytes": ColumnFormat(),
    "per_image": ColumnFormat("bytes per image", digits=0),
    "cumulative_fraction": ColumnFormat("of full", "%", 1),
    "of_stripped": ColumnFormat("of stripped source", "%", 1),
    "msssim": ColumnFormat("MS-SSIM", digits=3),
}


def fidelities(groups: Sequence[Group], images: int) -> Section:
    """What each fidelity costs and shows."""
    rows = [{**asdict(one), "per_image": one.bytes / images if images else None} for one in groups]
    table = Table(pa.Table.from_pylist(rows), _COLUMNS)
    return Section("fidelities", "What does each fidelity cost?", "", tables=[table])


def figures_of(groups: Sequence[Group]) -> list[Value]:
    """Bytes and likeness of each fidelity."""
    return [
        value
        for one in groups
        for value in (
            Value(f"bytes.{one.group}", one.bytes, "bytes", better="lower"),
            Value(f"msssim.{one.group}", one.msssim, better="higher"),
        )
    ]


def unchanged(reasons: Mapping[str, int]) -> list[Finding]:
    """Why images are stored whole."""
    told = ", ".join(f"{count:,} {why}" for why, count in reasons.items())
    lead = "Stored unchanged, lossless transcoding not possible:"
    return [Finding(f"{told}.", lead=lead)] if reasons else []


def groups_of(manifest: Manifest) -> tuple[Group, ...]:
    """[G] what each fidelity of a dataset costs and shows."""
    stripped = manifest.notes.get("stripped_bytes")
    total = manifest.bytes_at(manifest.groups)
    return tuple(
        Group(
            group=number,
            scans_end=scans_end,
            bytes=(size := manifest.bytes_at(number)),
            cumulative_fraction=size / total if total else 1.0,
            of_stripped=size / stripped if stripped else None,
            msssim=None if msssim != msssim else msssim,
        )
        for number, (scans_end, msssim) in enumerate(
            zip(manifest.scans_end, manifest.msssim(), strict=True), 1
        )
    )


@dataclass(frozen=True)
class Description(Answer):
    """What `info` tells of a dataset."""

    url: str
    images: int
    records: int
    groups: tuple[Group, ...]
    columns: Mapping[str, str]
    """The user's columns -> their Arrow types."""
    classes: tuple[str, ...] | None
    """The names of `label`, if it has them."""
    notes: Mapping[str, Any]
    """What the writer noted: settings, opaque images and why, the decoder that measured."""

    def values(self) -> Sequence[Value]:
        """Its size, and that of each fidelity."""
        return [*measured(self, images="", records=""), *figures_of(self.groups)]

    def findings(self) -> Sequence[Finding]:
        """What it holds."""
        records = counted(self.records, "record")
        findings = [Finding(f"{counted(self.images, 'image')} in {records}.", "fidelities")]
        if self.columns:
            columns = ", ".join(f"{name} {kind}" for name, kind in self.columns.items())
            findings.append(Finding(f"{columns}.", lead="Columns:"))
        if self.classes:
            shown = ", ".join(self.classes[:10]) + (", ..." if len(self.classes) > 10 else "")
            findings.append(
                Finding(shown, lead=f"{counted(len(self.classes), 'class', 'classes')}:")
            )
        return [*findings, *unchanged(self.notes.get("reasons") or {})]

    def sections(self) -> Sequence[Section]:
        """What each fidelity costs and shows."""
        return [fidelities(self.groups, self.images)]


def info(url: str, *, store: Store | None = None) -> Description:
    """What a dataset is, from its manifest: one request.

    Args:
        url: the dataset's folder, or a URL that `open_store` takes.
        store: an open store in the place of the URL's.

    Raises:
        InputError: if there is no dataset.
    """
    from holdfast.data.records.reading.records import open_records

    with open_records(url, store=store) as records:
        manifest = records.manifest
    return Description(
        url=str(url),
        images=manifest.images,
        records=len(manifest.records),
        groups=groups_of(manifest),
        columns={
            column.name: str(column.type) for column in manifest.schema if column.name != "id"
        },
        classes=None if (classes := manifest.classes()) is None else tuple(classes),
        notes=manifest.notes,
    )
