"""The same counts on every device, in every layout, for every way to call a model."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from holdfast.errors import InputError
from holdfast.profile.ops.formulas import nbytes, pairs
from holdfast.profile.ops.profiling import profile

DEVICES = ("meta", "fake", "cpu")


class Call(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any, **named: Any) -> Any:
        return self.function(*args, **named)


def made(module: Any, *args: Any, **named: Any) -> Any:
    module = module if isinstance(module, nn.Module) else Call(module)
    return profile(module, *args, **{"machine": "h100-sxm", "runs": 1, **named})


def counts(result: Any) -> tuple[int, int, int]:
    return result.flops, result.vector_flops, result.bytes


# --- Layouts -------------------------------------------------------------------------------------

BASE = torch.arange(240, dtype=torch.float32).view(4, 6, 10)
LAYOUTS = {
    "contiguous": BASE,
    "transposed": BASE.transpose(0, 2),
    "sliced": BASE[:, ::2, 1:7],
    "expanded": BASE[:1].expand(4, 6, 10),
    "expanded within": BASE[:, :, :1].expand(4, 6, 10),
    "a scalar": BASE[0, 0, 0],
    "a number repeated": torch.ones(()).expand(4, 6, 10),
    "empty": BASE[:0],
    "half": BASE.half(),
    "complex": torch.complex(BASE, BASE),
    "channels last": BASE.view(2, 2, 6, 10).to(memory_format=torch.channels_last),
}


def distinct(x: Tensor) -> int:
    """Bytes of the elements at different addresses, by listing the addresses."""
    places = {0} if x.numel() else set[int]()
    for size, stride in zip(x.shape, x.stride(), strict=True):
        places = {place + n * stride for place in places for n in range(size)}
    return len(places) * x.element_size()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_input_is_read_as_it_lies_in_memory(layout: str) -> None:
    x = LAYOUTS[layout]
    assert nbytes(x) == distinct(x)
    written = x.numel() * x.element_size()
    for device in DEVICES:
        assert made(lambda x: x + 1, x, device=device).bytes == distinct(x) + written
        # Passed twice it is one tensor, and read once.
        assert made(torch.add, x, x, device=device).bytes == distinct(x) + written
        assert made(lambda a, *, b: a + b, x, kwargs={"b": x}, device=device).bytes == (
            distinct(x) + written
        )


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=4), st.data())
@pytest.mark.examples(40)
def test_distinct_bytes_of_drawn_layouts(
    sides: list[tuple[int, bool]], data: st.DataObject
) -> None:
    whole = torch.empty([1 if repeated else size for size, repeated in sides])
    view = whole.expand([size for size, _ in sides])
    order = data.draw(st.permutations(range(len(sides))))
    assert nbytes(view.permute(order)) == distinct(view)


def attends(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v)


NORM, MIXED = nn.BatchNorm2d(6).eval(), nn.MultiheadAttention(16, 2, batch_first=True)
IMAGE, TEXT = torch.randn(2, 6, 8, 8), torch.randn(2, 5, 16)
IDS = torch.tensor([[1, 0, 3, 2], [2, 2, 1, 0]])
MODELS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "batch norm that is not trained": (NORM, (IMAGE,)),
    "batch norm": (nn.BatchNorm2d(6), (IMAGE,)),
    "attention of one tensor": (MIXED, (TEXT, TEXT, TEXT)),
    "attention of three": (MIXED, (TEXT, TEXT + 1, TEXT + 2)),
    "bags of strided indices": (nn.EmbeddingBag(4, 3), (IDS[:, ::2],)),
    "strided weights": (F.linear, (TEXT, TEXT[0].T.repeat(1, 4)[:, :16])),
    "depthwise": (nn.Conv2d(6, 6, 3, groups=6), (IMAGE,)),
    "channels last": (nn.Conv2d(6, 4, 3), (IMAGE.to(memory_format=torch.channels_last),)),
    "group norm": (nn.GroupNorm(3, 6), (IMAGE,)),
    "pooling": (nn.AdaptiveAvgPool2d(2), (IMAGE,)),
    "up": (nn.Upsample(scale_factor=2, mode="bilinear"), (IMAGE,)),
    "ravel": (torch.ravel, (LAYOUTS["sliced"],)),
    "encoder": (nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), (TEXT,)),
    "dictionary of lists": (
        lambda given: given["x"][0] @ given["x"][1].T,
        ({"x": [TEXT[0], TEXT[1]], "name": "a", "none": None},),
    ),
}


@pytest.mark.parametrize("model", MODELS)
def test_counts_do_not_depend_on_the_device(model: str) -> None:
    module, args = MODELS[model]
    results = {device: made(module, *args, device=device) for device in DEVICES}
    assert all(result.device == device for device, result in results.items())
    assert len({counts(result) for result in results.values()}) == 1
    assert len({tuple(call.kind for call in one.attention) for one in results.values()}) == 1
    without = made(module, *torch.utils._pytree.tree_map_only(Tensor, lambda x: x.to("meta"), args))
    assert without.flops == results["meta"].flops


@pytest.mark.parametrize("device", DEVICES)
def test_one_tensor_passed_three_times_attends_to_itself(device: str) -> None:
    for x in (TEXT, TEXT.to("meta")):
        assert [call.kind for call in made(MIXED, x, x, x, device=device).attention] == ["self"]
        other = torch.empty_like(x)
        assert [call.kind for call in made(MIXED, x, other, other, device=device).attention] == [
            "cross"
        ]


# --- Attention -----------------------------------------------------------------------------------


@given(st.data())
@pytest.mark.examples(25)
def test_attention_of_drawn_shapes_has_the_flops_of_torchs_counter(data: st.DataObject) -> None:
    """Batches and heads are broadcast between the queries and what they attend to."""
    lead = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    shapes = []
    for _ in range(2):
        kept = [data.draw(st.sampled_from([side, 1])) for side in lead]
        shapes.append(kept[data.draw(st.integers(0, len(kept) - 1)) :] if len(kept) > 1 else kept)
    queries, keys, dim, width = (data.draw(st.integers(1, 6)) for _ in range(4))
    sizes = [(queries, dim), (keys, dim), (keys, width)]
    q, k, v = (
        torch.empty(*shape, *size) for shape, size in zip([*shapes, shapes[1]], sizes, strict=True)
    )
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        out = attends(q, k, v)
    result = made(attends, q, k, v)
    assert result.flops == counter.get_total_flops() == result.flops_with_full_attention
    assert result.bytes == 4 * (q.numel() + k.numel() + v.numel() + out.numel())
    (call,) = result.attention
    lengths = call.batch * call.heads, call.query_length, call.key_length, call.head_dim
    assert lengths == (prod(out.shape[:-2]), queries, keys, dim)


@given(st.integers(0, 9), st.integers(0, 9), st.integers(0, 11))
@pytest.mark.examples(60)
def test_pairs_by_counting_them(queries: int, keys: int, window: int) -> None:
    seen = torch.ones(queries, keys, dtype=torch.bool)
    assert pairs(queries, keys, causal=False) == int(seen.sum())
    assert pairs(queries, keys, causal=True) == int(seen.tril().sum())
    if window:  # the queries are the last positions
        places = torch.arange(keys - queries, keys)[:, None] - torch.arange(keys)
        inside = (places >= 0) & (places < window)
        assert pairs(queries, keys, causal=True, window=window) == int(inside.sum())


# --- Batches, types and ways of calling -----------------------------------------------------------

GROWING = {
    "convolutions": (
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.SiLU(), nn.ConvTranspose2d(4, 2, 2)),
        (3, 8, 8),
    ),
    "encoder": (nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval(), (5, 16)),
    "recurrent": (nn.GRU(6, 7, batch_first=True), (4, 6)),
    "norms": (nn.Sequential(nn.GroupNorm(2, 4), nn.Softmax(1), nn.GELU()), (4, 6)),
}


@pytest.mark.parametrize("model", GROWING)
def test_counts_grow_with_the_batch(model: str) -> None:
    """FLOPs in proportion; bytes and memory by the same step for every further sample."""
    module, shape = GROWING[model]
    two, three, six = (made(module, torch.empty(n, *shape)) for n in (2, 3, 6))
    assert (2 * three.flops, six.flops) == (3 * two.flops, 3 * two.flops)
    for name in ("bytes", "vector_flops"):
        few, more, most = (getattr(each, name) for each in (two, three, six))
        assert most - more == 3 * (more - few) > 0
    assert two.parameter_bytes == six.parameter_bytes


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_bytes_are_those_of_the_type(dtype: torch.dtype) -> None:
    module = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))
    single = made(module, torch.empty(3, 8))
    other = made(module.to(dtype), torch.empty(3, 8, dtype=dtype))
    assert (other.flops, other.vector_flops) == (single.flops, single.vector_flops)
    for name in ("bytes", "peak_bytes", "parameter_bytes"):
        assert getattr(other, name) * 4 == getattr(single, name) * dtype.itemsize
    assert {op.dtype for op in other.ops if op.flops} == {str(dtype).removeprefix("torch.")}


@pytest.mark.parametrize("rows", [0, 1])
@pytest.mark.parametrize("device", DEVICES)
def test_no_rows_and_one(rows: int, device: str) -> None:
    module = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.Softmax(-1))
    result = made(module, torch.empty(rows, 8), device=device)
    assert result.flops == rows * 2 * 8 * 16
    assert result.unknown_ops == []
    assert all(share <= 1 for share in map(result.roofline().share, ("compute", "memory")))
    result.document()
    assert result.sections()


class Doubling(nn.Module):
    """Adds its input to itself, in place, several times."""

    def forward(self, x: Tensor, times: int = 3) -> Tensor:
        x = x.clone()
        for _ in range(times):
            x += x
        return x


def test_operators_in_place_have_the_memory_of_one_tensor() -> None:
    x = torch.empty(10, 10)
    result = made(Doubling(), x, kwargs={"times": 5})
    assert result.vector_flops == 5 * 100
    assert result.bytes == 800 + 5 * 800
    assert result.peak_bytes == 2 * 400


def test_hooks_of_the_user_are_counted_and_stay() -> None:
    inner = nn.Linear(8, 8, bias=False)
    model = nn.Sequential(inner, nn.Sequential(inner))  # one module at two places
    calls = []
    hooks = [
        inner.register_forward_pre_hook(lambda module, args: (args[0] * 2,)),
        inner.register_forward_hook(lambda module, args, out: calls.append(module) or out + 1),
    ]
    result = made(model, torch.ones(3, 8))
    assert (result.flops, result.vector_flops) == (2 * 2 * 3 * 64, 2 * 2 * 24)
    assert calls == [inner, inner]
    assert {op.module for op in result.ops if op.flops} == {"0"}  # under its first name
    for hook in hooks:
        hook.remove()
    assert not inner._forward_hooks
    assert not inner._forward_pre_hooks
    assert made(model, torch.ones(3, 8)).vector_flops == 0


class Recursive(nn.Module):
    """A module that calls itself, and one below it that fails on demand."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.fails = nn.Linear(4, 4, bias=False), False

    def forward(self, x: Tensor, depth: int = 3) -> Tensor:
        if depth == 0 and self.fails:
            raise ArithmeticError("on demand")
        return self.linear(x if depth == 0 else self(x, depth - 1))


def test_a_module_that_calls_itself() -> None:
    model = Recursive()
    result = made(model, torch.ones(2, 4))
    assert result.flops == 4 * 2 * 2 * 16
    rows = {row["module"]: row for row in result.by_module()}
    assert (rows["linear"]["flops"], rows[""]["total_flops"]) == (result.flops, result.flops)
    model.fails = True
    before = [each.clone() for each in model.parameters()]
    with pytest.raises(InputError) as refused:
        made(model, torch.ones(2, 4))
    assert refused.value.code == "invalid-value"
    assert "on demand" in str(refused.value.found)
    model.fails = False
    assert not [hook for each in model.modules() for hook in each._forward_hooks]
    assert all(map(torch.equal, before, model.parameters()))
    assert counts(made(model, torch.ones(2, 4))) == counts(result)


@pytest.mark.filterwarnings("ignore:Sparse CSR")
@pytest.mark.parametrize("layout", ["to_sparse", "to_sparse_csr"])
@pytest.mark.parametrize("device", DEVICES)
def test_sparse_tensors_are_refused(layout: str, device: str) -> None:
    sparse = getattr(torch.eye(4), layout)()
    for module, args in (
        (torch.matmul, (sparse, torch.ones(4, 3))),
        (lambda x: sparse @ x, (torch.ones(4, 3),)),
    ):
        with pytest.raises(InputError) as refused:
            made(module, *args, device=device)
        assert refused.value.code == "invalid-value"
