"""Decoding whose bits do not depend on how many tokens a pass computes.

A matrix product of one row and the same row inside a product of several differ in their last bits, but
rows of products of one fixed height are equal wherever they stand. So every pass is padded to `ROWS`
rows, attention is computed over blocks of `SPLIT` keys of fixed shape, and blocks are added in their
order: a block without visible keys adds zero. Plain and speculative decoding then agree bit by bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from holdfast.errors import InputError
from holdfast.lm.generate.arena import Arena
from holdfast.lm.generate.decoder import Decoder

ROWS = 8
"""Rows of every pass: at most `ROWS` - 1 drafts."""
SPLIT = 64
"""Keys per block of attention."""


class ExactDecoder(Decoder):
    """A decoder that pads every pass of fewer than `ROWS` rows."""

    def run(self, x: Tensor, *place: Any, **more: Any) -> Tensor:
        """As `Decoder.run`; the padding's keys are overwritten by the next pass."""
        return super().run(_padded(x), *place, **more)[:, : x.shape[1]]

    def logits(self, x: Tensor) -> Tensor:
        """As `Decoder.logits`."""
        return super().logits(_padded(x))[:, : x.shape[1]]


class ExactArena(Arena):
    """Attention by blocks of `SPLIT` keys; every block is a product of the same shape."""

    joins = False

    def __init__(self, decoder: Decoder, batch: int, capacity: int) -> None:
        super().__init__(decoder, batch, -(-capacity // SPLIT) * SPLIT)

    def begin(self, starts: Sequence[int], rows: int, counts: Sequence[int] = ()) -> None:
        """The mask of whole blocks."""
        super().begin(starts, rows)
        self._blocks = -(-self._end // SPLIT)
        columns = self._columns[: self._blocks * SPLIT]
        places = columns.new_tensor(list(starts))[:, None] + self._columns[:rows]
        self._hidden = columns > places[:, None, :, None]  # [B, 1, M, S]

    def attend(self, layer: int, q: Tensor) -> Any:
        """Scores, exponentials and weighted sums block by block, added in the order of the blocks."""
        batch, heads, rows, size = q.shape
        end = self._blocks * SPLIT
        k = self.k[layer, :, :, :end].repeat_interleave(self._groups, 1)
        v = self.v[layer, :, :, :end].repeat_interleave(self._groups, 1)
        shape = (batch, heads, self._blocks, SPLIT, size)
        wide = q[:, :, None].expand(-1, -1, self._blocks, -1, -1).reshape(-1, rows, size)
        scores = (
            torch.bmm(wide, k.reshape(shape).flatten(0, 2).transpose(1, 2)) * self._scales[layer]
        )
        scores = scores.view(batch, heads, self._blocks, rows, SPLIT)
        hidden = self._hidden.view(batch, 1, rows, self._blocks, SPLIT).transpose(2, 3)
        scores = scores.masked_fill(hidden, float("-inf"))
        weights = (scores - scores.amax((2, 4), keepdim=True)).exp_()
        # The sum of the weights is one more value; eight of them keep products of whole vectors.
        values = torch.cat((v, v.new_ones(*v.shape[:-1], 8)), -1)
        values = values.reshape(*shape[:-1], size + 8).flatten(0, 2)
        parts = torch.bmm(weights.reshape(-1, rows, SPLIT), values)
        parts = parts.view(batch, heads, self._blocks, rows, size + 8)
        total = parts[:, :, 0]
        for block in range(1, self._blocks):
            total = total + parts[:, :, block]
        return total[..., :size] / total[..., size : size + 1]


def check_exact(decoder: ExactDecoder) -> None:
    """Compare passes of one row and of several on this machine, bit by bit.

    Raises:
        InputError: ``unsupported`` if the rows of a product depend on where they stand, as with odd widths.
    """
    first = min(SPLIT - ROWS // 2, decoder.arch.context - ROWS)
    tokens = torch.arange(first + ROWS, device=decoder.device) % len(decoder.arch.embedding.weight)
    results = []
    with torch.inference_mode():
        for step in (1, ROWS):
            arena = ExactArena(decoder, 1, first + 2 * ROWS)
            decoder.run(decoder.embed(tokens[None, :first], [0]), arena, [0])
            passes = []
            for place in range(first, first + ROWS, step):
                x = decoder.embed(tokens[None, place : place + step], [place])
                passes.append(decoder.logits(decoder.run(x, arena, [place])))
            results.append(torch.cat(passes, 1))
    decoder.rows[:] = [0] * len(decoder.rows)
    if not torch.equal(*results):
        raise InputError(
            "exact decoding is not possible for this model on this machine",
            code="unsupported",
            place="exact",
            found="a pass of one row and a pass of several differ in their last bits",
            remedy="leave out --exact: differences are then limited to near-ties, which are listed",
        )


def _padded(x: Tensor) -> Tensor:
    return F.pad(x, (0, 0, 0, ROWS - x.shape[1])) if x.shape[1] < ROWS else x
