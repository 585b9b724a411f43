"""Byte-pair merging, plainly, and when tiktoken's quicker rule gives the same."""

from __future__ import annotations

import itertools
import math

from holdfast.lm.tokenizers.tokenizer import Merges


def pair_table(merges: Merges) -> dict[tuple[int, int], tuple[int, int]]:
    """(left, right) -> (rank, merged)."""
    pairs = zip(merges.left.tolist(), merges.right.tolist(), strict=True)
    results = zip(merges.rank.tolist(), merges.merged.tolist(), strict=True)
    return dict(zip(pairs, results, strict=True))


def merged(tokens: list[int], pairs: dict[tuple[int, int], tuple[int, int]]) -> list[int]:
    """Base tokens of one word after all merges: the lowest rank first, the leftmost among equals."""
    tokens = list(tokens)
    while True:
        waiting = [
            (pairs[pair][0], place)
            for place, pair in enumerate(itertools.pairwise(tokens))
            if pair in pairs
        ]
        if not waiting:
            return tokens
        _, place = min(waiting)
        tokens[place : place + 2] = [pairs[tokens[place], tokens[place + 1]][1]]


def results_tell_merges(merges: Merges) -> bool:
    """Whether merging pairs by the rank of the joined token gives the same result as the merges.

    tiktoken does so, and keeps a word that is a token. Both are correct if every token has exactly one
    merge, of tokens with lower ranks, and if the bytes of every token encode to that token. Then two
    tokens whose join is a token are adjacent only if they are its parts: as long as nothing crosses the
    edges of their span, merging inside it is the same as merging those bytes alone. Trained merges have
    this property.
    """
    made = {
        token: (rank, left, right) for (left, right), (rank, token) in pair_table(merges).items()
    }
    if len(made) < len(merges.merged):
        return False
    ranks = {token: rank for token, (rank, _, _) in made.items()}
    if any(
        ranks.get(part, -1) >= rank for rank, left, right in made.values() for part in (left, right)
    ):
        return False
    pairs = {(left, right): rank for rank, left, right in made.values()}
    return all(_stays_apart(left, right, rank, made, pairs) for rank, left, right in made.values())


def _stays_apart(
    left: int,
    right: int,
    before: float,
    made: dict[int, tuple[int, int, int]],
    pairs: dict[tuple[int, int], int],
) -> bool:
    """Whether no merge crosses from `left` to `right` before rank `before`.

    Goes back in time: the part made last is undone, on the side that touches the other token. Of two made
    by the same merge the right one is younger; a crossing merge of the same rank comes before the right
    one, and after the left one.
    """
    ties_cross = False
    while True:
        crossing = pairs.get((left, right), math.inf)
        if crossing < before or (ties_cross and crossing == before):
            return False
        left_rank = made[left][0] if left in made else -1
        right_rank = made[right][0] if right in made else -1
        if left_rank == right_rank == -1:
            return True
        if right_rank >= left_rank:
            before, ties_cross = right_rank, True
            right = made[right][1]
        else:
            before, ties_cross = left_rank, False
            left = made[left][2]
