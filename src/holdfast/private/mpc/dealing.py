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
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import Any

import numpy as np
import torch

from holdfast.private.mpc import function_sharing
from holdfast.private.mpc.randomness import SEED_BYTES, stream
from holdfast.private.mpc.ring import bilinear, product_shape

Shape = tuple[int, ...]
Item = dict[str, np.ndarray]
RING, BYTE, HALF, WORD, LONG = (
    np.dtype(name) for name in (np.int64, np.uint8, np.uint16, np.uint32, np.uint64)
)
LOW_62 = np.uint64(2**62 - 1)
COMMON = frozenset({"comparison_keys"})
"""Kinds whose corrections all parties get, as they are: correction words of function secret sharing."""


@dataclass(frozen=True)
class Field:
    """The shape and type of one part of an item; `parties` names who gets it (None: everybody)."""

    shape: Shape
    type: np.dtype[Any] = RING

    @property
    def size(self) -> int:
        """Bytes."""
        return math.prod(self.shape) * self.type.itemsize


@dataclass(frozen=True)
class Kind:
    """How items of one kind are made: all three take the item's parameters."""

    masks: Callable[..., dict[str, Field]]
    derived: Callable[..., dict[str, Field]]
    derive: Callable[..., Item]
    """From the masks (a dict, the first argument) to the derived values."""


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
    masks, derived = _fields(kind, _key(parameters))
    item = _cut(seed, label, masks | ({} if corrections is not None else derived))
    if corrections is not None:
        item |= _views(np.frombuffer(bytearray(corrections), dtype=np.uint8), derived)
    return item | _borrowed(kind, parameters, seed)


def deal(kind: str, parameters: Mapping[str, Any], seeds: list[bytes], label: str) -> bytes:
    """The corrections of an item for the last party.

    Args:
        kind: one of `KINDS`.
        parameters: as for `expand`.
        seeds: one per party.
        label: of the item.
    """
    masks, derived = _fields(kind, _key(parameters))
    if not derived:
        return b""
    shared = {} if kind in COMMON else derived
    parts = [_cut(seed, label, masks | shared) for seed in seeds[:-1]]
    parts.append(_cut(seeds[-1], label, masks))
    for part, seed in zip(parts, seeds, strict=True):
        part.update(_borrowed(kind, parameters, seed))
    if kind in COMMON:
        r = _combine(
            [_mask_of(seed, parameters["of"], tuple(parameters["shape"])) for seed in seeds]
        )
        keys = function_sharing.generate(r.view(LONG) & LOW_62, [part["root"] for part in parts])
        return b"".join(np.ascontiguousarray(keys[name]).tobytes() for name in derived)
    combined = {name: _combine([part[name] for part in parts]) for name in parts[-1]}
    values = KINDS[kind].derive(combined, **_arguments(parameters))
    corrections = []
    for name, field in derived.items():
        value = np.ascontiguousarray(values[name], dtype=field.type).reshape(field.shape)
        for part in parts[:-1]:
            value = value - part[name] if field.type == RING else value ^ part[name]
        corrections.append(np.ascontiguousarray(value).tobytes())
    return b"".join(corrections)


def correction_bytes(kind: str, parameters: Mapping[str, Any]) -> int:
    """The length of what `deal` returns."""
    return sum(field.size for field in _fields(kind, _key(parameters))[1].values())


def blank(kind: str, parameters: Mapping[str, Any]) -> Item:
    """An item of zeros: the part of a party that holds no share."""
    masks, derived = _fields(kind, _key(parameters))
    return {name: np.zeros(field.shape, field.type) for name, field in (masks | derived).items()}


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
    for name, field in fields.items():
        part = data[start : start + field.size]
        if not part.flags.aligned or part.ctypes.data % field.type.itemsize:
            part = part.copy()
        item[name] = part.view(field.type).reshape(field.shape)
        start += -(-field.size // align) * align
    return item


def _borrowed(kind: str, parameters: Mapping[str, Any], seed: bytes) -> Item:
    """The mask of a fixed operand, which an earlier item made."""
    mask = parameters.get("fixed")
    if kind != "product" or mask is None:
        return {}
    return {"b": _mask_of(seed, mask, tuple(parameters["right"]))}


def _mask_of(seed: bytes, label: str, shape: Shape) -> np.ndarray:
    """This party's share of the first mask of an earlier item."""
    return _cut(seed, label, {"mask": Field(shape)})["mask"]


def _freeze(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return tuple(_freeze(part) for part in value)
    return value


def _key(parameters: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Parameters as a hashable key; lists (of JSON) and tuples are the same."""
    return tuple(
        (name, _freeze(parameters[name])) for name in sorted(parameters) if name != "fixed"
    ) + ((("fixed", True),) if parameters.get("fixed") is not None else ())


def _arguments(parameters: Mapping[str, Any]) -> dict[str, Any]:
    return dict(_key(parameters))


@lru_cache(maxsize=4096)
def _fields(
    kind: str, key: tuple[tuple[str, Any], ...]
) -> tuple[dict[str, Field], dict[str, Field]]:
    arguments = dict(key)
    return KINDS[kind].masks(**arguments), KINDS[kind].derived(**arguments)


# --- Products ------------------------------------------------------------------------------------


def _product_masks(
    op: str, left: Shape, right: Shape, options: Any, fixed: bool = False
) -> dict[str, Field]:
    return {"a": Field(left)} | ({} if fixed else {"b": Field(right)})


def _product_derived(
    op: str, left: Shape, right: Shape, options: Any, fixed: bool = False
) -> dict[str, Field]:
    return {"c": Field(product_shape(op, left, right, options))}


def _product(
    masks: Item, op: str, left: Shape, right: Shape, options: Any, fixed: bool = False
) -> Item:
    product = bilinear(op, options)(torch.from_numpy(masks["a"]), torch.from_numpy(masks["b"]))
    return {"c": product.numpy()}


# --- Truncation and comparison -------------------------------------------------------------------
# A value X below 2^63 is opened as c = X + r. The dealer knows r, so everything that depends on r alone
# is a derived value: its quotient, its top bits, and the truth tables of "c is less than r".


def _split(r: np.ndarray, bits: int) -> tuple[np.ndarray, np.ndarray]:
    """(r mod 2^63) >> bits, and bit 63 of r."""
    unsigned = r.view(LONG)
    high = (unsigned & np.uint64(2**63 - 1)) >> np.uint64(bits)
    return high.view(RING), (unsigned >> np.uint64(63)).view(RING)


def _truncation(masks: Item, shape: Shape, bits: int) -> Item:
    high, top = _split(masks["r"], bits)
    return {"high": high, "top": top}


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


def _comparison_masks(
    shape: Shape, thresholds: int, bits: int, select: bool, tree: bool
) -> dict[str, Field]:
    masks = {"r": Field(shape)}
    if tree:
        many = (*shape, thresholds)
        masks |= {"m2": Field((*many, 4), BYTE), "m3": Field(many, BYTE)}
    return masks | ({"rho": Field(shape, BYTE)} if select else {})


def _comparison_derived(
    shape: Shape, thresholds: int, bits: int, select: bool, tree: bool
) -> dict[str, Field]:
    many = (*shape, thresholds)
    fields = {"flip": Field(shape, BYTE)}
    if tree:
        fields = {
            "digits": Field((*shape, 16), WORD),
            "less2": Field((*many, 4), LONG),
            "equal2": Field((*many, 4), HALF),
            "less3": Field(many, LONG),
        }
    if bits or select:
        fields |= {"high": Field(shape), "top": Field(shape)}
    if select:
        fields |= {"bit": Field(shape), "bit_high": Field(shape), "bit_top": Field(shape)}
    return fields


def _comparison(
    masks: Item, shape: Shape, thresholds: int, bits: int, select: bool, tree: bool
) -> Item:
    r = masks["r"].view(LONG)
    flip = ((r >> np.uint64(62)) & np.uint64(1)).astype(BYTE)
    derived = _tree_tables(masks, r, flip) if tree else {"flip": flip}
    if bits or select:
        derived["high"], derived["top"] = _split(masks["r"], bits)
    if select:
        bit = _bits_of(masks)
        derived |= {"bit": bit, "bit_high": bit * derived["high"], "bit_top": bit * derived["top"]}
    return derived


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


def _selection(masks: Item, bits: Shape, values: Shape) -> Item:
    bit = _bits_of(masks)
    return {"bit": bit, "bit_a": bit * masks["a"]}


# Comparisons of 4 values: 0>=1, 0>=2, 0>=3, 1>=2, 1>=3, 2>=3. Value i wins if these three say so.
WINNER_INPUTS = np.array([[0, 1, 2], [0, 3, 4], [1, 3, 5], [2, 4, 5]])
_WINNER_BITS = np.array([0b111, 0b110, 0b100, 0b000])


def winner_index(inputs: np.ndarray) -> np.ndarray:
    """For each of 4 values, its three comparisons as a number: bits ``[..., 6] -> [..., 4]``."""
    return np.asarray((inputs[..., WINNER_INPUTS] * np.array([1, 2, 4])).sum(axis=-1))


def _winner(masks: Item, shape: Shape, width: int) -> Item:
    mask = winner_index((masks["m"][..., None] >> np.arange(6)) & 1)  # [..., 4]
    wins = np.arange(8) ^ mask[..., None] == _WINNER_BITS[:, None]  # [..., 4, masked input]
    wins = wins.astype(RING)
    return {"wins": wins, "wins_a": wins[..., None] * masks["a"][..., None, :]}


def _unit_vectors(masks: Item, shape: Shape, shift: int, bits: int) -> Item:
    places = (masks["r"] >> shift) & ((1 << bits) - 1)
    return {"unit": (places[..., None] == np.arange(1 << bits)).astype(RING)}


KINDS: dict[str, Kind] = {
    "mask": Kind(lambda shape: {"b": Field(shape)}, lambda shape: {}, lambda masks, shape: {}),
    "product": Kind(_product_masks, _product_derived, _product),
    "square": Kind(
        lambda shape: {"a": Field(shape)},
        lambda shape: {"c": Field(shape)},
        lambda masks, shape: {"c": masks["a"] * masks["a"]},
    ),
    "truncation": Kind(
        lambda shape, bits: {"r": Field(shape)},
        lambda shape, bits: {"high": Field(shape), "top": Field(shape)},
        _truncation,
    ),
    "comparison": Kind(_comparison_masks, _comparison_derived, _comparison),
    "comparison_keys": Kind(
        lambda shape, of: {"root": Field((*shape, 2), LONG)},
        lambda shape, of: function_sharing.fields(shape),
        lambda masks, shape, of: {},
    ),
    "bit": Kind(
        lambda shape: {"rho": Field(shape, BYTE)},
        lambda shape: {"bit": Field(shape)},
        lambda masks, shape: {"bit": _bits_of(masks)},
    ),
    "selection": Kind(
        lambda bits, values: {"rho": Field(bits, BYTE), "a": Field(values)},
        lambda bits, values: {
            "bit": Field(bits),
            "bit_a": Field(tuple(np.broadcast_shapes(bits, values))),
        },
        _selection,
    ),
    "winner": Kind(
        lambda shape, width: {"m": Field(shape, BYTE), "a": Field((*shape, 4, width))},
        lambda shape, width: {
            "wins": Field((*shape, 4, 8)),
            "wins_a": Field((*shape, 4, 8, width)),
        },
        _winner,
    ),
    "unit": Kind(
        lambda shape, shift, bits: {"r": Field(shape)},
        lambda shape, shift, bits: {"unit": Field((*shape, 1 << bits))},
        _unit_vectors,
    ),
}
"""Item kinds: Beaver triples, squares, truncations, comparisons, bits, choices, lookups."""
