"""One inference server for all actors of self-play: their leaves share the batches of one network.

It is a process of its own; actors, Ray's too, reach it through the standard library's managers.
"""

from __future__ import annotations

import os
import queue
import secrets
import socket
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context, parent_process
from multiprocessing.managers import BaseManager
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.errors import HoldfastError
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


class _Server:
    """Evaluates all that waits in one batch."""

    def __init__(self) -> None:
        self._waiting: queue.Queue[tuple[Network, NDArray[np.bool_], Future[Answer]]] = (
            queue.Queue()
        )
        Thread(target=self._run, daemon=True).start()

    def evaluate(self, network: Network, planes: NDArray[np.bool_]) -> Answer:
        """What the network says of planes [batch, 18, rows, cols]."""
        answer: Future[Answer] = Future()
        self._waiting.put((network, planes, answer))
        return answer.result(_LONGEST_S)

    def _run(self) -> None:
        import torch

        from holdfast.go.net import evaluator, load_net

        torch.set_num_threads(1)
        loaded = None
        while True:
            # What came while the last batch was evaluated is the next one.
            jobs = [self._waiting.get()]
            while not self._waiting.empty():
                jobs.append(self._waiting.get())
            begin = time.thread_time()
            try:
                if jobs[0][0] != loaded:
                    loaded = jobs[0][0]
                    evaluate = evaluator(load_net(loaded.path))
                planes = np.concatenate([planes for _, planes, _ in jobs]).astype(np.float32)
                policy, values = evaluate(planes)
                share_s = (time.thread_time() - begin) / len(planes)
                first = 0
                for _, planes, answer in jobs:
                    end = first + len(planes)
                    answer.set_result((policy[first:end], values[first:end], share_s * len(planes)))
                    first = end
            except Exception as error:  # a fault is that of its batch, and ends nobody's wait
                for _, _, answer in jobs:
                    if not answer.done():
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


def shared_evaluator(network: Network) -> tuple[Evaluator, list[float]]:
    """What a search asks, answered by the server of a network; and the CPU seconds of each answer.

    Raises:
        HoldfastError: if the server ended.
    """
    manager = _Manager(network.address, authkey=network.key)
    spent = list[float]()
    try:
        manager.connect()
        server = manager.server()  # type: ignore[attr-defined]
    except (EOFError, OSError) as error:
        raise HoldfastError("the inference server cannot be reached") from error

    def evaluate(planes: Floats) -> tuple[Floats, Floats]:
        try:
            policy, values, seconds = server.evaluate(network, planes.astype(bool))
        except (EOFError, OSError) as error:
            raise HoldfastError("the inference server ended; another call resumes") from error
        spent.append(seconds)
        return policy, values

    return evaluate, spent
