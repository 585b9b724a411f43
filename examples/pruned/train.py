"""Make the files of this folder: a character model of the license, dense and pruned.

    python examples/pruned/train.py

The second run follows the published schedule, with the magnitudes of the first.
"""

from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

from holdfast import sparse

HERE = Path(__file__).resolve().parent
EPOCHS, STEPS = 20, 60


class Model(nn.Module):
    """Embedding, GRU, linear layer over the characters."""

    def __init__(self, characters: int = 80) -> None:
        super().__init__()
        self.embedding = nn.Embedding(characters, 16)
        self.gru = nn.GRU(16, 64, batch_first=True)
        self.decoder = nn.Linear(64, characters)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """[batch, steps] -> logits [batch, steps, characters]."""
        return self.decoder(self.gru(self.embedding(text))[0])


def train(model: nn.Module, text: torch.Tensor, pruning: dict | None = None) -> float:
    """Train, pruned where a schedule is given: the last loss."""
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    if pruning:
        sparse.Pruner(model, pruning).attach(optimizer)
    for _ in range(EPOCHS * STEPS):
        windows = text[torch.randint(len(text) - 33, (16, 1)) + torch.arange(33)]
        logits = model(windows[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main() -> None:
    """Train both and write them."""
    text = (HERE.parents[1] / "LICENSE").read_text(encoding="ascii")
    codes = torch.tensor([sorted(set(text)).index(letter) for letter in text])
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dense, pruned = Model(), Model()
    print("dense", train(dense, codes))
    save_file(dense.state_dict(), HERE / "dense.safetensors")
    schedules = {
        kind: sparse.Narang.of_epochs(q, EPOCHS, STEPS, freq=10)
        for kind, q in sparse.percentiles(dense.state_dict()).items()
    }
    print("pruned", train(pruned, codes, schedules))
    save_file(pruned.state_dict(), HERE / "pruned.safetensors")


if __name__ == "__main__":
    main()
