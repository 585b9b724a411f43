"""Training against torch in float64, gradients against autograd, and checkpoints of shares."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from holdfast.errors import InputError
from holdfast.private.mpc import functions
from holdfast.private.mpc.launch import simulate
from holdfast.private.mpc.training import SGD, cross_entropy, load_checkpoint, save_checkpoint
from holdfast.private.mpc.transport import PeerError


def network():
    torch.manual_seed(0)
    layers = [
        torch.nn.Conv2d(1, 3, 3, stride=2, padding=1), torch.nn.ReLU(), torch.nn.Flatten(),
        torch.nn.Linear(48, 8), torch.nn.GELU(), torch.nn.Linear(8, 5),
    ]  # fmt: skip
    return torch.nn.Sequential(*layers).double()


@pytest.mark.parametrize(("parties", "settings"), [(2, {}), (3, {"mode": "replicated3"})])
def test_training_follows_torch(parties, settings):
    model = network()
    images, labels = torch.rand(3, 6, 1, 8, 8, dtype=torch.float64), torch.randint(0, 5, (3, 6))
    start = {name: value.clone() for name, value in model.state_dict().items()}

    def main(party):
        w = {
            name: party.secret(value if party.rank == 0 else None, owner=0)
            for name, value in start.items()
        }
        optimizer = SGD(w.values(), lr=0.2, momentum=0.9)
        losses = []
        for batch, targets in zip(images, labels, strict=True):
            x = party.secret(batch if party.rank == 1 else None, owner=1, bound=1.0)
            y = party.secret(targets if party.rank == 1 else None, owner=1)
            hidden = functions.conv2d(x, w["0.weight"], w["0.bias"], 2, 1).relu().flatten(1)
            hidden = functions.gelu(functions.linear(hidden, w["3.weight"], w["3.bias"]))
            loss = cross_entropy(functions.linear(hidden, w["5.weight"], w["5.bias"]), y)
            losses.append(float(loss.reveal()))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return {name: value.reveal() for name, value in w.items()}, losses

    weights, losses = simulate(parties, main, **settings)[0]
    optimizer = torch.optim.SGD(model.parameters(), 0.2, momentum=0.9)
    for batch, targets, secret_loss in zip(images, labels, losses, strict=True):
        loss = torch.nn.functional.cross_entropy(model(batch), targets)
        assert secret_loss == pytest.approx(float(loss.detach()), abs=2e-3)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    for name, value in model.state_dict().items():
        moved = (value - start[name]).abs().max()
        assert (weights[name] - value).abs().max() < 0.05 * moved, name


def test_gradients_match_autograd():
    torch.manual_seed(1)
    x = (torch.rand(3, 4, dtype=torch.float64) + 0.5).requires_grad_()
    w = torch.randn(4, 4, dtype=torch.float64, requires_grad=True)
    f = torch.nn.functional

    def graph(x, w, f, cat):
        y = x @ w
        pooled = f.avg_pool2d(y.reshape(1, 1, 3, 4), 2, 1).flatten()
        normal = f.layer_norm(y, (4,))
        parts = cat(
            [y[:, :2] * x[:, 2:], (y + x.sum(1, keepdim=True)).permute(0, 1)[1:, 1:3] / 2.0]
        )
        return (
            (f.softmax(y, -1) * w[0] + f.sigmoid(y) - f.tanh(x) + normal * w[1] + x.mean(0)).sum()
            + parts.sum()
            + pooled.sum()
            + (x**3 / 4.0).sum()
            + (1 / x).sum()
            + f.exp(x).sum()
        )

    def main(party):
        a = party.secret(x.detach() if party.rank == 0 else None, owner=0, bound=(0.4, 1.6))
        b = party.secret(w.detach() if party.rank == 1 else None, owner=1, bound=4.0)
        SGD([a, b], lr=1.0)
        graph(a, b, functions, functions.cat).backward()
        return a.grad.reveal(), b.grad.reveal()

    f.exp = torch.exp  # the only one that torch keeps elsewhere
    graph(x, w, f, torch.cat).backward()
    got = simulate(2, main)[0]
    for one, other in zip(got, (x.grad, w.grad), strict=True):
        assert (one - other).abs().max() < 0.02


def test_values_of_losses_can_be_used_as_any_others():
    x = torch.tensor([[1.0, -0.5, 0.25], [0.0, 2.0, -1.0]], dtype=torch.float64)
    y = torch.tensor([0, 2])

    def main(party):
        scores = party.secret(x if party.rank == 0 else None, owner=0)
        loss = cross_entropy(scores, party.secret(y if party.rank == 1 else None, owner=1))
        return loss.reveal(), (loss * 2 + 1).reveal()

    wanted = torch.nn.functional.cross_entropy(x, y)
    loss, twice = simulate(2, main)[0]
    assert loss == pytest.approx(float(wanted), abs=1e-3)
    assert twice == pytest.approx(float(2 * wanted + 1), abs=2e-3)


def test_gradients_reach_tensors_that_lost_bits_for_a_large_bound():
    def main(party):
        x = party.secret(
            [0.5] if party.rank == 0 else None, owner=0, bound=2.0**47, fraction_bits=14
        )
        x.requires_grad = True
        functions.sigmoid(x).sum().backward()
        return x.grad.reveal()

    slope = torch.sigmoid(torch.tensor(0.5)) * torch.sigmoid(torch.tensor(-0.5))
    assert simulate(2, main)[0] == pytest.approx(float(slope), abs=0.01)


def test_checkpoints_hold_encrypted_shares(tmp_path):
    values = torch.tensor([[1.5, -2.0]])

    def save(party):
        w = party.secret(values if party.rank == 0 else None, owner=0, reveal_to=[1])
        save_checkpoint(tmp_path / f"{party.rank}.ckpt", {"w": w, "n": (w > 0)}, bytes(16))

    def load(party):
        tensors = load_checkpoint(tmp_path / f"{party.rank}.ckpt", party, bytes(16))
        assert tensors["w"].allowed == {1}
        return [tensors[name].reveal(to=1) for name in ("w", "n")]

    def refuse(party):
        for path, key, code in (
            (party.rank, bytes(15) + b"x", "damaged"),
            (1 - party.rank, bytes(16), "conflict"),
            (party.rank, bytes(5), "invalid-value"),
        ):
            with pytest.raises(InputError) as error:
                load_checkpoint(tmp_path / f"{path}.ckpt", party, key)
            assert error.value.code == code

    simulate(2, save)
    w, n = simulate(2, load)[1]
    assert torch.equal(w, values.double())
    assert n.tolist() == [[1, 0]]
    simulate(2, refuse)


def test_checkpoints_of_different_steps_are_refused(tmp_path):
    def save(party):
        w = party.secret([1.5] if party.rank == 0 else None, owner=0)
        for step in (1, 2):
            save_checkpoint(tmp_path / f"{party.rank}.{step}", {"w": w}, bytes(16))

    def load(party):
        with pytest.raises(PeerError) as error:
            load_checkpoint(tmp_path / f"{party.rank}.{1 + party.rank}", party, bytes(16))
        assert (error.value.code, error.value.peer) == ("handshake", 1 - party.rank)
        same = load_checkpoint(tmp_path / f"{party.rank}.2", party, bytes(16))
        return same["w"].reveal().tolist()

    simulate(2, save)
    assert simulate(2, load) == [[1.5], [1.5]]


@pytest.mark.parametrize("kind", ["relu", "leaky_relu", "relu6"])
def test_the_gradient_of_a_rectifier_at_zero_is_that_of_torch(kind):
    x = torch.tensor([-1.0, 0.0, 2.0**-16, 3.0], dtype=torch.float64)
    f = torch.nn.functional

    def main(party):
        a = party.secret(x, owner=0, bound=4.0)
        a.requires_grad = True
        getattr(functions if kind != "relu" else type(a), kind)(a).sum().backward()
        return a.grad.reveal()

    y = x.clone().requires_grad_()
    getattr(f, kind)(y).sum().backward()
    torch.testing.assert_close(simulate(2, main)[0], y.grad, rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    "labels",
    [
        torch.tensor([0]),
        torch.tensor([0, 1, 2]),
        torch.ones(1, 3),
        torch.ones(2, 2),
        torch.tensor([]),
    ],
)
def test_labels_for_other_rows_than_there_are_are_refused(labels):
    def main(party):
        scores = party.secret(torch.zeros(2, 3), owner=0)
        cross_entropy(scores, party.secret(labels.long(), owner=1))

    with pytest.raises(InputError) as error:
        simulate(2, main)
    assert (error.value.code, error.value.place) == ("invalid-value", "labels")


@pytest.mark.parametrize("momentum", [0.0, 0.5])
@pytest.mark.parametrize("lr", [1e-3, 0.25])
def test_steps_on_a_quadratic_follow_the_closed_recursion(lr, momentum):
    """w' = w - lr v, v = momentum v + 2 w: exact fractions, and a last place per step."""
    start = [Fraction(3), Fraction(-1, 2), Fraction(0)]

    def main(party):
        w = party.secret([float(each) for each in start], owner=0, bound=4.0)
        optimizer = SGD([w], lr=lr, momentum=momentum)
        for _ in range(6):
            optimizer.zero_grad()
            (w * w).sum().backward()
            optimizer.step()
        return w.reveal().tolist()

    exact, velocity = list(start), [Fraction(0)] * 3
    for _ in range(6):
        velocity = [Fraction(momentum) * v + 2 * w for v, w in zip(velocity, exact, strict=True)]
        exact = [w - Fraction(lr) * v for v, w in zip(velocity, exact, strict=True)]
    for got, wanted in zip(simulate(2, main)[0], exact, strict=True):
        assert abs(got - wanted) <= 6 * 3 * 2.0**-16


def test_logistic_regression_finds_the_weights_of_scikit_learn():
    rng = np.random.default_rng(6)
    x = rng.normal(size=(60, 3))
    y = (x @ [1.5, -1.0, 0.5] + rng.normal(size=60) > 0).astype(float)
    model = LogisticRegression(C=1.0, fit_intercept=False, tol=1e-8).fit(x, y)

    def main(party):
        features = party.secret(x, owner=0, bound=4.0)
        labels = party.secret(y, owner=0, bound=(0, 1))
        w = party.secret(np.zeros(3), owner=0, bound=4.0)
        for _ in range(20):
            scores = functions.sigmoid(features @ w) - labels
            w = (w - (features.T @ scores + w) * 0.08).within(4.0)
        return w.reveal().numpy(), ((features @ w > 0) * 1).reveal().numpy()

    w, classes = simulate(1, main)[0]
    assert np.abs(w - model.coef_[0]).max() < 5e-3
    assert (classes == model.predict(x)).mean() >= 59 / 60
