from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.runs.ranks import compact, named, ranges


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ([], "none"),
        ([3], "3"),
        ([1, 0], "0 and 1"),
        ([0, 1, 2, 3, 7, 9], "0-3, 7 and 9"),
        (range(0, 24, 2), "0, 2, 4, 6, 8, 10, … (12 ranks)"),
    ],
)
def test_ranks_in_a_sentence(ranks: list[int], text: str) -> None:
    assert ranges(ranks) == text


def test_one_rank_and_several() -> None:
    assert named([3]) == "rank 3"
    assert named([0, 1, 2]) == "ranks 0-2"


@given(st.sets(st.integers(0, 60)))
def test_a_program_reads_all_ranks_back(ranks: set[int]) -> None:
    read = {
        rank
        for first, _, last in re.findall(r"(\d+)(-(\d+))?", compact(ranks))
        for rank in range(int(first), int(last or first) + 1)
    }
    assert read == ranks
