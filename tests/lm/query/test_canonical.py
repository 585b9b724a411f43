"""Canonical automata against the encoders themselves, text by text."""

from __future__ import annotations

import random
import re
from itertools import pairwise, product

import numpy as np
import pytest
import regex
import toy
from hypothesis import given, settings
from hypothesis import strategies as st
from published_vocabularies import PUBLISHED, published

from holdfast.lm.query.canonical import automaton as canonical
from holdfast.lm.query.canonical.automaton import canonical_automaton
from holdfast.lm.query.regex import operations
from holdfast.lm.query.regex.language import compile_regex
from holdfast.lm.query.tokens.lexicon import Lexicon
from holdfast.lm.tokenizers.tokenizer import Merges, Tokenizer


@pytest.fixture(scope="module", params=PUBLISHED)
def tokenizer(request, shared_data):
    return published(request.param, shared_data)


def compiled(pattern, tokenizer, event="exact", **options):
    dfa = compile_regex(pattern)
    if event == "prefix":
        dfa = operations.followed_by_anything(dfa)
    lexicon = Lexicon.of(tokenizer)
    return canonical_automaton(
        operations.with_lead(dfa, tokenizer.lead), tokenizer, lexicon, **options
    )


def paths(automaton, longest=100):
    """(tokens, whether accepted) of every sequence that the automaton lets through."""
    waiting = [(automaton.start, ())] if automaton.start >= 0 else []
    while waiting:
        state, tokens = waiting.pop()
        yield tokens, automaton.is_final(state)
        if len(tokens) < longest:
            arcs, following = automaton.arcs(state)
            assert (np.diff(arcs) > 0).all()
            waiting += [
                (to, (*tokens, token))
                for token, to in zip(arcs.tolist(), following.tolist(), strict=True)
            ]


def ends(automaton, tokens):
    """The state that a sequence leads to; None where it is not let through."""
    state = automaton.start
    for token in tokens:
        arcs, following = automaton.arcs(state)
        place = int(np.searchsorted(arcs, token))
        if place == len(arcs) or arcs[place] != token:
            return None
        state = int(following[place])
    return state


FINITE = (
    r"(a|b|'s| |\n|1){0,4}",
    r"[ \n\t]{0,5}",
    r"(don't|we'LL|'s|\.|'| ){1,3}",
    r"([0-9]| |é){0,3}",
    r"(日本|語|😀|é| |e\x{301}|☃){0,3}",
    r"( ?(hello|1234|\$5)[!?]{0,2}){1,2}",
    r"(aaaa|hello canonical world|\r\n){0,3}",
    r"(ſ|'|s|S|K| |\x{a0}|\x{85}){0,3}",
    r"(\x{2581}|a| |\x{0}|\x{1}|\t){0,3}",
    r"",
)


@pytest.mark.quick(10)
@pytest.mark.parametrize("pattern", FINITE)
def test_paths_are_the_encodings_of_the_texts(tokenizer, pattern):
    """One for each text, and no more; nothing on the way leads nowhere."""
    automaton, check = compiled(pattern, tokenizer)
    assert check is None
    found = [tokens for tokens, accepted in paths(automaton) if accepted]
    texts = operations.strings(compile_regex(pattern), 10_000)
    expected = [
        tuple(tokenizer.encode(text))
        for text in texts
        if tokenizer.spell(tokenizer.encode(text)) == text  # SentencePiece loses U+2581
    ]
    assert sorted(found) == sorted(expected)
    for tokens, _ in paths(automaton):
        assert any(other[: len(tokens)] == tokens for other in expected)


@pytest.mark.quick(2)
def test_paths_of_random_languages(tokenizer):
    """Alternatives drawn from pieces of the vocabulary, in front of and behind one another."""
    draw = random.Random(7)
    pieces = []
    while len(pieces) < 400:
        piece = tokenizer.pieces[draw.randrange(tokenizer.size)]
        try:
            if piece and len(piece) < 9:
                pieces.append(piece.decode())
        except UnicodeDecodeError:
            continue
    for _ in range(12):
        sets = [draw.sample(pieces, 5) for _ in range(3)]
        pattern = "".join(
            "(" + "|".join(re.escape(piece).replace("\\\n", "\\n") for piece in chosen) + ")"
            for chosen in sets
        )
        texts = {"".join(parts).encode() for parts in product(*sets)}
        automaton, _ = compiled(pattern, tokenizer)
        found = [tokens for tokens, accepted in paths(automaton) if accepted]
        assert sorted(found) == sorted(tuple(tokenizer.encode(text)) for text in texts)


INFINITE = (
    (r"[a-z]+", "abcdefghijklmnopqrstuvwxyz"),
    (r"\p{L}+( \p{L}+)*", "aZé日ж "),
    (r"https://www\.([a-z0-9]|_|-|#|%)+\.([a-z0-9]|_|-|#|%|/)+", None),
    (r"(.|\n)*", "a'st 1\n.é😀\r\t!"),
    (r"[\s'a-zA-Z0-9.]*", "sStTlLmM'' \n\r19.x"),
)


@pytest.mark.quick(5)
@pytest.mark.parametrize(("pattern", "letters"), INFINITE)
def test_infinite_languages(tokenizer, pattern, letters):
    """What a walk spells encodes to the walk; what a text of the language encodes to is a walk."""
    automaton, check = compiled(pattern, tokenizer)
    assert check is None
    draw = random.Random(3)
    asked = 0
    while asked < 40:
        state, tokens, stop = automaton.start, [], draw.random() / 2
        while len(tokens) < 24:
            arcs, following = automaton.arcs(state)
            asked += 1
            if automaton.is_final(state) and draw.random() < stop:
                assert tokenizer.encode(tokenizer.spell(tokens)) == tokens
                break
            assert len(arcs)
            choice = draw.randrange(len(arcs))
            tokens.append(int(arcs[choice]))
            state = int(following[choice])
    for _ in range(25):
        if letters is None:
            text = "https://www." + ".".join("".join(draw.choices("ab-9", k=3)) for _ in range(2))
        else:
            text = "".join(draw.choices(letters, k=draw.randrange(1, 20)))
        if regex.fullmatch(pattern, text):
            end = ends(automaton, tokenizer.encode(text.encode()))
            assert end is not None
            assert automaton.is_final(end)
            other = tokenizer.encode(text[:1].encode()) + tokenizer.encode(text[1:].encode())
            spelled = tokenizer.spell(other)
            end = ends(automaton, other)
            assert (end is not None and automaton.is_final(end)) == (
                other == tokenizer.encode(spelled)
                and regex.fullmatch(pattern, spelled.decode()) is not None
            )


@pytest.mark.parametrize("pattern", ["The (cat|dog)", "a1? ?b", "(don't|do)", " +x", "é"])
def test_event_prefix(tokenizer, pattern):
    """Accepted once the text starts with one of the language; what is accepted goes on canonically."""
    automaton, check = compiled(pattern, tokenizer, "prefix")
    assert check is None
    texts = operations.strings(compile_regex(pattern), 4)
    draw = random.Random(11)
    for text in texts:
        for _ in range(10):
            rest = "".join(draw.choices("as' \n1é日.", k=draw.randrange(4))).encode()
            tokens = tokenizer.encode(text + rest)
            hit = next(
                count
                for count in range(len(tokens) + 1)
                if any(tokenizer.spell(tokens[:count]).startswith(other) for other in texts)
            )
            for count in range(hit + 1):
                state = ends(automaton, tokens[:count])
                assert state is not None
                assert automaton.is_final(state) == (count == hit)
    endings = ("", "x", " x", "s", "\n", "1", " ", "!", "日", "  a", "'s", "\u0301", "ed")
    accepted = [tokens for tokens, final in paths(automaton, 2) if final]
    for tokens in draw.sample(accepted, min(60, len(accepted))):
        spelled = tokenizer.spell(tokens)
        tails = [bytes([0x80 + byte]) for byte in range(64)] if _is_open(spelled) else [b""]
        going_on = [spelled + tail + ending.encode() for tail in tails for ending in endings]
        assert any(
            tuple(tokenizer.encode(text))[: len(tokens)] == tokens
            for text in going_on
            if not _is_open(text)
        )


def _is_open(text):
    try:
        text.decode()
    except UnicodeDecodeError:
        return True
    return False


def test_an_automaton_that_forgets_arcs_makes_them_again(shared_data, monkeypatch):
    tokenizer = published("GPT-2", shared_data)
    kept, _ = compiled(r"[ab]+ ?", tokenizer)
    monkeypatch.setattr(canonical, "MOST_KEPT_ARCS", 40)
    monkeypatch.setattr(canonical, "LOOKED_AHEAD_STATES", 1)
    forgetful, _ = compiled(r"[ab]+ ?", tokenizer)
    assert set(paths(kept, 3)) == set(paths(forgetful, 3))


@pytest.mark.parametrize("pattern", ["[a-z]+ is a phone number"])
def test_no_dead_ends_where_the_text_has_little_choice(tokenizer, pattern):
    """Of the tokens that spell "phone", most begin nothing canonical: none is offered."""
    automaton, _ = compiled(pattern, tokenizer)
    draw = random.Random(2)
    ended = 0
    for _ in range(8):
        state, tokens = automaton.start, []
        while len(tokens) < 20:
            arcs, following = automaton.arcs(state)
            if automaton.is_final(state):
                assert tokenizer.encode(tokenizer.spell(tokens)) == tokens
                ended += 1
                break
            assert len(arcs)
            spaced = [place for place, arc in enumerate(arcs) if b" " in tokenizer.pieces[arc]]
            choice = draw.choice(spaced or range(len(arcs)))
            tokens.append(int(arcs[choice]))
            state = int(following[choice])
    assert ended > 4


# --- Toy encoders ----------------------------------------------------------------------------------

SPLITTERS = (
    None,
    r"'s| ?[ab]+|\s+(?!\S)|\s+|[\s\S]",
    r"a?b+|[ab]{1,2}|[^ab]+",
    r" ?[ab]+?(?:s|')?|[\s\S]",
)
LETTERS = "ab 's"


@settings(max_examples=40)
@given(
    st.lists(st.text(LETTERS, min_size=2, max_size=4), max_size=16),
    st.lists(st.integers(0, 5), min_size=1),
    st.sampled_from(SPLITTERS),
)
def test_toy_encoders(words, ranks, splitter):
    """All texts of at most four letters, by plain merging of the words that the `regex` library finds."""
    pieces = [*LETTERS, *dict.fromkeys(words)]
    ids = {piece: token for token, piece in enumerate(pieces)}
    table = {}
    for piece, token in ids.items():
        for cut in range(1, len(piece)):
            if piece[:cut] in ids and piece[cut:] in ids:
                pair = ids[piece[:cut]], ids[piece[cut:]]
                table[pair] = (ranks[len(table) % len(ranks)], token)

    def encode(text):
        found = []
        for word in regex.findall(splitter, text.decode()) if splitter else [text.decode()]:
            symbols = [ids[letter] for letter in word]
            while True:
                merging = [
                    (table[pair][0], place)
                    for place, pair in enumerate(pairwise(symbols))
                    if pair in table
                ]
                if not merging:
                    break
                _, place = min(merging)
                symbols[place : place + 2] = [table[symbols[place], symbols[place + 1]][1]]
            found += symbols
        return found

    columns = np.array(
        [(*pair, made, rank) for pair, (rank, made) in table.items()], np.int32
    ).reshape(-1, 4)
    tokenizer = Tokenizer(
        "toy",
        tuple(piece.encode() for piece in pieces),
        # The probes of a normaliser hold characters that this toy cannot write.
        lambda text: encode(text) if set(text.decode()) <= set(LETTERS) else [],
        merges=Merges(*columns.T.copy()),
        splitter=splitter,
    )
    tokenizer = Tokenizer(
        "toy", (*tokenizer.pieces, None), _or_control(tokenizer.encode, len(pieces)),
        merges=tokenizer.merges, splitter=splitter,
    )  # fmt: skip
    automaton, check = compiled(r"[ab 's]{0,4}", tokenizer)
    assert check is None
    found = [tokens for tokens, accepted in paths(automaton) if accepted]
    texts = ["".join(letters) for size in range(5) for letters in product(LETTERS, repeat=size)]
    assert sorted(found) == sorted(tuple(encode(text.encode())) for text in texts)


def _or_control(encode, control):
    """An encoder that answers with a control token to what it cannot write."""
    return lambda text: encode(text) or ([control] if text else [])


def test_encoders_that_cannot_be_analysed_are_asked_again():
    automaton, check = compiled("[abc]{1,4}", toy.TOKENIZER)
    found = [tokens for tokens, accepted in paths(automaton) if accepted]
    kept = [tokens for tokens in found if check(tokens)]
    assert len(found) > len(kept)
    texts = ["".join(letters) for size in range(1, 5) for letters in product("abc", repeat=size)]
    assert sorted(kept) == sorted(tuple(toy.greedy(text.encode())) for text in texts)
    assert not check((6,))  # half a character


def _with_encoder(encode, splitter=r"[\s\S]+"):
    """Two letters and one merge, encoded in some way of its own."""
    merges = Merges(*(np.array([number], np.int32) for number in (0, 1, 2, 0)))
    return Tokenizer("toy", (b"a", b"b", b"ab", b"ba"), encode, merges=merges, splitter=splitter)


@pytest.mark.parametrize(
    "tokenizer",
    [
        _with_encoder(lambda text: [3] if text == b"ba" else [], r"[\s\S]+"),  # words taken whole
        _with_encoder(lambda text: [0, 0] if text == b"a" else [], r"[\s\S]+"),  # text changed
        _with_encoder(lambda text: [0] if text == b"a" else [], r"\w+"),  # unknown splitter
    ],
)
def test_what_is_not_known_exactly_is_not_claimed(tokenizer):
    _, check = compiled("a", tokenizer)
    assert check is not None


def test_the_empty_language(tokenizer):
    nothing = operations.difference(compile_regex("a"), compile_regex("a"))
    automaton, _ = canonical_automaton(nothing, tokenizer, Lexicon.of(tokenizer))
    assert automaton.start == -1
