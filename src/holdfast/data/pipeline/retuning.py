"""Changing the concurrency of stages while they run, when the consumer starves.

Hill climbing on the measured rate, bounded, and with every step that does not pay taken back: what a trace
of yesterday cannot know (a slower store, a neighbour on the machine) is answered by trying.
"""

from __future__ import annotations

from collections.abc import Mapping

# Share of the time that the consumer may wait before anything is tried.
STARVED = 0.05
# A step stays if the rate grows by this share; less is noise.
GAIN = 0.05
# Stages as busy as this share of the busiest are raised with it: each alone would not help.
TIED = 0.9
# Steps tried in all.
TRIALS = 12


class Climb:
    """Concurrency of each stage, from one measured window to the next.

    Args:
        limits: concurrency at the start, by stage.
        ceiling: highest concurrency of a stage.
        trials: steps tried in all.
    """

    def __init__(self, limits: Mapping[str, int], ceiling: int, trials: int = TRIALS) -> None:
        # In force.
        self.limits = dict(limits)
        self.trials_left = trials
        # New concurrency of stages, by step that stayed.
        self.accepted: list[dict[str, int]] = []
        self._ceiling = ceiling
        self._useless: set[str] = set()
        self._trial: tuple[dict[str, int], float] | None = None  # limits and rate before

    def observe(self, rate: float, starved: float, occupancy: Mapping[str, float]) -> bool:
        """Decide after a window; True if `limits` changed.

        Args:
            rate: elements per second that the consumer received.
            starved: share of the window that the consumer waited.
            occupancy: share of its permits that a stage used; the bottleneck's are all in use.
        """
        if self._trial is not None:
            before, rate_before = self._trial
            self._trial = None
            if rate < rate_before * (1 + GAIN):
                self.limits.update(before)
                self._useless.update(before)
                return True
            self.accepted.append({name: self.limits[name] for name in before})
            self._useless.clear()  # another stage may limit now
        candidates = {
            name: occupancy.get(name, 0.0)
            for name, limit in self.limits.items()
            if limit < self._ceiling and name not in self._useless
        }
        if starved <= STARVED or self.trials_left <= 0 or not candidates:
            return False
        busiest = max(candidates.values())
        tied = [name for name, busy in candidates.items() if busy >= TIED * busiest]
        self._trial = {name: self.limits[name] for name in tied}, rate
        for name in tied:
            # By half: enough for a stage that waits for 50 answers at a time, little for one that computes.
            limit = self.limits[name]
            self.limits[name] = min(self._ceiling, limit + max(1, limit // 2))
        self.trials_left -= 1
        return True
