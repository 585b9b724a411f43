"""Machines made from data: one string, a prefix tree, a lexicon, the scores of a network."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from machines import relation

from holdfast.automata import Fst, SymbolTable
from holdfast.automata.algebra.strings import linear_emissions, string_fst, trie
from holdfast.errors import InputError

LETTERS = SymbolTable.of(["a", "b", "c"])


def test_one_string() -> None:
    made = string_fst([3, 1, 1], weight=0.5, semiring="log")
    assert relation(made) == {((3, 1, 1), (3, 1, 1)): 0.5}
    assert made.num_states == 4
    assert relation(string_fst("", semiring="log")) == {((), ()): 0.0}
    assert string_fst("añ", semiring="log").ilabel.tolist() == [ord("a"), ord("ñ")]
    assert string_fst("c a", LETTERS, semiring="log").ilabel.tolist() == [3, 1]
    assert string_fst(["c", "a"], LETTERS, semiring="log").osymbols is LETTERS
    assert string_fst([1], semiring="probability").finals == {1: 1.0}


@pytest.mark.parametrize("semiring", ["tropical", "log64"])
def test_the_tree_of_random_strings(semiring: str) -> None:
    for seed in range(60):
        chance = random.Random(seed)
        strings = [
            tuple(chance.randint(1, 3) for _ in range(chance.randint(0, 5)))
            for _ in range(seed % 9)
        ]
        weights = [chance.randint(0, 16) / 8 for _ in strings]
        made = trie(strings, weights=weights, semiring=semiring)
        wanted = {}
        for string, weight in zip(strings, weights, strict=True):
            one = wanted.get((string, string), math.inf)
            wanted[string, string] = (
                min(one, weight)
                if semiring == "tropical"
                else -math.log(math.exp(-one) + math.exp(-weight))
            )
        assert relation(made) == pytest.approx(wanted)
        # Deterministic, and not larger than it must be: as many states as there are prefixes.
        prefixes = {string[:length] for string in strings for length in range(len(string) + 1)}
        assert made.num_states == max(len(prefixes), 1)
        assert made.num_arcs == made.num_states - 1
        assert all(
            made.ilabel[at] < made.ilabel[at + 1]
            for state in range(made.num_states)
            for at in range(int(made.offsets[state]), int(made.offsets[state + 1]) - 1)
        )


def test_a_lexicon_reads_sounds_and_writes_words() -> None:
    words = SymbolTable.of(["one", "won", "two"])
    made = trie(
        ["a b", "a b", "a c"],
        LETTERS,
        outputs=[1, 2, 3],
        osymbols=words,
        weights=[0, 1, 2],
        semiring="log",
    )
    assert relation(made) == {((1, 2), (1,)): 0, ((1, 2), (2,)): 1, ((1, 3), (3,)): 2}
    assert made.osymbols is words
    assert len(made.finals) == 1
    assert relation(trie([], outputs=[], semiring="log")) == {}


def test_scores_over_time() -> None:
    scores = np.log([[0.5, 0.25], [0.125, 1.0]])
    made = linear_emissions(scores, semiring="log64")
    assert relation(made) == pytest.approx(
        {
            ((i + 1, j + 1),) * 2: -float(scores[0, i] + scores[1, j])
            for i in range(2)
            for j in range(2)
        }
    )
    assert made.weight.reshape(2, 2) == pytest.approx(-scores)  # arc t * L + l
    likely = linear_emissions(scores, [7, 9], semiring="probability")
    assert likely.weight.tolist() == pytest.approx([0.5, 0.25, 0.125, 1.0])
    assert likely.ilabel.tolist() == [7, 9, 7, 9]
    assert linear_emissions(np.zeros((0, 3)), semiring="log").finals == {0: 0.0}
    assert linear_emissions([[-np.inf, 0.0]], semiring="boolean").weight.tolist() == [0.0, 1.0]


def test_bad_input_is_refused() -> None:
    with pytest.raises(InputError, match="position 1"):
        string_fst([1, 0], semiring="log")
    with pytest.raises(InputError, match="unknown symbol"):
        string_fst("a x", LETTERS, semiring="log")
    with pytest.raises(InputError, match="symbols="):
        string_fst(["a"], semiring="log")
    with pytest.raises(InputError, match="invalid scores"):
        linear_emissions(np.zeros(3), semiring="log")
    with pytest.raises(InputError, match="time 0, column 1"):
        linear_emissions([[0.0, np.nan]], semiring="log")
    with pytest.raises(InputError, match="3 columns"):
        linear_emissions(np.zeros((2, 3)), [1, 2], semiring="log")
    assert isinstance(trie([], semiring="log"), Fst)


def test_each_string_has_an_output_and_a_weight() -> None:
    with pytest.raises(InputError, match="1 outputs for 2 strings"):
        trie([[1], [1, 2]], outputs=[1], semiring="log")
    with pytest.raises(InputError, match="3 weights for 2 strings"):
        trie([[1], [1, 2]], weights=[0.0, 1.0, 2.0], semiring="log")
