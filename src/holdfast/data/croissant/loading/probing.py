"""Values beside what they were made of, so that those that do not fit can be counted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import duckdb

from holdfast.data.croissant.document.model import Field
from holdfast.data.croissant.planning.columns import CONTENT, MEMBER, Scan, extract_key
from holdfast.data.croissant.planning.origins import Origin, leaves
from holdfast.data.croissant.planning.scans import open_scan
from holdfast.data.croissant.planning.values import apply

if TYPE_CHECKING:
    from holdfast.data.croissant.loading.dataset import Dataset


@dataclass(frozen=True)
class Probe:
    """One resource, as the fields of a record set that read it straight see it.

    Attributes:
        resource: its id.
        fields: the fields, in order.
        relation: a SELECT with, for field i, ``raw_<i>`` (what stands in the file) and ``value_<i>`` (the
            field's value; null where what stands there does not fit), and ``member`` (place in
            ``scan.members``).
        connection: runs queries over it.
        scan: the files.
    """

    resource: str
    fields: tuple[Field, ...]
    relation: str
    connection: duckdb.DuckDBPyConnection
    scan: Scan


def probes(dataset: Dataset, record_set: str) -> Iterator[Probe]:
    """The resources that a record set reads, one after the other; each is gone when the next is asked for.

    Fields that hold the bytes of files, constants, inline data, and fields of other record sets are not in
    it.

    Raises:
        InputError: as reading the record set does.
    """
    records = dataset.fields.record_set(record_set)
    read: dict[str, list[tuple[Field, Origin]]] = {}
    for leaf in leaves(records):
        origin = dataset.fields.origin(records, leaf)
        if origin.table.kind == "resource" and extract_key(origin.source.extract) != CONTENT:
            read.setdefault(origin.table.id, []).append((leaf, origin))
    for resource, found in read.items():
        with dataset.opened() as assembler:
            connection = assembler.connection
            members = dataset.resources.members(resource)
            formats = dataset.metadata.resource(resource).encoding_formats
            extracts = [origin.source.extract for _, origin in found]
            scan = open_scan(connection, dataset.resources, resource, formats, extracts, members)
            try:
                yield Probe(
                    resource,
                    tuple(leaf for leaf, _ in found),
                    _relation(scan, [origin for _, origin in found]),
                    connection,
                    scan,
                )
            finally:
                scan.close()


def _relation(scan: Scan, origins: Sequence[Origin]) -> str:
    chosen = [f"{scan.columns[MEMBER].sql} AS member"]
    for i, origin in enumerate(origins):
        raw = scan.columns[extract_key(origin.source.extract)]
        value = apply(raw, origin.steps, lenient=True)
        chosen += [f"{raw.sql} AS raw_{i}", f"{value.sql} AS value_{i}"]
    return f"SELECT {', '.join(chosen)}\nFROM {scan.relation}"
