"""Actors that share an inference server, and what the death of one costs."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from multiprocessing import active_children
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from holdfast.errors import InputError
from holdfast.go import Game, Training, train
from holdfast.go.inference import Network, _Server, evaluator_of, inference_server
from holdfast.go.net import Net, NetSize, evaluator, load_net, save_net
from holdfast.go.selfplay import Part, SelfPlay, play_part

TINY: dict[str, Any] = {
    "iterations": 2,
    "size": "3x3",
    "komi": 0.5,
    "processes": 2,
    "net": {"channels": 4, "blocks": 1},
    "selfplay": {"games": 4, "visits": 8, "quick_visits": 4, "playout_visits": 8, "batch": 2},
    "steps": {"batch": 8, "uses": 2.0},
    "rating": {"every": 0},
}


@pytest.fixture
def network(tmp_path: Path) -> Network:
    torch.manual_seed(1)
    save_net(Net(NetSize(4, 1)), tmp_path / "net.safetensors")
    return Network(tmp_path / "net.safetensors", 0)


def test_actors_get_their_own_answers_of_shared_batches(network: Network) -> None:
    random = np.random.default_rng(1)
    sent = [random.random((size, 18, 4, 3)) < 0.3 for size in (1, 5, 2, 7, 3, 4)]
    server, alone = _Server(), evaluator(load_net(network.path))
    with ThreadPoolExecutor(len(sent)) as actors:
        answers = list(actors.map(lambda planes: server.evaluate(network, planes), sent))
    for planes, (policy, values, seconds) in zip(sent, answers, strict=True):
        expected = alone(planes.astype(np.float32))
        assert policy == pytest.approx(expected[0], abs=1e-5)
        assert values == pytest.approx(expected[1], abs=1e-5)
        assert seconds > 0


def test_the_server_reads_the_network_of_each_iteration(network: Network) -> None:
    server, planes = _Server(), np.ones((1, 18, 3, 3), bool)
    before = server.evaluate(network, planes)[0]
    torch.manual_seed(2)
    save_net(Net(NetSize(4, 1)), network.path)
    assert (server.evaluate(network, planes)[0] == before).all()
    assert (server.evaluate(replace(network, number=1), planes)[0] != before).any()


def test_a_fault_is_that_of_its_batch(network: Network, tmp_path: Path) -> None:
    server, planes = _Server(), np.ones((1, 18, 3, 3), bool)
    (tmp_path / "other").write_bytes(b"")
    with pytest.raises(InputError):
        server.evaluate(Network(tmp_path / "other", 0), planes)
    with pytest.raises(RuntimeError):
        server.evaluate(network, np.ones((1, 17, 3, 3), bool))
    assert server.evaluate(network, planes)[0].shape == (1, 10)


@pytest.mark.full
def test_a_part_played_through_the_server_is_the_same_but_for_rounding(
    network: Network, tmp_path: Path
) -> None:
    settings = SelfPlay(at_once=3, visits=8, quick_visits=4)
    part = Part(network, Game(3, komi=0.5), settings, 3, 7, tmp_path / "alone.npz")
    play_part(part)
    with inference_server() as (address, key):
        shared = replace(network, address=address, key=key)
        evaluate, spent = evaluator_of(shared)
        evaluate(np.zeros((2, 18, 3, 3), np.float32))
        assert len(spent) == 1
        play_part(replace(part, net=shared, path=tmp_path / "shared.npz"))
    with np.load(tmp_path / "alone.npz") as one, np.load(tmp_path / "shared.npz") as two:
        assert (one["planes"] == two["planes"]).all()
        assert one["policy"] == pytest.approx(two["policy"])
        assert (two["costs"][:2] > 0).all()


def kill_one_actor(ended: threading.Event, killed: list[int]) -> None:
    """Kill the first process of self-play that appears."""
    while not ended.wait(0.01) and not killed:
        for child in active_children():
            if child.name.startswith("SpawnProcess") and child.pid is not None:
                os.kill(child.pid, signal.SIGKILL)
                killed.append(child.pid)
                break


@pytest.mark.full
def test_a_training_survives_an_actor_that_is_killed(tmp_path: Path) -> None:
    ended, killed = threading.Event(), list[int]()
    killer = threading.Thread(target=kill_one_actor, args=(ended, killed))
    killer.start()
    found = train(TINY, tmp_path)
    ended.set()
    killer.join()
    assert len(killed) == 1
    assert isinstance(found, Training)
    assert [row.number for row in found.iterations] == [1, 2]
    assert [row.games for row in found.iterations] == [4, 4]
    assert found.iterations[1].inference_s > 0
    assert load_net(tmp_path / "net.safetensors").finite()
    assert not active_children()


@pytest.mark.full
def test_actors_of_ray_share_the_server(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    found = train(TINY, tmp_path, ray="local")
    assert isinstance(found, Training)
    assert found.iterations[1].inference_s > 0
