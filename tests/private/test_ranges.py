"""Right or refused: random expressions over numbers of very different size, against float64."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

from holdfast.errors import InputError
from holdfast.private.mpc import functions
from holdfast.private.mpc.importing import import_model
from holdfast.private.mpc.launch import simulate
from holdfast.private.mpc.ring import RangeError

WIDEST = 2.0**50  # what is larger has fewer than 10 fractional bits left


@dataclass
class Node:
    """An expression in float64: its values, how far a computation on secrets may be off, and its interval.

    The error is that of the documentation, on the actual values: each operation is off by at most two of
    its last places, and passes on the errors of its operands.
    """

    text: str
    values: np.ndarray
    error: np.ndarray
    largest: float
    """Of any value within the declared bounds of the inputs."""
    widest: float
    """The largest such magnitude of this and all parts."""


@dataclass
class Expression:
    """Steps on a stack of columns, the same in float64 and on secrets."""

    inputs: list[tuple[np.ndarray, float]] = field(default_factory=list)
    steps: list[tuple] = field(default_factory=list)


def drawn(rng: np.random.Generator) -> Expression:
    """Two or three inputs of 1e-3 to 1e7, in 4 columns of mixed magnitudes, and two to six operations."""
    out = Expression()
    for _ in range(rng.integers(2, 4)):
        sizes = 10.0 ** rng.uniform(-3, rng.choice([1.0, 3.0, 7.0]), 4)
        values = sizes * rng.choice([-1, 1], 4)
        out.inputs.append((values, 2.0 ** math.ceil(math.log2(np.abs(values).max()))))
    for _ in range(rng.integers(2, 7)):
        kind = rng.choice([*ON_SECRETS, "mul"])
        factor = 10.0 ** rng.uniform(-6, 3, 4) * rng.choice([-1, 1], 4)
        out.steps.append((str(kind), int(rng.integers(0, 8)), int(rng.integers(0, 8)), factor))
    return out


def applied(
    kind: str, a: Node, b: Node, factor: np.ndarray
) -> tuple[np.ndarray, np.ndarray, float]:
    """One step in float64: values, errors that the operands pass on, largest magnitude."""
    x, y, ex, ey, sizes = a.values, b.values, a.error, b.error, abs(factor)
    if (
        kind in ("mul", "dot", "square")
        and a.largest * (a if kind == "square" else b).largest > 2.0**44
    ):
        # Operands of products that two limbs cannot hold lose fractional bits, but 10.
        ex, ey = ex + 2.0**-10, ey + 2.0**-10
    product = abs(x) * ey + abs(y) * ex + ex * ey
    # Public factors keep 12 bits at least; values above 2^44 lose some before they meet one.
    rounded = ex + abs(x) * 2e-4 + 2.0 ** -min(16, math.floor(58 - math.log2(a.largest)))
    if kind in ("add", "sub"):
        return x + y if kind == "add" else x - y, ex + ey, a.largest + b.largest
    if kind == "shift":
        return x + factor, ex, a.largest + sizes.max()
    if kind == "mul":
        return x * y, product, a.largest * b.largest
    if kind == "dot":
        return np.full(4, x @ y), np.full(4, product.sum()), 4 * a.largest * b.largest
    if kind == "square":
        return x * x, 2 * abs(x) * ex + ex * ex, a.largest**2
    if kind == "scale":
        return x * factor, rounded * sizes, a.largest * sizes.max()
    if kind == "quotient":
        return x / factor, rounded / sizes, a.largest / sizes.min()
    if kind == "mean":
        return np.full(4, x.mean()), np.full(4, rounded.mean()), a.largest
    if kind == "max":
        return np.full(4, x.max()), np.full(4, ex.max()), a.largest
    return x.clip(0), ex, a.largest


def in_float64(expression: Expression) -> Node:
    """The last value, with the error that it may have."""
    stack = [
        Node("x", values, np.full(4, 2.0**-17), bound, bound) for values, bound in expression.inputs
    ]
    for kind, i, j, factor in expression.steps:
        a, b = stack[i % len(stack)], stack[j % len(stack)]
        values, error, largest = applied(kind, a, b, factor)
        place = 2.0 ** -min(16, math.floor(62 - math.log2(max(largest, 1.0)) - 1))
        widest = max(a.widest, b.widest, largest)
        # Beside large numbers a public factor is split into many limbs, each with a rounding of its own.
        limbs = kind in ("scale", "quotient", "mean") and a.largest > 2.0**36
        stack.append(Node(kind, values, error + (20 if limbs else 2) * place, largest, widest))
    return stack[-1]


ON_SECRETS = {
    "add": lambda a, b, public: a + b,
    "sub": lambda a, b, public: a - b,
    "shift": lambda a, b, public: a + public,
    "mul": lambda a, b, public: a * b,
    "dot": lambda a, b, public: (a.reshape(1, 4) @ b.reshape(4, 1)).reshape(1).expand(4),
    "square": lambda a, b, public: a.square(),
    "scale": lambda a, b, public: a * public,
    "quotient": lambda a, b, public: a / public,
    "mean": lambda a, b, public: a.mean(0, keepdim=True).expand(4),
    "max": lambda a, b, public: a.amax(0, keepdim=True).expand(4),
    "relu": lambda a, b, public: a.relu(),
}


def on_secrets(party, expression: Expression) -> np.ndarray:
    """The same on shares."""
    stack = [
        party.secret(values, owner=number % party.parties, shape=(4,), bound=bound)
        for number, (values, bound) in enumerate(expression.inputs)
    ]
    for kind, i, j, factor in expression.steps:
        a, b = stack[i % len(stack)], stack[j % len(stack)]
        stack.append(ON_SECRETS[kind](a, b, torch.from_numpy(factor)))
    return stack[-1].reveal().numpy()


def outcomes(count: int, seed: int, parties: int = 1) -> tuple[int, int]:
    """Expressions that could be computed, and those of them that were refused; wrong ones fail here."""
    rng = np.random.default_rng(seed)
    expressions = [drawn(rng) for _ in range(count)]

    def main(party):
        results = []
        for each in expressions:
            try:
                results.append(on_secrets(party, each))
            except RangeError:
                results.append(None)
        return results

    feasible = refused = 0
    for expression, got in zip(expressions, simulate(parties, main)[0], strict=True):
        node = in_float64(expression)
        feasible += node.widest < WIDEST
        refused += node.widest < WIDEST and got is None
        if got is not None:
            wrong = np.abs(got - node.values) > node.error
            assert not wrong.any(), (expression, got, node)
    return feasible, refused


def test_random_expressions_are_right_or_refused():
    # One party runs the same protocols in the same ring, in a fifth of the time.
    totals = np.add(outcomes(450, seed=11), outcomes(50, seed=12, parties=2))
    assert totals[0] > 250
    assert totals[1] <= 0.05 * totals[0]


@pytest.mark.full
def test_a_hundred_thousand_random_expressions():
    totals = np.sum([outcomes(5000, seed=100 + part) for part in range(20)], axis=0)
    assert totals[1] <= 0.05 * totals[0]


PATIENTS = [[310000.0, 135.0, 0.9, 38.5], [30400.0, 140.0, 1.1, 36.0]]
MEANS, DEVIATIONS = [250000.0, 138.0, 1.1, 37.0], [90000.0, 5.0, 0.4, 0.7]


def tensor(values) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


# what is computed, values, their declared bound
CASES = {
    "standardized": (lambda x: (x - tensor(MEANS)) / tensor(DEVIATIONS), PATIENTS, 2.0**20),
    "divided": (
        lambda x: x / tensor([1e6, 1.0, 3.0]),
        [[1e6, 1e6, 1e6], [5.0, 1e-2, 7e5]],
        2.0**20,
    ),
    "scaled down": (lambda x: x * 1e-6, [1e6, 3e5], 2.0**20),
    "mean of many": (lambda x: x.mean(), [3.0] * 1_000_000, 1000.0),
    "squares": (lambda x: x * x, [40000.0, 0.5, -3.0], 2.0**16),
    "relu of squares": (lambda x: (x * x).relu(), [40000.0, 0.5], 2.0**16),
    "sum of squares": (lambda x: (x * x).sum(), [1000.0] * 3000, 1000.0),
    "half": (lambda x: x * 0.5, [1e13], 2.0**44),
    "scaled up": (lambda x: (x * 1e6).relu(), [5000.0, -1.0], 2.0**13),
    "powers": (lambda x: x**3, [3000.0, -2.0], 3000.0),
    "matrix": (lambda x: tensor([[1e5, 1e-5], [1.0, 1.0]]) @ x, [[1e3, 1.0], [1e3, 1e3]], 1e3),
    "columns": (lambda x: x @ tensor([[1e-5], [1.0]]), [[1e6, 1e-2]], 2.0**20),
    "differences": (lambda x: (x[:1] > x[1:]) * 1.0, [2.0**45.5, -(2.0**45.5)], 2.0**46),
}


@pytest.mark.parametrize("name", CASES)
def test_numbers_of_real_tables(name):
    call, values, bound = CASES[name]
    x = tensor(values)

    def main(party):
        return call(party.secret(x if party.rank == 0 else None, owner=0, bound=bound)).reveal()

    torch.testing.assert_close(simulate(2, main)[1], call(x).double(), rtol=1e-3, atol=2.0**-14)


SMALL = torch.tensor([[0.012, -0.0004, 0.031], [0.0002, 0.05, -0.02]], dtype=torch.float64)
TINY = {
    "squares": lambda x: x * x,
    "square": lambda x: x.square(),
    "variance": lambda x: ((x - x.mean(0)) ** 2).mean(0),
    "down and up": lambda x: x * 1e-9 * 1e9,
    "divided": lambda x: x / 1e6 * 1e6,
    "a small number": lambda x: x * 1e-3 + 1e-6,
    "products": lambda x: x[0] * x[1] @ x[0],
}


@pytest.mark.parametrize("name", TINY)
def test_numbers_that_are_all_small_keep_their_bits(name):
    call = TINY[name]

    def main(party):
        return call(party.secret(SMALL, owner=0, bound=0.0625)).reveal()

    wanted = call(SMALL)
    got = simulate(2, main)[1]
    torch.testing.assert_close(got, wanted, rtol=0, atol=1e-3 * float(wanted.abs().max()))


def test_tables_and_arrays_of_any_layout_are_inputs():
    frame = pd.DataFrame({"age": [23, 45, 67], "dose": [0.5, 1.25, 2.0]})
    given = (frame, frame.to_numpy()[::-1], frame["dose"], np.array([[True], [False]]), [0.1, 3])

    def main(party):
        return [(party.secret(each, owner=0) + 0).reveal() for each in given]

    for each, got in zip(given, simulate(2, main)[1], strict=True):
        assert np.abs(got.numpy() - np.array(each, dtype=float)).max() <= 2.0**-17


@pytest.mark.parametrize(
    "wrong",
    [
        torch.tensor([1 + 2j]),
        np.array([2**64 - 1], dtype=np.uint64),
        torch.tensor([2**63], dtype=torch.uint64),
        pd.DataFrame({"name": ["a", "b"]}),
        [None, 1.0],
    ],
    ids=["complex", "unsigned", "unsigned tensor", "texts", "missing"],
)
def test_what_is_not_a_real_number_is_refused(wrong):
    def main(party):
        with pytest.raises(InputError) as refused:
            party.secret(wrong, owner=party.rank)
        return refused.value.code

    assert simulate(1, main) == ["invalid-value"]


def test_clamps_with_crossed_ends_and_kernels_beyond_their_image_are_those_of_torch():
    x = torch.linspace(-3, 3, 9)

    def main(party):
        shared = party.secret(x, owner=0, bound=4.0)
        image = shared.reshape(1, 1, 3, 3)
        for kernel in (torch.ones(1, 1, 4, 1), torch.ones(1, 1, 1, 5)):
            with pytest.raises(InputError) as refused:
                functions.conv2d(image, kernel)
            assert refused.value.code == "invalid-value"
        return shared.clamp(1.0, -1.0).reveal()

    torch.testing.assert_close(simulate(2, main)[0].float(), x.clamp(1.0, -1.0))


def test_values_beyond_their_bound_are_refused_by_their_owner():
    def main(party):
        party.secret([[1.0, 1024.0]] if party.rank == 0 else None, owner=0)

    with pytest.raises(InputError) as error:
        simulate(2, main)
    assert (error.value.code, error.value.place) == ("overflow", "input[0, 1]")


class Statistics(nn.Module):
    """Batch normalization with the statistics of a hospital, before a layer and after one."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.sum = nn.BatchNorm1d(4), nn.Linear(4, 3)
        self.last = nn.BatchNorm1d(3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.sum(self.first(x)))


class Scaled(nn.Module):
    """A layer whose rows and columns are of very different size."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


class Masks(nn.Module):
    """Public masks of all sorts."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.register_buffer("causal", nn.Transformer.generate_square_subsequent_mask(4))
        self.register_buffer("offset", torch.linspace(-2.0, 2.0, 16).reshape(4, 4))

    def forward(self, x: Tensor) -> Tensor:
        attend = nn.functional.scaled_dot_product_attention
        hidden = torch.tensor([True, False, False, False])
        if self.kind == "filled":
            return x.masked_fill(hidden, 3000.0)
        if self.kind == "filled below":
            return x.masked_fill(hidden, -5000.0).amax(-1)
        if self.kind == "maximum":
            return x.masked_fill(hidden, -math.inf).amax(-1)
        if self.kind == "softmax":
            return (x * 100.0).masked_fill(hidden, -math.inf).softmax(-1)
        if self.kind == "buffer":
            return attend(x, x, x, attn_mask=self.causal)
        if self.kind == "numbers":
            return attend(x, x, x, attn_mask=self.offset)
        return x.masked_fill(hidden, -math.inf)


def model_cases():
    torch.manual_seed(5)
    statistics, scaled = Statistics().eval(), Scaled().eval()
    with torch.no_grad():
        statistics.first.running_mean.copy_(tensor(MEANS))
        statistics.first.running_var.copy_(tensor(DEVIATIONS) ** 2)
        statistics.last.running_var.copy_(tensor([1e-4, 1.0, 1e4]))
        scaled.layer.weight.copy_(tensor([[1 / 90000, 0.2, 2.5, 1.4], [1e-5, 1e-5, 1e-5, 1e-5]]))
    patients = torch.tensor(PATIENTS * 2)
    yield "statistics", statistics, patients
    yield "rows and columns", scaled, patients
    for kind in ("filled", "filled below", "maximum", "softmax", "buffer", "numbers"):
        yield kind, Masks(kind), torch.randn(4, 4)


@pytest.mark.parametrize(
    ("module", "x"), [pytest.param(module, x, id=name) for name, module, x in model_cases()]
)
def test_models_with_numbers_of_very_different_size(module, x):
    def main(party):
        model = import_model(party, module, x, owner=1)
        return model(party.secret(x, owner=0, bound=2.0**19)).reveal()

    with torch.no_grad():
        expected = module.double()(x.double())
    module.float()
    torch.testing.assert_close(simulate(2, main)[0], expected, rtol=1e-3, atol=2e-3)


def test_minus_infinity_is_refused_where_it_would_be_a_number():
    def main(party):
        model = import_model(party, Masks("revealed"), torch.zeros(4, 4), owner=1)
        model(party.secret(torch.zeros(4, 4), owner=0)).reveal()

    with pytest.raises(RangeError):
        simulate(2, main)


@pytest.mark.parametrize(
    ("deviation", "bound"),
    [(0.01, 0.05), (0.01, 1024.0), (0.01, 8192.0), (100.0, 500.0), (1000.0, 8192.0)],
)
def test_norms_of_small_and_large_rows(deviation, bound):
    x = (
        torch.randn(4, 96, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
        * deviation
    )

    def main(party):
        shared = party.secret(x if party.rank == 0 else None, owner=0, bound=bound)
        norms = functions.layer_norm(shared, (96,)), functions.rms_norm(shared, (96,))
        return [each.reveal() for each in norms]

    f = torch.nn.functional
    wanted = f.layer_norm(x, (96,)), f.rms_norm(x, (96,), eps=1e-5)
    for got, want in zip(simulate(2, main)[0], wanted, strict=True):
        assert (got - want).abs().max() < 2.0**-9 + 2.0**-14 / deviation


def test_rows_that_are_too_small_beside_their_bound_are_refused():
    def main(party):
        x = party.secret(torch.eye(8) * 1e-3 if party.rank == 0 else None, owner=0, bound=2.0**30)
        functions.layer_norm(x, (8,)).reveal()

    with pytest.raises(RangeError):
        simulate(2, main)
