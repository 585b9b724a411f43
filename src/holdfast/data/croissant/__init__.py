"""Croissant: descriptions of datasets that a tool can trust.

    from holdfast.data import croissant
    croissant.validate("titanic", data="full")
    croissant.Dataset("titanic").records("passengers", columns=["name", "age"]).to_arrow()

A description is read with the place of every word (`document/`) and held against a table of rules
(`rules/`). The files that it names are found (`files/`), fetched and proved (`fetching/`), and read
in place (`archives/`). Each format becomes a relation with values of the declared types (`scanning/`), a
record set one DuckDB query over them (`planning/`), whose result comes as Arrow, Polars, torch, dicts or
a file (`loading/`). `describing/` makes a description of a folder; `versions/`
brings one to a newer format and compares two; `cards/` draws one for people.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import lazily

if TYPE_CHECKING:
    from holdfast.data.croissant.cards.card_page import Card, card
    from holdfast.data.croissant.cards.rai_statements import Rai, rai
    from holdfast.data.croissant.describing.description import Description
    from holdfast.data.croissant.describing.folders import describe
    from holdfast.data.croissant.document.reading import open_description, read_metadata
    from holdfast.data.croissant.files.downloading import Downloaded, download
    from holdfast.data.croissant.loading.dataset import Dataset
    from holdfast.data.croissant.loading.lazy_table import LazyTable
    from holdfast.data.croissant.loading.records import LazyRecordSet
    from holdfast.data.croissant.rules.checking import Validation, validate
    from holdfast.data.croissant.rules.table import Finding
    from holdfast.data.croissant.versions.changes import Difference
    from holdfast.data.croissant.versions.comparison import diff
    from holdfast.data.croissant.versions.migration import Migrated, migrate

_HOMES = {
    "Card": "cards.card_page",
    "Dataset": "loading.dataset",
    "Description": "describing.description",
    "Difference": "versions.changes",
    "Downloaded": "files.downloading",
    "Finding": "rules.table",
    "LazyRecordSet": "loading.records",
    "LazyTable": "loading.lazy_table",
    "Migrated": "versions.migration",
    "Rai": "cards.rai_statements",
    "Validation": "rules.checking",
    "card": "cards.card_page",
    "describe": "describing.folders",
    "diff": "versions.comparison",
    "download": "files.downloading",
    "migrate": "versions.migration",
    "open_description": "document.reading",
    "rai": "cards.rai_statements",
    "read_metadata": "document.reading",
    "validate": "rules.checking",
}

__all__ = [
    "Card",
    "Dataset",
    "Description",
    "Difference",
    "Downloaded",
    "Finding",
    "LazyRecordSet",
    "LazyTable",
    "Migrated",
    "Rai",
    "Validation",
    "card",
    "describe",
    "diff",
    "download",
    "migrate",
    "open_description",
    "rai",
    "read_metadata",
    "validate",
]

__getattr__ = lazily(__name__, _HOMES)
