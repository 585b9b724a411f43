"""What Flower 1.41's simulation runs for `federated_rounds.py`, in its own environment; prints JSON.

python federated_rounds_flower.py ROUNDS
"""

from __future__ import annotations

import json
import os
import sys
import time

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
os.environ.setdefault("RAY_DEDUP_LOGS", "0")

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

import federated_rounds_inputs as inputs

ROUNDS = int(sys.argv[1])
TIMES = {}
CACHE = {}
client_app, server_app = ClientApp(), ServerApp()


@client_app.train()
def train(message: Message, context: Context) -> Message:
    """One epoch of SGD on the client's data."""
    torch.set_num_threads(1)
    if not CACHE:
        CACHE["parts"] = inputs.clients()[0]
    x, y = (torch.from_numpy(a) for a in CACHE["parts"][context.node_config["partition-id"]])
    network = inputs.network()
    network.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimizer = torch.optim.SGD(network.parameters(), lr=inputs.RATE)
    order = torch.randperm(len(x))
    for batch in order.split(inputs.BATCH):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(network(x[batch]), y[batch]).backward()
        optimizer.step()
    content = {
        "arrays": ArrayRecord(network.state_dict()),
        "metrics": MetricRecord({"num-examples": len(x)}),
    }
    return Message(content=RecordDict(content), reply_to=message)


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    """Rounds of FedAvg; the first starts the workers and is not measured."""
    strategy = FedAvg(fraction_train=inputs.PER_ROUND / inputs.CLIENTS, fraction_evaluate=0.0)
    arrays = ArrayRecord(inputs.network().state_dict())
    strategy.start(grid=grid, initial_arrays=arrays, num_rounds=1)
    begin = time.perf_counter()
    result = strategy.start(grid=grid, initial_arrays=arrays, num_rounds=ROUNDS)
    TIMES["seconds"] = time.perf_counter() - begin
    network = inputs.network()
    network.load_state_dict(result.arrays.to_torch_state_dict())
    x, y = inputs.clients()[1]
    with torch.no_grad():
        outputs = network(torch.from_numpy(x))
        TIMES["loss"] = torch.nn.functional.cross_entropy(outputs, torch.from_numpy(y)).item()


if __name__ == "__main__":
    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    run_simulation(server_app, client_app, inputs.CLIENTS, backend_config=resources)
    print(json.dumps(TIMES))
