"""Training steps against closed forms: gradients, fused attention, the optimizer, memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from holdfast.errors import InputError
from holdfast.profile.ops.profiling import profile


class Attend(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 16, bias=False)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        y = self.linear(x)[:, None]
        return {"y": F.scaled_dot_product_attention(y, y, y, is_causal=True)}


def made(module: nn.Module, x: Tensor, **named: Any) -> Any:
    return profile(module, x, machine="h100-sxm", training=True, **named)


def phases(result: Any) -> dict[str, int]:
    return {row["phase"]: row["flops"] for row in result.to_dict()["by_phase"]}


def test_products_and_memory() -> None:
    first, second = nn.Linear(8, 16), nn.Linear(16, 4)
    second.bias.requires_grad_(False)
    model = nn.Sequential(first, nn.ReLU(), second).eval()
    result = made(model, torch.zeros(10, 8))
    one, two = 2 * 10 * 8 * 16, 2 * 10 * 16 * 4
    # The input has no gradient.
    assert phases(result) == {"forward": one + two, "backward": one + 2 * two, "optimizer": 0}
    assert result.gradient_bytes == result.parameter_bytes - 4 * 4
    assert result.optimizer_bytes == 2 * result.gradient_bytes
    held = result.parameter_bytes + result.optimizer_bytes + result.gradient_bytes
    assert held < result.peak_bytes < held + 4 * 10 * (8 + 3 * 16 + 2 * 4)
    assert result.unknown_ops == []
    assert (model.training, first.weight.grad) == (False, None)
    assert any(section.id == "training" for section in result.sections())
    steps = [op for op in result.ops if op.phase == "optimizer"]
    assert [op.bytes for op in steps] == [7 * 4 * n for n in (8 * 16, 16, 16 * 4)]


def test_convolutions_and_norms() -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.SiLU(),
        nn.Conv2d(8, 8, 3, stride=2, groups=2),
        nn.GroupNorm(2, 8),
        nn.ConvTranspose2d(8, 4, 2, stride=2),
    )
    result = made(model, torch.zeros(2, 3, 16, 16))
    first = 2 * (2 * 8 * 256) * 27
    grouped, transposed = 2 * (2 * 8 * 49) * 36, 2 * (2 * 8 * 49) * 16
    assert phases(result)["forward"] == first + grouped + transposed
    assert phases(result)["backward"] == first + 2 * grouped + 2 * transposed
    assert result.unknown_ops == []


def test_fused_attention_has_five_products_backward() -> None:
    result = made(Attend(), torch.zeros(2, 6, 16))
    attention, linear = 4 * 2 * (6 * 7 // 2) * 16, 2 * 12 * 256
    assert phases(result)["forward"] == attention + linear
    assert phases(result)["backward"] == 5 * attention // 2 + linear
    assert [call.kind for call in result.attention] == ["causal"]


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_what_cannot_be_trained(device: str) -> None:
    module = nn.Linear(16, 16) if device == "cpu" else nn.ReLU()
    with pytest.raises(InputError) as error:
        made(module, torch.zeros(2, 16), device=device)
    assert (error.value.code, error.value.place) == ("unsupported", "--training")
