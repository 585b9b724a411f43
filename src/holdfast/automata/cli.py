"""`holdfast fst`: each command calls the function of the same name and prints its result."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import typer

from holdfast.automata.commands.converting import compile_text, print_text
from holdfast.automata.commands.listing import randgen, shortestdistance, shortestpath
from holdfast.automata.commands.looking import draw, equal, info
from holdfast.automata.commands.operations import commands
from holdfast.console import remark

COMMANDS: dict[str, Callable[..., None]] = {
    "compile": compile_text,
    "print": print_text,
    "info": info,
    "draw": draw,
    **commands(),
    "shortestpath": shortestpath,
    "shortestdistance": shortestdistance,
    "randgen": randgen,
    "equal": equal,
}


def _announced(command: Callable[..., None]) -> Callable[..., None]:
    """The command, which says so when it has to compile kernels first: that takes up to a minute."""

    @wraps(command)
    def run(**given: Any) -> None:
        from holdfast.automata._kernels import announce_compilation

        announce_compilation(
            lambda: remark(
                "compiling kernels once (about 20 s); later runs load them", given["quiet"]
            )
        )
        command(**given)

    return run


app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
for _name, _command in COMMANDS.items():
    app.command(_name)(_announced(_command))
