"""`holdfast fst`: each command calls the function of the same name and prints its result."""

from __future__ import annotations

import typer

from holdfast.automata.commands.benchmark import bench
from holdfast.automata.commands.converting import compile_text, print_text
from holdfast.automata.commands.listing import randgen, shortestpath
from holdfast.automata.commands.looking import draw, equal, info
from holdfast.automata.commands.operations import compose, determinize, minimize, rmepsilon

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
app.command("compile")(compile_text)
app.command("print")(print_text)
app.command()(info)
app.command()(draw)
app.command()(compose)
app.command()(determinize)
app.command()(minimize)
app.command()(rmepsilon)
app.command()(shortestpath)
app.command()(randgen)
app.command()(equal)
app.command()(bench)
