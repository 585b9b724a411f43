"""Every function over its whole domain against float64, and what happens outside."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from holdfast.errors import InputError
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


# --- Layers of any geometry, and their gradients, against torch in float64 -------------------------


@st.composite
def geometries(draw, *, groups):
    """Sizes that torch takes: kernel, stride, padding, dilation, channels, image."""
    kernel, stride, padding, dilation = (
        tuple(draw(st.integers(low, high)) for _ in range(2))
        for low, high in ((1, 3), (1, 3), (0, 2), (1, 2))
    )
    many = draw(st.sampled_from([1, 2, 3])) if groups else 1
    spans = [d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True)]
    size = [
        max(1, span - 2 * pad) + draw(st.integers(0, 4))
        for span, pad in zip(spans, padding, strict=True)
    ]
    channels = many * draw(st.integers(1, 2))
    return kernel, stride, padding, dilation, many, (draw(st.integers(1, 2)), channels, *size)


def with_gradients(layer, plain, *inputs):
    """The largest difference between a layer and torch's: results, and gradients by each input."""

    def main(party):
        shared = [party.secret(each, owner=0, bound=4.0) for each in inputs]
        for each in shared:
            each.requires_grad = True
        out = layer(*shared)
        (out * out).backward()
        return [out.reveal(), *(each.grad.reveal() for each in shared)]

    leaves = [each.clone().requires_grad_() for each in inputs]
    wanted = plain(*leaves)
    wanted.square().sum().backward()
    got = simulate(1, main)[0]
    assert [each.shape for each in got] == [wanted.shape, *(each.shape for each in inputs)]
    differences = zip(got, [wanted.detach(), *(each.grad for each in leaves)], strict=True)
    return max(float((a - b).abs().max()) / max(1.0, float(b.abs().max())) for a, b in differences)


@given(geometries(groups=True), st.booleans())
@pytest.mark.examples(15)
def test_convolutions_of_any_geometry_are_those_of_torch(geometry, bias):
    kernel, stride, padding, dilation, groups, size = geometry
    generator = torch.Generator().manual_seed(sum(size))
    x, w, b = (
        torch.rand(each, generator=generator, dtype=torch.float64) - 0.5
        for each in (size, (2 * groups, size[1] // groups, *kernel), (2 * groups,))
    )
    options = (stride, padding, dilation, groups)
    given_ = (x, w, b) if bias else (x, w)
    assert with_gradients(
        lambda x, w, b=None: functions.conv2d(x, w, b, *options),
        lambda x, w, b=None: torch.nn.functional.conv2d(x, w, b, *options),
        *given_,
    ) < 1e-3  # fmt: skip
    line = [each[0] if each[0] else 0 for each in (stride, padding, dilation)]
    assert with_gradients(
        lambda x, w: functions.conv1d(x, w, None, *line, groups),
        lambda x, w: torch.nn.functional.conv1d(x, w, None, *line, groups),
        x[..., 0], w[..., 0],
    ) < 1e-3  # fmt: skip


@given(geometries(groups=False), st.booleans())
@pytest.mark.examples(15)
def test_pools_of_any_geometry_are_those_of_torch(geometry, usual):
    kernel, stride, padding, dilation, _, size = geometry
    x = (
        torch.rand(size, generator=torch.Generator().manual_seed(sum(size)), dtype=torch.float64)
        - 0.5
    )
    strides = None if usual else stride
    spans = [d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True)]
    half = [min(pad, k // 2) for pad, k in zip(padding, kernel, strict=True)]
    if all(n + 2 * p >= span for n, p, span in zip(size[2:], half, spans, strict=True)):
        options = (kernel, strides, half, dilation)
        if torch.nn.functional.max_pool2d(x, *options).isinf().any():  # a window without a pixel
            with pytest.raises(InputError):
                simulate(1, lambda party: functions.max_pool2d(party.public(x), *options))
        else:
            assert with_gradients(
                lambda x: functions.max_pool2d(x, *options),
                lambda x: torch.nn.functional.max_pool2d(x, *options), x,
            ) < 1e-3  # fmt: skip
    if all(n + 2 * p >= k for n, p, k in zip(size[2:], half, kernel, strict=True)):
        assert with_gradients(
            lambda x: functions.avg_pool2d(x, kernel, strides, half),
            lambda x: torch.nn.functional.avg_pool2d(x, kernel, strides, half), x,
        ) < 1e-3  # fmt: skip


@pytest.mark.parametrize(
    "call",
    [
        lambda x: functions.max_pool2d(x, 2, 1, 2),
        lambda x: functions.max_pool2d(x, (1, 3), 1, (1, 1)),
        lambda x: functions.max_pool2d(x, (2, 1), 1, (1, 0), (5, 1)),
        lambda x: functions.max_pool2d(x, 2, 0),
        lambda x: functions.avg_pool2d(x, 0),
        lambda x: functions.avg_pool2d(x, 2, (0, 1)),
        lambda x: functions.avg_pool2d(x, 5),
        lambda x: functions.avg_pool2d(x[0], 2),
        lambda x: functions.conv2d(x, torch.ones(1, 1, 2, 2), None, 0),
        lambda x: functions.conv2d(x, torch.ones(1, 1, 2, 2), None, 1, -1),
        lambda x: functions.conv2d(x, torch.ones(1, 1, 2, 2), None, 1, 0, 0),
        lambda x: functions.conv2d(x, torch.ones(1, 1, 2, 2), None, 1, 0, -1),
        lambda x: functions.conv2d(x, torch.ones(1, 1, 6, 2)),
        lambda x: functions.conv2d(x[0], torch.ones(1, 1, 2, 2)),
        lambda x: functions.conv1d(x[0, 0], torch.ones(1, 4, 2)),
        lambda x: functions.conv1d(x, torch.ones(1, 1, 2)),
    ],
)
def test_windows_that_no_image_has_are_refused(call):
    def main(party):
        call(party.public(torch.ones(1, 1, 4, 4)))

    with pytest.raises(InputError) as error:
        simulate(1, main)
    assert error.value.code == "invalid-value"


# --- Softmax and normalizations: what holds of any input -------------------------------------------

rows = st.lists(st.floats(-500, 500), min_size=1, max_size=6)


@given(st.lists(rows, min_size=1, max_size=3), st.floats(-400, 400))
@pytest.mark.examples(8)
def test_softmax_adds_up_and_does_not_see_what_is_added_to_all(lists, shift):
    width = min(map(len, lists))
    x = torch.tensor([each[:width] for each in lists], dtype=torch.float64)

    def main(party):
        a = party.secret(x, owner=0, bound=1000.0)
        outs = [functions.softmax(a), functions.softmax(a + shift), functions.softmax(a.T, 0).T]
        return [each.reveal() for each in (*outs, functions.log_softmax(a))]

    plain, moved, turned, logs = simulate(1, main)[0]
    exact = x.softmax(-1)
    for each in (plain, moved, turned):
        assert (each - exact).abs().max() <= 2.0**-11
        assert (each.sum(-1) - 1).abs().max() <= width * 2.0**-11
        assert each.min() >= -(2.0**-14)
    assert (logs - x.log_softmax(-1)).abs().max() <= 2.0**-11


@pytest.mark.quick(4)
@pytest.mark.parametrize(
    "name", ["reciprocal", "log", "exp", "erf", "rsqrt", "sqrt", "sigmoid", "tanh"]
)
def test_functions_of_one_number_do_not_depend_on_what_is_beside_it(name):
    """Alone, in a batch, between tiny and huge ones, by three parties or without a dealer."""
    exact = {
        "reciprocal": lambda x: 1 / x, "rsqrt": lambda x: x**-0.5, "sqrt": mpmath.sqrt,
        "log": mpmath.log, "exp": mpmath.exp, "tanh": mpmath.tanh, "erf": mpmath.erf,
        "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
    }[name]  # fmt: skip
    value = 2.71875

    def main(party):
        alone = party.secret([value], owner=0, bound=16.0)
        many = party.secret([[2.0**-10, value], [15.0, 1.0]], owner=0, bound=16.0)
        batch = party.secret([value] * 100, owner=0, bound=16.0)
        results = [getattr(functions, name)(each).reveal() for each in (alone, many, batch)]
        return [results[0][0], results[1][0, 1], *results[2]]

    limit = (
        2.0**-10 if name in ("sigmoid", "tanh", "erf") else 2.0**-12 * abs(exact(value)) + 2.0**-13
    )
    for parties, settings in (
        (1, {}),
        (3, {}),
        (3, {"mode": "replicated3"}),
        (2, {"comparison": "dcf"}),
    ):
        got = simulate(parties, main, **settings)[0]
        assert max(abs(float(each) - float(exact(value))) for each in got) <= limit


def test_clamps_and_choices_are_those_of_numpy_at_every_order_of_ends():
    x = torch.tensor([-5.0, -1.0, -0.0, 0.5, 1.0, 7.0])
    ends = [(-1, 1), (0, 0), (None, 0.5), (-2, None), (None, None), (-9, 9), (1, -1), (-np.inf, 3)]

    def main(party):
        a = party.secret(x, owner=0, bound=8.0)
        outs = [a.clamp(*each).reveal() for each in ends]
        return outs, functions.maximum(a, -a).reveal(), functions.minimum(a, 0.25).reveal()

    clamped, larger, smaller = simulate(1, main)[0]
    for each, (low, high) in zip(clamped, ends, strict=True):
        wanted = np.clip(x.numpy(), low, high) if (low, high) != (None, None) else x.numpy()
        assert np.abs(each.numpy() - wanted).max() <= 2.0**-15
    assert (larger - x.abs()).abs().max() <= 2.0**-15
    assert (smaller - x.clamp(max=0.25)).abs().max() <= 2.0**-15
