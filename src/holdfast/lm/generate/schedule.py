"""Length, batches and learning rate of a run of training."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

from holdfast.command import Options, Positive, option


@Options
@dataclass(frozen=True)
class Schedule:
    """How long a run is, what a step reads, and its learning rate."""

    steps: Positive = 1000
    """Optimizer steps."""
    batch: Positive = 16
    """Windows of text per step."""
    length: Positive = 128
    """Tokens per window."""
    learning_rate: Annotated[float, option(metavar="RATE")] = 1e-3
    """Peak of the learning rate, after a twentieth of the steps; then a cosine down to a tenth."""
    save_every: Positive = 200
    """Steps between checkpoints."""

    def rate(self, step: int) -> float:
        """Learning rate at a step."""
        warmup = max(1, self.steps // 20)
        decay = (step - warmup) / max(1, self.steps - warmup)
        cosine = 0.1 + 0.45 * (1 + math.cos(math.pi * max(0.0, decay)))
        return self.learning_rate * min((step + 1) / warmup, cosine)
