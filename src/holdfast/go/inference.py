"""One inference server for all actors of self-play: their leaves share the batches of one network.

It is a process of its own; actors, Ray's too, reach it through the standard library's managers.
"""

from __future__ import annotations

import os
import queue
import secrets
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context, parent_process
from multiprocessing.managers import BaseManager
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np

from holdfast.errors import HoldfastError
from holdfast.go._kernels import Flags
from holdfast.go.puct import Evaluator, Floats

_LONGEST_S = 600.0
"""Seconds that a batch may take."""


@dataclass(frozen=True)
class Network:
    """A network as actors ask for it."""

    path: Path
    number: int
    """Of the iteration: the file is replaced."""
    address: Any = None
    """Of the inference server; None: the actor evaluates by itself."""
    key: bytes = field(default=b"", repr=False)


Answer = tuple[Floats, Floats, float]
"""Policy, values, and the CPU seconds of this request's share of its batch."""


class _Evaluation:
    """A network that is read where it is asked for."""

    def __init__(self) -> None:
        self._read: Network | None = None
        self._evaluate: Evaluator

    def evaluate(self, network: Network, planes: Floats) -> Answer:
        """What a network says of planes [batch, 18, rows, cols]."""
        begin = time.thread_time()
        if network != self._read:
            import torch

            from holdfast.go.net import evaluator, load_net

            torch.set_num_threads(1)  # other cores have other processes
            self._evaluate, self._read = evaluator(load_net(network.path)), network
        return *self._evaluate(planes), time.thread_time() - begin


class _Server:
    """Evaluates all that waits in one batch."""

    def __init__(self) -> None:
        self._waiting: queue.Queue[tuple[Network, Flags, Future[Answer]]] = queue.Queue()
        Thread(target=self._run, daemon=True).start()

    def evaluate(self, network: Network, planes: Flags) -> Answer:
        """What a network says of planes, which share its next batch."""
        answer: Future[Answer] = Future()
        self._waiting.put((network, planes, answer))
        return answer.result(_LONGEST_S)

    def _run(self) -> None:
        evaluation = _Evaluation()
        while True:
            # What came while the last batch was evaluated is the next one.
            jobs = [self._waiting.get()]
            while not self._waiting.empty():
                jobs.append(self._waiting.get())
            try:
                planes = np.concatenate([planes for _, planes, _ in jobs]).astype(np.float32)
                policy, values, seconds = evaluation.evaluate(jobs[0][0], planes)
                first = 0
                for _, own, answer in jobs:
                    end = first + len(own)
                    share = seconds * len(own) / len(planes)
                    answer.set_result((policy[first:end], values[first:end], share))
                    first = end
            except Exception as error:  # a fault is that of its batch, and ends nobody's wait
                for _, _, answer in jobs:
                    answer.set_exception(error)


_servers = list[_Server]()


def _server() -> _Server:
    """The server of this process, which ends with the process that started it."""
    if not _servers:
        _servers.append(_Server())
    return _servers[0]


def _end_with_parent() -> None:
    def watch() -> None:
        if (parent := parent_process()) is not None:
            parent.join()
            os._exit(0)

    Thread(target=watch, daemon=True).start()


class _Manager(BaseManager):
    """Gives actors the server."""


_Manager.register("server", _server, exposed=["evaluate"])


@contextmanager
def inference_server(remote: bool = False) -> Iterator[tuple[Any, bytes]]:
    """Run a server; gives its address and key.

    Args:
        remote: whether actors of other machines reach it.
    """
    key = secrets.token_bytes(16)
    address = (socket.gethostbyname(socket.gethostname()), 0) if remote else None
    manager = _Manager(address, authkey=key, ctx=get_context("spawn"))
    manager.start(_end_with_parent)
    with manager:
        yield manager.address, key


def evaluator_of(network: Network) -> tuple[Evaluator, list[float]]:
    """What a search asks, answered here or by the server of a network; and the CPU seconds of each answer.

    Raises:
        HoldfastError: if the server ended.
    """
    spent = list[float]()
    ask = _Evaluation().evaluate if network.address is None else _connected(network)

    def evaluate(planes: Floats) -> tuple[Floats, Floats]:
        policy, values, seconds = ask(network, planes)
        spent.append(seconds)
        return policy, values

    return evaluate, spent


def _connected(network: Network) -> Callable[[Network, Floats], Answer]:
    try:
        manager = _Manager(network.address, authkey=network.key)
        manager.connect()
        server = manager.server()  # type: ignore[attr-defined]
    except (EOFError, OSError) as error:
        raise HoldfastError("the inference server cannot be reached") from error

    def ask(network: Network, planes: Floats) -> Answer:
        try:
            answer: Answer = server.evaluate(network, planes.astype(bool))
        except (EOFError, OSError) as error:
            raise HoldfastError("the inference server ended; another call resumes") from error
        return answer

    return ask
