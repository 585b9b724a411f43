"""What server and devices send each other, as Flower's records. Floats and arrays keep every bit."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import asdict, replace
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from holdfast.federated import Failure, Settings, Task, Update
from holdfast.federated.updates import Weights


def array_record(weights: Weights) -> ArrayRecord:
    """Arrays by name."""
    return ArrayRecord({name: Array(array) for name, array in weights.items()})


def weights_of(record: ArrayRecord) -> Weights:
    """The arrays of a record."""
    return {name: array.numpy() for name, array in record.items()}


def json_record(values: Any) -> ConfigRecord:
    """What is not an array: a record has no nested values, and no None."""
    return ConfigRecord({"json": json.dumps(values)})


def values_of(record: ConfigRecord) -> Any:
    """What `json_record` was made of."""
    return json.loads(str(record["json"]))


def task_content(arrays: ArrayRecord, task: Task, model: dict[str, Any]) -> RecordDict:
    """A task, with the global weights and what the device needs to make the module."""
    said = {
        "settings": asdict(task.settings),
        "seed": task.seed,
        "local": dict(task.local),
        "loss_ema": task.loss_ema,
    }
    content = RecordDict({"arrays": arrays, "task": json_record(said), "model": json_record(model)})
    if task.control is not None:
        server, client = task.control
        content["control"] = array_record({"server": server, "client": client})
    return content


def task_of(content: RecordDict) -> Task:
    """The task that `task_content` wrote."""
    said = values_of(content["task"])
    control = None
    if "control" in content:
        pair = weights_of(content["control"])
        control = pair["server"], pair["client"]
    settings, seed = Settings(**said.pop("settings")), tuple(said.pop("seed"))
    return Task(settings=settings, seed=seed, control=control, **said)


def update_content(update: Update) -> RecordDict:
    """An update."""
    metrics = {**update.metrics, "num-examples": update.examples}
    content = RecordDict({"arrays": array_record(update.weights), "metrics": MetricRecord(metrics)})
    if update.control is not None:
        content["control"] = array_record({"client": update.control})
    return content


def failure_content(reason: str) -> RecordDict:
    """Why there is no update; Flower's own errors reach the server without their text."""
    return RecordDict({"failure": json_record(reason)})


def answer_of(
    content: RecordDict, name: str, metrics: Collection[str], control_size: int | None
) -> Update | Failure:
    """What a device answered; an answer that lacks something is a failure, whatever the device meant.

    Args:
        content: of the reply.
        name: of the client.
        metrics: that the rule needs.
        control_size: numbers in a control variate; None: the rule has none.
    """
    try:
        if "failure" in content:
            return Failure(name, "error", str(values_of(content["failure"])))
        noted = dict(content["metrics"])
        examples = noted.pop("num-examples")
        update = Update(
            weights=weights_of(content["arrays"]),
            examples=examples,
            metrics={key: float(noted[key]) for key in metrics},
            client=name,
        )
        if control_size is not None:
            control = weights_of(content["control"])["client"]
            update = replace(update, control=control.reshape(control_size))
    except Exception as error:  # a device may send anything
        return Failure(name, "error", f"invalid answer: {type(error).__name__}: {error}")
    return update
