"""Numbers of token sequences, against enumeration, transducers, and cutting a text in all ways."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import toy
from token_acceptors import token_acceptor

from holdfast import automata as fa
from holdfast.errors import InputError
from holdfast.lm.query.regex.dfa import DEAD, ByteDfa
from holdfast.lm.query.regex.language import compile_regex
from holdfast.lm.query.tokens.automaton import TokenAutomaton
from holdfast.lm.query.tokens.counting import count_token_paths
from holdfast.lm.query.tokens.lexicon import Lexicon
from holdfast.lm.query.tokens.spelling import SpellingAutomaton, index
from holdfast.lm.tokenizers.loading import load_tokenizer
from holdfast.lm.tokenizers.tokenizer import Tokenizer

FINITE = ["a", "a|aa", "(ab|é){1,3}", "[a-c]{3}-?", "(12|1){0,3}x?", "", "a(b|bc)?( a| b)?"]
INFINITE = ["a*", "(ab|é)+", "a[bc]*-", "(1|2)*(x|xx)"]


class Plain:
    """An automaton that offers nothing but what the protocol asks for."""

    def __init__(self, inner: TokenAutomaton) -> None:
        self.inner = inner
        self.start = inner.start

    def arcs(self, state: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        return self.inner.arcs(state)

    def is_final(self, state: int) -> bool:
        return self.inner.is_final(state)


def toy_automata(dfa: ByteDfa) -> list[TokenAutomaton]:
    lexicon = Lexicon.of(toy.TOKENIZER)
    lazy = SpellingAutomaton(dfa, lexicon)
    return [lazy, index(dfa, lexicon), Plain(SpellingAutomaton(dfa, lexicon))]


def by_enumeration(dfa: ByteDfa, longest: int) -> tuple[tuple[int, int], ...]:
    found = toy.spellings(dfa.accepts, longest, lambda text: dfa.step(0, text) != DEAD)
    return tuple(sorted(Counter(len(tokens) for tokens, _ in found).items()))


@pytest.mark.parametrize("pattern", FINITE)
def test_finite_languages(pattern: str) -> None:
    dfa = compile_regex(pattern)
    expected = by_enumeration(dfa, 8)
    for automaton in toy_automata(dfa):
        total, lengths = count_token_paths(automaton)
        assert lengths == expected
        assert total == sum(number for _, number in expected)
        assert count_token_paths(automaton, 2) == (total, tuple(x for x in expected if x[0] <= 2))
        assert count_token_paths(automaton, 1000) == (total, expected)
    assert fa.count_paths(token_acceptor(index(dfa, Lexicon.of(toy.TOKENIZER)))) == total


@pytest.mark.parametrize("pattern", INFINITE)
def test_infinite_languages(pattern: str) -> None:
    dfa = compile_regex(pattern)
    for automaton in toy_automata(dfa):
        assert count_token_paths(automaton) == ("infinite", ())
        assert count_token_paths(automaton, 5) == ("infinite", by_enumeration(dfa, 5))


def test_nothing_to_count() -> None:
    for automaton in toy_automata(compile_regex("[^\\x00-\\x{10FFFF}]")):
        assert count_token_paths(automaton) == (0, ())
    for automaton in toy_automata(compile_regex("qq")):
        assert count_token_paths(automaton) == (0, ())
    assert count_token_paths(toy_automata(compile_regex(""))[0]) == (1, ((0, 1),))
    with pytest.raises(InputError, match="no length"):
        count_token_paths(toy_automata(compile_regex("a"))[0], -1)


def test_a_cycle_without_use_is_not_infinite() -> None:
    class Cycle:
        start = 0

        def arcs(self, state: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
            ends = {0: [1, 2, 2], 1: [], 2: [2]}[state]
            return np.arange(len(ends), dtype=np.int32), np.array(ends, np.int32)

        def is_final(self, state: int) -> bool:
            return state == 1

    assert count_token_paths(Cycle()) == (1, ((1, 1),))


@pytest.fixture(scope="module")
def gpt2(shared_data: Path) -> Tokenizer:
    return load_tokenizer(f"gpt2:{shared_data / 'tokenizers'}")


def test_words_over_gpt2(gpt2: Tokenizer) -> None:
    # Of the 26^10 words, counted by the lengths of pieces: 50,000 arcs side by side are a few numbers.
    dfa = compile_regex("[a-z]{10}")
    lengths = Counter(
        len(piece) for piece in gpt2.pieces if piece and all(97 <= byte <= 122 for byte in piece)
    )
    ways = {0: Counter({0: 1})}
    for end in range(1, 11):
        ways[end] = Counter()
        for length, number in lengths.items():
            for size, before in ways.get(end - length, Counter()).items():
                ways[end][size + 1] += before * number
    total, found = count_token_paths(SpellingAutomaton(dfa, Lexicon.of(gpt2)))
    assert dict(found) == ways[10]
    assert total == ways[10].total() > 26**10


def test_numbers_of_a_thousand_bits(gpt2: Tokenizer) -> None:
    # Every digit is a token, and so are some longer numbers: more than 10^400 texts.
    dfa = compile_regex("[0-9]{400}")
    whole = index(dfa, Lexicon.of(gpt2))
    total, lengths = count_token_paths(whole)
    assert total == fa.count_paths(token_acceptor(whole))
    assert isinstance(total, int)
    assert total.bit_length() > 1300
    assert lengths[-1] == (400, 10**400)
    assert sum(number for _, number in lengths) == total


def test_a_long_text_is_cut_in_all_ways(gpt2: Tokenizer) -> None:
    text = "Memorised text: https://www.example.org/a%20b?c=日本語 — é!" * 4
    escaped = "".join(f"\\x{{{ord(letter):X}}}" for letter in text)
    whole = index(compile_regex(escaped), Lexicon.of(gpt2))
    known, spelled = set(gpt2.pieces), text.encode()
    ways = [1]
    for end in range(1, len(spelled) + 1):
        ways.append(sum(ways[at] for at in range(end) if spelled[at:end] in known))
    assert count_token_paths(whole)[0] == ways[-1]
