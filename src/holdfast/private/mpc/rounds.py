"""Protocols as generators: each `yield` gives an array to the peers and receives theirs, by rank.

Written so, protocols compose: `yield from` runs one inside another, and `parallel` runs several in the
rounds of the longest, because their messages travel together.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import reduce
from typing import Any, TypeVar

import numpy as np

Result = TypeVar("Result")
Rounds = Generator[np.ndarray, list[np.ndarray], Result]
"""A protocol with a result: yields what this party sends, receives what all parties sent (its own too)."""


def parallel(*protocols: Rounds[Any]) -> Rounds[list[Any]]:
    """Run protocols side by side: messages of one round are sent together. Results in order."""
    results: list[Any] = [None] * len(protocols)
    waiting: dict[int, np.ndarray] = {}
    answers: dict[int, list[np.ndarray] | None] = dict.fromkeys(range(len(protocols)))
    while answers:
        for number, answer in answers.items():
            try:
                protocol = protocols[number]
                waiting[number] = next(protocol) if answer is None else protocol.send(answer)
            except StopIteration as end:
                results[number] = end.value
        answers = {}
        if len(waiting) == 1:
            ((number, payload),) = waiting.items()
            answers[number] = yield payload
        elif waiting:
            flat = [
                np.ascontiguousarray(array).view(np.uint8).reshape(-1) for array in waiting.values()
            ]
            received = yield np.concatenate(flat)
            start = 0
            for (number, payload), part in zip(waiting.items(), flat, strict=True):
                cut = slice(start, start + part.size)
                answers[number] = [
                    np.ascontiguousarray(array[cut]).view(payload.dtype).reshape(payload.shape)
                    for array in received
                ]
                start += part.size
        waiting = {}
    return results


def opened_sum(shares: list[np.ndarray]) -> np.ndarray:
    """The value that arithmetic shares add up to."""
    return np.asarray(reduce(np.add, shares))


def opened_xor(shares: list[np.ndarray]) -> np.ndarray:
    """The value that binary shares XOR to."""
    return np.asarray(reduce(np.bitwise_xor, shares))
