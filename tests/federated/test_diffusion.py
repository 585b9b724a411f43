"""Dif-MAML: against a closed form, the graph's eigenvalue, and real processes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from holdfast import federated
from holdfast.errors import InputError

RING = np.array(
    [[0.5 if a == b else 0.25 * (abs(a - b) in (1, 4)) for a in range(5)] for b in range(5)]
)


def squared(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return ((output.squeeze(1) - target) ** 2).mean()


def linear() -> nn.Module:
    net = nn.Linear(1, 1, bias=False).double()
    nn.init.constant_(net.weight, 1.0)
    return net


def sines(agent: int) -> list[Any]:
    rng = np.random.default_rng(agent)
    tasks = []
    for _ in range(3):
        x = rng.uniform(-2, 2, (12, 1)).astype(np.float32)
        tasks.append((x, np.sin(x[:, 0] + rng.uniform(0, 1)).astype(np.float32)))
    return tasks


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))


def test_two_agents_by_hand() -> None:
    """Agent k has y = c_k x with x = 1: J = (w - c)^2, inner weight u = w - 2 a (w - c)."""
    tasks = [[(np.ones((2, 1)), np.full(2, c))] for c in (0.0, 4.0)]
    graph = np.array([[0.75, 0.25], [0.25, 0.75]])
    found = federated.dif_maml(
        linear(), tasks, graph, steps=1, inner_rate=0.25, outer_rate=0.5, loss=squared
    )
    # u = w - (w - c) / 2: 0.5 and 2.5; gradient 2 (u - c) (1 - 2 a): 0.5 and -1.5; phi: 0.75 and 1.75.
    assert [each["weight"].item() for each in found.weights] == [1.0, 1.5]
    assert found.loss == [(0.25 + 2.25) / 2]
    assert found.second_eigenvalue == pytest.approx(0.5)
    assert found.disagreement == pytest.approx([0.0, 0.25])


@pytest.mark.parametrize("agents", [3, 5])
def test_disagreement_decays_at_the_second_eigenvalue(agents: int) -> None:
    if agents == 5:
        graph = RING
    else:
        graph = np.array([[0.6, 0.3, 0.1], [0.3, 0.2, 0.5], [0.1, 0.5, 0.4]])
    found = federated.dif_maml(
        network().double(),
        [sines(k) for k in range(agents)],
        graph,
        steps=40,
        outer_rate=0.0,
        spread=1.0,
        loss=squared,
    )
    rates = np.array(found.disagreement[1:]) / found.disagreement[:-1]
    assert rates[-5:] == pytest.approx(found.second_eigenvalue, rel=1e-2)
    assert (rates <= found.second_eigenvalue + 1e-3).all()


def test_agents_learn_together() -> None:
    agents = [sines(k) for k in range(5)]
    settings = {"steps": 120, "outer_rate": 0.05, "inner_rate": 0.05, "loss": squared}
    found = federated.dif_maml(network(), agents, RING, **settings)
    assert np.mean(found.loss[-20:]) < 0.7 * np.mean(found.loss[:20])
    assert found.disagreement[-1] < 0.1


@pytest.mark.full
def test_disagreement_of_processes_decays_at_the_second_eigenvalue() -> None:
    """Each agent knows its own weights and those that its neighbors sent; a cycle of four, by hand.

    Eigenvalues of the cycle with 1/2 on itself and 1/4 on its neighbors: 1, 1/2, 1/2, 0.
    """
    graph = np.array([[np.roll([0.5, 0.25, 0.0, 0.25], k)] for k in range(4)])[:, 0]
    found = federated.dif_maml(
        network().double(),
        [sines(k) for k in range(4)],
        graph,
        steps=12,
        outer_rate=0.0,
        spread=1.0,
        processes=True,
        loss=squared,
    )
    assert found.second_eigenvalue == pytest.approx(0.5)
    rates = np.array(found.disagreement[1:]) / found.disagreement[:-1]
    # After one step nothing is left of the eigenvalue 0: all that agents disagree about halves.
    assert rates[1:] == pytest.approx(np.full(11, 0.5), rel=1e-6)


@pytest.mark.full
def test_processes_give_the_same_bits() -> None:
    agents = [sines(k) for k in range(3)]
    graph = np.array([[0.6, 0.4, 0.0], [0.4, 0.2, 0.4], [0.0, 0.4, 0.6]])
    settings: dict[str, Any] = {"steps": 3, "spread": 0.1, "loss": squared}
    here = federated.dif_maml(network(), agents, graph, **settings)
    apart = federated.dif_maml(network(), agents, graph, processes=True, **settings)
    assert here.disagreement == apart.disagreement
    assert here.loss == apart.loss
    for one, other in zip(here.weights, apart.weights, strict=True):
        assert all(one[name].tobytes() == other[name].tobytes() for name in one)


@pytest.mark.parametrize(
    "graph",
    [
        np.eye(3),  # not connected
        np.array([[0, 1, 0], [1, 0, 0], [0, 0, 1.0]]),  # not connected
        np.array([[0, 1, 0], [0, 0, 1], [1, 0, 0.0]]),  # a cycle: it rotates and never agrees
        np.array([[0.5, 0.5, 0], [0.5, 0.5, 0], [0.5, 0, 0.5]]),  # columns do not add up
        np.array([[1.5, -0.5, 0], [-0.5, 1.5, 0], [0, 0, 1]]),
        np.full((2, 2), 0.5),
        np.full((3, 3), np.nan),
    ],
)
def test_graphs_on_which_agents_never_agree_are_refused(graph: Any) -> None:
    with pytest.raises(InputError) as caught:
        federated.dif_maml(network(), [sines(k) for k in range(3)], graph, loss=squared)
    assert (caught.value.code, caught.value.place) == ("invalid-value", "graph")


def test_frozen_parameters_stay_as_they_are() -> None:
    net = nn.Sequential(nn.Linear(1, 4), nn.Linear(4, 1))
    net[0].weight.requires_grad_(False)
    found = federated.dif_maml(net, [sines(0)], np.ones((1, 1)), steps=2, spread=1.0, loss=squared)
    assert (found.weights[0]["0.weight"] == net[0].weight.detach().numpy()).all()
    assert (found.weights[0]["1.weight"] != net[1].weight.detach().numpy()).all()


class Odd(nn.Module):
    """A frozen weight, a tied one, a buffer, dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(1, 1)
        self.second = nn.Linear(1, 1)
        self.second.weight = self.first.weight
        self.frozen = nn.Linear(1, 1).requires_grad_(False)
        self.register_buffer("scale", torch.ones(()))
        self.drop = nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.drop(self.second(self.frozen(self.first(x)))) * self.scale


def test_weights_load_and_dropout_follows_the_seed() -> None:
    torch.manual_seed(0)
    net, graph = Odd(), np.full((2, 2), 0.5)
    tasks, state = [sines(0), sines(1)], torch.get_rng_state()
    found = [
        federated.dif_maml(net, tasks, graph, steps=3, seed=seed, loss=squared)
        for seed in (0, 0, 1)
    ]
    assert torch.equal(torch.get_rng_state(), state)
    assert found[0].loss == found[1].loss != found[2].loss
    weights = {name: torch.from_numpy(array) for name, array in found[0].weights[0].items()}
    net.load_state_dict(weights)
    assert (
        weights["first.weight"] == weights["second.weight"] != found[2].weights[0]["first.weight"]
    )


def test_layers_that_keep_statistics_are_refused() -> None:
    net = nn.Sequential(nn.Linear(1, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
    with pytest.raises(InputError) as caught:
        federated.dif_maml(net, [sines(0)], np.ones((1, 1)), steps=2, loss=squared)
    assert (caught.value.code, caught.value.place) == ("unsupported", "model")


def test_an_agent_without_tasks_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        federated.dif_maml(network(), [sines(0), []], np.full((2, 2), 0.5), loss=squared)
    assert (caught.value.code, caught.value.place) == ("no-data", "agents[1]")
