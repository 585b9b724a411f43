"""Random numbers whose bits are the same on every machine.

Every entity (a job, a node) has a stream of its own: number k of a stream is a hash of (seed, what the
stream is for, entity, k). So two scenarios with one seed share the randomness of every job and node, and
nothing depends on the order in which events happen. The distributions use only + - * / and square roots,
which IEEE 754 fixes to the last bit; the logarithms of C libraries differ between machines.

Sources: the hash is SplitMix64 (Steele, Lea and Flood, OOPSLA 2014); the normal quantile is algorithm
AS 241 (Wichura, Applied Statistics 37, 1988).
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from holdfast.kernels import kernel

ARRIVALS, JOB, REQUEUE, NODE, SHARED, LEMON = range(6)  # What a stream is for

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_LN2_HIGH = 6.93147180369123816490e-01
_LN2_LOW = 1.90821492927058770002e-10
_SQRT_HALF = 0.7071067811865476


@njit(cache=True, inline="always")
def _mix(x: np.uint64) -> np.uint64:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@kernel()
def stream(seed: int, use: int, entity: int) -> np.uint64:
    """The stream of one entity."""
    first = _mix(np.uint64(seed) + _GOLDEN)
    second = _mix(first ^ (np.uint64(use + 1) * _GOLDEN))
    return _mix(second ^ (np.uint64(entity + 1) * np.uint64(0xD1B54A32D192ED03)))


@kernel()
def uniform(of: np.uint64, k: int) -> float:
    """Number k of a stream: uniform in the open interval (0, 1)."""
    bits = _mix(of + np.uint64(k + 1) * _GOLDEN)
    return (float(bits >> np.uint64(12)) + 0.5) * 2.0**-52


@kernel()
def ln(x: float) -> float:
    """The natural logarithm of a positive number, within two units in the last place."""
    fraction, exponent = math.frexp(x)
    if fraction < _SQRT_HALF:
        fraction *= 2.0
        exponent -= 1
    s = (fraction - 1.0) / (fraction + 1.0)
    square = s * s
    total = 0.0
    for k in range(23, 0, -2):
        total = total * square + 1.0 / k
    return exponent * _LN2_HIGH + (2.0 * s * total + exponent * _LN2_LOW)


@kernel()
def exp(x: float) -> float:
    """The exponential function for arguments of at most 700."""
    if x < -700.0:
        return 0.0
    times = math.floor(x / (_LN2_HIGH + _LN2_LOW) + 0.5)
    rest = (x - times * _LN2_HIGH) - times * _LN2_LOW
    total = 1.0
    for k in range(14, 0, -1):
        total = 1.0 + total * rest / k
    return math.ldexp(total, int(times))


@kernel()
def exponential(of: np.uint64, k: int) -> float:
    """Number k of a stream as an exponential variable of mean one."""
    return -ln(uniform(of, k))


@kernel()
def weibull(of: np.uint64, k: int, scale: float, shape: float) -> float:
    """Number k of a stream as a Weibull variable."""
    drawn = exponential(of, k)
    return scale * (drawn if shape == 1.0 else exp(ln(drawn) / shape))


@kernel()
def normal(of: np.uint64, k: int) -> float:
    """Number k of a stream as a standard normal variable."""
    return normal_quantile(uniform(of, k))


@kernel()
def normal_quantile(p: float) -> float:
    """The value that a standard normal variable stays below with probability p."""
    q = p - 0.5
    if abs(q) <= 0.425:
        r = 0.180625 - q * q
        return q * _ratio(r, _CENTRE_OVER, _CENTRE_UNDER)
    r = math.sqrt(-ln(min(p, 1.0 - p)))
    if r <= 5.0:
        value = _ratio(r - 1.6, _SIDE_OVER, _SIDE_UNDER)
    else:
        value = _ratio(r - 5.0, _TAIL_OVER, _TAIL_UNDER)
    return -value if q < 0.0 else value


@kernel()
def _ratio(x: float, over: tuple[float, ...], under: tuple[float, ...]) -> float:
    top = bottom = 0.0
    for k in range(len(over) - 1, -1, -1):
        top = top * x + over[k]
        bottom = bottom * x + under[k]
    return top / bottom


# Wichura's coefficients, lowest power first.
_CENTRE_OVER = (
    3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3,
    1.3731693765509461125e4, 4.5921953931549871457e4, 6.7265770927008700853e4,
    3.3430575583588128105e4, 2.5090809287301226727e3,
)  # fmt: skip
_CENTRE_UNDER = (
    1.0, 4.2313330701600911252e1, 6.8718700749205790830e2, 5.3941960214247511077e3,
    2.1213794301586595867e4, 3.9307895800092710610e4, 2.8729085735721942674e4,
    5.2264952788528545610e3,
)  # fmt: skip
_SIDE_OVER = (
    1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0,
    3.64784832476320460504e0, 1.27045825245236838258e0, 2.41780725177450611770e-1,
    2.27238449892691845833e-2, 7.74545014278341407640e-4,
)  # fmt: skip
_SIDE_UNDER = (
    1.0, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1,
    1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4,
    1.05075007164441684324e-9,
)  # fmt: skip
_TAIL_OVER = (
    6.65790464350110377720e0, 5.46378491116411436990e0, 1.78482653991729133580e0,
    2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3,
    2.71155556874348757815e-5, 2.01033439929228813265e-7,
)  # fmt: skip
_TAIL_UNDER = (
    1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2,
    7.86869131145613259100e-4, 1.84631831751005468180e-5, 1.42151175831644588870e-7,
    2.04426310338993978564e-15,
)  # fmt: skip
