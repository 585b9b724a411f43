"""How often to write a checkpoint: Young's, Daly's and the exact optimum.

A job that fails L = N r_f times a second and stops for w seconds to write loses w per interval dt
to writes and about dt/2 per failure to replay; the best dt balances the two.
"""

from __future__ import annotations

import math

from holdfast.errors import InputError

SECONDS_PER_DAY = 86400.0
MOST_NODES = 1e15  # Far beyond any machine, and no product of it overflows


def young_interval(nodes: float, rate_per_node_day: float, *, write_s: float) -> float | None:
    """Young's first-order best checkpoint interval sqrt(2 w / L), seconds (Young 1974, CACM 17(9)).

    None without failures (never write); 0 when writes are free.
    """
    failures = _failures_per_s(nodes, rate_per_node_day, write_s)
    return None if failures == 0 else math.sqrt(2 * write_s / failures)


def daly_interval(nodes: float, rate_per_node_day: float, *, write_s: float) -> float | None:
    """Daly's higher-order best interval, seconds (Daly 2006, FGCS 22(3)), with M = 1/L.

    sqrt(2wM) [1 + sqrt(w/2M)/3 + (w/2M)/9] - w for w < 2M, else M. None without failures; 0 when
    writes are free.
    """
    failures = _failures_per_s(nodes, rate_per_node_day, write_s)
    if failures == 0:
        return None
    mtbf = 1 / failures
    if write_s >= 2 * mtbf:
        return mtbf
    ratio = write_s / (2 * mtbf)
    return math.sqrt(2 * write_s * mtbf) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - write_s


def optimal_checkpoint_interval(
    nodes: float, rate_per_node_day: float, *, write_s: float
) -> float | None:
    """The interval with the highest exact long-run ETTR: (1 + W0(-e^{-1-Lw})) / L, seconds.

    W0 is Lambert's function. Neither the initialisation nor the queue moves the optimum. None
    without failures (never write); 0 when writes are free (write always).
    """
    failures = _failures_per_s(nodes, rate_per_node_day, write_s)
    return None if failures == 0 else optimal_load(failures * write_s) / failures


def optimal_load(write_load: float) -> float:
    """L dt* from c = Lw: the root of x = 1 - e^{-(x + c)}, which is 1 + W0(-e^{-1-c}).

    The exact form is stationary where e^{L(dt+w)} - 1 = L dt e^{L(dt+w)}. The function is convex
    and the start lies right of the root, so Newton's method cannot overshoot; Lambert's function
    itself would lose half of its digits next to its branch point -1/e.
    """
    if write_load == 0:
        return 0.0
    x = min(math.sqrt(2 * write_load), 1.0)
    for _ in range(8):
        slope = math.expm1(-(x + write_load))
        x += (x + slope) / slope
    return x


def _failures_per_s(nodes: float, rate_per_node_day: float, write_s: float) -> float:
    """L = N r_f, failures of the job per second; InputError where an argument makes no sense."""
    require_number("nodes", nodes, positive=True)
    require_number("rate_per_node_day", rate_per_node_day, positive=False)
    require_number("write_s", write_s, positive=False)
    return nodes * rate_per_node_day / SECONDS_PER_DAY


def require_number(name: str, value: float, *, positive: bool) -> None:
    """Raise InputError unless the value is finite and zero or more (above zero if `positive`)."""
    most = MOST_NODES if name == "nodes" else math.inf
    if not math.isfinite(value) or not 0 <= value <= most or (positive and value == 0):
        raise InputError(
            f"invalid {name}",
            code="invalid-value",
            found=repr(value),
            expected="a finite number above zero" if positive else "a finite number, zero or more",
        )
