"""OpenFST's binary format: machines of type `vector`, read and written, and of type `const`, read.

A file is a header (types, properties, start, number of states), the symbol tables, and what
`openfst_records` reads. Numbers are little-endian. Machines in the probability and boolean semirings have
arc types of these names, which OpenFST does not know.
"""

from __future__ import annotations

from typing import NamedTuple

from holdfast.automata.formats.fields import Fields, packed, packed_text
from holdfast.automata.formats.openfst_records import (
    check_body,
    read_const,
    read_vector,
    vector_words,
)
from holdfast.automata.formats.symbol_tables import decode_symbols, encode_symbols
from holdfast.automata.fst import Fst
from holdfast.automata.semirings import SEMIRINGS, Semiring
from holdfast.automata.symbols import SymbolTable

MAGIC = 2125659606
"""The first number of a file."""
_HAS_ISYMBOLS, _HAS_OSYMBOLS, _ALIGNED = 1, 2, 4
_VERSION = 2
_EXPANDED, _MUTABLE = 1 << 0, 1 << 1
"""Properties of every file; OpenFST works out the others when it needs them."""


class _Header(NamedTuple):
    fst_type: str
    ring: Semiring
    version: int
    flags: int
    start: int
    states: int
    """-1 if the writer could not go back to fill it in."""
    arcs: int
    start_at: int
    """The byte at which `start` stands."""
    isymbols: SymbolTable | None
    osymbols: SymbolTable | None


def is_binary(data: bytes) -> bool:
    """Whether bytes begin as a file of this format does."""
    return data.startswith(packed("int32", MAGIC))


def decode(data: bytes, name: str) -> Fst:
    """A machine from the bytes of a file.

    Args:
        data: the whole file.
        name: what messages call it.

    Raises:
        InputError: naming the byte: another magic number, another type of machine or of arcs, an end too
            early or too late, a state that does not exist, a negative label, a weight that is none.
    """
    fields = Fields(data, name)
    header = _read_header(fields)
    if header.states == 0:
        return Fst.empty(header.ring, header.isymbols, header.osymbols)
    if header.fst_type == "vector":
        body = read_vector(fields, header.ring, header.states)
    else:
        is_aligned = header.version == 1 or bool(header.flags & _ALIGNED)
        body = read_const(fields, header.ring, header.states, header.arcs, is_aligned)
    states = len(body.final)
    if not states:
        return Fst.empty(header.ring, header.isymbols, header.osymbols)
    if not 0 <= header.start < states:
        raise fields.error(
            "the start state does not exist",
            header.start_at,
            found=f"state {header.start}",
            expected=f"a state from 0 to {states - 1}",
            remedy="set the start state before the machine is written",
        )
    check_body(fields, header.ring, body)
    return Fst.trusted(
        body.offsets,
        body.ilabel,
        body.olabel,
        body.nextstate,
        body.weight,
        body.final,
        header.start,
        header.ring,
        header.isymbols,
        header.osymbols,
    )


def encode(f: Fst) -> bytes:
    """The bytes of a machine's file, of type `vector`."""
    flags = _HAS_ISYMBOLS * (f.isymbols is not None) | _HAS_OSYMBOLS * (f.osymbols is not None)
    parts = [
        packed("int32", MAGIC),
        packed_text("vector"),
        packed_text(f.semiring.arc_type),
        packed("int32", _VERSION),
        packed("int32", flags),
        packed("uint64", _EXPANDED | _MUTABLE),
        packed("int64", f.start),
        packed("int64", f.num_states),
        packed("int64", f.num_arcs),
    ]
    parts += [encode_symbols(table) for table in (f.isymbols, f.osymbols) if table is not None]
    return b"".join([*parts, vector_words(f).data])


def _read_header(fields: Fields) -> _Header:
    magic = fields.number("int32", "the mark of a transducer")
    if magic != MAGIC:
        raise fields.error(
            "not a binary transducer of OpenFST",
            0,
            code="unknown-format",
            found=f"first bytes {fields.data[:4].hex(' ')}",
            expected=packed("int32", MAGIC).hex(" "),
        )
    at = fields.at
    fst_type = fields.text("the type of the transducer")
    if fst_type not in ("vector", "const"):
        raise fields.error(
            "unsupported type of transducer",
            at,
            code="unsupported",
            found=repr(fst_type),
            expected="vector or const",
            remedy="fstconvert --fst_type=vector IN OUT",
        )
    at = fields.at
    arc_type = fields.text("the type of the arcs")
    rings = {ring.arc_type: ring for ring in SEMIRINGS.values()}
    if arc_type not in rings:
        raise fields.error(
            "unsupported type of arcs",
            at,
            code="unsupported",
            found=repr(arc_type),
            expected=f"one of {', '.join(rings)}",
            remedy="fstmap --map_type=to_std, to_log or to_log64 makes one of these from some types",
        )
    at = fields.at
    version = fields.number("int32", "the version")
    if not (version == _VERSION or (version == 1 and fst_type == "const")):
        raise fields.error(
            "unsupported version of the format",
            at,
            code="unsupported",
            found=str(version),
            expected=str(_VERSION),
            remedy="write the file again with OpenFST 1.2 or later",
        )
    flags = fields.number("int32", "the flags")
    fields.number("uint64", "the properties")
    start_at = fields.at
    start, states, arcs = (
        fields.number("int64", what)
        for what in ("the start state", "the number of states", "the number of arcs")
    )
    isymbols = decode_symbols(fields) if flags & _HAS_ISYMBOLS else None
    osymbols = decode_symbols(fields) if flags & _HAS_OSYMBOLS else None
    return _Header(
        fst_type, rings[arc_type], version, flags, start, states, arcs, start_at, isymbols, osymbols
    )
