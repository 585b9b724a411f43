"""The search against sums over every alignment, and what must not change a text."""

from __future__ import annotations

import gzip
import itertools
import math
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from holdfast.errors import InputError
from holdfast.speech.recognize import Decoder, LanguageModel, decode
from holdfast.speech.recognize._kernels import labels_of
from holdfast.speech.recognize.decoding import Search
from holdfast.speech.recognize.emissions import log_probabilities

FRAMES = 8
LABELS = (" ", "a", "b", "c", "<blank>")
SPACE, BLANK = 0, 4
EXACT: dict[str, Any] = {"beam": 1_000_000, "least_log_prob": -np.inf, "margin": np.inf}
HOTWORDS = {"ab": 2.0, "b c": 3.0, "cc": 1.5}

# log10 P and back-offs of a bigram model that lacks "ba", "b a" and most others.
UNIGRAMS = {
    "<s>": (-99.0, -0.3),
    "</s>": (-1.1, 0.0),
    "<unk>": (-1.7, 0.0),
    "a": (-0.6, -0.4),
    "b": (-0.9, -0.2),
    "ab": (-1.0, -0.1),
    "c": (-1.2, 0.0),
}
BIGRAMS = {"<s> a": -0.5, "a b": -0.3, "b </s>": -0.4, "ab c": -0.2, "c a": -0.7}


def arpa() -> str:
    one = "\n".join(f"{p}\t{word}\t{backoff}" for word, (p, backoff) in UNIGRAMS.items())
    two = "\n".join(f"{p}\t{words}" for words, p in BIGRAMS.items())
    counts = f"ngram 1={len(UNIGRAMS)}\nngram 2={len(BIGRAMS)}"
    return f"\\data\\\n{counts}\n\n\\1-grams:\n{one}\n\n\\2-grams:\n{two}\n\n\\end\\\n"


@pytest.fixture(scope="module")
def lm(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    path = tmp_path_factory.mktemp("lm") / "words.arpa"
    path.write_text(arpa())
    return LanguageModel.read(path)


def language_score(text: str, alpha: float, beta: float, unknown: float, known: set[str]) -> float:
    """By the definition of back-off, one word at a time."""
    words = text.split()
    total, before = 0.0, "<s>"
    for word in [*words, "</s>"]:
        entry = word if word in UNIGRAMS else "<unk>"
        log10 = BIGRAMS.get(f"{before} {entry}")
        if log10 is None:
            log10 = UNIGRAMS[before][1] + UNIGRAMS[entry][0]
        total += alpha * log10 * math.log(10)
        if word not in UNIGRAMS and word not in known:
            total += unknown
        before = entry
    return total + beta * len(words)


def hotword_score(text: str) -> float:
    padded = f" {text} "
    return sum(
        weight
        for word, weight in HOTWORDS.items()
        for at in range(len(padded))
        if padded.startswith(f" {word} ", at)
    )


@pytest.fixture(scope="module")
def alignments() -> tuple[NDArray[np.int64], NDArray[np.int64], list[str]]:
    """Every label of every frame [alignments, frames], and the text of each by its place in a list."""
    every = np.indices((len(LABELS),) * FRAMES).reshape(FRAMES, -1).T
    before = np.c_[np.full(len(every), -1), every[:, :-1]]
    written = (every != BLANK) & (every != before)
    code = np.zeros(len(every), np.int64)
    for frame in range(FRAMES):
        code = np.where(written[:, frame], code * len(LABELS) + every[:, frame] + 1, code)
    codes, place = np.unique(code, return_inverse=True)
    texts: list[str] = []
    for value in codes.tolist():
        letters = []
        while value:
            value, letter = divmod(value - 1, len(LABELS))
            letters.append(LABELS[letter])
        texts.append(" ".join("".join(reversed(letters)).split()))
    return every, place, texts


@pytest.mark.parametrize("fused", [False, True], ids=["", "lm"])
@pytest.mark.parametrize("favored", [False, True], ids=["", "hotwords"])
def test_equals_the_sum_over_every_alignment(
    fused: bool,
    favored: bool,
    lm: LanguageModel,
    alignments: tuple[NDArray[np.int64], NDArray[np.int64], list[str]],
) -> None:
    every, place, texts = alignments
    logits = np.random.default_rng(5).normal(0, 2, (FRAMES, len(LABELS))).astype(np.float32)
    log_probs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    probability = np.exp(log_probs[np.arange(FRAMES), every].sum(1, dtype=np.float64))
    summed: dict[str, float] = defaultdict(float)
    for text, mass in zip(texts, np.bincount(place, probability), strict=True):
        summed[text] += mass
    known = {"ab", "b", "c", "cc"} if favored else set()
    expected = {}
    for text, mass in summed.items():
        score = math.log(mass)
        score += language_score(text, 0.7, 0.9, -2.0, known) if fused else 0.0
        expected[text] = score + (hotword_score(text) if favored else 0.0)
    found = decode(
        logits,
        LABELS,
        lm=lm if fused else None,
        hotwords=HOTWORDS if favored else (),
        alpha=0.7,
        beta=0.9,
        unknown_score=-2.0,
        texts=40,
        **EXACT,
    ).utterances[0]
    best = sorted(expected, key=lambda text: -expected[text])[:40]
    assert [each.text for each in found.hypotheses] == best
    for each in found.hypotheses:
        assert each.score == pytest.approx(expected[each.text], abs=1e-4)
        assert each.log_prob == pytest.approx(math.log(summed[each.text]), abs=1e-4)


def test_spellings_of_a_long_unknown_word_do_not_crowd_out_known_words(tmp_path: Path) -> None:
    """Two words that the model knows score best, and survive a beam of two."""
    arpa = tmp_path / "words.arpa"
    words = "-1\t<s>\n-1\t</s>\n-3\t<unk>\n-0.5\tabcdef\n-0.5\tghijkl\n"
    arpa.write_text(f"\\data\\\nngram 1=5\n\n\\1-grams:\n{words}\n\\end\\\n")
    labels = ["<blank>", " ", *"abcdefghijklm"]
    frames = np.full((13, len(labels)), -30.0)
    for frame, letter in enumerate("abcdef ghijkl"):
        frames[frame, labels.index(letter)] = 0.0
    frames[6, [0, 1]] = 0.0, -12.0  # where one word may end, a blank is far more probable
    frames[12, labels.index("m")] = 0.0
    rules: dict[str, Any] = {"lm": arpa, "least_log_prob": -15.0, "margin": 30.0}
    wide, narrow = (decode(frames, labels, beam=beam, **rules) for beam in (1000, 2))
    assert wide.texts == narrow.texts == ["abcdef ghijkl"]


def speech(seed: int, frames: int) -> NDArray[np.float32]:
    """Logits in which most frames are nearly sure."""
    draw = np.random.default_rng(seed)
    return draw.gumbel(0, 1.5, (frames, len(LABELS))).astype(np.float32)


def plain_search(log_probs: NDArray[np.float32], width: int, margin: float) -> dict[Any, float]:
    """Prefix beam search with a dictionary: ln P of each prefix that is left."""
    beam = {(): (0.0, -np.inf)}  # alignments that end in a blank, and in the last label
    for row in log_probs.astype(float):
        grown: dict[Any, list[float]] = defaultdict(lambda: [-np.inf, -np.inf])
        for prefix, (blank, last) in beam.items():
            both = np.logaddexp(blank, last)
            for label in (k for k in range(len(LABELS)) if row[k] > -5 or k == row.argmax()):
                nothing = label == BLANK or (label == SPACE and prefix[-1:] in ((), (SPACE,)))
                repeated = prefix[-1:] == (label,)
                if nothing or repeated:
                    scores = grown[prefix]
                    place = int(label != BLANK)
                    more = both if nothing else last
                    scores[place] = np.logaddexp(scores[place], more + row[label])
                if not nothing:
                    scores = grown[(*prefix, label)]
                    scores[1] = np.logaddexp(scores[1], (blank if repeated else both) + row[label])
        ranked = sorted(grown.items(), key=lambda each: -np.logaddexp(*each[1]))[:width]
        least = np.logaddexp(*ranked[0][1]) - margin
        beam = {key: (a, b) for key, (a, b) in ranked if np.logaddexp(a, b) >= least}
    return {prefix: float(np.logaddexp(*each)) for prefix, each in beam.items()}


@pytest.mark.parametrize(("width", "margin"), [(7, 10.0), (40, 3.0), (40, 10.0)])
def test_a_narrow_beam_keeps_what_a_plain_search_keeps(width: int, margin: float) -> None:
    """Also where a prefix leaves the beam, one that continues it stays, and it comes back."""
    for seed in range(4):
        log_probs = log_probabilities(speech(seed, 50))
        search = Search(Decoder(LABELS, beam=width, margin=margin), len(LABELS))
        search.push(log_probs)
        nodes, active = search.beam.nodes, search.beam.active
        found = {tuple(labels_of(nodes, at).tolist()): nodes["total"][at] for at in active}
        assert found == pytest.approx(plain_search(log_probs, width, margin))
        assert len(active) == len(found) <= width


def test_a_frame_that_writes_nothing_is_no_end() -> None:
    emissions = np.eye(4)[[1, 3, 0, 2]]
    assert decode(emissions, ["<pad>", "a", "b", "<s>"]).texts == ["ab"]


def test_a_batch_any_order_and_any_hotword_order_give_the_same(lm: LanguageModel) -> None:
    decoder = Decoder(LABELS, lm=lm, hotwords=HOTWORDS, texts=3)
    lengths = [(7 * k) % 31 for k in range(32)]  # one is empty
    batch = np.full((32, 31, len(LABELS)), 9.0, np.float32)
    for k, length in enumerate(lengths):
        batch[k, :length] = speech(k, length)
    together = decoder.decode(batch, lengths)
    alone = [decoder.decode(batch[k, :n]).utterances[0] for k, n in enumerate(lengths)]
    assert [each.hypotheses for each in together.utterances] == [x.hypotheses for x in alone]
    backwards = decoder.decode(batch[::-1], lengths[::-1])
    assert backwards.texts == together.texts[::-1]
    reordered = Decoder(LABELS, lm=lm, hotwords=dict(reversed(HOTWORDS.items())), texts=3)
    assert reordered.decode(batch, lengths) == together
    assert together.utterances[0].text == ""


@pytest.mark.parametrize("seed", range(3))
def test_one_prefix_is_the_best_path(seed: int) -> None:
    logits = speech(seed, 40)
    path = [LABELS[k] for k, _ in itertools.groupby(logits.argmax(1)) if k != BLANK]
    found = decode(logits, LABELS, beam=1).utterances[0].hypotheses[0]
    assert found.text == " ".join("".join(path).split())


def test_confidence_of_greedy_decoding_is_the_geometric_mean() -> None:
    emissions = peaks(4, 1, 1, 4, 2, 0, 4, 3, sure=0.8)
    emissions[2] = [0.05, 0.5, 0.05, 0.05, 0.35]
    words = decode(emissions, LABELS, beam=1, frame_s=0.02).utterances[0].hypotheses[0].words
    assert [(each.word, each.start_s, each.end_s) for each in words] == [
        ("ab", 0.02, 0.1),
        ("c", 0.14, 0.16),
    ]
    expected = [math.sqrt(math.sqrt(0.8 * 0.5) * 0.8), 0.8]
    assert [each.confidence for each in words] == pytest.approx(expected)


def test_frames_in_pieces_give_the_same(lm: LanguageModel) -> None:
    decoder = Decoder(LABELS, lm=lm, hotwords=HOTWORDS, texts=3)
    log_probs = log_probabilities(speech(2, 60))
    whole = decoder.decode_log_probs(log_probs)
    for size in (1, 7, 59):
        search = Search(decoder, len(LABELS))
        for begin in range(0, 60, size):
            search.push(log_probs[begin : begin + size])
        assert search.hypotheses() == whole


def test_any_form_of_the_outputs_gives_the_same() -> None:
    logits = speech(8, 30)
    probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    texts = {
        decode(form, LABELS).texts[0]
        for form in (
            logits,
            logits + 50,
            np.log(probabilities),
            probabilities,
            probabilities.astype(np.float16),
            logits.astype(np.float64),
            np.asfortranarray(logits),
            logits[None],
            torch.tensor(logits, requires_grad=True),
            torch.tensor(logits).bfloat16(),
        )
    }
    assert len(texts) == 1


def peaks(*labels: int, sure: float = 0.96) -> NDArray[np.float64]:
    """Probabilities of frames whose best label is given."""
    rest = (1 - sure) / (len(LABELS) - 1)
    found = np.full((len(labels), len(LABELS)), rest)
    found[np.arange(len(labels)), labels] = sure
    return found


def test_words_have_the_frames_of_their_labels() -> None:
    found = decode(
        peaks(4, 1, 1, 4, 2, 4, 0, 4, 3, 4, 3, 4), LABELS, frame_s=0.02, least_log_prob=-2
    )
    words = found.utterances[0].hypotheses[0].words
    assert [(each.word, each.first_frame, each.end_frame) for each in words] == [
        ("ab", 1, 5),
        ("cc", 8, 11),
    ]
    assert [each.end_s for each in words] == pytest.approx([0.1, 0.22])


def test_confidence_is_the_share_of_texts_with_the_word() -> None:
    emissions = peaks(4, 1, 4, 0, 4, 3, 4, sure=1.0)
    emissions[1] = [0, 0.7, 0.3, 0, 0]
    emissions[5] = [0, 0, 0.1, 0.9, 0]
    words = decode(emissions, LABELS).utterances[0].hypotheses[0].words
    assert [each.word for each in words] == ["a", "c"]
    assert [each.confidence for each in words] == pytest.approx([0.7, 0.9], abs=1e-6)


def test_hotwords_need_not_be_in_the_language_model(lm: LanguageModel) -> None:
    emissions = peaks(4, 2, 4, 1, 4, 3, 4, sure=0.9)
    emissions[3] = [0, 0.4, 0.6, 0, 0]
    without = decode(emissions, LABELS, lm=lm)
    favored = decode(emissions, LABELS, lm=lm, hotwords=["bac"])
    begun = decode(emissions, LABELS, lm=lm, hotwords=["bacabacabacab"])  # longer than the frames
    assert favored.texts == ["bac"]
    assert without.texts == begun.texts != favored.texts


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"logits": np.full((3, 5), np.nan)}, "invalid-value"),
        ({"logits": np.full((3, 5), np.inf)}, "invalid-value"),
        ({"logits": np.full((3, 5), -np.inf)}, "invalid-value"),
        ({"logits": np.full((3, 5), 0.5)}, "ambiguous"),
        ({"logits": -np.log(peaks(1, 2, 3))}, "unsupported"),
        ({"logits": np.log(peaks(1)).T}, "conflict"),
        ({"logits": np.full((3, 7), -1.0)}, "conflict"),
        ({"logits": np.zeros(5)}, "invalid-value"),
        ({"logits": np.zeros((3, 5), complex)}, "invalid-value"),
        ({"logits": np.zeros((2, 3, 5)), "lengths": [3]}, "conflict"),
        ({"logits": np.zeros((2, 3, 5)), "lengths": [3, 4]}, "conflict"),
        ({"labels": [*LABELS[:4], "d"]}, "unknown-name"),
        ({"labels": [*LABELS[:3], "a", "<blank>"]}, "duplicate"),
        ({"blank": "d"}, "unknown-name"),
        ({"blank": 5}, "unknown-name"),
        ({"delimiter": "|"}, "unknown-name"),
        ({"beam": 0}, "out-of-range"),
        ({"hotwords": ["xyz"]}, "no-match"),
        ({"hotwords": {"ab": -1.0}}, "out-of-range"),
        ({"labels": [*"XYZ", "|", "<blank>"]}, "conflict"),
        ({"labels": [*"ABC", "|", "<blank>"]}, "conflict"),
    ],
)
def test_what_cannot_be_decoded_is_refused(
    change: dict[str, Any], code: str, lm: LanguageModel
) -> None:
    settings: dict[str, Any] = {"logits": peaks(1, 4, 2), "labels": LABELS, "lm": lm, **change}
    with pytest.raises(InputError) as caught:
        decode(**settings)
    assert caught.value.code == code


def test_doubts_stand_above_the_texts(lm: LanguageModel) -> None:
    labels = [*"axyz", "<blank>"]
    found = decode(np.full((2, 3, 5), -1.0), labels, lm=lm, hotwords=["ax", "b"])
    assert len(found.doubts) == 4  # lengths, words without a delimiter, few words, a hotword


def test_a_file_of_utterances(tmp_path: Path) -> None:
    np.savez(tmp_path / "named.npz", call=peaks(1, 4, 2), reply=peaks(3), none=peaks(1)[:0])
    batch = np.stack([peaks(1, 4, 2), peaks(3, 3, 3)])
    np.savez(tmp_path / "batch.npz", logits=batch, lengths=np.array([3, 1]))
    (tmp_path / "labels.txt").write_text("\n".join(LABELS))
    (tmp_path / "hot.txt").write_text("ab\t1.5\ncc\n")
    (tmp_path / "lm.arpa.gz").write_bytes(gzip.compress(arpa().encode()))
    settings: dict[str, Any] = {"hotwords": tmp_path / "hot.txt", "lm": tmp_path / "lm.arpa.gz"}
    labels = tmp_path / "labels.txt"
    named = decode(tmp_path / "named.npz", labels, **settings)
    assert {each.name: each.text for each in named.utterances} == {
        "call": "ab",
        "reply": "c",
        "none": "",
    }
    padded = decode(tmp_path / "batch.npz", labels, **settings)
    assert padded.texts == ["ab", "c"]
    assert padded.to_dict()["utterances"][0]["hypotheses"][0]["words"][0]["word"] == "ab"


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ({"lengths": np.array([1])}, "empty-input"),
        ({"a": np.zeros((2, 3, 5)), "b": np.zeros((1, 5)), "lengths": np.ones(2)}, "conflict"),
        ({"a": np.array(["x"])}, "invalid-value"),
        ({"a": np.array([None])}, "unknown-format"),
    ],
)
def test_files_that_are_not_outputs(tmp_path: Path, content: dict[str, Any], code: str) -> None:
    np.savez(tmp_path / "x.npz", **content)
    (tmp_path / "labels.txt").write_text("\n".join(LABELS))
    with pytest.raises(InputError) as caught:
        decode(tmp_path / "x.npz", tmp_path / "labels.txt")
    assert caught.value.code == code
    assert caught.value.path == str(tmp_path / "x.npz")


@pytest.mark.parametrize("rules", [{"hotwords": ["ab"]}, {"lm": "words.arpa"}])
def test_greedy_decoding_has_no_use_for_words(rules: dict[str, Any]) -> None:
    with pytest.raises(InputError) as raised:
        Decoder(LABELS, beam=1, **rules)
    assert (raised.value.code, raised.value.place) == ("conflict", "beam")
