"""Party 0 has an image, party 1 the weights of a LeNet; only party 0 learns the class."""

import torch
from torch import nn

from holdfast.private import mpc


def model():
    """The architecture, and at party 1 its weights."""
    torch.manual_seed(1)  # stands for weights that party 1 has trained
    return nn.Sequential(
        nn.Conv2d(1, 20, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(20, 50, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(800, 500), nn.ReLU(), nn.Linear(500, 10),
    )  # fmt: skip


def typical():
    """Images by which party 1 bounds what the layers make of them."""
    return torch.rand(4, 1, 28, 28, generator=torch.Generator().manual_seed(3))


def main(party):
    """What every party runs."""
    image = torch.rand(1, 1, 28, 28, generator=torch.Generator().manual_seed(2))
    private = mpc.import_model(party, model(), image, owner=1)
    logits = private(party.secret(image, owner=0))
    return {"class": logits.argmax(-1).reveal(to=0)}
