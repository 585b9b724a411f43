"""Streams: any chunks, any batch and any future beyond the look-ahead give the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from speech_models import RATE, model, recognized, sound

from holdfast.errors import InputError
from holdfast.speech.recognize.audio import read_audio, resample
from holdfast.speech.recognize.hypotheses import together
from holdfast.speech.recognize.model import SpeechModel
from holdfast.speech.recognize.streaming import Stream, Window, advance

SAID = "seven eight four zero zero"
"""In lucas-0002.wav."""


def same(one: list[Any], other: list[Any]) -> None:
    """Equal texts, times and scores."""
    assert len(one) == len(other)
    for a, b in zip(one, other, strict=True):
        assert [each.text for each in a] == [each.text for each in b]
        assert [each.score for each in a] == pytest.approx([each.score for each in b], abs=1e-4)
        places = [[(word.start_s, word.end_s) for word in each[0].words] for each in (a, b)]
        assert places[0] == places[1]
        confidence = [[word.confidence for word in each[0].words] for each in (a, b)]
        assert confidence[0] == pytest.approx(confidence[1], abs=1e-4)


@pytest.mark.parametrize("name", ["gru", "rnn", "plain"])
@pytest.mark.parametrize("beam", [1, 20])
def test_chunks_of_any_size_give_the_same(name: str, beam: int) -> None:
    of, samples = model(name), sound(2.0)
    whole, _ = recognized(of, samples, len(samples), beam=beam, texts=3)
    assert name == "rnn" or len(whole) > 1
    assert sum(len(each[0].words) for each in whole) > 1
    for size in (40, 333, 2560, 15_999):
        same(recognized(of, samples, size, beam=beam, texts=3)[0], whole)


@pytest.mark.parametrize("rate", [7000, 11_025, 16_000])
def test_streams_of_other_rates_are_resampled_like_files(rate: int) -> None:
    of, samples = model("plain"), sound(1.0)
    whole, _ = recognized(of, resample(samples, rate, RATE), 10**6)
    assert together(whole).text
    for size in (237, 777, 10**6):
        same(recognized(of, samples, size, rate)[0], whole)


def test_a_window_gives_a_filter_what_it_needs() -> None:
    """A sum over places from 3 before to 2 behind, of every second input."""
    x = torch.arange(1.0, 30).square()

    def summed(piece: torch.Tensor) -> torch.Tensor:
        padded = torch.nn.functional.pad(piece, (3, 2))
        return padded.unfold(0, 6, 2).sum(1)[: -(-len(piece) // 2)]

    for size in (1, 3, 4, 28, 40):
        window, found = Window(3, 2, 2), []
        for begin in range(0, len(x), size):
            piece, new = window.push(x[begin : begin + size], begin + size >= len(x))
            found.append(summed(piece)[new])
        assert torch.cat(found).tolist() == summed(x).tolist()


def test_the_future_beyond_the_look_ahead_changes_no_partial() -> None:
    of, samples = model("gru"), sound(2.0)
    assert of.network.look_ahead is not None
    _, partials = recognized(of, samples, 800)
    assert len(set(partials)) > 3
    stream = Stream(of, of.decoder(), endpoint_s=100)
    for at in range(800, len(samples), 800):
        # Nothing waits for more than the look-ahead ...
        advance([stream], [samples[at - 800 : at]], [False])
        frames = of.features.frames(at) - 1 - of.network.look_ahead
        assert len(stream.search.log_probs) == max(0, frames // of.network.stride + 1)
    # ... and nothing is lost to it: outputs with another future are the same.
    known = stream.search.log_probs
    for seed in (5, 6):
        other, changed = Stream(of, of.decoder(), endpoint_s=100), sound(0.5, seed=seed)
        advance([other], [np.concatenate([samples[:at], changed])], [False])
        np.testing.assert_allclose(other.search.log_probs[: len(known)], known, atol=1e-4)


def test_streams_in_one_batch_are_those_alone() -> None:
    of, decoder = model("gru"), model("gru").decoder(beam=10)
    sounds = [sound(0.3 + 0.2 * k, seed=k) for k in range(5)]
    streams = [Stream(of, decoder, endpoint_s=0.1) for _ in sounds]
    found: list[list[Any]] = [[] for _ in sounds]
    places = [0] * len(sounds)
    draw = np.random.default_rng(1)
    while live := [k for k, each in enumerate(sounds) if places[k] < len(each)]:
        chosen = draw.permutation(live)[: draw.integers(1, len(live) + 1)].tolist()
        sizes = [int(draw.integers(1, 3000)) for _ in chosen]
        chunks = [sounds[k][places[k] : places[k] + n] for k, n in zip(chosen, sizes, strict=True)]
        for k, n in zip(chosen, sizes, strict=True):
            places[k] += n
        ends = [places[k] >= len(sounds[k]) for k in chosen]
        for k, segments in zip(
            chosen, advance([streams[k] for k in chosen], chunks, ends), strict=True
        ):
            found[k] += segments
    for segments, samples in zip(found, sounds, strict=True):
        same(segments, recognized(of, samples, 10**6, beam=10)[0])


def test_a_model_that_needs_the_end_is_not_a_stream() -> None:
    of, samples = model("two-way"), sound(0.5)
    assert recognized(of, samples, len(samples))[0]
    with pytest.raises(InputError) as caught:
        recognized(of, samples, 400)
    assert caught.value.code == "unsupported"


@pytest.mark.parametrize("level", [0.0, 3e-5, 1e-3, 1e-2])
def test_noise_before_behind_and_without_speech_is_no_text(level: float) -> None:
    folder = Path(__file__).resolve().parents[2] / "examples" / "speech"
    of, draw = SpeechModel.load(folder / "model"), np.random.default_rng(0)
    spoken = read_audio(folder / "strings" / "lucas-0002.wav", RATE).samples
    before, behind = (draw.normal(0, level, 4 * RATE).astype(np.float32) for _ in range(2))
    chunks = [before, np.concatenate([before, spoken, behind])]
    nothing, said = advance([Stream(of, of.decoder()) for _ in chunks], chunks, [True, True])
    assert nothing == []
    assert together(said).text == SAID


@pytest.mark.full
def test_minutes_without_speech_have_no_words() -> None:
    """Of the example: before, between and after its words, whatever noise the microphone has."""
    folder = Path(__file__).resolve().parents[2] / "examples" / "speech"
    of, draw = SpeechModel.load(folder / "model"), np.random.default_rng(0)
    spoken = read_audio(folder / "strings" / "lucas-0002.wav", RATE).samples
    size = 60 * RATE
    white, wave = draw.standard_normal(size), np.sin(2 * np.pi * np.arange(size) / RATE)
    quiet = {
        "digital silence": 0 * white,
        "dither": np.round(white / 2) / 32768,
        "swelling": 1e-3 * white * (1 + wave.repeat(2)[:size]),
        "brown": np.cumsum(2e-5 * white.reshape(-1, RATE), axis=1).ravel(),
        "hum": 1e-3 * np.sin(2 * np.pi * 50 * np.arange(size) / RATE) + 3e-5 * white,
    }
    gap = np.zeros(2 * size)
    words = np.concatenate([spoken, gap, spoken])
    words += draw.normal(0, 3e-4, len(words))
    sounds = [each.astype(np.float32) for each in (*quiet.values(), words)]
    streams = [Stream(of, of.decoder()) for _ in sounds]
    found: list[list[Any]] = [[] for _ in sounds]
    for begin in range(0, len(words), RATE):
        chunks, last = [each[begin : begin + RATE] for each in sounds], begin + RATE >= len(words)
        for segments, more in zip(
            found, advance(streams, chunks, [last] * len(sounds)), strict=True
        ):
            segments += more
    texts = [together(each).text for each in found]
    assert texts == [""] * len(quiet) + [f"{SAID} {SAID}"]
    # Whole files have no words either.
    alone = [Stream(of, of.decoder()) for _ in quiet]
    assert advance(alone, sounds[:-1], [True] * len(alone)) == [[]] * len(alone)


def test_streams_without_speech_have_no_segments() -> None:
    of = model("gru")
    stream = Stream(of, of.decoder())
    assert advance([stream], [np.zeros(0, np.float32)], [True]) == [[]]
