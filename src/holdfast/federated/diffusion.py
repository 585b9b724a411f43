"""Meta-learning without a server: Dif-MAML (Kayaalp, Vlaski and Sayed, arXiv 2010.02870).

Agent k adapts with a step through its own inner step, and combines with its neighbors in a graph:

    phi_k = w_k - mu grad J_k(w_k - alpha grad J_k(w_k));    w_k <- sum over l of a_lk phi_l

The inner gradient is on one half of a task's examples, the outer one on the other. The graph is doubly
stochastic and connected, so that what agents disagree about shrinks by its second eigenvalue per step.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from holdfast.config import invalid_value
from holdfast.errors import InputError
from holdfast.fanout import fan_out
from holdfast.federated.datasets import as_tensors
from holdfast.federated.training import Data, FlatModel, Loss
from holdfast.federated.updates import Array, Arrays


@dataclass(frozen=True)
class Diffusion:
    """Agents after their last step."""

    weights: list[Arrays]
    """State of each agent's model, for `load_state_dict`."""
    disagreement: list[float]
    """Root mean squared distance of the agents from their mean, at first and after each step."""
    loss: list[float]
    """Mean over agents of the loss after the inner step, per step."""
    second_eigenvalue: float
    """Of the graph: the factor by which disagreement shrinks per step where agents do not adapt."""


@dataclass(frozen=True)
class _Plan:
    """What every process knows."""

    model: nn.Module
    first: Tensor
    agents: list[list[Data]]
    graph: Array
    steps: int
    inner_rate: float
    outer_rate: float
    spread: float
    seed: int
    loss: Loss


def dif_maml(
    model: nn.Module,
    agents: Sequence[Sequence[Any]],
    graph: Array,
    *,
    steps: int = 100,
    inner_rate: float = 0.01,
    outer_rate: float = 0.01,
    spread: float = 0.0,
    seed: int = 0,
    processes: bool = False,
    loss: Loss = cross_entropy,
) -> Diffusion:
    """Meta-learn by diffusion.

    Args:
        model: first weights of all agents; it is not changed.
        agents: tasks of each agent, each (inputs, targets) of two examples or more.
        graph: [agents, agents] weights a_lk, doubly stochastic.
        steps: number of steps.
        inner_rate: alpha.
        outer_rate: mu.
        spread: standard deviation of what is added to each agent's first weights.
        seed: of tasks, their halves and the spread.
        processes: run each agent in a process of its own, which sends its weights by torch.distributed; the
            result is the same. Model and loss are then of a module: no lambda, nothing inside a function.
        loss: mean loss of a batch.

    Raises:
        InputError: ``invalid-value`` for a graph that is not doubly stochastic or not connected;
            ``no-data`` for a task with fewer than two examples; ``unsupported`` for a model that keeps
            statistics, such as BatchNorm's: no gradient goes through them.
    """
    keeping = [n for n, m in model.named_modules() if getattr(m, "track_running_stats", False)]
    if keeping:
        raise InputError(
            "layers that keep statistics have no gradient through an inner step",
            code="unsupported",
            place="model",
            found=", ".join(keeping),
            remedy="use GroupNorm or LayerNorm, or track_running_stats=False",
        )
    graph = np.asarray(graph, dtype=float)
    eigenvalue = check_graph(graph, len(agents))
    flat = FlatModel(model)
    first = flat.vector.clone()
    tasks = [[as_tensors(task, first, f"{k}") for task in own] for k, own in enumerate(agents)]
    for k, own in enumerate(tasks):
        if min((len(x) for x, _ in own), default=0) < 2:
            problem = "an agent without tasks, or a task with fewer than two examples"
            raise InputError(problem, code="no-data", place=f"agents[{k}]")
    plan = _Plan(model, first, tasks, graph, steps, inner_rate, outer_rate, spread, seed, loss)
    compute = _by_processes if processes and len(agents) > 1 else _here
    with torch.random.fork_rng(devices=[]):
        vectors, disagreement, losses = compute(plan)
    weights = []
    for vector in vectors:
        flat.vector.copy_(vector)
        weights.append(flat.weights())
    return Diffusion(weights, disagreement, losses, eigenvalue)


def check_graph(graph: Array, agents: int) -> float:
    """The second largest modulus of the eigenvalues of a graph.

    Raises:
        InputError: ``invalid-value``.
    """
    square = graph.shape == (agents, agents) and bool((graph >= 0).all())
    if not square or not np.allclose([graph.sum(axis=0), graph.sum(axis=1)], 1):
        problem = "the graph is not doubly stochastic"
        expected = f"[{agents}, {agents}], 0 or more, rows and columns that add up to 1"
        raise invalid_value(problem, None, "graph", f"shape {graph.shape}", expected)
    # The largest is 1; the 0 stands for the second of a single agent.
    second = float(np.sort([0.0, *np.abs(np.linalg.eigvals(graph))])[-2])
    if second > 1 - 1e-9:
        problem, found = "the graph is not connected", f"second eigenvalue {second:.3g}"
        expected = "one component, with weights of agents on themselves"
        raise invalid_value(problem, None, "graph", found, expected)
    return second


def _named(model: nn.Module, vector: Tensor) -> dict[str, Tensor]:
    """Trained parameters of a model by name, as parts of a vector."""
    named = {name: each for name, each in model.named_parameters() if each.requires_grad}
    parts = vector.split([each.numel() for each in named.values()])
    return {n: part.view(named[n].shape) for n, part in zip(named, parts, strict=True)}


def _start(plan: _Plan) -> Tensor:
    """First weights of all agents, [agents, parameters]."""
    rng = np.random.default_rng([plan.seed, 0])
    noise = plan.spread * rng.normal(size=(len(plan.agents), len(plan.first)))
    return plan.first + torch.from_numpy(noise).to(plan.first)


def _adapt(plan: _Plan, agent: int, step: int, vector: Tensor) -> tuple[Tensor, float]:
    """An agent's weights after its step, and the loss after the inner one."""
    from torch.func import functional_call, grad, grad_and_value

    # 1. One task, its examples in two halves.
    rng = np.random.default_rng([plan.seed, 1, agent, step])
    x, y = plan.agents[agent][rng.integers(len(plan.agents[agent]))]
    inner, outer = np.array_split(rng.permutation(len(x)), 2)
    torch.default_generator.manual_seed(int(rng.integers(2**62)))  # of the model's dropout

    def loss_on(vector: Tensor, places: Array) -> Tensor:
        outputs = functional_call(plan.model, _named(plan.model, vector), (x[places],))
        return plan.loss(outputs, y[places])

    # 2. The gradient through the inner step.
    def after_inner_step(vector: Tensor) -> Tensor:
        return loss_on(vector - plan.inner_rate * grad(loss_on)(vector, inner), outer)

    gradient, value = grad_and_value(after_inner_step)(vector)
    return vector - plan.outer_rate * gradient, float(value)


def _here(plan: _Plan) -> tuple[Tensor, list[float], list[float]]:
    """All agents in this process."""
    vectors, combine = _start(plan), _combination(plan)
    disagreement, losses = [_spread(vectors)], []
    for step in range(plan.steps):
        adapted = [_adapt(plan, k, step, vector) for k, vector in enumerate(vectors)]
        phi = torch.stack([each for each, _ in adapted])
        vectors = torch.stack([column @ phi for column in combine])
        disagreement.append(_spread(vectors))
        losses.append(float(np.mean([value for _, value in adapted])))
    return vectors, disagreement, losses


def _by_processes(plan: _Plan) -> tuple[Tensor, list[float], list[float]]:
    """Each agent in a process of its own."""
    agents = len(plan.agents)
    with tempfile.TemporaryDirectory() as folder:
        tasks = [(rank, plan, f"{folder}/store") for rank in range(agents)]
        found = dict(fan_out(tasks, _process, processes=agents))
    history = torch.stack([torch.from_numpy(found[k][0]) for k in range(agents)])
    losses = np.mean([found[k][1] for k in range(agents)], axis=0)
    disagreement = [_spread(vectors) for vectors in history.swapaxes(0, 1)]
    return history[:, -1], disagreement, losses.tolist()


def _process(task: tuple[int, _Plan, str]) -> tuple[Array, list[float]]:
    """One agent: adapt, send to the neighbors and receive from them, combine.

    Returns:
        Its weights at first and after each step, [steps + 1, n], and the loss of each step.
    """
    from torch import distributed

    rank, plan, path = task
    agents = len(plan.agents)
    torch.set_num_threads(1)
    store = distributed.FileStore(path, agents)
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=agents)
    vectors, column, losses = [_start(plan)[rank]], _combination(plan)[rank], []
    received = torch.zeros(agents, len(vectors[0]), dtype=vectors[0].dtype)
    others = [k for k in range(agents) if k != rank]
    for step in range(plan.steps):
        received[rank], value = _adapt(plan, rank, step, vectors[-1])
        sent = [k for k in others if plan.graph[rank, k]]
        transfers = [distributed.P2POp(distributed.isend, received[rank], k) for k in sent]
        heard = [k for k in others if plan.graph[k, rank]]
        transfers += [distributed.P2POp(distributed.irecv, received[k], k) for k in heard]
        for transfer in distributed.batch_isend_irecv(transfers):
            transfer.wait()
        vectors.append(column @ received)
        losses.append(value)
    distributed.destroy_process_group()
    return torch.stack(vectors).numpy(), losses


def _combination(plan: _Plan) -> Tensor:
    """Row k has the weights a_lk with which agent k combines."""
    return torch.from_numpy(plan.graph.T.copy()).to(plan.first)


def _spread(vectors: Tensor) -> float:
    return float(torch.linalg.vector_norm(vectors - vectors.mean(dim=0)) / len(vectors) ** 0.5)
