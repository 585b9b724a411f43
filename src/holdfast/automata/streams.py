"""Machines from files and streams and back, and the options of `holdfast fst` that say how."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from holdfast.command import Options, Stream, common, option
from holdfast.errors import InputError
from holdfast.progress import remark

if TYPE_CHECKING:
    from holdfast.automata.fst import Fst

STREAM = "-"

Machine = Annotated[
    Stream,
    option(help="Transducer file, binary or text; - reads standard input."),
]
First = Annotated[Stream, option(help="First transducer; - reads standard input.")]
Second = Annotated[Stream, option(help="Second transducer; - reads standard input.")]
Semiring = Annotated[
    str,
    option(
        metavar="NAME",
        help="Semiring of text input: tropical, log, log64, probability, boolean, or an OpenFST arc type.",
    ),
]
Out = Annotated[Stream | None, option("--output", "-o", "--out", metavar="FILE")]


@Options
@dataclass(frozen=True)
class Files:
    """Where the result goes, and what text input means."""

    out: Out = None
    """Output file: binary, or text if the name ends in .txt (default: standard output)."""
    semiring: Semiring = "tropical"

    def read(self, *sources: str) -> list[Fst]:
        """The machines; standard input may hold one of them."""
        return read_machines(*sources, semiring=self.semiring)

    def write(self, f: Fst, remarks: str = "") -> str | None:
        """Write a machine as `write_machine` does."""
        return write_machine(f, self.out, remarks)


def read_bytes(source: str, what: str) -> tuple[bytes, str]:
    """The bytes of a file or of standard input, and what messages call it."""
    from holdfast.automata._kernels import announce_compilation
    from holdfast.files import read_whole

    # Every command that computes reads first.
    announce_compilation(
        lambda: remark("compiling kernels once (about 20 s); later runs load them")
    )
    if source == STREAM:
        return sys.stdin.buffer.read(), "standard input"
    return read_whole(source, what), source


def read_machines(*sources: str, semiring: str) -> list[Fst]:
    """Machines from files, one of them from standard input; `semiring` is that of a text."""
    from holdfast.automata.formats.files import decode

    if sources.count(STREAM) > 1:
        raise InputError(
            "standard input holds one transducer",
            code="conflict",
            found="- and -",
            expected="one of the two in a file",
            remedy="name a file, or use <(...) of the shell",
        )
    return [decode(*read_bytes(source, "a transducer"), semiring) for source in sources]


def read_machine(source: str, semiring: str) -> Fst:
    """One machine from a file or from standard input."""
    return read_machines(source, semiring=semiring)[0]


@contextmanager
def about(*sources: str) -> Iterator[None]:
    """Errors of what is done with machines name the files these were read from."""
    try:
        yield
    except InputError as error:
        if error.path:
            raise
        names = ("standard input" if source == STREAM else source for source in sources)
        raise error.at(" and ".join(names)) from error


def write_machine(f: Fst, out: str | None, remarks: str = "") -> str | None:
    """Write a machine to a file or to standard output, and say so on standard error.

    Args:
        f: the machine.
        out: the file; None and `-` are standard output, which JSON needs for itself: then None writes
            nothing.
        remarks: what else to say of the machine.

    Returns:
        Where it was written, as the JSON names it; None for nowhere.
    """
    from holdfast.automata.formats.files import encode, write
    from holdfast.numbers import counted

    size = f"{counted(f.num_states, 'state')}, {counted(f.num_arcs, 'arc')}{remarks}"
    if out is not None and out != STREAM:
        write(f, out)
        remark(f"wrote {out}: {size}")
        return out
    if common().as_json:
        if out == STREAM:
            raise InputError(
                "standard output cannot hold both the transducer and JSON",
                code="conflict",
                found="--json and -o -",
                expected="one of them",
                remedy="name a file with -o",
            )
        return None
    write_bytes(encode(f))
    remark(f"wrote to standard output: {size}")
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
