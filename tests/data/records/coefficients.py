"""An oracle: the quantised DCT coefficients of a JPEG, decoded as ITU-T T.81 says and as slowly as that.

Huffman coding only: baseline, extended (8 or 12 bits) and progressive, any scan script, restart intervals.
It shares nothing with the package; the maker in `odd_jpegs`, which starts from coefficients, checks it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

# The place in a block, row by row, of each coefficient in zigzag order (figure A.6).
ZIGZAG = sorted(
    range(64),
    key=lambda at: (
        at // 8 + at % 8,
        (at // 8 if (at // 8 + at % 8) % 2 else at % 8),
    ),
)


@dataclass
class Plane:
    """One component."""

    id: int
    h: int
    v: int
    table: int
    """The quantisation table that it names."""
    quantisation: NDArray[np.int64]
    """[64] in zigzag order."""
    blocks: NDArray[np.int64]
    """[rows, columns, 64] quantised coefficients in zigzag order; in `Picture` without padding blocks."""
    rows: int = 0
    columns: int = 0


@dataclass
class Picture:
    """What a JPEG holds before any arithmetic on it."""

    width: int
    height: int
    precision: int
    planes: list[Plane]


def assert_same(one: bytes, other: bytes) -> None:
    """Asserts that two JPEGs have the same size, components, quantisation and coefficients."""
    assert_pictures_same(decode(one), decode(other))


def assert_pictures_same(one: Picture, other: Picture) -> None:
    """Asserts that two pictures are the same, but for the numbers of tables."""
    assert (one.width, one.height, one.precision) == (other.width, other.height, other.precision)
    assert len(one.planes) == len(other.planes)
    for a, b in zip(one.planes, other.planes, strict=True):
        assert a.id == b.id
        # A single component is sampled at every pixel, whatever its factors say (A.2.2).
        assert (a.h, a.v) == (b.h, b.v) or len(one.planes) == 1
        np.testing.assert_array_equal(a.quantisation, b.quantisation)
        np.testing.assert_array_equal(a.blocks, b.blocks)


def over(a: int, b: int) -> int:
    """a / b, rounded up."""
    return -(-a // b)


def decode(data: bytes) -> Picture:
    """The picture of a JPEG that must be free of damage."""
    return _Decoder(data).picture()


class _Bits:
    """The bits of one restart interval, stuffed bytes undone."""

    def __init__(self, data: bytes) -> None:
        plain = data.replace(b"\xff\x00", b"\xff")
        self.size = 8 * len(plain)
        self.data = plain + b"\xff" * 4
        self.at = 0

    def peek(self) -> int:
        """The next 16 bits; ones after the end."""
        byte = self.at >> 3
        window = int.from_bytes(self.data[byte : byte + 3], "big")
        return (window >> (8 - (self.at & 7))) & 0xFFFF

    def take(self, count: int) -> int:
        if not count:
            return 0
        assert count <= 16
        value = self.peek() >> (16 - count)
        self.at += count
        assert self.at <= self.size, "the data ends inside a code"
        return value

    def symbol(self, table: list[tuple[int, int]]) -> int:
        length, symbol = table[self.peek()]
        assert length, "no such Huffman code"
        self.take(length)
        return symbol

    def signed(self, count: int) -> int:
        """A value of `count` bits and its sign (EXTEND, figure F.12)."""
        value = self.take(count)
        return value if not count or value >> (count - 1) else value - (1 << count) + 1


@dataclass
class _Decoder:
    data: bytes
    quantisation: dict[int, NDArray[np.int64]] = field(default_factory=dict)
    tables: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    planes: list[Plane] = field(default_factory=list)
    restart: int = 0
    progressive: bool = False
    width: int = 0
    height: int = 0
    precision: int = 0

    def picture(self) -> Picture:
        at = 2
        assert self.data[:2] == b"\xff\xd8"
        while True:
            assert self.data[at] == 0xFF, at
            while self.data[at + 1] == 0xFF:
                at += 1
            marker = self.data[at + 1]
            if marker == 0xD9:
                break
            length = int.from_bytes(self.data[at + 2 : at + 4], "big")
            body = self.data[at + 4 : at + 2 + length]
            at += 2 + length
            if marker == 0xDB:
                self.quantisation_tables(body)
            elif marker == 0xC4:
                self.huffman_tables(body)
            elif marker == 0xDD:
                self.restart = int.from_bytes(body, "big")
            elif marker in (0xC0, 0xC1, 0xC2):
                self.progressive = marker == 0xC2
                self.frame(body)
            elif marker == 0xDA:
                at = self.scan(body, at)
            else:
                assert marker >= 0xE0 or marker == 0xDC, hex(marker)
        for plane in self.planes:
            plane.blocks = plane.blocks[: plane.rows, : plane.columns]
        return Picture(self.width, self.height, self.precision, self.planes)

    # --- Tables and the frame ---

    def quantisation_tables(self, body: bytes) -> None:
        while body:
            wide, number = body[0] >> 4, body[0] & 15
            size = 64 * (1 + wide)
            kind = ">u2" if wide else "u1"
            self.quantisation[number] = np.frombuffer(body[1 : 1 + size], kind).astype(np.int64)
            body = body[1 + size :]

    def huffman_tables(self, body: bytes) -> None:
        """Each table as a list of 2^16 (length, symbol), by the next 16 bits."""
        while body:
            number, counts = body[0], body[1:17]
            symbols = body[17 : 17 + sum(counts)]
            body = body[17 + sum(counts) :]
            table: list[tuple[int, int]] = []
            place = iter(symbols)
            for length, count in enumerate(counts, 1):
                for _ in range(count):
                    table += [(length, next(place))] * (1 << (16 - length))
            self.tables[number] = table + [(0, 0)] * (0x10000 - len(table))

    def frame(self, body: bytes) -> None:
        self.precision = body[0]
        self.height, self.width = (int.from_bytes(body[at : at + 2], "big") for at in (1, 3))
        if not self.height:  # DNL gives it: the only one in these files
            at = self.data.index(b"\xff\xdc\x00\x04")
            self.height = int.from_bytes(self.data[at + 4 : at + 6], "big")
        parts = [body[at : at + 3] for at in range(6, len(body), 3)]
        h_most = max(part[1] >> 4 for part in parts)
        v_most = max(part[1] & 15 for part in parts)
        self.mcu_columns = over(self.width, 8 * h_most)
        self.mcu_rows = over(self.height, 8 * v_most)
        for name, sampling, table in parts:
            h, v = sampling >> 4, sampling & 15
            blocks = np.zeros((self.mcu_rows * v, self.mcu_columns * h, 64), np.int64)
            plane = Plane(name, h, v, table, np.zeros(64, np.int64), blocks)
            plane.columns = over(over(self.width * h, h_most), 8)
            plane.rows = over(over(self.height * v, v_most), 8)
            self.planes.append(plane)

    # --- Scans ---

    def scan(self, body: bytes, at: int) -> int:
        """Decodes the scan with header `body` whose data starts at `at`; where that ends."""
        count = body[0]
        by_id = {plane.id: plane for plane in self.planes}
        parts = []
        for index in range(count):
            plane = by_id[body[1 + 2 * index]]
            tables = body[2 + 2 * index]
            parts.append((plane, tables >> 4, 0x10 | tables & 15))
            plane.quantisation = self.quantisation[plane.table]
        ss, se, ah, al = body[-3], body[-2], body[-1] >> 4, body[-1] & 15
        intervals, end = self.intervals(at)
        units = self.units([part[0] for part in parts])
        step = self.restart or max(len(units), 1)
        assert len(intervals) == -(-len(units) // step)
        for number, interval in enumerate(intervals):
            bits = _Bits(interval)
            last = dict.fromkeys(by_id, 0)
            self.run = 0  # blocks still to come of a run of end-of-bands
            for unit in units[number * step : (number + 1) * step]:
                for part, row, column in unit:
                    plane, dc, ac = parts[part]
                    block = plane.blocks[row, column]
                    if not self.progressive:
                        last[plane.id] = self.sequential(bits, block, last[plane.id], dc, ac)
                    elif ss == 0 and ah == 0:
                        last[plane.id] += bits.signed(bits.symbol(self.tables[dc]))
                        block[0] = last[plane.id] * (1 << al)
                    elif ss == 0:
                        block[0] |= bits.take(1) << al
                    elif ah == 0:
                        self.first(bits, block, ac, ss, se, al)
                    else:
                        self.refine(bits, block, ac, ss, se, al)
            assert self.run == 0, "a run of end-of-bands past the interval"
            assert bits.size - bits.at < 8, "data left over"
        return end

    def intervals(self, at: int) -> tuple[list[bytes], int]:
        """(the data between restart markers, where it ends)."""
        found = []
        start = at
        number = 0
        while True:
            at = self.data.index(b"\xff", at)
            code = self.data[at + 1]
            if code == 0:
                at += 2
                continue
            assert code != 0xFF or self.data[at + 2] != 0, "these files have no fill inside data"
            found.append(self.data[start:at])
            while self.data[at + 1] == 0xFF:
                at += 1
            if not 0xD0 <= self.data[at + 1] <= 0xD7:
                return found, at
            assert self.data[at + 1] - 0xD0 == number % 8, "restart markers out of order"
            number += 1
            at += 2
            start = at

    def units(self, planes: list[Plane]) -> list[list[tuple[int, int, int]]]:
        """For each MCU of a scan, (index of the plane, row, column) of its blocks."""
        if len(planes) == 1:
            plane = planes[0]
            return [
                [(0, row, column)] for row in range(plane.rows) for column in range(plane.columns)
            ]
        return [
            [
                (index, row * plane.v + y, column * plane.h + x)
                for index, plane in enumerate(planes)
                for y in range(plane.v)
                for x in range(plane.h)
            ]
            for row in range(self.mcu_rows)
            for column in range(self.mcu_columns)
        ]

    def sequential(self, bits: _Bits, block: NDArray[np.int64], last: int, dc: int, ac: int) -> int:
        """One block of a sequential scan (F.2.2); its DC coefficient."""
        last += bits.signed(bits.symbol(self.tables[dc]))
        block[0] = last
        k = 1
        while k < 64:
            run, size = divmod(bits.symbol(self.tables[ac]), 16)
            if not size:
                if run != 15:
                    break
                k += 16
                continue
            k += run
            block[k] = bits.signed(size)
            k += 1
        return last

    def first(
        self, bits: _Bits, block: NDArray[np.int64], ac: int, ss: int, se: int, al: int
    ) -> None:
        """One block of the first scan of a band (G.1.2.2)."""
        if self.run:
            self.run -= 1
            return
        k = ss
        while k <= se:
            run, size = divmod(bits.symbol(self.tables[ac]), 16)
            if size:
                k += run
                block[k] = bits.signed(size) * (1 << al)
                k += 1
            elif run == 15:
                k += 16
            else:
                self.run = (1 << run) + bits.take(run) - 1
                break

    def refine(
        self, bits: _Bits, block: NDArray[np.int64], ac: int, ss: int, se: int, al: int
    ) -> None:
        """One block of a later scan of a band (G.1.2.3)."""
        k = ss
        while k <= se and not self.run:
            run, size = divmod(bits.symbol(self.tables[ac]), 16)
            new = 0
            if size:
                assert size == 1
                new = (1 if bits.take(1) else -1) << al
            elif run != 15:
                self.run = (1 << run) + bits.take(run)
                break
            while k <= se:  # passes `run` coefficients that are still zero, and corrects the others
                if block[k]:
                    self.correct(bits, block, k, al)
                elif run:
                    run -= 1
                else:
                    block[k] = new
                    k += 1
                    break
                k += 1
        if self.run:
            for rest in range(k, se + 1):
                if block[rest]:
                    self.correct(bits, block, rest, al)
            self.run -= 1

    def correct(self, bits: _Bits, block: NDArray[np.int64], k: int, al: int) -> None:
        if bits.take(1):
            block[k] += (1 if block[k] > 0 else -1) << al
