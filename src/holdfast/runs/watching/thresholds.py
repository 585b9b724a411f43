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
    may show it up to a minute late."""
    hang_s: float = 120.0
    """Minimum time without progress for a hang: input stalls and compilations are shorter."""
    hang_factor: float = 10.0
    """... and at least this many usual steps."""
    span_s: float = 300.0
    """Minimum time inside one checkpoint, evaluation, pause or initialisation for a hang."""
    span_factor: float = 5.0
    """... and at least this many times the median of the earlier ones of its kind."""
    first_s: float = 1800.0
    """Limit of the first of its kind: the first initialisation, the first checkpoint."""
    slow_factor: float = 1.5
    """Steps are slow if they take this many times the baseline, or if throughput is lower by it."""
    over_factor: float = 1.25
    """The alarm closes when steps are below this factor again (hysteresis)."""
    score: float = 8.0
    """... and the median of the recent steps is this many of its standard errors above the baseline."""
    confirm_s: float = 60.0
    """Time in slow steps before an alarm."""
    confirm_steps: int = 3
    """... and number of steps after their median became slow."""
    baseline_steps: int = 512
    """The baseline is the median of this many steps before the recent ones."""
    least_steps: int = 32
    """Minimum steps of a baseline before steps can be slow."""
    settle_s: float = 3600.0
    """Time after which a new level becomes the baseline: the alarm closes."""
    loss_factor: float = 2.0
    """A loss that rose by this factor, for as long as slow steps must last, is a spike."""
    grad_norm_factor: float = 5.0
    """The same for the norm of the gradient."""
    finite_steps: int = 10
    """Steps with a finite loss after which the alarm of a non-finite loss closes."""
    crash_restarts: int = 3
    """Number of restarts without progress that are a crash loop."""
    crash_window_s: float = 7200.0
    """... if they occurred within this time."""
    crash_new_steps: int = 10
    """Number of new steps, beyond the highest completed one, that count as progress."""
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
            InputError: an unknown threshold, or an invalid value.
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
