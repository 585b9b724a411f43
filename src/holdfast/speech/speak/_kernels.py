"""WaveNet sample by sample: queues of past activations, layers, softmax and sampling in one compiled loop.

Weights are [inputs, outputs], so that the inner loop runs over outputs and is compiled to vectors of the
widest kind that the processor has; nothing is written for one kind. Rows are taken `ROWS` at a time: then
one load and one store of the sums serve eight loads of weights. Residual and skip channels are multiples of
`ROWS`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float32]
ROWS = 8
LEVELS = 256

# Sums may be taken in any order and products fused; NaN and infinity keep their meaning.
_FAST: dict[str, Any] = {
    "cache": True,
    "nogil": True,
    "fastmath": {"contract", "reassoc", "nsz"},
    "error_model": "numpy",  # a check for division by zero would keep a loop from being vectorized
    "_nrt": False,
}
_ONE, _TWO, _HALF = np.float32(1), np.float32(2), np.float32(0.5)
_LOG2_E, _LN2 = np.float32(np.log2(np.e)), np.float32(np.log(2))
_THIRD, _FOURTH = np.float32(1 / 6), np.float32(1 / 24)
_FIFTH, _SIXTH = np.float32(1 / 120), np.float32(1 / 720)
_TANH_END, _SIGMOID_END, _EXP_END = np.float32(9), np.float32(30), np.float32(80)


class Matrix(NamedTuple):
    """A matrix per layer."""

    values: NDArray[Any]
    """[layers, inputs, outputs] float32 or int16."""
    scale: Floats
    """[layers] What the values are multiplied by."""


class Weights(NamedTuple):
    """A network; R, S: residual and skip channels."""

    table: Floats
    """[2, LEVELS, R] What the sample before the last one, and the last one, add to h."""
    gates: Matrix
    """[layers, 2R, 2R] From (h_{t-d}, h_t) to the arguments of tanh and sigmoid."""
    mix: Matrix
    """[layers, R, R + S] From the gated activation to h and skip."""
    mix_bias: Floats
    """[layers, R]"""
    skip_bias: Floats
    """[S]"""
    hidden: Matrix
    """[1, S, LEVELS]"""
    hidden_bias: Floats
    outputs: Matrix
    """[1, LEVELS, LEVELS]"""
    outputs_bias: Floats
    dilations: NDArray[np.int64]
    """[layers] Powers of two."""


class State(NamedTuple):
    """What B utterances have behind them; `generate` continues it."""

    queues: Floats
    """[B, sum of dilations, R] The last d inputs of each layer, in rings one behind the other."""
    last: NDArray[np.int64]
    """[B, 2] The sample before the last one, and the last one."""
    clock: NDArray[np.int64]
    """[1] Samples so far."""


@njit(**_FAST)
def _multiply(x: Floats, matrix: Matrix, layer: int, y: Floats) -> None:
    """Add x W to y: [B, n] by [layers, n, m] to [B, m]; n is a multiple of `ROWS`."""
    w, scale = matrix.values, matrix.scale[layer]
    for i in range(0, w.shape[1], ROWS):
        # For all utterances but the first these rows come from the nearest cache.
        for b in range(x.shape[0]):
            for o in range(y.shape[1]):
                total = np.float32(0)
                for k in range(ROWS):
                    total += x[b, i + k] * np.float32(w[layer, i + k, o])
                y[b, o] += scale * total


@njit(**_FAST)
def _exp(x: np.float32) -> np.float32:
    """e^x for |x| <= 80, to 3e-7 of it: 2^n times the Taylor series of e^f, |f| <= ln(2) / 2."""
    n = np.floor(x * _LOG2_E + _HALF)
    f = x - n * _LN2
    series = _HALF + f * (_THIRD + f * (_FOURTH + f * (_FIFTH + f * _SIXTH)))
    series = _ONE + f * (_ONE + f * series)
    return series * np.int32((np.int32(n) + np.int32(127)) << np.int32(23)).view(np.float32)


@njit(**_FAST)
def _gate(a: np.float32, b: np.float32) -> np.float32:
    """tanh(a) sigmoid(b), to 1e-6, with one division: (1 - u) / ((1 + u)(1 + v)), u = e^-2a, v = e^-b."""
    a = min(max(a, -_TANH_END), _TANH_END)
    b = min(max(b, -_SIGMOID_END), _SIGMOID_END)
    u, v = _exp(-_TWO * a), _exp(-b)
    return (_ONE - u) / ((_ONE + u) * (_ONE + v))


@njit(**_FAST)
def _draw(logits: Floats, masses: Floats, uniform: np.float32) -> int:
    """The first level at which the cumulative softmax exceeds `uniform`."""
    highest = logits[0]
    for k in range(LEVELS):
        highest = max(highest, logits[k])
    total = np.float32(0)
    for k in range(LEVELS):
        masses[k] = _exp(max(logits[k] - highest, -_EXP_END))
        total += masses[k]
    level, rest = 0, uniform * total
    while level < LEVELS - 1 and rest >= masses[level]:
        rest -= masses[level]
        level += 1
    return level


class Work(NamedTuple):
    """Room for the values of one sample."""

    inputs: Floats
    """[B, 2R] h_{t-d} and h_t."""
    sums: Floats
    """[B, 2R] Arguments of tanh and sigmoid."""
    gated: Floats
    """[B, R]"""
    both: Floats
    """[B, R + S] h, and the sum of the skip outputs."""
    skip: Floats
    """[B, S]"""
    hidden: Floats
    """[B, LEVELS]"""
    logits: Floats
    """[B, LEVELS]"""
    masses: Floats
    """[B, LEVELS]"""


@njit(**_FAST)
def generate(
    weights: Weights,
    state: State,
    work: Work,
    conditioning: Floats,
    hop: int,
    uniforms: Floats,
    codes: NDArray[np.uint8],
    logits: Floats,
) -> None:
    """Draw the next samples of B utterances.

    Args:
        weights: the network.
        state: the utterances so far; is advanced.
        work: room.
        conditioning: [B, frames, layers, 2R] what is added to the arguments of tanh and sigmoid.
        hop: samples per frame.
        uniforms: [B, T] numbers from 0 to 1, one per sample; T = frames x hop.
        codes: [B, T] the levels that are drawn.
        logits: [B, T or 0, LEVELS] their logits, where there is room.
    """
    batch, samples = uniforms.shape
    channels, layers = weights.table.shape[2], weights.dilations.size
    inputs, sums, gated, both, skip, hidden, scores, masses = work
    for step in range(samples):
        frame, now = step // hop, state.clock[0]
        # 1. The causal convolution over one-hot samples.
        for b in range(batch):
            before, last = state.last[b, 0], state.last[b, 1]
            for o in range(channels):
                both[b, o] = weights.table[0, before, o] + weights.table[1, last, o]
            for o in range(skip.shape[1]):
                both[b, channels + o] = weights.skip_bias[o]
        # 2. The layers.
        ring = 0
        for layer in range(layers):
            dilation = weights.dilations[layer]
            place = ring + (now & (dilation - 1))
            ring += dilation
            for b in range(batch):
                for o in range(channels):
                    inputs[b, o] = state.queues[b, place, o]
                    inputs[b, channels + o] = state.queues[b, place, o] = both[b, o]
                for o in range(2 * channels):
                    sums[b, o] = conditioning[b, frame, layer, o]
            _multiply(inputs, weights.gates, layer, sums)
            for b in range(batch):
                for o in range(channels):
                    gated[b, o] = _gate(sums[b, o], sums[b, channels + o])
                    both[b, o] += weights.mix_bias[layer, o]
            _multiply(gated, weights.mix, layer, both)
        # 3. Outputs.
        for b in range(batch):
            for o in range(skip.shape[1]):
                skip[b, o] = max(both[b, channels + o], np.float32(0))
            for o in range(LEVELS):
                hidden[b, o] = weights.hidden_bias[o]
                scores[b, o] = weights.outputs_bias[o]
        _multiply(skip, weights.hidden, 0, hidden)
        for b in range(batch):
            for o in range(LEVELS):
                hidden[b, o] = max(hidden[b, o], np.float32(0))
        _multiply(hidden, weights.outputs, 0, scores)
        # 4. Sampling.
        for b in range(batch):
            level = _draw(scores[b], masses[b], uniforms[b, step])
            codes[b, step] = level
            state.last[b, 0], state.last[b, 1] = state.last[b, 1], level
            if logits.shape[1]:
                for o in range(LEVELS):
                    logits[b, step, o] = scores[b, o]
        state.clock[0] += 1
