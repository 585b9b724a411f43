"""Convex programs with a certificate: Clarabel solves, a bound computed here proves.

    minimize  x'Px/2 + q'x   subject to  Ax + s = b,  s in K   (equalities, inequalities, cones)

For every z in the dual cone K* and every feasible x, with r = Px^ + q + A'z at the solver's x^:

    x'Px/2 + q'x  >=  -x^'Px^/2 - b'z + r'x  >=  -x^'Px^/2 - b'z + sum_j min(r_j lo_j, r_j hi_j)

as P is positive semidefinite and z'(b - Ax) >= 0. With known limits lo, hi of every variable the bound
holds whatever the solver's tolerances are: r is then small, not assumed to be zero.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from holdfast.carbon.signals import FloatArray, IntArray, refused
from holdfast.errors import InputError

Term = tuple[npt.ArrayLike, npt.ArrayLike, npt.ArrayLike]
"""(row, variable, coefficient) of nonzeros of a matrix."""


LOOSE = 4.0
"""Rows that scaled variables of at most 1 miss by this factor cannot bind: their right side is cut."""


@dataclass(frozen=True)
class Optimum:
    """What the solver found, and what proves how good it is.

    Attributes:
        x: the variables.
        dual: -x'Px/2 - b'z.
        residual: r of every variable.
        low: limits of the variables.
        high: limits of the variables.
        linear: q.
        squares: the diagonal of P.
    """

    x: FloatArray
    dual: float
    residual: FloatArray
    low: FloatArray
    high: FloatArray
    linear: FloatArray
    squares: FloatArray

    def bound(self, reached: float) -> float:
        """A bound of the objective: no feasible x has a lower one.

        Args:
            reached: the objective of a feasible x. Whatever is better keeps each of its terms below what
                the others can save, which limits the variables that have a high price.
        """
        least = np.minimum(self.linear * self.low, self.linear * self.high)
        spare = max(reached - float(least.sum()), 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            most = np.where(self.linear != 0, (spare + least) / np.abs(self.linear), np.inf)
            reach = np.where(self.squares > 0, np.sqrt(2 * spare / self.squares), np.inf)
        low = np.where(self.linear < 0, np.maximum(self.low, -most), self.low)
        high = np.where(self.linear > 0, np.minimum(self.high, most), self.high)
        low, high = np.maximum(low, -reach), np.minimum(high, reach)
        limits = np.minimum(self.residual * low, self.residual * high).sum()
        return min(self.dual + float(limits), reached)


class _Rows:
    """Rows of one kind of constraint, as coordinates of a sparse matrix."""

    def __init__(self) -> None:
        self.count = 0
        self.entries: list[tuple[IntArray, IntArray, FloatArray]] = []
        self.right: list[FloatArray] = []

    def add(self, right: npt.ArrayLike, *terms: Term) -> None:
        """Add rows: the right side [R], and terms of (row [N], variable [N], coefficient)."""
        side = np.atleast_1d(np.asarray(right, np.float64))
        for row, column, value in terms:
            rows = np.asarray(row, np.int64) + self.count
            columns = np.zeros_like(rows) + np.asarray(column, np.int64)
            values = np.zeros(len(rows)) + np.asarray(value, np.float64)
            self.entries.append((rows, columns, values))
        self.right.append(side)
        self.count += len(side)

    def matrix(self, columns: int) -> tuple[sp.csc_array, FloatArray]:
        """(A, b)."""
        rows, places, values = (
            np.concatenate([entry[n] for entry in self.entries] or [np.zeros(0)]) for n in range(3)
        )
        at = rows.astype(np.int64), places.astype(np.int64)
        matrix = sp.csc_array((values, at), shape=(self.count, columns))
        return matrix, np.concatenate([*self.right, np.zeros(0)])


class Program:
    """A program that is built variable by variable.

    Attributes:
        equal: rows of sum of terms = right.
        at_most: rows of sum of terms <= right.
    """

    def __init__(self) -> None:
        self.count = 0
        self._low: list[FloatArray] = []
        self._high: list[FloatArray] = []
        self._linear: list[tuple[IntArray, FloatArray]] = []
        self._squares: list[tuple[IntArray, FloatArray]] = []
        self.equal, self.at_most, self._cones = _Rows(), _Rows(), _Rows()
        self._sizes: list[int] = []

    def variables(self, low: FloatArray, high: FloatArray) -> IntArray:
        """Add variables within finite limits that the constraints or the objective enforce."""
        places = np.arange(self.count, self.count + len(low))
        self.count += len(low)
        self._low.append(low)
        self._high.append(high)
        return places

    def bounded(self, low: FloatArray, high: FloatArray) -> IntArray:
        """Add variables, and the constraints low <= x <= high."""
        places = self.variables(low, high)
        rows = np.arange(len(low))
        self.at_most.add(high, (rows, places, 1.0))
        self.at_most.add(-low, (rows, places, -1.0))
        return places

    def cost(self, places: IntArray, weights: npt.ArrayLike) -> None:
        """Add weights @ x to the objective."""
        self._linear.append((places, np.broadcast_to(np.asarray(weights, float), places.shape)))

    def square(self, places: IntArray, weights: FloatArray) -> None:
        """Add sum of weights x^2 / 2 to the objective; weights >= 0."""
        self._squares.append((places, weights))

    def limit(
        self,
        allowed: float,
        linear: list[tuple[IntArray, FloatArray]],
        places: IntArray,
        squares: FloatArray,
    ) -> None:
        """Add the constraint: linear terms + sum of squares x^2 / 2 <= allowed."""
        unit = allowed if allowed > 1e-9 else 1.0
        zeros = [(np.zeros(len(at)), at, weights / unit) for at, weights in linear]
        used = squares > 0
        if not used.any():
            self.at_most.add(allowed / unit, *zeros)
            return
        # y'y <= 2w is the second-order cone |(w - 1, sqrt(2) y)| <= w + 1, w: what is left.
        y, left = np.flatnonzero(used), allowed / unit
        self._cones.add(
            np.concatenate([[left + 1, left - 1], np.zeros(len(y))]),
            *zeros,
            *[(rows + 1, at, weights) for rows, at, weights in zeros],
            (2 + np.arange(len(y)), places[y], -np.sqrt(2 * squares[y] / unit)),
        )
        self._sizes.append(2 + len(y))

    def solve(self) -> Optimum | None:
        """The optimum with its certificate; None if the constraints contradict each other."""
        q, diagonal = np.zeros(self.count), np.zeros(self.count)
        for places, weights in self._linear:
            np.add.at(q, places, weights)
        for places, weights in self._squares:
            np.add.at(diagonal, places, weights)
        low, high = np.concatenate(self._low), np.concatenate(self._high)
        parts = [rows.matrix(self.count) for rows in (self.equal, self.at_most, self._cones)]
        a = sp.vstack([matrix for matrix, _ in parts], format="csc")
        b = np.concatenate([right for _, right in parts])
        # The most that the objective can gain is its unit; a variable's is what this gain can pay for.
        gain = -float(np.minimum(np.minimum(q * low, q * high), 0.0).sum()) or 1.0
        widest = np.maximum(np.maximum(np.abs(low), np.abs(high)), 1e-12)
        while True:
            with np.errstate(divide="ignore"):
                reach = np.minimum(gain / np.abs(q), np.sqrt(2 * gain / diagonal))
            reach = np.minimum(np.maximum(reach, 1e-12), widest)
            solution = self._scaled(q, diagonal, a, b, reach, gain)
            near = solution is not None and bool((np.abs(solution[0]) <= LOOSE * reach).all())
            if near or (reach == widest).all():
                break
            gain *= 1e3  # constraints force more than pays
        if solution is None:
            return None
        x, z = solution
        residual = diagonal * x + q + a.T @ z
        return Optimum(x, float(-(diagonal * x) @ x / 2 - b @ z), residual, low, high, q, diagonal)

    def _scaled(
        self,
        q: FloatArray,
        diagonal: FloatArray,
        a: sp.csc_array,
        b: FloatArray,
        reach: FloatArray,
        gain: float,
    ) -> tuple[FloatArray, FloatArray] | None:
        """(x, z) by Clarabel, in units of `reach` (variables) and `gain` (objective); z is in K*."""
        import clarabel

        kinds = [
            clarabel.ZeroConeT(self.equal.count),
            clarabel.NonnegativeConeT(self.at_most.count),
            *map(clarabel.SecondOrderConeT, self._sizes),
        ]
        settings = clarabel.DefaultSettings()
        settings.verbose = False
        settings.tol_gap_rel = settings.tol_gap_abs = settings.tol_feas = 1e-10
        first, last = self.equal.count, self.equal.count + self.at_most.count
        rows = sp.csr_array(a @ sp.diags_array(reach))
        height = abs(rows).max(axis=1).toarray().ravel()
        height[last:], height[height == 0] = 1.0, 1.0  # rows of one cone share a scale
        rows = sp.diags_array(1 / height) @ rows
        right = b / height
        most = LOOSE * np.maximum(abs(rows).sum(axis=1), 1.0)
        right[first:last] = np.minimum(right, most)[first:last]
        squares = sp.csc_matrix(sp.diags_array(diagonal * reach**2 / gain))
        problem = squares, q * reach / gain, sp.csc_matrix(rows), right, kinds, settings
        # Refining each step takes half of the time, and few programs need it.
        for settings.iterative_refinement_enable in (False, True):
            solved = clarabel.DefaultSolver(*problem).solve()
            if (status := str(solved.status)) == "Solved":
                break
        if status in ("PrimalInfeasible", "AlmostPrimalInfeasible"):
            return None
        x, z = reach * np.array(solved.x), gain * np.array(solved.z) / height
        if not np.isfinite(x).all() or not np.isfinite(z).all():
            raise _no_plan(status)
        z[first:last] = np.maximum(z[first:last], 0.0)
        for size in self._sizes:
            z[last] = max(z[last], float(np.linalg.norm(z[last + 1 : last + size])))
            last += size
        return x, z


def _no_plan(found: str) -> InputError:
    remedy = "check the scale of the load, the signal and the penalties"
    return refused("the optimizer found no plan", "no-plan", found=found, remedy=remedy)
