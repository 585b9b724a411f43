"""Findings, charts and tables -> one self-contained HTML page; knows nothing of any room."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import lazily
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

if TYPE_CHECKING:
    from holdfast.report.html import render, warm_up, write

# Drawing imports Arrow: a command that prints no page does not pay for it.
_HOMES = {"render": "html", "warm_up": "html", "write": "html"}

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

__getattr__ = lazily(__name__, _HOMES)
