"""Products of a matrix with few rows, against float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from holdfast.lm.generate._kernels import matrix_rows, matrix_vector


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(4, 1), (5, 7), (7, 3), (33, 65), (130, 64)])
def test_few_rows(dtype: torch.dtype, shape: tuple[int, int]) -> None:
    """Odd numbers of rows, too: each entry is written, and none beyond."""
    torch.manual_seed(0)
    weight = torch.randn(shape).to(dtype)
    numbers = weight.numpy() if dtype is torch.float32 else weight.view(torch.uint16).numpy()
    for rows in range(1, 18):
        x = torch.randn(rows, shape[1]).numpy()
        exact = x.astype(float) @ weight.double().numpy().T
        out = np.full((rows, shape[0]), np.nan, np.float32)
        matrix_rows(numbers, x, out)
        assert np.allclose(out, exact, rtol=1e-5, atol=1e-5)
        out[:] = np.nan
        matrix_vector(numbers, x[0], out[0])
        assert np.allclose(out[0], exact[0], rtol=1e-5, atol=1e-5)


def test_what_is_not_finite_stays() -> None:
    weight = np.ones((8, 4), np.float32)
    weight[1, 2], weight[6, 0] = np.nan, np.inf
    out = np.zeros((3, 8), np.float32)
    matrix_rows(weight, np.ones((3, 4), np.float32), out)
    assert np.isnan(out[:, 1]).all()
    assert np.isposinf(out[:, 6]).all()
    assert (np.delete(out, [1, 6], axis=1) == 4).all()
