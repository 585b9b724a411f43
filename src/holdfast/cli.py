"""The command `holdfast`: mounts the rooms, each imported only when it is asked for."""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast import __version__
from holdfast.command import room, run
from holdfast.errors import HoldfastError
from holdfast.rooms import ROOMS, lacking

if TYPE_CHECKING:
    from cyclopts import App

COMMANDS = {
    **{room.word: room.about for room in ROOMS},
    "profile": "Where the FLOPs, bytes and time of a model go, and how far its numbers deviate.",
    "data": "Training data: check, load, describe, store, choose and feed datasets.",
    "lm": "Language models: queries by regular expressions, audits, safety, generation.",
    "why": "Say what a file or folder is, its headline, and the command to run next.",
    "diff": "Compare two saved answers; exit with 1 on a regression.",
}
"""What the command line mounts, in the order of help."""

_HOMES = {
    "profile": "holdfast.profile.ops.cli",
    "private": "holdfast.private.mpc.cli",
    "fst": "holdfast.automata.cli",
    "why": "holdfast.why",
    "diff": "holdfast.compare",
}

_WORDS = {
    **{word: room.word for room in ROOMS for word in (room.word, *room.also)},
    "why": "why",
    "diff": "diff",
}
"""First words of a command line -> as the commands are named."""

INTERRUPTED = 130
BROKEN_PIPE = 141


def home(room: str) -> str:
    """The module that has the commands of a room."""
    return _HOMES.get(room, f"holdfast.{room}.cli")


def program() -> App:
    """The command `holdfast` with its rooms."""
    app = room(
        "holdfast",
        "Measure what a machine-learning fleet loses, why, and what would win it back.",
        version=f"holdfast {__version__}",
        version_flags=["--version"],
    )
    for place, (name, about) in enumerate(COMMANDS.items()):
        app.command(f"{home(name)}:app", name=name, help=about, sort_key=place)
    app.register_install_completion_command(
        help="Install completion for the current shell.", sort_key=len(COMMANDS)
    )

    @app.command(name="--show-completion", sort_key=len(COMMANDS) + 1)
    def show_completion() -> None:
        """Show completion for the current shell, to copy it or customize the installation."""
        print(app.generate_completion())

    return app


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line, and exit: 0 done, 1 the answer is a failure, 2 bad input or usage."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    # Building queries makes many objects and hardly a cycle: look for cycles less often.
    gc.set_threshold(100_000, 50, 100)
    code = _run(words)
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
            return run(program(), _room_first(arguments))
        except ImportError as error:
            if (found := lacking(error, _room_first(arguments))) is None:
                raise
            raise found from error
    except KeyboardInterrupt:
        # Some commands start over, some resume by themselves, some with an option.
        print("\ninterrupted; if this command can resume, its --help says how", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        return BROKEN_PIPE
    except SystemExit as end:  # what Rich makes of a closed pipe
        if isinstance(end.__context__, BrokenPipeError):
            return BROKEN_PIPE
        raise
    except HoldfastError as error:
        if as_json:
            print(json.dumps({"error": _facts(error)}, indent=2), file=sys.stderr)
        else:
            print(f"error: {error}", file=sys.stderr)
        return error.exit_code


def _room_first(arguments: list[str]) -> list[str]:
    """The line with the options that stand before the room behind it: they are those of its command."""
    for place, word in enumerate(arguments):
        if word in _WORDS:
            return [_WORDS[word], *arguments[place + 1 :], *arguments[:place]]
        if not arguments[0].startswith("-"):
            break
    return arguments


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
