"""The random models and patterns that calibration rests on are what they say."""

from __future__ import annotations

import math
import re

import pytest
from random_arpa import BEGIN, END, random_arpa, random_regex


@pytest.mark.parametrize("seed", range(12))
def test_a_random_model_sums_to_one_after_every_history(seed: int) -> None:
    model = random_arpa(seed, unknown=seed % 2 == 1)
    events = [gram[0] for gram in model.chances if len(gram) == 1]
    histories = [[], [BEGIN], *([BEGIN, word] for word in model.words)]
    histories += [[first, second] for first in model.words for second in model.words]
    for history in histories:
        total = math.fsum(model.probability(history, event) for event in events)
        assert total == pytest.approx(1, abs=1e-12)


def test_the_file_says_what_the_model_holds() -> None:
    model = random_arpa(2, order=3)
    text = model.text()
    assert "\\data\\" in text
    assert "\\end\\" in text
    listed = {}
    for line in text.splitlines():
        columns = line.split("\t")
        if len(columns) > 1:
            listed[tuple(columns[1].split())] = float(columns[0])
    assert listed.pop((BEGIN,)) == -99
    assert {
        gram: pytest.approx(math.log10(chance)) for gram, chance in model.chances.items()
    } == listed
    assert any(len(gram) == 3 for gram in listed)
    assert any(gram[-1] == END for gram in listed)


def test_random_patterns_compile_and_some_are_infinite() -> None:
    patterns = [random_regex(seed) for seed in range(200)]
    assert all(re.compile(pattern) for pattern in patterns)
    assert sum("*" in pattern or "+" in pattern or ",}" in pattern for pattern in patterns) > 40
    assert len(set(patterns)) > 120
    assert not any("*" in random_regex(seed, infinite=False) for seed in range(100))
