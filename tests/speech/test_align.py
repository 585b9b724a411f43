"""Forced alignment against brute force, flite's own times, a strict reader of TextGrid, and other audio."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from holdfast.errors import InputError
from holdfast.speech.speak.dictionary import Phones
from holdfast.speech.speak.lattice import START, PhoneGraph, best_path
from holdfast.speech.speak.segmentation import PhoneAlphabet
from holdfast.speech.speak.textgrid import Interval, textgrid

BLANK = 0


def sayings(words: Sequence[Sequence[Phones]]) -> Iterator[list[str]]:
    """Every sequence of phones by which a text can be said: alternates, and silences or none."""
    for choice in itertools.product(*words):
        for silences in itertools.product([[], ["SIL"]], repeat=len(words) + 1):
            said = list(silences[0])
            for phones, silence in zip(choice, silences[1:], strict=True):
                said += [*phones, *silence]
            yield said


def collapsed(labels: Sequence[int]) -> list[int]:
    """CTC's rule: repeated labels are one, blanks are removed."""
    return [label for label, _ in itertools.groupby(labels) if label != BLANK]


def brute_force(
    log_probs: np.ndarray, words: Sequence[Sequence[Phones]], alphabet: PhoneAlphabet
) -> float:
    """Best of all alignments of all sayings, one sequence of labels after the other."""
    frames, labels = log_probs.shape
    targets = []
    for said in sayings(words):
        text = " ".join(said)
        if not alphabet.unknown(text):
            targets.append(alphabet.encode(text))
    best = -np.inf
    for path in itertools.product(range(labels), repeat=frames):
        if collapsed(path) in targets:
            # A phone lasts at least one frame: with pairs the first has no output of its own.
            if alphabet.pairs and path[0] != BLANK:
                continue
            best = max(best, float(log_probs[range(frames), path].sum()))
    return best


def emissions(seed: int, frames: int, labels: int) -> np.ndarray:
    logits = np.random.default_rng(seed).normal(0, 2, (frames, labels))
    return logits - np.log(np.exp(logits).sum(1, keepdims=True))


CASES = {
    "alternates": [[("B",), ("D", "B")]],
    "two words": [[("B",)], [("D",)]],
    "the same phone again": [[("B", "B")], [("B",)]],
}


@pytest.mark.parametrize("pairs", [True, False], ids=["pairs", "phones"])
@pytest.mark.parametrize("name", CASES)
def test_the_best_path_is_the_best_of_all(name: str, pairs: bool) -> None:
    words = CASES[name]
    texts = [" ".join(said) for said in sayings(words)]
    alphabet = PhoneAlphabet.of_texts(texts, pairs)
    # 5 to 8 labels in 5 frames: at most 32,768 sequences of labels.
    frames = 5
    for seed in range(4):
        log_probs = emissions(seed, frames, alphabet.size)
        found = best_path(log_probs, PhoneGraph.of_words(words), alphabet)
        assert found.log_prob == pytest.approx(brute_force(log_probs, words, alphabet), abs=1e-9)
        assert found.first[0] == 0 or not pairs
        assert all(a < b for a, b in itertools.pairwise(found.first))
        graph = PhoneGraph.of_words(words)
        assert [graph.phones[node] for node in found.nodes] in list(sayings(words))


def test_alternates_are_chosen_by_likelihood_and_stress_is_no_alternate() -> None:
    words = [[("R", "EH1", "D"), ("R", "IY1", "D"), ("R", "IY0", "D")]]
    graph = PhoneGraph.of_words(words)
    assert graph.phones == ["SIL", "R", "EH1", "D", "R", "IY1", "D", "SIL"]
    assert graph.fewest == 3
    alphabet = PhoneAlphabet.of_texts(["R EH D", "R IY D"], True)
    log_probs = np.full((6, alphabet.size), -8.0)
    log_probs[:, BLANK] = -0.1
    for frame, label in ((2, "R IY"), (4, "IY D")):
        log_probs[frame] = -8.0
        log_probs[frame, alphabet.labels.index(label) + 1] = -0.1
    found = best_path(log_probs, graph, alphabet)
    assert [graph.phones[node] for node in found.nodes] == ["R", "IY1", "D"]
    assert found.first == [0, 2, 4]


def test_a_pair_that_training_lacked_is_placed_between_its_neighbors() -> None:
    alphabet = PhoneAlphabet.of_texts(["B K", "D K", "D T"], True)  # no B T
    log_probs = np.full((7, alphabet.size), -9.0)
    log_probs[:, BLANK] = -0.01
    log_probs[4] = np.log(0.25)  # something ends that B begins, something begins that T ends
    found = best_path(log_probs, PhoneGraph.of_words([[("B", "T")]]), alphabet)
    assert (found.first, found.columns) == ([0, 4], [None, None])


def test_audio_that_is_too_short_is_refused_with_numbers() -> None:
    alphabet = PhoneAlphabet.of_texts(["B D K"], True)
    graph = PhoneGraph.of_words([[("B", "D", "K")]])
    assert graph.arcs[0] == (START, 0)
    assert best_path(emissions(0, 3, alphabet.size), graph, alphabet).first == [0, 1, 2]
    with pytest.raises(InputError) as error:
        best_path(emissions(0, 2, alphabet.size), graph, alphabet)
    assert error.value.code == "audio-too-short"
    assert (error.value.found, error.value.expected) == ("2 frames", "at least 3, one per phone")


def read_textgrid(content: str) -> tuple[float, dict[str, list[tuple[float, float, str]]]]:
    """Strict reader of Praat's long text format, written from its manual."""
    lines = iter(content.removesuffix("\n").split("\n"))

    def value(key: str) -> str:
        line = next(lines).strip()
        assert line.startswith(f"{key} = "), (line, key)
        return line.removeprefix(f"{key} = ")

    def text(key: str) -> str:
        quoted = value(key)
        assert quoted[0] == quoted[-1] == '"'
        inside = quoted[1:-1]
        assert '"' not in inside.replace('""', "")
        return inside.replace('""', '"')

    assert next(lines) == 'File type = "ooTextFile"'
    assert next(lines) == 'Object class = "TextGrid"'
    assert next(lines) == ""
    assert value("xmin") == "0"
    end = float(value("xmax"))
    assert next(lines).strip() == "tiers? <exists>"
    tiers = {}
    count = int(value("size"))
    assert next(lines).strip() == "item []:"
    for number in range(1, count + 1):
        assert next(lines).strip() == f"item [{number}]:"
        assert text("class") == "IntervalTier"
        name = text("name")
        assert (float(value("xmin")), float(value("xmax"))) == (0, end)
        rows = []
        for place in range(1, int(value("intervals: size")) + 1):
            assert next(lines).strip() == f"intervals [{place}]:"
            rows.append((float(value("xmin")), float(value("xmax")), text("text")))
        # Without gaps, from the beginning to the end.
        assert rows[0][0] == 0
        assert rows[-1][1] == end
        assert all(a[1] == b[0] for a, b in itertools.pairwise(rows))
        assert all(start < stop for start, stop, _ in rows)
        tiers[name] = rows
    assert next(lines, None) is None
    return end, tiers


def test_textgrid_is_complete_and_reads_back() -> None:
    rows = [Interval(0.1, 0.30000004, 'say "no"'), Interval(0.30000004, 0.5, "now")]
    rows.append(Interval(0.5, 0.5, "nothing"))
    end, tiers = read_textgrid(textgrid({"words": rows, "phones": []}, 1e-5 + 2))
    assert end == 2.00001
    assert tiers["words"] == [
        (0, 0.1, ""), (0.1, 0.3, 'say "no"'), (0.3, 0.5, "now"), (0.5, 2.00001, ""),
    ]  # fmt: skip
    assert tiers["phones"] == [(0, 2.00001, "")]
