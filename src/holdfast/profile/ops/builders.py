"""Models of which only papers exist, from their descriptions: Imagen, Parti, Phenaki, Make-A-Video.

Widths and depths are the published ones where the papers state them; what they leave open is chosen so that
the number of parameters is within 5 % of the published. Weights are random: only shapes count.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


class Attention(nn.Module):
    """Multi-head attention over a sequence, to itself or to a context."""

    def __init__(
        self, dim: int, heads: int, context: int | None = None, causal: bool = False
    ) -> None:
        super().__init__()
        self.heads, self.is_causal = heads, causal
        self.to_q = nn.Linear(dim, dim, bias=False)
        self.to_k = nn.Linear(context or dim, dim, bias=False)
        self.to_v = nn.Linear(context or dim, dim, bias=False)
        self.to_out = nn.Linear(dim, dim, bias=False)

    def forward(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        """[B, N, dim] and perhaps [B, M, context] -> [B, N, dim]."""
        source = x if context is None else context
        q, k, v = (
            each.unflatten(-1, (self.heads, -1)).transpose(1, 2)  # [B, heads, N, dim / heads]
            for each in (self.to_q(x), self.to_k(source), self.to_v(source))
        )
        out = functional.scaled_dot_product_attention(q, k, v, is_causal=self.is_causal)
        return self.to_out(out.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    """A transformer layer: attention to itself, perhaps to a context, and a feed-forward network."""

    def __init__(
        self, dim: int, heads: int, hidden: int, context: int | None = None, causal: bool = False
    ) -> None:
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(dim), Attention(dim, heads, causal=causal)
        self.cross = None
        if context:
            self.norm2, self.cross = nn.LayerNorm(dim), Attention(dim, heads, context)
        self.norm3 = nn.LayerNorm(dim)
        self.feed_forward = nn.Sequential(nn.Linear(dim, hidden), nn.GELU(), nn.Linear(hidden, dim))

    def forward(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        """[B, N, dim] -> [B, N, dim]."""
        x = x + self.attention(self.norm1(x))
        if self.cross is not None:
            x = x + self.cross(self.norm2(x), context)
        return x + self.feed_forward(self.norm3(x))


class Parti(nn.Module):
    """Text to image tokens, encoder and decoder (arXiv 2206.10789, table 1: Parti-20B)."""

    def __init__(
        self, dim: int = 4096, encoder: int = 16, decoder: int = 64, heads: int = 64
    ) -> None:
        super().__init__()
        self.text, self.image = nn.Embedding(16_000, dim), nn.Embedding(8192, dim)
        self.encoder = nn.ModuleList(Layer(dim, heads, 4 * dim) for _ in range(encoder))
        self.decoder = nn.ModuleList(Layer(dim, heads, 4 * dim, dim, True) for _ in range(decoder))
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, 8192)

    def forward(self, text: Tensor, image: Tensor) -> Tensor:
        """Tokens [B, text], [B, image] -> logits [B, image, 8192]."""
        context, x = self.text(text), self.image(image)
        for layer in self.encoder:
            context = layer(context)
        for layer in self.decoder:
            x = layer(x, context)
        return self.head(self.norm(x))


class Phenaki(nn.Module):
    """Masked video tokens, conditioned on T5 embeddings (arXiv 2210.02399: 1.8 B parameters)."""

    def __init__(self, dim: int = 2048, depth: int = 28, heads: int = 16, text: int = 1024) -> None:
        super().__init__()
        self.tokens = nn.Embedding(8193, dim)  # 8,192 codes and the mask
        self.position = nn.Parameter(torch.empty(1536, dim))
        self.layers = nn.ModuleList(Layer(dim, heads, 4 * dim, text) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, 8192)

    def forward(self, tokens: Tensor, text: Tensor) -> Tensor:
        """Tokens [B, frames x 16 x 16], embeddings [B, M, text] -> logits [B, tokens, 8192]."""
        x = self.tokens(tokens) + self.position[: tokens.shape[1]]
        for layer in self.layers:
            x = layer(x, text)
        return self.head(self.norm(x))


class Convolution(nn.Module):
    """3 x 3 over pixels; of videos followed by 3 over frames (a pseudo-3D convolution)."""

    def __init__(self, inside: int, outside: int, video: bool, stride: int = 1) -> None:
        super().__init__()
        self.spatial = nn.Conv2d(inside, outside, 3, stride, 1)
        self.temporal = nn.Conv1d(outside, outside, 3, padding=1) if video else None

    def forward(self, x: Tensor) -> Tensor:
        """[B, C, F, H, W] -> [B, C', F, H', W']."""
        batch, _, frames = x.shape[:3]
        y = self.spatial(x.transpose(1, 2).flatten(0, 1))  # [B F, C', H', W']
        y = y.unflatten(0, (batch, frames)).transpose(1, 2)
        if self.temporal is None:
            return y
        pixels = y.permute(0, 3, 4, 1, 2).flatten(0, 2)  # [B H W, C, F]
        return self.temporal(pixels).unflatten(0, (batch, *y.shape[3:])).permute(0, 3, 4, 1, 2)


class Block(nn.Module):
    """Residual convolutions conditioned on time; perhaps attention: spatial, temporal, to text."""

    def __init__(
        self, inside: int, outside: int, embedding: int, text: int, attend: bool, video: bool
    ) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(32, inside), nn.GroupNorm(32, outside)
        self.conv1 = Convolution(inside, outside, video)
        self.conv2 = Convolution(outside, outside, video)
        self.time = nn.Linear(embedding, 2 * outside)
        self.skip = nn.Conv3d(inside, outside, 1) if inside != outside else nn.Identity()
        heads = outside // 64
        self.spatial = Layer(outside, heads, outside, text) if attend else None
        self.temporal = Attention(outside, heads) if attend and video else None

    def forward(self, x: Tensor, time: Tensor, text: Tensor) -> Tensor:
        """[B, C, F, H, W], [B, embedding], [B, M, text] -> [B, C', F, H, W]."""
        scale, shift = self.time(functional.silu(time))[..., None, None, None].chunk(2, dim=1)
        y = self.conv1(functional.silu(self.norm1(x)))
        y = self.conv2(functional.silu(self.norm2(y) * (1 + scale) + shift)) + self.skip(x)
        batch, _, frames, height, width = y.shape
        if self.spatial is not None:
            pixels = y.permute(0, 2, 3, 4, 1).flatten(0, 1).flatten(1, 2)  # [B F, H W, C]
            pixels = self.spatial(pixels, text.repeat_interleave(frames, 0))
            y = (
                pixels.unflatten(1, (height, width))
                .unflatten(0, (batch, frames))
                .permute(0, 4, 1, 2, 3)
            )
        if self.temporal is not None:
            lines = y.permute(0, 3, 4, 2, 1).flatten(0, 2)  # [B H W, F, C]
            lines = lines + self.temporal(lines)
            y = lines.unflatten(0, (batch, height, width)).permute(0, 4, 3, 1, 2)
        return y


class UNet(nn.Module):
    """A diffusion UNet on pixels, conditioned on text; of videos with pseudo-3D layers.

    Args:
        dim: channels at full resolution.
        multipliers: channels per level, in multiples of `dim`.
        blocks: residual blocks per level.
        attend: whether a level has attention.
        text: width of the text embeddings.
        video: whether there are layers over frames.
    """

    def __init__(
        self,
        dim: int,
        multipliers: Sequence[int],
        blocks: int,
        attend: Sequence[bool],
        text: int,
        video: bool = False,
    ) -> None:
        super().__init__()
        widths, embedding = [dim * each for each in multipliers], 4 * dim
        self.time = nn.Sequential(
            nn.Linear(dim, embedding), nn.SiLU(), nn.Linear(embedding, embedding)
        )
        self.stem, self.head = Convolution(3, dim, video), Convolution(dim, 3, video)
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        inside, rest = dim, {"embedding": embedding, "text": text, "video": video}
        skips = []
        for level, (width, attends) in enumerate(zip(widths, attend, strict=True)):
            for _ in range(blocks):
                self.down.append(Block(inside, width, attend=attends, **rest))
                skips.append(width)
                inside = width
            if level + 1 < len(widths):
                self.down.append(Convolution(width, width, video, stride=2))
        self.middle = Block(inside, inside, attend=True, **rest)
        for level, (width, attends) in reversed(list(enumerate(zip(widths, attend, strict=True)))):
            for _ in range(blocks):
                self.up.append(Block(inside + skips.pop(), width, attend=attends, **rest))
                inside = width
            if level:
                self.up.append(Convolution(width, width, video))

    def forward(self, x: Tensor, time: Tensor, text: Tensor) -> Tensor:
        """Images [B, 3, H, W] or videos [B, 3, F, H, W], [B, dim], [B, M, text] -> noise like `x`."""
        y = self.stem(x if x.dim() == 5 else x[:, :, None])
        embedding = self.time(time)
        skips: list[Tensor] = []
        for part in self.down:
            y = part(y, embedding, text) if isinstance(part, Block) else part(y)
            if isinstance(part, Block):
                skips.append(y)
        y = self.middle(y, embedding, text)
        for part in self.up:
            if isinstance(part, Block):
                y = part(torch.cat([y, skips.pop()], dim=1), embedding, text)
            else:
                y = part(functional.interpolate(y, scale_factor=(1, 2, 2)))
        y = self.head(y)
        return y if x.dim() == 5 else y[:, :, 0]


def imagen(**changes: Any) -> UNet:
    """Base model at 64 x 64 (arXiv 2205.11487, appendix F: 2 B parameters)."""
    attend = (False, True, True, True)
    return UNet(
        **{
            "dim": 512,
            "multipliers": (1, 2, 3, 4),
            "blocks": 3,
            "attend": attend,
            "text": 4096,
            **changes,
        }
    )


def make_a_video(**changes: Any) -> UNet:
    """Spatiotemporal decoder, 16 frames at 64 x 64 (arXiv 2209.14792)."""
    attend = (False, True, True, True)
    shape = {"dim": 576, "multipliers": (1, 2, 3, 4), "blocks": 3, "attend": attend, "text": 768}
    return UNet(**{**shape, "video": True, **changes})
