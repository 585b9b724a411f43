"""Voices: pitch, SSML, phones with times, the sound, the folder, training."""

from __future__ import annotations

import io
import json
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import soundfile
import torch

from holdfast.cli import main
from holdfast.config import read_config
from holdfast.errors import InputError
from holdfast.speech.speak import TimedPhone, Voice, speak, synthesis, track_pitch, train_voice
from holdfast.speech.speak.network import ProsodySettings, SynthesisSettings
from holdfast.speech.speak.prosody import pitch_of
from holdfast.speech.speak.ssml import Manner, spans
from holdfast.speech.speak.voice import Sound, VoiceDescription, compress, expand

SOUND = Sound(8000, 40)
PHONES = [
    TimedPhone("SIL", 0.0, 0.01),
    TimedPhone("HH", 0.01, 0.03),
    TimedPhone("AH0", 0.03, 0.06, (120.0, 110.0)),
    TimedPhone("SIL", 0.06, 0.08),
    TimedPhone("OW1", 0.08, 0.1, (100.0,), 0.5),
]


@pytest.fixture
def voice() -> Voice:
    """Small networks with random weights."""
    torch.manual_seed(0)
    sizes = ProsodySettings(4, 4), SynthesisSettings(2, 8, 8, 4)
    return Voice(VoiceDescription(SOUND, ("AH", "HH", "OW", "SIL"), *sizes))


def code(error: pytest.ExceptionInfo[InputError]) -> tuple[str, str | None]:
    return error.value.code, error.value.place


# --- Pitch and levels ----------------------------------------------------------------------------


@pytest.mark.parametrize("hertz", [62.0, 110.0, 233.3, 395.0])
def test_pitch_of_harmonics(hertz: float) -> None:
    time = np.arange(8000) / 16_000
    sound = sum(np.sin(2 * np.pi * k * hertz * time + k * k) / k for k in range(1, 9))
    found = track_pitch(0.1 * sound, 16_000, 80)
    assert len(found) == 100
    assert np.abs(found[10:-10] / hertz - 1).max() < 2e-3


@pytest.mark.parametrize("hertz", [40.0, 450.0])
def test_pitch_outside_the_limits_is_not_invented(hertz: float) -> None:
    # The subharmonics of a high tone are within the limits; a low tone has no period there.
    found = track_pitch(np.sin(2 * np.pi * hertz * np.arange(8000) / 16_000), 16_000, 80, 60, 400)
    true = found[10:-10]
    assert ((true == 0) | (np.abs(true * np.round(hertz / np.maximum(true, 1)) - hertz) < 2)).all()


def test_noise_and_silence_are_unvoiced() -> None:
    noise = np.random.default_rng(0).normal(0, 0.1, 16_000)
    assert (track_pitch(noise, 16_000, 80) > 0).mean() < 0.05
    assert not track_pitch(np.zeros(1000), 16_000, 80).any()
    with pytest.raises(InputError) as error:
        track_pitch(noise, 16_000, 80, 300, 200)
    assert error.value.code == "out-of-range"


def test_pitch_of_phones() -> None:
    hertz = np.array([0, 0, 0, 100, 0, 400, 0, 0, 0, 200.0])
    found = [pitch_of(part) for part in np.split(hertz, [3, 6, 10])]
    assert found[0] == found[2] == found[3] == ()
    assert found[1][0] == pytest.approx(100)
    assert found[1][-1] == pytest.approx(400)
    assert found[1][9] * found[1][10] == pytest.approx(40_000)  # 200 Hz halfway, on a log scale


def test_levels() -> None:
    codes = np.arange(256, dtype=np.uint8)
    assert (compress(expand(codes)) == codes).all()
    assert compress(np.array([-2.0, -1.0, 1.0, 9.0])).tolist() == [0, 0, 255, 255]
    x = np.linspace(-1, 1, 1001)
    assert (np.abs(expand(compress(x)) - x) <= 0.0225 * np.abs(x) + 1e-4).all()


# --- SSML ----------------------------------------------------------------------------------------


def test_ssml() -> None:
    text = (
        '<speak>One <prosody rate="200%" pitch="+12st">two <prosody volume="+20dB" rate="slow">'
        'three</prosody></prosody><break time="250ms"/> four &amp; five</speak>'
    )
    assert [(each.text.strip(), each.manner, each.pause_s) for each in spans(text)] == [
        ("One", Manner(), 0.0),
        ("two", Manner(2.0, 2.0, 1.0), 0.0),
        ("three", Manner(1.5, 2.0, 10.0), 0.0),
        ("", Manner(), 0.25),
        ("four & five", Manner(), 0.0),
    ]
    assert [each.text for each in spans("1 < 2 & <b>")] == ["1 < 2 & <b>"]


@pytest.mark.parametrize(
    ("rate", "factor"), [("+50%", 1.5), ("-10%", 0.9), ("50%", 0.5), ("0.5", 0.5), ("120%", 1.2)]
)
def test_a_rate_with_a_sign_is_a_change(rate: str, factor: float) -> None:
    [span] = spans(f'\ufeff<!DOCTYPE speak><speak><prosody rate="{rate}">a</prosody></speak>')
    assert span.manner.rate == pytest.approx(factor)


@pytest.mark.parametrize(
    ("inside", "expected"),
    [
        ("<p>a</s>", ("invalid-syntax", "line 1, column 14")),
        ("a & b", ("invalid-syntax", "line 1, column 11")),
        ("<audio/>", ("unknown-element", "/speak/audio")),
        ("<speak>a</speak>", ("unknown-element", "/speak/speak")),
        ('<prosody speed="2">a</prosody>', ("unknown-key", "/speak/prosody.speed")),
        ('<prosody rate="0">a</prosody>', ("invalid-value", "/speak/prosody.rate")),
        ('<prosody rate="+0.5">a</prosody>', ("invalid-value", "/speak/prosody.rate")),
        ('<prosody pitch="nan">a</prosody>', ("invalid-value", "/speak/prosody.pitch")),
        (
            '<prosody rate="0.2"><prosody rate="slow">a</prosody></prosody>',
            ("invalid-value", "/speak/prosody/prosody.rate"),
        ),
        ('<p><break time="61s"/></p>', ("invalid-value", "/speak/p/break.time")),
    ],
)
def test_ssml_that_cannot_be_spoken(inside: str, expected: tuple[str, str]) -> None:
    with pytest.raises(InputError) as error:
        spans(f"<speak>{inside}</speak>")
    assert code(error) == expected


# --- Phones and sound ----------------------------------------------------------------------------


@pytest.fixture
def words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every word is HH AH0, without a model of phonemes."""

    def pronounced(text: str) -> list[SimpleNamespace]:
        found = []
        for each in text.replace(".", " . ").split():
            pause = each == "."
            phones = ("SIL",) if pause else ("HH", "AH0")
            source = "pause" if pause else "dictionary"
            found.append(SimpleNamespace(text=each, phones=phones, source=source))
        return found

    monkeypatch.setattr(synthesis, "Phonemizer", lambda model: pronounced)


@pytest.mark.usefixtures("words")
def test_manner_changes_times_and_pitch(voice: Voice) -> None:
    plain = list(synthesis.timed_phones(voice, "a b. c"))
    assert [each.phone for each in plain] == [
        "SIL",
        "HH",
        "AH0",
        "HH",
        "AH0",
        "SIL",
        "HH",
        "AH0",
        "SIL",
    ]
    assert [each.start_s for each in plain[1:]] == [each.end_s for each in plain[:-1]]
    text = '<speak><prosody rate="0.5" pitch="+100%" volume="soft">a b. c</prosody></speak>'
    for slow, fast in zip(
        list(synthesis.timed_phones(voice, text))[1:-1], plain[1:-1], strict=True
    ):
        duration = 2 * (fast.end_s - fast.start_s)
        assert slow.end_s - slow.start_s == pytest.approx(duration, abs=1.5 * SOUND.frame_s)
        assert slow.f0_hz == pytest.approx([2 * each for each in fast.f0_hz], abs=0.02)
        assert slow.gain == 0.5
    # What is beyond the limits of a file of phones is not written to one.
    text = '<speak><prosody rate="0.2" pitch="-75%" volume="+20dB">a b. c</prosody></speak>'
    with torch.no_grad():
        voice.prosody.outputs.bias[2:] -= 30  # F0 as low as 7 Hz
    phones = [asdict(each) for each in synthesis.timed_phones(voice, text)]
    read = read_config({"phones": phones}, synthesis.ProsodyFile, "the prosody").phones
    assert {value for each in read for value in each.f0_hz} == {10.0}


@pytest.mark.usefixtures("words")
def test_breaks_have_their_duration(voice: Voice) -> None:
    broken = list(synthesis.timed_phones(voice, '<speak>a.<break time="1.5s"/>b</speak>'))
    assert max(each.end_s - each.start_s for each in broken) == pytest.approx(1.5)


@pytest.mark.parametrize("mark", [".", "?", ",", ";!"])
def test_marks_may_stand_behind_an_element(voice: Voice, mark: str) -> None:
    """Each part of the text is normalized alone; a mark between two elements is a part."""
    plain = list(synthesis.timed_phones(voice, f"a{mark} oh"))
    inside = f'<speak>a<prosody rate="1">{mark}</prosody> oh</speak>'
    marked = list(synthesis.timed_phones(voice, inside))
    assert [each.phone for each in marked] == [each.phone for each in plain]


def test_a_text_with_a_phone_that_the_voice_does_not_have(voice: Voice, tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        speak(voice, "Oh. Oh. Azure.", tmp_path / "a.wav")
    assert error.value.code == "unknown-phone"
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("words")
@pytest.mark.parametrize("text", ["", " ", "...", "<speak/>", '<speak><break time="1s"/></speak>'])
def test_nothing_to_speak(voice: Voice, text: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        speak(voice, text, tmp_path / "a.wav")
    assert error.value.code == "empty-input"
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("words")
def test_what_is_printed_can_be_given_back(voice: Voice, tmp_path: Path) -> None:
    first = speak(voice, "a b. c", tmp_path / "a.wav", seed=3)
    (tmp_path / "a.json").write_text(json.dumps(first.to_dict()))
    again = speak(voice, "a b. c", tmp_path / "b.wav", prosody=tmp_path / "a.json", seed=3)
    assert again.phones == first.phones
    assert (tmp_path / "a.wav").read_bytes() == (tmp_path / "b.wav").read_bytes()
    other = speak(voice, output=tmp_path / "c.wav", prosody=tmp_path / "a.json", seed=-4)
    assert other.seconds == first.seconds == pytest.approx(first.phones[-1].end_s)
    assert (tmp_path / "c.wav").read_bytes() != (tmp_path / "a.wav").read_bytes()
    with pytest.raises(InputError) as error:
        speak(voice, "a", tmp_path / "d.wav", prosody=tmp_path / "a.json")
    assert error.value.code == "conflict"


def test_sound(voice: Voice, tmp_path: Path) -> None:
    speech = speak(voice, output=tmp_path / "a.wav", prosody=PHONES)
    samples, rate = soundfile.read(tmp_path / "a.wav", dtype="int16")
    assert (rate, len(samples), speech.seconds) == (8000, 800, 0.1)
    assert np.abs(samples[640:]).max() <= 0.5 * 32767 + 1  # its gain is 1 / 2


def test_phones_of_no_duration_and_long_phrases(voice: Voice, tmp_path: Path) -> None:
    phones = [TimedPhone("SIL", 0.0, 0.001), TimedPhone("HH", 0.001, 0.01)]
    assert speak(voice, output=tmp_path / "a.wav", prosody=phones).seconds == 0.01
    many = [TimedPhone("AH0", 0.0, 0.0)] * 450
    assert [len(each) for each in synthesis.phrases(many)] == [200, 200, 50]


def test_samples_go_to_standard_output(voice: Voice, monkeypatch: pytest.MonkeyPatch) -> None:
    stdout = SimpleNamespace(buffer=io.BytesIO())
    monkeypatch.setattr(synthesis.sys, "stdout", stdout)
    speak(voice, prosody=PHONES)
    assert len(stdout.buffer.getvalue()) == 2 * 800


def test_the_command_writes_samples_to_standard_output(
    voice: Voice, capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path
) -> None:
    voice.save(tmp_path)
    (tmp_path / "a.json").write_text('{"phones": [{"phone": "SIL", "start_s": 0, "end_s": 0.1}]}')
    arguments = ["speech", "speak", str(tmp_path), "-o", "-"]
    with pytest.raises(SystemExit) as end:
        main([*arguments, "--prosody", str(tmp_path / "a.json")])
    assert not end.value.code
    assert len(capfdbinary.readouterr().out) == 2 * 800


def test_an_interrupted_run_leaves_a_file_that_plays(
    voice: Voice, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    whole, calls = synthesis.synthesize, []

    def interrupted(*arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return whole(*arguments)

    monkeypatch.setattr(synthesis, "synthesize", interrupted)
    with pytest.raises(KeyboardInterrupt):
        speak(voice, output=tmp_path / "a.wav", prosody=PHONES)
    assert (
        soundfile.info(tmp_path / "a.wav").frames == 640
    )  # up to the end of the first pause but one


@pytest.mark.parametrize(
    ("phones", "expected"),
    [
        ([], ("empty-input", None)),
        ([PHONES[0], PHONES[2]], ("conflict", "phones[1]")),
        ([TimedPhone("SIL", 1.0, 0.5)], ("conflict", "phones[0]")),
        ([TimedPhone("SIL", 0.5, 1.0)], ("conflict", "phones[0]")),  # what sounds before it?
        ([TimedPhone("SIL", 0.0, 61.0)], ("conflict", "phones[0]")),
        ([PHONES[0], TimedPhone("ZH", 0.01, 0.5)], ("unknown-phone", "phones[1]")),
    ],
)
def test_phones_that_cannot_be_spoken(
    voice: Voice, phones: list[TimedPhone], expected: tuple[str, str | None], tmp_path: Path
) -> None:
    with pytest.raises(InputError) as error:
        speak(voice, output=tmp_path / "a.wav", prosody=phones)
    assert code(error) == expected
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"phone": "AH0", "start_s": 0, "end_s": 1, "f0_hz": [0]}, "phones[0].f0_hz[0]"),
        ({"phone": "AH0", "start_s": -1, "end_s": 1}, "phones[0].start_s"),
        ({"phone": "AH0", "start_s": 0, "end_s": "1"}, "phones[0].end_s"),
        ({"phone": "AH0", "start_s": 0, "end_s": float("nan")}, "phones[0].end_s"),
    ],
)
def test_prosody_files_that_cannot_be_read(
    voice: Voice, row: dict[str, Any], expected: str, tmp_path: Path
) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"phones": [row]}))
    with pytest.raises(InputError) as error:
        speak(voice, output=tmp_path / "a.wav", prosody=tmp_path / "a.json")
    assert code(error)[0] in {"invalid-value", "conflict"}


# --- The folder, and training --------------------------------------------------------------------


def test_voices_are_saved_and_checked(voice: Voice, tmp_path: Path) -> None:
    voice.save(tmp_path)
    loaded = Voice.load(tmp_path)
    assert loaded.predict(["SIL", "AH0"]) == voice.predict(["SIL", "AH0"])
    with pytest.raises(InputError) as error:
        loaded.predict(["SIL", "ZH"])
    assert code(error) == ("unknown-phone", "phones[1]")
    text = (tmp_path / "model.json").read_text()
    (tmp_path / "model.json").write_text(text.replace('"residual": 8', '"residual": 16'))
    with pytest.raises(InputError) as error:
        Voice.load(tmp_path)
    assert error.value.code == "damaged"
    with torch.no_grad():
        voice.wavenet.mix[1, 2, 3] = float("nan")
    voice.save(tmp_path)
    with pytest.raises(InputError) as error:
        Voice.load(tmp_path)
    assert code(error) == ("not-finite", "wavenet.mix")


CONFIG = """
data = {{ train = "train.jsonl", test = "train.jsonl" }}
sound = {{ rate = 8000, hop = 40 }}
prosody = {{ dense = 4, units = 4 }}
prosody_training = {{ epochs = {epochs}, batch = 2 }}
synthesis = {{ layers = 2, residual = 8, skip = 8, units = 4 }}
synthesis_training = {{ epochs = {epochs}, frames = 20, context_frames = 2, checkpoint_steps = 1 }}
"""


def write_recordings(folder: Path) -> None:
    """Two recordings of a tone between pauses."""
    for number, hertz in enumerate((120, 150)):
        sound = 0.3 * np.sin(2 * np.pi * hertz * np.arange(2400) / 8000)
        sound[:400] = sound[2000:] = 0
        soundfile.write(folder / f"{number}.wav", sound, 8000)
    times = [("SIL", 0, 0.05), ("AH1", 0.05, 0.15 + 1e-4), ("OW0", 0.15, 0.25), ("SIL", 0.25, 0.3)]
    phones = [{"phone": phone, "start_s": start, "end_s": end} for phone, start, end in times]
    rows = [{"audio_filepath": f"{number}.wav", "phones": phones} for number in range(2)]
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_a_resumed_run_ends_with_the_same_bits(tmp_path: Path) -> None:
    write_recordings(tmp_path)
    for epochs in (1, 2):
        (tmp_path / f"{epochs}.toml").write_text(CONFIG.format(epochs=epochs))
    whole = train_voice(tmp_path / "2.toml", tmp_path / "whole")
    train_voice(tmp_path / "1.toml", tmp_path / "parts")
    with pytest.raises(InputError) as error:
        train_voice(tmp_path / "2.toml", tmp_path / "parts")
    assert error.value.code == "output-exists"
    parts = train_voice(tmp_path / "2.toml", tmp_path / "parts", resume=True)
    assert parts.description.training == whole.description.training
    name = "weights.safetensors"
    assert (tmp_path / "parts" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert whole.description.training["unigram_bits"] < 8


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (('"end_s": 0.3}', '"end_s": 0.9}'), ("conflict", "line 1: phones")),
        (('"start_s": 0.25', '"start_s": 0.2'), ("conflict", "line 1: phones[3]")),
        (('"phone": "SIL"', '"phon": "SIL"'), ("unknown-key", "line 1: phones[0].phon")),
        (("{", "["), ("invalid-syntax", "line 1")),
    ],
)
def test_recordings_that_cannot_be_used(
    change: tuple[str, str], expected: tuple[str, str], tmp_path: Path
) -> None:
    write_recordings(tmp_path)
    path = tmp_path / "train.jsonl"
    path.write_text(path.read_text().replace(*change, 1))
    (tmp_path / "a.toml").write_text(CONFIG.format(epochs=1))
    with pytest.raises(InputError) as error:
        train_voice(tmp_path / "a.toml", tmp_path / "voice")
    assert code(error) == expected
