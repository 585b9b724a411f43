"""Keys and values of a batch of sequences, allocated once: appending is a write, cropping moves no data.

A position is an address. A pass over M new tokens per sequence writes at given positions
and reads the positions up to each token, so that layers may lag behind one another (a draft runs the
early layers first), and what a rejected draft left behind is overwritten before anything reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from holdfast.lm.generate.decoder import Block, Decoder


class Cache(Protocol):
    """What a decoder needs from its keys and values; a policy for fewer heads replaces the arena.

    Shapes: B sequences, M new tokens of each, H query heads, G key/value heads of size hd.
    """

    joins: bool
    """Whether a pass may have different numbers of rows per sequence (`counts` of `begin`)."""

    def begin(self, starts: Sequence[int], rows: int, counts: Sequence[int] = ()) -> None:
        """Start a pass: token i of sequence b has position ``starts[b] + i``, i < `rows`.

        With `counts`, sequence b has ``counts[b]`` rows, and a pass is one line of them: B is 1 and M
        their sum in the shapes of `project`, `append` and `attend`.
        """

    def project(self, layer: int, block: Block, x: Any) -> tuple[Any, Any, Any]:
        """Rows x [B, M, D] -> q [B, H', M, hd], k [B, G', M, hd], v [B, G, M, hd], before rotation."""

    def append(self, layer: int, k: Any, v: Any) -> None:
        """Store the rotated keys, and the values, of the pass."""

    def attend(self, layer: int, q: Any) -> Any:
        """[B, H', M, hd] -> [B, H, M, hd]; a query sees the keys up to its own position."""

    def crop(self, lengths: Sequence[int]) -> None:
        """Forget the tokens of sequence b from position ``lengths[b]`` on."""

    def select(self, rows: Sequence[int]) -> None:
        """Go on with fewer sequences: ``rows[b]`` is the former place of sequence b.

        It is b, or behind the last that remains.
        """

    def expect(self, lengths: Sequence[int]) -> None:
        """Number of tokens of each sequence that the first pass stores; called before it."""

    def split(self, starts: Sequence[int], rows: int) -> int:
        """How many rows of a pass are computed through all its layers before the others."""

    def nbytes(self) -> int:
        """Storage of the keys and values."""


class Arena:
    """Keys and values of all heads in two tensors [L, B, G, S, hd].

    Args:
        decoder: whose layers write.
        batch: number of sequences B.
        capacity: positions S of each, rejected drafts included.
    """

    joins = True

    def __init__(self, decoder: Decoder, batch: int, capacity: int) -> None:
        import torch

        arch = decoder.arch
        shape = (len(arch.layers), batch, arch.kv_heads, capacity, arch.head_size)
        # Zeros, not empty: masked positions are multiplied by 0, which NaN would survive.
        self.k = torch.zeros(shape, dtype=decoder.dtype, device=decoder.device)
        self.v = torch.zeros_like(self.k)
        self._scales = [block.scale for block in decoder.blocks]
        self._groups = arch.query_heads // arch.kv_heads
        self._columns = torch.arange(capacity, device=decoder.device)

    def begin(self, starts: Sequence[int], rows: int, counts: Sequence[int] = ()) -> None:
        """Where the pass writes and what it sees."""
        rows = max(counts, default=rows)
        self._start, self._count = starts[0], rows
        self._end = max(starts) + rows
        self._uniform = not counts and all(start == starts[0] for start in starts)
        self._mask, self._line = None, None
        if counts:
            needed = self._columns[:rows] < self._columns.new_tensor(counts)[:, None]  # [B, M]
            self._line = needed.flatten().nonzero()[:, 0]  # places in [B M] of the rows
            self._spread = (needed.flatten().cumsum(0) - 1).clamp_(min=0)  # and back
        if self._uniform and (rows == 1 or self._start == 0):
            return
        columns = self._columns[: self._end]
        first = columns.new_tensor(starts)[:, None]
        self._places = first + self._columns[:rows]  # [B, M]
        if self._uniform:
            self._places = self._places[:1]
        texts = columns.new_tensor(range(len(starts)))[:, None]
        self._address = (texts, self._places)
        if self._line is not None:
            self._address = tuple(
                part.expand(-1, rows).flatten()[self._line] for part in self._address
            )
        hidden = columns > self._places[:, None, :, None]
        mask = self.v.new_zeros(hidden.shape).masked_fill_(hidden, float("-inf"))
        # Query heads of one group are rows of one product with their shared keys.
        self._mask = mask.repeat(1, 1, self._groups, 1)

    def project(self, layer: int, block: Block, x: Any) -> tuple[Any, Any, Any]:
        """All heads."""
        return block.project(x)

    def append(self, layer: int, k: Any, v: Any) -> None:
        """A slice where sequences are equally long, else one scattered write."""
        if self._uniform:
            where = (slice(len(k)), slice(None), slice(self._start, self._end))
            self.k[layer][where], self.v[layer][where] = k, v
        else:
            for storage, part in ((self.k[layer], k), (self.v[layer], v)):
                rows = part.transpose(1, 2)  # [B, M, G, hd]
                if self._line is not None:
                    rows = rows[0]
                storage.transpose(1, 2).index_put_(self._address, rows)

    def attend(self, layer: int, q: Any) -> Any:
        """Scaled dot-product attention over the stored positions."""
        from torch.nn.functional import scaled_dot_product_attention

        if self._line is not None:
            q = q[0][:, self._spread].unflatten(1, (-1, self._count)).transpose(0, 1)
        k, v = (part[layer][: len(q), :, : self._end] for part in (self.k, self.v))
        scale = self._scales[layer]
        if self._mask is None and self._count > 1:
            return scaled_dot_product_attention(
                q, k, v, is_causal=True, scale=scale, enable_gqa=self._groups > 1
            )
        shape = q.shape
        if self._groups > 1:  # [B, G, r M, hd]
            q = q.reshape(shape[0], k.shape[1], -1, shape[3])
        out = scaled_dot_product_attention(q, k, v, attn_mask=self._mask, scale=scale)
        out = out.reshape(shape)
        if self._line is not None:
            return out.transpose(0, 1).flatten(1, 2)[:, self._line][None]
        return out

    def crop(self, lengths: Sequence[int]) -> None:
        """Nothing moves: the next pass says where it writes."""

    def select(self, rows: Sequence[int]) -> None:
        """Copy what moves; the storage stays."""
        for storage in (*self.k, *self.v):
            for row, source in enumerate(rows):
                if row != source:
                    storage[row, :, : self._end] = storage[source, :, : self._end]

    def expect(self, lengths: Sequence[int]) -> None:
        """All tokens are treated alike."""

    def split(self, starts: Sequence[int], rows: int) -> int:
        """All rows at once."""
        return rows

    def nbytes(self) -> int:
        """Allocated bytes."""
        return self.k.untyped_storage().nbytes() + self.v.untyped_storage().nbytes()
