"""Public masks with minus infinity: as torch computes in float64, or refused before anything is sent."""

from __future__ import annotations

import math

import pytest
import torch
from torch import tensor

from holdfast.errors import InputError
from holdfast.private.mpc import functions
from holdfast.private.mpc.launch import simulate
from holdfast.private.mpc.ring import RangeError
from holdfast.private.mpc.training import save_checkpoint

INF = math.inf
FAR = tensor([150.0, 200.0], dtype=torch.float64)
NEAR = tensor([0.3, 0.9], dtype=torch.float64)
LAST = tensor([0.0, -INF], dtype=torch.float64)
ROWS = tensor([[1.0, 2, 3, 4], [4, 3, 2, 1], [0, 0, 0, 0]], dtype=torch.float64)
FIRST_ROW = torch.zeros(3, 4, dtype=torch.float64).index_fill(0, tensor(0), -INF)
FIRST_COLUMN = torch.zeros(3, 4, dtype=torch.float64).index_fill(1, tensor(0), -INF)


def revealed(function, *inputs, bound=1000.0):
    """What a function of secrets reveals; `bound`: of the first, that of the others is 1,000."""

    def main(party):
        bounds = [bound] + [1000.0] * (len(inputs) - 1)
        secrets = [
            party.secret(x, owner=0, bound=limit) for x, limit in zip(inputs, bounds, strict=True)
        ]
        return function(*secrets).reveal()

    return simulate(2, main)[0]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: functions.softmax(x),
        lambda x: functions.log_softmax(x),
        lambda x: functions.softmax(x[None].transpose(1, 2), 1),
        lambda x: x.amax(-1),
        lambda x: x.argmax(-1),
        lambda x: x.max(1)[0],
        lambda x: functions.cat([x, x], 1).amax(1),
        lambda x: functions.softmax((x + LAST.repeat(2)) + LAST.flip(0).repeat(2)),
    ],
)
def test_a_row_of_masks_is_refused_before_anything_is_sent(function):
    def main(party):
        x = party.secret(ROWS, owner=0, shape=ROWS.shape) + FIRST_ROW
        before = party.channel.round
        with pytest.raises(RangeError):
            function(x)
        return party.channel.round - before

    assert simulate(2, main) == [0, 0]


@pytest.mark.parametrize(
    ("function", "mask"),
    [
        (lambda x: x.softmax(0), FIRST_ROW),
        (lambda x: x.amax(0), FIRST_ROW),
        (lambda x: x.argmax(0), FIRST_ROW),
        (lambda x: x.amax(), FIRST_ROW),
        (lambda x: x.softmax(1), FIRST_COLUMN),
        (lambda x: x.argmax(1), FIRST_COLUMN),
        (lambda x: x[1:].softmax(1), FIRST_ROW),
    ],
)
def test_masks_along_another_dimension_or_on_a_part(function, mask):
    expected = function(ROWS + mask)
    out = revealed(lambda x: function(x + mask), ROWS)
    torch.testing.assert_close(out.double(), expected.double(), rtol=0, atol=1e-3)


@pytest.mark.parametrize("kind", [torch.bool, torch.float64])
@pytest.mark.parametrize("per_batch", [False, True])
def test_a_query_that_sees_no_key_gets_zeros(kind, per_batch):
    torch.manual_seed(3)
    inputs = [torch.randn(2, n, 4, dtype=torch.float64) for n in (3, 4, 4)]
    seen = torch.ones(2 if per_batch else 1, 3, 4, dtype=torch.bool)
    seen[0, 0] = False
    seen[-1, 1, :3] = False
    mask = seen if kind == torch.bool else torch.zeros(seen.shape).masked_fill(~seen, -INF)
    weights = (inputs[0] @ inputs[1].mT / 2).masked_fill(~seen, -INF).softmax(-1)
    out = revealed(lambda *each: functions.attention(*each, mask=mask), *inputs)
    torch.testing.assert_close(out, weights.nan_to_num(0.0) @ inputs[2], rtol=0, atol=2e-3)
    assert bool((out[0, 0] == 0).all())


def test_attention_takes_a_mask_or_is_causal():
    with pytest.raises(InputError) as caught:
        revealed(
            lambda x: functions.attention(
                x, x, x, mask=tensor([[False, True, True]]), is_causal=True
            ),
            torch.zeros(1, 3, 4),
        )
    assert caught.value.code == "conflict"


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x: x.relu(), [150, 0]),
        (lambda x: x.sigmoid(), [1, 0]),
        (lambda x: x.tanh(), [1, -1]),
        (lambda x: x.sign(), [1, -1]),
        (lambda x: x >= -2000, [1, 0]),
        (lambda x: x.clamp(min=-2000.0), [150, -2000]),
        (lambda x: x.clamp(-2000.0, 120.0), [120, -2000]),
        (lambda x: functions.exp(x - 160), [math.exp(-10), 0]),
    ],
)
def test_functions_of_masked_numbers_that_are_all_large(function, expected):
    out = revealed(lambda x: function(x + LAST), FAR, bound=(100.0, 200.0))
    assert out.tolist() == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.clamp(max=175.0),
        lambda x: x.within(5000.0),
        lambda x: x * 0,
        lambda x: functions.reciprocal(x, signed=True),
        lambda x: functions.max_pool2d(x[None, None, None], (1, 2)),
        lambda x: x - 1,
    ],
)
def test_masked_numbers_are_refused(function):
    with pytest.raises(RangeError):
        revealed(lambda x: function(x + LAST), FAR)


def test_masked_numbers_are_not_saved(tmp_path):
    def main(party):
        x = party.secret(FAR, owner=0) + LAST
        save_checkpoint(tmp_path / str(party.rank), {"x": x}, bytes(16))

    with pytest.raises(RangeError):
        simulate(2, main)


@pytest.mark.parametrize(
    ("masked", "expected"),
    [
        (lambda x, y: (x + LAST) + tensor([0.0, 900.0]), [1, 0]),
        (lambda x, y: (x.tile(2) + LAST.tile(2)) + tensor([0.0, 900, 0, -INF]), [0.5, 0, 0.5, 0]),
        (lambda x, y: y * tensor([0.0, -1.0]) + (x + LAST), [1, 0]),
        (lambda x, y: functions.cat([x + LAST - 950, y]), [0, 0, 1, 0]),
        (lambda x, y: functions.cat([x + -INF, y[:1]]), [0, 0, 1]),
    ],
)
def test_masks_stay_below_what_is_added_or_joined_later(masked, expected):
    y = tensor([-900.0, -920.0])
    out = revealed(lambda x, y: functions.softmax(masked(x, y)), NEAR, y, bound=(0.0, 1.0))
    assert out.tolist() == pytest.approx(expected, abs=1e-3)
