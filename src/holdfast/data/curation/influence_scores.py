"""Logistic regression on fixed features, and how much each point moves it.

The influence of a point on its own loss is g' H^-1 g: the first-order change of its loss when it is
left out of
the training set (Koh and Liang, "Understanding black-box predictions via influence functions", ICML 2017),
with g the gradient of its loss and H the Hessian of the whole objective

    sum_i s_i loss_i(w) + |w|^2 / (2 C).

Features get a constant column, whose weight is regularized like the others: so H is positive definite.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from holdfast.data.curation.choices import within
from holdfast.errors import InputError

FloatArray = npt.NDArray[np.float64]
LIMIT = 8192
"""Parameters up to which the Hessian is factorized: 512 MiB and a few seconds."""
_ROWS = 4096  # points at a time, so that products stay in a few hundred MiB

LARGEST = 1e60  # Fourth powers of larger numbers leave the range of a float


@dataclass(frozen=True)
class Classifier:
    """An L2-regularized logistic regression, fitted.

    Args:
        weights: ``[outputs, d + 1]``; one output for two classes, else one per class.
        classes: labels in the order of the outputs.
        c: inverse strength of the regularization.
    """

    weights: FloatArray
    classes: npt.NDArray[np.generic]
    c: float

    @classmethod
    def fit(
        cls,
        x: FloatArray,
        y: npt.NDArray[np.generic],
        c: float = 10.0,
        sample_weight: FloatArray | None = None,
    ) -> Classifier:
        """Fit features ``[n, d]`` to labels ``[n]``.

        Raises:
            InputError: if the labels have one class, or features are not finite.
        """
        from sklearn.linear_model import LogisticRegression

        check(x, y)
        # "newton-cholesky" converges to machine precision in a few steps, where its Hessian is small.
        outputs = len(np.unique(y))
        small = (x.shape[1] + 1) * (outputs if outputs > 2 else 1) <= 1024
        model = LogisticRegression(
            C=c,
            fit_intercept=False,
            solver="newton-cholesky" if small else "lbfgs",
            tol=1e-8 if small else 1e-5,
            max_iter=2000,
        ).fit(with_constant(x), y, sample_weight)
        return cls(model.coef_, model.classes_, c)

    def decision(self, x: FloatArray) -> FloatArray:
        """Log odds ``[n, outputs]``."""
        return np.asarray(x @ self.weights[:, :-1].T + self.weights[:, -1])

    def probabilities(self, x: FloatArray) -> FloatArray:
        """Probability of each class: ``[n, classes]``."""
        from scipy.special import softmax

        z = self.decision(x)
        if z.shape[1] == 1:
            z = np.concatenate([np.zeros_like(z), z], axis=1)
        return np.asarray(softmax(z, axis=1))

    def predict(self, x: FloatArray) -> npt.NDArray[np.generic]:
        """The most probable class of each row."""
        return np.asarray(self.classes[self.probabilities(x).argmax(axis=1)])

    def losses(self, x: FloatArray, y: npt.NDArray[np.generic]) -> FloatArray:
        """-log p of each label."""
        p = self.probabilities(x)[np.arange(len(y)), np.searchsorted(self.classes, y)]
        return np.asarray(-np.log(np.maximum(p, 1e-300)))

    def residuals(self, x: FloatArray, y: npt.NDArray[np.generic]) -> FloatArray:
        """P - e_y, ``[n, outputs]``: a point's gradient is its outer product with [x; 1]."""
        p = self.probabilities(x)
        p[np.arange(len(y)), np.searchsorted(self.classes, y)] -= 1
        return p[:, 1:] if len(self.weights) == 1 else p

    def hessian(self, x: FloatArray, sample_weight: FloatArray | None = None) -> FloatArray:
        """Of the objective, ``[P, P]`` with P = outputs (d + 1).

        Raises:
            InputError: if P is above `LIMIT`.
        """
        outputs, width = self.weights.shape
        remedy = "reduce the features first, such as with sklearn.decomposition.PCA"
        within("parameters", outputs * width, 1, LIMIT, remedy)
        h = np.zeros((outputs, width, outputs, width))
        weight = np.ones(len(x)) if sample_weight is None else sample_weight
        for start in range(0, len(x), _ROWS):
            rows = slice(start, start + _ROWS)
            # Products in float32: their error, about 1e-7, is far below that of the approximation, and they
            # take half the time. Sums over blocks are in float64.
            ones = with_constant(x[rows], np.float32)
            p = self.probabilities(x[rows])[:, -outputs:]
            for a in range(outputs):
                for b in range(a + 1):
                    curvature = weight[rows] * p[:, a] * ((a == b) - p[:, b])
                    block = ones.T @ (ones * curvature.astype(np.float32)[:, None])
                    h[a, :, b, :] += block
                    if a != b:
                        h[b, :, a, :] += block  # symmetric: ones' D ones
        flat = h.reshape(outputs * width, -1)
        flat[np.diag_indices_from(flat)] += 1 / self.c
        return flat


def influence(
    model: Classifier,
    x: FloatArray,
    y: npt.NDArray[np.generic],
    sample_weight: FloatArray | None = None,
) -> FloatArray:
    """G' H^-1 g of each training point: what leaving it out would add to its own loss.

    Args:
        model: fitted on these points.
        x: ``[n, d]``.
        y: ``[n]``.
        sample_weight: with which the model was fitted.

    Returns:
        ``[n]``, not negative.
    """
    # NumPy's own: SciPy has another copy of BLAS, whose threads would wait beside those of the products.
    inverse = np.linalg.inv(model.hessian(x, sample_weight))
    outputs, width = model.weights.shape
    blocks = inverse.reshape(outputs, width, outputs, width).astype(np.float32)
    scores = np.zeros(len(x))
    residuals = model.residuals(x, y)
    for start in range(0, len(x), _ROWS):
        rows = slice(start, start + _ROWS)
        ones = with_constant(x[rows], np.float32)
        r = residuals[rows]
        for a in range(outputs):
            for b in range(a + 1):
                # The blocks (a, b) and (b, a) are each other's transposes, and give the same number.
                form = np.einsum("nd,nd->n", ones @ blocks[a, :, b, :], ones)
                scores[rows] += (2 - (a == b)) * r[:, a] * r[:, b] * form
    return np.maximum(scores, 0)


def influence_vectors(model: Classifier, x: FloatArray, y: npt.NDArray[np.generic]) -> FloatArray:
    """L^-1 g of each point, ``[n, P]`` with H = L L': their inner products are g_i' H^-1 g_j."""
    from scipy.linalg import cholesky, solve_triangular

    lower = cholesky(model.hessian(x), lower=True, overwrite_a=True)
    gradients = np.einsum("nk,nd->nkd", model.residuals(x, y), with_constant(x))
    return np.asarray(
        solve_triangular(lower, gradients.reshape(len(x), -1).T, lower=True, overwrite_b=True).T
    )


def with_constant(x: FloatArray, dtype: type | None = None) -> npt.NDArray[Any]:
    """[x, 1], as a copy of this type."""
    ones = np.ones((len(x), 1), x.dtype)
    return np.concatenate([x, ones], axis=1, dtype=dtype, casting="same_kind")


def check(x: FloatArray, y: npt.NDArray[np.generic], place: str = "x") -> None:
    """Refuse what no classifier can be fitted to.

    Raises:
        InputError: shapes that do not fit, numbers that are not finite, labels that are not classes,
            a single class.
    """
    if x.ndim != 2 or y.shape != x.shape[:1]:
        raise InputError(
            "features and labels do not fit",
            code="invalid-value",
            place=place,
            found=f"features {list(x.shape)}, labels {list(y.shape)}",
            expected="features [n, d], labels [n]",
        )
    finite(x, place)
    labels = "y" if place == "x" else place
    if y.dtype.kind == "f":
        numbers = np.asarray(y, float)
        finite(numbers[:, None], "y")
        parts = numbers[numbers % 1 != 0]
        if parts.size:
            raise InputError(
                "labels are not classes",
                code="invalid-value",
                place=labels,
                found=f"numbers such as {parts[0]}",
                expected="whole numbers or texts",
            )
    if len(np.unique(y)) < 2:
        raise InputError(
            "a single class cannot be told from another",
            code="no-data",
            place=labels,
            expected="2 classes or more",
        )


def finite(x: FloatArray, place: str) -> None:
    """Refuse NaN, infinities and numbers beyond `LARGEST`, with the first row that has one.

    Args:
        x: ``[n, d]``; of a single row the place is not said.
        place: the name of the array.
    """
    for code, rows, expected in (
        ("invalid-value", np.isfinite(x).all(axis=1), "finite numbers"),
        ("out-of-range", (np.abs(x) <= LARGEST).all(axis=1), f"numbers up to {LARGEST:g}"),
    ):
        if not rows.all():
            raise InputError(
                "numbers that cannot be used",
                code=code,
                place=f"{place}, row {int(np.argmin(rows))}" if len(x) > 1 else place,
                found=f"{int((~rows).sum())} of {len(x)} rows",
                expected=expected,
            )
