"""Modules whose matrices are mostly zeros, for the tests of `holdfast.sparse`."""

from __future__ import annotations

import torch
from torch import nn


def pruned(module: nn.Module, share: float = 0.9, block: int = 1, seed: int = 0) -> nn.Module:
    """The module with random zeros, or blocks of them, in its matrices."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in module.parameters():
            if weight.ndim == 2:
                kept = torch.rand(weight.shape, generator=generator)[::block] >= share
                weight *= kept.repeat_interleave(block, 0)[: len(weight)]
    return module.eval()
