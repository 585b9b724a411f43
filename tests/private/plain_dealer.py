"""A dealer of plain integers, whose masks a test chooses, and protocols in lock step without threads.

Everything here is Python's integers and the definitions in the papers; nothing comes from `dealing`.
"""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

MODULUS = 2**64
Item = Mapping[str, np.ndarray]


def signed(value: int) -> int:
    """The number between -2^63 and 2^63 that equals this one modulo 2^64."""
    return (int(value) + 2**63) % MODULUS - 2**63


def ring(values: Any) -> np.ndarray:
    """Integers of any size as elements of the ring."""
    array = np.array(values, dtype=object)
    return np.array([signed(each) for each in array.ravel()], dtype=np.int64).reshape(array.shape)


def integers(array: Any) -> np.ndarray:
    """An array of the ring as Python's integers from 0 to 2^64."""
    flat = [int(each) % MODULUS for each in np.asarray(array).ravel().tolist()]
    return np.array(flat, dtype=object).reshape(np.shape(array))


def shares(value: np.ndarray, parties: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Random shares: signed arrays add up modulo 2^64, unsigned ones by XOR."""
    kind = value.dtype
    data = [rng.bytes(value.nbytes) for _ in range(parties - 1)]
    parts = [np.frombuffer(bytearray(each), kind).reshape(value.shape) for each in data]
    last = value.copy()
    for part in parts:
        last = last - part if kind == np.int64 else last ^ part
    return [*parts, last]


def combined(parts: Sequence[np.ndarray]) -> np.ndarray:
    """What shares add up to."""
    add = np.add if parts[0].dtype == np.int64 else np.bitwise_xor
    return np.asarray(functools.reduce(add, parts))


# --- What the dealer of a protocol must make of its masks ------------------------------------------


def bit_of(rho: np.ndarray) -> np.ndarray:
    return (rho & 1).astype(np.int64)


def split(r: np.ndarray, bits: int) -> dict[str, np.ndarray]:
    """(r mod 2^63) / 2^bits rounded down, and bit 63."""
    whole = integers(r)
    high, top = (
        [part(each) for each in whole.ravel()]
        for part in (lambda each: each % 2**63 >> bits, lambda each: each >> 63)
    )
    return {"high": ring(high).reshape(r.shape), "top": ring(top).reshape(r.shape)}


def parity_less(word: int) -> int:
    """Is a number of 4 digits less, by bits "less" of digits 0 to 2 and "equal" of digits 1 to 3?

    Less in digit 3 is not among the bits: it counts by itself. A polynomial over two elements, since tables
    are also made for words that no digits give.
    """
    l0, l1, l2, e1, e2, e3 = (word >> n & 1 for n in range(6))
    return (e3 * l2 + e3 * e2 * l1 + e3 * e2 * e1 * l0) % 2


def truth_table(function: Callable[[int], int], inputs: int, mask: int) -> int:
    """The word whose bit `w` is the function of `w` xor mask."""
    return sum(function(word ^ mask) << word for word in range(1 << inputs))


DIGITS = np.array(
    [sum((v < digit) << v | (v == digit) << (16 + v) for v in range(16)) for digit in range(16)],
    np.uint32,
)
"""For each digit: bit v says v < digit, bit 16 + v says v = digit."""
LESS = np.array([truth_table(parity_less, 6, mask) for mask in range(64)], np.uint64)
EQUAL = np.array([truth_table(lambda w: int(w == 15), 4, mask) for mask in range(16)], np.uint16)
"""By the mask of their inputs."""


def comparison(masks: Item, *, bits: int = 0, select: bool = False) -> dict[str, np.ndarray]:
    """Truth tables for the digits of r, and for the two steps that combine them."""
    r, m2, m3 = np.asarray(integers(masks["r"]), dtype=object), masks["m2"], masks["m3"]
    places = [np.asarray(r % 2**62 // 16**n % 16, dtype=int) for n in range(16)]
    digits = DIGITS[np.stack(places, axis=-1)]
    flips = np.asarray(r // 2**62 % 2, dtype=int)[..., None]
    less2, equal2 = LESS[m2 & 63], EQUAL[m2 >> 3 & 15]
    less3 = np.where(flips == 1, ~LESS[m3 & 63], LESS[m3 & 63])
    item = {"digits": digits, "less2": less2, "equal2": equal2, "less3": less3}
    if bits or select:
        item |= split(masks["r"], bits)
    if select:
        bit = bit_of(masks["rho"])
        item |= {"bit": bit, "bit_high": bit * item["high"], "bit_top": bit * item["top"]}
    return item


ORDERS = list(itertools.combinations(range(4), 2))
"""The six comparisons of four values: is the first at least the second?"""


def winner_tables(mask: int) -> list[list[int]]:
    """For each of four values, and each word of its three comparisons under a mask, whether it wins."""
    tables = []
    for value in range(4):
        own = [n for n, pair in enumerate(ORDERS) if value in pair]
        winning = [int(ORDERS[n][0] == value) for n in own]
        hidden = [mask >> n & 1 for n in own]
        words = [[word >> n & 1 ^ hidden[n] for n in range(3)] for word in range(8)]
        tables.append([int(word == winning) for word in words])
    return tables


WINNERS = np.array([winner_tables(mask) for mask in range(64)], np.int64)


def winner(masks: Item) -> dict[str, np.ndarray]:
    """For each value, a truth table of its three comparisons: 1 where they say that it wins."""
    m, a = masks["m"], masks["a"]
    table = WINNERS[m & 63]
    return {"wins": table, "wins_a": table[..., None] * a[..., None, :]}


def unit(masks: Item, *, shift: int, bits: int) -> dict[str, np.ndarray]:
    """The unit vector of the mask's place."""
    places = integers(masks["r"]) // 2**shift % 2**bits
    rows = [[int(n == place) for n in range(2**bits)] for place in places.ravel()]
    return {"unit": np.array(rows, np.int64).reshape(*places.shape, 2**bits)}


def product(masks: Item, bilinear: Callable[..., np.ndarray]) -> dict[str, np.ndarray]:
    """Beaver's triple."""
    return {"c": ring(bilinear(integers(masks["a"]), integers(masks["b"])))}


def derived(kind: str, parameters: Mapping[str, Any], masks: Item) -> Mapping[str, np.ndarray]:
    """What follows from the masks of an item."""
    if kind == "truncation":
        return split(masks["r"], parameters["bits"])
    if kind == "comparison":
        return comparison(masks, bits=parameters["bits"], select=parameters["select"])
    if kind == "square":
        return {"c": ring(integers(masks["a"]) ** 2)}
    if kind == "bit":
        return {"bit": bit_of(masks["rho"])}
    if kind == "selection":
        return {"bit": bit_of(masks["rho"]), "bit_a": bit_of(masks["rho"]) * masks["a"]}
    if kind == "winner":
        return winner(masks)
    if kind == "unit":
        return unit(masks, shift=parameters["shift"], bits=parameters["bits"])
    assert (kind, parameters["op"]) == ("product", "mul")
    return product(masks, lambda a, b: a * b)


def random_masks(kind: str, parameters: Mapping[str, Any], rng: random.Random) -> Item:
    """Uniform masks of an item."""

    def drawn(shape: Sequence[int], kind: Any = np.int64) -> np.ndarray:
        count = int(np.prod(shape, dtype=int)) * np.dtype(kind).itemsize
        return np.frombuffer(bytearray(rng.randbytes(count)), kind).reshape(tuple(shape))

    shape = tuple(parameters.get("shape", ()))
    if kind == "comparison":
        many = (*shape, parameters["thresholds"])
        masks = {"r": drawn(shape), "m2": drawn((*many, 4), np.uint8), "m3": drawn(many, np.uint8)}
        return masks | ({"rho": drawn(shape, np.uint8)} if parameters["select"] else {})
    if kind == "product":
        return {"a": drawn(parameters["left"]), "b": drawn(parameters["right"])}
    if kind == "selection":
        return {"rho": drawn(parameters["bits"], np.uint8), "a": drawn(parameters["values"])}
    if kind == "winner":
        a = drawn((*shape, 4, parameters["width"]))
        return {"m": drawn(shape, np.uint8), "a": a}
    if kind == "bit":
        return {"rho": drawn(shape, np.uint8)}
    return {"a" if kind == "square" else "r": drawn(shape)}


# --- Parties in lock step --------------------------------------------------------------------------


class Player:
    """What a protocol needs of a party."""

    group = None
    comparison = "tree"

    def __init__(self, rank: int, table: Table) -> None:
        self.rank, self.lead, self.parties, self._table = rank, rank == 0, table.parties, table
        self._count = itertools.count()

    def take(self, kind: str, **parameters: Any) -> dict[str, np.ndarray]:
        """This party's shares of the next item."""
        return self._table.item(next(self._count), kind, parameters)[self.rank]

    @property
    def supply(self) -> Any:
        """Where the labels of items are."""
        raise AssertionError("no protocol here borrows a mask")


class Table:
    """Parties, and the dealer of their items.

    Args:
        parties: their number.
        masks: of some kinds of items, by name; all others are uniform.
        seed: of what is random.
    """

    def __init__(self, parties: int, masks: Mapping[str, Item] | None = None, seed: int = 0):
        self.parties, self._masks = parties, masks or {}
        self._uniform, self._rng = random.Random(seed), np.random.default_rng(seed)
        self._items: list[list[dict[str, np.ndarray]]] = []
        self.kinds: list[str] = []
        self.views: list[list[np.ndarray]] = []
        """What the parties sent, by round."""

    def item(self, number: int, kind: str, parameters: dict[str, Any]) -> list[dict[str, Any]]:
        """Shares of an item, by rank: the parties take the same ones in the same order."""
        if number == len(self._items):
            masks = random_masks(kind, parameters, self._uniform)
            masks = {**masks, **self._masks.get(kind, {})}
            values = {**masks, **derived(kind, parameters, masks)}
            parts = {name: shares(each, self.parties, self._rng) for name, each in values.items()}
            self._items.append(
                [{name: part[rank] for name, part in parts.items()} for rank in range(self.parties)]
            )
            self.kinds.append(kind)
        assert self.kinds[number] == kind
        return self._items[number]

    def shared(self, values: Any) -> list[np.ndarray]:
        """Random shares of integers, or of bits (uint8)."""
        bits = isinstance(values, np.ndarray) and values.dtype == np.uint8
        return shares(values if bits else ring(values), self.parties, self._rng)

    def run(self, protocol: Callable[..., Any], *inputs: Iterable[Any]) -> list[Any]:
        """Run a protocol at all parties; the results by rank.

        Args:
            protocol: from a party and its share of each input.
            inputs: shares by rank.
        """
        players = [Player(rank, self) for rank in range(self.parties)]
        waiting = [protocol(*each) for each in zip(players, *inputs, strict=True)]
        results: list[Any] = [None] * self.parties
        answers: list[np.ndarray] | None = None
        while True:
            sent = []
            for rank, each in enumerate(waiting):
                try:
                    payload = next(each) if answers is None else each.send(answers)
                    sent.append(np.array(payload))
                except StopIteration as end:
                    results[rank] = end.value
            if not sent:
                return results
            assert len(sent) == self.parties, "some parties ended before the others"
            self.views.append(sent)
            answers = sent
