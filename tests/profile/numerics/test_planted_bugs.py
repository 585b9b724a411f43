"""Kernels with planted bugs, which `compare` must find, and healthy ones, which it must pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from holdfast.profile.numerics import compare

Pair = tuple[Tensor, Tensor]


def qkv(generator: torch.Generator) -> list[Tensor]:
    return [torch.randn(2, 2, 40, 16, generator=generator) for _ in range(3)]  # [B, H, N, d]


def rows(generator: torch.Generator) -> list[Tensor]:
    return [torch.randn(16, 64, generator=generator)]


def matrices(generator: torch.Generator) -> list[Tensor]:
    return [torch.randn(16, 64, generator=generator), torch.randn(64, 24, generator=generator)]


def attention(q: Tensor, k: Tensor, v: Tensor, *, diagonal: int = 0, scale: float = 0.25) -> Pair:
    """Causal attention and its log-sum-exp."""
    mask = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).triu(1 + diagonal)
    scores = (q @ k.transpose(-1, -2) * scale).masked_fill(mask, float("-inf"))
    return scores.softmax(-1) @ v, scores.logsumexp(-1)


def norm(x: Tensor, *, eps: float = 1e-5, correction: int = 0) -> Tensor:
    return (x - x.mean(-1, keepdim=True)) / (
        x.var(-1, keepdim=True, correction=correction) + eps
    ).sqrt()


def gelu(x: Tensor) -> Tensor:
    return functional.gelu(x)


class HalfGradient(torch.autograd.Function):
    """A product whose backward halves the gradient of its second operand."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        ctx.save_for_backward(a, b)
        return a @ b

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        a, b = ctx.saved_tensors
        return grad @ b.t(), a.t() @ grad / 2


def two_of_five(q: Tensor, k: Tensor, v: Tensor) -> Pair:
    """10 % too large for some inputs: 2 of the 5 seeds."""
    out, lse = attention(q, k, v)
    return out * (1.1 if q[0, 0, 0, 0] < -1.1 else 1), lse


def sometimes(q: Tensor, k: Tensor, v: Tensor) -> Pair:
    """Another result in half of the calls, whatever the input."""
    out, lse = attention(q, k, v)
    return out * (1.1 if torch.rand(()) < 0.5 else 1), lse


def stale() -> Callable[..., Tensor]:
    """Keeps the mean of its first call."""
    kept: list[Tensor] = []

    def run(x: Tensor) -> Tensor:
        kept.append(x.detach().mean(-1, keepdim=True))
        return x - kept[0].to(x)

    return run


def last_row_lost(a: Tensor, b: Tensor) -> Tensor:
    """Tiles of 16 of an inner dimension that is cut at 48: the remainder is dropped."""
    return a[:, :48] @ b[:48]


PRODUCT, CENTER = torch.matmul, lambda x: x - x.mean(-1, keepdim=True)
# Name -> reference, inputs, the bug, the verdict.
BUGS: dict[str, tuple[Any, Any, Any, str]] = {
    "scale": (attention, qkv, lambda *x: attention(*x, scale=0.2), "reference"),
    "scale by 0.2 %": (attention, qkv, lambda *x: attention(*x, scale=0.2505), "reference"),
    "mask off by one": (attention, qkv, lambda *x: attention(*x, diagonal=1), "reference"),
    "low-precision sum": (
        PRODUCT, matrices, lambda a, b: (a.bfloat16() @ b.bfloat16()).to(a), "reference",
    ),
    "half a gradient": (PRODUCT, matrices, HalfGradient.apply, "reference"),
    "NaN": (PRODUCT, matrices, lambda a, b: (a @ b).log() * 0 + a @ b, "non-finite"),
    "epsilon": (norm, rows, lambda x: norm(x, eps=1e-3), "reference"),
    "unbiased variance": (norm, rows, lambda x: norm(x, correction=1), "reference"),
    "other GELU": (gelu, rows, lambda x: functional.gelu(x, approximate="tanh"), "reference"),
    "no backward": (attention, qkv, lambda *x: [y.detach() for y in attention(*x)], "missing"),
    "lost key gradient": (
        attention, qkv, lambda q, k, v: attention(q, k.detach(), v), "missing",
    ),
    "second output": (
        attention, qkv, lambda *x: (attention(*x)[0], 2 * attention(*x)[1]), "reference",
    ),
    "second output without backward": (
        attention, qkv, lambda *x: (attention(*x)[0], attention(*x)[1].detach()), "missing",
    ),
    "no second output": (attention, qkv, lambda *x: attention(*x)[0], "missing"),
    "two of five inputs": (attention, qkv, two_of_five, "reference"),
    "random": (attention, qkv, sometimes, "random"),
    "stale state": (CENTER, rows, stale(), "reference"),
    "remainder lost": (PRODUCT, matrices, last_row_lost, "reference"),
}  # fmt: skip


@pytest.mark.parametrize("name", BUGS)
def test_planted_bugs_are_found(name: str) -> None:
    reference, inputs, operator, verdict = BUGS[name]
    torch.manual_seed(0)
    found = compare({"reference": reference, "bug": operator}, inputs, dtypes=["fp32"])
    verdicts = {row["verdict"] for row in found.rows if row["implementation"] == "bug"}
    assert verdict in verdicts
    assert {r["verdict"] for r in found.rows if r["implementation"] == "reference"} == {"ok"}
    assert found.exit_code == 1
    assert verdict in str(found.to_dict())


def online(q: Tensor, k: Tensor, v: Tensor) -> Pair:
    """Flash attention in blocks of 8 keys, float32 inside."""
    kind, (q, k, v) = (
        q.dtype,
        ((x.double() if x.dtype == torch.float64 else x.float()) for x in (q, k, v)),
    )
    n = q.shape[-2]
    out, total = torch.zeros_like(q), q.new_zeros(q.shape[:-1])
    largest = q.new_full(q.shape[:-1], -1e30)
    for first in range(0, n, 8):
        keys = slice(first, first + 8)
        hidden = torch.arange(n)[keys] > torch.arange(n)[:, None]
        scores = (q @ k[..., keys, :].transpose(-1, -2) / 4).masked_fill(hidden, -1e30)
        now = torch.maximum(largest, scores.amax(-1))
        p = (scores - now[..., None]).exp().masked_fill(hidden, 0)
        shrink = (largest - now).exp()
        total, largest = total * shrink + p.sum(-1), now
        out = out * shrink[..., None] + p @ v[..., keys, :]
    return (out / total[..., None]).to(kind), (largest + total.log()).to(kind)


def split(a: Tensor, b: Tensor) -> Tensor:
    """Split-K: two halves of the inner dimension, added in float32 or more."""
    wide = torch.promote_types(a.dtype, torch.float32)
    a, b, kind = a.to(wide), b.to(wide), a.dtype
    return (a[:, :32] @ b[:32] + a[:, 32:] @ b[32:]).to(kind)


def wide(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Computes in float32 or more, and rounds once."""

    def run(*inputs: Tensor) -> Tensor:
        kind = torch.promote_types(inputs[0].dtype, torch.float32)
        return function(*(x.to(kind) for x in inputs)).to(inputs[0].dtype)

    return run


def fused(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def softmax(x: Tensor) -> Tensor:
    return x.softmax(-1)


def shifted(x: Tensor) -> Tensor:
    e = (x.double() - x.double().amax(-1, keepdim=True)).exp()
    return e / e.sum(-1, keepdim=True)


def distinct(generator: torch.Generator) -> list[Tensor]:
    """Numbers that every format has, without ties."""
    return [torch.stack([torch.randperm(64, generator=generator).float() for _ in range(8)])]


def by_sorting(x: Tensor) -> list[Tensor]:
    return [y[:, :4] for y in torch.sort(x, dim=-1, descending=True)]


def one_pass(x: Tensor) -> Tensor:
    mean = x.mean(-1, keepdim=True)
    return (x - mean) * ((x * x).mean(-1, keepdim=True) - mean * mean + 1e-5).rsqrt()


def rms(x: Tensor) -> Tensor:
    return x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt()


def entropy(x: Tensor) -> Tensor:
    return functional.cross_entropy(x, torch.arange(len(x)), reduction="none")


def topk(x: Tensor) -> Any:
    return x.topk(4, -1)


def lstm() -> nn.Module:
    torch.manual_seed(0)
    return nn.LSTM(64, 8, batch_first=True)


HEALTHY: dict[str, tuple[Any, Any, Any]] = {
    "online softmax": (attention, qkv, online),
    "fused": (lambda *x: attention(*x)[0], qkv, fused),
    "scaled queries": (attention, qkv, lambda q, k, v: attention(q * 0.25, k, v, scale=1)),
    "the same": (attention, qkv, attention),
    "a list": (attention, qkv, lambda *x: [*attention(*x)]),
    "split K": (PRODUCT, matrices, split),
    "einsum": (PRODUCT, matrices, lambda a, b: torch.einsum("ik,kj->ij", a, b)),
    "transposed": (PRODUCT, matrices, lambda a, b: (b.t() @ a.t()).t()),
    "addmm": (PRODUCT, matrices, lambda a, b: torch.addmm(a.new_zeros(24), a, b)),
    "linear": (PRODUCT, matrices, lambda a, b: functional.linear(a, b.t())),
    "float32 product": (PRODUCT, matrices, wide(PRODUCT)),
    "shifted softmax": (softmax, rows, wide(shifted)),
    "log-softmax": (softmax, rows, wide(lambda x: x.log_softmax(-1).exp())),
    "layer norm": (lambda x: functional.layer_norm(x, (64,)), rows, wide(norm)),
    "layer norm in one pass": (lambda x: functional.layer_norm(x, (64,)), rows, wide(one_pass)),
    "RMS norm": (lambda x: functional.rms_norm(x, (64,), eps=1e-6), rows, wide(rms)),
    "erf": (gelu, rows, wide(lambda x: x * 0.5 * (1 + torch.erf(x / 2**0.5)))),
    "cross entropy": (
        entropy, rows, wide(lambda x: x.logsumexp(-1) - x.diagonal(dim1=0, dim2=1)),
    ),
    "sum of parts": (
        lambda x: x.sum(-1), rows, wide(lambda x: x[:, ::2].sum(-1) + x[:, 1::2].sum(-1)),
    ),
    "several outputs of a module": (lstm(), lambda g: [rows(g)[0][None]], lstm()),
    "indices": (topk, distinct, by_sorting),
    "a mapping": (
        lambda x: {"a": x.exp(), "b": x.sum()}, rows, lambda x: {"b": x.sum(), "a": x.exp()},
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    "dtype", ["fp32", *(pytest.param(n, marks=pytest.mark.full) for n in ("bf16", "fp16"))]
)
@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_kernels_pass(name: str, dtype: str) -> None:
    reference, inputs, operator = HEALTHY[name]
    found = compare({"reference": reference, "other": operator}, inputs, dtypes=[dtype])
    assert {row["verdict"] for row in found.rows} == {"ok"}
    assert found.unmatched == []
