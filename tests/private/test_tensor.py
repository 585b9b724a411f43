"""Shapes, conversions and misuse of shared tensors."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from holdfast.errors import InputError
from holdfast.private.mpc import crypten, functions
from holdfast.private.mpc.launch import simulate


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
