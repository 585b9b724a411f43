"""The compiled WaveNet against the torch network that it was made from."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numba import njit

from holdfast.speech.speak import _kernels
from holdfast.speech.speak.generation import Generator
from holdfast.speech.speak.network import SynthesisSettings, WaveNet

HOP = 40


def network(layers: int) -> WaveNet:
    """Random weights whose logits have a range of about thirty; sizes that no vector divides."""
    torch.manual_seed(1)
    found = WaveNet(SynthesisSettings(layers, 40, 72, conditioned=False))
    with torch.no_grad():
        for name, each in found.named_parameters():
            if "bias" in name:
                each.normal_(0, 0.1)
        found.outputs *= 3
    return found


def inputs(layers: int, frames: int, batch: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Conditioning and uniform numbers."""
    draw = np.random.default_rng(layers)
    conditioning = draw.normal(0, 0.5, (batch, frames, layers, 80)).astype(np.float32)
    return conditioning, draw.random((batch, frames * HOP)).astype(np.float32)


def reference(net: WaveNet, codes: np.ndarray, conditioning: np.ndarray) -> np.ndarray:
    """Logits of torch for the same samples."""
    start = np.full((len(codes), 1), 128)
    history = torch.from_numpy(np.concatenate([start, codes], 1).astype(np.int64))
    with torch.no_grad():
        return net(history, torch.from_numpy(conditioning)).double().numpy()


def drawn(logits: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
    """Samples of torch's logits by inverting their cumulative softmax."""
    masses = np.exp(logits - logits.max(2, keepdims=True)).cumsum(2)
    return (masses <= uniforms[..., None] * masses[..., -1:]).sum(2)


# The last samples of 13 and 20 layers come more than twice the largest dilation (512) after the first.
@pytest.mark.parametrize(("layers", "frames"), [(3, 10), (7, 10), (13, 30), (20, 30)])
def test_samples_and_logits_are_those_of_torch(layers: int, frames: int) -> None:
    net = network(layers)
    conditioning, uniforms = inputs(layers, frames)
    logits = np.zeros((*uniforms.shape, 256), np.float32)
    codes = Generator(net, HOP).generate(conditioning, uniforms, logits)
    expected = reference(net, codes, conditioning)
    assert np.abs(logits - expected).max() < 1e-4
    assert (drawn(expected, uniforms) == codes).mean() >= 0.999
    assert len(np.unique(codes)) > 100


def test_int16_keeps_the_logits() -> None:
    net = network(20)
    conditioning, uniforms = inputs(20, 30)
    logits = np.zeros((*uniforms.shape, 256), np.float32)
    codes = Generator(net, HOP, precision="int16").generate(conditioning, uniforms, logits)
    assert np.abs(logits - reference(net, codes, conditioning)).max() < 1e-2


def test_a_batch_and_pieces_are_the_same_samples() -> None:
    net = network(7)
    conditioning, uniforms = inputs(7, 12, batch=3)
    together = Generator(net, HOP, batch=3).generate(conditioning, uniforms)
    for each in range(3):
        generator, found = Generator(net, HOP), []
        for start, stop in ((0, 1), (1, 5), (5, 12)):
            part = uniforms[each : each + 1, start * HOP : stop * HOP]
            found.append(generator.generate(conditioning[each : each + 1, start:stop], part))
        assert (np.concatenate(found, 1)[0] == together[each]).all()


def test_exponential_and_gate() -> None:
    @njit
    def both(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        exponentials, gates = np.empty_like(x), np.empty_like(x)
        for k in range(x.size):
            exponentials[k] = _kernels._exp(x[k])
            gates[k] = _kernels._gate(x[k] * np.float32(1e3), y[k] * np.float32(1e3))
        return exponentials, gates

    x = np.linspace(-80, 80, 10_001).astype(np.float32)
    y = np.random.default_rng(0).normal(0, 10, len(x)).astype(np.float32)
    exponentials, gates = both(x, y)
    assert np.abs(exponentials / np.exp(x.astype(np.float64)) - 1).max() < 1e-6
    wide = y.astype(np.float64) * 1e3
    with np.errstate(over="ignore"):
        expected = np.tanh(x.astype(np.float64) * 1e3) / (1 + np.exp(-wide))
    assert np.abs(gates - expected).max() < 1e-6


@pytest.mark.parametrize(("uniform", "level"), [(0.01, 7), (0.24, 7), (0.26, 200), (0.99, 200)])
def test_a_level_is_drawn_by_its_share(uniform: float, level: int) -> None:
    logits, room = np.full(256, -1e4, np.float32), np.zeros(256, np.float32)
    logits[7], logits[200] = np.log(0.25), np.log(0.75)
    assert _kernels._draw(logits, room, np.float32(uniform)) == level
