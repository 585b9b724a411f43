"""Networks, training and scoring: against loops, other batches, resumed runs, other numbers of ranks."""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from holdfast.errors import HoldfastError, InputError
from holdfast.speech.recognize import training
from holdfast.speech.recognize.hypotheses import Word, subtitles
from holdfast.speech.recognize.network import (
    Convolution,
    Direction,
    Network,
    NetworkSettings,
    SequenceNorm,
    padded,
    valid,
)
from holdfast.speech.recognize.recognition import recognize
from holdfast.speech.recognize.scoring import error_rates, score
from holdfast.speech.recognize.trainer import STATE, Trainer
from holdfast.speech.recognize.training import train

CONVOLUTIONS = (Convolution(4, 5, 3, 2, 2), Convolution(3, 4, 2, 1, 1))
NETWORKS = {
    "gru": NetworkSettings(CONVOLUTIONS, layers=2, units=8, look_ahead=3, dense=(6,)),
    "rnn": NetworkSettings(CONVOLUTIONS[:1], "rnn", layers=1, units=8, look_ahead=2),
    "plain": NetworkSettings((), "gru", layers=1, units=8, batch_norm=False),
    "both": NetworkSettings(CONVOLUTIONS, "rnn", layers=2, units=8, bidirectional=True),
    "both-gru": NetworkSettings((), "gru", layers=1, units=8, bidirectional=True),
}


def _network(name: str) -> Network:
    torch.manual_seed(3)
    network = Network(NETWORKS[name], bins=10, labels=5)
    for each in network.parameters():  # row convolutions and slopes away from the identity
        torch.nn.init.normal_(each, 0.1, 0.3)
    for each in network.modules():
        if isinstance(each, SequenceNorm):
            each.mean.normal_()
            each.variance.uniform_(0.5, 2)
    return network


def _utterances(*lengths: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    return [torch.randn(length, 10, generator=generator) for length in lengths]


# --- Network -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NETWORKS)
def test_an_utterance_does_not_depend_on_its_batch(name: str) -> None:
    network = _network(name).eval()
    batch = _utterances(*range(3, 35))
    together, lengths = network(*padded(batch))
    for place in (0, 7, 30, 31):
        alone, (length,) = network(*padded(batch[place : place + 1]))
        assert int(length) == int(lengths[place]) == alone.shape[1]
        torch.testing.assert_close(together[place, : int(length)], alone[0], atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", NETWORKS)
def test_padding_is_in_no_statistic(name: str) -> None:
    features, lengths = padded(_utterances(9, 21, 14))
    more = functional.pad(features, (0, 0, 0, 13), value=1e3)
    results = []
    for each in (features, more):
        network = _network(name).train()
        outputs, valid_outputs = network(each, lengths)
        kept = torch.cat([o[:n] for o, n in zip(outputs, valid_outputs.tolist(), strict=True)])
        kept.square().sum().backward()
        gradients = [p.grad for p in network.parameters()]
        results.append([kept, *gradients, *network.buffers()])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", ["gru", "rnn", "plain"])
def test_the_future_beyond_the_look_ahead_changes_nothing(name: str) -> None:
    network = _network(name).eval()
    (features,) = _utterances(40)
    before, _ = network(*padded([features]))
    assert network.look_ahead is not None
    for place in (0, 5, 11):
        end = place * network.stride + network.look_ahead + 1
        changed = features.clone()
        changed[end:] = 50.0
        after, _ = network(*padded([changed]))
        assert (after[0, : place + 1] == before[0, : place + 1]).all()
        # And the look-ahead is not larger than it has to be.
        changed[end - 1] = 50.0
        after, _ = network(*padded([changed]))
        assert not (after[0, place] == before[0, place]).all()
    assert _network("both").look_ahead is None


def test_statistics_are_those_of_the_valid_steps() -> None:
    norm = SequenceNorm(10, momentum=1.0)
    batch = _utterances(4, 9)
    x, lengths = padded(batch)
    y = norm(x, valid(lengths, 9)[..., None])
    steps = np.concatenate([each.numpy() for each in batch])
    np.testing.assert_allclose(norm.mean, steps.mean(0), atol=1e-6)
    np.testing.assert_allclose(norm.variance, steps.var(0), rtol=1e-5)
    np.testing.assert_allclose(
        y[0, :4].detach(), (steps[:4] - steps.mean(0)) / np.sqrt(steps.var(0) + 1e-5), atol=1e-5
    )


@pytest.mark.parametrize("cell", ["rnn", "gru"])
def test_recurrent_layers_are_the_equations(cell: str) -> None:
    torch.manual_seed(2)
    layer = Direction(cell, 10, 6, batch_norm=True).double().train()
    torch.nn.init.normal_(layer.recurrent_bias)
    (x,) = (each.double() for each in _utterances(7))
    y = layer(x[None], torch.ones(1, 7, 1, dtype=torch.float64))
    projected = (x @ layer.input_weight.T).detach().numpy()
    a = (projected - projected.mean(0)) / np.sqrt(projected.var(0) + 1e-5)
    u, b = layer.recurrent_weight.detach().numpy(), layer.recurrent_bias.detach().numpy()
    h = np.zeros(6)
    for place in range(7):
        w, v = a[place], u @ h + b
        if cell == "rnn":
            h = np.clip(w + v, 0, 20)
        else:
            r, z = (1 / (1 + np.exp(-(w[k : k + 6] + v[k : k + 6]))) for k in (0, 6))
            h = (1 - z) * np.tanh(w[12:] + r * v[12:]) + z * h
        np.testing.assert_allclose(y[0, place].detach(), h, atol=1e-8)


# --- Error rates and transcripts -----------------------------------------------------------------


def _least_edits(a: str, b: str) -> int:
    """By trying every way to delete, insert or substitute first."""
    if not a or not b:
        return len(a) + len(b)
    same = _least_edits(a[1:], b[1:]) + (a[0] != b[0])
    return min(same, _least_edits(a[1:], b) + 1, _least_edits(a, b[1:]) + 1)


@given(st.text("ab", min_size=1, max_size=5), st.text("abc", max_size=5))
def test_errors_are_the_fewest_edits(a: str, b: str) -> None:
    cer = error_rates([a], [b])[1]
    assert cer == error_rates([" ".join(a)], [" ".join(b)])[0] == _least_edits(a, b) / len(a)


@pytest.mark.parametrize(
    ("references", "hypotheses", "wer", "cer"),
    [
        (["one two three"], ["one two three"], 0, 0),
        (["one two", "four"], ["one too", ""], 2 / 3, 5 / 11),
        (["one"], ["one one one"], 2, 8 / 3),
        (["caf\u00e9  x"], ["cafe\u0301 x"], 0, 0),
        ([""], ["a"], None, None),
    ],
)
def test_error_rates(
    references: list[str], hypotheses: list[str], wer: float | None, cer: float | None
) -> None:
    assert error_rates(references, hypotheses) == (wer, cer)


def test_subtitles() -> None:
    said = [Word("<one", 0, 1, 0.5, 0.75, 0.5), Word("two", 1, 2, 3599.9996, 3600.5, 0.25)]
    assert subtitles(said, "ctm", "a b").splitlines() == [
        "a_b 1 0.50 0.25 <one 0.5000",
        "a_b 1 3600.00 0.50 two 0.2500",
    ]
    assert subtitles(said, "srt", "a").split("\n\n")[1].splitlines() == [
        "2",
        "01:00:00,000 --> 01:00:00,500",
        "two",
    ]
    vtt = subtitles(said, "vtt", "a").splitlines()
    assert vtt[0] == "WEBVTT"
    assert "&lt;one" in vtt


# --- Training ------------------------------------------------------------------------------------

CONFIG = """
[data]
train = "train.jsonl"
test = "test.jsonl"
[features]
rate = 4000
mels = 12
[network]
convolutions = [{ channels = 4, time = 5, frequency = 5 }]
layers = 1
units = 12
look_ahead = 2
[training]
epochs = 3
batch = 4
learning_rate = 0.01
checkpoint_steps = 2
pause_s = 0.2
[noise]
share = 1.0
speeds = [0.9, 1.1]
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A configuration, 13 utterances of tones to train on, and 3 to test on."""
    rng = np.random.default_rng(1)
    for name, count in (("train", 13), ("test", 3)):
        rows = []
        for number in range(count):
            letters = rng.choice(["a", "b"], 2 + number % 3)
            tones = [np.sin(np.arange(800) * (0.3 if each == "a" else 0.9)) for each in letters]
            sound = np.concatenate(tones) * 0.3 + rng.normal(0, 0.01, 800 * len(tones))
            path = f"{name}-{number}.wav"
            soundfile.write(tmp_path / path, sound, 4000)
            row = {"audio_filepath": path, "text": " ".join(letters), "speaker": name}
            rows.append(json.dumps(row))
        (tmp_path / f"{name}.jsonl").write_text("\n".join(rows))
    (tmp_path / "config.toml").write_text(CONFIG)
    return tmp_path


def _files(folder: Path) -> list[Any]:
    """The model's bytes, and the values of its checkpoint."""
    model = [(folder / name).read_bytes() for name in ("model.json", "weights.safetensors")]
    state = torch.load(folder / STATE, weights_only=True)
    weights = {name: each.numpy().tobytes() for name, each in state.pop("model").items()}
    moments = state.pop("optimizer")
    optimizer = repr([(k, v.tolist()) for row in moments["state"].values() for k, v in row.items()])
    return [*model, weights, optimizer, moments["param_groups"], state]


def test_a_run_that_is_interrupted_at_any_step_ends_with_the_same_bits(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = train(project / "config.toml", project / "whole")
    assert whole.history[-1]["loss"] < whole.history[0]["loss"]
    assert whole.new_speakers
    real, left = Trainer.train_on, [0]

    def dies(self: Trainer, batch: Any, epoch: int) -> float:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return real(self, batch, epoch)

    monkeypatch.setattr(Trainer, "train_on", dies)
    for steps in itertools.chain([1, 3, 2], itertools.repeat(5)):
        left[0] = steps
        try:
            train(project / "config.toml", project / "resumed", resume=True)
            break
        except KeyboardInterrupt:
            continue
    assert _files(project / "resumed") == _files(project / "whole")
    # Twice is refused, other settings too; more epochs are not.
    left[0] = 1000
    with pytest.raises(InputError) as caught:
        train(project / "config.toml", project / "whole")
    assert caught.value.code == "output-exists"
    (project / "config.toml").write_text(CONFIG.replace("epochs = 3", "epochs = 4"))
    assert len(train(project / "config.toml", project / "whole", resume=True).history) == 4
    (project / "config.toml").write_text(CONFIG.replace("0.01", "0.02"))
    with pytest.raises(InputError) as caught:
        train(project / "config.toml", project / "whole", resume=True)
    assert caught.value.code == "conflict"


def test_the_first_epoch_goes_from_short_to_long(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[int]] = []
    real = Trainer.train_on

    def notes(self: Trainer, batch: Any, epoch: int) -> float:
        seen.append([self.examples[place].frames for place in batch])
        return real(self, batch, epoch)

    monkeypatch.setattr(Trainer, "train_on", notes)
    train(project / "config.toml", project / "model")
    first = list(itertools.chain(*seen[:4]))
    assert first == sorted(first)
    assert len(first) == 13
    assert max(map(len, seen)) == 4
    assert seen[:4] != seen[4:8]


def test_pauses_are_random_per_epoch_and_not_in_the_first(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[dict[int, int]] = []
    real = training.vary

    def notes(samples: Any, *others: Any) -> Any:
        seen.append(dict.fromkeys(map(int, others[-1]), len(samples)))
        return real(samples, *others)

    monkeypatch.setattr(training, "vary", notes)
    train(project / "config.toml", project / "model")
    pauses = [sorted(each) for each in seen]
    assert pauses[:13] == [[0]] * 13
    assert sorted(pauses[13:26]) != sorted(pauses[26:])
    longest = max(max(each) for each in pauses)
    assert 200 < longest <= 0.2 * 4000


def test_what_cannot_be_trained_on_is_listed(project: Path) -> None:
    rows = (project / "train.jsonl").read_text().splitlines() * 3
    (project / "bad.wav").write_bytes(b"RIFF")
    for name, text in (("bad.wav", "a"), ("train-0.wav", "a q q"), ("train-0.wav", "a" * 40)):
        rows.append(json.dumps({"audio_filepath": name, "text": text}))
    (project / "train.jsonl").write_text("\n".join(rows))
    (project / "config.toml").write_text(
        CONFIG.replace("[features]", 'alphabet = "ab "\n[features]').replace(
            "epochs = 3", "epochs = 1"
        )
    )
    result = train(project / "config.toml", project / "model")
    assert [row["code"] for row in result.excluded] == [
        "unknown-format",
        "unknown-character",
        "text-too-long",
    ]
    assert result.unknown_characters == {"q": 2}
    assert result.utterances == 39


def test_a_test_recording_under_another_name_and_format_is_found(project: Path) -> None:
    sound, rate = soundfile.read(project / "train-3.wav")
    soundfile.write(project / "copy.flac", sound, rate)
    with (project / "test.jsonl").open("a") as file:
        file.write('\n{"audio_filepath": "copy.flac", "text": "a", "speaker": "x"}')
    with pytest.raises(InputError) as caught:
        train(project / "config.toml", project / "model")
    assert caught.value.code == "overlap"


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ("epochs = 3", "epochs = 0", "training.epochs"),
        ("learning_rate = 0.01", "learning_rate = nan", "training.learning_rate"),
        ("rate = 4000", "rate = 1", "features.rate"),
        ("time = 5", "time = 0", "network.convolutions[0].time"),
        ("share = 1.0", "share = 1.5", "noise.share"),
        ("share = 1.0", "tilt = 1.0", "noise.tilt"),
        ("pause_s = 0.2", "pause_s = -1", "training.pause_s"),
        ("units = 12", "unit = 12", "network.unit"),
    ],
)
def test_settings_outside_their_domain(project: Path, old: str, new: str, place: str) -> None:
    (project / "config.toml").write_text(CONFIG.replace(old, new))
    with pytest.raises(InputError) as caught:
        train(project / "config.toml", project / "model")
    assert caught.value.place == place


def test_a_run_that_diverges_stops(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> torch.Tensor:
        return torch.full((20, 12), torch.nan)

    monkeypatch.setattr(training, "log_features", broken)
    with pytest.raises(HoldfastError) as caught:
        train(project / "config.toml", project / "model")
    assert caught.value.code == "diverged"
    assert not (project / "model" / STATE).exists()


def test_recognizing_and_scoring_with_a_model(project: Path) -> None:
    trained = train(project / "config.toml", project / "model")
    scored = score(project / "model", project / "test.jsonl")
    assert trained.test is not None
    assert scored.wer == trained.test.wer
    assert scored.audio_s == pytest.approx(trained.test.audio_s)
    (project / "bad.wav").write_bytes(b"RIFF")
    files = [project / "test-0.wav", project / "bad.wav"]
    found = recognize(project / "model", files, form="ctm", output=project / "out")
    assert [bool(row.get("problem")) for row in found.to_dict()] == [False, True]
    assert found.exit_code == 1
    assert [each.name for each in (project / "out").iterdir()] == ["test-0.ctm"]
    with pytest.raises(InputError):
        recognize(project / "model", files[1:])
    weights = project / "model" / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-8])
    with pytest.raises(InputError) as caught:
        score(project / "model", project / "test.jsonl")
    assert caught.value.code == "damaged"


_RUN = "import sys; from holdfast.cli import main; main(sys.argv[1:])"


def _started(project: Path, output: str, **variables: str) -> subprocess.Popen[str]:
    words = ["speech", "train", "config.toml", "-o", output, "--resume", "--json"]
    return subprocess.Popen(
        [sys.executable, "-c", _RUN, *words],
        cwd=project,
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.full
def test_two_ranks_train_as_one(project: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2"}
    ranks = [_started(project, "two", RANK=str(rank), **address) for rank in range(2)]
    first, second = (json.loads(each.communicate()[0] or "null") for each in ranks)
    alone = train(project / "config.toml", project / "one")
    assert second is None  # one rank prints
    losses = [row["loss"] for row in alone.history]
    assert [row["loss"] for row in first["history"]] == pytest.approx(losses, rel=1e-4)


@pytest.mark.full
def test_a_killed_run_resumes_with_the_same_bits(project: Path) -> None:
    train(project / "config.toml", project / "whole")
    process = _started(project, "killed")
    while process.poll() is None and not (project / "killed" / STATE).exists():
        pass
    process.send_signal(signal.SIGKILL)
    process.communicate()
    train(project / "config.toml", project / "killed", resume=True)
    assert _files(project / "killed") == _files(project / "whole")
