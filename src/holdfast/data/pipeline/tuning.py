"""Tuning: predict the best settings, try them, keep them if they are faster and the data are the same."""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from holdfast.answer import Answer, ColumnFormat, How, Section, Value
from holdfast.config import parse_config
from holdfast.data.pipeline import dataloader, prediction
from holdfast.data.pipeline.encoding import digest
from holdfast.data.pipeline.explanation import in_words, rate_figures
from holdfast.data.pipeline.measuring import Consumer, Run, measure
from holdfast.data.pipeline.randomness import random_state_restored
from holdfast.data.pipeline.stages import Trace, unsupported
from holdfast.data.pipeline.targets import built
from holdfast.data.pipeline.tracing import trace
from holdfast.errors import InputError
from holdfast.files import write_whole
from holdfast.numbers import brief, number

TRIALS = 3
# Batches whose content is compared, and that are left out of every measurement.
COMPARED = 4
# A setting that gains less than this share is not worth a change.
GAIN = 0.02
# Batches that a trace needs to be tuned by.
FEWEST = 8
# A trial that differs from its prediction by more than this share leads to another one.
SURPRISE = 0.15
# Processes must be predicted to be so many times as fast as threads: samples are copied to them.
PROCESSES_GAIN = 1.1
# Shares of the time of tuning for the trace and for each trial.
TRACED, TRIED = 0.25, 0.1

Draws = Literal["keep", "any"]
# Hashes of the first batches, and the samples that they are made of.
FirstBatches = tuple[list[str], list[str]]
Data = Literal["identical", "other random draws", "different", "not tried"]


@dataclass(frozen=True)
class Trial:
    """One setting that was tried: the prediction was written before the measurement.

    Args:
        measured: batches per second; None: the data were different, and the trial was stopped.
    """

    settings: dict[str, int]
    predicted: float
    interval: tuple[float, float]
    measured: float | None
    data: Data

    @property
    def rate(self) -> float:
        """What counts: 0 if the data were different."""
        return self.measured or 0.0


@dataclass(frozen=True)
class Tuning(Answer):
    """What tuning did: rates in batches per second.

    Args:
        before: measured under the settings at the start; where a trial was faster, the higher of two rates.
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

    def sections(self) -> Sequence[Section]:
        """What was gained, trial by trial."""
        sentence = (
            f"{brief(self.before)} -> {brief(self.after)} batches per second "
            f"({number(self.after / self.before, 2)} times) with {in_words(self.settings)}: {self.reason}."
        )
        columns = ("interval", "measured", "data")
        rows = [
            {"change": in_words(trial.settings), "rate": trial.predicted}
            | {name: getattr(trial, name) for name in columns}
            for trial in self.trials
        ]
        more = {
            "measured": ColumnFormat("Measured", "batches per second", digits=1),
            "data": ColumnFormat("Data"),
        }
        how = How(
            "kept = the fastest trial with the same data, if at least 2 % faster than the start",
            notes=(
                f"The first {COMPARED} batches of every trial are compared with those of the start by "
                "hash. Random states are restored before and after. Dashed: before."
            ),
        )
        figures, tables = rate_figures(rows, self.before, more) if rows else ([], [])
        return [Section("trials", "What was gained?", sentence, figures, tables, how)]


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
    loader, consumer = built(make_loader)
    traced = trace(loader, seconds * TRACED, consumer, calibration_s=min(1.5, seconds / 20))
    require_precise(traced)
    _, original = _run(loader, {}, 0.0)
    fixed = draws == "keep" and not prediction.is_graph(traced) and _seeded(make_loader, original)

    def attempt(settings: dict[str, int]) -> Trial:
        """Predict, measure, and compare the data."""
        predicted = prediction.predict(traced, settings)
        run, (hashes, samples) = _run(loader, settings, TRIED * seconds, consumer)
        data: Data = "different"
        if hashes == original[0]:
            data = "identical"
        elif samples == original[1] and not fixed and any(part.random for part in traced.stages):
            data = "other random draws"
        measured = None if data == "different" else run.rate
        return Trial(settings, *predicted, measured, data)

    attempts: list[Trial] = []
    candidates = _candidates(traced, loader)
    while candidates and len(attempts) < trials:
        late = time.perf_counter() - began > seconds * (1 - 2 * TRIED)
        if attempts and late:
            break
        trial = attempt(candidates.pop(0))
        attempts.append(trial)
        if trial.measured and abs(trial.measured / trial.predicted - 1) <= SURPRISE:
            break
        done = [previous.settings for previous in attempts]
        candidates = [
            settings
            for settings in candidates + _next(traced, trial)
            if settings not in (*done, traced.settings)
        ]
    start = traced.rate
    if any(trial.rate >= start * (1 + GAIN) for trial in attempts):
        # Beside the trials: a start that was traced in a slow moment of the machine would make any
        # setting look faster.
        run, _ = _run(loader, {}, TRIED * seconds, consumer)
        start = max(start, run.rate)
    return outcome(traced, attempts, start, output, time.perf_counter() - began)


def require_precise(traced: Trace) -> None:
    """Refuse to tune by a trace that does not know the rate.

    Raises:
        InputError: ``trace-too-short``.
    """
    error = prediction.relative_error(traced)
    if traced.batches < FEWEST or error > prediction.HIGHEST_ERROR:
        raise InputError(
            "the trace is too short to tune by",
            code="trace-too-short",
            place=f"{traced.batches} batches in {traced.seconds:.1f} s",
            found=f"the rate is known to ±{100 * error:.0f} %" if error < math.inf else None,
            expected=f"at least {FEWEST} batches and ±{100 * prediction.HIGHEST_ERROR:.0f} %",
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
    if not isinstance(settings, Mapping):
        settings = parse_config(settings, "the settings of a pipeline")
    if dataloader.is_loader(loader):
        return dataloader.with_settings(loader, settings)
    if not hasattr(loader, "with_settings"):
        raise unsupported("the settings of this loader are changed by hand", loader)
    return loader.with_settings(settings)


def _run(
    loader: Any, settings: Mapping[str, int], seconds: float, consumer: Consumer | None = None
) -> tuple[Run, FirstBatches]:
    """A run, with the hashes of its first batches and the samples that they are made of."""
    samples: list[str] = []
    hashes: list[str] = []

    def compared(batch: Any) -> None:
        if len(hashes) < COMPARED:
            hashes.append(digest(batch))
        if consumer is not None:
            consumer(batch)

    changed = apply(loader, settings)
    is_loader = dataloader.is_loader(loader)
    changed = dataloader.observed(changed, samples) if is_loader else changed.private()
    run = measure(changed, seconds, compared, warm_up=COMPARED)
    return run, (hashes, samples[:COMPARED])


def _seeded(make_loader: Callable[[], Any], original: FirstBatches) -> bool:
    """Whether the pipeline gives the same batches when it is made anew, whatever the random state was."""
    import torch

    with random_state_restored():
        torch.seed()
        random.seed()
        np.random.seed()  # noqa: NPY002
        loader, _ = built(make_loader)
        return _run(loader, {}, 0.0)[1][0] == original[0]


def _candidates(traced: Trace, loader: Any) -> list[dict[str, int]]:
    """The settings of the plan; none where the start is as good."""
    plans = [prediction.plan(traced)]
    if prediction.is_graph(traced):
        processes = prediction.plan(traced, loader.free_executors())
        if processes.rate > PROCESSES_GAIN * plans[0].rate:
            plans.insert(0, processes)
    settings = [prediction.plan_settings(traced, best) for best in plans]
    if dataloader.is_loader(loader) and dataloader.is_stream(loader.dataset):
        # Each worker decides what it reads of a stream: more of them might read it several times.
        settings[0]["num_workers"] = max(1, traced.settings["num_workers"])
    worth = traced.rate * (1 + GAIN)
    others = [candidate for candidate in settings if candidate != traced.settings]
    return [candidate for candidate in others if prediction.predict(traced, candidate)[0] >= worth]


def _next(traced: Trace, last: Trial) -> list[dict[str, int]]:
    """What to try after a trial of a `DataLoader` that was not as predicted."""
    if prediction.is_graph(traced):
        return []
    workers = last.settings["num_workers"]
    if last.measured is None:
        # Random draws differ between workers; the number of batches in flight changes none.
        return [{**traced.settings, "prefetch_factor": 4}] if traced.settings["num_workers"] else []
    if last.measured > last.predicted:
        return [{**last.settings, "num_workers": 2 * workers}]
    # Something that the trace did not show limits it: as many workers as that can serve.
    fewer = max(1, math.ceil(workers * last.measured / last.predicted))
    return [{**last.settings, "num_workers": fewer}]


def outcome(
    traced: Trace, attempts: Sequence[Trial], start: float, output: Path | None, seconds: float
) -> Tuning:
    """The fastest of the trials, with the fewest workers among equals, or the start, at its rate."""
    data: Data = "identical" if attempts else "not tried"
    present = Trial(dict(traced.settings), *prediction.predict(traced, {}), start, data)
    top = max((trial.rate for trial in attempts), default=0.0)
    best = min(
        (trial for trial in attempts if trial.rate >= top * (1 - GAIN)),
        key=lambda trial: trial.settings.get("num_workers", sum(trial.settings.values())),
        default=present,
    )
    faster = best.rate >= start * (1 + GAIN)
    if faster:
        reason = f"verified, data {best.data}"
    elif not attempts:
        reason = "no other setting is predicted to gain anything"
    elif all(trial.measured is None for trial in attempts):
        reason = "other settings change the data (random draws that depend on the worker)"
    else:
        reason = "what was tried is not faster"
    first, chosen = (*attempts, present)[0], best if faster else present
    if output is not None:
        # Stages may have any name; TOML wants quotes around most.
        names = {key: key if key.isidentifier() else json.dumps(key) for key in chosen.settings}
        lines = [f"{names[key]} = {value}\n" for key, value in chosen.settings.items()]
        write_whole(output, "".join(lines).encode())
    return Tuning(
        before=start,
        predicted=first.predicted,
        interval=first.interval,
        after=chosen.rate,
        settings=chosen.settings,
        rolled_back=bool(attempts) and not faster,
        trials=list(attempts),
        data=chosen.data,
        seconds=seconds,
        reason=reason,
        output=output,
    )
