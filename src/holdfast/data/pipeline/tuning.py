"""Tuning: predict the best settings, try them, keep them if they are faster and the data are the same."""

from __future__ import annotations

import hashlib
import json
import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from holdfast.answer import Answer, ColumnFormat, How, Section, Table, Tile, Value
from holdfast.data.pipeline import dataloader
from holdfast.data.pipeline.accounting import GROUP, Run
from holdfast.data.pipeline.prediction import HIGHEST_ERROR, plan, predict, relative_error
from holdfast.data.pipeline.stages import Trace
from holdfast.data.pipeline.targets import built
from holdfast.data.pipeline.tracing import Consumer, measure, trace
from holdfast.errors import InputError
from holdfast.files import write_whole
from holdfast.numbers import brief, interval, number
from holdfast.report.figures import intervals

TRIALS = 3
COMPARED = 4
"""Batches whose content is compared, and that are left out of every measurement."""
GAIN = 0.02
"""A setting that gains less than this share is not worth a change."""
FEWEST = 8
"""Batches that a trace needs to be tuned by."""
TRACED, TRIED = 0.25, 0.1
"""Shares of the time of tuning for the trace and for each trial."""

Draws = Literal["keep", "any"]
Data = Literal["identical", "other random draws", "different", "not tried"]


@dataclass(frozen=True)
class Trial:
    """One setting that was tried: the prediction was written before the measurement."""

    settings: dict[str, int]
    predicted: float
    interval: tuple[float, float]
    measured: float | None
    """Batches per second; None: the data were different, and the trial was stopped."""
    data: Data


@dataclass(frozen=True)
class Tuning(Answer):
    """What tuning did: rates in batches per second.

    Args:
        before: measured under the settings at the start.
        predicted: of the first trial, before it was run; of the start where nothing was tried.
        interval: of the prediction, 95 %.
        after: measured under `settings`; never less than `before`.
        settings: those to use.
        rolled_back: True: what was tried was slower or gave different data, and the start is kept.
        trials: in the order in which they ran.
        data: what the tuned loader gives, compared to the start.
        seconds: wall time of tuning.
        reason: why these settings.
        output: the settings file.
    """

    before: float
    predicted: float
    interval: tuple[float, float]
    after: float
    settings: dict[str, int]
    rolled_back: bool
    trials: list[Trial]
    data: Data
    seconds: float
    reason: str
    output: Path | None = None

    @property
    def title(self) -> str:
        """The heading of the page."""
        return "Tuned input pipeline"

    def written(self) -> Mapping[str, Path]:
        """The settings file."""
        return {} if self.output is None else {"settings": self.output}

    def values(self) -> Sequence[Value]:
        """What a later answer is compared by."""
        return [
            Value("before", self.before, "batches/s"),
            Value("after", self.after, "batches/s", better="higher"),
        ]

    def tiles(self) -> Sequence[Tile]:
        """Before, predicted, after."""
        return [
            Tile("Before", brief(self.before), "batches per second"),
            Tile("Predicted", brief(self.predicted), interval(*self.interval)),
            Tile("After", brief(self.after), f"{number(self.after / self.before, 2)} times"),
        ]

    def sections(self) -> Sequence[Section]:
        """What was gained, trial by trial."""
        settings = ", ".join(f"{key} {value}" for key, value in self.settings.items())
        sentence = (
            f"{brief(self.before)} -> {brief(self.after)} batches per second "
            f"({number(self.after / self.before, 2)} times) with {settings}: {self.reason}."
        )
        rows = [
            {
                "settings": ", ".join(f"{key} {value}" for key, value in trial.settings.items()),
                "predicted": trial.predicted,
                "low": trial.interval[0],
                "high": trial.interval[1],
                "measured": trial.measured,
                "data": trial.data,
            }
            for trial in self.trials
        ]
        columns = {
            "settings": ColumnFormat("Settings"),
            "predicted": ColumnFormat(
                "Predicted", "batches per second", digits=1, interval=("low", "high")
            ),
            "measured": ColumnFormat("Measured", "batches per second", digits=1),
            "data": ColumnFormat("Data"),
        }
        figure = intervals(
            rows,
            "settings",
            "predicted",
            "low",
            "high",
            "Predicted batches per second (dashed: before)",
            reference=self.before,
        )
        how = How(
            "kept = the fastest trial with the same data, if at least 2 % faster than the start",
            notes=(
                f"The first {COMPARED} batches of every trial are compared with those of the start by "
                "hash. Random states are restored before and after."
            ),
        )
        return [
            Section(
                "trials",
                "What was gained?",
                sentence,
                [figure] if rows else [],
                [Table(pa.Table.from_pylist(rows), columns)] if rows else [],
                how,
            )
        ]


def tune(
    make_loader: Callable[[], Any],
    *,
    seconds: float = 30.0,
    trials: int = TRIALS,
    draws: Draws = "keep",
    output: Path | None = None,
) -> Tuning:
    """Find faster settings of a loader, verify them, and roll back what is not faster.

    Args:
        make_loader: builds and returns the loader, or the loader and a consumer of its batches. Called
            twice: a pipeline whose random draws are seeded gives the same batches both times.
        seconds: wall time of it all.
        trials: settings that are tried at most.
        draws: ``"keep"``: settings that would change the draws of a seeded pipeline are not used;
            ``"any"``: they are. Samples and their order stay the same either way.
        output: where the settings are written, as TOML.

    Raises:
        InputError: ``trace-too-short``: the rate is not known well enough; and those of `trace`.
    """
    began = time.perf_counter()
    from holdfast.data.pipeline.graph import Pipeline

    loader, consumer = built(make_loader)
    if isinstance(loader, Pipeline):
        from holdfast.data.pipeline.graph_tuning import tune_graph

        return tune_graph(loader, consumer, seconds, trials, output)
    traced = trace(loader, seconds * TRACED, consumer, calibration_s=min(1.0, seconds / 30))
    require_precise(traced)
    original = fingerprints(loader, traced.settings)
    fixed = draws == "keep" and _seeded(make_loader, original)
    attempts: list[Trial] = []
    candidate = _first(traced, loader)
    while candidate and len(attempts) < trials:
        done = [attempt.settings for attempt in attempts]
        left = seconds - (time.perf_counter() - began)
        if candidate in done or (attempts and left < 2 * TRIED * seconds):
            break
        attempts.append(_try(traced, loader, candidate, original, fixed, consumer, TRIED * seconds))
        candidate = _next(traced, attempts)
    return outcome(traced, attempts, output, time.perf_counter() - began)


def require_precise(traced: Trace) -> None:
    """Refuse to tune by a trace that does not know the rate.

    Raises:
        InputError: ``trace-too-short``.
    """
    error = relative_error(traced)
    if traced.batches < FEWEST or error > HIGHEST_ERROR:
        raise InputError(
            "the trace is too short to tune by",
            code="trace-too-short",
            place=f"{traced.batches} batches in {traced.seconds:.1f} s",
            found=f"the rate is known to ±{100 * error:.0f} %" if error < math.inf else None,
            expected=f"at least {FEWEST} batches and ±{100 * HIGHEST_ERROR:.0f} %",
            remedy="tune longer (--seconds), or use smaller batches",
        )


def apply(loader: Any, settings: Path | str | Mapping[str, int]) -> Any:
    """A copy of a loader with the settings that tuning found; the loader itself is not changed.

    Args:
        loader: a torch `DataLoader` or a `Pipeline`.
        settings: the TOML file of ``tune -o``, or its content.

    Raises:
        InputError: a file that cannot be read, an unknown setting or a value out of range.
    """
    from holdfast.config import parse_config
    from holdfast.data.pipeline.graph import Pipeline

    if not isinstance(settings, Mapping):
        settings = parse_config(settings, "the settings of a pipeline")
    if isinstance(loader, Pipeline):
        from holdfast.data.pipeline.graph_tuning import with_graph_settings

        return with_graph_settings(loader, settings)
    return dataloader.with_settings(loader, settings)


def fingerprints(
    loader: Any, settings: Mapping[str, int], count: int = COMPARED
) -> tuple[list[str], list[str]]:
    """Hashes of the first batches, and the samples that they are made of.

    Args:
        loader: a torch `DataLoader`; its random state is restored.
        settings: to load with.
        count: number of batches.
    """
    run, samples = _run(loader, settings, 0.0, None, count)
    return list(run.digests), samples


def _run(
    loader: Any,
    settings: Mapping[str, int],
    seconds: float,
    consumer: Consumer | None,
    count: int = COMPARED,
) -> tuple[Run, list[str]]:
    """A run, with the hashes of its first batches and the samples that they are made of."""
    samples: list[str] = []
    observed = dataloader.observed(dataloader.with_settings(loader, settings), samples)
    run = measure(observed, seconds, consumer, digest=digest, digests=count)
    return run, samples[:count]


def digest(batch: Any) -> str:
    """Hash of all values in a batch, in their order."""
    state = hashlib.blake2b(digest_size=16)
    _update(state, batch)
    return state.hexdigest()


def _update(state: Any, thing: Any) -> None:
    if hasattr(thing, "numpy") and hasattr(thing, "detach"):  # a tensor
        thing = thing.detach().cpu()
        state.update(repr((tuple(thing.shape), thing.dtype)).encode())
        import torch

        thing = thing.contiguous().view(-1).view(torch.uint8) if thing.numel() else b""
        state.update(thing if isinstance(thing, bytes) else thing.numpy().tobytes())
    elif isinstance(thing, np.ndarray):
        state.update(repr((thing.shape, thing.dtype.str)).encode())
        state.update(thing.tobytes() if thing.dtype != object else repr(thing.tolist()).encode())
    elif isinstance(thing, Mapping):
        for key, value in thing.items():
            state.update(repr(key).encode())
            _update(state, value)
    elif isinstance(thing, (list, tuple)):
        state.update(f"{type(thing).__name__}{len(thing)}".encode())
        for part in thing:
            _update(state, part)
    elif isinstance(thing, (bytes, bytearray)):
        state.update(bytes(thing))
    elif hasattr(thing, "__dict__") and not isinstance(thing, type):
        _update(state, vars(thing))  # a batch class of the user's
    else:
        state.update(repr(thing).encode())


def _seeded(make_loader: Callable[[], Any], original: tuple[list[str], list[str]]) -> bool:
    """Whether the pipeline gives the same batches when it is made anew, whatever the random state was."""
    import torch

    before = torch.get_rng_state(), random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        torch.seed()
        random.seed()
        np.random.seed()  # noqa: NPY002
        loader, _ = built(make_loader)
        return fingerprints(loader, {})[0] == original[0]
    finally:
        torch.set_rng_state(before[0])
        random.setstate(before[1])
        np.random.set_state(before[2])  # noqa: NPY002


def _first(traced: Trace, loader: Any) -> dict[str, int] | None:
    """The settings of the plan; None where the start is as good."""
    best = plan(traced)
    settings = {"num_workers": best.parallelism[GROUP], "prefetch_factor": best.prefetch}
    if dataloader.is_iterable(loader):
        # Each worker decides what it reads of a stream: more of them might read it several times.
        workers = max(1, traced.settings["num_workers"])
        settings["num_workers"] = workers
    worth = predict(traced, settings)[0] >= traced.rate * (1 + GAIN)
    return settings if worth and settings != dict(traced.settings) else None


def _try(
    traced: Trace,
    loader: Any,
    settings: dict[str, int],
    original: tuple[list[str], list[str]],
    fixed: bool,
    consumer: Consumer | None,
    seconds: float,
) -> Trial:
    """Measure, and compare the data."""
    rate, ends = predict(traced, settings)
    trial = Trial(settings, rate, ends, None, "different")
    run, samples = _run(loader, settings, seconds, consumer)
    if list(run.digests) == original[0]:
        data: Data = "identical"
    elif samples == original[1] and not fixed and any(part.random for part in traced.stages):
        data = "other random draws"
    else:
        return trial
    return replace(trial, measured=run.batches / run.seconds if run.batches else 0.0, data=data)


def _next(traced: Trace, attempts: Sequence[Trial]) -> dict[str, int] | None:
    """What to try after a trial that was not as predicted; None: nothing more."""
    last = attempts[-1]
    workers, start = last.settings["num_workers"], traced.settings["num_workers"]
    if last.measured is None:
        # Random draws differ between workers; the number of batches in flight changes none.
        return {**traced.settings, "prefetch_factor": 4} if start else None
    low, high = last.interval
    if low <= last.measured <= high:
        return None
    if last.measured > high:
        return {**last.settings, "num_workers": 2 * workers}
    # Something that the trace did not show limits it: as many workers as that can serve.
    fewer = max(1, math.ceil(workers * last.measured / last.predicted))
    return {**last.settings, "num_workers": fewer} if fewer != workers else None


def outcome(
    traced: Trace, attempts: Sequence[Trial], output: Path | None, seconds: float
) -> Tuning:
    """The fastest of the trials, with the fewest workers among equals, or the start."""
    top = max((trial.measured or 0.0 for trial in attempts), default=0.0)
    fastest = [trial for trial in attempts if (trial.measured or 0.0) >= top * (1 - GAIN)]
    best = min(
        fastest,
        key=lambda trial: trial.settings.get("num_workers", sum(trial.settings.values())),
        default=None,
    )
    settings, after, data = dict(traced.settings), traced.rate, "not tried"
    faster = best is not None and (best.measured or 0.0) >= traced.rate * (1 + GAIN)
    if not attempts:
        reason = "no other setting is predicted to gain anything"
    elif faster and best is not None:
        settings, after, data = best.settings, best.measured or 0.0, best.data
        reason = f"verified, data {data}"
    elif all(trial.measured is None for trial in attempts):
        reason = "other settings change the data (random draws that depend on the worker)"
        data = "identical"
    else:
        reason, data = "what was tried is not faster", "identical"
    rate, ends = (attempts[0].predicted, attempts[0].interval) if attempts else predict(traced, {})
    if output is not None:
        lines = [f"{_key(key)} = {value}" for key, value in settings.items()]
        write_whole(output, ("\n".join(lines) + "\n").encode())
    return Tuning(
        before=traced.rate,
        predicted=rate,
        interval=ends,
        after=after,
        settings=settings,
        rolled_back=bool(attempts) and not faster,
        trials=list(attempts),
        data=data,  # type: ignore[arg-type]
        seconds=seconds,
        reason=reason,
        output=output,
    )


def _key(name: str) -> str:
    """A key of TOML: stages may have any name."""
    return name if name.isidentifier() else json.dumps(name)
