"""What Apple's pfl 0.6 runs for `federated_rounds.py`, in its own environment; prints JSON.

python federated_rounds_pfl.py ROUNDS
"""

from __future__ import annotations

import json
import os
import sys
import time

os.environ.setdefault("PFL_PYTORCH_DEVICE", "cpu")

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Weighted
from pfl.model.pytorch import PyTorchModel

import federated_rounds_inputs as inputs


class Network(torch.nn.Module):
    """The network with the methods that pfl asks for."""

    def __init__(self):
        super().__init__()
        self.inner = inputs.network()

    def forward(self, x):
        """Outputs."""
        return self.inner(x)

    def loss(self, x, y, eval=False):
        """What is minimized."""
        return torch.nn.functional.cross_entropy(self(x), y)

    def metrics(self, x, y, eval=False):
        """What is reported."""
        return {"loss": Weighted(self.loss(x, y).item() * len(y), len(y))}


def train(rounds):
    """Seconds, and the trained network."""
    parts, _ = inputs.clients()
    tensors = [(torch.from_numpy(x), torch.from_numpy(y)) for x, y in parts]
    users = list(range(len(tensors)))

    def dataset():
        sampler = get_user_sampler("random", users)
        return FederatedDataset(lambda user: PyTorchTensorDataset(tensors[user]), sampler)

    np.random.seed(0)  # noqa: NPY002 - pfl draws from it
    network = Network()
    optimizer = torch.optim.SGD(network.parameters(), lr=1.0)
    model = PyTorchModel(network, torch.optim.SGD, optimizer)
    backend = SimulatedBackend(training_data=dataset(), val_data=dataset())
    training = NNTrainHyperParams(
        local_num_epochs=1, local_learning_rate=inputs.RATE, local_batch_size=inputs.BATCH
    )
    parameters = NNAlgorithmParams(
        central_num_iterations=rounds,
        evaluation_frequency=rounds + 1,
        train_cohort_size=inputs.PER_ROUND,
        val_cohort_size=0,
    )
    begin = time.perf_counter(), time.process_time()
    FederatedAveraging().run(
        algorithm_params=parameters,
        backend=backend,
        model=model,
        model_train_params=training,
        model_eval_params=NNEvalHyperParams(local_batch_size=2000),
        callbacks=[],
        send_metrics_to_platform=False,
    )
    return time.perf_counter() - begin[0], time.process_time() - begin[1], network


if __name__ == "__main__":
    torch.set_num_threads(1)
    train(2)
    seconds, cpu, network = train(int(sys.argv[1]))
    x, y = inputs.clients()[1]
    with torch.no_grad():
        loss = network.loss(torch.from_numpy(x), torch.from_numpy(y)).item()
    print(json.dumps({"seconds": seconds, "cpu": cpu, "loss": loss}))
