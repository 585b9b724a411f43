"""Has the level of a series risen, for good? Medians of the last values against a trailing window."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from math import sqrt

from holdfast.runs.watching.thresholds import Thresholds

SHORT, LONG = 11, 61
"""Values in the two recent windows: the short one is quick, the long one sees through noise."""
STANDARD_ERROR = 1.2533
"""Standard error of a median of n normal values: this times the standard deviation over sqrt(n)."""
LEVELS = 64
"""Medians of the short window that are kept, one in 11 steps, to measure its drift."""
LEAST_LEVELS = 8
LEAST_DEVIATION = 0.02
"""Minimum deviation, relative to the usual level, so that steady series are not too sensitive."""


class SortedWindow:
    """The last `size` values, kept sorted: adding one moves some memory, the median costs nothing."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._order: deque[float] = deque()
        self._sorted: list[float] = []

    def __len__(self) -> int:
        return len(self._sorted)

    def add(self, value: float) -> float | None:
        """Add a value; the one that left the window for it, if any."""
        left = None
        if len(self._order) == self.size:
            left = self._order.popleft()
            del self._sorted[bisect_left(self._sorted, left)]
        self._order.append(value)
        insort(self._sorted, value)
        return left

    def median(self) -> float:
        """The median; the window must hold a value."""
        count = len(self._sorted)
        return (self._sorted[count // 2] + self._sorted[(count - 1) // 2]) / 2

    def deviation(self) -> float:
        """1.4826 times the median absolute deviation: the standard deviation of normal values."""
        middle = self.median()
        deviations = sorted(abs(value - middle) for value in self._sorted)
        count = len(deviations)
        return 1.4826 * (deviations[count // 2] + deviations[(count - 1) // 2]) / 2


class LevelShift:
    """Watches one series for a lasting rise.

    The level has risen when the median of the last 11 values, or of the last 61, is `factor` times the
    median of the trailing window before them and lies `Thresholds.score` of its standard errors above it.
    The spread behind the error is the trailing window's median absolute deviation; where earlier medians
    of the short window wandered more than that explains (slow steps that come in episodes), both errors
    grow by as much. The rise is an alarm once it held
    over `Thresholds.confirm_steps` high values and `Thresholds.confirm_s` of the time that they took. One
    long value, such as a step with a pause of the garbage collector, moves no median. While the level is
    up, the trailing window learns nothing, so that the new level does not become the usual one by waiting
    (until `Thresholds.settle_s`, which is for a change that was meant).
    """

    def __init__(self, thresholds: Thresholds, factor: float) -> None:
        self._limits = thresholds
        self._factor = factor
        self._short = SortedWindow(SHORT)
        self._long = SortedWindow(LONG)
        self._usual = SortedWindow(thresholds.baseline_steps)
        self._levels = SortedWindow(LEVELS)
        self._until_level = SHORT
        self._high_steps = 0
        self._high_s = 0.0
        self._open_s = 0.0
        self.open = False
        self.since: int | None = None
        """Label (step) of the first value of the rise."""

    @property
    def level(self) -> float:
        """The median of the last 11 values."""
        return self._short.median()

    @property
    def usual(self) -> float | None:
        """The median of the trailing window; None before it has `Thresholds.least_steps` values."""
        if len(self._usual) < self._limits.least_steps:
            return None
        return self._usual.median()

    @property
    def lasted_s(self) -> float:
        """Time spent in high values."""
        return self._high_s

    def add(self, value: float, spent_s: float, label: int) -> None:
        """Add a value that took `spent_s` seconds; `label` names it (the step)."""
        self._long.add(value)
        left = self._short.add(value)
        usual = self.usual
        if usual is None or usual <= 0:
            if left is not None:
                self._usual.add(left)
            return
        if self.open:
            self._follow(value, usual, spent_s)
        elif self._risen(usual):
            self._confirm(value, usual, spent_s, label)
        else:
            self._calm()
            if left is not None:
                self._usual.add(left)
            self._until_level -= 1
            if self._until_level == 0:
                self._until_level = SHORT
                self._levels.add(self.level)

    def _risen(self, usual: float) -> bool:
        levels = [window.median() for window in (self._short, self._long)]
        if max(levels) < self._factor * usual:
            return False
        error = STANDARD_ERROR * max(self._usual.deviation(), LEAST_DEVIATION * usual)
        if len(self._levels) >= LEAST_LEVELS:
            error = max(error, self._levels.deviation() * sqrt(SHORT))
        return any(
            level >= self._factor * usual
            and level - usual >= self._limits.score * error / sqrt(len(window))
            for window, level in zip((self._short, self._long), levels, strict=True)
        )

    def _confirm(self, value: float, usual: float, spent_s: float, label: int) -> None:
        if self.since is None:
            self.since = label - min(len(self._short), SHORT) // 2
        if value >= self._factor * usual:
            self._high_steps += 1
            self._high_s += spent_s
        self.open = (
            self._high_steps >= self._limits.confirm_steps
            and self._high_s >= self._limits.confirm_s
        )

    def _follow(self, value: float, usual: float, spent_s: float) -> None:
        self._open_s += spent_s
        self._high_s += spent_s
        if self._open_s >= self._limits.settle_s:
            self._usual = SortedWindow(self._limits.baseline_steps)
            self._levels = SortedWindow(LEVELS)
            self._close()
        elif max(self._short.median(), value) < self._limits.over_factor * usual:
            self._close()

    def _close(self) -> None:
        self.open = False
        self._open_s = 0.0
        self._long = SortedWindow(LONG)  # what it holds is of the level that is over
        self._calm()

    def _calm(self) -> None:
        self.since = None
        self._high_steps = 0
        self._high_s = 0.0
