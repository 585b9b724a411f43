"""The network of Deep Speech 2, every part a setting.

Shapes: B utterances, T frames, F bins, C channels, H units, L labels with the blank. Utterances of a batch
are padded at the end; padding is zero after every layer and in no statistic, so that an utterance's output
does not depend on its batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt
from typing import Annotated, Literal

import torch
from msgspec import Meta
from torch import Tensor, nn
from torch.nn import functional

from holdfast.speech.recognize.ranks import summed

CLIP = 20.0
"""Upper end of the clipped ReLU."""
Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]


@dataclass(frozen=True)
class Convolution:
    """A convolution over time and frequency."""

    channels: Positive = 32
    """Number of output channels."""
    time: Positive = 11
    """Frames of the kernel; half of them are look-ahead."""
    frequency: Positive = 41
    """Bins of the kernel."""
    time_stride: Positive = 2
    """Frames from output to output."""
    frequency_stride: Positive = 2
    """Bins from output to output."""


@dataclass(frozen=True)
class NetworkSettings:
    """Parts of the network."""

    convolutions: tuple[Convolution, ...] = (Convolution(), Convolution(32, 11, 21, 1, 2))
    """First layers; empty: frames go to the recurrent layers."""
    cell: Literal["rnn", "gru"] = "gru"
    """Simple recurrent units with clipped ReLU, or gated recurrent units."""
    layers: Positive = 3
    """Number of recurrent layers."""
    units: Positive = 512
    """Units of each."""
    bidirectional: bool = False
    """Whether layers also run from the end; their outputs are added. Not for streams."""
    batch_norm: bool = True
    """Sequence-wise batch normalization of convolutions and of the input of recurrent layers."""
    look_ahead: Count = 0
    """Frames behind each that the row convolution sees; 0: no row convolution."""
    dense: tuple[Positive, ...] = ()
    """Units of fully connected layers before the outputs."""
    bigrams: bool = False
    """Whether outputs are characters and pairs of them."""


class SequenceNorm(nn.Module):
    """Batch normalization whose statistics are those of the valid steps of all ranks' utterances."""

    mean: Tensor
    variance: Tensor

    def __init__(self, channels: int, momentum: float = 0.1, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("variance", torch.ones(channels))
        self.momentum, self.epsilon = momentum, epsilon

    def line(self, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Slope and offset that normalize each channel.

        Args:
            x: [B, T, ..., C].
            mask: 1 for valid steps, else 0; [B, T, ..., 1] with as many dimensions as x.
        """
        mean, variance = self.mean, self.variance
        if self.training:
            others = tuple(range(x.ndim - 1))
            count = summed(mask.sum() * (x[..., 0].numel() / mask.numel()))
            mean = summed((x * mask).sum(others)) / count
            variance = summed(((x - mean).square() * mask).sum(others)) / count
            with torch.no_grad():
                self.mean.lerp_(mean, self.momentum)
                self.variance.lerp_(variance, self.momentum)
        slope = self.gain / (variance + self.epsilon).sqrt()
        return slope, self.bias - mean * slope

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Normalized x, of its shape."""
        slope, offset = self.line(x, mask)
        return x * slope + offset


class ConvolutionLayer(nn.Module):
    """Convolution, batch normalization and clipped ReLU; [B, C, T, F] -> [B, C', T', F']."""

    def __init__(self, channels: int, settings: Convolution, batch_norm: bool) -> None:
        super().__init__()
        self.stride = settings.time_stride
        self.convolution = nn.Conv2d(
            channels,
            settings.channels,
            (settings.time, settings.frequency),
            (settings.time_stride, settings.frequency_stride),
            bias=not batch_norm,
        )
        # Zeros before and behind bins and frames: outputs are ceil(inputs / stride).
        self.edges = [
            n for size in (settings.frequency, settings.time) for n in ((size - 1) // 2, size // 2)
        ]
        self.norm = SequenceNorm(settings.channels) if batch_norm else None

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Outputs and their lengths [B]."""
        x = self.convolution(functional.pad(x, self.edges)).permute(0, 2, 3, 1)  # [B, T, F, C]
        lengths = strided(lengths, self.stride)
        mask = valid(lengths, x.shape[1])[:, :, None, None]
        if self.norm is not None:
            x = self.norm(x, mask)
        return (x.clamp(0, CLIP) * mask).permute(0, 3, 1, 2), lengths


class Direction(nn.Module):
    """One direction of a recurrent layer: f(BN(W x_t) + U h_{t-1}), DS2 (9); [B, T, D] -> [B, T, H].

    The normalization of W x_t is a slope and an offset, which are multiplied into W: the recurrence then
    runs in torch's kernel.
    """

    def __init__(self, cell: str, inputs: int, units: int, batch_norm: bool) -> None:
        super().__init__()
        gates = 3 if cell == "gru" else 1
        self.cell = cell
        self.input_weight = nn.Parameter(torch.empty(gates * units, inputs))
        self.recurrent_weight = nn.Parameter(torch.empty(gates * units, units))
        self.recurrent_bias = nn.Parameter(torch.zeros(gates * units))
        self.norm = SequenceNorm(gates * units) if batch_norm else None
        for weight in (self.input_weight, self.recurrent_weight):
            nn.init.uniform_(weight, -1 / sqrt(units), 1 / sqrt(units))

    def forward(self, x: Tensor, mask: Tensor, hidden: Tensor | None = None) -> Tensor:
        """Outputs from the hidden state [B, H] on, by default zero."""
        weight, offset = self.input_weight, torch.zeros_like(self.recurrent_bias)
        if self.norm is not None:
            projected = x @ weight.T if self.training else x
            slope, offset = self.norm.line(projected, mask)
            weight = slope[:, None] * weight
        if hidden is None:
            hidden = x.new_zeros(len(x), self.recurrent_weight.shape[1])
        if self.cell == "gru":
            parameters = [weight, self.recurrent_weight, offset, self.recurrent_bias]
            y, _ = torch.gru(
                x, hidden[None].contiguous(), parameters, True, 1, 0.0, self.training, False, True
            )
            return y
        steps, inputs = [], x @ weight.T + offset + self.recurrent_bias
        for step in inputs.unbind(1):
            hidden = (step + hidden @ self.recurrent_weight.T).clamp(0, CLIP)
            steps.append(hidden)
        return torch.stack(steps, dim=1)


class RecurrentLayer(nn.Module):
    """One direction, or the sum of two."""

    def __init__(self, inputs: int, settings: NetworkSettings) -> None:
        super().__init__()
        parts = settings.cell, inputs, settings.units, settings.batch_norm
        self.forwards = Direction(*parts)
        self.backwards = Direction(*parts) if settings.bidirectional else None

    def forward(self, x: Tensor, lengths: Tensor, hidden: Tensor | None = None) -> Tensor:
        """[B, T, D] -> [B, T, H], forwards from the hidden state [B, H] on."""
        mask = valid(lengths, x.shape[1])[..., None]
        y = self.forwards(x, mask, hidden)
        if self.backwards is not None:
            # Each utterance reversed in its own length: the padding stays at the end.
            steps = torch.arange(x.shape[1])[None]
            order = torch.where(steps < lengths[:, None], lengths[:, None] - 1 - steps, steps)
            reversed_x = x.gather(1, order[..., None].expand_as(x))
            z = self.backwards(reversed_x, mask)
            y = y + z.gather(1, order[..., None].expand_as(z))
        return y * mask


class Network(nn.Module):
    """From frames to log probabilities of labels.

    Args:
        settings: the parts.
        bins: F, values per frame.
        labels: L, number of outputs with the blank.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, settings: NetworkSettings, bins: int, labels: int) -> None:
        super().__init__()
        # Of each bin, over the frames of the training set.
        self.register_buffer("mean", torch.zeros(bins))
        self.register_buffer("deviation", torch.ones(bins))
        self.convolutions = nn.ModuleList()
        channels, self.stride = 1, 1
        self.behind, self.ahead = 0, 0
        """Frames before and behind frame t * stride that output t of the convolutions depends on."""
        for each in settings.convolutions:
            self.convolutions.append(ConvolutionLayer(channels, each, settings.batch_norm))
            channels, bins = each.channels, (bins - 1) // each.frequency_stride + 1
            self.behind += (each.time - 1) // 2 * self.stride
            self.ahead += each.time // 2 * self.stride
            self.stride *= each.time_stride
        inputs = channels * bins
        self.recurrent = nn.ModuleList()
        for _ in range(settings.layers):
            self.recurrent.append(RecurrentLayer(inputs, settings))
            inputs = settings.units
        self.units = settings.units
        # Row convolution (DS2, 3.7): r_t = sum over j = 0..look_ahead of W_j * h_{t+j}, unit by unit.
        self.row = None
        if settings.look_ahead:
            self.row = nn.Conv1d(inputs, inputs, settings.look_ahead + 1, groups=inputs, bias=False)
            nn.init.zeros_(self.row.weight)
            nn.init.ones_(self.row.weight[:, :, 0])
        sizes = [inputs, *settings.dense]
        self.dense = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))
        self.outputs = nn.Linear(sizes[-1], labels)
        self.row_ahead = settings.look_ahead
        ahead = self.ahead + settings.look_ahead * self.stride
        self.look_ahead: int | None = None if settings.bidirectional else ahead
        """Frames behind frame t * stride that output t depends on; None: all."""

    def forward(self, features: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Compute a batch.

        Args:
            features: of each utterance, with anything finite behind its end; [B, T, F].
            lengths: frames of each utterance, 1 to T; [B].

        Returns:
            Log probabilities [B, T', L] and valid outputs [B].
        """
        x, lengths = self.convolve(features, lengths)
        return self.emit(self.recur(x, lengths)[0]), lengths

    def convolve(self, features: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Frames [B, T, F] -> inputs of the recurrent layers [B, T', D], and their lengths."""
        mask = valid(lengths, features.shape[1])[..., None]
        x = ((features - self.mean) / self.deviation * mask)[:, None]  # [B, 1, T, F]
        for layer in self.convolutions:
            x, lengths = layer(x, lengths)
        return x.transpose(1, 2).flatten(2), lengths  # [B, T', C * F']

    def recur(
        self, x: Tensor, lengths: Tensor, hidden: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Outputs of the recurrent layers [B, T', H], and their states after each utterance's last step.

        Args:
            x: [B, T', D].
            lengths: steps of each utterance; [B].
            hidden: states of the layers before the first step [layers, B, H]; None: zero.
        """
        if hidden is None:
            hidden = x.new_zeros(len(self.recurrent), len(x), self.units)
        last, states = (lengths - 1).clamp_min(0), []
        for layer, before in zip(self.recurrent, hidden, strict=True):
            x = layer(x, lengths, before)
            after = x[torch.arange(len(x)), last]
            states.append(torch.where(lengths[:, None] > 0, after, before))
        return x, torch.stack(states)

    def emit(self, x: Tensor) -> Tensor:
        """Outputs of the recurrent layers [B, T', H] -> log probabilities [B, T', L]; zeros follow them."""
        if self.row is not None:
            x = self.row(functional.pad(x.transpose(1, 2), (0, self.row_ahead))).transpose(1, 2)
        for layer in self.dense:
            x = layer(x).clamp(0, CLIP)
        return self.outputs(x).log_softmax(dim=-1)


def valid(lengths: Tensor, steps: int) -> Tensor:
    """1 where a step lies within its utterance, else 0: float [B, T]."""
    return (torch.arange(steps)[None] < lengths[:, None]).float()


def strided(lengths: Tensor, stride: int) -> Tensor:
    """Outputs of layers that keep every stride-th step, the first among them."""
    return (lengths - 1) // stride + 1


def padded(frames: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Utterances [T_i, F] as a batch [B, T, F] with zeros at their ends, T >= 1, and their lengths [B]."""
    lengths = torch.tensor([len(each) for each in frames])
    batch = nn.utils.rnn.pad_sequence(list(frames), batch_first=True)
    return batch if batch.shape[1] else functional.pad(batch, (0, 0, 0, 1)), lengths
