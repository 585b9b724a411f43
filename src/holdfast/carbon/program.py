"""Convex programs with a certificate: HiGHS (linear) or Clarabel solves, a bound computed here proves.

    minimize  x'Px/2 + q'x   subject to  Ax + s = b,  s in K   (equalities, inequalities, cones)

For every z in the dual cone K* and every feasible x, with r = Px^ + q + A'z at the solver's x^:

    x'Px/2 + q'x  >=  -x^'Px^/2 - b'z + r'x  >=  -x^'Px^/2 - b'z + sum_j min(r_j lo_j, r_j hi_j)

as P is positive semidefinite and z'(b - Ax) >= 0. With known limits lo, hi of every variable the bound
holds whatever the solver's tolerances are: r is then small, not assumed to be zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from holdfast.carbon.signals import FloatArray, IntArray, refused
from holdfast.errors import InputError

Term = tuple[npt.ArrayLike, npt.ArrayLike, npt.ArrayLike]
"""(row, variable, coefficient) of nonzeros of a matrix."""


CLOSE = 1e-8
"""Of the objective's terms: the most that an interior point may be off."""


@dataclass(frozen=True)
class Optimum:
    """What the solver found, and a bound: no feasible x has a lower objective."""

    x: FloatArray
    bound: float


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
            columns = np.broadcast_to(np.asarray(column, np.int64), rows.shape)
            values = np.broadcast_to(np.asarray(value, np.float64), rows.shape)
            self.entries.append((rows, columns, values))
        self.right.append(side)
        self.count += len(side)

    def matrix(self, columns: int) -> tuple[sp.csc_array, FloatArray]:
        """(A, b)."""
        rows, places, values = (
            np.concatenate([entry[n] for entry in self.entries] or [np.zeros(0)]) for n in range(3)
        )
        made = sp.csc_array(
            (values, (rows.astype(np.int64), places.astype(np.int64))), shape=(self.count, columns)
        )
        return made, np.concatenate([*self.right, np.zeros(0)])


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
        zeros = [(np.zeros(len(at)), at, weights) for at, weights in linear]
        used = squares > 0
        if not used.any():
            self.at_most.add(allowed, *zeros)
            return
        # y'y <= 2w is the second-order cone |(w - 1, sqrt(2) y)| <= w + 1, w: what is left.
        y = np.flatnonzero(used)
        self._cones.add(
            np.concatenate([[allowed + 1, allowed - 1], np.zeros(len(y))]),
            *zeros,
            *[(rows + 1, at, weights) for rows, at, weights in zeros],
            (2 + np.arange(len(y)), places[y], -np.sqrt(2 * squares[y])),
        )
        self._sizes.append(2 + len(y))

    def solve(self) -> Optimum | None:
        """The optimum with its certificate; None if the constraints contradict each other."""
        q, diagonal = np.zeros(self.count), np.zeros(self.count)
        for places, weights in self._linear:
            np.add.at(q, places, weights)
        for places, weights in self._squares:
            np.add.at(diagonal, places, weights)
        parts = [rows.matrix(self.count) for rows in (self.equal, self.at_most, self._cones)]
        a = sp.vstack([matrix for matrix, _ in parts], format="csc")
        b = np.concatenate([right for _, right in parts])
        found = self._interior(q, diagonal, a, b)
        optimum = None if found is None else self._certified(*found, q, diagonal, a, b)
        linear = not self._sizes and not diagonal.any()
        if linear and optimum is not None:
            # An interior point can stop short of the optimum where weights differ by powers of ten. It
            # is kept where it does not: of plans that are equally good it spreads the work.
            short = float(q @ optimum.x) - optimum.bound
            if short > CLOSE * float(np.abs(q) @ np.abs(optimum.x)):
                optimum = self._certified(*self._vertex(q, a, b), q, diagonal, a, b)
        return optimum

    def _certified(
        self,
        x: FloatArray,
        z: FloatArray,
        q: FloatArray,
        diagonal: FloatArray,
        a: sp.csc_array,
        b: FloatArray,
    ) -> Optimum:
        low, high = np.concatenate(self._low), np.concatenate(self._high)
        # Multipliers are moved into the dual cone: the bound holds for any such z.
        first = self.equal.count
        after = first + self.at_most.count
        z[first:after] = np.maximum(z[first:after], 0.0)
        for size in self._sizes:
            z[after] = max(z[after], float(np.linalg.norm(z[after + 1 : after + size])))
            after += size
        residual = diagonal * x + q + a.T @ z
        limits = np.minimum(residual * low, residual * high).sum()
        return Optimum(x, float(-(diagonal * x) @ x / 2 - b @ z + limits))

    def _vertex(
        self, q: FloatArray, a: sp.csc_array, b: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """(x, z) by HiGHS."""
        from scipy.optimize import linprog

        split, rows = self.equal.count, a.tocsr()
        limits: Any = (rows[split:], b[split:], rows[:split], b[:split])
        solved = linprog(q, *limits, bounds=(None, None))
        if solved.status:
            raise _no_plan(solved.message)
        x: FloatArray = np.asarray(solved.x)
        return x, -np.concatenate([solved.eqlin.marginals, solved.ineqlin.marginals])

    def _interior(
        self, q: FloatArray, diagonal: FloatArray, a: sp.csc_array, b: FloatArray
    ) -> tuple[FloatArray, FloatArray] | None:
        """(x, z) by Clarabel."""
        import clarabel

        cones = [
            clarabel.ZeroConeT(self.equal.count),
            clarabel.NonnegativeConeT(self.at_most.count),
            *map(clarabel.SecondOrderConeT, self._sizes),
        ]
        settings = clarabel.DefaultSettings()
        settings.verbose = False
        settings.tol_gap_rel = settings.tol_gap_abs = 1e-10
        # One scale for the objective: the tolerances are absolute where numbers are small.
        scale = max(float(np.abs(q).max(initial=0)), 1e-12)
        squares = sp.csc_matrix(sp.diags_array(diagonal / scale))
        problem = squares, q / scale, sp.csc_matrix(a), b, cones, settings
        solved = clarabel.DefaultSolver(*problem).solve()
        status = str(solved.status)
        if status in ("PrimalInfeasible", "AlmostPrimalInfeasible"):
            return None
        x, z = np.array(solved.x), scale * np.array(solved.z)
        if not np.isfinite(x).all() or not np.isfinite(z).all():
            raise _no_plan(status)
        return x, z


def _no_plan(found: str) -> InputError:
    remedy = "check the scale of the load, the signal and the penalties"
    return refused("the optimizer found no plan", "no-plan", found=found, remedy=remedy)
