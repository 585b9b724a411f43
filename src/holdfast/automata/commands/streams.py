"""What the commands share: machines from files and streams and back, and the options that say how."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.console import remark
from holdfast.errors import InputError

if TYPE_CHECKING:
    from holdfast.automata.fst import Fst
    from holdfast.automata.symbols import SymbolTable

STREAM = "-"

MachineArgument = Annotated[
    str,
    typer.Argument(metavar="FST", help="Transducer file, binary or text; - reads standard input."),
]
OutOption = Annotated[
    str | None,
    typer.Option(
        "--out",
        "-o",
        metavar="FILE",
        help="Output file: binary, or text if the name ends in .txt (default: standard output).",
    ),
]
SemiringOption = Annotated[
    str,
    typer.Option(
        "--semiring",
        metavar="NAME",
        help="Semiring of text input: tropical, log, log64, probability, boolean, or an OpenFST arc type.",
    ),
]


@dataclass(frozen=True)
class Facts:
    """What a command prints as JSON."""

    facts: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """The facts by name."""
        return self.facts


def read_bytes(source: str, what: str) -> tuple[bytes, str]:
    """The bytes of a file or of standard input, and what messages call it."""
    from holdfast.files import read_whole

    if source == STREAM:
        return sys.stdin.buffer.read(), "standard input"
    return read_whole(source, what), source


def read_machine(source: str, semiring: str) -> Fst:
    """A machine from a file or from standard input; `semiring` is that of a text."""
    from holdfast.automata.formats.files import decode

    return decode(*read_bytes(source, "a transducer"), semiring)


def read_two(first: str, second: str, semiring: str) -> tuple[Fst, Fst]:
    """Two machines, one of which standard input may hold."""
    if first == second == STREAM:
        raise InputError(
            "standard input holds one transducer",
            code="conflict",
            found="- and -",
            expected="one of the two in a file",
            remedy="name a file, or use <(...) of the shell",
        )
    return read_machine(first, semiring), read_machine(second, semiring)


@contextmanager
def about(*sources: str) -> Iterator[None]:
    """Errors of what is done with machines name the files these were read from."""
    try:
        yield
    except InputError as error:
        if error.path:
            raise
        names = ("standard input" if source == STREAM else source for source in sources)
        raise InputError(
            error.problem,
            code=error.code,
            path=" and ".join(names),
            place=error.place,
            found=error.found,
            expected=error.expected,
            remedy=error.remedy,
        ) from error


def read_table(path: str | None) -> SymbolTable | None:
    """The symbol table of an option, if it was given."""
    from holdfast.automata.formats.symbol_tables import read_symbols

    return None if path is None else read_symbols(path)


def write_machine(f: Fst, out: str | None, as_json: bool, quiet: bool, facts: str = "") -> str:
    """Write a machine to a file or to standard output, and say so on standard error.

    Args:
        f: the machine.
        out: the file; None and `-` are standard output, which JSON needs for itself: then None writes
            nothing.
        as_json: whether the command prints JSON.
        quiet: say nothing.
        facts: what else to say of the machine.

    Returns:
        Where it was written, as the JSON names it; empty for nowhere.
    """
    from holdfast.automata.formats.files import encode, write
    from holdfast.numbers import counted

    size = f"{counted(f.num_states, 'state')}, {counted(f.num_arcs, 'arc')}{facts}"
    if out is not None and out != STREAM:
        write(f, out)
        remark(f"wrote {out}: {size}", quiet)
        return out
    if as_json:
        if out == STREAM:
            raise InputError(
                "standard output cannot hold both the transducer and JSON",
                code="conflict",
                found="--json and -o -",
                expected="one of them",
                remedy="name a file with -o",
            )
        return ""
    write_bytes(encode(f))
    remark(f"wrote to standard output: {size}", quiet)
    return "standard output"


def write_bytes(data: bytes) -> None:
    """Write bytes to standard output, unless that is a terminal."""
    if sys.stdout.isatty():
        raise InputError(
            "a binary transducer cannot be written to the terminal",
            code="conflict",
            found="standard output is a terminal",
            expected="a file or a pipe",
            remedy="name a file with -o, or pipe into holdfast fst print",
        )
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
