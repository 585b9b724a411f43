"""Training against torch in float64, gradients against autograd, and checkpoints of shares."""

from __future__ import annotations

import pytest
import torch

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
