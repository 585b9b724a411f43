"""`holdfast data croissant`: each command calls the function of the same name and prints its result."""

from __future__ import annotations

import typer

from holdfast.data.croissant.commands.checking import diff, rai, validate
from holdfast.data.croissant.commands.reading import convert, download, load, sql
from holdfast.data.croissant.commands.writing import card, describe, migrate

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
for command in (validate, describe, load, sql, download, convert, migrate, diff, rai, card):
    app.command()(command)
