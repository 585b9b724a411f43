"""The engine of rounds: the switches by hand, failing clients, resume, other people's models."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from holdfast import federated
from holdfast.errors import InputError
from holdfast.federated.datasets import as_tensors, split_examples
from holdfast.federated.deepsa import reliable, train_classifier
from holdfast.federated.training import FlatModel, Task, train_client
from holdfast.identity import fingerprint

Settings = federated.Settings


def digits(n: int, seed: int = 0) -> tuple[Any, Any]:
    """Separable data of three classes, [n, 6]."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    x = rng.normal(size=(n, 6)) + 3 * np.eye(3, 6)[y]
    return x.astype(np.float32), y


def model(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))


CLIENTS = [digits(30, seed) for seed in range(8)]
TEST = {"phone": digits(200, 100), "car": digits(200, 101)}


def squared(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return ((output.squeeze(1) - target) ** 2).mean()


class Weight(nn.Module):
    """f(x) = w x, with the loss (w x - y)^2."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(1, 1, dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.w.T


def test_both_switches_by_hand() -> None:
    """Three clients with one example (x = 1, y) or two; w = 0 at first, rate 1/4: w <- w - (w - y) / 2."""
    clients = {
        "a": (torch.ones(1, 1, dtype=torch.float64), torch.tensor([4.0], dtype=torch.float64)),
        "b": (torch.ones(1, 1, dtype=torch.float64), torch.tensor([2.0], dtype=torch.float64)),
        "c": (torch.ones(2, 1, dtype=torch.float64), torch.tensor([2.0, 2.0], dtype=torch.float64)),
    }
    settings = Settings(rounds=2, per_round=3, batch=1, learning_rate=0.25)
    result = federated.run(
        Weight(), clients, rule="heteroswitch", settings=settings, loss=squared, switch="averaging"
    )
    # Round 1, no average yet, no switch. a: loss 16, w = 2. b: 4, w = 1. c: losses 4 and 1, w = 1, 1.5.
    # w = (2 + 1 + 2 * 1.5) / 4 = 1.5; L = (16 + 4 + 2 * 2.5) / 4 = 6.25 = L_EMA.
    first, second = result.history
    assert (first.loss, first.averaging) == (6.25, 0.0)
    # Round 2. L_init: a 6.25, not below; b 0.25, c 0.25: switch 1. L_train: b 0.25, c (0.25 + 0.0625) / 2.
    # Both stay below: switch 2. a: 2.75. b: 1.75. c: mean of 1.75 and 1.875 = 1.8125.
    # w = (2.75 + 1.75 + 2 * 1.8125) / 4 = 2.03125.
    assert second.averaging == pytest.approx(2 / 3)
    assert result.weights["w"].item() == 2.03125
    assert second.loss == (6.25 + 0.25 + 2 * 0.15625) / 4


def test_the_second_switch_needs_the_training_loss_too() -> None:
    # The global model's loss is 1 < 1.5: switch 1 is on. Training at rate 1 diverges: switch 2 stays off.
    x, y = torch.tensor([[1.0], [3.0]]), torch.tensor([1.0, 1.0])
    data = x.double(), y.double()
    flat = FlatModel(Weight())
    settings = Settings(batch=1, learning_rate=1.0, epochs=2)
    local = {"switch": "averaging", "gain": 0.0, "gamma": 0.0}
    task = Task(settings, (0,), local, loss_ema=1.5, loss=squared)
    update = train_client(flat, data, task)
    assert update.metrics["loss_before"] == 1.0
    assert update.metrics["loss"] > 1.5
    assert update.metrics["averaging"] == 0.0
    assert update.weights["w"].item() == flat.vector.item()


def test_swad_is_the_mean_of_the_weights_after_every_batch() -> None:
    x, y = torch.ones(7, 1, dtype=torch.float64), torch.arange(7, dtype=torch.float64)
    flat, seen = FlatModel(Weight()), []

    def logged(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        seen.append(flat.vector.item())  # before this batch's step
        return squared(output, target)

    local = {"switch": "averaging", "gain": 0.0, "gamma": 0.0}
    task = Task(Settings(batch=2, epochs=2), (1,), local, loss_ema=1e9, loss=logged)
    update = train_client(flat, (x, y), task)
    middle = seen[2:]  # the first evaluates, the second starts
    flat.reset()
    last = train_client(flat, (x, y), replace(task, local={**local, "switch": "never"}))
    after = [*middle, last.weights["w"].item()]
    assert len(after) == 2 * 3  # 2, 2 and 3: one left over joins the last
    assert update.weights["w"].item() == pytest.approx(np.mean(after), rel=1e-12)


def test_the_transform_needs_color_images() -> None:
    with pytest.raises(InputError) as caught:
        federated.run(model(), CLIENTS, rule="heteroswitch", switch="always")
    assert (caught.value.code, caught.value.place) == ("unsupported", "rule.switch")


def test_always_and_never() -> None:
    rng = np.random.default_rng(0)
    images = [(rng.random((12, 3, 4, 4), np.float32), rng.integers(0, 2, 12)) for _ in range(3)]
    net = nn.Sequential(nn.Flatten(), nn.Linear(48, 2))
    settings = Settings(rounds=3)
    runs = {
        switch: federated.run(net, images, rule="heteroswitch", settings=settings, switch=switch)
        for switch in ("always", "never", "transform")
    }
    plain = federated.run(net, images, settings=settings)
    assert all(row.transform == row.averaging == 1 for row in runs["always"].history)
    assert all(row.averaging == 0 for row in runs["transform"].history)
    for name, array in plain.weights.items():
        assert array.tobytes() == runs["never"].weights[name].tobytes()
        assert array.tobytes() != runs["always"].weights[name].tobytes()


@pytest.mark.parametrize(
    ("rule", "parameters"),
    [
        ("fedavg", {}),
        ("fedprox", {"mu": 0.1}),
        ("q-fedavg", {}),
        ("scaffold", {}),
        ("fedadam", {"server_rate": 0.1}),
        ("heteroswitch", {"switch": "averaging"}),
        ("median", {"f": 2}),
        ("trimmed-mean", {"f": 2}),
        ("krum", {"f": 2}),
        ("multi-krum", {"f": 2}),
        ("bulyan", {"f": 1}),
    ],
)
def test_every_rule_learns(rule: str, parameters: dict[str, Any]) -> None:
    result = federated.run(
        model(), CLIENTS, test=TEST, rule=rule, settings=Settings(rounds=12), **parameters
    )
    assert result.mean_accuracy is not None
    assert result.mean_accuracy > 0.9
    assert result.to_dict()["bytes_down"] == 12 * 8 * (6 * 8 + 8 + 8 * 3 + 3) * 4 * (
        2 if rule == "scaffold" else 1
    )


def test_scaffold_by_hand() -> None:
    """One step on each of two clients: c_k = gradient; the next round adds c - c_k to it."""
    x = torch.ones(1, 1, dtype=torch.float64)
    clients = [(x, torch.tensor([y], dtype=torch.float64)) for y in (1.0, 3.0)]
    settings = Settings(rounds=2, learning_rate=0.25)
    result = federated.run(Weight(), clients, rule="scaffold", settings=settings, loss=squared)
    # Round 1: gradients -2 and -6, w = mean(0.5, 1.5) = 1; c = -4. Round 2: gradients 0 and -4, less c_k
    # plus c: -2 and -2; w = 1.5.
    assert result.weights["w"].item() == 1.5


@pytest.mark.parametrize("per_round", [2, 3])
def test_scaffold_over_many_rounds_follows_the_paper(per_round: int) -> None:
    """Algorithm 1 of 1910.06378 in NumPy, option II, on the losses (w x_k - y_k)^2 of three clients."""
    xs, ys, rate, steps, rounds = [1.0, 0.5, 2.0], [1.0, 3.0, -2.0], 0.1, 3, 6
    clients = [
        (torch.full((1, 1), x, dtype=torch.float64), torch.tensor([y], dtype=torch.float64))
        for x, y in zip(xs, ys, strict=True)
    ]
    settings = Settings(rounds=rounds, per_round=per_round, epochs=steps, learning_rate=rate)
    asked: list[int] = []

    def train(module: nn.Module, data: Any, task: Task) -> Any:
        asked.append(task.seed[-1])
        flat.load({name: each.numpy() for name, each in module.state_dict().items()})
        return train_client(flat, data, task)

    flat = FlatModel(Weight())
    result = federated.run(
        Weight(), clients, rule="scaffold", settings=settings, loss=squared, train=train
    )
    w, c, own = 0.0, 0.0, [0.0] * 3
    for number in range(rounds):
        moved, changed = [], []
        for k in asked[number * per_round :][:per_round]:
            y = w
            for _ in range(steps):
                y -= rate * (2 * xs[k] * (y * xs[k] - ys[k]) - own[k] + c)
            new = own[k] - c + (w - y) / (steps * rate)
            moved.append(y - w)
            changed.append(new - own[k])
            own[k] = new
        w, c = w + np.mean(moved), c + sum(changed) / 3
    assert result.weights["w"].item() == pytest.approx(w, rel=1e-12)


def test_liars_break_the_mean_and_not_the_median() -> None:
    settings = Settings(rounds=10, faults={"flip": 0.2, "huge": 0.1, "nan": 0.1, "drop": 0.1})
    results = {
        rule: federated.run(model(), CLIENTS, test=TEST, rule=rule, settings=settings, **given)
        for rule, given in {"fedavg": {}, "median": {"f": 2}}.items()
    }
    assert results["median"].mean_accuracy > 0.9 > results["fedavg"].mean_accuracy
    codes = {row["code"] for row in results["median"].failures}
    assert codes == {"no-answer", "not-finite"}


def test_deepsa_learns_which_updates_are_reliable() -> None:
    settings = Settings(rounds=8, faults={"flip": 0.3})
    deepsa = federated.run(
        model(), CLIENTS, test=TEST, rule="deepsa", settings=settings, proxy=digits(100, 50)
    )
    mean = federated.run(model(), CLIENTS, test=TEST, settings=settings)
    assert deepsa.mean_accuracy is not None
    assert mean.mean_accuracy is not None
    assert deepsa.mean_accuracy > mean.mean_accuracy + 0.1


def test_deepsa_takes_no_step_that_is_far_out_of_its_training_for_reliable() -> None:
    """Its features are not bounded: a step a million times too long, or of 1e30, is left out."""
    settings = Settings(rounds=2, per_round=8, faults={"huge": 0.2})
    proxy = digits(100, 50)
    result = federated.run(model(), CLIENTS, rule="deepsa", settings=settings, proxy=proxy)
    assert max(abs(array).max() for array in result.weights.values()) < 10
    net = FlatModel(model())
    start, honest = net.weights(), []
    server = as_tensors(proxy, net.vector, "proxy")
    classifier = train_classifier(net, server, Task(settings, (0,)))
    net.load(start)
    for k, data in enumerate(CLIENTS):
        net.reset()
        honest.append(train_client(net, as_tensors(data, net.vector, "a"), Task(settings, (1, k))))
    for size in (1e6, 1e30, 3e38):
        far = {name: np.full_like(array, size) for name, array in start.items()}
        given = [*honest, federated.Update(far, 1)]
        assert not reliable(start, given, classifier)[-1]


def test_deepsa_needs_data_of_the_server() -> None:
    for proxy, code in ((None, "missing-key"), (digits(19), "no-data")):
        with pytest.raises(InputError) as caught:
            federated.run(model(), CLIENTS, rule="deepsa", proxy=proxy)
        assert (caught.value.code, caught.value.place) == (code, "proxy")


def test_clients_that_raise_or_have_no_data_are_named() -> None:
    def train(module: nn.Module, data: Any, task: federated.Task) -> federated.Update:
        if len(data[0]) == 29:
            raise RuntimeError("battery empty")
        state = {name: tensor.numpy() for name, tensor in module.state_dict().items()}
        return federated.Update(state, len(data[0]))

    clients = {"good": CLIENTS[0], "flat": digits(29), "empty": digits(0)}
    result = federated.run(model(), clients, settings=Settings(rounds=1), train=train)
    assert [(row["client"], row["code"]) for row in result.failures] == [
        ("flat", "error"),
        ("empty", "no-examples"),
    ]
    assert "battery empty" in result.failures[0]["reason"]


def test_training_that_returns_something_else_is_named() -> None:
    def train(module: nn.Module, data: Any, task: Task) -> Any:
        return train_client(FlatModel(module), data, task) if len(data[0]) == 30 else {"w": 1}

    clients = {"a": CLIENTS[0], "eve": digits(20)}
    result = federated.run(model(), clients, settings=Settings(rounds=1), train=train)
    assert [(row["client"], row["code"]) for row in result.failures] == [("eve", "error")]


def test_outputs_that_are_not_finite_have_no_accuracy() -> None:
    x, y = digits(40)
    test = {"phone": (x, y), "car": (np.where(y[:, None] == 0, np.nan, x), y), "tv": (x, y)}
    result = federated.run(model(), CLIENTS, test=test, settings=Settings(rounds=1))
    assert result.worst_device == "car"
    assert np.isfinite(result.accuracy["phone"])
    assert np.isnan(result.accuracy["car"])
    assert [each.doubt for each in result.unknowns()] == [True]
    assert [section.id for section in result.sections()] == ["failures"]


@pytest.mark.parametrize(
    ("outputs", "targets"),
    [
        (2, TEST["car"][1][:, None]),  # [n, 1]: all would be compared with all
        (1, TEST["car"][1]),
        (3, np.eye(3, dtype=np.float32)[TEST["car"][1]]),
        (3, TEST["car"][1].astype(np.float32)),
        (3, np.where(np.arange(200) % 2, TEST["car"][1], -100)),  # what cross-entropy ignores
    ],
)
def test_targets_that_have_no_accuracy_are_refused(outputs: int, targets: Any) -> None:
    net = nn.Linear(6, max(outputs, 3) if outputs > 1 else 1)
    test, settings = (TEST["car"][0], targets), Settings(rounds=1)
    loss = (lambda out, y: out.square().mean()) if outputs == 1 else nn.functional.cross_entropy
    with pytest.raises(InputError) as caught:
        federated.run(net, CLIENTS, test=test, settings=settings, loss=loss)
    assert (caught.value.code, caught.value.place) == ("invalid-value", "test")
    own = federated.run(
        net, CLIENTS, test=test, settings=settings, loss=loss, metric=lambda out, y: out.mean()
    )
    assert own.mean_accuracy is not None


@pytest.mark.parametrize("x", [np.ones((4, 6), np.uint8), np.ones((4, 5), np.float32)])
def test_test_data_that_the_model_cannot_take_are_an_error(x: Any) -> None:
    test = {"phone": TEST["phone"], "car": (x, np.zeros(4, int))}
    with pytest.raises(InputError) as caught:
        federated.run(model(), CLIENTS, test=test, settings=Settings(rounds=1))
    assert (caught.value.code, caught.value.place) == ("invalid-value", "test data of car")


def test_a_ledger_without_a_folder_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        federated.run(model(), CLIENTS, settings=Settings(rounds=1), ledger=True)
    assert (caught.value.code, caught.value.place) == ("invalid-value", "folder")


def test_the_json_of_a_run_has_the_keys_of_the_contract() -> None:
    rng = np.random.default_rng(0)
    images = [(rng.random((12, 3, 4, 4), np.float32), rng.integers(0, 2, 12)) for _ in range(3)]
    net = nn.Sequential(nn.Flatten(), nn.Linear(48, 2))
    settings = Settings(rounds=2, faults={"drop": 0.3})
    found = federated.run(net, images, rule="heteroswitch", settings=settings, test=images[0])
    data = json.loads(json.dumps(found.to_dict()))
    assert data["rounds"] == 2
    assert data["mean_accuracy"] == data["worst_device"]["accuracy"] == data["accuracy"]["all"]
    assert data["worst_device"]["device"] == "all"
    (table,) = found.sections()[0].tables
    assert list(table.columns) == ["device", "accuracy"]
    assert data["variance_over_devices"] == 0
    assert data["bytes_down"] == 2 * 3 * 98 * 4
    assert data["bytes_up"] == (6 - len(data["failed_clients"])) * 98 * 4
    assert {"round", "client", "code", "reason"} == data["failed_clients"][0].keys()
    assert [row["round"] for row in data["switch_rates"]] == [1, 2]


def test_evaluation_of_some_rounds() -> None:
    settings = Settings(rounds=5, evaluate_every=2)
    result = federated.run(model(), CLIENTS, test=TEST, settings=settings)
    tested = [row.number for row in result.history if row.accuracy is not None]
    assert tested == [2, 4, 5]
    every = federated.run(model(), CLIENTS, test=TEST, settings=replace(settings, evaluate_every=1))
    assert result.accuracy == every.accuracy


@pytest.mark.parametrize(
    "setting",
    [
        {"seed": -1},
        {"seed": 2**64},
        {"largest_norm": float("nan")},
        {"rounds": 2.5},
        {"evaluate_every": 0},
        {"learning_rate": float("inf")},
    ],
)
def test_settings_outside_their_domain(setting: dict[str, Any]) -> None:
    with pytest.raises(InputError) as caught:
        federated.run(model(), CLIENTS, settings=Settings(**setting))
    assert (caught.value.code, caught.value.place) == ("invalid-value", next(iter(setting)))


def test_rounds_without_enough_updates_change_nothing_and_are_reported() -> None:
    settings = Settings(rounds=6, per_round=3, faults={"drop": 0.25}, seed=1)
    result = federated.run(model(), CLIENTS, rule="median", settings=settings, f=1)
    skipped = [row.number for row in result.history if row.skipped]
    assert 0 < len(skipped) < 6
    assert result.to_dict()["skipped_rounds"] == skipped
    assert result.unknowns()[0].doubt
    with pytest.raises(InputError) as caught:
        federated.run(model(), CLIENTS, settings=Settings(rounds=2, faults={"nan": 1.0}))
    assert caught.value.code == "no-data"
    assert "not-finite" in str(caught.value.remedy)


def test_a_rule_that_a_round_cannot_satisfy_is_refused_before_training() -> None:
    with pytest.raises(InputError) as caught:
        federated.run(model(), CLIENTS, rule="krum", settings=Settings(per_round=6), f=2)
    assert caught.value.code == "too-few-updates"


def test_devices_without_test_data_are_named() -> None:
    tests = {"phone": TEST["phone"], "watch": digits(0)}
    result = federated.run(model(), CLIENTS, test=tests, settings=Settings(rounds=1))
    assert list(result.accuracy) == ["phone"]
    assert "watch" in result.unknowns()[0].text


def test_the_callers_model_and_random_numbers_stay_as_they_were() -> None:
    net, before = model(), torch.get_rng_state()
    weights = [each.detach().clone() for each in net.parameters()]
    federated.run(net, CLIENTS, settings=Settings(rounds=1))
    assert torch.equal(torch.get_rng_state(), before)
    for now, then in zip(net.parameters(), weights, strict=True):
        assert torch.equal(now, then)


class Odd(nn.Module):
    """BatchNorm, a tied weight, a frozen one, dropout, token inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 6)
        self.norm = nn.BatchNorm1d(6)
        self.drop = nn.Dropout(0.2)
        self.head = nn.Linear(6, 5, bias=False)
        self.head.weight = self.embed.weight
        self.scale = nn.Parameter(torch.ones(1), requires_grad=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.drop(self.norm(self.embed(ids).mean(dim=1)))) * self.scale


class Pairs(torch.utils.data.Dataset[Any]):
    """A map-style data set."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, place: int) -> tuple[torch.Tensor, int]:
        if place >= self.n:
            raise IndexError(place)
        return torch.tensor([place % 5, place % 5]), place % 5


@pytest.mark.parametrize("rule", ["fedavg", "fedadam", "scaffold", "multi-krum"])
def test_other_peoples_modules_and_data(rule: str) -> None:
    torch.manual_seed(0)
    net = Odd()
    given = {"f": 1} if rule == "multi-krum" else {}
    settings = Settings(rounds=12, batch=5)
    clients = [Pairs(21), Pairs(26), Pairs(31), Pairs(36), Pairs(41)]
    result = federated.run(net, clients, test=Pairs(50), rule=rule, settings=settings, **given)
    net.load_state_dict({name: torch.from_numpy(array) for name, array in result.weights.items()})
    assert net.head.weight is net.embed.weight
    assert result.weights["scale"].tolist() == [1.0]
    assert result.weights["norm.num_batches_tracked"] > 0
    if rule != "fedadam":
        assert result.mean_accuracy == 1.0


PLAIN_LISTS = [
    ([[0.5, 1.0], [2.0, 3.0], [1.0, 1.0]], [0, 1, 0]),
    [[[0.5, 1.0], [2.0, 3.0]], [0, 1]],  # as JSON has it
    [[[0.5, 1.0], 0], [[2.0, 3.0], 1]],  # two examples
    [([0.5, 1.0], 0), ([2.0, 3.0], 1)],
    ([torch.tensor([0.5, 1.0]), torch.tensor([2.0, 3.0])], [0, 1]),
    (np.array([[0.5, 1.0], [2.0, 3.0]], ">f8"), (0, 1)),
    (np.array([[2.0, 3.0], [0.5, 1.0]])[::-1], np.array([1, 0], ">i2")[::-1]),
    (np.frombuffer(np.array([0.5, 1.0, 2.0, 3.0]).tobytes()).reshape(2, 2), [0, 1]),
]


@pytest.mark.parametrize("data", PLAIN_LISTS)
def test_data_in_other_forms_is_the_same_data(data: Any) -> None:
    x, y = as_tensors(data, torch.zeros(1), "a")
    assert (x.dtype, y.dtype) == (torch.float32, torch.int64)
    assert x[:2].tolist() == [[0.5, 1.0], [2.0, 3.0]]
    assert y[:2].tolist() == [0, 1]


@pytest.mark.parametrize(
    "data", [([[1.0, 2.0], [3.0]], [0, 1]), (["a", "b"], [0, 1]), 5, ([[1.0]], 3), [(1.0,), (2.0,)]]
)
def test_data_that_is_not_numbers_is_refused(data: Any) -> None:
    with pytest.raises(InputError) as caught:
        federated.run(model(), {"eve": data})
    assert (caught.value.code, caught.value.place) == ("invalid-value", "client eve")


def test_names_of_clients_differ_as_text() -> None:
    with pytest.raises(InputError) as caught:
        federated.run(model(), {1: CLIENTS[0], "1": CLIENTS[1]})
    assert (caught.value.code, caught.value.place) == ("invalid-value", "clients")


class Scaled:
    """A loss with a setting."""

    def __init__(self, scale: float) -> None:
        self.scale = scale

    def __call__(self, outputs: Any, targets: Any) -> Any:
        return self.scale * nn.functional.cross_entropy(outputs, targets)

    def loss(self, outputs: Any, targets: Any) -> Any:
        return self(outputs, targets)


SCALE = 1.0


def scaled(outputs: Any, targets: Any, scale: float = 1.0) -> Any:
    return sum(SCALE * each for each in [scale * nn.functional.cross_entropy(outputs, targets)])


def closed_over(scale: Any) -> Any:
    return lambda outputs, targets: scaled(outputs, targets, float(scale))


def by_default(scale: float) -> Any:
    def loss(outputs: Any, targets: Any, *, scale: float = scale) -> Any:
        return scaled(outputs, targets, scale)

    return loss


class Head(nn.Linear):
    """A layer with a setting that is neither a parameter nor shown."""

    def __init__(self, scale: float) -> None:
        super().__init__(6, 3)
        nn.init.zeros_(self.weight)
        nn.init.zeros_(self.bias)
        self.factors = {"output": scale}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.factors["output"] * super().forward(x)


@pytest.mark.parametrize(
    "make",
    [
        lambda s: functools.partial(scaled, scale=s),
        closed_over,
        lambda s: closed_over(np.array(s)),
        lambda s: closed_over(torch.tensor(s)),
        by_default,
        Scaled,
        lambda s: Scaled(s).loss,
        lambda s: functools.partial(functools.partial(Scaled.loss, Scaled(s))),
        lambda s: nn.CrossEntropyLoss(label_smoothing=s / 4),
        lambda s: nn.CrossEntropyLoss(weight=torch.tensor([1.0, s, 1.0])),
    ],
)
def test_a_function_with_another_setting_is_another_function(make: Any, tmp_path: Path) -> None:
    settings = Settings(rounds=1)
    federated.run(model(), CLIENTS, settings=settings, folder=tmp_path, loss=make(1.0))
    federated.run(model(), CLIENTS, settings=settings, folder=tmp_path, loss=make(1.0), resume=True)
    with pytest.raises(InputError) as caught:
        federated.run(model(), CLIENTS, folder=tmp_path, loss=make(2.0), resume=True)
    assert (caught.value.code, caught.value.found) == ("conflict", "other loss")


def test_what_functions_and_modules_refer_to(monkeypatch: pytest.MonkeyPatch) -> None:
    assert fingerprint(Head(1.0)) == fingerprint(Head(1.0)) != fingerprint(Head(2.0))
    before = fingerprint(scaled)
    monkeypatch.setitem(globals(), "SCALE", 2.0)
    assert fingerprint(scaled) != before
    # What a class, and a class above it, define.
    classes = [
        lambda s: type("A", (nn.Module,), {"scale": s}),
        lambda s: type("B", (type("A", (nn.Module,), {"forward": lambda self, x: x * s}),), {}),
        lambda s: type("A", (), {"of": staticmethod(functools.partial(scaled, scale=s))}),
        lambda s: type("A", (), {"of": classmethod(closed_over(s))}),
        lambda s: type("A", (), {"of": property(by_default(s))}),
    ]
    for make in classes:
        assert fingerprint(make(1.0)()) == fingerprint(make(1.0)()) != fingerprint(make(2.0)())
    for dtype in (torch.bfloat16, torch.float64, torch.bool, torch.complex64):
        zeros = torch.zeros(2, 3, dtype=dtype)
        assert fingerprint(zeros) == fingerprint(torch.zeros(3, 2, dtype=dtype).T)
        assert len({fingerprint(each) for each in (zeros, zeros + 1, zeros.T, zeros[0, 0])}) == 4
    for one, other in (
        (torch.zeros(0, 3), torch.zeros(0, 4)),
        (torch.zeros(1).expand(1, 5), torch.ones(1).expand(1, 5)),
        (torch.zeros(3)[:0], torch.zeros(3)[1:2]),
        (torch.from_numpy(np.zeros((0, 1))), torch.as_strided(torch.ones(3), (1,), (0,))),
    ):
        assert fingerprint(one) == fingerprint(one.clone()) != fingerprint(other)
    # A cycle, and what cannot be copied.
    cycle: list[Any] = [1, threading.Lock()]
    cycle.append(cycle)
    assert len(fingerprint(lambda: cycle)) == 16


IDENTITY = """
import functools, torch
from torch import nn
from holdfast.identity import fingerprint
names = {"weight", "bias", "scale"}
def loss(out, y, options, kinds=frozenset({"a", "b", "c"})):
    return options[0] * nn.functional.mse_loss(out, y) if len(names) in {"x", "y", 3} else 0
print(fingerprint([functools.partial(loss, options=(0.5, names)), nn.Linear(2, 2).forward.__func__]))
"""


@pytest.mark.full
def test_a_function_is_the_same_in_every_process() -> None:
    seen = {
        subprocess.run(
            [sys.executable, "-c", IDENTITY],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(seen) == 1


def test_a_changed_byte_of_the_state_is_found(tmp_path: Path) -> None:
    settings = Settings(rounds=2)
    federated.run(model(), CLIENTS, settings=settings, folder=tmp_path, rule="scaffold")
    path = tmp_path / "state.safetensors"
    whole = path.read_bytes()
    loss = whole.index(b"loss") + 12
    for place in (len(whole) - 1, len(whole) // 2, loss):
        damaged = bytearray(whole)
        damaged[place] ^= 1
        path.write_bytes(damaged)
        with pytest.raises(InputError) as caught:
            federated.run(
                model(), CLIENTS, settings=settings, folder=tmp_path, rule="scaffold", resume=True
            )
        assert (caught.value.code, caught.value.path) == ("damaged", str(path))


@pytest.mark.parametrize("rule", ["fedavg", "krum"])
def test_other_peoples_modules_resume(rule: str, tmp_path: Path) -> None:
    """Counters of BatchNorm have no dimension."""
    torch.manual_seed(0)
    net, clients = Odd(), [Pairs(21 + n) for n in range(5)]
    longer = federated.run(net, clients, rule=rule, settings=Settings(rounds=3))
    federated.run(net, clients, rule=rule, settings=Settings(rounds=2), folder=tmp_path)
    resumed = federated.run(
        net, clients, rule=rule, settings=Settings(rounds=3), folder=tmp_path, resume=True
    )
    for name, array in longer.weights.items():
        assert resumed.weights[name].shape == array.shape
        assert resumed.weights[name].tobytes() == array.tobytes()


@pytest.mark.parametrize("ledger", [True, False])
def test_the_ledger_of_a_run_is_whole(ledger: bool, tmp_path: Path) -> None:
    federated.run(model(), CLIENTS, settings=Settings(rounds=1), folder=tmp_path, ledger=ledger)
    with pytest.raises(InputError) as caught:
        federated.run(model(), CLIENTS, folder=tmp_path, ledger=not ledger, resume=True)
    assert (caught.value.code, caught.value.found) == ("conflict", "other ledger")


def test_statistics_have_no_part_in_the_distance_of_a_run() -> None:
    """A client whose inputs are large has another running_var, and the same weights as all others."""
    net = nn.Sequential(nn.BatchNorm1d(6, affine=False), nn.Linear(6, 3))
    far = [(x * 1e3, y) for x, y in CLIENTS[:1]]
    settings = Settings(rounds=1, largest_norm=50.0)
    result = federated.run(net, [*far, *CLIENTS[1:]], settings=settings)
    assert not result.failures
    assert result.weights["0.running_var"].max() > 50


def test_an_aggregate_that_is_too_large_changes_nothing() -> None:
    settings = Settings(rounds=2, per_round=8)
    with pytest.raises(InputError) as caught:
        federated.run(model(), CLIENTS, settings=settings, rule="scaffold", server_rate=1e299)
    assert caught.value.code == "no-data"


def test_control_variates_of_another_size_are_named() -> None:
    def train(module: nn.Module, data: Any, task: Task) -> Any:
        update = train_client(FlatModel(module), data, task)
        return update if len(data[0]) == 30 else replace(update, control=np.zeros(3))

    clients = {"a": CLIENTS[0], "eve": digits(20), "b": CLIENTS[1]}
    settings = Settings(rounds=2)
    result = federated.run(model(), clients, rule="scaffold", settings=settings, train=train)
    assert [(row["client"], row["code"]) for row in result.failures] == 2 * [("eve", "shape")]


def test_updates_of_tensors_are_named() -> None:
    def train(module: nn.Module, data: Any, task: Task) -> Any:
        if len(data[0]) == 30:
            return train_client(FlatModel(module), data, task)
        return federated.Update(module.state_dict(), 5)  # type: ignore[arg-type]

    clients = {"a": CLIENTS[0], "eve": digits(20)}
    result = federated.run(model(), clients, settings=Settings(rounds=1), train=train)
    assert [(row["client"], row["code"]) for row in result.failures] == [("eve", "dtype")]


def test_state_of_other_settings_is_not_resumed(tmp_path: Path) -> None:
    settings = Settings(rounds=2)
    federated.run(model(), CLIENTS, test=TEST, settings=settings, folder=tmp_path)
    for other, resume, code in (
        (settings, False, "output-exists"),
        (Settings(rounds=2, batch=5), True, "conflict"),
    ):
        with pytest.raises(InputError) as caught:
            federated.run(
                model(), CLIENTS, test=TEST, settings=other, folder=tmp_path, resume=resume
            )
        assert caught.value.code == code
    with pytest.raises(InputError) as caught:
        federated.run(
            model(), CLIENTS[::-1], test=TEST, settings=settings, folder=tmp_path, resume=True
        )
    assert caught.value.code == "conflict"

    class Shifted(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) + 1

    # A finished run has no figures of another evaluation, loss, training or forward.
    shifted, activated = model(), model()
    shifted[2] = Shifted(8, 3)
    shifted.load_state_dict(model().state_dict())
    activated[1] = nn.Tanh()
    frozen = model()
    frozen[0].requires_grad_(False)
    for module, changed in (
        (model(), {"test": {}}),
        (model(), {"test": {**TEST, "car": digits(200, 102)}}),
        (model(), {"test": TEST, "metric": lambda out, y: out.sum()}),
        (model(), {"test": TEST, "loss": lambda out, y: -nn.functional.cross_entropy(out, y)}),
        (model(), {"test": TEST, "train": lambda module, data, task: None}),
        (model(), {"test": TEST, "proxy": CLIENTS[0]}),
        (shifted, {"test": TEST}),
        (activated, {"test": TEST}),
        (frozen, {"test": TEST}),
    ):
        with pytest.raises(InputError) as caught:
            federated.run(
                module, CLIENTS, settings=settings, folder=tmp_path, resume=True, **changed
            )
        assert caught.value.code == "conflict"
    # More rounds are the same run.
    longer = federated.run(
        model(), CLIENTS, test=TEST, settings=Settings(rounds=4), folder=tmp_path, resume=True
    )
    fresh = federated.run(model(), CLIENTS, settings=Settings(rounds=4))
    assert [row.loss for row in longer.history] == [row.loss for row in fresh.history]


CONFIG = """\
model = "mlp"
output = "{output}"
data = {{ path = "digits.npz", clients = 12, split = "dirichlet" }}
rule = {{ name = "{rule}" }}
training = {{ rounds = 8, per_round = 6, faults = {{ drop = 0.1, nan = 0.1 }} }}
"""
KILLED = """
import os, signal, sys
from holdfast.federated import engine, state
save = state.RunState.save
def save_and_die(self, path, plan):
    save(self, path, plan)
    if len(self.history) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
state.RunState.save = save_and_die
from holdfast.cli import main
main(["federated", "run", sys.argv[1], "--json"])
"""


def test_a_killed_run_resumes_with_the_same_bits(tmp_path: Path) -> None:
    np.savez(tmp_path / "digits.npz", **dict(zip("xy", digits(400), strict=True)))
    for name in ("killed", "whole"):
        (tmp_path / f"{name}.toml").write_text(CONFIG.format(output=name, rule="scaffold"))
    path = tmp_path / "killed.toml"
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)], env=os.environ, check=False)
    assert done.returncode == -signal.SIGKILL
    # A draft that the killed writer left is not read.
    (tmp_path / "killed" / ".state.safetensors.1-1.part").write_bytes(b"half")
    resumed = federated.run_config(path, resume=True)
    whole = federated.run_config(tmp_path / "whole.toml")
    assert json.dumps(resumed.to_dict()) == json.dumps(whole.to_dict())
    states = [(tmp_path / name / "state.safetensors").read_bytes() for name in ("killed", "whole")]
    assert states[0] == states[1]
    assert whole.failures


@pytest.mark.parametrize(
    ("text", "code", "place"),
    [
        ('data = { path = "no.npz" }', "not-found", None),
        ('data = { path = "digits.npz", client = 3 }', "unknown-key", "data.client"),
        ('data = { path = "digits.npz", clients = 0 }', "invalid-value", "data.clients"),
        ('model = "cnn"\ndata = { path = "digits.npz" }', "unsupported", "model"),
        ('model = "gpt"\ndata = { path = "digits.npz" }', "unknown-name", "model"),
        ('rule = { f = 1 }\nmodel = "mlp"\ndata.path = "digits.npz"', "missing-key", "rule.name"),
        (
            'model = "mlp"\nrule = { name = "scaffold", test = 1 }\ndata.path = "digits.npz"',
            "unknown-key",
            "test",
        ),
        ('training.seed = -4\ndata.path = "digits.npz"', "invalid-value", "training.seed"),
        (
            'model = "mlp"\ntraining.rounds = 0\ndata.path = "digits.npz"',
            "invalid-value",
            "training.rounds",
        ),
        (
            'model = "mlp"\ntraining.faults.dorp = 0.1\ndata.path = "digits.npz"',
            "unknown-key",
            "faults.dorp",
        ),
        (
            'model = "mlp"\nprivacy = { noise = 1e12 }\ndata.path = "digits.npz"',
            "invalid-value",
            "privacy.clip",
        ),
    ],
)
def test_mistakes_in_a_configuration(tmp_path: Path, text: str, code: str, place: str) -> None:
    np.savez(tmp_path / "digits.npz", **dict(zip("xy", digits(60), strict=True)))
    (tmp_path / "c.toml").write_text(text)
    with pytest.raises(InputError) as caught:
        federated.run_config(tmp_path / "c.toml")
    assert (caught.value.code, caught.value.place) == (code, place)


@pytest.mark.parametrize("split", ["even", "dirichlet"])
def test_a_class_that_is_not_in_the_test_data_has_an_output(tmp_path: Path, split: str) -> None:
    x, _ = digits(60)
    for rare in (0, 30, 59):  # in the test data for some of them, with a client for others
        np.savez(tmp_path / "rare.npz", x=x, y=np.where(np.arange(60) == rare, 2, x[:, 0] > 1))
        (tmp_path / "c.toml").write_text(
            f'model = "linear"\noutput = "{rare}"\ntraining = {{ rounds = 1 }}\n'
            f'data = {{ path = "rare.npz", clients = 3, split = "{split}" }}'
        )
        result = federated.run_config(tmp_path / "c.toml")
        assert len(result.weights["1.bias"]) == 3
        assert not [each for each in result.failures if each["code"] == "error"]


@pytest.mark.parametrize(("clients", "alpha", "place"), [(0, 1.0, "clients"), (3, 0.0, "alpha")])
def test_impossible_splits(clients: int, alpha: float, place: str) -> None:
    with pytest.raises(InputError) as caught:
        split_examples(np.zeros(9), clients, "dirichlet", alpha, np.random.default_rng(0))
    assert (caught.value.code, caught.value.place) == ("invalid-value", place)


def test_a_split_that_is_not_known_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        split_examples(np.zeros(9), 3, "evn", 1.0, np.random.default_rng(0))  # type: ignore[arg-type]
    assert (caught.value.code, caught.value.place) == ("unknown-name", "split")


NET = """
from torch import nn
def make(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0], classes))
"""


@pytest.mark.parametrize(
    ("model", "code"),
    [("own_net:make", ""), ("own_net:other", "not-found"), ("own_nets:make", "not-found")],
)
def test_a_model_of_the_users_own(tmp_path: Path, model: str, code: str) -> None:
    np.savez(tmp_path / "digits.npz", **dict(zip("xy", digits(60), strict=True)))
    (tmp_path / "own_net.py").write_text(NET)
    text = f'model = "{model}"\ndata = {{ path = "digits.npz" }}\ntraining = {{ rounds = 1 }}'
    (tmp_path / "c.toml").write_text(text)
    if not code:
        assert len(federated.run_config(tmp_path / "c.toml").weights["1.bias"]) == 3
        return
    with pytest.raises(InputError) as caught:
        federated.run_config(tmp_path / "c.toml")
    assert (caught.value.code, caught.value.place) == (code, "model")


@pytest.mark.parametrize("setting", [np.float64(0.1), np.float32(0.25), 1])
def test_settings_may_be_numbers_of_numpy(setting: Any) -> None:
    settings = Settings(rounds=1, learning_rate=setting)
    assert federated.run(model(), CLIENTS, settings=settings, rule="fedprox", mu=setting).history


def test_splits_use_every_example_once() -> None:
    labels = np.repeat(np.arange(5), 40)
    for split, alpha in (("even", 1.0), ("dirichlet", 0.1), ("dirichlet", 100.0)):
        parts = split_examples(labels, 7, split, alpha, np.random.default_rng(0))  # type: ignore[arg-type]
        assert sorted(np.concatenate(parts).tolist()) == list(range(200))
        counts = np.array([np.bincount(labels[part], minlength=5) for part in parts])
        if alpha == 100.0:
            assert counts.min() >= 3
        if alpha == 0.1:
            assert (counts == 0).sum() > 10


@pytest.mark.full
def test_mnist_with_failing_clients(shared_data: Path, tmp_path: Path) -> None:
    import gzip

    folder = shared_data / "mnist"
    images = gzip.decompress((folder / "mnist-t10k-images-idx3-ubyte.gz").read_bytes())
    labels = gzip.decompress((folder / "mnist-t10k-labels-idx1-ubyte.gz").read_bytes())
    x = np.frombuffer(images, np.uint8, offset=16).reshape(-1, 28, 28)
    np.savez(tmp_path / "mnist.npz", x=x, y=np.frombuffer(labels, np.uint8, offset=8))
    text = CONFIG.format(output="run", rule="fedavg").replace("digits", "mnist")
    (tmp_path / "c.toml").write_text(text.replace("rounds = 8", "rounds = 20"))
    result = federated.run_config(tmp_path / "c.toml")
    assert result.mean_accuracy is not None
    assert result.mean_accuracy > 0.85
