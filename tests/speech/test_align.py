"""Forced alignment against brute force, flite's own times, a strict reader of TextGrid, and other audio."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from holdfast.errors import InputError
from holdfast.speech import speak
from holdfast.speech.recognize.audio import resample
from holdfast.speech.speak.alignment import textgrid
from holdfast.speech.speak.dictionary import Phones
from holdfast.speech.speak.lattice import PhoneGraph, best_path
from holdfast.speech.speak.segmentation import UNITS, PairOutputs, PhoneAlphabet

BLANK = 0
SPOKEN = Path(__file__).parents[2] / "examples" / "speech" / "spoken"
TEXT = "The sun was warm, but a cold wind came up from the river, and they read the old map again."


def sayings(words: Sequence[Sequence[Phones]]) -> Iterator[list[str]]:
    """Every sequence of phones by which a text can be said: alternates, silences between or none."""
    for choice in itertools.product(*words):
        for silences in itertools.product([[], ["SIL"]], repeat=len(words) - 1):
            said = ["SIL"]
            for phones, silence in zip(choice, [*silences, ["SIL"]], strict=True):
                said += [*phones, *silence]
            yield said


def collapsed(labels: Sequence[int]) -> list[int]:
    """CTC's rule: repeated labels are one, blanks are removed."""
    return [label for label, _ in itertools.groupby(labels) if label != BLANK]


def brute_force(
    log_probs: np.ndarray, words: Sequence[Sequence[Phones]], alphabet: PhoneAlphabet
) -> float:
    """Best of all alignments of all sayings, one sequence of labels after the other."""
    frames = len(log_probs)
    targets = [alphabet.encode(" ".join(said)) for said in sayings(words)]
    # Labels of no target cannot be in a path: up to 6 others in 6 frames are 117,649 paths.
    used = sorted({BLANK, *itertools.chain(*targets)})
    best = -np.inf
    for path in itertools.product(used, repeat=frames):
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
    "the same phone again": [[("B", "B")]],
}


@pytest.mark.parametrize("pairs", [True, False], ids=["pairs", "phones"])
@pytest.mark.parametrize("name", CASES)
def test_the_best_path_is_the_best_of_all(name: str, pairs: bool) -> None:
    words = CASES[name]
    alphabet = PhoneAlphabet.of_texts([], pairs)
    frames = 6
    for seed in range(3):
        log_probs = emissions(seed, frames, alphabet.size)
        graph = PhoneGraph(words, alphabet)
        found = best_path(log_probs, graph)
        assert found.log_prob == pytest.approx(brute_force(log_probs, words, alphabet), abs=1e-9)
        assert found.first[0] == 0 or not pairs
        assert all(a < b for a, b in itertools.pairwise(found.first))
        assert [graph.nodes[node].phone for node in found.nodes] in list(sayings(words))


def test_alternates_are_chosen_by_likelihood_and_stress_is_no_alternate() -> None:
    words = [[("R", "EH1", "D"), ("R", "IY1", "D"), ("R", "IY0", "D")]]
    alphabet = PhoneAlphabet.of_texts([], True)
    graph = PhoneGraph(words, alphabet)
    assert [node.phone for node in graph.nodes[1:]] == [
        "SIL",
        "R",
        "EH1",
        "D",
        "R",
        "IY1",
        "D",
        "SIL",
    ]
    assert graph.fewest == 5
    log_probs = np.full((6, alphabet.size), -8.0)
    log_probs[:, BLANK] = -0.1
    for frame, label in ((1, "SIL R"), (2, "R IY"), (4, "IY D"), (5, "D SIL")):
        log_probs[frame] = -8.0
        log_probs[frame, alphabet.labels.index(label) + 1] = -0.1
    found = best_path(log_probs, graph)
    assert [graph.nodes[node].phone for node in found.nodes] == ["SIL", "R", "IY1", "D", "SIL"]
    assert found.first == [0, 1, 2, 4, 5]


def test_scores_of_pairs_are_sums() -> None:
    """One column per pair: what its first phone's end and its second's beginning score together."""
    outputs, count = PairOutputs(3), len(UNITS)
    x = torch.randn(2, 3)
    single = torch.nn.functional.linear(x, outputs.weight, outputs.bias)  # blank, ends, beginnings
    labels = PhoneAlphabet.of_texts([], True).labels
    for column, label in ((0, None), (1, labels[0]), (777, labels[776]), (1600, labels[-1])):
        expected = single[:, 0]
        if label:
            a, b = map(UNITS.index, label.split())
            expected = single[:, 1 + a] + single[:, 1 + count + b]
        assert torch.allclose(outputs(x)[:, column], expected, atol=1e-6)


def test_audio_that_is_too_short_is_refused_with_numbers() -> None:
    alphabet = PhoneAlphabet.of_texts([], True)
    graph = PhoneGraph([[("B", "D", "K")]], alphabet)
    assert best_path(emissions(0, 5, alphabet.size), graph).first == [0, 1, 2, 3, 4]
    with pytest.raises(InputError) as error:
        best_path(emissions(0, 4, alphabet.size), graph)
    assert error.value.code == "audio-too-short"
    assert (error.value.found, error.value.expected) == ("4 frames", "at least 5, one per phone")


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
    rows = [(0, 0.1, ""), (0.1, 0.30000004, 'say "no"'), (0.30000004, 0.5, "now")]
    rows += [(0.5, 0.5, "nothing"), (0.5, 1e-5 + 2, "")]
    end, tiers = read_textgrid(textgrid({"words": rows, "phones": [(0, 1e-5 + 2, "")]}))
    assert end == 2.00001
    assert tiers["words"] == [
        (0, 0.1, ""), (0.1, 0.3, 'say "no"'), (0.3, 0.5, "now"), (0.5, 2.00001, ""),
    ]  # fmt: skip
    assert tiers["phones"] == [(0, 2.00001, "")]


# --- Sound: flite's speech and times (examples/speech/README.md has the command) ----------------


@pytest.fixture(scope="module")
def truth() -> list[tuple[str, float]]:
    """flite's phones with their ends."""
    parts = [each.split(":") for each in (SPOKEN / "wind.txt").read_text().split()]
    return [(name, float(end)) for name, end in parts]


@pytest.fixture(scope="module")
def found() -> speak.Alignment:
    return speak.align(SPOKEN / "wind.flac", TEXT)


def test_boundaries_are_those_of_the_synthesizer(
    found: speak.Alignment, truth: list[tuple[str, float]]
) -> None:
    """Held-out text, known times; the pronunciations are chosen by the sound."""
    names = {"pau": "SIL", "ax": "AH"}
    assert [each.phone.rstrip("012") for each in found.phones] == [
        names.get(name, name.upper()) for name, _ in truth
    ]
    said = {each.word: " ".join(each.phones) for each in found.words}
    assert (said["wind"], said["read"]) == ("W IH1 N D", "R EH1 D")
    ends = np.array([end for _, end in truth[:-1]])
    errors = np.abs(np.array([each.end_s for each in found.phones[:-1]]) - ends)
    assert np.median(errors) <= 0.015
    assert np.quantile(errors, 0.9) <= 0.04
    assert found.matches is True
    # Without gaps, from the beginning to the end of the audio.
    assert found.phones[0].start_s == 0
    assert (
        found.phones[-1].end_s == found.duration_s == soundfile.info(SPOKEN / "wind.flac").duration
    )
    for a, b in itertools.pairwise(found.phones):
        assert a.end_s == b.start_s > a.start_s


@pytest.mark.parametrize("name", ["44.1 kHz stereo wav", "8 bit", "quiet", "text file", "CRLF"])
def test_the_same_speech_in_another_form(name: str, found: speak.Alignment, tmp_path: Path) -> None:
    samples, rate = soundfile.read(SPOKEN / "wind.flac", dtype="float32")
    path, text = tmp_path / "said.wav", TEXT
    if name == "44.1 kHz stereo wav":
        both = np.stack([resample(samples, rate, 44_100)] * 2, axis=1)
        soundfile.write(path, both, 44_100, "FLOAT")
    elif name == "8 bit":
        soundfile.write(path, samples, rate, "PCM_U8")
    elif name == "quiet":
        soundfile.write(path, samples / 30, rate, "FLOAT")
    else:
        soundfile.write(path, samples, rate)
    if name == "text file":
        (tmp_path / "text").write_text("\ufeff" + TEXT)
        text = tmp_path / "text"  # type: ignore[assignment]
    if name == "CRLF":
        text = TEXT.replace(", ", " \u2013\r\n")
    other = speak.align(path, text)
    # A word that is said to be doubtful may be anywhere.
    pairs = zip(other.words, found.words, strict=True)
    sure = [(a, b) for a, b in pairs if min(a.score, b.score) > 0.5]
    assert len(sure) >= 18
    assert max(abs(a.start_s - b.start_s) for a, b in sure) <= 0.08
    assert other.matches is True


def test_text_that_is_not_said_is_not_aligned(tmp_path: Path) -> None:
    """Another sentence, silence, noise: never "matches"."""
    other = "Printing differs from most if not from all the arts and crafts of the exhibition."
    assert speak.align(SPOKEN / "wind.flac", other).exit_code == 1
    noise = np.random.default_rng(0).normal(0, 0.1, 5 * 16_000)
    for name, samples in (("silence", np.zeros(5 * 16_000)), ("noise", noise)):
        soundfile.write(tmp_path / f"{name}.wav", samples, 16_000)
        result = speak.align(tmp_path / f"{name}.wav", TEXT)
        assert result.matches is False
        assert [each.doubt for each in result.unknowns()] == [True]


def test_a_word_that_is_not_said_is_doubted(found: speak.Alignment) -> None:
    result = speak.align(SPOKEN / "wind.flac", TEXT.replace("river", "mountain"))
    scores = {each.word: each.score for each in result.words}
    assert scores["mountain"] < min(each.score for each in found.words)


def test_bad_audio_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bad.wav"
    samples = np.zeros(16_000, np.float32)
    for code, content in (
        ("not-finite", np.full(16_000, np.nan, np.float32)),
        ("audio-too-short", samples[:1600]),
        ("empty-input", samples[:100]),
    ):
        soundfile.write(path, content, 16_000, "FLOAT")
        with pytest.raises(InputError) as error:
            speak.align(path, TEXT)
        assert error.value.code == code
    with pytest.raises(InputError) as error:
        speak.align(tmp_path / "nothing.wav", TEXT)
    assert error.value.code == "not-found"


def test_files(found: speak.Alignment, tmp_path: Path) -> None:
    grid = tmp_path / "said.TextGrid"
    speak.align(SPOKEN / "wind.flac", TEXT, form="textgrid", output=grid)
    end, tiers = read_textgrid(grid.read_text())
    assert end == pytest.approx(found.duration_s, abs=1e-6)
    words = [each for each in tiers["words"] if each[2]]
    assert [each[2] for each in words] == [each.word for each in found.words]
    assert [each[0] for each in words] == pytest.approx(
        [each.start_s for each in found.words], abs=1e-6
    )
    silent = [each.phone == "SIL" for each in found.phones]
    assert [not label for _, _, label in tiers["phones"]] == silent
    speak.align(SPOKEN / "wind.flac", TEXT, form="ctm", output=tmp_path / "said.ctm")
    rows = [line.split() for line in (tmp_path / "said.ctm").read_text().splitlines()]
    assert [row[4] for row in rows] == [each.word for each in found.words]
    for row, word in zip(rows, found.words, strict=True):
        assert row[:2] == ["wind", "1"]
        assert [float(each) for each in row[2:4]] == pytest.approx(
            [word.start_s, word.end_s - word.start_s], abs=0.0051
        )


def test_long_silences_at_the_ends_are_silences(tmp_path: Path) -> None:
    samples, rate = soundfile.read(SPOKEN / "wind.flac")
    alone = speak.align(SPOKEN / "wind.flac", TEXT).words
    noise = np.random.default_rng(1).normal(0, 1, len(samples) + 6 * rate)
    hum = np.sin(np.arange(len(noise)) * 2 * np.pi * 50 / rate)
    for background in (0 * noise, 1e-3 * noise, 1e-2 * noise, 1e-2 * hum):
        whole = np.pad(samples, 3 * rate) + background
        soundfile.write(tmp_path / "long.wav", whole, rate)
        found = speak.align(tmp_path / "long.wav", TEXT)
        assert found.matches
        for word, own in zip(found.words, alone, strict=True):
            # Noise covers soft sounds at the edges.
            assert word.start_s - 3 == pytest.approx(own.start_s, abs=0.25)
            assert word.end_s - 3 == pytest.approx(own.end_s, abs=0.25)
        assert found.phones[-1].end_s == pytest.approx(found.duration_s)
