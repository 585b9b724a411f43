"""The command `holdfast`: mounts the rooms, each imported only when it is asked for."""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command, get_group

from holdfast import __version__
from holdfast.console import JsonOption, QuietOption
from holdfast.errors import HoldfastError, MissingExtraError

ROOMS: Mapping[str, tuple[str, str]] = {
    # name: (module that has `app`, one line of help)
    "fleet": (
        "holdfast.fleet.cli",
        "What failures cost a GPU cluster, why, and what would win it back.",
    ),
    "runs": (
        "holdfast.runs.cli",
        "What one training run did with its time, and what stopped it.",
    ),
    "carbon": ("holdfast.carbon.cli", "CO2 of machine time, and when to spend power."),
    "data": (
        "holdfast.data.cli",
        "Training data: check, load, describe and store datasets.",
    ),
    "lm": (
        "holdfast.lm.cli",
        "Language models: regex queries with proven order, and audits.",
    ),
    "profile": (
        "holdfast.profile.cli",
        "Where the FLOPs, bytes and time of a model go, and how far its numbers deviate.",
    ),
    "sparse": (
        "holdfast.sparse.cli",
        "Pruned networks that are smaller and faster: schedules, packing, kernels.",
    ),
    "private": (
        "holdfast.private.cli",
        "Computing on secrets: parties that see only their own input.",
    ),
    "fst": (
        "holdfast.automata.cli",
        "Weighted finite-state transducers: OpenFST's operations and files.",
    ),
    "why": (
        "holdfast.why",
        "Say what a file or folder is, its headline, and the command to run next.",
    ),
    "diff": ("holdfast.compare", "Compare two saved answers; exit with 1 on a regression."),
}

FUNCTIONS = {"carbon", "diff", "fleet", "fst", "lm", "private", "profile", "runs", "sparse", "why"}
"""The rooms whose commands `holdfast.command` makes from functions; in time all of them."""

INNER = {
    "data curation": "holdfast.data.curation.cli",
    "data pipeline": "holdfast.data.pipeline.cli",
}
"""Groups made from functions in a room whose other commands are not: the words -> the module with `app`."""

EXTRAS = {
    "carbon": "carbon",
    "data": "croissant",
    "fleet": "sim",
    "fst": "automata",
    "lm": "lm",
    "profile": "profile",
    "private": "private",
    "runs": "runs",
    "sparse": "sparse",
}
"""The extra with the libraries of a room; records have one of their own."""

INTERRUPTED = 130
BROKEN_PIPE = 141


class _Rooms(TyperGroup):
    """The root group: knows the rooms by name, and imports one when its commands are needed."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = {
            name: TyperGroup(name=name, help=help_line) for name, (_, help_line) in ROOMS.items()
        }

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        if name is not None:
            module, help_line = ROOMS[name]
            command = get_group(import_module(module).app)
            command.name = name
            command.help = command.help or help_line
        return name, command, rest

    def make_context(self, *positional: Any, **named: Any) -> Any:
        try:
            return super().make_context(*positional, **named)
        except BrokenPipeError:  # --help and --version print while the line is parsed
            raise typer.Exit(BROKEN_PIPE) from None

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            print("\ninterrupted; run the same command again to resume", file=sys.stderr)
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            raise typer.Exit(BROKEN_PIPE) from None


app = typer.Typer(cls=_Rooms, invoke_without_command=True, rich_markup_mode=None)


def _version(asked: bool) -> None:
    if asked:
        print(f"holdfast {__version__}")
        raise typer.Exit


@app.callback()
def holdfast(
    context: typer.Context,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", callback=_version, is_eager=True),
    ] = False,
) -> None:
    """Measure what a machine-learning fleet loses, why, and what would win it back."""
    if context.invoked_subcommand is None:
        print(context.get_help())


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line, and exit: 0 done, 1 the answer is a failure, 2 bad input or usage."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    # Building queries makes many objects and hardly a cycle: look for cycles less often.
    gc.set_threshold(100_000, 50, 100)
    code = _run(given)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        code = BROKEN_PIPE
    if code == BROKEN_PIPE:
        # Nobody reads: let the interpreter flush into the void when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


def _run(arguments: list[str]) -> int:
    """The exit code of a command line; messages for the user go to stderr."""
    as_json = "--json" in arguments
    try:
        try:
            outcome = _dispatch(arguments)
        except ModuleNotFoundError as error:
            raise _missing(error, arguments) from error
    except KeyboardInterrupt:
        print("\ninterrupted; run the same command again to resume", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        return BROKEN_PIPE
    except HoldfastError as error:
        if as_json:
            print(json.dumps({"error": _facts(error)}, indent=2), file=sys.stderr)
        else:
            print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except typer.Abort:
        print("aborted", file=sys.stderr)
        return INTERRUPTED
    except typer.TyperException as error:
        if as_json:
            facts = {"kind": "UsageError", "code": "usage", "message": error.format_message()}
            print(json.dumps({"error": facts}, indent=2), file=sys.stderr)
        else:
            error.show()  # type: ignore[attr-defined]  # every exception of the parser has it
        return error.exit_code
    return outcome if isinstance(outcome, int) else 0


def _dispatch(arguments: list[str]) -> Any:
    """Run a line: rooms whose commands are made from functions by `holdfast.command`, others by Typer."""
    place = next((n for n, word in enumerate(arguments) if not word.startswith("-")), None)
    if place is not None and arguments[place - 1 : place] == ["--engine"]:  # its value is no room
        place = next(
            (n for n in range(place + 1, len(arguments)) if not arguments[n].startswith("-")), None
        )
    name = None if place is None else arguments[place]
    inner = " ".join(arguments[place or 0 :][:2])
    if place is not None and inner in INNER:
        from holdfast.command import run

        rest = arguments[place + 2 :] + arguments[:place]
        return run(import_module(INNER[inner]).app, rest, ("holdfast", *inner.split()[:-1]))
    if place is None or name not in FUNCTIONS:
        return get_command(app).main(arguments, "holdfast", standalone_mode=False)
    from holdfast.command import run

    # Options that stand before the room are those of its command.
    return run(import_module(ROOMS[name][0]).app, arguments[place + 1 :] + arguments[:place])


def _missing(error: ModuleNotFoundError, arguments: Sequence[str]) -> Exception:
    """What says which extra to install; the error itself where a library of holdfast's own is missing."""
    library = (error.name or "").partition(".")[0]
    inner = {  # parts of `data` and `lm` with an extra of their own
        **{part: part for part in ("records", "curation", "pipeline")},
        **dict.fromkeys(("generate", "train-exits", "calibrate-heads"), "hf"),
    }
    given = [word for word in arguments if word in EXTRAS or word in inner]
    if library in ("", "holdfast") or not given:
        return error
    own = next((inner[word] for word in given[:2] if word in inner), None)
    extra = own or EXTRAS.get(given[0], given[0])
    return MissingExtraError(library, extra)


def _facts(error: HoldfastError) -> dict[str, str | None]:
    facts: dict[str, str | None] = {
        "kind": type(error).__name__,
        "code": error.code,
        "message": str(error),
    }
    for name in ("problem", "path", "place", "found", "expected", "remedy", "extra"):
        if hasattr(error, name):
            facts[name] = getattr(error, name)
    return facts
