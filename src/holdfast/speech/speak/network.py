"""The networks of a voice: WaveNet with its conditioning, and the network of durations and pitch.

Weights are stored as [inputs, outputs], as the compiled kernel reads them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from msgspec import Meta
from torch import Tensor, nn
from torch.nn import functional

from holdfast.speech.speak.dictionary import UNITS

LEVELS = 256
"""Levels of mu-law."""
F0_VALUES = 20
"""Values of the fundamental frequency per phone."""
STRESSES = 4
"""No vowel, unstressed, primary, secondary."""
NUMBERS = 4
"""Numbers per frame beside its phone: place in the phone, log duration, voiced, pitch."""
Size = Annotated[int, Meta(ge=1, le=4096)]
Channels = Annotated[int, Meta(ge=8, le=4096, multiple_of=8)]
"""As the compiled kernel takes rows of matrices."""


@dataclass(frozen=True)
class SynthesisSettings:
    """Sizes of the WaveNet."""

    layers: Annotated[int, Meta(ge=1, le=100)] = 20
    """Layers; the dilation of layer i is 2 to the power of i mod 10."""
    residual: Channels = 32
    """Channels from layer to layer."""
    skip: Channels = 64
    """Channels from all layers to the outputs."""
    units: Size = 32
    """Units per direction of the two GRU layers that read phones and pitch."""
    conditioned: bool = True
    """Whether phones and pitch are read at all; without, to compare with."""

    @property
    def dilations(self) -> list[int]:
        """Samples between the two taps of each layer."""
        return [2 ** (layer % 10) for layer in range(self.layers)]


@dataclass(frozen=True)
class ProsodySettings:
    """Sizes of the network of durations and pitch."""

    dense: Size = 48
    """Units of each of the two fully connected layers."""
    units: Size = 48
    """Units per direction of each of the two GRU layers."""


class WaveNet(nn.Module):
    """Deep Voice's variant of WaveNet (arXiv 1702.07825, section 3.5 and appendix A).

    Layer i: z = h_{t-d} W_prev + h_t W_cur + c_t L + b; g = tanh(z_1) sigmoid(z_2); h += g W_r + b_r;
    skip += g W_s. Outputs: ReLU(skip), 256 units, ReLU, 256 logits.
    """

    def __init__(self, settings: SynthesisSettings) -> None:
        super().__init__()
        self.settings = settings
        layers, r, s = settings.layers, settings.residual, settings.skip

        def matrix(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(*shape) / shape[-2] ** 0.5)

        def zeros(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.zeros(*shape))

        # The causal convolution over one-hot samples, as a table per tap; it starts as if the
        # sample were a number.
        ramp = torch.linspace(-1, 1, LEVELS)[:, None]
        self.table = nn.Parameter(ramp * torch.randn(2, 1, r) + torch.randn(2, LEVELS, r) / 50)
        self.gates = matrix(layers, 2 * r, 2 * r)  # rows: h_{t-d}, h_t
        self.gates_bias = zeros(layers, 2 * r)
        self.mix = matrix(layers, r, r + s)  # columns: residual, skip
        self.mix_bias, self.skip_bias = zeros(layers, r), zeros(s)
        self.hidden, self.hidden_bias = matrix(s, LEVELS), zeros(LEVELS)
        self.outputs, self.outputs_bias = matrix(LEVELS, LEVELS), zeros(LEVELS)
        if settings.conditioned:
            units = settings.units
            self.phone = nn.Embedding(len(UNITS), units)
            self.stress = nn.Embedding(STRESSES, units)
            self.read = nn.GRU(units + NUMBERS, units, 2, batch_first=True, bidirectional=True)
            # Zero: it begins as a network without conditioning, which has learned more per step.
            self.condition = zeros(2 * units, layers * 2 * r)

    def conditioning(self, symbols: Tensor, numbers: Tensor) -> Tensor:
        """What is added to z: [B, F, layers, 2r].

        Args:
            symbols: [B, F, 2] phone and stress of each frame.
            numbers: [B, F, NUMBERS].
        """
        settings = self.settings
        shape = (*symbols.shape[:2], settings.layers, 2 * settings.residual)
        if not settings.conditioned:
            return self.gates_bias.expand(shape)
        embedded = self.phone(symbols[..., 0]) + self.stress(symbols[..., 1])
        read, _ = self.read(torch.cat([embedded, numbers], 2))
        return (read @ self.condition).view(shape) + self.gates_bias

    def forward(self, codes: Tensor, conditioning: Tensor) -> Tensor:
        """Logits of each sample given those before it.

        Args:
            codes: [B, T + 1] levels; the first is that before the first sample.
            conditioning: [B, F, layers, 2r], F frames of T / F samples.

        Returns:
            [B, T, LEVELS].
        """
        settings, r = self.settings, self.settings.residual
        batch, frames = conditioning.shape[:2]
        last = codes[:, :-1]
        before = functional.pad(last, (1, 0), value=LEVELS // 2)[:, :-1]
        h = self.table[0][before] + self.table[1][last]  # [B, T, r]
        gated = []
        for layer, dilation in enumerate(settings.dilations):
            past = functional.pad(h, (0, 0, dilation, 0))[:, : h.shape[1]]
            z = torch.cat([past, h], 2) @ self.gates[layer]
            z = z.view(batch, frames, -1, 2 * r) + conditioning[:, :, None, layer]
            # sigmoid(x) = (1 + tanh(x / 2)) / 2: half the time
            one, two = z.view(batch, -1, 2 * r).chunk(2, 2)
            g = torch.tanh(one) * (0.5 + 0.5 * torch.tanh(0.5 * two))
            h = h + g @ self.mix[layer, :, :r] + self.mix_bias[layer]
            gated.append(g)
        skip = torch.cat(gated, 2) @ self.mix[:, :, r:].flatten(0, 1) + self.skip_bias
        hidden = torch.relu(skip) @ self.hidden + self.hidden_bias
        return (torch.relu(hidden) @ self.outputs + self.outputs_bias).float()


class ProsodyNetwork(nn.Module):
    """Durations and pitch of phones in one network (Deep Voice, section 3.3)."""

    def __init__(self, settings: ProsodySettings) -> None:
        super().__init__()
        dense, units = settings.dense, settings.units
        self.phone = nn.Embedding(len(UNITS), dense)
        self.stress = nn.Embedding(STRESSES, dense)
        self.dense = nn.Sequential(
            nn.Linear(dense, dense), nn.ReLU(), nn.Linear(dense, dense), nn.ReLU()
        )
        self.recurrent = nn.GRU(dense, units, 2, batch_first=True, bidirectional=True)
        self.outputs = nn.Linear(2 * units, 2 + F0_VALUES)

    def forward(self, symbols: Tensor, lengths: Tensor) -> Tensor:
        """[B, P, 2] phones and stress -> [B, P, 2 + F0_VALUES].

        Columns: standardized log duration, logit of P(voiced), standardized log F0.
        """
        x = self.dense(self.phone(symbols[..., 0]) + self.stress(symbols[..., 1]))
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, True, enforce_sorted=False)
        hidden, _ = nn.utils.rnn.pad_packed_sequence(self.recurrent(packed)[0], True)
        return self.outputs(hidden)
