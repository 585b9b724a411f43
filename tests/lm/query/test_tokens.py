"""The token automaton of a language, state by state and whole, against walking every token byte by byte."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import regex
import toy
from hypothesis import given, settings
from hypothesis import strategies as st
from token_acceptors import token_acceptor

from holdfast.errors import LimitError
from holdfast.lm.query.regex.dfa import DEAD, ByteDfa
from holdfast.lm.query.regex.language import compile_regex
from holdfast.lm.query.tokens import spelling
from holdfast.lm.query.tokens.automaton import ArcCache
from holdfast.lm.query.tokens.lexicon import LONGEST_PIECE, Lexicon
from holdfast.lm.query.tokens.spelling import SpellingAutomaton, absorbing, index
from holdfast.lm.query.tokens.token_index import TokenIndex
from holdfast.lm.tokenizers.tokenizer import Tokenizer

LETTERS = b"abc 12x-\xc3\xa9"
Arcs = dict[int, dict[int, int]]


def table(rows: Sequence[Sequence[int]], final: Sequence[int], letters: bytes = LETTERS) -> ByteDfa:
    """An automaton whose column k is the k-th letter; other bytes are dead."""
    classes = np.full(256, len(letters), np.uint8)
    classes[list(letters)] = range(len(letters))
    after = np.full((len(rows), len(letters) + 1), DEAD, np.int32)
    for state, row in enumerate(rows):
        after[state, : len(row)] = row
    return ByteDfa(classes, after, np.isin(np.arange(len(rows)), final))


def trimmed(dfa: ByteDfa) -> ByteDfa:
    """The automaton without states that are not reached or lead nowhere, as `ByteDfa` promises."""
    rows = dfa.next.tolist()
    reached, waiting = {0}, [0]
    while waiting:
        for follows in rows[waiting.pop()]:
            if follows >= 0 and follows not in reached:
                reached.add(follows)
                waiting.append(follows)
    useful = {state for state in reached if dfa.final[state]}
    while more := {s for s in reached - useful if useful.intersection(rows[s])}:
        useful |= more
    if 0 not in useful:
        return ByteDfa(dfa.classes, dfa.next[:0], dfa.final[:0])
    kept = sorted(useful)
    number = {state: place for place, state in enumerate(kept)}
    after = [[number.get(follows, DEAD) for follows in rows[state]] for state in kept]
    return ByteDfa(dfa.classes, np.array(after, np.int32), dfa.final[kept])


def brute_force(dfa: ByteDfa, pieces: Sequence[bytes | None]) -> tuple[Arcs, set[int]]:
    """Every state's arcs by walking every token; and the useful states."""
    stops = set(np.flatnonzero(absorbing(dfa)).tolist())
    arcs: Arcs = {}
    for state in range(dfa.num_states):
        ends = {
            token: dfa.step(state, piece)
            for token, piece in enumerate(pieces)
            if piece and state not in stops
        }
        arcs[state] = {token: end for token, end in ends.items() if end != DEAD}
    reached, waiting = {0}, [0] if dfa.num_states else []
    while waiting:
        for follows in arcs[waiting.pop()].values():
            if follows not in reached:
                reached.add(follows)
                waiting.append(follows)
    useful = {state for state in reached if dfa.num_states and dfa.final[state]}
    while more := {s for s in reached - useful if useful.intersection(arcs.get(s, {}).values())}:
        useful |= more
    return arcs, useful


def listed(automaton: TokenIndex | SpellingAutomaton, state: int) -> dict[int, int]:
    tokens, follows = automaton.arcs(state)
    assert tokens.dtype == follows.dtype == np.int32
    assert (np.diff(tokens) > 0).all()
    return dict(zip(tokens.tolist(), follows.tolist(), strict=True))


def accepted(automaton: SpellingAutomaton, longest: int) -> set[tuple[int, ...]]:
    """The token sequences up to a length."""
    found: set[tuple[int, ...]] = set()
    waiting: list[tuple[tuple[int, ...], int]] = [((), automaton.start)]
    while waiting:
        tokens, state = waiting.pop()
        if automaton.is_final(state):
            found.add(tokens)
        if len(tokens) < longest:
            waiting += [((*tokens, t), end) for t, end in listed(automaton, state).items()]
    return found


def bits(mask: np.ndarray) -> list[int]:
    return np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")).tolist()


def check(dfa: ByteDfa, tokenizer: Tokenizer) -> None:
    """The lazy and the whole automaton, their masks and sums, against brute force."""
    arcs, useful = brute_force(dfa, tokenizer.pieces)
    expected = {
        state: {token: end for token, end in arcs[state].items() if end in useful}
        for state in useful
    }
    lexicon = Lexicon.of(tokenizer)
    lazy, whole = SpellingAutomaton(dfa, lexicon), index(dfa, lexicon)
    assert lazy.start == whole.start == (0 if useful else -1)
    assert whole.num_states == lazy.num_states == dfa.num_states
    assert whole.num_arcs == sum(map(len, expected.values()))
    for state in range(dfa.num_states):
        assert listed(whole, state) == expected.get(state, {})
        assert whole.is_final(state) == (state in useful and bool(dfa.final[state]))
        assert whole.arcs(state) is whole.arcs(state)
        follows, number = whole.steps(state)
        ends = list(expected.get(state, {}).values())
        assert dict(zip(follows.tolist(), number.tolist(), strict=True)) == {
            end: ends.count(end) for end in ends
        }
        begin, end = whole.offsets[state : state + 2].tolist()
        assert np.array_equal(whole.tokens[begin:end], whole.arcs(state)[0])
        assert np.array_equal(whole.nextstate[begin:end], whole.arcs(state)[1])
        if state in useful:
            allowed = sorted([*expected[state], *[tokenizer.eos] * bool(dfa.final[state])])
            fresh = SpellingAutomaton(dfa, lexicon)
            for automaton in (fresh, lazy, whole):
                assert bits(automaton.mask(state)) == allowed
            assert listed(lazy, state) == expected[state]
            assert bits(lazy.mask(state)) == allowed
            assert lazy.is_final(state) == whole.is_final(state)
            assert lazy.arcs(state) is lazy.arcs(state)


@st.composite
def automata(draw: st.DrawFn, letters: bytes = LETTERS) -> ByteDfa:
    """Automata of up to 12 states: more than are unfolded singly."""
    states = draw(st.integers(1, 12))
    target = st.integers(-1, states - 1)
    rows = [draw(st.lists(target, min_size=1, max_size=len(letters))) for _ in range(states)]
    final = draw(st.lists(st.integers(0, states - 1), min_size=1))
    return trimmed(table(rows, final, letters))


def tokenizer_of(pieces: Sequence[bytes | None]) -> Tokenizer:
    return Tokenizer("test", (*pieces, None), lambda _: [], eos=len(pieces))


@given(automata())
def test_random_automata_over_the_toy_vocabulary(dfa: ByteDfa) -> None:
    check(dfa, toy.TOKENIZER)


@given(
    automata(b"abc"),
    st.lists(
        st.none() | st.binary(max_size=4).map(lambda b: bytes(b"abc"[x % 3] for x in b)),
        max_size=80,
    ),
)
def test_random_vocabularies(dfa: ByteDfa, pieces: list[bytes | None]) -> None:
    # Duplicates, empty pieces, ids without bytes, and bytes that no token holds.
    check(dfa, tokenizer_of(pieces))


def test_sequences_of_tokens_are_those_whose_text_is_accepted() -> None:
    # (ab|é|1)*x?
    rows = [[1, -1, -1, -1, 0, -1, 3, -1, 2], [-1, 0], [-1] * 9 + [0], []]
    dfa = table(rows, [0, 3])
    automaton = SpellingAutomaton(dfa, Lexicon.of(toy.TOKENIZER))
    expected = {
        tokens
        for tokens, _ in toy.spellings(dfa.accepts, 6, lambda text: dfa.step(0, text) != DEAD)
    }
    found = accepted(automaton, 6)
    assert found == expected
    assert len(found) > 1000


patterns = st.recursive(
    st.sampled_from(["a", "b", "c", "12", "[ab1]", "(é)", "x", "-", " ", "ab"]),
    lambda inner: (
        st.builds("{}{}".format, inner, inner)
        | st.builds("({}|{})".format, inner, inner)
        | st.builds("({}){}".format, inner, st.sampled_from(["*", "+", "?", "{2}", "{0,3}"]))
    ),
    max_leaves=8,
)


@settings(max_examples=60)
@given(patterns)
def test_random_regular_expressions(pattern: str) -> None:
    """Token sequences up to length 4, against the `regex` library, which also tells what may go on."""
    oracle = regex.compile(pattern.encode())
    expected = {
        tokens
        for tokens, _ in toy.spellings(
            lambda text: oracle.fullmatch(text) is not None,
            4,
            lambda text: oracle.fullmatch(text, partial=True) is not None,
        )
    }
    automaton = SpellingAutomaton(compile_regex(pattern), Lexicon.of(toy.TOKENIZER))
    assert accepted(automaton, 4) == expected


def test_absorbing_acceptance_is_not_unfolded() -> None:
    # Any text that starts with ab: its last state takes every byte.
    dfa = ByteDfa(
        np.array([0 if b == ord("a") else 1 if b == ord("b") else 2 for b in range(256)], np.uint8),
        np.array([[1, -1, -1], [-1, 2, -1], [2, 2, 2]], np.int32),
        np.array([False, False, True]),
    )
    assert absorbing(dfa).tolist() == [False, False, True]
    check(dfa, toy.TOKENIZER)
    whole = index(dfa, Lexicon.of(toy.TOKENIZER))
    spelled = {bytes(toy.PIECES[token] or b"") for token in whole.tokens.tolist()}
    assert spelled == {b"a", b"b", b"ab", b"abc", b"ba", b"bc"}
    assert len(whole.arcs(2)[0]) == 0


def test_states_without_a_way_out_are_cleared_away() -> None:
    # a(bc|1)d*: no token holds d, and with bc missing too the arc to the state after b must go.
    letters = b"abc1"
    rows = [[1], [-1, 2, -1, 3], [-1, -1, 3], []]
    dfa = table(rows, [3], letters)
    lexicon = Lexicon.of(tokenizer_of([b"a", b"b", b"1", b"ab", b"a1"]))
    lazy = SpellingAutomaton(dfa, lexicon)
    assert listed(lazy, 0) == {0: 1, 4: 3}
    assert listed(lazy, 1) == {2: 3}
    assert not lazy.is_final(2)
    assert SpellingAutomaton(dfa, Lexicon.of(tokenizer_of([b"a", b"b"]))).start == -1


def test_empty_language_and_empty_text() -> None:
    lexicon = Lexicon.of(toy.TOKENIZER)
    none = ByteDfa(np.zeros(256, np.uint8), np.empty((0, 1), np.int32), np.empty(0, np.bool_))
    for automaton in (SpellingAutomaton(none, lexicon), index(none, lexicon)):
        assert automaton.start == -1
    assert index(none, lexicon).num_arcs == 0
    assert token_acceptor(index(none, lexicon)).num_states == 0
    blank = table([[]], [0])
    check(blank, toy.TOKENIZER)
    assert bits(index(blank, lexicon).mask(0)) == [toy.EOS]


def test_more_states_than_are_unfolded_singly() -> None:
    # a{0,40}: from some state on, answers come from the whole automaton, and must be the same.
    states = 41
    assert states > spelling.UNFOLDED_SINGLY
    dfa = table([[state + 1] if state < 40 else [] for state in range(states)], list(range(states)))
    check(dfa, toy.TOKENIZER)


def test_large_automata_are_never_unfolded_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spelling, "INDEXED_STATES", 10)
    dfa = compile_regex("[abc]{0,20}")
    lazy = SpellingAutomaton(dfa, Lexicon.of(toy.TOKENIZER))
    whole = index(dfa, Lexicon.of(toy.TOKENIZER))
    for state in range(dfa.num_states):
        assert listed(lazy, state) == listed(whole, state)
        for ours, theirs in zip(lazy.steps(state), whole.steps(state), strict=True):
            assert ours.tolist() == theirs.tolist()
    assert lazy._index is None


def test_arcs_asked_for_longest_ago_are_given_up() -> None:
    kept = ArcCache(most=5)
    rows = {state: (np.arange(2, dtype=np.int32), np.zeros(2, np.int32)) for state in range(3)}
    for state in (0, 1):
        assert kept.keep(state, rows[state]) is rows[state]
    assert kept.get(0) is rows[0]
    kept.keep(2, rows[2])
    assert kept.get(1) is None
    assert kept.get(0) is rows[0]
    wide = np.zeros(9, np.int32)
    kept.keep(3, (wide, wide))
    assert len(kept) == 1
    assert kept.get(3) is not None


def test_lexicon_is_made_once_a_tokenizer() -> None:
    tokenizer = tokenizer_of([b"a", b"ab", None, b"", b"a"])
    lexicon = Lexicon.of(tokenizer)
    assert Lexicon.of(tokenizer) is lexicon
    assert lexicon.byte.tobytes() == b"ab"
    assert lexicon.depth.tolist() == [0, 1]
    assert lexicon.skip.tolist() == [2, 2]
    assert [
        lexicon.tokens[a:b].tolist() for a, b in zip(lexicon.first, lexicon.first[1:], strict=False)
    ] == [[0, 4], [1]]
    assert np.flatnonzero(lexicon.single_bytes).tolist() == [ord("a")]
    assert Lexicon.of(tokenizer_of([])).byte.size == 0


@given(
    st.lists(st.binary(min_size=1, max_size=4).map(lambda b: bytes(x % 3 for x in b)), max_size=40)
)
def test_lexicon_against_a_set_of_prefixes(pieces: list[bytes]) -> None:
    lexicon = Lexicon.of(tokenizer_of(pieces))
    prefixes = sorted({piece[:size] for piece in pieces for size in range(1, len(piece) + 1)})
    assert [prefix[-1] for prefix in prefixes] == lexicon.byte.tolist()
    assert [len(prefix) - 1 for prefix in prefixes] == lexicon.depth.tolist()
    for node, prefix in enumerate(prefixes):
        below = sum(other.startswith(prefix) for other in prefixes)
        assert lexicon.skip[node] == node + below
        ends = lexicon.tokens[lexicon.first[node] : lexicon.first[node + 1]]
        assert ends.tolist() == [token for token, piece in enumerate(pieces) if piece == prefix]


def test_a_piece_that_is_too_long_is_refused() -> None:
    assert Lexicon.of(tokenizer_of([b"a" * LONGEST_PIECE])).longest == LONGEST_PIECE
    with pytest.raises(LimitError, match="65,536 bytes"):
        Lexicon.of(tokenizer_of([b"a" * (LONGEST_PIECE + 1)]))
