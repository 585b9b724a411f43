"""The transducer benchmark: its inputs are what they say, and it runs."""

from __future__ import annotations

import json
import re
import struct
from itertools import product
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pywrapfst")

from machines import path_costs

import automata_compose
import render
import sphinx_model
from automata_inputs import PATTERNS, acceptor, levenshtein, read_tokens, strings, token_lexicon
from automata_speech import read_speech
from holdfast.automata import Fst
from holdfast.automata.composition.composing import compose

WORDS = ["</s>", "<s>", "a", "b"]
# Logarithms to base 1.0001: (logarithm, backoff) of words, and logarithms of (word before, word).
UNIGRAMS = [(-9000.0, 0.0), (-990000.0, -1000.0), (-5000.0, -2000.0), (-7000.0, -3000.0)]
BIGRAMS = {("<s>", "a"): -100.0, ("b", "a"): -200.0, ("a", "b"): -300.0, ("b", "</s>"): -400.0}
DICTIONARY = "a AH\na(2) EY\nb B IY\nzulu Z UW L UW\n"


def accepted(machine: Fst, text: bytes) -> bool:
    states = {machine.start}
    for byte in text:
        states = {
            arc.nextstate
            for state in states
            for arc in machine.arcs(state)
            if arc.ilabel == byte + 1
        }
    return bool(states & machine.finals.keys())


@pytest.mark.parametrize("name", PATTERNS)
def test_patterns_accept_what_the_regular_expression_matches(name: str) -> None:
    machine = acceptor(PATTERNS[name])
    assert machine.ilabel.min() > 0
    given = [
        b"2026-11-21",
        b"2026-31-21",
        b"+1 (212) 555-0123",
        b"212.555.0123",
        b"2125550123",
        b"(212)-555",
        b"https://www.example.com/a/b.html?q=1&r=2",
        b"http://x.y",
        b"http://x",
        b"https//x.y",
        b"",
    ]
    given += [text[:k] for text in given for k in range(len(text))]
    told = [accepted(machine, text) for text in given]
    assert told == [re.fullmatch(PATTERNS[name], text) is not None for text in given]
    assert any(told)


def test_levenshtein_allows_one_edit() -> None:
    machine = compose(levenshtein(1, 2), strings(["ab"]))
    found = {left for left, _ in path_costs(machine)}
    distant = {(), (1, 1, 2, 1), (2, 1), (2, 2, 2)}
    near = {(1,), (2,), (1, 1), (2, 2), (1, 2)}
    near |= {
        w for w in product((1, 2), repeat=3) if (1, 2) in [w[:k] + w[k + 1 :] for k in range(3)]
    }
    assert found == near
    assert not found & distant


def test_tokens_are_spelled_by_the_lexicon(tmp_path: Path) -> None:
    encoded = {"a": 0, "\u0120a": 1, "\u0120ab": 2, "<|endoftext|>": 3}
    (tmp_path / "gpt2_encoder.json").write_text(json.dumps(encoded), encoding="utf-8")
    tokens = read_tokens(tmp_path)
    assert tokens == [b"a", b" a", b" ab"]
    spelled = compose(token_lexicon(tokens), acceptor(rb"a ab"))
    assert set(path_costs(spelled)) == {((1, 3), tuple(byte + 1 for byte in b"a ab"))}


def write_model(folder: Path) -> None:
    """A model in the package's binary format, with one bigram more declared than held."""
    (folder / "cmudict-en-us.dict").write_text(DICTIONARY, encoding="utf-8")
    values = sorted(set(BIGRAMS.values()))
    table = np.zeros(3 * sphinx_model.CODES, "<f4")
    table[: len(values)] = values
    packed, first, held = 0, [], 0
    widths = (3, 16, 16, 3)
    for word in WORDS:
        first.append(held)
        for before in WORDS:
            if (before, word) in BIGRAMS:
                at = held * sum(widths)
                code = values.index(BIGRAMS[before, word])
                packed |= WORDS.index(before) << at | code << (at + widths[0] + widths[1])
                held += 1
    counts = (len(WORDS), held + 1, 4)
    unigrams = [struct.pack("<ffI", *u, k) for u, k in zip(UNIGRAMS, first, strict=True)]
    spelled = "".join(word + "\0" for word in WORDS).encode()
    (folder / "en-us.lm.bin").write_bytes(
        sphinx_model.MAGIC
        + bytes([3])
        + struct.pack("<3I", *counts)
        + bytes(4)
        + table.tobytes()
        + b"".join(unigrams)
        + struct.pack("<ffI", 0, 0, held)
        + packed.to_bytes(((1 + counts[1]) * sum(widths) + 7) // 8 + 8, "little")
        + bytes(((1 + counts[2]) * (widths[0] + 16) + 7) // 8 + 8)
        + struct.pack("<i", len(spelled))
        + spelled
    )


def test_a_language_model_is_read_and_becomes_machines(tmp_path: Path) -> None:
    write_model(tmp_path)
    model = sphinx_model.read_bigrams(tmp_path)
    unit = np.log(1.0001)
    assert model.words == WORDS
    assert model.declared == len(BIGRAMS) + 1
    named = zip(model.history, model.word, model.bigram_cost / -unit, strict=True)
    found = {(WORDS[h], WORDS[w]): round(log) for h, w, log in named}
    assert found == BIGRAMS

    speech = read_speech(tmp_path)
    assert list(speech.pronunciations) == ["a", "b", "zulu"]
    grammar, lexicon = speech.grammar(), speech.lexicon(2)
    assert (lexicon.num_states, lexicon.num_arcs) == (2, 4)
    # <s> a b </s> by bigrams alone, and through the backoff wherever there is one.
    a, b = speech.label["a"], speech.label["b"]
    said = Fst.build([(0, a, a, 0, 1), (1, b, b, 0, 2)], [2], semiring="tropical")
    costs = sorted(cost for each in path_costs(compose(said, grammar)).values() for cost in each)
    units = [round(cost / unit) for cost in costs]
    first, second, third = (100, 1000 + 5000), (300, 2000 + 7000), (400, 3000 + 9000)
    assert units == sorted(map(sum, product(first, second, third)))

    # Both forms of the lexicon say the same of what was heard.
    for words in (1, 2, 3):
        heard = speech.emissions(4)
        chain, tree = (
            path_costs(compose(heard, form(words)))
            for form in (speech.lexicon, speech.lexicon_tree)
        )
        assert chain.keys() == tree.keys() != set()
        for strings_, cost in chain.items():
            assert cost == pytest.approx(tree[strings_], abs=1e-4)


def test_the_benchmark_runs_and_is_rendered(tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    options = ["--quick", "--work", str(tmp_path), "--result", str(result)]
    automata_compose.main([*options, "--tokenizers", str(tmp_path)])
    told = json.loads(result.read_text(encoding="utf-8"))
    assert {row["peer"] for row in told["comparisons"]} >= {"OpenFST"}
    assert [case for case in told["figures"]["cases"] if case["case"].startswith("Levenshtein")]
    assert any("gpt2_encoder.json is not there" in note for note in told["notes"])
    assert "| random V=300 D=4 L=8" in render._section(told)
