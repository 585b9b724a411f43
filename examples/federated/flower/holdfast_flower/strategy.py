"""The server's strategy: the rounds of `holdfast.federated`, whose clients are Flower's nodes.

Flower carries the messages. Which clients are asked, what they are asked to do, which updates can be used,
the rule, the state on disk and the answer are those of `holdfast federated run` for the same TOML file:
with the same data, weights are the same to the last bit after every round.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from logging import INFO, WARNING
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from flwr.supercore import log
from torch.nn.functional import cross_entropy

from holdfast.config import read_config
from holdfast.errors import InputError
from holdfast.federated import Failure, FederatedRun, Task, Update
from holdfast.federated.configuration import (
    RunConfig,
    client_data,
    configured_model,
    rule_settings,
)
from holdfast.federated.engine import Engine
from holdfast.federated.training import accuracy
from holdfast_flower.labels import label_names
from holdfast_flower.messages import answer_of, array_record, task_content

HELLO_TIMEOUT_S = 60.0
"""For a node to say which client it is; a node without an answer is asked again."""


class RunStrategy(Strategy):
    """A federated run as a TOML file describes it, on Flower's nodes.

    The server tests on the examples that the file holds out. The clients are those that join first,
    ``data.clients`` of them; each node says which it is, so that a node that restarts is the same client.

    Args:
        path: the TOML file.
        grid: what reaches the nodes.
        resume: continue the run in its folder.
        join_timeout_s: seconds until ``data.clients`` clients must have joined.

    Raises:
        InputError: a mistake in the file or the data; ``unsupported`` for secure aggregation and the
            ledger, which need more than Flower's messages; ``no-answer`` if too few clients join.
    """

    def __init__(
        self, path: str | Path, grid: Grid, resume: bool = False, join_timeout_s: float = 600.0
    ) -> None:
        path = Path(path).resolve()
        config = read_config(path, RunConfig, "the configuration")
        _check(config, path)
        clients, tests, proxy = client_data(config, path.parent)
        model = configured_model(config, path.parent, clients, tests, proxy)
        self.folder = path.parent / config.output
        # What a device needs to make the module, and to number its labels.
        inputs = next(iter(clients.values()))[0]
        self.model = {
            "name": config.model,
            "shape": inputs.shape[1:],
            "labels": label_names(path.parent / config.data.path),
            "size": config.data.size,
        }
        self.nodes: dict[int, str] = {}
        self.answers: dict[str, Update | Failure] = {}
        # The engine's order of clients decides what is random about each, and the order of sums.
        joined = self._joined(grid, config.data.clients, join_timeout_s)
        self.names = [n for n in clients if n in joined] + sorted(joined - clients.keys())
        rule, parameters = rule_settings(config.rule)
        nothing = np.zeros((0, 1)), np.zeros(0)
        self.engine = Engine(
            model,
            dict.fromkeys(self.names, nothing),
            tests,
            rule,
            config.training,
            train=None,
            loss=cross_entropy,
            metric=accuracy,
            privacy=None,
            proxy=proxy,
            parameters=parameters,
        )
        self.state = self.engine.begin(self.folder, resume, ledger=False)
        # After the state was compared: answers are no setting of the run.
        self.engine.train = self._answer

    @property
    def rounds_left(self) -> int:
        """Rounds that the folder does not have yet."""
        return max(0, self.engine.settings.rounds - len(self.state.history))

    @property
    def arrays(self) -> ArrayRecord:
        """Global weights."""
        return array_record(self.state.weights)

    def result(self) -> FederatedRun:
        """The answer after the last round."""
        return self.engine.result(self.state)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """A task for each client that the engine asks in this round."""
        self._greet(grid)
        nodes = {name: node for node, name in self.nodes.items()}
        number = len(self.state.history) + 1
        messages = []
        for place in self.engine.sampled(number):
            name = self.names[place]
            if name in nodes:
                task = self.engine.task(self.state, number, place, name)
                content = task_content(self.arrays, task, self.model)
                group = str(number)
                messages.append(Message(content, nodes[name], MessageType.TRAIN, group_id=group))
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The engine's round, with these answers; clients that did not answer are named."""
        self.answers = {}
        for reply in replies:
            name = self.nodes.get(reply.metadata.src_node_id)
            if name is None:  # the SuperLink itself says that a node is gone: it did not answer
                log(WARNING, "%s", reply.error.reason)
            elif reply.has_error():
                reason = f"Flower's error {reply.error.code}: {reply.error.reason}"
                self.answers[name] = Failure(name, "error", reason)
            else:
                self.answers[name] = answer_of(reply.content, name, *self._needs())
        self.engine.play_round(self.state)
        row = self.state.history[-1]
        for failure in self.state.failures:
            if failure["round"] == row.number:
                log(WARNING, "%s: %s, %s", failure["client"], failure["code"], failure["reason"])
        metrics: dict[str, Any] = {"used": row.used}
        if row.loss is not None:
            metrics["loss"] = row.loss
        for device, score in (row.accuracy or {}).items():
            metrics[f"accuracy.{device}"] = score
        return self.arrays, MetricRecord(metrics)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Nothing: the engine tests on the server's data."""
        return []

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Nothing."""
        return None

    def summary(self) -> None:
        """Log rule, clients and folder."""
        log(INFO, "\t├──> Rule: %s, %d clients", self.engine.rule, len(self.names))
        log(INFO, "\t└──> Folder: %s, %d rounds left", self.folder, self.rounds_left)

    def _needs(self) -> tuple[set[str], int | None]:
        """Metrics, and the size of the control variate, that an update must have."""
        task = self.engine.task(self.state, 0, 0, "")
        metrics = {"loss"} | ({"loss_before"} if {"q", "switch"} & task.local.keys() else set())
        metrics |= {"transform", "averaging"} if "switch" in task.local else set()
        return metrics, None if task.control is None else len(task.control[0])

    def _answer(self, module: Any, data: Any, task: Task) -> Update | Failure:
        """What a client answered in this round; the last part of a task's seed is its place."""
        name = self.names[task.seed[-1]]
        return self.answers.get(name) or Failure(name, "no-answer", "late, or not connected")

    def _joined(self, grid: Grid, clients: int, timeout_s: float) -> set[str]:
        """Names of the clients, once there are enough."""
        deadline = time.monotonic() + timeout_s
        while len(joined := set(self.nodes.values())) < clients:
            if time.monotonic() > deadline:
                raise InputError(
                    "too few clients joined",
                    code="no-answer",
                    place="data.clients",
                    found=f"{len(joined)} in {timeout_s:g} s: {', '.join(sorted(joined))}",
                    expected=f"{clients}",
                    remedy="start more SuperNodes, each with a name of its own, or lower data.clients",
                )
            time.sleep(1.0)
            self._greet(grid)
        return joined

    def _greet(self, grid: Grid) -> None:
        """Ask nodes that are new which client they are; forget those that left."""
        here = set(grid.get_node_ids())
        self.nodes = {node: name for node, name in self.nodes.items() if node in here}
        new = sorted(here - self.nodes.keys())
        hello = [Message(RecordDict(), node, MessageType.QUERY) for node in new]
        for reply in grid.send_and_receive(hello, timeout=HELLO_TIMEOUT_S) if hello else []:
            node = reply.metadata.src_node_id
            if reply.has_error():
                log(WARNING, "node %d does not say which client it is: %s", node, reply.error)
                continue
            name = str(reply.content["client"]["name"])
            log(INFO, "%s joined", name)
            # A client that restarted is the node that joined last.
            self.nodes = {n: known for n, known in self.nodes.items() if known != name}
            self.nodes[node] = name


def _check(config: RunConfig, path: Path) -> None:
    """Refuse what would not be true of real clients.

    Raises:
        InputError: ``unsupported``.
    """
    if config.privacy is not None:
        raise InputError(
            "updates reach Flower's server in the clear",
            code="unsupported",
            path=path,
            place="privacy",
            remedy="remove privacy, or simulate it with holdfast federated run",
        )
    if config.ledger:
        raise InputError(
            "the ledger's keys follow from the seed: they would not bind real clients",
            code="unsupported",
            path=path,
            place="ledger",
            remedy="remove ledger, or simulate it with holdfast federated run",
        )
