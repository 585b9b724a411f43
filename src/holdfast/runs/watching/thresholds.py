"""When something is an alarm: every limit of the watcher, with its default and the reason for it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace

from holdfast.durations import parse_duration
from holdfast.errors import InputError


@dataclass(frozen=True)
class Thresholds:
    """The limits. Names that end in ``_s`` are seconds, in ``_steps`` steps; others counts or factors."""

    silence_s: float = 60.0
    """A rank that wrote nothing for this long is silent. The recorder writes at least once a second; NFS
    may show what was written up to a minute late."""
    hang_s: float = 120.0
    """The least time without progress that is a hang: stalls of the input and compilations are shorter."""
    hang_factor: float = 10.0
    """... and at least this many usual steps."""
    span_s: float = 300.0
    """The least time inside one checkpoint, evaluation, pause or initialisation that is a hang."""
    span_factor: float = 5.0
    """... and at least this many times the median of the earlier ones of its kind."""
    first_s: float = 1800.0
    """The limit of a kind that was not seen before: the first initialisation, the first checkpoint."""
    slow_factor: float = 1.5
    """Steps that take this many times the usual, or a throughput lower by it, are slow."""
    over_factor: float = 1.25
    """Slow steps are over when they are back below this (hysteresis)."""
    score: float = 8.0
    """... and the median of the recent steps lies this many of its standard errors above the usual."""
    confirm_s: float = 60.0
    """Time in slow steps before they are an alarm."""
    confirm_steps: int = 3
    """... and as many steps after their median became slow."""
    baseline_steps: int = 512
    """The usual is the median of as many steps before the recent ones."""
    least_steps: int = 32
    """No judgement of slowness before the usual rests on as many steps."""
    settle_s: float = 3600.0
    """After so long a new level is the usual one: the alarm closes, and the level is learned anew."""
    loss_factor: float = 2.0
    """A loss that rose by this factor, for as long as slow steps must last, is a spike."""
    grad_norm_factor: float = 5.0
    """The same for the norm of the gradient."""
    finite_steps: int = 10
    """An alarm of a loss that is no number closes after as many steps with a finite one."""
    crash_restarts: int = 3
    """So many restarts without progress are a crash loop."""
    crash_window_s: float = 7200.0
    """... if they fell within this time."""
    crash_new_steps: int = 10
    """Progress is as many steps beyond what was ever completed."""
    assemble_s: float = 300.0
    """Time for all ranks to appear after the first one did."""
    down_s: float = 300.0
    """Time after a run ended in failure until it should have been started again."""

    def __post_init__(self) -> None:
        for field in fields(self):
            if not getattr(self, field.name) > 0:
                raise InputError(
                    f"{field.name} must be above zero",
                    code="invalid-value",
                    found=str(getattr(self, field.name)),
                )
        if not 1 <= self.over_factor <= self.slow_factor:
            raise InputError(
                "over_factor must lie between 1 and slow_factor",
                code="invalid-value",
                found=f"over_factor {self.over_factor:g}, slow_factor {self.slow_factor:g}",
            )

    def changed(self, changes: Iterable[str]) -> Thresholds:
        """With changes such as ``hang_s=5m`` or ``slow_factor=2``.

        Raises:
            InputError: a name that is no threshold, or a value that is none.
        """
        kinds = {field.name: type(getattr(self, field.name)) for field in fields(self)}
        values: dict[str, float] = {}
        for change in changes:
            name, _, text = change.partition("=")
            if name not in kinds:
                raise InputError(
                    f"unknown threshold {name!r}",
                    code="unknown-name",
                    expected=", ".join(kinds),
                    found=change,
                )
            try:
                value = parse_duration(text) if name.endswith("_s") else float(text)
            except ValueError:
                raise InputError(
                    f"{text!r} is not a valid value of {name}",
                    code="invalid-value",
                    expected=f"{name}=90s" if name.endswith("_s") else f"{name}=3",
                ) from None
            if kinds[name] is int and value != int(value):
                raise InputError(f"{name} is a whole number", code="invalid-value", found=text)
            values[name] = kinds[name](value)
        return replace(self, **values)  # type: ignore[arg-type]


DEFAULTS = Thresholds()
