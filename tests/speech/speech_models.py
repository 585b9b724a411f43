"""Small recognizers with random weights, and sounds for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from holdfast.speech.recognize.audio import Array
from holdfast.speech.recognize.features import FeatureSettings, log_features
from holdfast.speech.recognize.hypotheses import together
from holdfast.speech.recognize.model import Description, SpeechModel
from holdfast.speech.recognize.network import Convolution, NetworkSettings, SequenceNorm, padded
from holdfast.speech.recognize.streaming import Stream, advance

CONVOLUTIONS = (Convolution(4, 5, 3, 2, 2), Convolution(3, 4, 2, 1, 1))
NETWORKS = {
    "gru": NetworkSettings(CONVOLUTIONS, layers=2, units=8, look_ahead=3, dense=(6,)),
    "rnn": NetworkSettings(CONVOLUTIONS[:1], "rnn", layers=1, units=8, look_ahead=2),
    "plain": NetworkSettings((), layers=1, units=8, batch_norm=False),
    "two-way": NetworkSettings(CONVOLUTIONS, layers=1, units=8, bidirectional=True),
}
RATE = 8000


def model(name: str) -> SpeechModel:
    """A network with random weights whose outputs are nearly sure."""
    torch.manual_seed(3)
    features = FeatureSettings(rate=RATE, mels=10, level="running")
    found = SpeechModel(Description(features, NETWORKS[name], (" ", "a", "b", "c")))
    for each in found.network.parameters():
        torch.nn.init.normal_(each, 0, 0.6)
    for each in found.network.modules():
        if isinstance(each, SequenceNorm):
            each.mean.normal_(0, 0.3)
            each.variance.uniform_(0.5, 2)
    frames, network = log_features(sound(3.0), features), found.network.eval()
    network.mean.copy_(frames.mean(0))
    network.deviation.copy_(frames.std(0))
    with torch.no_grad():  # every label is the best now and then
        network.outputs.weight.mul_(4)
        outputs, _ = network(*padded([frames]))
        network.outputs.bias.sub_(outputs[0].mean(0))
        network.outputs.bias[0] += 2.0
    return found


def sound(seconds: float, seed: int = 0) -> Array:
    """Tones and pauses of random lengths; in 16-bit steps."""
    draw, parts = np.random.default_rng(seed), []
    while sum(map(len, parts)) < seconds * RATE:
        tone = np.sin(np.arange(draw.integers(200, 2500)) * draw.uniform(0.05, 2))
        parts += [tone * draw.uniform(0, 0.5), np.zeros(draw.integers(0, 1500))]
    noise = draw.normal(0, 1e-3, round(seconds * RATE))
    return (np.concatenate(parts)[: len(noise)] + noise).astype(np.float32)


def recognized(
    of: SpeechModel, samples: Array, size: int, rate: int | None = None, **settings: Any
) -> tuple[list[Any], list[str]]:
    """Segments, and the partial text after each chunk."""
    stream, segments, partials = Stream(of, of.decoder(**settings), rate, 0.1), [], []
    for begin in range(0, len(samples), size):
        end = begin + size >= len(samples)
        segments += advance([stream], [samples[begin : begin + size]], [end])[0]
        partials.append(together(segments).text + "|" + stream.partial)
    return segments, partials
