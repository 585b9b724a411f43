"""Symbol tables in files: lines `symbol label`, or OpenFST's binary form, alone and inside a machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from holdfast.automata.formats.fields import Fields, packed, packed_text
from holdfast.automata.symbols import SymbolTable
from holdfast.errors import InputError
from holdfast.files import read_whole, write_whole

if TYPE_CHECKING:
    from holdfast.automata.formats.tokens import Lines

MAGIC = 2125658996
"""The first number of a binary table."""
_LEAST_BYTES = 12
"""Minimum size of a symbol: two numbers and no characters."""


def read_symbols(path: str | Path) -> SymbolTable:
    """A symbol table from a file, binary or text as its first bytes tell.

    Raises:
        InputError: if there is no such file, or it holds no table: with line or byte.
    """
    data = read_whole(path, "a symbol table")
    if data.startswith(packed("int32", MAGIC)):
        fields = Fields(data, str(path))
        table = decode_symbols(fields)
        if fields.at < len(data):
            raise fields.error(
                "data after the symbol table",
                found=f"{len(data) - fields.at:,} more bytes",
                expected="the end of the file",
            )
        return table
    from holdfast.automata.formats.tokens import as_text

    return parse_symbols(as_text(data, str(path), "symbol table"), str(path))


def write_symbols(table: SymbolTable, path: str | Path) -> None:
    """Write a symbol table, whole or not at all: text if the name ends in `.txt`, else binary.

    Raises:
        InputError: if a symbol cannot stand in text.
        HoldfastError: if the file cannot be written.
    """
    is_text = Path(path).suffix == ".txt"
    write_whole(path, render_symbols(table).encode() if is_text else encode_symbols(table))


def parse_symbols(text: str, path: str | None = None) -> SymbolTable:
    """A table from lines `symbol label`; it is named after its file, as OpenFST does.

    Raises:
        InputError: naming the line: not two columns, no label of at least 0, a symbol or label twice.
    """
    from holdfast.automata.formats.tokens import cut

    lines = cut(text, path)
    wrong = lines.columns != 2
    if wrong.any():
        bad = int(np.argmax(wrong))
        raise lines.error(
            bad,
            "wrong number of columns",
            found=f"{lines.columns[bad]} columns",
            expected="symbol label",
            remedy="symbols cannot have spaces; write <space>, or the binary form",
        )
    chosen = np.arange(len(lines))
    symbols = lines.column(chosen, 0).to_pylist()
    labels = lines.integers(chosen, 1, "label").tolist()
    table = dict(zip(labels, symbols, strict=True))
    if len(table) < len(labels) or len(set(symbols)) < len(symbols):
        raise _repeated(lines, labels, symbols)
    return SymbolTable(table, path or "symbols")


def render_symbols(table: SymbolTable) -> str:
    """A table as lines `symbol label`.

    Raises:
        InputError: if a symbol is empty or has a space in it, which text cannot hold.
    """
    for label, symbol in table:
        if not symbol or set(symbol) & set(" \t\n\r"):
            raise InputError(
                f"the symbol of label {label} cannot be written as text",
                code="unsupported",
                found=repr(symbol),
                expected="at least one character, and no space, tab or line end",
                remedy="write the table in the binary form",
            )
    return "".join(f"{symbol}\t{label}\n" for label, symbol in table)


def decode_symbols(fields: Fields) -> SymbolTable:
    """A table in the binary form, from where `fields` stands.

    Raises:
        InputError: naming the byte.
    """
    begin = fields.at
    magic = fields.number("int32", "the mark of a symbol table")
    if magic != MAGIC:
        raise fields.error(
            "not a symbol table",
            begin,
            found=f"the number {magic}",
            expected=f"{MAGIC}, with which a symbol table begins",
        )
    name = fields.text("the name of the symbol table")
    fields.number("int64", "the next free label")
    at = fields.at
    size = fields.number("int64", "the number of symbols")
    most = (len(fields.data) - fields.at) // _LEAST_BYTES
    if not 0 <= size <= most:
        raise fields.error(
            "invalid number of symbols",
            at,
            found=f"{size:,}",
            expected=f"at most {most:,} in the bytes that are left",
            remedy="the file is truncated or damaged: copy or make it again",
        )
    symbols: dict[int, str] = {}
    for _ in range(size):
        at = fields.at
        symbol = fields.text("a symbol")
        label = fields.number("int64", "the label of a symbol")
        if not 0 <= label < 2**31 - 1 or label in symbols:
            raise fields.error(
                "invalid or repeated label",
                at,
                found=f"{symbol!r} with label {label}",
                expected="a label from 0, of one symbol only",
            )
        symbols[label] = symbol
    return SymbolTable(symbols, name)


def encode_symbols(table: SymbolTable) -> bytes:
    """A table in the binary form."""
    highest = max(table.symbols, default=-1)
    parts = [packed("int32", MAGIC), packed_text(table.name)]
    parts += [packed("int64", highest + 1), packed("int64", len(table))]
    for label, symbol in table:
        parts += [packed_text(symbol), packed("int64", label)]
    return b"".join(parts)


def _repeated(lines: Lines, labels: list[int], symbols: list[str]) -> InputError:
    seen: set[int | str] = set()
    line = 0
    while labels[line] not in seen and symbols[line] not in seen:
        seen |= {labels[line], symbols[line]}
        line += 1
    return lines.error(
        line,
        "repeated symbol or label",
        found=f"{symbols[line]!r} with label {labels[line]}",
        expected="one symbol a label, and one label a symbol",
        remedy="remove one of the two lines",
    )
