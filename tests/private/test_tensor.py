"""Shapes, conversions and misuse of shared tensors."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from holdfast.errors import InputError
from holdfast.private.mpc import crypten, functions
from holdfast.private.mpc.launch import simulate
from holdfast.private.mpc.ring import RangeError


@pytest.mark.parametrize("kind", ["tree", "dcf"])
@pytest.mark.parametrize("shape", [(), (0, 3), (1,), (2, 1, 3)])
def test_every_operation_takes_scalars_and_empty_tensors(shape, kind):
    values = torch.full(shape, 2.5)
    calls = functions.exp, functions.gelu, functions.log

    def main(party):
        x = party.secret(values if party.rank == 0 else None, owner=0)
        return [
            each.reveal() for each in (x + 1, x * x, x.relu(), x > 1, *(call(x) for call in calls))
        ]

    got = simulate(2, main, comparison=kind)[1]
    v = values.double()
    wanted = [v + 1, v * v, v, torch.ones(shape), v.exp(), torch.nn.functional.gelu(v), v.log()]
    for one, other in zip(got, wanted, strict=True):
        assert one.shape == other.shape
        assert torch.allclose(one.double(), other.double(), atol=5e-3)


def test_arrays_and_tensors_may_stand_on_the_left():
    def main(party):
        x = party.secret([1.0, -2.0, 4.0] if party.rank == 0 else None, owner=0)
        return [
            each.reveal().tolist()
            for each in (
                np.ones(3) + x,
                torch.ones(3) - x,
                torch.eye(3) @ x,
                np.eye(3) @ x,
                3 * x,
                True * x,
            )
        ]

    results = simulate(2, main)[0]
    assert results == [[2, -1, 5], [0, 3, -3], [1, -2, 4], [1, -2, 4], [3, -6, 12], [1, -2, 4]]


def test_views_move_shares_without_communication():
    values = torch.arange(24.0).reshape(2, 3, 4)

    def main(party):
        x = party.secret(values if party.rank == 0 else None, owner=0)
        before = party.channel.round
        views = [
            x.reshape(6, 4), x.flatten(1), x.permute(2, 0, 1), x.transpose(-1, 0), x.T, x[1, :, ::2],
            x[:, None].squeeze(1), x.unsqueeze(0).expand(5, 2, 3, 4), x.sum((0, 2)),
            x.mean(-1, keepdim=True),
        ]  # fmt: skip
        assert party.channel.round == before
        return [each.reveal() for each in views]

    v = values
    wanted = [
        v.reshape(6, 4), v.flatten(1), v.permute(2, 0, 1), v.transpose(-1, 0), v.mT, v[1, :, ::2],
        v, v[None].expand(5, 2, 3, 4), v.sum((0, 2)), v.mean(-1, keepdim=True),
    ]  # fmt: skip
    for one, other in zip(simulate(2, main)[1], wanted, strict=True):
        assert torch.allclose(one, other.double(), atol=1e-4)


def _bad_owner(party):
    party.secret([1.0], owner=2)


def _no_values(party):
    party.secret(None, owner=0, shape=(1,))


def _wrong_shape(party):
    party.secret([1.0, 2.0] if party.rank == 0 else None, owner=0, shape=(3,))


def _too_many_dimensions(party):
    party.secret(torch.zeros([1] * 9) if party.rank == 0 else None, owner=0)


def _condition(party):
    if party.secret([1.0] if party.rank == 0 else None, owner=0, shape=(1,)) > 0:
        pass


def _negative_power(party):
    _ = party.public([2.0]) ** -1


def _unknown_reader(party):
    party.public([2.0]).reveal(to=7)


def _other_party(party):
    _ = party.public([1.0]) + simulate(2, lambda other: other.public([1.0]))[0]


@pytest.mark.parametrize(
    ("misuse", "code"),
    [
        (_bad_owner, "invalid-value"),
        (_no_values, "invalid-value"),
        (_wrong_shape, "invalid-value"),
        (_too_many_dimensions, "invalid-value"),
        (_condition, "secret-condition"),
        (_negative_power, "unsupported"),
        (_unknown_reader, "invalid-value"),
        (_other_party, "conflict"),
        (lambda party: party.public([3.5]) / 0, "not-finite"),
        (lambda party: party.public([3.5]) * math.inf, "not-finite"),
        (lambda party: party.public([3.5, 1.0]) / torch.tensor([0, 1]), "not-finite"),
        (lambda party: party.public(torch.zeros(0)).mean(), "not-finite"),
        (lambda party: party.public(torch.zeros(0)).max(), "invalid-value"),
        (lambda party: party.public(torch.zeros(2, 0)).argmax(1), "invalid-value"),
        (lambda party: party.public([[3.5]]).sum(2), "invalid-value"),
        (lambda party: party.public([[3.5]]).mean(-3), "invalid-value"),
        (lambda party: party.public([3.5]).amax(1), "invalid-value"),
        (lambda party: party.public([3.5]).argmax(-2), "invalid-value"),
        (lambda party: party.public(3.5).max(1), "invalid-value"),
        (lambda party: party.public([3.5]).clamp(math.nan), "invalid-value"),
        (lambda party: party.public([3.5]).clamp(max=math.nan), "invalid-value"),
        (lambda party: party.public([3.5]) > math.nan, "not-finite"),
        (lambda party: party.public([3.5]).pad((1, 0), math.inf), "not-finite"),
        (lambda party: party.public([3.5]).within(math.nan), "invalid-value"),
        (lambda party: party.public([3.5]).within((4, 3)), "invalid-value"),
        (lambda party: party.secret([1.0], owner=0, bound=-2.0), "invalid-value"),
        (lambda party: party.secret([1.0], owner=0, bound=math.inf), "invalid-value"),
        (lambda party: party.secret([1.0], owner=0, fraction_bits=-1), "invalid-value"),
        (lambda party: party.secret([1.5], owner=0, shape=(1,), integer=True), "invalid-value"),
        (
            lambda party: party.secret([math.nan], owner=0, shape=(1,), integer=True),
            "invalid-value",
        ),
        (lambda party: functions.where(party.public([1.0]), 2.0, 3.0), "invalid-value"),
        (lambda party: functions.layer_norm(party.public([[1.0, 2.0]]), (3,)), "invalid-value"),
        (lambda party: functions.rms_norm(party.public([[1.0, 2.0]]), (1, 1)), "invalid-value"),
        (lambda party: crypten.init(party) or crypten.cryptensor([math.nan]), "not-finite"),
    ],
)
def test_misuse_is_refused(misuse, code):
    with pytest.raises(InputError) as error:
        simulate(2, misuse)
    assert error.value.code == code


@pytest.mark.parametrize(
    ("parties", "settings", "place"),
    [
        (2, {"mode": "trust-me"}, "mode"),
        (2, {"mode": "replicated3"}, "parties"),
        (2, {"fraction_bits": 30}, "fraction_bits"),
        (3, {"comparison": "dcf"}, "comparison"),
    ],
)
def test_settings_that_do_not_fit_are_refused(parties, settings, place):
    with pytest.raises(InputError) as error:
        simulate(parties, lambda party: None, **settings)
    assert (error.value.code, error.value.place) == ("invalid-value", place)


@pytest.mark.parametrize("kind", [">f8", "<f4", ">i4"])
def test_arrays_of_either_byte_order(kind):
    values = np.arange(3).astype(kind)
    out = simulate(2, lambda party: party.secret(values, owner=0).reveal())[0]
    assert out.tolist() == [0, 1, 2]


# A product and a sum of its parts, of vectors, matrices and batches of them.
OPERANDS = [
    ((3,), (3,)),
    ((3,), (3, 2)),
    ((2, 3), (3,)),
    ((3,), (4, 3, 2)),
    ((4, 2, 3), (3,)),
    ((4, 2, 3), (3, 2)),
    ((2, 3), (4, 3, 5)),
    ((2, 1, 2, 3), (4, 3, 2)),
    ((1, 1), (1,)),
    ((0, 3), (3, 2)),
]


@pytest.mark.parametrize("public", ["left", "right", "none"])
@pytest.mark.parametrize(("left", "right"), OPERANDS)
def test_products_of_vectors_and_matrices_have_the_gradients_of_torch(left, right, public):
    torch.manual_seed(len(left) + 10 * len(right))
    x, y = (torch.randn(shape, dtype=torch.float64) for shape in (left, right))

    def main(party):
        a, b = (party.secret(each, owner=0, bound=8.0) for each in (x, y))
        a.requires_grad = b.requires_grad = True
        out = (x if public == "left" else a) @ (y if public == "right" else b)
        out.backward()
        grads = [each.grad.reveal() for each, side in ((a, "left"), (b, "right")) if side != public]
        return out.reveal(), grads

    got, grads = simulate(1, main)[0]
    for each, side in ((x, "left"), (y, "right")):
        each.requires_grad_(side != public)
    wanted = x @ y
    wanted.sum().backward()
    torch.testing.assert_close(got, wanted.detach(), rtol=0, atol=1e-3)
    for one, other in zip(grads, [each for each in (x, y) if each.requires_grad], strict=True):
        torch.testing.assert_close(one, other.grad, rtol=0, atol=1e-3)


REDUCTIONS = {
    "sum": lambda x, **k: x.sum(**k),
    "mean": lambda x, **k: x.mean(**k),
    "amax": lambda x, **k: x.amax(**k),
    "amin": lambda x, **k: x.amin(**k),
}


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("shape", [(), (1,), (2, 3), (2, 1, 3)])
def test_reductions_take_the_dimensions_that_torch_takes(name, shape):
    torch.manual_seed(1)
    x = torch.randn(shape, dtype=torch.float64)
    n = max(len(shape), 1)
    ways = [{}, *({"dim": dim, "keepdim": keep} for dim in range(-n, n) for keep in (False, True))]
    ways += [{"dim": (0, -1)}, {"dim": (-1, 0), "keepdim": True}] if len(shape) > 1 else []

    def main(party):
        a = party.secret(x, owner=0, bound=8.0)
        return [REDUCTIONS[name](a, **each).reveal() for each in ways]

    for way, got in zip(ways, simulate(1, main)[0], strict=True):
        torch.testing.assert_close(got, REDUCTIONS[name](x, **way), rtol=0, atol=1e-4)


def test_integers_are_exact_as_pythons_are():
    values = [0, 1, -1, 3, 46341, -46341, 2**31 - 1, 1 - 2**31]
    x = torch.tensor(values)

    def main(party):
        a = party.secret(x, owner=0)
        b = party.secret(x.flip(0), owner=party.parties - 1)
        results = [a + b, a - b, a * b, a.square(), -a, a.sum(), a.relu(), a > b, a == b]
        results += [a * 3 - b * 5, a.max(), a.argmin(), a[2:5]]
        return [each.reveal().tolist() for each in results]

    y = values[::-1]
    pairs = list(zip(values, y, strict=True))
    wanted = [
        [a + b for a, b in pairs], [a - b for a, b in pairs], [a * b for a, b in pairs],
        [a * a for a in values], [-a for a in values], sum(values), [max(a, 0) for a in values],
        [int(a > b) for a, b in pairs], [int(a == b) for a, b in pairs],
        [3 * a - 5 * b for a, b in pairs], max(values), values.index(min(values)), values[2:5],
    ]  # fmt: skip
    for parties, settings in (
        (1, {}),
        (2, {"comparison": "dcf"}),
        (3, {}),
        (3, {"mode": "replicated3"}),
    ):
        assert simulate(parties, main, **settings)[0] == wanted


@pytest.mark.parametrize("code", [2, -1])
def test_a_condition_that_is_no_bit_is_refused_before_the_choice_is_seen(code):
    def main(party, bit):
        condition = party.secret([bit, 1], owner=0)
        return functions.where(condition, [5.0, 6.0], [7.0, 8.0]).reveal().tolist()

    assert simulate(2, lambda party: main(party, 0))[0] == [7.0, 6.0]
    with pytest.raises(RangeError) as error:
        simulate(2, lambda party: main(party, code))
    assert error.value.op == "within"


@pytest.mark.parametrize(
    "layout",
    [
        lambda x: x.T.contiguous().T,
        lambda x: x.repeat_interleave(2, 1)[:, ::2],
        lambda x: x.flip(0).flip(0),
        lambda x: x.to(torch.float32),
        lambda x: np.asfortranarray(x.numpy()),
        lambda x: x.numpy()[::-1][::-1],
        lambda x: x.tolist(),
    ],
)
def test_the_layout_of_an_input_changes_nothing(layout):
    x = torch.tensor([[0.5, -1.25, 3.0], [2.0, 0.0, -0.75]], dtype=torch.float64)

    def main(party):
        a = party.secret(layout(x), owner=0)
        return [each.reveal().tolist() for each in (a, a.T.reshape(-1), a @ a.T, a > 0)]

    wanted = [x.tolist(), x.T.reshape(-1).tolist(), (x @ x.T).tolist(), (x > 0).long().tolist()]
    got = simulate(2, main)[1]
    assert got[:2] + got[3:] == wanted[:2] + wanted[3:]
    assert np.abs(np.array(got[2]) - wanted[2]).max() <= 2.0**-15
