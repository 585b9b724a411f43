"""The network: a residual tower with heads for policy, value, score and owners, on boards of any size.

The heads for owners and score learn from every point of a finished game, which a value alone does not
(Wu, Accelerating self-play learning in Go, 2019, section 4).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from holdfast.errors import InputError
from holdfast.files import read_whole, write_whole
from holdfast.go._puct import PLANES
from holdfast.go.puct import Evaluator, Floats


@dataclass(frozen=True)
class NetSize:
    """Size of a network."""

    channels: int = 32
    blocks: int = 4


class Block(nn.Module):
    """Two convolutions beside the identity."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)
        # Each block begins as the identity, so that no normalization is needed.
        nn.init.zeros_(self.second.weight)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, channels, rows, cols] -> the same."""
        return relu(x + self.second(relu(self.first(x))))


class Net(nn.Module):
    """Planes [batch, 18, rows, cols] -> logits and values for the side to move."""

    def __init__(self, size: NetSize) -> None:
        super().__init__()
        self.size = size
        channels = size.channels
        self.stem = nn.Conv2d(PLANES, channels, 3, padding=1)
        self.tower = nn.Sequential(*(Block(channels) for _ in range(size.blocks)))
        self.points = nn.Conv2d(channels, 2, 1)
        self.pooled = nn.Sequential(nn.Linear(2 * channels, 64), nn.ReLU(), nn.Linear(64, 3))

    def forward(self, planes: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Planes -> logits.

        Returns:
            Of the policy [batch, points + 1], of winning [batch], the lead as a share of the points
            [batch], and of owning each point [batch, rows, cols].
        """
        x = self.tower(relu(self.stem(planes)))
        moves, owners = self.points(x).unbind(1)
        whole = self.pooled(torch.cat([x.mean((2, 3)), x.amax((2, 3))], 1))
        policy = torch.cat([moves.flatten(1), whole[:, :1]], 1)
        return policy, whole[:, 1], whole[:, 2], owners

    def finite(self) -> bool:
        """Whether all weights are finite numbers."""
        return all(bool(torch.isfinite(one).all()) for one in self.parameters())


def evaluator(net: Net) -> Evaluator:
    """What a search asks: policy and probability of winning."""
    net = net.eval().to(memory_format=torch.channels_last)

    def evaluate(planes: Floats) -> tuple[Floats, Floats]:
        with torch.inference_mode():
            policy, win, _, _ = net(torch.from_numpy(planes))
            return policy.softmax(1).numpy(), win.sigmoid().numpy()

    return evaluate


def save_net(net: Net, path: Path) -> None:
    """Write a network, atomically.

    Raises:
        ValueError: if a weight is not finite; nothing is written then.
    """
    if not net.finite():
        raise ValueError("weights that are not finite")
    metadata = {"holdfast.go": json.dumps(asdict(net.size))}
    write_whole(path, safetensors.torch.save(net.state_dict(), metadata))


def load_net(path: str | Path) -> Net:
    """Read a network.

    Raises:
        InputError: if it is not one, or a weight is not finite.
    """
    data = read_whole(path, "a network of `holdfast go train`")
    try:
        length = int.from_bytes(data[:8], "little")
        metadata = json.loads(data[8 : 8 + length])["__metadata__"]
        net = Net(NetSize(**json.loads(metadata["holdfast.go"])))
        net.load_state_dict(safetensors.torch.load(data))
    except (ValueError, LookupError, TypeError, RuntimeError, safetensors.SafetensorError) as error:
        raise InputError(
            "not a network of holdfast go",
            code="invalid-syntax",
            path=path,
            found=f"{type(error).__name__}: {error}".splitlines()[0],
            expected="a file that `holdfast go train` wrote, such as net.safetensors",
        ) from None
    if not net.finite():
        raise InputError(
            "weights that are not finite", code="out-of-range", path=path, remedy="train it again"
        )
    return net
