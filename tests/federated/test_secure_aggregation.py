"""Secure aggregation: sums, drop-outs, what servers see, and the privacy loss."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.spatial.distance import pdist

from holdfast import federated
from holdfast.errors import InputError
from holdfast.federated import secure_aggregation
from holdfast.federated.secure_aggregation import clipped, privacy_loss, secure_mean, shares
from holdfast.private.mpc import SharedTensor
from holdfast.private.mpc.transport import Channel, local_channels

Privacy = federated.Privacy
STEPS = {f"c{n}": np.random.default_rng(n).normal(size=40) * (n + 1) for n in range(5)}


def plain_mean(names: Any, clip: float) -> Any:
    steps = [STEPS[name] * min(1, clip / np.linalg.norm(STEPS[name])) for name in names]
    return np.mean(steps, axis=0)


@pytest.mark.parametrize("servers", [2, 3, 5])
@pytest.mark.parametrize("clip", [1.0, 1e3])
def test_the_mean_is_that_of_the_clipped_steps(servers: int, clip: float) -> None:
    mean, failures = secure_mean(STEPS, Privacy(clip, servers=servers), [0])
    assert not failures
    assert mean == pytest.approx(plain_mean(STEPS, clip), abs=2.0**-23)


def test_what_is_sent_is_never_longer_than_the_clip() -> None:
    for scale in (1e-30, 0.0, 1.0, 1e30):
        values = clipped(scale * STEPS["c3"], 0.7) / 2**24
        assert np.linalg.norm(values) <= 0.7


def test_clients_that_drop_out_are_left_out_by_all_servers() -> None:
    delivered = np.ones((3, 5))
    delivered[:, 1] = delivered[1, 3] = 0
    mean, failures = secure_mean(STEPS, Privacy(1.0), [0], delivered=delivered)
    assert [(each.client, each.code) for each in failures] == [
        ("c1", "no-answer"),
        ("c3", "no-answer"),
    ]
    assert mean == pytest.approx(plain_mean(["c0", "c2", "c4"], 1.0), abs=2.0**-23)


@pytest.mark.parametrize("left", [0, 1])
def test_the_sum_of_one_client_is_not_opened(left: int) -> None:
    delivered = np.ones((3, 5))
    delivered[1:, left:] = 0
    with pytest.raises(InputError) as caught:
        secure_mean(STEPS, Privacy(), [0], delivered=delivered)
    assert caught.value.code == "too-few-updates"


def test_all_but_one_share_are_uniform_and_they_add_up() -> None:
    values = np.zeros(20_000, np.int64)
    parts = shares(values, 3)
    with np.errstate(over="ignore"):
        assert (parts.sum(axis=0) == values).all()
    for left_out in range(3):
        seen = np.delete(parts, left_out, axis=0)
        for row in (*seen, seen.sum(axis=0)):
            counts = np.bincount(np.frombuffer(row.tobytes(), np.uint8), minlength=256)
            assert stats.chisquare(counts).pvalue > 1e-9


class Recorder(Channel):
    """A channel that keeps everything that a server receives."""

    def exchange(self, payload: Any, group: Any = None) -> Any:
        answers = super().exchange(payload, group)
        self.__dict__.setdefault("seen", []).append((payload, [bytes(each) for each in answers]))
        return answers

    def receive(self, frm: int, nbytes: int) -> Any:
        received = super().receive(frm, nbytes)
        self.__dict__.setdefault("seen", []).append((None, [bytes(received)]))
        return received


def test_the_opened_sum_is_all_that_servers_see() -> None:
    """Constant steps would show at once: every message but the list of clients is uniform or the sum."""
    steps = {name: np.full(5_000, 1e-3) for name in STEPS}
    channels = local_channels(3)
    for channel in channels:
        channel.__class__ = Recorder
    mean, _ = secure_mean(steps, Privacy(1.0), [0], channels=channels)
    assert mean == pytest.approx(1e-3, abs=1e-6)
    for channel in channels:
        long = [part for _, parts in channel.seen for part in parts if len(part) >= 40_000]
        assert len(long) >= 2
        for part in long:
            counts = np.bincount(np.frombuffer(part, np.uint8), minlength=256)
            assert stats.chisquare(counts).pvalue > 1e-9
        # Beside the shares of the sum: setup, and which clients reached every server.
        short = sum(len(part) for _, parts in channel.seen for part in parts if len(part) < 40_000)
        assert short < 1_000


def test_each_server_adds_its_noise() -> None:
    steps = {name: np.zeros(20_000) for name in ("a", "b")}
    for servers in (2, 4):
        mean, _ = secure_mean(steps, Privacy(2.0, noise=0.5, servers=servers), [7])
        # Standard deviation of a sum of servers, 0.5 * 2.0 each, over two clients.
        assert mean.std() == pytest.approx(servers**0.5 / 2, rel=0.03)


@pytest.mark.parametrize(("noise", "rounds"), [(1.0, 1), (2.0, 10), (5.0, 100)])
def test_the_privacy_loss_is_that_of_the_gaussian_mechanism(noise: float, rounds: int) -> None:
    """Rounds with noise s are one with s / sqrt(rounds), whose curve is known (Balle and Wang 2018)."""
    epsilon = privacy_loss(Privacy(noise=noise, delta=1e-5), rounds)
    assert epsilon is not None
    one = noise / rounds**0.5
    upper = stats.norm.cdf(1 / (2 * one) - epsilon * one)
    delta = upper - np.exp(epsilon) * stats.norm.cdf(-1 / (2 * one) - epsilon * one)
    assert delta == pytest.approx(1e-5, rel=0.02)
    assert privacy_loss(Privacy(noise=0), rounds) is None


def test_the_loss_of_little_noise_is_found_at_once() -> None:
    # About the mean loss of one Gaussian with 0.01 / 2, which is 1 / (2 0.005^2), and a few deviations.
    assert privacy_loss(Privacy(noise=0.01), 4) == pytest.approx(20_000 + 4.26 * 200, rel=1e-2)


CLIENTS = [
    (np.random.default_rng(seed).normal(size=(8, 3)).astype(np.float32), np.arange(8) % 2)
    for seed in range(5)
]


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Linear(3, 2)


def test_a_run_without_noise_is_the_run_in_the_clear() -> None:
    settings = federated.Settings(rounds=3, faults={"nan": 0.2})
    clear = federated.run(model(), CLIENTS, settings=settings)
    hidden = federated.run(model(), CLIENTS, settings=settings, privacy=Privacy(clip=100.0))
    for name, array in clear.weights.items():
        assert hidden.weights[name] == pytest.approx(array, abs=1e-5)
        assert hidden.weights[name].dtype == array.dtype
    assert hidden.failures == clear.failures
    data = hidden.to_dict()
    assert data["privacy"]["epsilon"] is None
    assert data["bytes_up"] == 2 * 3 * clear.to_dict()["bytes_up"]  # three shares of twice the size
    assert hidden.sections()[-1].id == "privacy"


class Tied(torch.nn.Module):
    """A weight of two names, and a frozen one."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(3, 3)
        self.frozen = torch.nn.Linear(3, 3, bias=False).requires_grad_(False)
        self.outer = torch.nn.Linear(3, 3)
        self.outer.weight = self.inner.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.outer(self.frozen(self.inner(x)))


@pytest.mark.parametrize(
    ("rule", "privacy"),
    [
        ("fedavg", None),
        ("fedavg", Privacy(noise=1.0)),
        ("fedprox", Privacy(clip=100.0)),
        ("fedadam", None),
    ],
)
def test_what_is_not_trained_stays_as_it_is(rule: str, privacy: Privacy | None) -> None:
    torch.manual_seed(0)
    net = Tied()
    settings = federated.Settings(rounds=2)
    result = federated.run(net, CLIENTS, settings=settings, rule=rule, privacy=privacy)
    assert result.weights["frozen.weight"].tolist() == net.frozen.weight.tolist()
    tied = [result.weights[f"{name}.weight"] for name in ("inner", "outer")]
    assert tied[0].tobytes() == tied[1].tobytes() != net.inner.weight.detach().numpy().tobytes()
    if privacy is not None:  # the noise is on what is trained alone, once
        assert result.to_dict()["bytes_up"] == 2 * 5 * 8 * 3 * (9 + 3 + 3)


def test_the_privacy_loss_of_a_run() -> None:
    settings = federated.Settings(rounds=4)
    result = federated.run(model(), CLIENTS, settings=settings, privacy=Privacy(noise=3.0))
    assert result.to_dict()["privacy"]["epsilon"] == privacy_loss(Privacy(noise=3.0), 4)
    again = federated.run(model(), CLIENTS, settings=settings, privacy=Privacy(noise=3.0))
    assert again.weights["weight"].tobytes() == result.weights["weight"].tobytes()


@pytest.mark.parametrize("rule", ["krum", "median", "q-fedavg", "heteroswitch"])
def test_rules_that_need_single_updates_are_refused(rule: str) -> None:
    with pytest.raises(InputError) as caught:
        federated.run(model(), CLIENTS, rule=rule, privacy=Privacy())
    assert (caught.value.code, caught.value.place) == ("unsupported", "rule.name")


# --- Multi-Krum on shares ------------------------------------------------------------------------


def crowd(seed: int, clients: int, size: int = 30) -> dict[str, Any]:
    """Steps around a common one, and two liars."""
    rng = np.random.default_rng(seed)
    steps = rng.normal(size=size) + 0.3 * rng.normal(size=(clients, size))
    steps[:2] = -20 * rng.random((2, 1)) * steps[:2]
    return dict(zip(map(str, range(clients)), rng.permutation(steps), strict=True))


def in_the_clear(steps: dict[str, Any], clip: float, f: int) -> Any:
    updates = [
        federated.Update({"w": clipped(step, clip) / 2.0**24}, 1, client=name)
        for name, step in steps.items()
    ]
    current = {"w": np.zeros_like(updates[0].weights["w"])}
    return federated.aggregate("multi-krum", current, updates, f=f)[0]["w"]


@pytest.mark.parametrize("clip", [2.0**-10, 1.0, 90.0])
@pytest.mark.parametrize(("servers", "clients"), [(2, 7), (3, 9), (4, 50)])
def test_multi_krum_on_shares_is_that_in_the_clear(servers: int, clients: int, clip: float) -> None:
    for seed in range(3):
        steps = crowd(seed, clients)
        mean, failures = secure_mean(steps, Privacy(clip, servers=servers), [0], f=2)
        assert not failures
        assert mean == pytest.approx(in_the_clear(steps, clip, 2), abs=2.0**-40)


def test_distances_and_the_chosen_sum_are_all_that_multi_krum_opens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Constant steps would show at once.
    size, clients = 5_000, 7
    steps = {str(n): np.full(size, (1 + n * n) * 1e-4) for n in range(clients)}
    channels, opened, reveal = local_channels(3), [], SharedTensor.reveal
    for channel in channels:
        channel.__class__ = Recorder

    def recorded(secret: SharedTensor, to: Any = None) -> Any:
        values = reveal(secret, to)
        opened.append((secret.party.rank, np.asarray(values)))
        return values

    monkeypatch.setattr(SharedTensor, "reveal", recorded)
    mean, _ = secure_mean(steps, Privacy(), [0], f=2, channels=channels)
    fixed = np.array([clipped(step, 1.0) for step in steps.values()])
    squares = pdist(fixed.astype(float), "sqeuclidean")
    for rank in range(3):
        distances, chosen = (values for each, values in opened if each == rank)
        assert distances.tolist() == squares.tolist()
        assert chosen.tolist() == (fixed[:5].sum(axis=0) / 2**24).tolist()
    assert mean == pytest.approx(chosen / 5)
    for channel in channels:  # whatever else was sent is uniform
        long = [part for _, parts in channel.seen for part in parts if len(part) >= 40_000]
        assert len(long) >= 4
        for part in long:
            counts = np.bincount(np.frombuffer(part, np.uint8), minlength=256)
            assert stats.chisquare(counts).pvalue > 1e-9
        short = sum(len(part) for _, parts in channel.seen for part in parts if len(part) < 40_000)
        assert short < 5_000


def unclipped(step: Any, clip: float) -> Any:
    """What a client sends that does not clip long steps."""
    if np.linalg.norm(step) < 100:
        return clipped(step, clip)
    return np.rint(step * 2.0**24).astype(np.int64)


# A coordinate of 2^39 is 2^63 in fixed point, which no distance modulo 2^64 shows.
@pytest.mark.parametrize("size", [1e3, 1e8, 2.0**39 - 1])
def test_steps_that_were_not_clipped_are_named(
    monkeypatch: pytest.MonkeyPatch, size: float
) -> None:
    steps = crowd(1, 9)
    liars = {name: np.full(30, size) for name in ("2", "5")}
    monkeypatch.setattr(secure_aggregation, "clipped", unclipped)
    mean, failures = secure_mean({**steps, **liars}, Privacy(), [0], f=2)
    assert [(each.client, each.code) for each in failures] == [("2", "norm"), ("5", "norm")]
    honest = {name: step for name, step in steps.items() if name not in liars}
    assert mean == pytest.approx(in_the_clear(honest, 1.0, 2), abs=2.0**-40)


@pytest.mark.parametrize("f", [None, 2])
def test_a_sum_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch, f: Any) -> None:
    steps = crowd(1, 9)
    # Added to the step of an honest client, 2^63 changes no distance.
    monkeypatch.setattr(
        secure_aggregation,
        "clipped",
        lambda step, clip: clipped(step, clip) + (step is first) * (np.arange(30) == 3) * top,
    )
    top = np.array(-(2**63), np.int64)
    first = next(iter(steps.values()))
    with pytest.raises(InputError) as caught:
        secure_mean(steps, Privacy(), [0], f=f)
    assert caught.value.code == "norm"


def test_a_run_of_multi_krum_on_shares_is_the_run_in_the_clear() -> None:
    clients = {f"{n}": CLIENTS[n % 5] for n in range(9)}
    settings = federated.Settings(rounds=3, per_round=9, faults={"flip": 0.1, "drop": 0.05})
    clear = federated.run(model(), clients, settings=settings, rule="multi-krum", f=2)
    hidden = federated.run(
        model(), clients, settings=settings, rule="multi-krum", f=2, privacy=Privacy(clip=50.0)
    )
    for name, array in clear.weights.items():
        assert hidden.weights[name] == pytest.approx(array, abs=1e-5)
    assert hidden.failures == clear.failures
    assert hidden.sections()[-1].id == "privacy"


@pytest.mark.parametrize(
    ("privacy", "clients", "place"),
    [
        (Privacy(), 51, "per_round"),
        (Privacy(noise=1.0), 9, "privacy.noise"),
        (Privacy(clip=91.0), 9, "privacy.clip"),
    ],
)
def test_what_multi_krum_on_shares_cannot_do(privacy: Privacy, clients: int, place: str) -> None:
    settings = federated.Settings(per_round=100)
    given = [CLIENTS[0]] * clients
    with pytest.raises(InputError) as caught:
        federated.run(model(), given, settings=settings, rule="multi-krum", f=2, privacy=privacy)
    assert (caught.value.code, caught.value.place) == ("invalid-value", place)


@pytest.mark.parametrize(
    "layer",
    [
        torch.nn.BatchNorm1d(3),
        torch.nn.InstanceNorm1d(3, track_running_stats=True),
        torch.nn.utils.parametrizations.spectral_norm(torch.nn.Linear(3, 3)),
    ],
)
def test_buffers_are_not_private(layer: torch.nn.Module) -> None:
    with pytest.raises(InputError) as caught:
        federated.run(torch.nn.Sequential(layer, model()), CLIENTS, privacy=Privacy(noise=4.0))
    assert (caught.value.code, caught.value.place) == ("unsupported", "model")


@pytest.mark.parametrize(
    "setting",
    [{"clip": 0.0}, {"clip": np.nan}, {"noise": -1.0}, {"servers": 1}, {"delta": 0.0}],
)
def test_settings_that_are_not_private_are_refused(setting: dict[str, Any]) -> None:
    with pytest.raises(InputError) as caught:
        federated.run(model(), CLIENTS, privacy=Privacy(**setting))
    assert caught.value.place == next(iter(setting))


def test_sums_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InputError) as caught:
        secure_mean(STEPS, Privacy(clip=2.0**40), [0])
    assert caught.value.code == "invalid-value"
    assert secure_aggregation.LEAST == 2
