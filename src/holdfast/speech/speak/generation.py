"""A WaveNet's weights as the kernel reads them, and utterances that are generated piece by piece."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from holdfast.speech.speak._kernels import LANES, LEVELS, Matrix, State, Weights, Work, generate
from holdfast.speech.speak.network import WaveNet
from holdfast.speech.speak.prosody import Array

Precision = Literal["fp32", "int16"]


class Generator:
    """Draws the samples of one or several utterances, which have the same number of samples.

    Args:
        network: the WaveNet.
        hop: samples per frame.
        batch: number of utterances; a batch reads the weights once for all.
        precision: of the matrices, ``"fp32"``, or ``"int16"`` for half the memory; sums are float32.
    """

    def __init__(
        self, network: WaveNet, hop: int, batch: int = 1, precision: Precision = "fp32"
    ) -> None:
        settings = network.settings
        self.hop, self.residual = hop, settings.residual
        self.weights = pack(network, precision)
        channels, skip = self.weights.table.shape[2], self.weights.skip_bias.size
        dilations = int(self.weights.dilations.sum())
        self.state = State(
            np.zeros((batch, dilations, channels), np.float32),
            np.full((batch, 2), LEVELS // 2),
            np.zeros(1, np.int64),
        )
        sizes = (2 * channels, 2 * channels, channels, channels + skip, skip, LEVELS, LEVELS)
        room = [np.zeros((batch, size), np.float32) for size in sizes]
        room.append(np.zeros(LEVELS + LEVELS // 16, np.float32))
        self.work = Work(*room)

    def compile(self) -> None:
        """Compile the kernel, or load it from the cache of a process before; draws nothing."""
        shape = (len(self.state.last), 0, self.weights.dilations.size, 2 * self.residual)
        self.generate(np.zeros(shape, np.float32), np.zeros(shape[:2], np.float32))

    def generate(self, conditioning: Array, uniforms: Array, logits: Array | None = None) -> Array:
        """The next samples.

        Args:
            conditioning: float32 [batch, frames, layers, 2r] of `WaveNet.conditioning`.
            uniforms: float32 [batch, frames x hop], 0 to 1.
            logits: float32 [batch, frames x hop, 256], is written to; None: not wanted.

        Returns:
            uint8 [batch, frames x hop] mu-law levels.
        """
        batch = len(uniforms)
        if logits is None:
            logits = np.zeros((batch, 0, LEVELS), np.float32)
        codes = np.zeros(uniforms.shape, np.uint8)
        padded = _pairs(conditioning, self.residual)
        uniforms = uniforms.astype(np.float32)
        generate(self.weights, self.state, self.work, padded, self.hop, uniforms, codes, logits)
        return codes


def pack(network: WaveNet, precision: Precision) -> Weights:
    """The weights of a network, padded with zeros."""
    r, settings = network.settings.residual, network.settings
    own = {
        name: each.detach().float().numpy()
        for name, each in network.named_parameters()
        if not name.startswith(("phone", "stress", "read", "condition"))
    }
    gates = np.concatenate([_padded(part, 1) for part in np.split(own["gates"], [r], 1)], 1)
    mix = np.concatenate([_padded(part, 2) for part in np.split(own["mix"], [r], 2)], 2)
    return Weights(
        table=_padded(own["table"], 2),
        gates=_matrix(_pairs(gates, r), precision),
        mix=_matrix(_padded(mix, 1), precision),
        mix_bias=_padded(own["mix_bias"], 1),
        skip_bias=_padded(own["skip_bias"], 0),
        hidden=_matrix(_padded(own["hidden"], 0)[None], precision),
        hidden_bias=own["hidden_bias"].copy(),
        outputs=_matrix(own["outputs"][None], precision),
        outputs_bias=own["outputs_bias"].copy(),
        dilations=np.array(settings.dilations),
    )


def _matrix(values: Array, precision: Precision) -> Matrix:
    """[layers, inputs, outputs]; int16 is rounded, with one scale per layer."""
    scale = np.ones(len(values), np.float32)
    if precision == "int16":
        scale = np.maximum(np.abs(values).max((1, 2)) / 32767, 1e-30).astype(np.float32)
        return Matrix(np.rint(values / scale[:, None, None]).astype(np.int16), scale)
    return Matrix(np.ascontiguousarray(values), scale)


def _padded(values: Array, axis: int) -> Array:
    """Zeros behind an axis, up to a multiple of `LANES`."""
    widths: list[Any] = [(0, 0)] * values.ndim
    widths[axis] = (0, -values.shape[axis] % LANES)
    return np.ascontiguousarray(np.pad(values, widths))


def _pairs(values: Array, residual: int) -> Array:
    """The same for both halves, of tanh and of sigmoid, of the last axis."""
    last = values.ndim - 1
    halves = [_padded(half, last) for half in np.split(values, [residual], last)]
    return np.concatenate(halves, last)
