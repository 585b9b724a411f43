"""Compiled solution of x = A x + b for the sums inside one strongly connected component.

A and b are not negative. Nothing is subtracted anywhere but A[k, k] from 1, so the entries of x are as
exact, each for itself, as those of A and b allow. The sums converge exactly if the spectral radius of A
is below 1, and every way of solving shows whether it is.
Source: A. Berman, R. J. Plemmons, "Nonnegative matrices in the mathematical sciences", 1979, chapter 6
(I - A is then a nonsingular M-matrix) and chapter 2 (the bounds of Collatz and Wielandt).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from holdfast.automata._kernels import compiled, counting_order
from holdfast.automata.path_sums.relaxation_kernels import EPSILON, relax
from holdfast.automata.semirings import LOG

# What is known of a sum.
SOLVED, DIVERGES, UNDECIDED = 0, 1, 2

SMALL = 32
"""Components of no more states are solved by elimination at once."""
DENSE = 512
"""Components of no more states are solved by elimination where sweeps do not decide."""
MOST_SWEEPS = 200
PRECISION = 2.0**-47


@compiled
def solve(
    code: int,
    offsets: Any,
    nextstate: Any,
    weight: Any,
    component: Any,
    members: Any,
    local: Any,
    low: Any,
    total: Any,
) -> int:
    """Sum inside one component, from the sums that enter it; UNDECIDED leaves `low` and `total` alone.

    Args:
        code: LOG or PROBABILITY.
        offsets: i64[V + 1], arcs of each state.
        nextstate: i32[E].
        weight: f64[E].
        component: i32[V].
        members: i64[n], the component's states.
        local: i32[V], the place of each of them in `members`.
        low: f64[V], in the log semiring the costs that enter each state; then the sums.
        total: f64[V], the same of probabilities.
    """
    converges, best, row, column, a, b = system(
        code, offsets, nextstate, weight, component, members, local, low, total
    )
    if not converges:
        return DIVERGES
    status = UNDECIDED
    if len(b) > SMALL:
        status, x = sweep(row, column, a, b)
    if status == UNDECIDED:
        if len(b) > DENSE:
            return UNDECIDED
        x = b.copy()
        status = SOLVED if eliminate(row, column, a, x) else DIVERGES
    if status == SOLVED:
        store(code, members, best, x, low, total)
    return status


@compiled
def system(
    code: int,
    offsets: Any,
    nextstate: Any,
    weight: Any,
    component: Any,
    members: Any,
    local: Any,
    low: Any,
    total: Any,
) -> tuple[bool, Any, Any, Any, Any, Any]:
    """The system of equations of one component; the arguments are those of `solve`.

    In the log semiring x is scaled by the best paths: x[i] = exp(best[i] - cost of state i). So no entry
    of A or b exceeds 1 and none of x is below 1, and costs of any size neither overflow nor vanish.

    Returns:
        Whether there is one (False: a cycle of negative cost); best f64[n]; the rows of A: row i64[n + 1],
        column i64[*], a f64[*]; b f64[n].
    """
    size = len(members)
    b = np.empty(size, np.float64)
    best = np.zeros(size, np.float64)
    inside = component[members[0]]
    converges = True
    for at in range(size):
        b[at] = low[members[at]] if code == LOG else total[members[at]]
    if code == LOG:
        converges = relax(offsets, nextstate, weight, component, members, local, low)
        for at in range(size):
            best[at] = low[members[at]]
            low[members[at]] = b[at]
            b[at] = math.exp(best[at] - b[at]) if b[at] < np.inf else 0.0
    inner = 0
    for state in members:
        for arc in range(offsets[state], offsets[state + 1]):
            inner += component[nextstate[arc]] == inside
    source = np.empty(inner, np.int64)
    target = np.empty(inner, np.int64)
    a = np.empty(inner, np.float64)
    inner = 0
    for at in range(size):
        state = members[at]
        for arc in range(offsets[state], offsets[state + 1]):
            if component[nextstate[arc]] != inside:
                continue
            to = local[nextstate[arc]]
            source[inner], target[inner] = at, to
            # Of states that only arcs of weight zero enter, nothing comes.
            if code != LOG:
                a[inner] = weight[arc]
            elif best[at] < np.inf and weight[arc] < np.inf:
                a[inner] = math.exp(best[to] - best[at] - weight[arc])
            else:
                a[inner] = 0.0
            inner += 1
    row, order = counting_order(target, size)
    column = np.empty(inner, np.int64)
    values = np.empty(inner, np.float64)
    for at in range(inner):
        column[at], values[at] = source[order[at]], a[order[at]]
    return converges, best, row, column, values, b


@compiled
def store(code: int, members: Any, best: Any, x: Any, low: Any, total: Any) -> None:
    """Write the solution of a system as sums."""
    for at in range(len(members)):
        if code != LOG:
            total[members[at]] = x[at]
        elif best[at] < np.inf:
            low[members[at]] = best[at] - math.log(x[at])


@compiled
def eliminate(row: Any, column: Any, values: Any, x: Any) -> bool:
    """Solve x = A x + b, b given in x, by elimination in a dense matrix; False if the sum diverges."""
    size = len(x)
    a = np.zeros((size, size), np.float64)
    for i in range(size):
        for at in range(row[i], row[i + 1]):
            a[i, column[at]] += values[at]
    for k in range(size):
        left = 1.0 - a[k, k]
        if not left > 4 * size * EPSILON:
            return False
        for i in range(k + 1, size):
            if a[i, k] != 0.0:
                factor = a[i, k] / left
                for j in range(k + 1, size):
                    a[i, j] += factor * a[k, j]
                x[i] += factor * x[k]
    for k in range(size - 1, -1, -1):
        known = x[k]
        for j in range(k + 1, size):
            known += a[k, j] * x[j]
        x[k] = known / (1.0 - a[k, k])
    return True


@compiled
def sweep(row: Any, column: Any, a: Any, b: Any) -> tuple[int, Any]:
    """Solve x = A x + b by sums over paths, as symmetric Gauss-Seidel sweeps order them.

    Every pair of sweeps adds to x a part g which depends on the one before by a matrix without negative
    entries. So once g' <= r g in every entry with r < 1, all that is still to come lies below
    g' r / (1 - r), and above the same with the least ratio; with a least ratio of 1 or more the sum
    diverges.

    Returns:
        SOLVED, DIVERGES or UNDECIDED, and x f64[n].
    """
    size = len(b)
    x = np.zeros(size, np.float64)
    up = b.copy()  # what the sweep to higher states adds
    down = np.zeros(size, np.float64)  # what the sweep back adds
    before = np.zeros(size, np.float64)
    left = np.ones(size, np.float64)
    for i in range(size):
        for at in range(row[i], row[i + 1]):
            if column[at] == i:
                left[i] -= a[at]
        if not left[i] > 4 * EPSILON:
            return DIVERGES, x
    for turn in range(MOST_SWEEPS):
        for i in range(size):
            more = b[i] if turn == 0 else 0.0
            for at in range(row[i], row[i + 1]):
                j = column[at]
                if j < i:
                    more += a[at] * (down[j] + up[j])
            up[i] = more / left[i]
        before, down = down, before
        for i in range(size - 1, -1, -1):
            more = 0.0
            for at in range(row[i], row[i + 1]):
                j = column[at]
                if j > i:
                    more += a[at] * (up[j] + down[j])
            down[i] = more / left[i]
        lowest, highest = np.inf, 0.0
        for i in range(size):
            x[i] += up[i] + down[i]
            if down[i] > 1e-290 or before[i] > 1e-290:
                ratio = down[i] / before[i] if before[i] > 0.0 else np.inf
                lowest, highest = min(lowest, ratio), max(highest, ratio)
        if highest == 0.0:
            return SOLVED, x
        if turn == 0:
            continue
        if lowest >= 1.0 and lowest < np.inf:
            return DIVERGES, x
        if highest >= 1.0:
            continue
        least, most = lowest / (1.0 - lowest), highest / (1.0 - highest)
        doubt = 0.0
        for i in range(size):
            if x[i] > 0.0:
                more = up[i] + down[i]
                doubt = max(doubt, more * (most - least) / (x[i] + more * least))
        # Closer than the rounding of a ratio near 1 lets them come, the bounds never are.
        if doubt <= max(PRECISION, 64 * EPSILON / (1.0 - highest)):
            for i in range(size):
                x[i] += (up[i] + down[i]) * 0.5 * (most + least)
            return SOLVED, x
    return UNDECIDED, x
