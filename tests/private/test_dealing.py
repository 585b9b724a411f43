"""Preprocessing items against a dealer of plain integers, and what of them each party gets."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from plain_dealer import combined, derived, integers, product
from scipy import stats

from holdfast.private.mpc import dealing
from holdfast.private.mpc.dealing import deal, expand

SEEDS = [bytes([n]) * 16 for n in range(1, 6)]
TREE = {"thresholds": 2, "bits": 0, "select": False, "tree": True}
ITEMS: list[tuple[str, dict[str, Any]]] = [
    ("square", {"shape": (7,)}),
    ("square", {"shape": ()}),
    ("square", {"shape": (0, 3)}),
    ("truncation", {"shape": (40,), "bits": 1}),
    ("truncation", {"shape": (4, 10), "bits": 16}),
    ("truncation", {"shape": (40,), "bits": 62}),
    ("bit", {"shape": (3, 5)}),
    ("selection", {"bits": (5, 1), "values": (5, 3)}),
    ("selection", {"bits": (2, 1, 3), "values": (4, 3)}),
    ("winner", {"shape": (9,), "width": 1}),
    ("winner", {"shape": (2, 3), "width": 2}),
    ("unit", {"shape": (6,), "shift": 0, "bits": 3}),
    ("unit", {"shape": (2, 3), "shift": 11, "bits": 6}),
    ("comparison", {"shape": (6,), **TREE}),
    ("comparison", {"shape": (), **TREE}),
    ("comparison", {"shape": (3, 2), **TREE, "thresholds": 1, "bits": 16, "select": True}),
    (
        "product",
        {"op": "mul", "left": (3, 1), "right": (4,), "options": (), "fixed": None},
    ),
]


def parts_of(kind: str, parameters: dict[str, Any], seeds: list[bytes]) -> list[dict[str, Any]]:
    corrections = deal(kind, parameters, seeds, "label")
    assert len(corrections) == dealing.correction_bytes(kind, parameters)
    last = len(seeds) - 1
    return [
        expand(kind, parameters, seed, "label", corrections if rank == last else None)
        for rank, seed in enumerate(seeds)
    ]


@pytest.mark.parametrize("parties", [1, 2, 5])
@pytest.mark.parametrize(("kind", "parameters"), ITEMS)
def test_an_item_is_what_plain_integers_make_of_its_masks(
    kind: str, parameters: dict[str, Any], parties: int
) -> None:
    parts = parts_of(kind, parameters, SEEDS[:parties])
    item = {name: combined([part[name] for part in parts]) for name in parts[0]}
    wanted = derived(kind, parameters, item)
    assert wanted.keys() < item.keys()
    for name, value in wanted.items():
        assert (item[name].dtype, item[name].shape) == (value.dtype, value.shape), name
        assert np.array_equal(item[name], value), name


MATRICES = [
    ("matmul", (2, 3), (3, 4), lambda a, b: a @ b),
    ("matmul", (5, 2, 3), (3, 1), lambda a, b: a @ b),
    ("linear", (4, 3), (2, 3), lambda a, b: a @ b.T),
]


@pytest.mark.parametrize(("op", "left", "right", "plain"), MATRICES)
def test_triples_of_matrices_hold_modulo_2_64(op: str, left: Any, right: Any, plain: Any) -> None:
    parameters = {"op": op, "left": left, "right": right, "options": (), "fixed": None}
    parts = parts_of("product", parameters, SEEDS[:3])
    item = {name: combined([part[name] for part in parts]) for name in parts[0]}
    assert np.array_equal(item["c"], product(item, plain)["c"])


def test_a_borrowed_mask_is_that_of_the_earlier_item() -> None:
    shape = (3, 2)
    masks = [expand("mask", {"shape": shape}, seed, "first", None)["b"] for seed in SEEDS[:2]]
    parameters = {"op": "matmul", "left": (4, 3), "right": shape, "options": (), "fixed": "first"}
    parts = parts_of("product", parameters, SEEDS[:2])
    for part, mask in zip(parts, masks, strict=True):
        assert np.array_equal(part["b"], mask)
    item = {name: combined([part[name] for part in parts]) for name in parts[0]}
    assert np.array_equal(item["c"], product(item, lambda a, b: a @ b)["c"])
    assert deal("mask", {"shape": shape}, SEEDS[:2], "first") == b""


@pytest.mark.parametrize(
    "other",
    [
        {"label": "label 2"},
        {"seed": SEEDS[1]},
    ],
)
@pytest.mark.parametrize(("kind", "parameters"), [ITEMS[0], ITEMS[4], ITEMS[13], ITEMS[16]])
def test_another_label_or_seed_gives_another_item(
    kind: str, parameters: dict[str, Any], other: dict[str, Any]
) -> None:
    usual = {"seed": SEEDS[0], "label": "label", "corrections": None}
    one, again = (expand(kind, parameters, **usual) for _ in range(2))
    changed = expand(kind, parameters, **usual | other)
    for name, value in one.items():
        assert np.array_equal(value, again[name])
        assert not np.array_equal(value, changed[name])


def test_lists_of_json_ask_for_the_item_that_tuples_ask_for() -> None:
    for kind, parameters in ITEMS:
        sent = json.loads(json.dumps(parameters))
        assert deal(kind, parameters, SEEDS[:2], "x") == deal(kind, sent, SEEDS[:2], "x")
        assert dealing.described(kind, parameters) == dealing.described(kind, sent)


def test_items_without_a_share_are_zeros_of_the_same_form() -> None:
    for kind, parameters in ITEMS:
        full = expand(kind, parameters, SEEDS[0], "x", None)
        zeros = dealing.blank(kind, parameters)
        for name, value in full.items():
            assert (zeros[name].dtype, zeros[name].shape) == (value.dtype, value.shape)
            assert not zeros[name].any()


@pytest.mark.parametrize(
    ("kind", "parameters", "secret"),
    [
        ("truncation", {"shape": (3000,), "bits": 20}, "top"),
        ("comparison", {"shape": (3000,), **TREE, "select": True}, "bit"),
        ("winner", {"shape": (750,), "width": 1}, "m"),
        ("selection", {"bits": (3000,), "values": (3000,)}, "bit"),
    ],
)
def test_no_part_of_an_item_tells_its_secret(
    kind: str, parameters: dict[str, Any], secret: str
) -> None:
    """Lowest bits of every field of each party against the secret's: missed once in a billion."""
    parts = parts_of(kind, parameters, SEEDS[:3])
    hidden = combined([part[secret] for part in parts]).ravel() & 1
    assert 0.4 < hidden.mean() < 0.6
    for part in parts:
        for value in part.values():
            column = (value.reshape(len(hidden), -1)[:, 0] & value.dtype.type(1)).astype(int)
            table = np.histogram2d(hidden, column, bins=2)[0]
            assert stats.chi2_contingency(table).pvalue > 1e-9


def test_digits_are_those_of_pythons_hexadecimals() -> None:
    numbers = np.array([0, 1, 2**64 - 1, 0x0123456789ABCDEF], dtype=np.uint64)
    for number, digits in zip(numbers.tolist(), dealing.hex_digits(numbers), strict=True):
        assert "".join(f"{each:x}" for each in digits[::-1]) == f"{number:016x}"


def test_keys_of_function_sharing_are_the_same_for_all_and_need_their_comparison() -> None:
    shape = (4,)
    form = {"shape": shape, "thresholds": 1, "bits": 0, "select": False, "tree": False}
    parts = parts_of("comparison", form, SEEDS[:2])
    r = integers(combined([part["r"] for part in parts]))
    assert combined([part["flip"] for part in parts]).tolist() == [
        int(each >> 62 & 1) for each in r
    ]
    keys = {"shape": shape, "of": "label"}
    corrections = deal("comparison_keys", keys, SEEDS[:2], "keys")
    halves = [expand("comparison_keys", keys, seed, "keys", corrections) for seed in SEEDS[:2]]
    for name in ("states", "bits", "leaf"):
        assert np.array_equal(halves[0][name], halves[1][name])
    assert not np.array_equal(halves[0]["root"], halves[1]["root"])
    for half, part in zip(halves, parts, strict=True):
        assert torch.equal(torch.from_numpy(half["r"]), torch.from_numpy(part["r"]))
