"""Token automata over the vocabularies of GPT-2 and cl100k, against transducers and against brute force."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import toy
from token_acceptors import token_acceptor

from holdfast import automata as fa
from holdfast.lm.query.regex.dfa import DEAD, ByteDfa
from holdfast.lm.query.regex.language import compile_regex
from holdfast.lm.query.tokens.lexicon import Lexicon
from holdfast.lm.query.tokens.spelling import SpellingAutomaton, index
from holdfast.lm.tokenizers.loading import load_tokenizer
from holdfast.lm.tokenizers.tokenizer import Tokenizer

DATE = r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
MAIL = r"[a-z0-9._]+@[a-z0-9]+\.[a-z]{2,3}"


@pytest.fixture(scope="module")
def gpt2(shared_data: Path) -> Tokenizer:
    return load_tokenizer(f"gpt2:{shared_data / 'tokenizers'}")


@pytest.fixture(scope="module")
def cl100k(shared_data: Path) -> Tokenizer:
    return load_tokenizer(f"tiktoken:{shared_data / 'tokenizers' / 'cl100k_base.tiktoken'}")


def spelling_transducer(pieces: Sequence[bytes | None]) -> fa.Fst:
    """From bytes + 1 to tokens + 1, any number: the trie of the pieces, its end joined to its root."""
    spelled = [(token, piece) for token, piece in enumerate(pieces) if piece]
    strings = [[byte + 1 for byte in piece] for _, piece in spelled]
    trie = fa.trie(strings, outputs=[token + 1 for token, _ in spelled], semiring="tropical")
    end = trie.num_states - 1
    final = np.full(end, np.inf, trie.final.dtype)
    final[0] = 0
    nextstate = np.where(trie.nextstate == end, 0, trie.nextstate).astype(np.int32)
    arcs = (trie.offsets[:-1], trie.ilabel, trie.olabel, nextstate, trie.weight)
    return fa.Fst(*arcs, final, 0, trie.semiring).checked()


def acceptor(dfa: ByteDfa) -> fa.Fst:
    arcs = [
        (state, byte + 1, byte + 1, 0.0, follows)
        for state in range(dfa.num_states)
        for byte, follows in enumerate(dfa.next[state, dfa.classes].tolist())
        if follows != DEAD
    ]
    final = np.flatnonzero(dfa.final).tolist()
    return fa.Fst.build(arcs, final, states=dfa.num_states, semiring="tropical")


def composed(dfa: ByteDfa, transducer: fa.Fst) -> fa.Fst:
    """The tokens that the composition of both writes: another way to the token automaton."""
    written = fa.project(fa.compose(acceptor(dfa), transducer), "output")
    return fa.rmepsilon(written)


@pytest.mark.parametrize(
    "pattern",
    ["a|aa", "(ab|é|1)*x?", "(a|b|c){2,5}", "(a|b)*c(a|b){3}", "q", "[a-c]*q|b*", "", "(- )+"],
)
def test_toy_index_is_the_composition(pattern: str) -> None:
    dfa = compile_regex(pattern)
    whole = index(dfa, Lexicon.of(toy.TOKENIZER))
    expected = composed(dfa, spelling_transducer(toy.PIECES))
    assert fa.isomorphic(fa.connect(token_acceptor(whole)), expected)


def test_gpt2_index_is_the_composition(gpt2: Tokenizer) -> None:
    transducer = spelling_transducer(gpt2.pieces)
    lexicon = Lexicon.of(gpt2)
    for pattern in (DATE, MAIL, "The|日本語|é+", r"[a-z]{1,6}( [a-z]{1,6})?"):
        dfa = compile_regex(pattern)
        made = token_acceptor(index(dfa, lexicon))
        expected = composed(dfa, transducer)
        assert made.num_arcs == expected.num_arcs
        assert fa.isomorphic(made, expected)
        assert fa.count_paths(made, 5) == fa.count_paths(expected, 5) > 0


@pytest.mark.quick(1)
@pytest.mark.parametrize("pattern", [DATE, MAIL, "The|日本語|é+", "[^a]{1,3}x"])
def test_every_token_of_large_vocabularies(
    pattern: str, gpt2: Tokenizer, cl100k: Tokenizer
) -> None:
    dfa = compile_regex(pattern)
    step = [[int(f) for f in row] for row in dfa.next[:, dfa.classes]]
    for tokenizer in (gpt2, cl100k):
        whole = index(dfa, Lexicon.of(tokenizer))
        lazy = SpellingAutomaton(dfa, Lexicon.of(tokenizer))
        for state in (0, dfa.num_states // 2, dfa.num_states - 1):
            expected = {}
            for token, piece in enumerate(tokenizer.pieces):
                end = state if piece else DEAD
                for byte in piece or b"":
                    end = step[end][byte]
                    if end == DEAD:
                        break
                if end != DEAD:
                    expected[token] = end
            for automaton in (whole, lazy):
                tokens, follows = automaton.arcs(state)
                assert tokens.tolist() == list(expected)
                assert follows.tolist() == list(expected.values())


def sequences(automaton: SpellingAutomaton) -> list[tuple[int, ...]]:
    found, waiting = [], [((), automaton.start)]
    while waiting:
        tokens, state = waiting.pop()
        if automaton.is_final(state):
            found.append(tokens)
        arcs = zip(*(column.tolist() for column in automaton.arcs(state)), strict=True)
        waiting += [((*tokens, token), follows) for token, follows in arcs]
    return found


@pytest.mark.parametrize(("text", "encodings"), [("The", 4), ("é", 2), ("日本語", None)])
def test_all_encodings_of_a_text(text: str, encodings: int | None, gpt2: Tokenizer) -> None:
    found = sequences(SpellingAutomaton(compile_regex(text), Lexicon.of(gpt2)))
    assert {gpt2.spell(tokens) for tokens in found} == {text.encode()}
    assert tuple(gpt2.encode(text.encode())) in found
    assert tuple(gpt2.pieces.index(bytes([byte])) for byte in text.encode()) in found
    # Cut in all ways into pieces that exist.
    ways = [1]
    known = set(gpt2.pieces)
    for end in range(1, len(text.encode()) + 1):
        ways.append(sum(ways[at] for at in range(end) if text.encode()[at:end] in known))
    assert len(set(found)) == len(found) == ways[-1]
    assert encodings in (None, len(found))


def test_event_prefix_ends_at_the_first_hit(gpt2: Tokenizer) -> None:
    # The last token may overshoot; what follows acceptance is not unfolded.
    text = compile_regex("The cat")
    end = int(np.flatnonzero(text.final)[0])
    after = text.next.copy()
    after[end] = end
    whole = index(ByteDfa(text.classes, after, text.final), Lexicon.of(gpt2))
    assert len(whole.arcs(end)[0]) == 0
    hits = {
        gpt2.pieces[token]
        for state in range(whole.num_states)
        for token, follows in zip(*whole.arcs(state), strict=True)
        if follows == end
    }
    assert {b" cat", b" catastrophic", b"t", b"tle"} <= hits
    assert b"The" not in hits
