"""FLOPs and bytes of operators against closed forms written out here."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from holdfast.errors import InputError
from holdfast.profile.ops.formulas import CLASSES, RULES, pairs, register_flop_formula
from holdfast.profile.ops.profiling import profile

X = torch.empty(2, 6, 10, 12, device="meta")


class Call(nn.Module):
    def __init__(self, function: Any, **parameters: tuple[int, ...]) -> None:
        super().__init__()
        self.function = function
        for name, shape in parameters.items():
            self.register_parameter(name, nn.Parameter(torch.empty(shape)))

    def forward(self, *args: Tensor) -> Any:
        return self.function(*args, *self.parameters())


def found(function: Any, *args: Tensor, device: str = "meta", **named: Any) -> Any:
    return profile(Call(function), *args, device=device, machine="h100-sxm", runs=1, **named)


# (function, shapes, class, 2 x multiply-adds, bytes of float32)
CASES = {
    "mm": (torch.mm, [(3, 5), (5, 7)], "linear", 2 * 3 * 5 * 7, 4 * (15 + 35 + 21)),
    "addmm": (torch.addmm, [(7,), (3, 5), (5, 7)], "linear", 210, 4 * (7 + 15 + 35 + 21)),
    "bmm": (torch.bmm, [(4, 3, 5), (4, 5, 7)], "matmul", 840, 4 * 4 * (15 + 35 + 21)),
    "matmul broadcast": (
        torch.matmul,
        [(2, 4, 3, 5), (5, 7)],
        "linear",
        1680,
        4 * (120 + 35 + 168),
    ),
    "einsum": (
        lambda a, b: torch.einsum("bij,bjk->bik", a, b),
        [(4, 3, 5), (4, 5, 7)],
        "matmul",
        840,
        4 * 4 * (15 + 35 + 21),
    ),
    "linear": (F.linear, [(2, 9, 5), (7, 5), (7,)], "linear", 1260, 4 * (90 + 35 + 7 + 126)),
    "conv2d": (
        lambda x, w: F.conv2d(x, w, stride=2, padding=1, groups=2),
        [(2, 6, 11, 13), (8, 3, 3, 3)],
        "conv2d",
        2 * (2 * 8 * 6 * 7) * (3 * 3 * 3),
        4 * (2 * 6 * 11 * 13 + 8 * 3 * 9 + 2 * 8 * 6 * 7),
    ),
    "conv1d": (
        F.conv1d,
        [(2, 3, 20), (4, 3, 5)],
        "conv1d",
        2 * (2 * 4 * 16) * 15,
        4 * (120 + 60 + 128),
    ),
    "conv3d": (
        F.conv3d,
        [(1, 2, 4, 5, 6), (3, 2, 2, 2, 2)],
        "conv3d",
        2 * (3 * 3 * 4 * 5) * 16,
        4 * (240 + 48 + 180),
    ),
    "conv_transpose2d": (
        lambda x, w: F.conv_transpose2d(x, w, stride=2),
        [(2, 6, 5, 5), (6, 4, 3, 3)],
        "conv2d",
        2 * (2 * 6 * 25) * (4 * 9),
        4 * (300 + 216 + 2 * 4 * 11 * 11),
    ),
    "dot": (torch.dot, [(9,), (9,)], "matmul", 18, 4 * 19),
    "baddbmm": (
        torch.baddbmm,
        [(4, 3, 7), (4, 3, 5), (4, 5, 7)],
        "matmul",
        840,
        4 * 4 * (21 + 15 + 35 + 21),
    ),
}


@pytest.mark.parametrize("device", ["meta", "cpu"])
@pytest.mark.parametrize("case", CASES)
def test_products_are_exact(case: str, device: str) -> None:
    function, shapes, op_class, flops, moved = CASES[case]
    made = found(function, *(torch.empty(shape, device="meta") for shape in shapes), device=device)
    assert made.flops == flops
    assert isinstance(made.flops, int)
    assert made.by_class()[op_class]["flops"] == flops
    assert made.bytes == moved
    assert not made.unknown_ops


# (function, vector operations, bytes) of X: 1,440 elements
VECTOR = {
    "relu": (F.relu, 1440, 2 * 5760),
    "silu": (F.silu, 5 * 1440, 2 * 5760),
    "gelu": (F.gelu, 5 * 1440, 2 * 5760),
    "gelu tanh": (lambda x: F.gelu(x, approximate="tanh"), 9 * 1440, 2 * 5760),
    "softmax": (lambda x: x.softmax(-1), 5 * 1440, 2 * 5760),
    "group norm": (lambda x: F.group_norm(x, 3), 8 * 1440, 2 * 5760 + 2 * 2 * 3 * 4),
    "add of itself reads once": (lambda x: x + x, 1440, 2 * 5760),
    "in place": (lambda x: x.clone().add_(1), 1440, 4 * 5760),
    "mean": (lambda x: x.mean((2, 3)), 1440, 5760 + 48),
    "view, transpose, slice": (lambda x: x.view(12, -1).t()[:5].unsqueeze(0), 0, 0),
    "expanded input is read once": (lambda x: x[:, :1].expand(2, 6, 10, 12) + 1, 1440, 960 + 5760),
    "contiguous copy": (lambda x: x.permute(0, 2, 3, 1).contiguous(), 0, 2 * 5760),
    "cat": (lambda x: torch.cat([x, x[:1]]), 0, 5760 + 2880 + 8640 - 0),
    "integers": (lambda x: torch.arange(6, device=x.device) + 1, 0, 48 + 96),
    "zeros are written": (lambda x: torch.zeros(10, device=x.device), 0, 40),
    "allocation": (lambda x: torch.empty(10, device=x.device), 0, 0),
    "max pool": (lambda x: F.max_pool2d(x, 2), 4 * 360, 5760 + 1440 + 2880),
}


@pytest.mark.parametrize("case", VECTOR)
def test_vector_operations_and_traffic(case: str) -> None:
    function, operations, moved = VECTOR[case]
    made = found(function, X)
    assert made.flops == 0
    assert made.vector_flops == operations
    assert made.bytes == moved
    assert not made.unknown_ops


def test_gathers_move_what_they_return() -> None:
    table, ids = (
        torch.empty(50_000, 16, device="meta"),
        torch.zeros(2, 7, dtype=torch.int64, device="meta"),
    )
    made = found(F.embedding, ids, table)
    assert made.by_class()["embedding"]["bytes"] == 2 * 14 * 16 * 4 + 14 * 8


IDS = torch.zeros(5, 9, dtype=torch.int64)


@pytest.mark.parametrize("device", ["meta", "cpu"])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_a_bag_reads_every_row_that_it_sums(mode: str, device: str) -> None:
    for frozen in (False, True):
        bags = nn.EmbeddingBag(70, 12, mode=mode)
        bags.weight.requires_grad_(not frozen)
        for args, others in (
            ((IDS,), 2 * 5 * 8),  # the offsets are made, and read
            ((IDS.flatten(), torch.tensor([0, 3, 4, 20, 44])), 5 * 8),
        ):
            made = profile(bags, *args, device=device, machine="h100-sxm", runs=1)
            assert made.bytes == 45 * 12 * 4 + 45 * 8 + 5 * 12 * 4 + others
            assert made.vector_flops == 45 * 12
            assert not made.unknown_ops


def test_weights_of_the_rows_of_a_bag_are_read() -> None:
    def bags(ids: Tensor, table: Tensor, weights: Tensor) -> Tensor:
        return F.embedding_bag(ids, table, mode="sum", per_sample_weights=weights)

    made = found(bags, IDS, torch.ones(70, 12, dtype=torch.half), torch.ones(5, 9).half())
    assert made.bytes == 45 * 12 * 2 + 45 * 8 + 5 * 12 * 2 + 2 * 5 * 8 + 45 * 2


def test_training_of_a_bag_is_known() -> None:
    made = profile(nn.EmbeddingBag(70, 12), IDS, training=True, machine="h100-sxm")
    assert not made.unknown_ops


def test_a_mask_that_selects_is_read() -> None:
    rows = torch.ones(6, 4)
    made = found(torch.masked_select, rows, rows > 0, device="cpu")
    assert made.bytes == 2 * 24 * 4 + 24


A, B = (torch.empty(shape, dtype=torch.complex64) for shape in ((3, 5), (5, 7)))
# (function, inputs, FLOPs, vector FLOPs)
COMPLEX = {
    "matmul": (torch.matmul, (A, B), 8 * 105, 0),
    "einsum": (lambda a, b: torch.einsum("bi,io->bo", a, b), (A, B), 8 * 105, 0),
    "modes": (
        lambda x, w: torch.einsum("bix,iox->box", x, w),
        (A.expand(2, 3, 5), torch.empty(3, 4, 5, dtype=torch.complex128).to(A)),
        8 * 2 * 3 * 4 * 5,
        0,
    ),
    "linear": (F.linear, (A, B.mT.contiguous(), B[0]), 8 * 105, 2 * 21),
    "vdot": (torch.vdot, (A[0], A[1]), 8 * 5, 0),
    "products and sums": (lambda a, b: (a[:, :, None] * b).sum(1), (A, B), 0, 8 * 105),
    # As three real ones, which PyTorch makes of it.
    "conv2d": (
        lambda x, w: F.conv2d(x, w),
        (torch.empty(2, 3, 6, 6, dtype=A.dtype), torch.empty(4, 3, 3, 3, dtype=A.dtype)),
        6 * 2 * 4 * 16 * 27,
        None,
    ),
    "fft": (lambda x: torch.fft.fft(x[:, :4]), (A,), 0, 5 * 12 * 2),
}


@pytest.mark.parametrize("case", COMPLEX)
def test_complex_numbers_count_as_real_ones(case: str) -> None:
    function, args, flops, others = COMPLEX[case]
    made = found(function, *(each.to("meta") for each in args))
    assert made.flops == flops
    assert others in (None, made.vector_flops)
    assert not made.unknown_ops


def test_result_given_as_out() -> None:
    def into(a: Tensor, b: Tensor) -> Tensor:
        out = torch.empty(3, 7, device=a.device)
        torch.mm(a, b, out=out)
        return out

    made = found(into, torch.empty(3, 5, device="meta"), torch.empty(5, 7, device="meta"))
    assert (made.flops, made.bytes) == (210, 4 * (15 + 35 + 21))


@pytest.mark.parametrize(("queries", "keys"), list(product((1, 2, 5, 8), (1, 3, 5, 9))))
def test_causal_pairs(queries: int, keys: int) -> None:
    seen = torch.ones(queries, keys).tril().sum().item()
    assert pairs(queries, keys, causal=True) == seen
    assert pairs(queries, keys, causal=False) == queries * keys


@pytest.mark.parametrize("device", ["meta", "fake", "cpu"])
def test_lstm(device: str) -> None:
    model = nn.LSTM(8, 16, 2, bidirectional=True)
    made = profile(
        model, torch.empty(5, 3, 8, device="meta"), device=device, machine="h100-sxm", runs=1
    )
    per_step = 2 * (4 * 16 * 8 + 4 * 16 * 16) + 2 * (4 * 16 * 32 + 4 * 16 * 16)
    assert made.flops == 2 * 5 * 3 * per_step
    # One kernel on the CPU, its parts elsewhere: the same class.
    assert list(made.by_class()) == ["recurrent"]
    assert not made.unknown_ops


def test_every_rule_has_a_class_and_a_real_operator() -> None:
    for name, rule in RULES.items():
        assert rule.op_class in (*CLASSES, "conv"), name
    missing = [
        name
        for name in RULES
        if name.startswith("aten.") and not hasattr(torch.ops.aten, name.removeprefix("aten."))
    ]
    assert not missing


def test_registered_formula_and_unknown_operator() -> None:
    library = torch.library.Library("holdfast_test", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
    x = torch.ones(3, 4)
    made = found(torch.ops.holdfast_test.twice, x)
    assert made.unknown_ops == [
        {"op": "holdfast_test.twice", "calls": 1, "bytes": 2 * 48, "modules": [""]}
    ]
    assert [row.known for row in made.ops] == [False]
    register_flop_formula(
        "holdfast_test::twice", lambda x, *, out: 7 * x.numel(), op_class="matmul"
    )
    made = found(torch.ops.holdfast_test.twice, x)
    assert (made.flops, made.unknown_ops) == (84, [])
    with pytest.raises(InputError) as error:
        register_flop_formula("a::b", lambda x, *, out: 0, op_class="convolutoin")
    assert (error.value.code, error.value.place) == ("unknown-name", "op_class")


class Experts(nn.Module):
    """The products of a mixture of experts."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(4, 16, 8, dtype=dtype))

    def forward(self, x: Tensor, ends: Tensor) -> Tensor:
        return torch._grouped_mm(x.to(self.weight.dtype), self.weight, ends)


@pytest.mark.parametrize("device", ["meta", "fake", "cpu"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_products_by_experts(device: str, dtype: torch.dtype) -> None:
    rows, ends = torch.zeros(10, 16), torch.tensor([2, 4, 4, 10], dtype=torch.int32)
    options = {"device": device, "machine": "h100-sxm", "runs": 1}
    result = profile(Experts(dtype), rows, ends, **options)
    assert (result.flops, result.unknown_ops) == (2 * 10 * 16 * 8, [])
    assert result.device == device
    (call,) = [op for op in result.ops if op.op == "aten._grouped_mm"]
    assert (call.op_class, call.shape) == ("linear", (10, 8))
    assert call.bytes == dtype.itemsize * (10 * 16 + 4 * 16 * 8 + 10 * 8)
    few = profile(Experts(dtype), rows[:2], ends, **options)  # two rows meet at most two experts
    assert [op.bytes for op in few.ops if op.op == call.op] == [
        dtype.itemsize * (2 * 16 + 2 * 16 * 8 + 2 * 8)
    ]


class Views(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        with torch.profiler.record_function("part"):
            y = x.clone().transpose_(0, 1).as_strided_((2, 2), (1, 2)).unsqueeze_(0).squeeze_(0)
        return y.t_().floor_divide(2)


def test_views_in_place_are_known() -> None:
    result = profile(Views(), torch.zeros(4, 8))
    assert result.unknown_ops == []
    assert not result.findings()[0].text.startswith("One pass takes at least")


def test_unknown_operators_are_in_the_headline() -> None:
    class Distances(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.cholesky_inverse(x @ x)

    result = profile(Distances(), torch.zeros(4, 4))
    assert result.unknown_ops
    assert "at least 128 FLOP" in result.findings()[0].text
