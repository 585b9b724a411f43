"""Protocols side by side: results, rounds and bytes against those of each alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.private.mpc.rounds import Rounds, opened_sum, opened_xor, parallel

TYPES = (np.int64, np.uint8, np.uint16, np.uint32)
Script = list[tuple[int, tuple[int, ...]]]
"""Type and shape of what a protocol sends, by round."""
scripts = st.lists(
    st.tuples(st.integers(0, 3), st.lists(st.integers(0, 3), max_size=3).map(tuple)), max_size=4
)


def sender(script: Script, rank: int, number: int) -> Rounds[list[Any]]:
    """A protocol that sends numbered arrays, and returns all that it received."""
    received = []
    for step, (kind, shape) in enumerate(script):
        count = int(np.prod(shape, dtype=int))
        payload = np.arange(count).reshape(shape) + 50 * rank + 7 * number + step
        received.append((yield payload.astype(TYPES[kind])))
    return received


def run(protocols: list[Any]) -> tuple[list[Any], list[int]]:
    """The results of parties in lock step, and the bytes of each round."""
    results: list[Any] = [None] * len(protocols)
    answers: Any = None
    sizes = []
    while True:
        sent = []
        for rank, each in enumerate(protocols):
            try:
                sent.append(next(each) if answers is None else each.send(answers))
            except StopIteration as end:
                results[rank] = end.value
        if not sent:
            return results, sizes
        sizes.append(sent[0].nbytes)
        answers = sent


@given(st.lists(scripts, max_size=4))
def test_parallel_protocols_are_each_alone_in_the_rounds_of_the_longest(many: list[Script]) -> None:
    results, sizes = run(
        [parallel(*(sender(each, rank, n) for n, each in enumerate(many))) for rank in range(3)]
    )
    alone = [run([sender(each, rank, n) for rank in range(3)]) for n, each in enumerate(many)]
    assert len(sizes) == max((len(own) for _, own in alone), default=0)
    for place, size in enumerate(sizes):
        assert size == sum(own[place] for _, own in alone if place < len(own))
    for rank in range(3):
        assert len(results[rank]) == len(many)
        for got, (wanted, _) in zip(results[rank], alone, strict=True):
            for one, other in zip(got, wanted[rank], strict=True):
                assert [each.dtype for each in one] == [each.dtype for each in other]
                assert all(map(np.array_equal, one, other))


def test_protocols_nest_and_what_a_party_sends_may_have_any_layout() -> None:
    def nested(rank: int) -> Rounds[Any]:
        grid = np.arange(12).reshape(3, 4) * (rank + 1)
        inner = parallel(sender([(0, (2,))], rank, 0), sender([], rank, 1))
        first, received = yield from parallel(inner, transposed(grid.T))
        return first, received

    def transposed(grid: np.ndarray) -> Rounds[Any]:
        return (yield grid[::2])

    results, sizes = run([nested(rank) for rank in range(2)])
    assert sizes == [8 * (2 + 6)]
    (first, nothing), received = results[1]
    assert nothing == []
    assert np.array_equal(first[0][1], [50, 51])
    assert np.array_equal(received[1], 2 * np.arange(12).reshape(3, 4).T[::2])


def test_an_error_of_one_protocol_ends_all() -> None:
    def failing() -> Rounds[None]:
        yield np.zeros(1)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run([parallel(failing(), sender([(0, (1,))] * 3, 0, 0))])


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=6))
def test_openings_are_those_of_plain_integers(shares: list[int]) -> None:
    arrays = [np.array([each]) for each in shares]
    with np.errstate(over="ignore"):
        assert int(opened_sum(arrays)[0]) % 2**64 == sum(shares) % 2**64
    every = 0
    for each in shares:
        every ^= each
    assert int(opened_xor(arrays)[0]) == every
