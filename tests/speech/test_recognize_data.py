"""Audio, features, manifests, alphabets: against formulas, other forms of the same input, bad input."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from holdfast.errors import InputError
from holdfast.speech.recognize.audio import read_audio
from holdfast.speech.recognize.features import (
    ABSOLUTE_FLOOR,
    FALL_DB_S,
    FLOOR,
    FeatureSettings,
    Frames,
    log_features,
)
from holdfast.speech.recognize.labels import Alphabet, clean_text, frames_needed
from holdfast.speech.recognize.manifests import check_disjoint, read_manifest
from holdfast.speech.recognize.noise import NoiseSettings, mix, read_noise, vary

RNG = np.random.default_rng(7)
SOUND = (0.3 * np.sin(np.arange(1600) * 0.2) + 0.01 * RNG.standard_normal(1600)).astype(np.float32)


# --- Audio ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("form", "kind", "error"),
    [
        ("WAV", "PCM_U8", 1 / 128),
        ("WAV", "PCM_16", 1 / 32768),
        ("WAV", "PCM_24", 1e-6),
        ("WAV", "PCM_32", 1e-6),
        ("WAV", "FLOAT", 0.0),
        ("WAV", "ULAW", 0.02),
        ("WAVEX", "PCM_24", 1e-6),
        ("FLAC", "PCM_16", 1 / 32768),
    ],
)
def test_every_format_gives_the_samples(tmp_path: Path, form: str, kind: str, error: float) -> None:
    path = tmp_path / "a.audio"
    soundfile.write(path, SOUND, 8000, kind, format=form)
    audio = read_audio(path, 8000)
    assert audio.samples.dtype == np.float32
    assert audio.notes == ()
    np.testing.assert_allclose(audio.samples, SOUND, atol=error)


def test_stereo_is_mixed_and_other_rates_are_resampled(tmp_path: Path) -> None:
    seconds = np.arange(44_100) / 44_100
    tone = np.sin(2 * np.pi * 440 * seconds)
    soundfile.write(tmp_path / "a.wav", np.stack([tone, 0 * tone], axis=1), 44_100, "FLOAT")
    audio = read_audio(tmp_path / "a.wav", 16_000)
    assert len(audio.samples) == 16_000
    assert len(audio.notes) == 2
    expected = 0.5 * np.sin(2 * np.pi * 440 * np.arange(16_000) / 16_000)
    np.testing.assert_allclose(audio.samples[800:-800], expected[800:-800], atol=5e-3)


@pytest.mark.parametrize("offset", [-0.3, 0.02, 0.2])
def test_a_dc_offset_changes_nothing(tmp_path: Path, offset: float) -> None:
    soundfile.write(tmp_path / "a.wav", SOUND + offset, 8000, "FLOAT")
    audio = read_audio(tmp_path / "a.wav", 8000)
    np.testing.assert_allclose(audio.samples, SOUND - SOUND.mean(), atol=1e-5)
    assert len(audio.notes) == 1


def test_an_offset_alone_is_silence_in_one_channel(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", np.full(1600, 0.1), 8000, "FLOAT")
    audio = read_audio(tmp_path / "a.wav", 8000)
    np.testing.assert_allclose(audio.samples, 0, atol=1e-6)
    assert len(audio.notes) == 1


def test_an_inverted_channel_is_told(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", np.stack([SOUND, -SOUND], 1), 8000, "PCM_16")
    assert len(read_audio(tmp_path / "a.wav", 8000).notes) == 2


def test_a_format_that_cannot_be_wound_back(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", SOUND, 8000, "GSM610")
    found = read_audio(tmp_path / "a.wav", 8000).samples[:1600]
    assert np.corrcoef(found, SOUND)[0, 1] > 0.9


def test_a_part_of_a_file(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", SOUND, 8000, "FLOAT")
    np.testing.assert_array_equal(
        read_audio(tmp_path / "a.wav", 8000, 0.05, 0.1).samples, SOUND[400:1200]
    )
    with pytest.raises(InputError) as caught:
        read_audio(tmp_path / "a.wav", 8000, 0.15, 0.1)
    assert caught.value.code == "out-of-range"


def _written(folder: Path, kind: str) -> Path:
    path = folder / f"{kind}.wav"
    if kind == "nan":
        soundfile.write(path, np.where(np.arange(1600) == 9, np.nan, SOUND), 8000, "FLOAT")
    elif kind == "empty":
        soundfile.write(path, SOUND[:0], 8000)
    elif kind == "text":
        path.write_text("hello")
    elif kind == "slow":
        soundfile.write(path, SOUND, 100)
    elif kind == "cut":
        soundfile.write(path, SOUND, 8000)
        path.write_bytes(path.read_bytes()[:-500])
    elif kind == "cut-flac":
        soundfile.write(path, RNG.standard_normal(20_000) / 4, 8000, format="FLAC")
        path.write_bytes(path.read_bytes()[:-9000])
    elif kind == "integers":  # as scipy.io.wavfile.write writes what was not divided
        soundfile.write(path, SOUND * 32768, 8000, "FLOAT")
    elif kind == "zero-bytes":
        path.touch()
    return path


@pytest.mark.parametrize(
    ("kind", "codes"),
    [
        ("nan", ["not-finite"]),
        ("empty", ["empty-input"]),
        ("text", ["unknown-format"]),
        ("slow", ["out-of-range"]),
        ("cut", ["damaged"]),
        ("integers", ["out-of-range"]),
        ("cut-flac", ["damaged", "unknown-format"]),
        ("zero-bytes", ["unknown-format"]),
        ("missing", ["not-found"]),
    ],
)
def test_unusable_audio_is_named(tmp_path: Path, kind: str, codes: list[str]) -> None:
    path = _written(tmp_path, kind)
    with pytest.raises(InputError) as caught:
        read_audio(path, 8000)
    assert caught.value.code in codes
    assert caught.value.path == str(path)


def test_a_stream_without_a_known_length_is_not_cut_off(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", SOUND, 8000)
    content = bytearray((tmp_path / "a.wav").read_bytes())
    content[4:8] = content[40:44] = b"\xff\xff\xff\xff"
    (tmp_path / "a.wav").write_bytes(content)
    assert len(read_audio(tmp_path / "a.wav", 8000).samples) == 1600


# --- Features ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["mel", "spectrogram"])
@pytest.mark.parametrize("relative", [False, True])
def test_features_are_those_of_the_formula(kind: str, relative: bool) -> None:
    scale = "running" if relative else "absolute"
    settings = FeatureSettings(kind, 8000, mels=20, level=scale)  # type: ignore[arg-type]
    found = log_features(SOUND, settings).numpy()
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(160) / 160)
    level = -np.inf
    for place in range(19):
        frame = SOUND[80 * place : 80 * place + 160].astype(np.float64) * window
        points = 160 if kind == "spectrogram" else 512
        k, n = np.arange(points // 2 + 1)[:, None], np.arange(160)
        power = np.abs((frame * np.exp(-2j * np.pi * k * n / points)).sum(1)) ** 2
        if kind == "mel":
            hertz = np.arange(257) * 8000 / 512
            tops = 700 * (10 ** (np.linspace(0, 2595 * np.log10(1 + 4000 / 700), 22) / 2595) - 1)
            bands = [np.interp(hertz, tops[m : m + 3], [0, 1, 0]) for m in range(20)]
            power = np.array(bands) @ power
        own = 10 * np.log10(power.mean())
        level = max(own, level - FALL_DB_S / 100)
        expected = np.log(power + ABSOLUTE_FLOOR)
        if relative:
            expected = np.log(power / 10 ** (level / 10) + FLOOR)
        np.testing.assert_allclose(found[place], expected, rtol=1e-3, atol=1e-3)
    assert found.shape == (19, settings.bins)


def test_frames_do_not_depend_on_what_follows() -> None:
    settings = FeatureSettings(rate=8000, mels=20, level="running")
    whole, part = log_features(SOUND, settings), log_features(SOUND[:700], settings)
    assert (whole[: len(part)] == part).all()
    for size in (1, 80, 333):
        frames = Frames(settings)
        pieces = [frames.push(SOUND[k : k + size]) for k in range(0, len(SOUND), size)]
        np.testing.assert_allclose(torch.cat(pieces), whole, atol=1e-5)


def test_the_gain_of_the_microphone_changes_nothing() -> None:
    sound = SOUND * np.repeat([1.0, 0.1, 0.5, 0.02], 400).astype(np.float32)
    settings = FeatureSettings(rate=8000, mels=20)
    loud, quiet = log_features(sound, settings), log_features(sound / 100, settings)
    np.testing.assert_allclose(loud, quiet, atol=1e-3)


@pytest.mark.parametrize(
    ("samples", "mels", "code"), [(100, 20, "empty-input"), (400, 400, "out-of-range")]
)
def test_features_that_cannot_be(samples: int, mels: int, code: str) -> None:
    with pytest.raises(InputError) as caught:
        log_features(SOUND[:samples], FeatureSettings(rate=8000, mels=mels))
    assert caught.value.code == code


# --- Noise ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("snr_db", [-10.0, 0.0, 12.5, 30.0])
def test_the_mixture_has_the_stated_ratio_of_powers(snr_db: float) -> None:
    noise = RNG.laplace(size=5000)  # its peak is far above its power
    added = mix(SOUND, noise, snr_db).astype(np.float64) - SOUND
    found = 10 * np.log10(np.mean(SOUND.astype(np.float64) ** 2) / np.mean(added**2))
    assert found == pytest.approx(snr_db, abs=0.1)


@pytest.mark.parametrize("recorded", [False, True])
def test_variations_follow_from_the_seed(tmp_path: Path, recorded: bool) -> None:
    soundfile.write(tmp_path / "n.wav", SOUND[:300], 8000)
    noises = read_noise(tmp_path, 8000) if recorded else []
    settings = NoiseSettings(snr_db=(5, 5), share=1.0, speeds=(0.8, 1.25))
    one, two, other = (
        vary(SOUND, 8000, settings, noises, np.random.default_rng(seed), 100) for seed in (1, 1, 3)
    )
    assert (one == two).all()
    assert not np.array_equal(one, other)
    assert len(one) in (2000, 1280)
    # No speed makes an utterance too short for its text.
    assert len(vary(SOUND, 8000, NoiseSettings(share=0, speeds=(2.0,)), [], RNG, 1000)) == 1600


def test_pauses_are_not_speech() -> None:
    """Neither the utterance nor the ratio of the noise over it depends on them."""
    settings = NoiseSettings(snr_db=(7, 7), share=1.0)
    for seed in range(5):
        bare = vary(SOUND, 8000, None, [], np.random.default_rng(seed), 0, (3000, 500))
        assert len(bare) == 5100
        np.testing.assert_array_equal(bare[3000:4600], SOUND)
        pause = np.concatenate([bare[:3000], bare[4600:]]).astype(np.float64)
        power = np.mean(SOUND.astype(np.float64) ** 2)
        assert np.mean(pause**2) <= power * 10**-1.49
        noisy = vary(SOUND, 8000, settings, [], np.random.default_rng(seed), 0, (3000, 500))
        clean = vary(
            SOUND, 8000, NoiseSettings(share=0), [], np.random.default_rng(seed), 0, (3000, 500)
        )
        added = np.mean((noisy.astype(np.float64) - clean) ** 2)
        assert 10 * np.log10(power / added) == pytest.approx(7, abs=0.1)
    silence = vary(0 * SOUND, 8000, None, [], RNG, 0, (10, 10))
    assert silence.tolist() == [0.0] * 1620


def test_another_microphone_is_a_first_order_filter() -> None:
    tilts, settings = [], NoiseSettings(share=0, tilt=0.6)
    for seed in range(6):
        found = vary(SOUND, 8000, settings, [], np.random.default_rng(seed), 0)
        c = np.dot(SOUND[1:] - found[1:], SOUND[:-1]) / np.dot(SOUND[:-1], SOUND[:-1])
        np.testing.assert_allclose(found[1:], SOUND[1:] - c * SOUND[:-1], atol=1e-5)
        tilts.append(float(c))
    assert max(map(abs, tilts)) <= 0.6
    assert min(tilts) < -0.1 < 0.1 < max(tilts)


# --- Alphabets -----------------------------------------------------------------------------------


def test_any_script_is_encoded_and_decoded() -> None:
    for text in ("one two", "语音 识别", "naïve café", "🙂 ok"):
        clean = clean_text(text)
        alphabet = Alphabet.of_texts([clean], bigrams=False)
        assert "".join(alphabet.outputs.texts[k] for k in alphabet.encode(clean)) == clean
    assert clean_text(" cafe\u0301\n x ") == "caf\u00e9 x"


def test_bigrams_are_the_pairs_of_each_word() -> None:
    alphabet = Alphabet.of_texts(["the cat sat"], bigrams=True)
    pieces = [alphabet.labels[each - 1] for each in alphabet.encode("the cat sat")]
    assert pieces == ["th", "e", " ", "ca", "t", " ", "sa", "t"]
    # A pair that no training text has is two characters.
    assert [alphabet.labels[k - 1] for k in alphabet.encode("tech")] == ["t", "e", "c", "h"]
    assert alphabet.unknown("xylo the x") == {"x": 2, "y": 1, "l": 1, "o": 1}


def test_frames_that_ctc_needs() -> None:
    assert frames_needed([1, 2, 3]) == 3
    assert frames_needed([1, 1, 2, 2, 2]) == 8


# --- Manifests -----------------------------------------------------------------------------------

ROWS = [("a.wav", "one  two", "ann"), ("b.wav", "cafe\u0301", "bob")]


def _manifest(folder: Path, form: str) -> Path:
    if form == "kaldi":
        (folder / "wav.scp").write_text("u1 a.wav\nu2 b.wav\n")
        (folder / "text").write_text("u1 one  two\nu2 cafe\u0301\n")
        (folder / "utt2spk").write_text("u1 ann\nu2 bob\n")
        return folder
    if form == "nemo":
        keys = "audio_filepath", "text", "speaker"
        lines = [json.dumps(dict(zip(keys, row, strict=True))) for row in ROWS]
        path = folder / "m.jsonl"
    else:
        lines = []
        for name, text, speaker in ROWS:
            source = {"type": "file", "channels": [0], "source": name}
            said = {"id": name, "start": 0.0, "duration": 1.0, "text": text, "speaker": speaker}
            cut = {"id": "c", "start": 0.0, "duration": 1.0, "recording": {"sources": [source]}}
            lines.append(json.dumps({**cut, "supervisions": [said], "type": "MonoCut"}))
        path = folder / "cuts.jsonl"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8-sig" if form == "nemo" else "utf-8")
    return path


@pytest.mark.parametrize("form", ["kaldi", "nemo", "lhotse"])
def test_every_manifest_gives_the_same_utterances(tmp_path: Path, form: str) -> None:
    for name, *_ in ROWS:
        (tmp_path / name).touch()
    found, excluded = read_manifest(_manifest(tmp_path, form))
    assert not excluded
    assert [(each.path.name, each.text, each.speaker) for each in found] == [
        ("a.wav", "one two", "ann"),
        ("b.wav", "caf\u00e9", "bob"),
    ]
    assert all(each.path.is_relative_to(tmp_path) for each in found)


def test_segments_of_a_kaldi_recording(tmp_path: Path) -> None:
    _manifest(tmp_path, "kaldi")
    (tmp_path / "segments").write_text("u1 u2 0.5 2.0\nu2 u2 2 3\n")
    found, _ = read_manifest(tmp_path)
    assert [(each.path.name, each.start_s, each.duration_s) for each in found] == [
        ("b.wav", 0.5, 1.5),
        ("b.wav", 2.0, 1.0),
    ]


@pytest.mark.parametrize(
    "change", [("[0]", "[0, 1]"), ('"sources"', '"transforms": [{}], "sources"')]
)
def test_cuts_of_other_audio_than_the_files_are_not_used(
    tmp_path: Path, change: tuple[str, str]
) -> None:
    path = _manifest(tmp_path, "lhotse")
    path.write_text(path.read_text().replace(*change))
    with pytest.raises(InputError) as caught:
        read_manifest(path)
    assert caught.value.code == "too-many-rejects"


def test_unusable_lines_are_counted_and_too_many_are_refused(tmp_path: Path) -> None:
    good = json.dumps({"audio_filepath": "a.wav", "text": "x"})
    bad = ["{", '{"text": "x"}', '{"audio_filepath": "a.wav", "text": ""}', "[1]", "null"]
    path = tmp_path / "m.jsonl"
    for line in bad:
        path.write_text("\n".join([good] * 20 + [line]))
        found, excluded = read_manifest(path)
        assert (len(found), len(excluded)) == (20, 1)
        assert excluded[0]["utterance"] == "line 21"
    path.write_text("\n".join([good, *bad]))
    with pytest.raises(InputError) as caught:
        read_manifest(path)
    assert caught.value.code == "too-many-rejects"


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("m.jsonl", "", "no-data"),
        ("m.csv", "path,text\na.wav,b\n", "too-many-rejects"),
        ("absent.jsonl", None, "unreadable"),
    ],
)
def test_manifests_without_utterances(
    tmp_path: Path, name: str, content: str | None, code: str
) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(InputError) as caught:
        read_manifest(tmp_path / name)
    assert caught.value.code == code


def test_sets_that_share_speakers_or_utterances(tmp_path: Path) -> None:
    both, _ = read_manifest(_manifest(tmp_path, "csv"))
    one, two = both[:1], both[1:]
    assert check_disjoint(one, two)
    same_voice = [type(two[0])("x", Path("c.wav"), "x", "ann")]
    with pytest.raises(InputError) as caught:
        check_disjoint(one, same_voice)
    assert caught.value.code == "overlap"
    assert not check_disjoint(one, same_voice, shared_speakers=True)
    # Unknown speakers: cannot tell.
    assert not check_disjoint(one, [type(two[0])("x", Path("c.wav"), "x")])
    with pytest.raises(InputError):
        check_disjoint(both, two, shared_speakers=True)
