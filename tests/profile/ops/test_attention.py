"""Attention: FLOPs on every backend, what is causal, cross, temporal; fused and separate operators."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from holdfast.profile.ops.profiling import profile

B, H, N, M, E = 2, 4, 10, 7, 16


class Attend(nn.Module):
    """Projections and attention, written out or as one call."""

    def __init__(self, dim: int = H * E, causal: bool = False, eager: bool = False) -> None:
        super().__init__()
        self.num_heads, self.causal, self.eager = H, causal, eager
        self.norm_q, self.norm_k = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.q, self.k, self.v = (nn.Linear(dim, dim) for _ in range(3))

    def forward(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        context = x if context is None else context
        q, k = self.q(self.norm_q(x)), self.k(self.norm_k(context))
        q, k, v = (each.unflatten(-1, (H, -1)).transpose(1, 2) for each in (q, k, self.v(context)))
        if not self.eager:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        else:
            scores = q @ k.transpose(-1, -2) * E**-0.5
            y = (scores + torch.zeros_like(scores)).softmax(-1, dtype=torch.float32).to(q.dtype) @ v
        return y.transpose(1, 2).flatten(2)


def made(module: nn.Module, *args: Tensor, **named: Any) -> Any:
    return profile(module, *args, machine="h100-sxm", **{"runs": 1, **named})


X, C = torch.empty(B, N, H * E, device="meta"), torch.empty(B, M, H * E, device="meta")
FULL = 4 * B * H * N * N * E
TRIANGLE = 4 * B * H * (N * (N + 1) // 2) * E


@pytest.mark.parametrize("device", ["meta", "fake", "cpu"])
@pytest.mark.parametrize("attention", ["fused", "flash", "math"])
@pytest.mark.parametrize("causal", [False, True])
def test_flops_do_not_depend_on_where_it_runs(device: str, attention: str, causal: bool) -> None:
    result = made(Attend(causal=causal), X, device=device, attention=attention)
    (call,) = result.attention
    # Separate products compute the whole square.
    expected = TRIANGLE if causal and attention != "math" else FULL
    assert result.by_class()["attention"]["flops"] == call.flops == expected
    assert call.full_flops == FULL
    assert result.flops_with_full_attention == result.flops - call.flops + FULL
    assert (call.kind, call.batch, call.heads) == ("causal" if causal else "self", B, H)
    assert (call.query_length, call.key_length, call.head_dim) == (N, N, E)
    assert result.device == device


def test_bytes_of_fused_and_separate_attention() -> None:
    fused = made(Attend(), X).by_class()
    operands = 4 * B * H * N * E  # bytes of q, k, v or the result
    assert fused["attention"]["bytes"] == 4 * operands
    separate = made(Attend(), X, attention="math").by_class()
    scores = 4 * B * H * N * N
    assert separate["attention"]["bytes"] == 4 * operands + 2 * scores
    assert separate["softmax"]["bytes"] == 2 * scores


@pytest.mark.parametrize("eager", [False, True])
def test_cross_attention_is_known_by_its_operands(eager: bool) -> None:
    layer = Attend(eager=eager)
    (call,) = made(layer, X, C).attention
    assert (call.kind, call.query_length, call.key_length, call.heads) == ("cross", N, M, H)
    assert call.fused is not eager
    (call,) = made(layer, X, torch.empty_like(X)).attention
    assert call.kind == "cross"  # though as long as the queries
    (call,) = made(layer, X).attention
    assert call.kind == "self"


def test_two_products_without_softmax_are_not_attention() -> None:
    class Products(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x @ x.transpose(-1, -2) @ x

    result = made(Products(), X)
    assert result.attention == []
    assert result.by_class()["matmul"]["flops"] == 2 * 2 * B * N * N * H * E


def test_torch_modules() -> None:
    layer = nn.TransformerDecoderLayer(H * E, H, batch_first=True).eval()
    result = made(layer, X, C)
    assert [(call.module, call.kind, call.heads) for call in result.attention] == [
        ("self_attn", "self", H),
        ("multihead_attn", "cross", H),
    ]
    weights = made(
        nn.MultiheadAttention(H * E, H, batch_first=True), X, X, X
    )  # returns its weights
    assert [(call.kind, call.heads, call.flops) for call in weights.attention] == [
        ("self", H, FULL)
    ]


class Video(nn.Module):
    """Spatial attention of each frame, attention of each pixel over frames, and over both."""

    def __init__(self) -> None:
        super().__init__()
        self.temporal_like, self.a, self.b = (Attend() for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:  # [B, C, F, H, W]
        batch, _, frames, height, width = x.shape
        pixels = x.permute(0, 2, 3, 4, 1).reshape(batch * frames, height * width, -1)
        y = self.temporal_like(pixels).reshape(batch, frames, height * width, -1)
        lines = y.transpose(1, 2).reshape(batch * height * width, frames, -1)
        z = self.a(lines).reshape(batch, height * width * frames, -1)
        return self.b(z)


@pytest.mark.parametrize(("frames", "side"), [(16, 4), (4, 2), (5, 3)])
def test_temporal_attention_is_known_by_the_axis(frames: int, side: int) -> None:
    # With 16 frames of 4 x 4 and 4 of 2 x 2, spatial and temporal attention are equally long.
    result = made(Video(), torch.empty(1, H * E, frames, side, side, device="meta"))
    found = [(call.module, call.kind, call.query_length) for call in result.attention]
    assert found == [
        ("temporal_like", "spatial-self", side * side),
        ("a", "temporal", frames),
        ("b", "spatio-temporal", side * side * frames),
    ]


class Laid(nn.Module):
    """A video model on another layout of axes, by a permutation to [B, C, F, H, W]."""

    def __init__(self, order: tuple[int, ...], module: nn.Module) -> None:
        super().__init__()
        self.order, self.module = order, module

    def forward(self, x: Tensor) -> Tensor:
        return self.module(x.permute(self.order))


@pytest.mark.parametrize("order", [(0, 1, 2, 3, 4), (0, 2, 1, 3, 4), (0, 4, 1, 2, 3)])
@pytest.mark.parametrize("device", ["meta", "cpu"])
def test_frames_are_found_on_any_axis(order: tuple[int, ...], device: str) -> None:
    video = torch.empty(1, H * E, 6, 2, 4, device="meta")
    back = sorted(range(5), key=order.__getitem__)
    result = made(Laid(order, Video()), video.permute(back), device=device)
    assert [call.kind for call in result.attention] == [
        "spatial-self",
        "temporal",
        "spatio-temporal",
    ]
    assert not [note for note in result.notes if "frames" in note]


class Axial(nn.Module):
    """Attention along each axis of [B, F, H, W, C] in turn."""

    def __init__(self) -> None:
        super().__init__()
        self.temporal, self.rows = Attend(), Attend()

    def forward(self, x: Tensor) -> Tensor:
        x = self.temporal(x.transpose(1, 3).flatten(0, 2)).reshape(x.shape)
        return self.rows(x.transpose(2, 3).flatten(0, 2))


def test_undecided_frames_are_said() -> None:
    result = made(Axial(), torch.empty(1, 6, 2, 4, H * E, device="meta"))
    assert [call.kind for call in result.attention] == ["temporal", "spatial-self"]
    assert len([note for note in result.notes if "frames" in note]) == 1


@pytest.mark.parametrize("attention", ["fused", "math"])
def test_cost_by_kind_of_attention(attention: str) -> None:
    video = torch.empty(1, H * E, 6, 2, 4, device="meta")
    result = made(Video(), video, attention=attention)
    rows = {row["kind"]: row for row in result.attention_kinds()}
    classes = result.roofline().by("op_class")
    parts = [row for row in classes if row["op_class"] in ("attention", "softmax")]
    assert sum(row["flops"] for row in rows.values()) == sum(row["flops"] for row in parts)
    assert sum(row["calls"] for row in rows.values()) == 3
    if attention == "fused":
        for name in ("bytes", "bound_s"):
            total = sum(row[name] for row in parts)
            assert sum(row[name] for row in rows.values()) == pytest.approx(total)
    else:  # the scale and other operators between the products are in the kind
        assert rows["temporal"]["bytes"] > 4 * 2 * 8 * 4 * 6 * 6 * 4
    assert result.to_dict()["attention_kinds"] == result.attention_kinds()
    assert rows["temporal"]["flops"] == 4 * 8 * H * 6 * 6 * E


class Window(Attend):
    """Attention with an explicit mask of a window that the module declares."""

    is_causal = True

    def __init__(self, window: int | None) -> None:
        super().__init__()
        self.sliding_window = window

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (p(x).unflatten(-1, (H, -1)).transpose(1, 2) for p in (self.q, self.k, self.v))
        mask = torch.ones(N, N, dtype=torch.bool, device=x.device)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


@pytest.mark.parametrize(("window", "pairs"), [(3, 1 + 2 + 3 * (N - 2)), (N, N * N), (None, N * N)])
def test_declared_windows(window: int | None, pairs: int) -> None:
    result = made(Window(window), X)
    assert result.by_class()["attention"]["flops"] == 4 * B * H * pairs * E
    assert result.flops_with_full_attention - result.flops == FULL - 4 * B * H * pairs * E
    assert len(result.notes) == 1


class Masked(nn.Module):
    """Attention with a mask, in a module whose name says nothing."""

    def __init__(self, mask: Tensor | None) -> None:
        super().__init__()
        self.mask = mask

    def forward(self, x: Tensor) -> Tensor:
        mask = None if self.mask is None else self.mask.to(x.device)
        return F.scaled_dot_product_attention(x, x, x, mask)


@pytest.mark.parametrize("kind", [torch.bool, torch.float32, None])
def test_a_mask_is_counted_in_full_and_noted(kind: torch.dtype | None) -> None:
    result = made(Masked(kind and torch.ones(N, N).tril().to(kind)), torch.empty(B, H, N, E))
    assert result.flops == result.flops_with_full_attention == FULL
    assert len(result.notes) == (kind is not None)


@pytest.mark.full  # Dynamo's imports
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("device", ["meta", "cpu"])
def test_flex_attention(device: str) -> None:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    class Flex(nn.Module):
        def __init__(self, causal: bool) -> None:
            super().__init__()
            mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, 256, 256, device="cpu")
            self.mask = mask if causal else None

        def forward(self, q: Tensor) -> Tensor:
            return flex_attention(q, q, q, block_mask=self.mask)

    q = torch.empty(B, H, 256, E, device="meta")
    full = made(Flex(False), q, device=device)
    assert full.flops == 4 * B * H * 256 * 256 * E
    assert made(Flex(True), q, device=device).flops == full.flops * 3 // 4  # 3 of 4 blocks
    assert full.unknown_ops == []
    assert len(full.attention) == 1


def test_direct_call_of_a_kernel() -> None:
    class Flash(nn.Module):
        def forward(self, q: Tensor) -> Any:
            return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, q, q, 0.0, True)

    q = torch.empty(B, H, N, E, device="meta")
    result = made(Flash(), q, device="cpu")
    assert result.flops == TRIANGLE
    assert [call.kind for call in result.attention] == ["causal"]


def test_grouped_queries_read_fewer_keys() -> None:
    class Grouped(nn.Module):
        def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)

    q, k, v = (torch.empty(B, heads, N, E, device="meta") for heads in (H, 1, 1))
    result = made(Grouped(), q, k, v)
    assert result.flops == FULL
    assert result.bytes == 4 * (2 * B * H * N * E + 2 * B * N * E)


def test_a_mixture_of_heads_between_the_products() -> None:
    class TalkingHeads(nn.Module):
        def __init__(self, mixes: bool) -> None:
            super().__init__()
            self.qkv = nn.Linear(64, 192)
            self.before, self.after = (nn.Linear(8, 8) if mixes else nn.Identity() for _ in "ab")

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.qkv(x).unflatten(-1, (3, 8, 8)).permute(2, 0, 3, 1, 4)  # [B, 8, N, 8]
            scores = q @ k.transpose(-1, -2)
            scores = self.before(scores.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
            weights = self.after(scores.softmax(-1).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
            return weights @ v

    plain, mixed = (made(TalkingHeads(mixes), torch.ones(2, 20, 64)) for mixes in (False, True))
    for result in (plain, mixed):
        (call,) = result.attention
        assert (call.heads, call.query_length, call.key_length) == (8, 20, 20)
        assert call.flops == result.by_class()["attention"]["flops"] == 2 * 2 * 2 * 8 * 20 * 20 * 8
    # The mixtures are products of their own.
    assert mixed.flops - plain.flops == 2 * 2 * 2 * 20 * 20 * 8 * 8
