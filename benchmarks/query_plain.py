"""A search as ReLM publishes it: one prefix at a time, nothing remembered, every encoding a result.

Kuchnik, Smith, Amvrosiadis, "Validating Large Language Models with ReLM" (arXiv 2211.15458). Dijkstra's
algorithm over token paths: the cheapest is taken from the heap; in a final state it is a result; then the
model is given its whole prefix, alone, and the arcs among the k most probable tokens (of the unmasked
distribution, renormalised) are put on the heap. The automaton is ours: it is not what is measured here.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from holdfast.lm.query.compiling import CompiledQuery


@dataclass(frozen=True)
class Listed:
    """One result: a token path in a final state."""

    text: bytes
    cost: float
    """Minus the log-probability of the path, after the prompt."""
    evaluations: int
    """Tokens given to the model so far."""
    nodes: int
    """Prefixes given to the model so far; each is another."""
    seconds: float


def search(model: Any, compiled: CompiledQuery, top_k: int) -> Iterator[Listed]:
    """The token paths of a query, the most probable first.

    Args:
        model: a causal model of transformers.
        compiled: a query with one prompt.
        top_k: tokens that a path may use.
    """
    import torch

    (prompt,) = compiled.prompts
    automaton, tokenizer = prompt.automaton, compiled.tokenizer
    given = [*([] if tokenizer.bos is None else [tokenizer.bos]), *prompt.tokens]
    heap: list[tuple[float, tuple[int, ...], int]] = [(0.0, (), automaton.start)]
    evaluations = nodes = 0
    begin = time.perf_counter()
    while heap:
        cost, path, state = heapq.heappop(heap)
        if automaton.is_final(state):
            text = tokenizer.spell([*prompt.tokens, *path])
            yield Listed(text, cost, evaluations, nodes, time.perf_counter() - begin)
        if len(given) + len(path) > model.config.max_position_embeddings:
            continue
        with torch.inference_mode():
            ids = torch.tensor([[*given, *path]])
            logits = model(input_ids=ids, use_cache=False).logits[0, -1]
        evaluations += len(given) + len(path)
        nodes += 1
        values, best = torch.topk(logits.float(), top_k)
        chances = dict(zip(best.tolist(), values.log_softmax(-1).tolist(), strict=True))
        for token, following in zip(*automaton.arcs(state), strict=True):
            if int(token) in chances:
                entry = (cost - chances[int(token)], (*path, int(token)), int(following))
                heapq.heappush(heap, entry)
