"""Scripts for CrypTen: methods by their names, with torch as the oracle; models, files and launches."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch import nn

from holdfast.errors import InputError
from holdfast.private.mpc import crypten, functions
from holdfast.private.mpc.launch import simulate
from holdfast.private.mpc.ring import RangeError

PLACES = torch.tensor([[1, 0, 2]])
METHODS = {
    "operators": lambda x, y: x.add(y).sub(2.0).mul(y).div(4.0).neg(),
    "pow": lambda x, y: x.pow(3) - y.square(),
    "dot": lambda x, y: x.flatten().dot(y.flatten()) + x.matmul(y.t()) @ y[:, 0],
    "functions": lambda x, y: x.sigmoid() + x.tanh() * y.exp() + x.abs().sqrt() + y.softmax(1),
    "logs": lambda x, y: (x.abs() + 0.5).log() + (y.abs() + 1.0).reciprocal() + y.log_softmax(0),
    "sign": lambda x, y: x.sign() * y + (x - x).sign(),
    "clamp": lambda x, y: x.clamp(-0.5, 0.4) + y.clamp(max=0.3) + x.clamp(min=0.1),
    "maximum": lambda x, y: x.maximum(y) * y + x.minimum(y),
    "max": lambda x, y: x.max() * y.min() + x.max(1)[0].sum() - y.min(0, keepdim=True)[0],
    "amax": lambda x, y: x.reshape(1, 2, 3).amax((1, 2)) * y + x.amin(1, keepdim=True),
    "reshape": lambda x, y: x.view(3, 2) + y.reshape(-1, 2).t().transpose(0, 1) * x.flatten()[0],
    "flip": lambda x, y: x.flip(0) * y.roll(1, 1) + y.flip(0, 1),
    "repeat": lambda x, y: x.repeat(2, 1) * y.expand(2, 2, 3).flatten(0, 1) + y.tile(2, 1),
    "index": lambda x, y: x[[1, 1, 0]] * y[:, [0, 2, 2]][[0, 1, 1]] + x[0],
    "gather": lambda x, y: x.gather(0, PLACES % 2) + y.take(PLACES) + x.index_select(0, PLACES[0, :1]),
    "split": lambda x, y: x.split(2, 1)[1] + y.unbind(1)[2].unsqueeze(1) + y.narrow(1, 1, 1),
    "permute": lambda x, y: x.permute(1, 0).unsqueeze(0).squeeze(0) * y.movedim(0, 1).sum(0),
}  # fmt: skip


@pytest.mark.parametrize("name", METHODS)
def test_methods_and_their_gradients_are_those_of_torch(name):
    call = METHODS[name]
    torch.manual_seed(5)
    x, y = torch.randn(2, 2, 3, dtype=torch.float64)

    def main(party):
        a = party.secret(x if party.rank == 0 else None, owner=0, bound=4.0)
        b = party.secret(y if party.rank == 1 else None, owner=1, bound=4.0)
        a.requires_grad = b.requires_grad = True
        out = call(a, b)
        out.backward()
        return out.reveal(), *(
            torch.zeros(2, 3) if t.grad is None else t.grad.reveal() for t in (a, b)
        )

    wanted, p, q = call(x.requires_grad_(), y.requires_grad_()), x, y
    wanted.sum().backward()
    out, *grads = simulate(2, main)[0]
    assert out.shape == wanted.shape
    torch.testing.assert_close(out, wanted.detach(), rtol=0, atol=4e-3)
    for got, want in zip(grads, (p.grad, q.grad), strict=True):
        torch.testing.assert_close(got.double(), want, rtol=0, atol=2e-2)


LAYERS = {
    "max_pool2d": lambda x, w: torch.nn.functional.max_pool2d(x, 3, 2, 1),
    "padded": lambda x, w: torch.nn.functional.max_pool2d(-x.abs(), (2, 3), 1, (1, 0), (1, 2)),
    "avg_pool2d": lambda x, w: torch.nn.functional.avg_pool2d(x, (3, 2), 2, 1),
    "same": lambda x, w: torch.nn.functional.conv2d(x, w, padding="same"),
    "same1": lambda x, w: torch.nn.functional.conv1d(x[:, :, 0], w[:, :, 0], padding="same", dilation=2),
    "conv1d": lambda x, w: torch.nn.functional.conv1d(x[:, :, 1], w[:, :, 1], None, 2, 1),
    "relu6": lambda x, w: torch.nn.functional.relu6(4 * x) + torch.nn.functional.leaky_relu(x, 0.1),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:Using padding")
@pytest.mark.parametrize("name", LAYERS)
def test_layers_and_their_gradients_are_those_of_torch(name, monkeypatch):
    call = LAYERS[name]
    torch.manual_seed(6)
    x, w = (
        torch.randn(2, 2, 5, 6, dtype=torch.float64),
        torch.randn(3, 2, 2, 3, dtype=torch.float64),
    )
    g = torch.randn(call(x, w).shape, dtype=torch.float64)
    (call(x.requires_grad_(), w.requires_grad_()) * g).sum().backward()
    with torch.no_grad():
        wanted = call(x, w)
    for function in ("max_pool2d", "avg_pool2d", "conv2d", "conv1d", "relu6", "leaky_relu"):
        monkeypatch.setattr(torch.nn.functional, function, getattr(functions, function))

    def main(party):
        a = party.secret(x.detach() if party.rank == 0 else None, owner=0, bound=4.0)
        b = party.secret(w.detach() if party.rank == 1 else None, owner=1, bound=4.0)
        a.requires_grad = b.requires_grad = True
        out = call(a, b)
        (out * g).backward()
        return out.reveal(), a.grad.reveal(), None if b.grad is None else b.grad.reveal()

    out, to_x, to_w = simulate(2, main)[1]
    torch.testing.assert_close(out, wanted, rtol=0, atol=1e-3)
    torch.testing.assert_close(to_x, x.grad, rtol=0, atol=5e-3)
    if to_w is not None:
        torch.testing.assert_close(to_w, w.grad, rtol=0, atol=5e-3)


def test_maxima_of_cryptens_tensors_mark_their_places():
    x = torch.tensor([[3.0, -1.0, 7.0], [2.0, 2.0, -5.0]])

    @crypten.mpc.run_multiprocess(world_size=2)
    def run():
        a = crypten.cryptensor(x)
        values, marks = a.max(1, keepdim=True)
        shown = [
            a.argmax(), a.argmax(1), a.argmax(0, one_hot=False), values, marks, a.min(0)[1], a.argmin(1),
            a.max(1, one_hot=False)[1],
        ]  # fmt: skip
        return [each.get_plain_text().tolist() for each in shown]

    first = [[0, 0, 1], [1, 0, 0]]
    assert run()[0] == [
        [[0, 0, 1], [0, 0, 0]], first, [0, 1, 0], [[7], [2]], first,
        [[0, 1, 0], [1, 0, 1]], [[0, 1, 0], [0, 0, 1]], [2, 0],
    ]  # fmt: skip


def test_methods_with_an_underscore_change_the_tensor_itself():
    def main(party):
        crypten.init(party)
        x, y = crypten.cryptensor([1.0, -2.0]), crypten.cryptensor([0.5, 4.0], src=1)
        same = x.mul_(y).add_(1.0).sub_(y)
        assert same is x
        y.requires_grad = True
        with pytest.raises(InputError) as refused:
            x.mul_(y)
        assert refused.value.code == "unsupported"
        return x.get_plain_text().tolist()

    assert simulate(2, main) == [[1.0, -11.0]] * 2


def test_what_no_tensor_has_is_no_attribute():
    def main(party):
        x = party.secret([1.0], owner=0, shape=(1,))
        return [
            hasattr(x, name) for name in ("nonsense", "nonsense_", "__array__", "_private", "add_")
        ]

    assert simulate(2, main)[0] == [False, False, False, False, True]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3, padding="same")
        self.fc1, self.fc2 = nn.Linear(18, 6), nn.Linear(6, 2)

    def forward(self, x):
        x = nn.functional.max_pool2d(torch.relu(self.conv(x)), 2)
        return self.fc2(torch.relu(self.fc1(x.flatten(1))))


def test_training_through_max_pooling_follows_torch():
    torch.manual_seed(8)
    module, x, y = Net(), torch.randn(4, 1, 6, 6), torch.eye(2)[[0, 1, 1, 0]]
    start = {name: value.clone() for name, value in module.state_dict().items()}

    def main(party):
        crypten.init(party)
        own = Net()
        own.load_state_dict(start)
        model = crypten.nn.from_pytorch(own, torch.empty(1, 1, 6, 6))
        model.train()
        model.encrypt()
        loss, losses = crypten.nn.MSELoss(), []
        images, targets = crypten.cryptensor(x, src=1), crypten.cryptensor(y)
        for _ in range(3):
            value = loss(model(images), targets)
            model.zero_grad()
            value.backward()
            model.update_parameters(0.5)
            losses.append(value.get_plain_text().item())
        return (
            losses,
            getattr(model, "fc2.weight").get_plain_text(),
            model(images[:3]).get_plain_text(),
        )

    losses, weight, output = simulate(2, main)[0]
    optimizer = torch.optim.SGD(module.parameters(), 0.5)
    for got in losses:
        loss = nn.functional.mse_loss(module(x), y)
        assert got == pytest.approx(loss.item(), abs=2e-3)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    torch.testing.assert_close(weight, module.fc2.weight.detach(), rtol=0, atol=5e-3)
    torch.testing.assert_close(output, module(x[:3]).detach(), rtol=0, atol=1e-2)


class Steps(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(4, 3), nn.Linear(3, 2)

    def forward(self, x):
        out = self.fc1(x)
        out = torch.relu(out)
        return self.fc2(out)


def test_steps_of_a_model_have_the_names_of_the_tutorial():
    torch.manual_seed(9)
    module, x = Steps(), torch.randn(3, 4)

    def main(party):
        crypten.init(party)
        model = crypten.nn.from_pytorch(module, torch.empty(1, 4)).encrypt()
        nodes = model._modules
        value = crypten.cryptensor(x, src=1)
        for name, layer in (("out", "fc1"), ("onnx::Gemm_6", None), ("output", "fc2")):
            weights = [nodes[f"{layer}.{each}"].forward([]) for each in ("weight", "bias") if layer]
            value = nodes[name].forward([value, *weights] if layer else value)
        return list(nodes), value.get_plain_text()

    names, value = simulate(2, main)[0]
    assert names == [
        "fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias", "out", "onnx::Gemm_6", "output",
    ]  # fmt: skip
    torch.testing.assert_close(value, module(x).detach(), rtol=0, atol=2e-3)


def test_files_of_one_party_are_shared(tmp_path):
    def main(party):
        crypten.init(party)
        crypten.save_from_party(torch.arange(4.0), tmp_path / "x.pth", src=1)
        crypten.save(nn.Linear(4, 1).state_dict(), tmp_path / f"w{party.rank}.pth")
        x = crypten.load_from_party(tmp_path / "x.pth", src=1)
        return x.get_plain_text(dst=0), crypten.load(tmp_path / f"w{party.rank}.pth")[
            "weight"
        ].shape

    (first, shape), (second, _) = simulate(2, main)
    assert (first.tolist(), second, shape) == ([0.0, 1.0, 2.0, 3.0], None, (1, 4))


def test_the_precision_is_that_of_the_script_and_random_numbers_are_uniform():
    def main(party):
        crypten.init(party)
        crypten.cfg.encoder.precision_bits = 20
        x, bits = crypten.rand(400), crypten.bernoulli(torch.full((400,), 0.25))
        return (
            x.get_plain_text(),
            bits.get_plain_text(),
            x.scale,
            crypten.communicator.get().get_rank(),
        )

    (x, bits, scale, _), (*_, rank) = simulate(2, main)
    assert (scale, rank) == (20, 1)
    assert 0.0 <= x.min() < 0.05 < 0.95 < x.max() < 1.0
    assert 0.1 < bits.mean() < 0.4


@pytest.mark.parametrize(
    "call", [lambda x: x.mean(0), lambda x: x.square(), lambda x: x.sum(1).mean(), lambda x: x * x]
)
def test_inputs_beyond_1024_have_the_bound_of_their_values(call):
    values = torch.tensor([[1e5, 1e-4], [-3.0, 2.0]], dtype=torch.float64)

    def main(party):
        crypten.init(party)
        return call(crypten.cryptensor(values, src=0)).reveal()

    torch.testing.assert_close(simulate(2, main)[0], call(values), rtol=1e-6, atol=1e-2)


def test_loops_of_public_products_are_checked_where_their_bounds_grow():
    turn = torch.tensor([[0.6, 0.8], [-0.8, 0.6]], dtype=torch.float64)
    start = torch.tensor([[1.0], [0.5]], dtype=torch.float64)

    def walked(x):
        for _ in range(100):
            x = turn @ x
        return x

    def main(party):
        crypten.init(party)
        return walked(crypten.cryptensor(start, src=0)).reveal()

    torch.testing.assert_close(simulate(2, main)[0], walked(start), rtol=0, atol=0.02)


def test_loops_whose_bounds_grow_without_end_are_right_or_refused():
    start = torch.tensor([[0.5, -0.25], [0.125, 0.5]], dtype=torch.float64)

    def main(party, factor):
        crypten.init(party)
        x = crypten.cryptensor(start * factor)
        for _ in range(12):
            x = x.matmul(x) + x * 0.5
        return x.get_plain_text()

    wanted = start
    for _ in range(12):
        wanted = wanted @ wanted + wanted * 0.5
    got = simulate(2, lambda party: main(party, 1.0))[0]
    torch.testing.assert_close(got.double(), wanted, rtol=0, atol=2e-3)
    with pytest.raises(RangeError):
        simulate(2, lambda party: main(party, 8.0))


def test_a_branch_on_a_secret_is_the_error_that_scripts_expect():
    crypten.init()  # alone in this thread
    with pytest.raises(RuntimeError):
        bool(crypten.cryptensor(2.0) < crypten.cryptensor(4.0))


PAGE = Path(__file__).parents[2] / "docs" / "private-crypten.md"
ROWS = re.findall(r"^\| `([^|]+)` \| `([^|]+)` \|", PAGE.read_text(), re.MULTILINE)


def test_every_name_of_the_page_exists():
    assert len(ROWS) > 80
    crypten.init()
    tensor = crypten.cryptensor([[1.0]])
    model = crypten.nn.from_pytorch(nn.Linear(1, 1), torch.zeros(1, 1)).encrypt()
    homes = {"x": tensor, "crypten": crypten, "functions": functions, "model": model}
    for _, ours in ROWS:
        value = homes
        for part in re.sub(r"\(.*", "", ours).split("."):
            value = value[part] if isinstance(value, dict) else getattr(value, part)
