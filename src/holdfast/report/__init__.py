"""Findings, charts and tables -> one self-contained HTML page; knows nothing of any room."""

from __future__ import annotations

from holdfast.report.page import (
    ColumnFormat,
    Figure,
    Finding,
    How,
    Page,
    Section,
    Table,
    Tile,
    Unknown,
)
from holdfast.report.render import render, warm_up, write

__all__ = [
    "ColumnFormat",
    "Figure",
    "Finding",
    "How",
    "Page",
    "Section",
    "Table",
    "Tile",
    "Unknown",
    "render",
    "warm_up",
    "write",
]
