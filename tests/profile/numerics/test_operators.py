"""Comparison of implementations, invariance, order of summation, first divergence."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from holdfast.errors import InputError
from holdfast.profile.numerics import (
    compare,
    invariance,
    summation_order,
)
from holdfast.profile.numerics.operators import SUITES, suite
from holdfast.report import render


def matrices(generator: torch.Generator, length: int = 96) -> list[torch.Tensor]:
    return [
        torch.randn(8, length, generator=generator),
        torch.randn(length, 8, generator=generator),
    ]


def by(rows: list[dict], **wanted: object) -> dict:
    (row,) = [row for row in rows if all(row[key] == value for key, value in wanted.items())]
    return row


def test_deviation_is_that_from_float64_on_the_same_rounded_inputs() -> None:
    found = compare({"matmul": torch.matmul}, matrices, dtypes=["bf16"], seeds=1)
    a, b = (x.bfloat16() for x in matrices(torch.Generator().manual_seed(0)))
    exact = a.double() @ b.double()
    expected = ((a @ b).double() - exact).abs().max().item()
    row = by(found.rows, tensor="output")
    assert row["max_abs"] == pytest.approx(expected, rel=1e-12)
    assert (row["of_reference"], row["verdict"]) == (1, "ok")
    # A result that is only rounded once deviates by half an ulp at most.
    half = torch.finfo(torch.bfloat16).eps / 2 * exact.abs().max().log2().floor().exp2().item()
    assert row["max_abs"] <= half
    assert {row["tensor"] for row in found.rows} == {"output", "gradient 1", "gradient 2"}


def test_gradients_are_those_of_autograd() -> None:
    found = compare(
        {"exact": torch.matmul, "wrong": lambda a, b: a.detach() @ b + 0 * (a @ b)},
        matrices,
        dtypes=["fp32"],
        seeds=2,
    )
    assert by(found.rows, implementation="wrong", tensor="output")["verdict"] == "ok"
    assert by(found.rows, implementation="wrong", tensor="gradient 1")["verdict"] == "reference"
    assert by(found.rows, implementation="exact", tensor="gradient 1")["verdict"] == "ok"
    assert found.exit_code == 1


@pytest.mark.parametrize(
    ("operator", "verdict"),
    [
        (lambda a, b: (a.bfloat16() @ b.bfloat16()).to(a), "reference"),  # precision lost inside
        (lambda a, b: a @ b * 1.001, "reference"),
        (lambda a, b: a @ b / 0, "non-finite"),
        (lambda a, b: (a.double() @ b.double()).to(a), "ok"),
    ],
)
def test_verdicts(operator: object, verdict: str) -> None:
    found = compare(
        {"matmul": torch.matmul, "other": operator},
        matrices,
        dtypes=["fp32"],
        seeds=3,
        gradients=False,
    )
    assert by(found.rows, implementation="other")["verdict"] == verdict
    assert found.exit_code == (verdict != "ok")
    assert render(found.page())


def test_twice_the_error_of_the_reference_fails() -> None:
    given = SUITES["matmul"]
    found = compare(given.implementations, given.inputs, dtypes=["bf16"], seeds=2, gradients=False)
    row = by(found.rows, implementation="16 parts")
    assert row["verdict"] == "reference"
    assert 2 < row["of_reference"] < 8


def test_overflow_is_placed() -> None:
    found = compare(
        {"sum": lambda x: x.sum(-1)},
        lambda generator: [torch.full((2, 4), 30_000.0)],
        dtypes=["fp16"],
        seeds=1,
    )
    row = by(found.rows, implementation="sum", tensor="output")
    assert (row["non_finite"], row["first_non_finite"], row["verdict"]) == (2, (0,), "non-finite")
    assert found.unknowns()


def test_a_modules_parameters_are_rounded_for_golden_too() -> None:
    torch.manual_seed(0)
    found = compare(
        {"layer": nn.Sequential(nn.Linear(8, 4), nn.Tanh())},
        lambda generator, rows: [torch.randn(rows, 8, generator=generator)],
        dtypes=["bf16"],
        grid=[{"rows": 2}, {"rows": 5}],
        seeds=2,
    )
    assert {row["tensor"] for row in found.rows} == {
        "output", "gradient 1", "gradient 0.weight", "gradient 0.bias",
    }  # fmt: skip
    assert all(row["verdict"] == "ok" for row in found.rows)
    assert [row["point"] for row in found.rows if row["tensor"] == "output"] == [
        {"rows": 2},
        {"rows": 5},
    ]


def test_correct_operators_of_every_kind_pass() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0)
    model = nn.Sequential(nn.Embedding(20, 16), layer, nn.Linear(16, 4))

    def tokens(generator: torch.Generator) -> list[torch.Tensor]:
        return [torch.randint(0, 20, (2, 5), generator=generator)]

    given = [
        ({"model": model}, tokens),
        ({"gelu": nn.functional.gelu, "tanh": nn.GELU("tanh")}, matrices),
    ]
    found = compare(*given[0], dtypes=["bf16", "fp32"], seeds=2)
    assert {row["verdict"] for row in found.rows} == {"ok"}
    found = compare(given[1][0], lambda g: matrices(g)[:1], dtypes=["fp32"], seeds=2)
    verdicts = {(row["implementation"], row["tensor"]): row["verdict"] for row in found.rows}
    assert verdicts["gelu", "output"] == verdicts["gelu", "gradient 1"] == "ok"
    assert verdicts["tanh", "output"] == "reference"  # an approximation is no rounding


def test_gradients_that_one_implementation_lacks_are_named() -> None:
    found = compare(
        {"one": lambda a, b: a * 2, "both": lambda a, b: a * 2 + 0 * b},
        lambda generator: [torch.ones(3), torch.ones(3)],
        dtypes=["fp32"],
        seeds=1,
    )
    assert (found.unmatched, found.exit_code) == (["gradient 2"], 0)
    assert {row["tensor"] for row in found.rows} == {"output", "gradient 1"}


def test_nan_where_golden_is_nan_is_right() -> None:
    def masked(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x.masked_fill(x == x[0], float("-inf")), -1)

    def draw(generator: torch.Generator) -> list[torch.Tensor]:
        return [torch.randn(3, 4, generator=generator)]

    found = compare({"masked": masked}, draw, dtypes=["bf16"], seeds=1, gradients=False)
    row = by(found.rows, tensor="output")
    assert (row["verdict"], row["non_finite"], row["golden_non_finite"]) == ("ok", 0, 4)
    assert found.unknowns()


@pytest.mark.parametrize(
    ("implementations", "options", "code"),
    [
        ({}, {}, "no-data"),
        ({"a": torch.matmul}, {"dtypes": ["fp8"]}, "unknown-name"),
        ({"a": torch.matmul}, {"reference": "b"}, "unknown-name"),
        ({"a": torch.matmul, "b": lambda a, b: (a @ b)[0]}, {}, "shape-mismatch"),
        ({"a": lambda a, b: 1}, {}, "unsupported"),
        ({"a": lambda a, b: nn.functional.dropout(a)}, {}, "unsupported"),
    ],
)
def test_what_cannot_be_compared(implementations: dict, options: dict, code: str) -> None:
    with pytest.raises(InputError) as caught:
        compare(implementations, matrices, **options)
    assert caught.value.code == code


@pytest.mark.parametrize("shape", [(0, 16), (3, 0)])
def test_results_without_elements_are_not_compared(shape: tuple[int, int]) -> None:
    with pytest.raises(InputError) as caught:
        compare({"a": torch.sin, "b": torch.cos}, lambda _: [torch.empty(shape)], seeds=1)
    assert caught.value.code == "no-data"


def test_factories_give_operators(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine_numerics.py").write_text(
        "import torch\n"
        "def inputs(generator):\n    return [torch.ones(2)]\n"
        "def make():\n    return {'implementations': {'a': torch.exp}, 'inputs': inputs}\n"
        "def bad():\n    return {'implementations': {}, 'input': 1}\n"
        "def none():\n    return 1\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert list(suite("mine_numerics:make").implementations) == ["a"]
    for name, code in (
        *(("mine_numerics:bad", "invalid-value"), ("mine_numerics:none", "invalid-value")),
        *(("attentions", "unknown-name"), ("mine_numerics:gone", "not-found")),
    ):
        with pytest.raises(InputError) as caught:
            suite(name)
        assert caught.value.code == code


def test_invariance_tells_what_changes_the_bits() -> None:
    def by_size(x: torch.Tensor) -> torch.Tensor:
        """Adds in another order for batches of two and one."""
        order = reversed(range(x.shape[1])) if len(x) <= 2 else range(x.shape[1])
        total = torch.zeros(len(x))
        for n in order:
            total = total + x[:, n]
        return total

    calls = []

    def unstable(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return x.sum(1) + (1e-3 if len(calls) == 9 else 0)

    x = torch.randn(20, 50, generator=torch.Generator().manual_seed(0))
    found = invariance(
        {"by_size": by_size, "unstable": unstable}, [x], sizes=[1, 2, 3, 50], runs=10
    )
    equal = {(r["implementation"], r["condition"], r["setting"]): r["equal"] for r in found.rows}
    assert equal["by_size", "batch", 1] is equal["by_size", "batch", 2] is False
    assert equal["by_size", "batch", 3] is equal["by_size", "run", 10] is True
    assert ("by_size", "batch", 50) not in equal
    row = by(found.rows, implementation="by_size", condition="batch", setting=1)
    assert 0 < row["different"] <= row["elements"] == 8
    assert row["max_ulp"] >= 0.5
    assert "by_size" in render(found.page())


def test_zeros_of_other_sign_are_other_bits_and_nan_is_nan() -> None:
    calls = []

    def sign(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return torch.tensor([float("nan"), -0.0 if len(calls) > 1 else 0.0])

    row = invariance({"f": sign}, [torch.ones(2)], sizes=[], runs=1).rows[0]
    assert (row["different"], row["elements"], row["first_different"]) == (1, 2, [1])


def test_tiles_of_other_dimensions() -> None:
    a, b = matrices(torch.Generator().manual_seed(0))
    row = invariance(
        {"f": torch.matmul}, [a, b], dimensions={"columns": ({1: 1}, 1)}, sizes=[3], runs=1
    ).rows[0]
    assert (row["condition"], row["elements"]) == (
        "columns",
        6 * 8 * 3,
    )  # 6 distinct places of 3 in 8
    with pytest.raises(InputError) as caught:
        invariance({"f": lambda x: x.sum(0)}, [torch.ones(4, 9)], sizes=[2])
    assert caught.value.code == "shape-mismatch"


def chain(order: list[int]) -> object:
    def add(x: torch.Tensor) -> torch.Tensor:
        total = x[order[0]]
        for n in order[1:]:
            total = total + x[n]
        return total

    return add


def pairwise(x: torch.Tensor) -> torch.Tensor:
    if len(x) == 1:
        return x[0]
    half = len(x) // 2
    return pairwise(x[:half]) + pairwise(x[half:])


def interleaved(x: torch.Tensor) -> torch.Tensor:
    lanes = [chain(list(range(len(x[k::4]))))(x[k::4]) for k in range(4)]
    return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3])


ORDERS = {
    "sequential": (chain(list(range(7))), 7, [[[[[[0, 1], 2], 3], 4], 5], 6], "sequential"),
    "reverse": (chain([4, 3, 2, 1, 0]), 5, [0, [1, [2, [3, 4]]]], "other"),
    "shuffled": (chain([2, 0, 3, 1]), 4, [[[0, 2], 3], 1], "other"),
    "pairwise": (pairwise, 8, [[[0, 1], [2, 3]], [[4, 5], [6, 7]]], "pairwise"),
    "interleaved": (interleaved, 8, [[[0, 4], [1, 5]], [[2, 6], [3, 7]]], "pairwise"),
    "two formats": (
        lambda x: (x[:3].double().sum().float() + x[3]) + x[4:6].sum(), 6,
        [[[[0, 1], 2], 3], [4, 5]], "other",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ORDERS)
def test_known_orders_of_summation_are_found(name: str) -> None:
    function, n, tree, kind = ORDERS[name]
    found = summation_order(function, n)
    assert found.kind == kind
    assert canonical(found.tree) == canonical(tree)
    assert found.accumulated_in == (None if name == "two formats" else "fp32")


def canonical(tree: object) -> str:
    """Additions commute: children in the order of their smallest leaf."""
    if not isinstance(tree, list):
        return str(tree)
    parts = sorted((canonical(part) for part in tree), key=lambda text: min(map(int, leaves(text))))
    return f"({' '.join(parts)})"


def leaves(text: str) -> list[str]:
    return text.replace("(", " ").replace(")", " ").split()


def test_a_tree_that_does_not_give_the_bits_is_not_confirmed() -> None:
    assert summation_order(lambda x: x.sum() * 0, 4).accumulated_in is None


@pytest.mark.parametrize("dtype", ["fp64", "fp32", "bf16", "fp16"])
def test_torch_and_numpy_sums_follow_the_tree_that_is_found(dtype: str) -> None:
    assert summation_order(torch.sum, 48, dtype).accumulated_in
    if dtype in ("fp64", "fp32"):
        found = summation_order(lambda x: np.sum(x.numpy()), 100, dtype)
        assert (found.kind, found.accumulated_in) == ("other", dtype)


@pytest.mark.parametrize(
    ("function", "n", "code"),
    [
        (lambda x: math.fsum(x.tolist()), 8, "unsupported"),
        (lambda x: torch.tensor(float("nan")), 4, "unsupported"),
        (lambda x: x.max(), 4, "unsupported"),
        (torch.sum, 1, "out-of-range"),
        (lambda x: x, 4, "shape-mismatch"),
    ],
)
def test_what_is_no_sum_of_a_tree_is_refused(function: object, n: int, code: str) -> None:
    with pytest.raises(InputError) as caught:
        summation_order(function, n)
    assert caught.value.code == code


def test_complex_results_are_compared_whole() -> None:
    def inputs(generator: torch.Generator) -> list[torch.Tensor]:
        return [torch.randn(16, generator=generator)]

    both = {"fft": torch.fft.fft, "mirrored": lambda x: torch.fft.fft(x).conj()}
    found = compare(both, inputs, dtypes=["fp32"], seeds=2)
    verdicts = {(row["implementation"], row["verdict"] == "ok") for row in found.rows}
    assert verdicts >= {("fft", True), ("mirrored", False)}
    with pytest.raises(InputError) as caught:
        compare(both, lambda g: [torch.randn(4, dtype=torch.complex64, generator=g)], seeds=1)
    assert caught.value.code == "unsupported"


@pytest.mark.parametrize(
    ("rows", "sizes", "operator", "code"),
    [
        (32, [64, 100], lambda x: x - x.mean(0), "no-data"),
        (1, [1, 2], lambda x: x - x.mean(0), "no-data"),
        (32, [1], lambda x: x.sum(), "shape-mismatch"),
    ],
)
def test_no_verdict_on_a_batch_that_was_not_compared(
    rows: int, sizes: list[int], operator: Callable[[torch.Tensor], torch.Tensor], code: str
) -> None:
    with pytest.raises(InputError) as error:
        invariance({"it": operator}, [torch.ones(rows, 4)], sizes=sizes)
    assert (error.value.code, error.value.place) == (code, "dimension batch")
