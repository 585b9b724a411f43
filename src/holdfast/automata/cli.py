"""`holdfast fst`: each command calls the function of the same name and prints its result."""

from __future__ import annotations

import typer

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
