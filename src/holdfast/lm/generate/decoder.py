"""The forward pass by ranges of layers, on weights joined for it; for inference only.

Rotary pairs are stored side by side (the rows of queries and keys are permuted alike, which leaves
their products unchanged), so that a rotation is one product with complex numbers.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from holdfast.lm.generate.architectures import Architecture, layer_parts
from holdfast.lm.generate.arena import Cache

PACKED_WEIGHTS = 1 << 17
"""Matrices of fewer weights stay in the cache, where packing gains nothing."""
PACKED_BYTES = 8 << 30
"""Models with more bytes of weights are not held twice."""
STREAMED_WEIGHTS = 1 << 15
"""Matrices from so many weights on are multiplied by `_kernels` where one thread computes."""
STREAMED_ROWS = 16
"""Most rows of such a product, in float32; oneDNN is faster for more, and for more than one in bfloat16."""
_EXPECTED_ROWS = 16  # oneDNN chooses the order of packed weights for passes of so many rows


class Linear:
    """A linear map, with the storage that the products of its size read fastest on a CPU.

    One thread computes products of few rows by `_kernels`, up to 1.9 times as fast as oneDNN. Matrices that
    are not multiplied so are stored [D, N]: a product with one row is then up to 1.6 times as fast.

    Args:
        weight: [N, D].
        bias: [N] or None.
        pack: keep a second copy of a large matrix in the order of oneDNN's kernels, for passes of several
            rows on a CPU: four rows of 2,048 x 16,384 weights then cost 1.2 times as much as one, not 4.
            In bfloat16, where a CPU has instructions for it, also for one row of several threads.
        shared: keep the storage as it is, which others read too.
    """

    def __init__(
        self, weight: Tensor, bias: Tensor | None, pack: bool = False, shared: bool = False
    ) -> None:
        self.bias, self._packed, self._least_rows = bias, None, 2
        if pack and weight.numel() >= PACKED_WEIGHTS and _packable(weight):
            self._packed = torch.ops.mkldnn._reorder_linear_weight(
                weight.contiguous(), _EXPECTED_ROWS
            )
            self._least_rows = 2 if weight.dtype == torch.float32 else 1
        self._streamed_rows = _streamed_rows(weight)
        rows_first = shared or self._streamed_rows
        self.weight = weight.contiguous() if rows_first else weight.t().contiguous().t()
        """[N, D]."""

    def __call__(self, x: Tensor) -> Tensor:
        """Rows x [B, M, D] -> [B, M, N]."""
        batch, rows, width = x.shape
        if batch * rows <= self._streamed_rows:
            out = self._stream(x.reshape(-1, width).float().contiguous().numpy())
            return out.to(x.dtype).view(batch, rows, -1)
        if self._packed is not None and batch * rows >= self._least_rows:
            multiply = torch.ops.mkldnn._linear_pointwise
            return cast(Tensor, multiply(x, self._packed, self.bias, "none", [], ""))
        return F.linear(x.reshape(-1, width), self.weight, self.bias).view(batch, rows, -1)

    def _stream(self, x: Any) -> Tensor:
        """Rows x [M, D] -> [M, N], in float32."""
        from holdfast.lm.generate._kernels import matrix_rows, matrix_vector

        half = self.weight.dtype == torch.bfloat16
        numbers = self.weight.view(torch.uint16 if half else torch.float32).numpy()
        out = torch.empty(len(x), len(self.weight), dtype=torch.float32)
        if len(x) == 1:
            matrix_vector(numbers, x[0], out[0].numpy())
        else:
            matrix_rows(numbers, x, out.numpy())
        return out if self.bias is None else out + self.bias


def _streamed_rows(weight: Tensor) -> int:
    """Most rows whose product with a matrix is fastest by `_kernels`; 0 for none."""
    large = weight.numel() >= STREAMED_WEIGHTS and len(weight) >= 4
    if weight.device.type != "cpu" or torch.get_num_threads() > 1 or not large:
        return 0
    return {torch.float32: STREAMED_ROWS, torch.bfloat16: 1}.get(weight.dtype, 0)


def _packable(weight: Tensor) -> bool:
    """Whether this torch and this CPU have fast products with packed weights of the type."""
    operators = torch.ops.mkldnn
    if weight.device.type != "cpu" or not hasattr(operators, "_reorder_linear_weight"):
        return False
    fast = weight.dtype == torch.bfloat16 and operators._is_mkldnn_bf16_supported()
    return fast or weight.dtype == torch.float32


class Block(nn.Module):
    """One decoder layer; a forward hook on it sees the rows that it computes."""

    def __init__(
        self, arch: Architecture, number: int, rotated: Tensor | None, pack: bool = False
    ) -> None:
        super().__init__()
        parts = layer_parts(arch, number)
        self.number = number
        self.heads, self.kv_heads, self.size = arch.query_heads, arch.kv_heads, arch.head_size
        self.scale, self.gated, self.parallel = parts.scale, parts.gated, parts.parallel
        self.activation = F.silu if isinstance(parts.activation, nn.SiLU) else parts.activation
        weight, bias = parts.qkv
        self.output, self.up, self.down = (
            Linear(*parts.output, pack),
            Linear(*parts.up, pack),
            Linear(*parts.down, pack),
        )
        self.attention_norm, self.mlp_norm = _norm(parts.attention_norm), _norm(parts.mlp_norm)
        self.query_norm, self.key_norm = (
            _norm(parts.query_norm, rotated),
            _norm(parts.key_norm, rotated),
        )
        if rotated is not None:
            count = self.heads + self.kv_heads
            rows = torch.arange(len(weight), device=weight.device).view(-1, self.size)
            rows[:count] = rows[:count, rotated]
            weight = weight[rows.flatten()]
            bias = None if bias is None else bias[rows.flatten()]
        self.qkv = Linear(weight, bias, pack)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Rows x [B, M, D] -> q [B, H, M, hd], k [B, G, M, hd], v [B, G, M, hd]."""
        batch, rows, _ = x.shape
        joined = self.qkv(x).view(batch, rows, -1, self.size).transpose(1, 2)
        return joined.split((self.heads, self.kv_heads, self.kv_heads), 1)  # type: ignore[return-value]

    def head_rows(self, part: str, heads: Sequence[int]) -> tuple[Tensor, Tensor | None]:
        """Weight [n hd, D] and bias of some heads of the query, key or value projection."""
        first = {"query": 0, "key": self.heads, "value": self.heads + self.kv_heads}[part]
        rows = (torch.tensor(heads)[:, None] + first) * self.size + torch.arange(self.size)
        rows = rows.flatten().to(self.qkv.weight.device)
        return self.qkv.weight[rows], None if self.qkv.bias is None else self.qkv.bias[rows]

    def forward(self, x: Tensor, cache: Cache, turns: Tensor | None) -> Tensor:
        """Rows x [B, M, D] and the rotations [B or 1, 1, M, hd / 2] of its positions -> [B, M, D]."""
        batch, rows, _ = x.shape
        normed = self.attention_norm(x)
        q, k, v = cache.project(self.number, self, normed)
        if self.query_norm is not None:
            q, k = self.query_norm(q), self.key_norm(k)
        if turns is not None:
            q, k = _rotate(q, turns), _rotate(k, turns)
        cache.append(self.number, k, v)
        mixed = cache.attend(self.number, q).transpose(1, 2).reshape(batch, rows, -1)
        attended = x + self.output(mixed)
        up = self.up(self.mlp_norm(x if self.parallel else attended))
        if self.gated:
            gate, up = up.chunk(2, -1)
            up = self.activation(gate) * up
        else:
            up = self.activation(up)
        return attended + self.down(up)


class Decoder:
    """A model as a function of hidden states: `embed`, `run` over layers, `logits`.

    Args:
        arch: of `architecture`.
        release: drop the weights of the model's own layers once they are joined here, so that a large
            model is not held twice; the model itself can then no longer be used.
        copies: hold large matrices a second time, in the order of oneDNN's kernels.
    """

    def __init__(self, arch: Architecture, release: bool = False, copies: bool = True) -> None:
        self.arch = arch
        table = arch.embedding.weight
        self.dtype, self.device = table.dtype, table.device
        self.clock = time.thread_time if self.device.type == "cpu" else time.perf_counter
        """Seconds, to compare rounds by: on a CPU those of this thread, which other work cannot extend."""
        self.blocks: list[Block] = []
        self.rows = [0] * len(arch.layers)
        """Tokens that each layer has computed."""
        self._table = table.detach()
        self._positions = None if arch.positions is None else arch.positions.weight.detach()
        self._norm = _norm(arch.norm)
        bias = getattr(arch.head, "bias", None)
        weights = [arch.head.weight, *(p for layer in arch.layers for p in layer.parameters())]
        pack = copies and sum(weight.nbytes for weight in weights) <= PACKED_BYTES
        bias = None if bias is None else bias.detach()
        self._head = Linear(arch.head.weight.detach(), bias, pack, shared=not copies)
        self._columns = torch.arange(arch.context + 1, device=self.device)
        with torch.inference_mode():
            rotated = None if arch.rotary is None else self._measure_rotary()
            for number, layer in enumerate(arch.layers):
                self.blocks.append(Block(arch, number, rotated, pack).requires_grad_(False))
                if release:
                    layer.to("meta")

    @property
    def head_share(self) -> float:
        """Share of the head in the weights of layers and head."""
        block = self.blocks[0]
        maps = (block.qkv, block.output, block.up, block.down)
        layers = len(self.blocks) * sum(one.weight.numel() for one in maps)
        return self._head.weight.numel() / (layers + self._head.weight.numel())

    def _measure_rotary(self) -> Tensor:
        """Fill the table of rotations [S, hd / 2]; returns the order that puts pairs side by side."""
        arch, size = self.arch, self.arch.head_size
        cos, sin = arch.rotary(self._table.new_zeros(1, dtype=torch.float32), self._columns[None])
        pairs = cos.shape[-1] // 2
        turns = torch.complex(cos[0, :, :pairs].float(), sin[0, :, :pairs].float())
        rest = torch.ones(len(turns), size // 2 - pairs, dtype=turns.dtype, device=turns.device)
        self._turns = torch.cat((turns, rest), 1)  # dimensions that are not rotated turn by 1
        if self.dtype == torch.float64:
            self._turns = self._turns.to(torch.complex128)
        order = torch.arange(size, device=self.device)
        order[: 2 * pairs] = order[: 2 * pairs].view(2, pairs).T.flatten()
        return order

    def embed(self, tokens: Tensor, starts: Sequence[int]) -> Tensor:
        """Tokens [B, M], the first at positions `starts` [B] -> [B, M, D]."""
        x = F.embedding(tokens, self._table)
        if self._positions is not None:
            x = x + F.embedding(
                self._places(starts, tokens.shape[1]) + self.arch.position_offset, self._positions
            )
        return x

    def run(
        self,
        x: Tensor,
        cache: Cache,
        starts: Sequence[int],
        first: int = 0,
        last: int | None = None,
        counts: Sequence[int] = (),
    ) -> Tensor:
        """Hidden states [B, M, D] at positions from `starts` on, after layers `first` to `last` - 1.

        With `counts`, x [1, N, D] has the rows of all texts in one line, ``counts[b]`` of text b.
        """
        batch, rows, _ = x.shape
        head = cache.split(starts, rows)
        if head < rows:
            later = [start + head for start in starts]
            parts = (x[:, :head], starts), (x[:, head:], later)
            return torch.cat([self.run(part, cache, at, first, last) for part, at in parts], 1)
        cache.begin(starts, rows, counts)
        turns = None
        if self.arch.rotary is not None:
            if counts:
                places = self._places(starts, max(counts))
                pairs = zip(places, counts, strict=True)
                turns = self._turns[torch.cat([row[:count] for row, count in pairs])]
            elif all(start == starts[0] for start in starts) and starts[0] + rows <= len(
                self._turns
            ):
                turns = self._turns[starts[0] : starts[0] + rows]
            else:
                turns = self._turns[self._places(starts, rows)][:, None]
        for block in self.blocks[first:last]:
            x = block(x, cache, turns)
            self.rows[block.number] += batch * rows
        return x

    def logits(self, x: Tensor) -> Tensor:
        """[B, M, D] -> [B, M, V]: the final norm and the head."""
        return self._head(self._norm(x))

    def _places(self, starts: Sequence[int], rows: int) -> Tensor:
        """[B, M] positions; padding past the context is computed at its end and never read."""
        first = self._columns.new_tensor(starts)[:, None]
        return (first + torch.arange(rows, device=self.device)).clamp_(max=self.arch.context - 1)


def _norm(module: Any, order: Tensor | None = None) -> Any:
    """A norm as a function; `order` permutes its weights as the rows before it are."""
    if module is None:
        return None
    weight: Any = None if module.weight is None else module.weight.detach()
    bias = getattr(module, "bias", None)
    bias = None if bias is None else bias.detach()
    if order is not None:
        weight = weight[order]
    if isinstance(module, nn.LayerNorm):
        shape, eps = module.normalized_shape, module.eps
        return lambda x: F.layer_norm(x, shape, weight, bias, eps)
    eps, width = module.variance_epsilon, len(weight)
    if weight.device.type != "cpu" or weight.dtype not in (torch.float32, torch.float64):
        return lambda x: F.rms_norm(x, (width,), weight, eps)
    offset = weight.new_tensor(eps)

    def rms(x: Tensor) -> Tensor:
        # Four small operations take half the time of F.rms_norm on a CPU.
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        return x * torch.rsqrt(torch.addcmul(offset, length, length, value=1 / width)) * weight

    return rms


def _rotate(x: Tensor, turns: Tensor) -> Tensor:
    """Heads x [B, H, M, hd] by turns [.., M, hd / 2], pairs side by side."""
    wide = x if x.dtype in (torch.float32, torch.float64) else x.float()
    pairs = torch.view_as_complex(wide.reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turns).flatten(-2).to(x.dtype)
