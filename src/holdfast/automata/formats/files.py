"""Machines in files: binary or text as the first bytes tell, and written whole or not at all."""

from __future__ import annotations

from pathlib import Path

from holdfast.automata.fst import Fst
from holdfast.automata.semirings import Semiring
from holdfast.automata.symbols import SymbolTable
from holdfast.errors import InputError
from holdfast.files import read_whole, write_whole

TEXT_SUFFIX = ".txt"


def read(
    path: str | Path,
    semiring: str | Semiring = "tropical",
    *,
    isymbols: SymbolTable | None = None,
    osymbols: SymbolTable | None = None,
    acceptor: bool = False,
) -> Fst:
    """A machine from a file, binary or text.

    Args:
        path: the file.
        semiring: of a text; a binary file names its own.
        isymbols: names of the input labels of a text.
        osymbols: names of the output labels of a text.
        acceptor: a text has one label an arc.

    Raises:
        InputError: if there is no such file, or it holds no machine: with line or byte.
    """
    data = read_whole(path, "a transducer")
    return decode(
        data, str(path), semiring, isymbols=isymbols, osymbols=osymbols, acceptor=acceptor
    )


def decode(
    data: bytes,
    name: str,
    semiring: str | Semiring = "tropical",
    *,
    isymbols: SymbolTable | None = None,
    osymbols: SymbolTable | None = None,
    acceptor: bool = False,
    renumber: bool = False,
) -> Fst:
    """A machine from the bytes of a file; `name` is what messages call it.

    Nothing at all is the machine without states only where the name ends in `.txt`: elsewhere it is what a
    failed command leaves.

    Raises:
        InputError: as `read`.
    """
    from holdfast.automata.formats import openfst_binary

    if not data and Path(name).suffix != TEXT_SUFFIX:
        raise InputError(
            "the file is empty",
            code="empty-input",
            path=name,
            place="byte 0",
            found="0 bytes",
            expected="a transducer, binary or text",
            remedy="see whether the command that should have written it failed",
        )
    if openfst_binary.is_binary(data):
        return openfst_binary.decode(data, name)
    # Text alone needs Arrow.
    from holdfast.automata.formats.openfst_text import parse
    from holdfast.automata.formats.tokens import as_text

    return parse(
        as_text(data, name, "transducer"),
        semiring,
        isymbols=isymbols,
        osymbols=osymbols,
        acceptor=acceptor,
        renumber=renumber,
        path=name,
    )


def write(f: Fst, path: str | Path) -> None:
    """Write a machine, whole or not at all: text if the name ends in `.txt`, else binary.

    Binary files hold the symbol tables. Text holds symbols in place of labels, so `read` needs the tables
    again; exchange them for None (`with_`) to write numbers.

    Raises:
        HoldfastError: if the file cannot be written.
    """
    write_whole(path, encode(f, text=Path(path).suffix == TEXT_SUFFIX))


def encode(f: Fst, *, text: bool = False) -> bytes:
    """The bytes of a machine's file."""
    from holdfast.automata.formats import openfst_binary

    return f.to_text().encode() if text else openfst_binary.encode(f)
