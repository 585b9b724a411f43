"""Encoding, and bilinear maps against torch's floating-point ones."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from holdfast.errors import InputError
from holdfast.private.mpc import ring


@pytest.mark.parametrize(
    ("values", "code", "place"),
    [
        ([[1.0, float("nan")]], "not-finite", "input[0, 1]"),
        ([1.0, 2.0, float("-inf")], "not-finite", "input[2]"),
        ([0.0, 2.0**46], "overflow", "input[1]"),
        (-(2.0**46), "overflow", "input[]"),
        (torch.tensor([5, 2**62]), "overflow", "input[1]"),
    ],
)
def test_values_that_cannot_be_represented_are_refused_with_their_index(values, code, place):
    with pytest.raises(InputError) as error:
        ring.encode(values, 16 if not isinstance(values, torch.Tensor) else 0)
    assert (error.value.code, error.value.place) == (code, place)


def test_encoding_rounds_to_the_nearest_and_keeps_integers():
    values = torch.tensor([0.1, -0.1, 3.0, -(2.0**45)], dtype=torch.float64)
    for bits in (8, 16):
        error = (ring.decode(ring.encode(values, bits), bits) - values).abs().max()
        assert error <= 2.0 ** -(bits + 1)
    assert ring.encode(torch.tensor([True, False]), 0).tolist() == [1, 0]


def test_products_wrap_around_as_integers_modulo_2_64():
    x = torch.tensor([[2**62 + 5, -7]])
    y = torch.tensor([[3], [2**61]])
    expected = ((2**62 + 5) * 3 - 7 * 2**61) % 2**64
    assert int(ring.matmul(x, y)) % 2**64 == expected


@pytest.mark.parametrize(
    ("stride", "padding", "dilation", "groups"), [(1, 0, 1, 1), (2, 1, 1, 2), (3, 2, 2, 1)]
)
def test_convolution_and_its_gradients_are_those_of_torch(stride, padding, dilation, groups):
    torch.manual_seed(1)
    x = torch.randint(-9, 9, (2, 4, 9, 11)).double().requires_grad_()
    w = torch.randint(-9, 9, (6, 4 // groups, 3, 2)).double().requires_grad_()
    y = torch.nn.functional.conv2d(x, w, None, stride, padding, dilation, groups)
    grad = torch.randint(-9, 9, y.shape).double()
    y.backward(grad)
    options = {
        "stride": (stride, stride), "padding": (padding, padding),
        "dilation": (dilation, dilation), "groups": groups,
    }  # fmt: skip
    whole = [each.detach().long() for each in (x, w, grad)]
    assert torch.equal(ring.conv2d(whole[0], whole[1], **options), y.long())
    assert torch.equal(
        ring.conv2d_input(whole[2], whole[1], size=(9, 11), **options), x.grad.long()
    )
    assert torch.equal(
        ring.conv2d_weight(whole[0], whole[2], kernel=(3, 2), **options), w.grad.long()
    )


@pytest.mark.parametrize(
    ("op", "left", "right", "options"),
    [
        ("mul", (3, 1, 2), (4, 2), ()),
        ("matmul", (2, 3, 4), (4, 5), ()),
        ("matmul", (7, 1, 3, 4), (2, 4, 5), ()),
        ("matmul", (4,), (4, 5), ()),
        ("matmul", (3, 4), (4,), ()),
        (
            "conv2d",
            (2, 4, 9, 11),
            (6, 2, 3, 2),
            (("stride", (2, 3)), ("padding", (1, 0)), ("groups", 2)),
        ),
        ("conv2d_input", (2, 6, 4, 4), (6, 2, 3, 2), (("size", (6, 5)), ("groups", 2))),
        ("conv2d_weight", (2, 4, 6, 5), (2, 6, 4, 4), (("kernel", (3, 2)), ("groups", 2))),
    ],
)
def test_shapes_of_products_are_known_before_they_are_computed(op, left, right, options):
    product = ring.bilinear(op, options)(torch.ones(left).long(), torch.ones(right).long())
    assert ring.product_shape(op, left, right, options) == tuple(product.shape)


def test_windows_of_an_image_hold_its_pixels():
    x = torch.arange(2 * 3 * 5 * 6).reshape(2, 3, 5, 6)
    windows = ring.patches(x, (2, 3), (2, 1), (0, 0), (1, 1))
    assert np.array_equal(windows[1, 2, :, :, 1, 3], x[1, 2, 2:4, 3:6])
