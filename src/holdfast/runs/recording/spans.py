"""Spans: parts of a training's time, written when they are over."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING, SupportsFloat

from holdfast.runs.recording.collectives import WAITS

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
        "waits",
        "weight_norm",
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
        self.weight_norm: SupportsFloat | None = None
        """Of a model that other ranks hold, too: replicas whose norms differ are corrupted."""
        self.sync_s: float | None = None
        """Seconds of the step spent waiting for the other ranks; measured where it is not given."""
        self.begun = 0.0
        self.inner_s = 0.0
        self.waits: dict[str, float] = {}
        """`collectives.WAITS` as it was at the begin."""

    def __enter__(self) -> Span:
        self.begun = time.monotonic()
        self.waits = WAITS.mark()
        self._recorder._enter_span(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._recorder._exit_span(self, error)
