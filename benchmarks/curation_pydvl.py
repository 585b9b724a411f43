"""Self-influences by pyDVL, in its own environment: `python curation_pydvl.py PROBLEM.npz OUT.npz`.

PROBLEM.npz has features x, labels y, the weights of a fitted binary logistic regression w [d + 1] and
its c.
"""

import sys
import time

import numpy as np
import torch
from pydvl.influence.torch import DirectInfluence

problem = np.load(sys.argv[1])
x = torch.tensor(np.c_[problem["x"], np.ones(len(problem["x"]))])
y = torch.tensor(problem["y"], dtype=torch.float64)[:, None]
model = torch.nn.Linear(x.shape[1], 1, bias=False, dtype=torch.float64)
model.weight.data = torch.tensor(problem["w"])[None]
loss = torch.nn.functional.binary_cross_entropy_with_logits


def self_influences(x: torch.Tensor, y: torch.Tensor) -> np.ndarray:
    """Of every row on itself; pyDVL gives all pairs, so a block at a time."""
    rows = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=len(x))
    # Its Hessian is that of the mean loss: the regularization of the sum is divided by n, as are scores.
    direct = DirectInfluence(model, loss, regularization=1 / (float(problem["c"]) * len(x)))
    direct.fit(rows)
    blocks = zip(x.split(500), y.split(500), strict=True)
    return np.concatenate(
        [direct.influences(a, b, a, b).diagonal().numpy() / len(x) for a, b in blocks]
    )


self_influences(x[:50], y[:50])  # its first call imports and compiles for seconds
begin, cpu = time.perf_counter(), time.process_time()
scores = self_influences(x, y)
seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
np.savez(sys.argv[2], scores=scores, seconds=seconds, cpu=cpu)
