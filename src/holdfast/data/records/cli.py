"""`holdfast data records`: each command calls the function of the same name and prints its result."""

from __future__ import annotations

import typer

from holdfast.data.records.commands.checking import repair, verify
from holdfast.data.records.commands.looking import cat, extract, info
from holdfast.data.records.commands.measuring import bench, quality, tune
from holdfast.data.records.commands.writing import write

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
for command in (write, info, verify, repair, cat, extract, quality, tune, bench):
    app.command()(command)
