"""Spans: parts of a training's time, written when they are over."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING, SupportsFloat

if TYPE_CHECKING:
    from holdfast.runs.recording.recorder import RunRecorder


class Span:
    """A part of the time, from `__enter__` to `__exit__`; `RunRecorder` makes it.

    What is assigned to its attributes before it is over is written with it. Python numbers and scalars
    of NumPy or torch are fine; one on an accelerator is waited for, so its wait is inside the span.
    """

    __slots__ = (
        "_recorder",
        "begun",
        "grad_norm",
        "inner_s",
        "kind",
        "loss",
        "number",
        "reason",
        "samples",
        "sync_s",
        "tokens",
    )

    def __init__(
        self,
        recorder: RunRecorder,
        kind: str,
        number: int | None = None,
        *,
        tokens: SupportsFloat | None = None,
        samples: SupportsFloat | None = None,
        reason: str | None = None,
    ) -> None:
        self._recorder = recorder
        self.kind = kind
        self.number = number
        self.reason = reason
        self.tokens = tokens
        """Tokens that this rank handled in the step."""
        self.samples = samples
        """Samples that this rank handled in the step."""
        self.loss: SupportsFloat | None = None
        self.grad_norm: SupportsFloat | None = None
        self.sync_s: float | None = None
        """Seconds of the step spent waiting for the other ranks; `sync` adds to it."""
        self.begun = 0.0
        self.inner_s = 0.0

    def __enter__(self) -> Span:
        self.begun = time.monotonic()
        self._recorder._enter_span(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._recorder._exit_span(self, error)

    def sync(self) -> Sync:
        """A block in which this rank waits for others (a collective); blocks add up in `sync_s`."""
        return Sync(self)


class Sync:
    """Time that a step spends with the other ranks."""

    __slots__ = ("_begun", "_span")

    def __init__(self, span: Span) -> None:
        self._span = span
        self._begun = 0.0

    def __enter__(self) -> None:
        self._begun = time.monotonic()

    def __exit__(self, *error: object) -> None:
        waited = time.monotonic() - self._begun
        self._span.sync_s = round((self._span.sync_s or 0.0) + waited, 6)
