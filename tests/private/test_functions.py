"""Every function over its whole domain against float64, and what happens outside."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import special

from holdfast.private.mpc import functions
from holdfast.private.mpc.launch import simulate
from holdfast.private.mpc.ring import RangeError

POINTS = 3000
ULP = 2.0**-16


def line(low, high):
    return np.linspace(low, high, POINTS)


def powers(low, high):
    return 2.0 ** np.linspace(low, high, POINTS)


def signs():
    return np.where(np.arange(POINTS) % 2, 1.0, -1.0)


# name: function, reference, points, largest relative error, largest absolute error
CASES = {
    "exp": (functions.exp, np.exp, line(-40, 15.87), 2.0**-12, 2 * ULP),
    "sigmoid": (functions.sigmoid, special.expit, line(-40, 40), 0, 2.0**-10),
    "tanh": (functions.tanh, np.tanh, line(-40, 40), 0, 2.0**-10),
    "erf": (functions.erf, special.erf, line(-40, 40), 0, 2.0**-10),
    "gelu": (functions.gelu, lambda x: x * special.ndtr(x), line(-1000, 1000), 0, 2.0**-10),
    "gelu near 0": (functions.gelu, lambda x: x * special.ndtr(x), line(-6, 6), 0, 2.0**-10),
    "silu": (functions.silu, lambda x: x * special.expit(x), line(-40, 40), 0, 2.0**-10),
    "reciprocal": (functions.reciprocal, lambda x: 1 / x, powers(-10, 20), 2.0**-14, 2 * ULP),
    "quotient": (lambda x: 1 / x, lambda x: 1 / x, powers(-10, 20) * signs(), 2.0**-14, 2 * ULP),
    "rsqrt": (functions.rsqrt, lambda x: x**-0.5, powers(-10, 20), 2.0**-14, 2 * ULP),
    "sqrt": (functions.sqrt, np.sqrt, np.append(powers(-16, 20), 0), 2.0**-14, 2 * ULP),
    "log": (functions.log, np.log, powers(-10, 20), 0, 2.0**-14),
}


@pytest.mark.parametrize("name", CASES)
def test_largest_error_over_the_domain(name):
    call, reference, points, relative, absolute = CASES[name]
    points = np.round(points / ULP) * ULP  # what the encoding holds

    def main(party):
        x = party.secret(points if party.rank == 0 else None, owner=0, bound=2.0**20)
        return call(x).reveal().numpy()

    wanted = reference(points)
    error = np.abs(simulate(2, main)[1] - wanted)
    worst = np.argmax(error - relative * np.abs(wanted))
    assert error[worst] <= absolute + relative * abs(wanted[worst]), points[worst]


@pytest.mark.parametrize("bits", [8, 12, 20, 26])
def test_functions_at_other_precisions(bits):
    x = np.round(np.linspace(0.5, 3, 200) * 2**bits) / 2**bits
    calls = {
        "exp": np.exp, "reciprocal": lambda x: 1 / x, "rsqrt": lambda x: x**-0.5, "log": np.log,
        "gelu": lambda x: x * special.ndtr(x), "tanh": np.tanh,
    }  # fmt: skip

    def main(party):
        secret = party.secret(x if party.rank == 0 else None, owner=0)
        return {name: getattr(functions, name)(secret).reveal().numpy() for name in calls}

    for name, got in simulate(2, main, fraction_bits=bits)[0].items():
        wanted = calls[name](x)
        limit = 2.0**-10 + (2.0**-12 + 3 * 2.0**-bits) * np.abs(wanted).max()
        assert np.abs(got - wanted).max() < limit, name


# name: function, reference, a point within each end of its domain, a point 10 % beyond each
ENDS = {
    "exp": (functions.exp, np.exp, (-16, 15.87), (-17.6, 17.4)),
    "log": (functions.log, np.log, (2.0**-10, 2.0**20), (0.9 * 2.0**-10, 1.1 * 2.0**20)),
    "reciprocal": (
        functions.reciprocal, lambda x: 1 / x, (2.0**-10, 2.0**20), (0.9 * 2.0**-10, 1.1 * 2.0**20),
    ),
    "quotient": (
        lambda x: 1 / x, lambda x: 1 / x, (-(2.0**20), 2.0**-10), (-1.1 * 2.0**20, 0.0),
    ),
    "rsqrt": (
        functions.rsqrt, lambda x: x**-0.5, (2.0**-10, 2.0**20), (0.9 * 2.0**-10, 1.1 * 2.0**20),
    ),
    "sqrt": (functions.sqrt, np.sqrt, (0.0, 2.0**20), (-0.1, 1.1 * 2.0**20)),
    "gelu": (functions.gelu, lambda x: x * special.ndtr(x), (-(2.0**40), 2.0**40), (-2e9, 2e9)),
    "sigmoid": (functions.sigmoid, special.expit, (-(2.0**40), 2.0**40), (-2e9, 2e9)),
}  # fmt: skip


@pytest.mark.parametrize("name", ENDS)
def test_beyond_both_ends_of_a_domain_a_function_is_right_or_refused(name):
    call, reference, inside, outside = ENDS[name]

    def at(point):
        def main(party):
            x = party.secret([point, 1.0] if party.rank == 0 else None, owner=0, bound=2.0**41)
            before = party.channel.ledger.rows.get(("", "reveal"))
            try:
                return call(x).reveal().tolist()
            except RangeError as error:  # no share of the value has moved
                assert party.channel.ledger.rows.get(("", "reveal")) == before
                return error.op

        return simulate(2, main)[0]

    for point in inside:
        assert at(point)[0] == pytest.approx(reference(point), rel=2e-3, abs=2e-3), point
    for point in outside:
        got = at(point)
        refused = isinstance(got, str) and name.replace("quotient", "reciprocal") in got
        assert refused or got[0] == pytest.approx(reference(point), rel=2e-3, abs=2e-3), (
            point,
            got,
        )


def test_softmax_and_norms_match_numpy():
    rng = np.random.default_rng(7)
    scores = rng.normal(size=(20, 10)) * np.geomspace(0.1, 100, 20)[:, None]
    rows = rng.normal(size=(8, 96)) * np.geomspace(0.1, 30, 8)[:, None] + 5
    weight, bias = rng.normal(size=(2, 96))
    query, key, value = rng.normal(size=(3, 2, 6, 8))
    hidden = np.tril(np.ones((6, 6), dtype=bool))

    def main(party):
        owned = [
            party.secret(each if party.rank == 0 else None, owner=0)
            for each in (scores, rows, query, key, value)
        ]
        a, b, q, k, v = owned
        before = party.channel.round
        softmax = functions.softmax(a)
        rounds = party.channel.round - before
        return rounds, [
            each.reveal().numpy()
            for each in (
                softmax,
                functions.log_softmax(a[:8]),
                functions.layer_norm(b, (96,), torch.from_numpy(weight), torch.from_numpy(bias)),
                functions.rms_norm(b, (96,), torch.from_numpy(weight)),
                functions.attention(q, k, v, torch.from_numpy(hidden)),
            )
        ]

    rounds, got = simulate(2, main)[0]
    tensors = [torch.from_numpy(each) for each in (scores, rows, query, key, value)]
    f = torch.nn.functional
    wanted = [
        f.softmax(tensors[0], -1),
        f.log_softmax(tensors[0][:8], -1),
        f.layer_norm(tensors[1], (96,), torch.from_numpy(weight), torch.from_numpy(bias)),
        f.rms_norm(tensors[1], (96,), torch.from_numpy(weight), 1e-5),
        f.scaled_dot_product_attention(*tensors[2:], attn_mask=torch.from_numpy(hidden)),
    ]
    assert rounds <= 40
    for one, other in zip(got, wanted, strict=True):
        assert np.abs(one - other.numpy()).max() < 3e-3


def test_layers_match_torch():
    torch.manual_seed(8)
    x, w = torch.randn(2, 4, 9, 9), torch.randn(6, 2, 3, 3)
    index, table = torch.tensor([[0, 5], [10, 3]]), torch.randn(11, 7)
    f = torch.nn.functional

    def main(party):
        a = party.secret(x if party.rank == 0 else None, owner=0)
        b = party.secret(w if party.rank == 1 else None, owner=1)
        tokens = party.secret(index if party.rank == 0 else None, owner=0)
        weight = party.secret(table if party.rank == 1 else None, owner=1)
        results = [
            functions.conv2d(a, b, torch.ones(6), 2, 1, 1, 2),
            functions.max_pool2d(a, 3, 2, 1),
            functions.avg_pool2d(a, 3, 2, 1),
            functions.embedding(tokens, weight),
            functions.where(a > 0, a, 0.5),
            functions.clamp(a, -0.5, 0.25),
            functions.cat([a, a[:1] * 2.0], 0),
            functions.stack([a, a], 1),
            a.pad((1, 2), 3.0),
        ]
        return [each.reveal() for each in results]

    wanted = [
        f.conv2d(x, w, torch.ones(6), 2, 1, 1, 2),
        f.max_pool2d(x, 3, 2, 1),
        f.avg_pool2d(x, 3, 2, 1),
        table[index],
        torch.where(x > 0, x, 0.5),
        x.clamp(-0.5, 0.25),
        torch.cat([x, x[:1] * 2]),
        torch.stack([x, x], 1),
        f.pad(x, (1, 2), value=3.0),
    ]
    for one, other in zip(simulate(2, main)[0], wanted, strict=True):
        assert (one - other).abs().max() < 2e-3


@pytest.mark.parametrize(
    "call",
    [
        lambda x: functions.exp(x * 4.0),
        lambda x: functions.log(x - 6.0),
        lambda x: functions.reciprocal(x * 0.0),
        lambda x: (x * 2.0**14).square() * (x * 2.0**14),
        lambda x: (x * 2.0**20) @ (x * 2.0**20),
        lambda x: functions.one_hot(x.argmax(-1) + 3, 3),
        lambda x: x.within((-4.0, 4.5)),
    ],
)
def test_what_leaves_its_domain_is_named(call):
    def main(party):
        x = party.secret(torch.full((3, 3), 5.0) if party.rank == 0 else None, owner=0)
        with party.channel.scope("here", module="block.2"):
            y = call(x)
        y.reveal()

    with pytest.raises(RangeError) as error:
        simulate(2, main)
    assert error.value.op.startswith("block.2")
