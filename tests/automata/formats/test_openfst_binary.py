"""OpenFST's binary files against OpenFST, and damaged ones."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pywrapfst
from machines import random_fst
from openfst import ARC_TYPES, from_openfst, to_openfst
from same_machine import assert_same

from holdfast.automata import SEMIRINGS, Fst, SymbolTable, describe
from holdfast.automata.formats import _kernels as kernels
from holdfast.automata.formats.openfst_binary import decode, encode
from holdfast.errors import InputError

LETTERS = SymbolTable.of(["a", "bb", "日本"], "letters")
BITS_OF_OPENFST = {
    "acceptor": pywrapfst.ACCEPTOR,
    "acyclic": pywrapfst.ACYCLIC,
    "weighted": pywrapfst.WEIGHTED,
    "top_sorted": pywrapfst.TOP_SORTED,
    "ilabel_sorted": pywrapfst.I_LABEL_SORTED,
    "olabel_sorted": pywrapfst.O_LABEL_SORTED,
    "ilabel_deterministic": pywrapfst.I_DETERMINISTIC,
    "olabel_deterministic": pywrapfst.O_DETERMINISTIC,
}


def machine(seed: int) -> Fst:
    made = random_fst(
        seed,
        states=seed % 7 + 1,
        arcs=seed % 23,
        epsilons=seed % 5 / 10,
        acyclic=seed % 3 == 0,
        acceptor=seed % 4 == 0,
        semiring=list(ARC_TYPES)[seed % 3],
    )
    if seed % 5 == 0:  # without weights
        made = made.with_(
            weight=np.zeros_like(made.weight),
            final=np.where(np.isinf(made.final), made.final, 0).astype(made.final.dtype),
        )
    if seed % 2:
        made = made.with_(isymbols=LETTERS)
    if seed % 3 == 1:
        made = made.with_(osymbols=SymbolTable.of("abcdef", "others"))
    return made.with_(start=seed % made.num_states)


def in_openfst(f: Fst) -> Any:
    made = to_openfst(f)
    for table, add in (
        (f.isymbols, made.set_input_symbols),
        (f.osymbols, made.set_output_symbols),
    ):
        if table is not None:
            symbols = pywrapfst.SymbolTable(table.name)
            for label, symbol in table:
                symbols.add_symbol(symbol, label)
            add(symbols)
    return made


def symbols_of(table: Any) -> dict[int, str] | None:
    return None if table is None else dict(table)


def test_what_is_written_is_read_again() -> None:
    for semiring in SEMIRINGS:
        f = random_fst(3, states=9, arcs=30, semiring=semiring).with_(isymbols=LETTERS)
        assert_same(decode(encode(f), "x"), f)
        assert_same(decode(encode(Fst.empty(semiring, LETTERS)), "x"), Fst.empty(semiring, LETTERS))


def test_what_openfst_writes_is_read() -> None:
    for seed in range(200):
        f = machine(seed)
        made = in_openfst(f)
        assert_same(decode(made.write_to_string(), "x"), f)
        assert_same(decode(pywrapfst.convert(made, "const").write_to_string(), "x"), f)


def test_openfst_reads_what_is_written() -> None:
    for seed in range(200):
        f = machine(seed)
        read = pywrapfst.Fst.read_from_string(encode(f))
        assert read.verify()
        assert pywrapfst.equal(read, in_openfst(f))
        assert read.arc_type() == f.semiring.arc_type
        for table, found in (
            (f.isymbols, read.input_symbols()),
            (f.osymbols, read.output_symbols()),
        ):
            assert symbols_of(found) == (None if table is None else dict(table))
            assert found is None or found.name() == table.name  # type: ignore[union-attr]
        # OpenFST's own bytes, but for the properties that it did not look for.
        ours, theirs = encode(f), in_openfst(f).write_to_string()
        assert len(ours) == len(theirs)
        assert ours[-16:] == theirs[-16:]


def test_files_go_both_ways(tmp_path: Path) -> None:
    f = machine(7)
    f.write(tmp_path / "ours.fst")
    read = pywrapfst.Fst.read(str(tmp_path / "ours.fst"))
    assert pywrapfst.equal(read, in_openfst(f))
    read.write(str(tmp_path / "theirs.fst"))
    assert_same(Fst.read(tmp_path / "theirs.fst"), f)


def test_described_properties_are_those_that_openfst_finds() -> None:
    seen: set[tuple[str, bool]] = set()
    for seed in range(300):
        f = machine(seed)
        made, found = pywrapfst.Fst.read_from_string(encode(f)), describe(f).to_dict()
        for name, bit in BITS_OF_OPENFST.items():
            if found[name] is not None:
                assert (made.properties(bit, True) == bit) == found[name], (seed, name)
                seen.add((name, found[name]))
    assert seen == {(name, holds) for name in BITS_OF_OPENFST for holds in (True, False)}


def test_the_machine_without_states() -> None:
    read = pywrapfst.Fst.read_from_string(encode(Fst.empty("tropical")))
    assert read.num_states() == 0
    assert read.verify()
    assert_same(
        decode(pywrapfst.VectorFst().write_to_string(), "x"), from_openfst(pywrapfst.VectorFst())
    )


def test_a_count_of_states_that_was_never_filled_in() -> None:
    f = random_fst(5, states=8, arcs=20)
    data = bytearray(encode(f))
    assert struct.unpack_from("<q", data, STATES)[0] == 8
    struct.pack_into("<q", data, STATES, -1)  # as OpenFST writes to a pipe
    assert_same(decode(bytes(data), "x"), f)


# Of a file without symbols: magic, "vector", "standard", version, flags, properties, start, ...
TYPE, ARC_TYPE, VERSION, START, STATES, BODY = 4, 14, 26, 42, 50, 66


def test_aligned_tables() -> None:
    f = random_fst(4, states=5, arcs=9)
    data = pywrapfst.convert(to_openfst(f), "const").write_to_string()
    header = len(data) - 5 * 20 - 9 * 16
    version, flags = header - 4 * 8 - 8, header - 4 * 8 - 4
    aligned = bytearray(data[:header])
    aligned += bytes(-header % 16) + data[header : header + 100]
    aligned += bytes(-len(aligned) % 16) + data[header + 100 :]
    struct.pack_into("<i", aligned, flags, 4)
    assert_same(decode(bytes(aligned), "x"), f)
    struct.pack_into("<ii", aligned, version, 1, 0)  # version 1 is always aligned
    assert_same(decode(bytes(aligned), "x"), f)


def test_records_in_plain_python() -> None:
    for seed in range(30):
        f = machine(seed)
        weight = f.weight.itemsize // 4
        body = encode(f.with_(isymbols=None, osymbols=None))
        words = np.frombuffer(
            body[-(f.num_states * (weight + 2) + f.num_arcs * (weight + 3)) * 4 :], "<i4"
        )
        expected = [0]
        for degree in np.diff(f.offsets).tolist():
            expected.append(expected[-1] + weight + 2 + degree * (weight + 3))
        found = kernels.records(words.copy(), f.num_states, weight + 2, weight + 3)
        assert found.tolist() == expected
        cut = kernels.records(words[:-1].copy(), f.num_states, weight + 2, weight + 3)
        assert cut.tolist() == expected[:-1]


def test_every_truncation_is_told() -> None:
    for convert in ("vector", "const"):
        f = random_fst(2, states=4, arcs=6).with_(isymbols=LETTERS)
        data = pywrapfst.convert(in_openfst(f), convert).write_to_string()
        for size in range(len(data)):
            with pytest.raises(InputError) as caught:
                decode(data[:size], "cut.fst")
            error = caught.value
            assert error.path == "cut.fst"
            assert str(error.place).startswith("byte ")
            assert error.found
            assert error.expected


def test_bytes_too_many() -> None:
    for convert in ("vector", "const"):
        data = pywrapfst.convert(to_openfst(random_fst(2)), convert).write_to_string()
        with pytest.raises(InputError, match="data after") as caught:
            decode(data + b"\0\0\0\0\0", "long.fst")
        assert caught.value.place == f"byte {len(data)}"


def test_no_damaged_byte_makes_a_crash() -> None:
    for convert in ("vector", "const"):
        f = random_fst(6, states=4, arcs=6).with_(osymbols=LETTERS)
        data = pywrapfst.convert(in_openfst(f), convert).write_to_string()
        for at in range(len(data)):
            for value in (0, 0x7F, 0x80, 0xFF, data[at] ^ 1):
                found = outcome(data[:at] + bytes([value]) + data[at + 1 :])
                if isinstance(found, InputError):
                    assert found.place is not None
                else:
                    assert found.checked() is found


def outcome(data: bytes) -> Fst | InputError:
    try:
        return decode(data, "bad.fst")
    except InputError as error:
        return error


def damaged(f: Fst, at: int, layout: str, *values: float) -> bytes:
    data = bytearray(encode(f))
    struct.pack_into(layout, data, at, *values)
    return bytes(data)


TWO = Fst.build([(0, 1, 2, 0.5, 1), (1, 3, 4, 0.5, 1)], {1: 0.25}, semiring="tropical")
SECOND_ARC = BODY + 12 + 16 + 12


@pytest.mark.parametrize(
    ("data", "place", "found", "expected"),
    [
        (damaged(TWO, 0, "<i", 7), 0, "07 00 00 00", "d6 fd b2 7e"),
        (encode(TWO).replace(b"vector", b"vectos"), TYPE, "'vectos'", "vector or const"),
        (encode(TWO).replace(b"standard", b"gallic__"), ARC_TYPE, "'gallic__'", "standard, log"),
        (damaged(TWO, VERSION, "<i", 9), VERSION, "9", "2"),
        (damaged(TWO, START, "<q", -1), START, "state -1", "a state from 0 to 1"),
        (damaged(TWO, START, "<q", 2), START, "state 2", "a state from 0 to 1"),
        (damaged(TWO, STATES, "<q", 3), BODY + 56, "0 bytes left", "record of state 2"),
        (damaged(TWO, STATES, "<q", 1 << 60), BODY, "56 bytes left", "records of"),
        (damaged(TWO, STATES, "<q", 1), BODY + 28, "28 more bytes", "the end of the file"),
        (damaged(TWO, BODY, "<f", np.nan), BODY, "nan", "tropical"),
        (damaged(TWO, SECOND_ARC, "<i", -1), SECOND_ARC, "-1", "0 or more"),
        (damaged(TWO, SECOND_ARC + 4, "<i", -5), SECOND_ARC + 4, "-5", "0 or more"),
        (damaged(TWO, SECOND_ARC + 8, "<f", np.nan), SECOND_ARC + 8, "nan", "tropical"),
        (damaged(TWO, SECOND_ARC + 8, "<f", -np.inf), SECOND_ARC + 8, "-inf", "tropical"),
        (damaged(TWO, SECOND_ARC + 12, "<i", 2), SECOND_ARC + 12, "2", "from 0 to 1"),
    ],
)
def test_errors_name_byte_found_and_expected(
    data: bytes, place: int, found: str, expected: str
) -> None:
    with pytest.raises(InputError) as caught:
        decode(data, "bad.fst")
    error = caught.value
    assert (error.path, error.place) == ("bad.fst", f"byte {place}")
    assert found in str(error.found)
    assert expected in str(error.expected)


def test_the_place_in_a_const_file() -> None:
    data = bytearray(pywrapfst.convert(to_openfst(TWO), "const").write_to_string())
    struct.pack_into("<i", data, len(data) - 4, 9)
    with pytest.raises(InputError, match="arc 0 of state 1") as caught:
        decode(bytes(data), "bad.fst")
    assert caught.value.place == f"byte {len(data) - 4}"


def test_negative_probabilities() -> None:
    f = Fst.build([(0, 1, 1, 0.5, 0)], [0], semiring="probability")
    data = encode(f)
    with pytest.raises(InputError, match="final weight"):
        decode(data.replace(struct.pack("<d", 1.0), struct.pack("<d", -1.0)), "bad.fst")


def test_a_large_machine() -> None:
    rng = np.random.default_rng(0)
    states, degree = 100_000, 5
    label = rng.integers(0, 50, states * degree).astype(np.int32)
    f = TWO.with_(
        offsets=np.arange(states + 1) * degree,
        ilabel=label,
        olabel=label,
        nextstate=rng.integers(0, states, states * degree).astype(np.int32),
        weight=rng.random(states * degree, np.float32),
        final=rng.random(states, np.float32),
    )
    data = encode(f)
    assert_same(decode(data, "x"), f)
    assert pywrapfst.Fst.read_from_string(data).num_states() == states
