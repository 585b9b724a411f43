"""What the commands of every room share: options, and how a result is printed.

A command takes the shared options by their types, calls the function of the same name, and hands the
result to `emit`:

    def mttf(store: Path, as_json: JsonOption = False, quiet: QuietOption = False) -> None:
        emit(open_store(store).mttf(), as_json, table_of_mttf)

The options may stand before the room (``holdfast --json fleet mttf X``) or after the command.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypeVar

import typer

from holdfast import progress
from holdfast.plain import plain
from holdfast.report.terminal import table as table

if TYPE_CHECKING:
    from rich.console import RenderableType


class Result(Protocol):
    """What a room's function returns."""

    def to_dict(self) -> dict[str, Any] | list[dict[str, Any]]:
        """The JSON that programs read, with stable keys."""


_Result = TypeVar("_Result", bound=Result)


def _or_before(context: typer.Context, name: str, value: bool) -> bool:
    """Whether an option is given here or before the room's name."""
    return value or bool(context.find_root().params.get(name))


def _as_json(context: typer.Context, value: bool) -> bool:
    return _or_before(context, "as_json", value)


def _silence(context: typer.Context, value: bool) -> bool:
    quiet = _or_before(context, "quiet", value)
    progress.set_quiet(quiet)
    return quiet


JsonOption = Annotated[
    bool,
    typer.Option("--json", help="Print the result as JSON, for programs.", callback=_as_json),
]
QuietOption = Annotated[
    bool,
    typer.Option("--quiet", "-q", help="No progress and no remarks.", callback=_silence),
]


def emit(result: _Result, as_json: bool, render: Callable[[_Result], RenderableType | str]) -> None:
    """Print a result on stdout: as JSON, or as what `render` makes of it."""
    if as_json:
        print(json.dumps(plain(result.to_dict()), indent=2, allow_nan=False))
        return
    from rich.console import Console

    # In a pipe there is no screen to fit: give tables the room they need.
    console = Console(width=None if sys.stdout.isatty() else 160)
    shown = render(result)
    # Lines of text stay whole: programs and editors look for the places that they name.
    console.print(shown, markup=False, highlight=False, soft_wrap=isinstance(shown, str))


def remark(text: str, quiet: bool = False) -> None:
    """Print a line for people on stderr, such as where a command wrote its file."""
    if not quiet:
        print(text, file=sys.stderr)
