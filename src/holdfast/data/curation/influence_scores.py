"""Logistic regression on fixed features, and how much each point moves it.

The influence of a point on its own loss is g' H^-1 g: the first-order change of its loss when it is
left out of
the training set (Koh and Liang, "Understanding black-box predictions via influence functions", ICML 2017),
with g the gradient of its loss and H the Hessian of the whole objective

    sum_i s_i loss_i(w) + |w|^2 / (2 C).

Features get a constant column, whose weight is regularized like the others: so H is positive definite.
"""

from __future__ import annotations

from collections.abc import Iterator
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
# Least pivots that products in each precision compute to 1e-3 or better; float32 takes half the time.
_PIVOTS: tuple[tuple[type, float], ...] = ((np.float32, 1e-3), (np.float64, 1e-11))

LARGEST = np.float64(1e60)  # Fourth powers of larger numbers leave the range of a float


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

    @property
    def contrasts(self) -> FloatArray:
        """Orthonormal directions of the log odds in which losses differ: ``[classes, outputs]``.

        With one output per class, adding the same to all of them changes nothing but the regularization:
        no gradient points there, and the Hessian has next to nothing there to be inverted.
        """
        from scipy.linalg import helmert

        return np.array([[0.0], [1.0]]) if len(self.weights) == 1 else helmert(len(self.classes)).T

    def residuals(self, x: FloatArray, y: npt.NDArray[np.generic]) -> FloatArray:
        """P - e_y along the contrasts, ``[n, outputs]``: the gradient is the outer product with [x; 1]."""
        p = self.probabilities(x)
        p[np.arange(len(y)), np.searchsorted(self.classes, y)] -= 1
        return p @ self.contrasts


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

    Raises:
        InputError: more than `LIMIT` parameters, or columns that depend on each other and are so large
            that rounding hides their regularization.
    """
    h, _, scale, dtype = _curvature(model, x, sample_weight)
    residuals = model.residuals(x, y)
    shape = (residuals.shape[1], len(scale))
    # NumPy's own: SciPy has another copy of BLAS, whose threads would wait beside those of the products.
    blocks = np.linalg.inv(h).reshape(shape * 2).astype(dtype)
    scores = np.zeros(len(x))
    for rows, ones in _blocks(x, scale, dtype):
        r = residuals[rows]
        for a in range(shape[0]):
            for b in range(a + 1):
                # The blocks (a, b) and (b, a) are each other's transposes, and give the same number.
                form = np.einsum("nd,nd->n", ones @ blocks[a, :, b, :], ones)
                scores[rows] += (2 - (a == b)) * r[:, a] * r[:, b] * form
    return np.maximum(scores, 0)


def influence_vectors(model: Classifier, x: FloatArray, y: npt.NDArray[np.generic]) -> FloatArray:
    """L^-1 g of each point, ``[n, P]`` with H = L L': their inner products are g_i' H^-1 g_j.

    Raises:
        InputError: as `influence`.
    """
    from scipy.linalg import solve_triangular

    _, lower, scale, _ = _curvature(model, x, None)
    gradients = np.einsum("nk,nd->kdn", model.residuals(x, y), with_constant(x) / scale)
    of_points = gradients.reshape(-1, len(x))  # [P, n]
    return np.asarray(solve_triangular(lower, of_points, lower=True, overwrite_b=True).T)


def _curvature(
    model: Classifier, x: FloatArray, sample_weight: FloatArray | None
) -> tuple[FloatArray, FloatArray, FloatArray, type]:
    """The Hessian H of the objective, L of H = L L', the scale of [x; 1], the precision that it needs.

    H is ``[P, P]`` with P = outputs (d + 1), by the weights along the contrasts times the scale. A pivot
    of L, as a share of its column's curvature, is what the columns before it do not explain. Columns that
    depend on each other leave of it the regularization alone, which must not drown in rounding.
    """
    scale = np.append(np.sqrt((x**2).mean(axis=0)), 1)  # [d + 1]
    scale[scale == 0] = 1
    basis = model.contrasts
    outputs, width = basis.shape[1], len(scale)
    remedy = "reduce the features first, such as with sklearn.decomposition.PCA"
    within("parameters", outputs * width, 1, LIMIT, remedy)
    weight = np.ones(len(x)) if sample_weight is None else sample_weight
    for dtype, least in _PIVOTS:
        h = np.zeros((outputs, width, outputs, width))
        for rows, ones in _blocks(x, scale, dtype):
            p = model.probabilities(x[rows])
            q = p @ basis
            for a in range(outputs):
                for b in range(a + 1):
                    curvature = weight[rows] * (p @ (basis[:, a] * basis[:, b]) - q[:, a] * q[:, b])
                    h[a, :, b, :] += ones.T @ (ones * curvature.astype(dtype)[:, None])
                    h[b, :, a, :] = h[a, :, b, :]  # symmetric: ones' D ones
        flat = h.reshape(outputs * width, -1)
        flat[np.diag_indices_from(flat)] += np.tile(scale, outputs) ** -2 / model.c
        try:
            lower = np.linalg.cholesky(flat)
        except np.linalg.LinAlgError:
            continue
        if (np.diag(lower) ** 2 >= least * np.diag(flat)).all():
            return flat, lower, scale, dtype
    raise InputError(
        "columns that depend on each other, too large for their regularization",
        code="unsupported",
        place="x",
        found=f"numbers up to {np.abs(x).max():.2g}",
        remedy="divide each column by its standard deviation",
    )


def _blocks(
    x: FloatArray, scale: FloatArray, dtype: type
) -> Iterator[tuple[slice, npt.NDArray[Any]]]:
    """Rows of [x; 1] / scale, some at a time."""
    for start in range(0, len(x), _ROWS):
        rows = slice(start, start + _ROWS)
        ones = np.ones((len(x[rows]), len(scale)), dtype)
        np.divide(x[rows], scale[:-1], out=ones[:, :-1], casting="same_kind")
        yield rows, ones


def with_constant(x: FloatArray) -> FloatArray:
    """[x; 1]."""
    return np.concatenate([x, np.ones((len(x), 1))], axis=1)


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
        finite(numbers[:, None], labels)
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
