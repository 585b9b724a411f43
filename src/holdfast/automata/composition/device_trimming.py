"""Trimming in torch: which states of a composition reach a final state, and what is left of its arcs."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.errors import MissingExtraError

try:
    import torch
    from torch import Tensor
except ModuleNotFoundError as error:
    raise MissingExtraError("torch", "torch") from error

SWEEPS = 6
"""Sweeps over all arcs before arcs are turned around: most machines need two."""


class Block(NamedTuple):
    """The arcs of n states with consecutive numbers; m arcs."""

    first: int
    """The number of the first of the states."""
    ends: Tensor
    """i64[n] where the arcs of each state end."""
    arc_a: Tensor
    """i32[m] positions in the sorted view of A."""
    arc_b: Tensor
    """i32[m] positions in the sorted view of B."""
    nextstate: Tensor
    """i32[m]"""

    @property
    def counts(self) -> Tensor:
        """i64[n] the number of arcs of each state."""
        return torch.diff(self.ends, prepend=self.ends.new_zeros(1))

    @property
    def source(self) -> Tensor:
        """i64[m] the state that each arc leaves."""
        states = torch.arange(self.first, self.first + len(self.ends), device=self.ends.device)
        return torch.repeat_interleave(states, self.counts, output_size=len(self.nextstate))


def coaccessible(blocks: list[Block], is_final: Tensor) -> Tensor:
    """The states from which a final state is reached: bool[V].

    Breadth-first numbers rise along most paths, so sweeps over the blocks from the last to the first are
    soon done. Where they are not, the arcs out of states still unmarked are followed backwards.
    """
    reaches = is_final.clone()
    marked = int(reaches.sum())
    for _ in range(SWEEPS):
        if marked == len(reaches):
            return reaches
        for block in reversed(blocks):
            hits = reaches.index_select(0, block.nextstate).cumsum(0, dtype=torch.int32)
            up_to = torch.nn.functional.pad(hits, (1, 0))[block.ends]
            some = torch.diff(up_to, prepend=up_to.new_zeros(1)) > 0
            reaches[block.first : block.first + len(some)] |= some
        before, marked = marked, int(reaches.sum())
        if marked == before:
            return reaches
    return _followed_backwards(blocks, reaches)


def _followed_backwards(blocks: list[Block], reaches: Tensor) -> Tensor:
    sources, targets = [], []
    for block in blocks:
        source = block.source
        unmarked = torch.nonzero(~reaches[source]).squeeze(1)
        sources.append(source[unmarked].to(torch.int32))
        targets.append(block.nextstate[unmarked])
    target, order = torch.sort(torch.cat(targets), stable=True)
    source = torch.cat(sources)[order]
    states = torch.arange(len(reaches) + 1, dtype=torch.int32, device=reaches.device)
    begin = torch.searchsorted(target, states)
    frontier = torch.nonzero(reaches).squeeze(1)
    while len(frontier):
        counts = begin[frontier + 1] - begin[frontier]
        total = int(counts.sum())
        within = torch.arange(total, device=reaches.device)
        within -= torch.repeat_interleave(counts.cumsum(0) - counts, counts, output_size=total)
        entering = source[
            torch.repeat_interleave(begin[frontier], counts, output_size=total) + within
        ]
        frontier = torch.unique(entering[~reaches[entering]])
        reaches[frontier] = True
    return reaches


def trimmed(blocks: list[Block], reaches: Tensor) -> list[Block]:
    """The arcs between states that are marked in bool[V], which are numbered anew in their order.

    The other states stay in the blocks, without arcs. The list given is emptied, to free its memory.
    """
    number = reaches.cumsum(0, dtype=torch.int32) - 1
    made = []
    blocks.reverse()
    while blocks:
        block = blocks.pop()
        keep = reaches[block.source] & reaches.index_select(0, block.nextstate)
        ends = torch.nn.functional.pad(keep.cumsum(0), (1, 0))[block.ends]
        kept = torch.nonzero(keep).squeeze(1)
        nextstate = number.index_select(0, block.nextstate[kept])
        made.append(Block(block.first, ends, block.arc_a[kept], block.arc_b[kept], nextstate))
    return made
