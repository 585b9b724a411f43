"""What a voice is for: predictions like the speaker's, samples that follow the phones, any processor."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile

from holdfast.speech.speak import Phonemizer, Voice, train_voice
from holdfast.speech.speak.recordings import VoiceData, read_recordings
from holdfast.speech.speak.voice_training import likelihood, prosody_correlation

EXAMPLES = Path(__file__).parents[2] / "examples" / "speech"
SENTENCES = [
    "He was not an ill disposed young man.",
    "It is being comparatively modern.",
    "Had he married a more amiable woman, he might have been made still more respectable.",
    "The birds have left, and the water is cold again.",
    "Nobody knows where the old clock went.",
    "Please put the heavy boxes under the stairs.",
]
"""None is of the templates that the voice was trained on."""


def spoken(folder: Path) -> Path:
    """A manifest of the sentences as flite says them; stress is that of the dictionary."""
    phonemizer, rows = Phonemizer(), []
    for number, text in enumerate(SENTENCES):
        path = folder / f"{number}.wav"
        command = ["flite", "-voice", "slt", "-psdur", "-t", text, "-o", str(path)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        pairs = [each.split(":") for each in done.stdout.split()]
        names = [{"pau": "SIL", "ax": "AH"}.get(name, name.upper()) for name, _ in pairs]
        ends = [float(end) for _, end in pairs]
        stressed = [phone for word in phonemizer(text) for phone in word.phones if phone != "SIL"]
        said = [name for name in names if name != "SIL"]
        if len(said) != len(stressed):
            continue
        places = iter(stressed)
        phones = []
        for name, start, end in zip(names, [0.0, *ends], ends, strict=False):
            stress = "" if name == "SIL" else next(places).lstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
            phones.append({"phone": name + stress, "start_s": start, "end_s": end})
        rows.append({"audio_filepath": path.name, "text": text, "phones": phones})
    assert len(rows) >= 4
    (folder / "said.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / "said.jsonl"


@pytest.mark.full
@pytest.mark.skipif(not shutil.which("flite"), reason="flite gives the speech and its times")
def test_the_shipped_voice_predicts_its_speaker(tmp_path: Path) -> None:
    """Durations, pitch and samples of sentences of other authors than those of training."""
    voice = Voice.load(EXAMPLES / "voice")
    data = VoiceData("", "", 90.0, 320.0)
    recordings = read_recordings(spoken(tmp_path), voice.sound, data)
    found = prosody_correlation(voice, recordings)
    assert found["duration_correlation"] >= 0.8
    assert found["pitch_correlation"] >= 0.7
    bits = likelihood(voice, recordings)
    assert bits["bits_per_sample"] <= bits["unigram_bits"] - 2


CONFIG = """
data = {{ train = "train.jsonl", test = "test.jsonl" }}
sound = {{ rate = 8000, hop = 40 }}
prosody = {{ dense = 4, units = 4 }}
prosody_training = {{ epochs = 1 }}
synthesis = {{ layers = 4, residual = 16, skip = 16, units = 8, conditioned = {conditioned} }}
synthesis_training = {{ epochs = 8, frames = 20, context_frames = 4, learning_rate = 2e-3, anneal = 1.2 }}
"""


@pytest.mark.full
def test_phones_make_samples_more_likely(tmp_path: Path) -> None:
    """Noise whose loudness follows from the phone only, and changes faster than it can be heard."""
    rng = np.random.default_rng(0)
    for name, count in (("train", 60), ("test", 10)):
        rows = []
        for number in range(count):
            loud = rng.integers(0, 2, 40).astype(bool)
            levels = np.where(loud, 0.3, 0.003).repeat(40)  # 5 ms per phone
            path = f"{name}-{number}.wav"
            soundfile.write(tmp_path / path, levels * rng.normal(0, 1, len(levels)), 8000)
            phones = [
                {"phone": "S" if each else "F", "start_s": k / 200, "end_s": (k + 1) / 200}
                for k, each in enumerate(loud)
            ]
            rows.append({"audio_filepath": path, "phones": phones})
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    bits = {}
    for conditioned in ("true", "false"):
        (tmp_path / "voice.toml").write_text(CONFIG.format(conditioned=conditioned))
        voice = train_voice(tmp_path / "voice.toml", tmp_path / conditioned)
        bits[conditioned] = voice.description.training["bits_per_sample"]
    assert bits["true"] < bits["false"] - 0.05


PROGRAM = """
import numpy as np, torch
from holdfast.speech.speak.generation import Generator
from holdfast.speech.speak.network import SynthesisSettings, WaveNet

torch.manual_seed(1)
net = WaveNet(SynthesisSettings(3, 40, 72, conditioned=False))
draw = np.random.default_rng(0)
conditioning = draw.normal(0, 0.5, (1, 5, 3, 80)).astype(np.float32)
logits = np.zeros((1, 200, 256), np.float32)
codes = Generator(net, 40).generate(conditioning, draw.random((1, 200), np.float32), logits)
history = np.concatenate([[[128]], codes], 1).astype(np.int64)
with torch.no_grad():
    expected = net(torch.from_numpy(history), torch.from_numpy(conditioning)).numpy()
assert np.abs(logits - expected).max() < 1e-4, np.abs(logits - expected).max()
"""


@pytest.mark.full
def test_a_processor_without_wide_vectors(tmp_path: Path) -> None:
    """Compiled for the plainest processor of its kind: no AVX-512, no AVX, no fused products."""
    plain = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
    environment = {**os.environ, **plain, "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
