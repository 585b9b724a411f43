"""A WaveNet's weights as the kernel reads them, and utterances that are generated piece by piece."""

from __future__ import annotations

from typing import Literal

import numpy as np

from holdfast.speech.speak._kernels import LEVELS, Matrix, State, Weights, Work, generate
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
        self.hop, self.weights = hop, pack(network, precision)
        channels, skip = network.settings.residual, network.settings.skip
        dilations = sum(network.settings.dilations)
        self.state = State(
            np.zeros((batch, dilations, channels), np.float32),
            np.full((batch, 2), LEVELS // 2),
            np.zeros(1, np.int64),
        )
        sizes = (2 * channels, 2 * channels, channels, channels + skip, skip)
        sizes += 3 * (LEVELS,)
        self.work = Work(*[np.zeros((batch, size), np.float32) for size in sizes])

    def compile(self) -> None:
        """Compile the kernel, or load it from the cache of a process before; draws nothing."""
        shape = (len(self.state.last), 0, *self.weights.gates.values.shape[::2])
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
        if logits is None:
            logits = np.zeros((len(uniforms), 0, LEVELS), np.float32)
        codes = np.zeros(uniforms.shape, np.uint8)
        generate(
            self.weights,
            self.state,
            self.work,
            np.ascontiguousarray(conditioning, np.float32),
            self.hop,
            np.ascontiguousarray(uniforms, np.float32),
            codes,
            logits,
        )
        return codes


def pack(network: WaveNet, precision: Precision) -> Weights:
    """The weights of a network."""
    own = {name: each.detach().float().numpy() for name, each in network.named_parameters()}
    return Weights(
        table=own["table"],
        gates=_matrix(own["gates"], precision),
        mix=_matrix(own["mix"], precision),
        mix_bias=own["mix_bias"],
        skip_bias=own["skip_bias"],
        hidden=_matrix(own["hidden"][None], precision),
        hidden_bias=own["hidden_bias"],
        outputs=_matrix(own["outputs"][None], precision),
        outputs_bias=own["outputs_bias"],
        dilations=np.array(network.settings.dilations),
    )


def _matrix(values: Array, precision: Precision) -> Matrix:
    """[layers, inputs, outputs]; int16 is rounded, with one scale per layer."""
    scale = np.ones(len(values), np.float32)
    if precision == "int16":
        scale = np.maximum(np.abs(values).max((1, 2)) / 32767, 1e-30).astype(np.float32)
        values = np.rint(values / scale[:, None, None]).astype(np.int16)
    return Matrix(values, scale)
