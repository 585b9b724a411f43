"""Trainings for `profile_numerics.py`: transformers that differ in attention and precision; spikes.

    python benchmarks/profile_numerics_training.py run FOLDER flash bf16 0   # one training, tracked
    python benchmarks/profile_numerics_training.py spikes FOLDER   # curves with bursts of the rate

bf16 is mixed precision emulated in float32: operands and results of products are rounded to bfloat16,
sums and master weights are float32. Flash reads keys in blocks of 16 with a running maximum and sum in
float32, as kernels do; the baseline is matmul, softmax, matmul with rounded results.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from holdfast.profile.numerics import WeightTracker
from sparse_language_model import corpus

WIDTH, LAYERS, HEADS, LENGTH, BATCH, BLOCK = 160, 4, 5, 64, 4, 16
STEPS, EVERY = 500, 25
BURST, BURST_STEPS = 100.0, 3
"""Factor on the learning rate, and steps it lasts: the known causes of the spikes."""


def rounded(x: Tensor, precision: str) -> Tensor:
    """To bfloat16 and back; the gradient is rounded too."""
    return x.bfloat16().float() if precision == "bf16" else x


class Linear(nn.Linear):
    """A product with rounded operands and result."""

    precision = "fp32"

    def forward(self, x: Tensor) -> Tensor:
        """[..., inputs] -> [..., outputs]."""
        p = self.precision
        return rounded(nn.functional.linear(rounded(x, p), rounded(self.weight, p), self.bias), p)


def baseline(q: Tensor, k: Tensor, v: Tensor, precision: str) -> Tensor:
    """Matmul, softmax, matmul; [B, H, T, d]."""
    future = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)[: q.shape[2], : q.shape[2]]
    scores = rounded(q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]), precision)
    p = torch.softmax(scores.masked_fill(future, -math.inf), -1)
    return rounded(rounded(p, precision) @ v, precision)


def flash(q: Tensor, k: Tensor, v: Tensor, precision: str) -> Tensor:
    """Blocks of keys with a running maximum and sum; [B, H, T, d]."""
    steps = torch.arange(q.shape[2])
    m = torch.full((*q.shape[:3], 1), -1e30)
    total, o = torch.zeros_like(m), torch.zeros_like(q)
    for first in range(0, q.shape[2], BLOCK):
        keys = slice(first, first + BLOCK)
        s = q @ k[:, :, keys].transpose(-1, -2) / math.sqrt(q.shape[-1])
        s = s.masked_fill(steps[keys] > steps[:, None], -1e30)
        m_new = torch.maximum(m, s.amax(-1, keepdim=True)).detach()
        p = torch.exp(s - m_new)
        a = torch.exp(m - m_new)
        total = a * total + p.sum(-1, keepdim=True)
        o = a * o + rounded(p, precision) @ v[:, :, keys]
        m = m_new
    return rounded(o / total, precision)


class Layer(nn.Module):
    """Pre-norm attention and MLP."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = Linear(width, 3 * width), Linear(width, width)
        self.up, self.down = Linear(width, 4 * width), Linear(4 * width, width)
        self.attention, self.precision = baseline, "fp32"

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, width] -> the same."""
        b, t, w = x.shape
        qkv = self.qkv(self.norm_1(x)).view(b, t, 3, self.heads, w // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # [B, H, T, d] each
        o = self.attention(q, k, v, self.precision).transpose(1, 2).reshape(b, t, w)
        x = x + self.out(o)
        return x + self.down(nn.functional.gelu(self.up(self.norm_2(x))))


class Transformer(nn.Module):
    """Characters to logits; input and output embeddings are tied."""

    def __init__(self, characters: int, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(characters, width)
        self.position = nn.Embedding(LENGTH, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = Linear(width, characters, bias=False)
        self.head.weight = self.embedding.weight
        nn.init.normal_(self.embedding.weight, std=0.02)

    def forward(self, text: Tensor) -> Tensor:
        """[B, T] -> logits [B, T, characters]."""
        x = self.embedding(text) + self.position.weight[: text.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def model_of(characters: int, attention: str, precision: str, seed: int) -> Transformer:
    """The same weights for one seed, whatever the arithmetic."""
    torch.manual_seed(seed)
    model = Transformer(characters, WIDTH, LAYERS, HEADS)
    for module in model.modules():
        if isinstance(module, Linear):
            module.precision = precision
        if isinstance(module, Layer):
            module.attention = flash if attention == "flash" else baseline
            module.precision = precision
    return model


def batches(text: Tensor, seed: int, batch: int, length: int) -> Iterator[Tensor]:
    """Windows of the text, [batch, length + 1]."""
    draws = torch.Generator().manual_seed(1000 + seed)
    places = torch.arange(length + 1)
    while True:
        starts = torch.randint(len(text) - length - 1, (batch, 1), generator=draws)
        yield text[starts + places]


def loss_of(model: nn.Module, window: Tensor) -> Tensor:
    """Mean cross-entropy of the next character."""
    logits = model(window[:, :-1]).float()
    return nn.functional.cross_entropy(logits.flatten(0, 1), window[:, 1:].flatten())


def run(folder: Path, attention: str, precision: str, seed: int) -> None:
    """Train one variant; its sketches, last weights and losses go to the folder."""
    name = f"{attention}-{precision}-{seed}"
    text, _, characters, _ = corpus(1_000_000)
    model = model_of(characters, attention, precision, seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    rate = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: min(1.0, (n + 1) / 50))
    tracker = WeightTracker(model, every=EVERY, dir=folder / name).attach(optimizer)
    source, losses = batches(text, seed, BATCH, LENGTH), []
    begin = time.process_time()
    for _ in range(STEPS):
        loss = loss_of(model, next(source))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        rate.step()
        losses.append(float(loss.detach()))
    seconds = time.process_time() - begin
    torch.save(model.state_dict(), folder / f"{name}.pt")
    facts = {"parameters": sum(p.numel() for p in model.parameters()), "seconds": seconds}
    facts |= {"losses": losses, "steps": tracker.number}
    (folder / f"{name}.json").write_text(json.dumps(facts))


def spiking(folder: Path, seed: int, rate: float, steps: int = 1800) -> None:
    """A small model with bursts of the learning rate; the curve as W&B exports it, and the true onsets."""
    text, _, characters, _ = corpus(500_000)
    torch.manual_seed(seed)
    model = Transformer(characters, 48, 2, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    draws = torch.Generator().manual_seed(seed)
    # A burst shows in the loss of the step after it began.
    starts = range(250, steps - 200, 250)
    onsets = [start + int(torch.randint(60, (1,), generator=draws)) for start in starts]
    lines = [
        "Step,run - train/loss,run - train/loss__MIN,run - train/loss__MAX,run - train/grad_norm"
    ]
    source = batches(text, seed, 16, 48)
    for step in range(steps):
        burst = any(onset <= step < onset + BURST_STEPS for onset in onsets)
        for group in optimizer.param_groups:
            group["lr"] = rate * (BURST if burst else 1.0)
        loss = loss_of(model, next(source))
        optimizer.zero_grad()
        loss.backward()
        norm = float(nn.utils.clip_grad_norm_(model.parameters(), 10.0))
        optimizer.step()
        value = float(loss.detach())
        lines.append(f"{step},{value},{value},{value},{norm}")
    (folder / f"spikes-{seed}-{rate:g}.csv").write_text("\n".join(lines) + "\n")
    (folder / f"spikes-{seed}-{rate:g}.json").write_text(json.dumps([each + 1 for each in onsets]))


def main(arguments: list[str]) -> None:
    """Run what the arguments name."""
    what, folder = arguments[0], Path(arguments[1])
    folder.mkdir(parents=True, exist_ok=True)
    if what == "run":
        run(folder, arguments[2], arguments[3], int(arguments[4]))
    else:
        for seed, rate in enumerate((5e-4, 1e-3)):
            spiking(folder, seed, rate)


if __name__ == "__main__":
    main(sys.argv[1:])
