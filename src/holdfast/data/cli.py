"""`holdfast data`: describing, storing, feeding and choosing training data."""

from __future__ import annotations

import typer

from holdfast.data.croissant.cli import app as croissant
from holdfast.data.records.cli import app as records

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
app.add_typer(
    croissant, name="croissant", help="Descriptions of datasets: check, load, write them."
)
app.add_typer(records, name="records", help="Progressive compressed records: read half the bytes.")


@app.command(help="Choosing data: what to augment, what to buy, and whether random is as good.")
def curation() -> None:
    """Listed here; `holdfast.cli` runs its commands, which are made from functions."""


@app.command(help="Input pipelines: find the stage that limits one, and faster settings.")
def pipeline() -> None:
    """Listed here, as `curation` is."""
