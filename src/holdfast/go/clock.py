"""Time controls of GTP 2: what a move may take so that no limit is ever exceeded."""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.go._kernels import BLACK, WHITE

MARGIN_S = 0.3
"""Time kept back for what the search does not see: pipes, a busy machine."""
_USABLE = 0.9
"""Share of the time of a move that is searched; the rest is for the slice that runs over."""


@dataclass
class Clock:
    """Time settings (main time, then periods of `stones` moves each) and what is left of them."""

    main_s: float = 0.0
    period_s: float = 0.0
    stones: int = 0
    limited: bool = False
    """False: no time limit."""
    left: dict[int, tuple[float, int]] = field(default_factory=dict)  # filled by `restart`
    """Color -> seconds left, and moves that they have to suffice for; 0: main time."""

    def set(self, main_s: float, period_s: float, stones: int) -> None:
        """New settings; a period without moves means no limit, as the protocol has it."""
        self.main_s, self.period_s, self.stones = main_s, period_s, stones
        self.limited = not (period_s > 0 and stones == 0)
        self.restart()

    def restart(self) -> None:
        """All time of the settings is left again."""
        begin = (self.main_s, 0)
        if self.main_s <= 0 and self.stones:
            begin = (self.period_s, self.stones)
        self.left = {BLACK: begin, WHITE: begin}

    def allowance(self, color: int, moves_left: int) -> float | None:
        """Seconds that the next move may take; None without a limit.

        Args:
            color: who moves.
            moves_left: how many moves the main time should suffice for.
        """
        if not self.limited:
            return None
        seconds, stones = self.left[color]
        share = seconds / (stones or max(1, moves_left))
        if not stones and self.stones:
            # Behind the main time, a period begins; do not move into it by more than one move of it.
            share = max(share, min(seconds, self.period_s / self.stones))
        return max(0.0, min(share, seconds - MARGIN_S) * _USABLE)

    def spend(self, color: int, seconds: float) -> None:
        """Count a move; a controller's own count, if it sends any, replaces this one."""
        if not self.limited:
            return
        left, stones = self.left[color]
        left -= seconds
        if stones == 0 and left <= 0 and self.stones:
            left, stones = left + self.period_s, self.stones
        elif stones == 1:
            left, stones = self.period_s, self.stones
        elif stones:
            stones -= 1
        self.left[color] = (left, stones)
