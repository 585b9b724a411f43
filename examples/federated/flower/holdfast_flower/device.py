"""What a device does: read its data, train, answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import Context, RecordDict

from holdfast.config import read_config
from holdfast.errors import InputError
from holdfast.federated import read_examples
from holdfast.federated.configuration import RunConfig, client_data
from holdfast.federated.datasets import as_tensors
from holdfast.federated.models import model_named
from holdfast.federated.training import FlatModel, train_client
from holdfast_flower.labels import label_names
from holdfast_flower.messages import task_of, update_content, values_of, weights_of


def trained(content: RecordDict, context: Context, name: str) -> RecordDict:
    """The update for a task.

    Raises:
        InputError: a mistake in this client's name or data.
    """
    task, described = task_of(content), values_of(content["model"])
    torch.set_num_threads(task.settings.threads)
    # 1. The data of this client.
    if "data" in context.node_config:
        data = own_data(Path(str(context.node_config["data"])), described)
    else:
        data = data_of_trial(Path(str(context.run_config["config"])), name)
    # 2. The module; `module:function` is a module of this app, or installed.
    here = Path(__file__).resolve().parents[1]
    shape, classes = described["shape"], len(described["labels"])
    model = FlatModel(model_named(described["name"], shape, classes, task.settings.seed, here))
    model.load(weights_of(content["arrays"]))
    # 3. Train from the global weights.
    return update_content(train_client(model, as_tensors(data, model.vector, name), task))


def own_data(path: Path, described: dict[str, Any]) -> tuple[Any, Any]:
    """Inputs and targets of a device's own file or folder; targets are the server's numbers.

    Raises:
        InputError: ``unknown-name`` for a label that the server does not have; mistakes in the data.
    """
    x, y = read_examples(path, described["size"])
    # A device may lack some classes: its labels count as the server counts them, not as this file does.
    places = []
    for label in label_names(path):
        if label not in described["labels"]:
            raise InputError(
                "a label that the server's data do not have",
                code="unknown-name",
                path=path,
                found=label,
                expected=f"one of {', '.join(described['labels'])}",
            )
        places.append(described["labels"].index(label))
    return x, np.array(places)[y]


def data_of_trial(path: Path, name: str) -> tuple[Any, Any]:
    """What a client of a configuration has in `holdfast federated run`.

    Raises:
        InputError: ``unknown-name``; a mistake in the configuration or the data.
    """
    config = read_config(path, RunConfig, "the configuration")
    clients, _, _ = client_data(config, path.resolve().parent)
    if name not in clients:
        raise InputError(
            "unknown client",
            code="unknown-name",
            path=path,
            place="data.clients",
            found=name,
            expected=f"one of {', '.join(clients)}",
            remedy='give the SuperNode data of its own: --node-config \'client="..." data="..."\'',
        )
    return clients[name]
