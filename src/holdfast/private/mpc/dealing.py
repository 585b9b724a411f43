"""Preprocessing items: what a dealer makes before the parties' inputs exist.

An item has *masks*, which are uniform, and *derived* values, which are computed from the masks.
Everybody has a seed. A party's share of a mask is a stream of its seed, so masks cost nothing to
distribute; so is its share of a derived value, except at the last party, which gets the *correction*
that makes the shares add up. Signed fields are shared by sums modulo 2^64, unsigned fields by XOR.

Three functions work on every kind: `deal` (the dealer), `expand` (each party), `correction_bytes`
(forecasts). All are pure: an item is determined by its kind, its parameters, the seeds, and its label,
which no other item of a run has.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, reduce
from typing import Any

import numpy as np
import torch

from holdfast.private.mpc import function_sharing
from holdfast.private.mpc.randomness import SEED_BYTES, stream
from holdfast.private.mpc.ring import bilinear, product_shape
from holdfast.private.mpc.transport import LARGEST

Shape = Sequence[int]
Item = dict[str, np.ndarray]
RING, BYTE, HALF, WORD, LONG = (
    np.dtype(name) for name in (np.int64, np.uint8, np.uint16, np.uint32, np.uint64)
)
LOW_62 = np.uint64(2**62 - 1)
NOT_AN_ITEM = (KeyError, TypeError, ValueError, IndexError, RuntimeError)
"""What kinds and parameters raise that no item has."""
COMMON = frozenset({"comparison_keys"})
"""Kinds whose corrections all parties get, as they are: correction words of function secret sharing."""


@dataclass(frozen=True)
class Field:
    """The shape and type of one part of an item."""

    shape: Shape
    type: np.dtype[Any] = RING

    def __post_init__(self) -> None:
        if any(not isinstance(size, int) or size < 0 for size in self.shape) or self.size > LARGEST:
            raise ValueError(self.shape)

    @property
    def size(self) -> int:
        """Bytes."""
        return math.prod(self.shape) * self.type.itemsize


@dataclass(frozen=True)
class Recipe:
    """How an item of one kind and some parameters is made."""

    masks: dict[str, Field]
    derived: dict[str, Field]
    derive: Callable[[Item], Item] = lambda masks: {}
    """From the masks to the derived values."""
    borrowed: dict[str, tuple[str, Field]] = field(default_factory=dict)
    """Masks that an earlier item made as its first: its label."""


def described(kind: str, parameters: Mapping[str, Any]) -> str:
    """Kind and parameters as one text; lists (of JSON) and tuples are the same."""
    return json.dumps([kind, parameters])


@lru_cache(maxsize=4096)
def _recipe(text: str) -> Recipe:
    kind, parameters = json.loads(text)
    return KINDS[kind](**parameters)


def expand(
    kind: str,
    parameters: Mapping[str, Any],
    seed: bytes,
    label: str,
    corrections: bytes | bytearray | None,
) -> Item:
    """A party's part of an item.

    Args:
        kind: one of `KINDS`.
        parameters: what the operation asks for; JSON values.
        seed: this party's seed.
        label: of the item; no other one of this run may have it.
        corrections: what `deal` returned, at the last party, and at all for kinds in `COMMON`; else None.
    """
    recipe = _recipe(described(kind, parameters))
    item = _cut(seed, label, recipe.masks | ({} if corrections is not None else recipe.derived))
    if corrections is not None:
        item |= _views(np.frombuffer(bytearray(corrections), dtype=np.uint8), recipe.derived)
    return item | _borrowed(recipe, seed)


def deal(kind: str, parameters: Mapping[str, Any], seeds: list[bytes], label: str) -> bytes:
    """The corrections of an item for the last party.

    Args:
        kind: one of `KINDS`.
        parameters: as for `expand`.
        seeds: one per party.
        label: of the item.
    """
    recipe = _recipe(described(kind, parameters))
    if not recipe.derived:
        return b""
    shared = {} if kind in COMMON else recipe.derived
    parts = [
        _cut(seed, label, recipe.masks | (shared if seed is not seeds[-1] else {}))
        | _borrowed(recipe, seed)
        for seed in seeds
    ]
    if kind in COMMON:
        r = _combine([part["r"] for part in parts])
        keys = function_sharing.generate(r.view(LONG) & LOW_62, [part["root"] for part in parts])
        return b"".join(np.ascontiguousarray(keys[name]).tobytes() for name in recipe.derived)
    values = recipe.derive({name: _combine([part[name] for part in parts]) for name in parts[-1]})
    corrections = []
    for name, each in recipe.derived.items():
        value = np.ascontiguousarray(values[name], dtype=each.type).reshape(each.shape)
        for part in parts[:-1]:
            value = value - part[name] if each.type == RING else value ^ part[name]
        corrections.append(np.ascontiguousarray(value).tobytes())
    return b"".join(corrections)


def correction_bytes(kind: str, parameters: Mapping[str, Any]) -> int:
    """The length of what `deal` returns.

    Raises:
        NOT_AN_ITEM: if there is no such item.
    """
    return sum(each.size for each in _recipe(described(kind, parameters)).derived.values())


def blank(kind: str, parameters: Mapping[str, Any]) -> Item:
    """An item of zeros: the part of a party that holds no share."""
    recipe = _recipe(described(kind, parameters))
    fields = recipe.masks | recipe.derived
    return {name: np.zeros(each.shape, each.type) for name, each in fields.items()}


def _combine(shares: list[np.ndarray]) -> np.ndarray:
    add = np.add if shares[0].dtype == RING else np.bitwise_xor
    return np.asarray(reduce(add, shares))


def _cut(seed: bytes, label: str, fields: Mapping[str, Field]) -> Item:
    """The fields of an item from one stream, whose key follows from seed and label."""
    key = hashlib.blake2b(
        label.encode(), key=seed, digest_size=SEED_BYTES, person=b"holdfast-item"
    ).digest()
    size = sum(-(-field.size // 8) * 8 for field in fields.values())
    return _views(stream(key, 0, size), fields, align=8)


def _views(data: np.ndarray, fields: Mapping[str, Field], align: int = 1) -> Item:
    item, start = {}, 0
    for name, each in fields.items():
        part = data[start : start + each.size]
        if not part.flags.aligned or part.ctypes.data % each.type.itemsize:
            part = part.copy()
        item[name] = part.view(each.type).reshape(each.shape)
        start += -(-each.size // align) * align
    return item


def _borrowed(recipe: Recipe, seed: bytes) -> Item:
    """This party's shares of the masks of earlier items."""
    borrowed = recipe.borrowed.items()
    return {name: _cut(seed, label, {name: each})[name] for name, (label, each) in borrowed}


# --- Products ------------------------------------------------------------------------------------


def _product(op: str, left: Shape, right: Shape, options: Any, fixed: str | None) -> Recipe:
    def derive(masks: Item) -> Item:
        operands = (torch.from_numpy(masks[name]) for name in ("a", "b"))
        return {"c": bilinear(op, options)(*operands).numpy()}

    derived = {"c": Field(product_shape(op, left, right, options))}
    mask = Field(right)
    if fixed is None:
        return Recipe({"a": Field(left), "b": mask}, derived, derive)
    return Recipe({"a": Field(left)}, derived, derive, {"b": (fixed, mask)})


def _square(shape: Shape) -> Recipe:
    return Recipe(
        {"a": Field(shape)}, {"c": Field(shape)}, lambda masks: {"c": masks["a"] * masks["a"]}
    )


# --- Truncation and comparison -------------------------------------------------------------------
# A value X below 2^63 is opened as c = X + r. The dealer knows r, so everything that depends on r alone
# is a derived value: its quotient, its top bits, and the truth tables of "c is less than r".


def _split(r: np.ndarray, bits: int) -> tuple[np.ndarray, np.ndarray]:
    """(r mod 2^63) >> bits, and bit 63 of r."""
    unsigned = r.view(LONG)
    high = (unsigned & np.uint64(2**63 - 1)) >> np.uint64(bits)
    return high.view(RING), (unsigned >> np.uint64(63)).view(RING)


def _truncation(shape: Shape, bits: int) -> Recipe:
    if bits not in range(64):
        raise ValueError(f"{bits} bits")

    def derive(masks: Item) -> Item:
        high, top = _split(masks["r"], bits)
        return {"high": high, "top": top}

    return Recipe({"r": Field(shape)}, {"high": Field(shape), "top": Field(shape)}, derive)


@lru_cache(maxsize=1)
def _prefix_tables() -> np.ndarray:
    """Truth tables of "less" over 4 digits, for each mask of its 6 input bits: [64] words of 64 bits.

    Input bits from the lowest: less of digits 0 to 2, equal of digits 1 to 3 (digit 3 most significant;
    less of digit 3 is added by XOR, outside the table).
    """
    v = np.arange(64)
    l0, l1, l2, e1, e2, e3 = ((v >> bit) & 1 for bit in range(6))
    less = (e3 & l2) ^ (e3 & e2 & l1) ^ (e3 & e2 & e1 & l0)
    masked = less[v[:, None] ^ v[None, :]].astype(LONG)  # [mask, masked input]
    return np.asarray((masked << v.astype(LONG)).sum(axis=1, dtype=LONG))


def _comparison(shape: Shape, thresholds: int, bits: int, select: bool, tree: bool) -> Recipe:
    many = (*shape, thresholds)
    masks, derived = {"r": Field(shape)}, {"flip": Field(shape, BYTE)}
    if tree:
        masks |= {"m2": Field((*many, 4), BYTE), "m3": Field(many, BYTE)}
        derived = {
            "digits": Field((*shape, 16), WORD),
            "less2": Field((*many, 4), LONG),
            "equal2": Field((*many, 4), HALF),
            "less3": Field(many, LONG),
        }
    if bits or select:
        derived |= {"high": Field(shape), "top": Field(shape)}
    if select:
        masks |= {"rho": Field(shape, BYTE)}
        derived |= {name: Field(shape) for name in ("bit", "bit_high", "bit_top")}

    def derive(masks: Item) -> Item:
        r = masks["r"].view(LONG)
        flip = ((r >> np.uint64(62)) & np.uint64(1)).astype(BYTE)
        values = _tree_tables(masks, r, flip) if tree else {"flip": flip}
        if bits or select:
            values["high"], values["top"] = _split(masks["r"], bits)
        if select:
            bit = _bits_of(masks)
            values |= {"bit": bit, "bit_high": bit * values["high"], "bit_top": bit * values["top"]}
        return values

    return Recipe(masks, derived, derive)


def _comparison_keys(shape: Shape, of: str) -> Recipe:
    derived = {
        "states": Field((function_sharing.LEVELS, *shape, 2), LONG),
        # Value, control bit of the left child, of the right.
        "bits": Field((function_sharing.LEVELS, *shape), BYTE),
        "leaf": Field(shape, BYTE),
    }
    masks = {"root": Field((*shape, 2), LONG)}
    return Recipe(masks, derived, borrowed={"r": (of, Field(shape))})


def _tree_tables(masks: Item, r: np.ndarray, flip: np.ndarray) -> Item:
    digits = hex_digits(r & LOW_62).astype(WORD)
    one = np.uint32(1)
    prefix = _prefix_tables()
    return {
        # Bit v says v < digit, bit 16 + v says v = digit.
        "digits": ((one << digits) - one) | (one << (digits + np.uint32(16))),
        "less2": prefix[masks["m2"] & 63],
        "equal2": np.uint16(1) << (((masks["m2"] >> 3) & 15) ^ 15).astype(HALF),
        "less3": prefix[masks["m3"] & 63] ^ (flip * np.uint64(2**64 - 1))[..., None],
    }


def hex_digits(values: np.ndarray) -> np.ndarray:
    """The 16 hexadecimal digits of unsigned integers, lowest first: [..., 16] bytes."""
    pairs = np.ascontiguousarray(values.astype("<u8")).view(BYTE).reshape(*values.shape, 8)
    return np.stack([pairs & 15, pairs >> 4], axis=-1).reshape(*values.shape, 16)


# --- Bits, choices, tables -----------------------------------------------------------------------


def _bits_of(masks: Item) -> np.ndarray:
    return (masks["rho"] & 1).astype(RING)


def _bit(shape: Shape) -> Recipe:
    masks = {"rho": Field(shape, BYTE)}
    return Recipe(masks, {"bit": Field(shape)}, lambda masks: {"bit": _bits_of(masks)})


def _selection(bits: Shape, values: Shape) -> Recipe:
    def derive(masks: Item) -> Item:
        bit = _bits_of(masks)
        return {"bit": bit, "bit_a": bit * masks["a"]}

    both = Field(tuple(np.broadcast_shapes(tuple(bits), tuple(values))))
    masks = {"rho": Field(bits, BYTE), "a": Field(values)}
    return Recipe(masks, {"bit": Field(bits), "bit_a": both}, derive)


# Comparisons of 4 values: 0>=1, 0>=2, 0>=3, 1>=2, 1>=3, 2>=3. Value i wins if these three say so.
WINNER_INPUTS = np.array([[0, 1, 2], [0, 3, 4], [1, 3, 5], [2, 4, 5]])
_WINNER_BITS = np.array([0b111, 0b110, 0b100, 0b000])


def winner_index(inputs: np.ndarray) -> np.ndarray:
    """For each of 4 values, its three comparisons as a number: bits ``[..., 6] -> [..., 4]``."""
    return np.asarray((inputs[..., WINNER_INPUTS] * np.array([1, 2, 4])).sum(axis=-1))


def _winner(shape: Shape, width: int) -> Recipe:
    def derive(masks: Item) -> Item:
        mask = winner_index((masks["m"][..., None] >> np.arange(6)) & 1)  # [..., 4]
        wins = np.arange(8) ^ mask[..., None] == _WINNER_BITS[:, None]  # [..., 4, masked input]
        wins = wins.astype(RING)
        return {"wins": wins, "wins_a": wins[..., None] * masks["a"][..., None, :]}

    masks = {"m": Field(shape, BYTE), "a": Field((*shape, 4, width))}
    derived = {"wins": Field((*shape, 4, 8)), "wins_a": Field((*shape, 4, 8, width))}
    return Recipe(masks, derived, derive)


def _unit_vectors(shape: Shape, shift: int, bits: int) -> Recipe:
    def derive(masks: Item) -> Item:
        places = (masks["r"] >> shift) & ((1 << bits) - 1)
        return {"unit": (places[..., None] == np.arange(1 << bits)).astype(RING)}

    return Recipe({"r": Field(shape)}, {"unit": Field((*shape, 1 << bits))}, derive)


KINDS: dict[str, Callable[..., Recipe]] = {
    "mask": lambda shape: Recipe({"b": Field(shape)}, {}),
    "product": _product,
    "square": _square,
    "truncation": _truncation,
    "comparison": _comparison,
    "comparison_keys": _comparison_keys,
    "bit": _bit,
    "selection": _selection,
    "winner": _winner,
    "unit": _unit_vectors,
}
"""Item kinds: Beaver triples, squares, truncations, comparisons, bits, choices, lookups."""
