"""Tuning: predict the best settings, try them, keep them if they are faster and the data are the same."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from holdfast.answer import Answer, ColumnFormat, How, Section, Unknown, Value
from holdfast.config import parse_config
from holdfast.data.pipeline import comparing, dataloader, prediction
from holdfast.data.pipeline.cache_plan import SHARE, plan_sample_cache
from holdfast.data.pipeline.cached_samples import CACHE
from holdfast.data.pipeline.comparing import Data
from holdfast.data.pipeline.explanation import in_words, loaded, rate_figures
from holdfast.data.pipeline.measuring import measure
from holdfast.data.pipeline.randomness import random_state_restored
from holdfast.data.pipeline.recording import SOURCE
from holdfast.data.pipeline.stages import Trace, over_epochs, unsupported
from holdfast.data.pipeline.tracing import built, trace
from holdfast.errors import InputError
from holdfast.files import write_whole
from holdfast.numbers import brief, number

TRIALS = 3
# A setting that gains less than this share is not worth a change.
GAIN = 0.02
# Batches that a trace needs to be tuned by.
FEWEST = 8
# A trial that differs from its prediction by more than this share leads to another one.
SURPRISE = 0.15
# Processes must be predicted to be so many times as fast as threads: samples are copied to them.
PROCESSES_GAIN = 1.1
# After a trial, other settings are tried if they are predicted to reach this share of its rate.
CLOSE = 0.8
# A cache takes memory: it must be predicted to gain this share.
CACHE_GAIN = 0.1
# Shares of the time of tuning for the trace, for each trial, and for comparing its data.
TRACED, TRIED, MATCHED = 0.2, 0.1, 0.05

Draws = Literal["keep", "any"]


@dataclass(frozen=True)
class Trial:
    """One setting that was tried: the prediction was written before the measurement.

    Args:
        measured: batches per second, with a cache those after the first epoch; None: the data were
            different, and it was not run.
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
        predicted: of the settings to use, before they were run; where the start is kept, of the first
            trial; of the start where nothing was tried.
        interval: of the prediction, 95 %.
        after: measured under `settings`; never less than `before`.
        settings: those to use.
        rolled_back: True: what was tried was slower or gave different data, and the start is kept.
        trials: in the order in which they ran.
        data: what the tuned loader gives, compared to the start.
        compared: batches of each trial that were compared.
        unknown: what makes the answer doubtful.
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
    compared: int
    unknown: list[Unknown]
    seconds: float
    reason: str
    output: Path | None = None

    def unknowns(self) -> Sequence[Unknown]:
        """What makes the answer doubtful."""
        return self.unknown

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
        rows = [
            {
                "change": in_words(trial.settings),
                "rate": trial.predicted,
                "interval": trial.interval,
                "measured": trial.measured,
                "data": trial.data,
            }
            for trial in self.trials
        ]
        more = {
            "measured": ColumnFormat("Measured", "batches per second", digits=1),
            "data": ColumnFormat("Data"),
        }
        how = How(
            "kept = the fastest trial with the same data, if at least 2 % faster than the start",
            notes=(
                f"{self.compared} batches of every trial are compared with those of the start by hash: the "
                "first ones in a row, some in the middle of an epoch, and the last. Where random draws "
                "differ, they are seeded by the sample for this. Dashed: before."
            ),
        )
        figures, tables = rate_figures(rows, self.before, more) if rows else ([], [])
        return [Section("trials", "What was gained?", sentence, figures, tables, how)]


def tune(
    make_loader: Callable[[], Any],
    *,
    seconds: float = 30.0,
    draws: Draws = "keep",
    cache: bool = True,
    output: Path | None = None,
) -> Tuning:
    """Find faster settings of a loader, verify them, and roll back what is not faster.

    Args:
        make_loader: builds and returns the loader, or the loader and a consumer of its batches. Called
            twice: a pipeline whose random draws are seeded gives the same batches both times.
        seconds: wall time of it all.
        draws: ``"keep"``: settings that would change the draws of a seeded pipeline are not used;
            ``"any"``: they are. Samples and their order stay the same either way.
        cache: whether samples may be cached in memory; it pays from the second epoch on.
        output: where the settings are written, as TOML.

    Raises:
        InputError: ``trace-too-short``: the rate is not known well enough; and those of `trace`.
    """
    began = time.perf_counter()
    loader, consumer = built(make_loader)
    traced = trace(loader, seconds * TRACED, consumer, calibration_s=min(1.5, seconds / 20))
    require_precise(traced)
    start = Start(loader, traced, MATCHED * seconds, draws, make_loader)
    attempts: list[Trial] = []

    def rate_of(other: Any) -> float:
        """Batches per second, over epochs as long as those that were traced."""
        other = other if dataloader.is_loader(other) else other.private()
        # Where few batches come again and again, all of them first.
        run = measure(other, TRIED * seconds, consumer, warm_up=start.compared)
        return over_epochs(run.rate, run.start_s, traced.epoch_batches)

    def attempt(settings: dict[str, int]) -> Trial:
        """Predict, compare the data, and measure."""
        predicted = prediction.predict(traced, settings)
        changed = apply(loader, settings)
        data, measured = start.data_of(changed, settings), None
        if data in KEPT:
            if "cache_bytes" in settings:
                # Of a few batches again and again: what it gives once it is full.
                changed = dataloader.picked(changed, range(start.compared))
            measured = rate_of(changed)
        return Trial(settings, *predicted, measured, data)

    def late() -> bool:
        left = seconds - (time.perf_counter() - began)
        return bool(attempts) and left < (2 * TRIED + MATCHED) * seconds

    candidates = _candidates(traced, loader, start)
    place = cache and placed(traced, loader, MATCHED * seconds)
    while candidates and len(attempts) < TRIALS - bool(place) and not late():
        attempts.append(trial := attempt(candidates.pop(0)))
        done = [traced.settings, *(previous.settings for previous in attempts)]
        worth = CLOSE * max(previous.rate for previous in attempts)
        candidates = [
            settings
            for settings in candidates + _next(traced, trial)
            if settings not in done and prediction.predict(traced, settings)[0] >= worth
        ]
    if place and len(attempts) < TRIALS and not late():
        # Beside the fastest settings so far.
        rates = {trial.rate: trial.settings for trial in attempts} | {traced.rate: traced.settings}
        base = rates[max(rates)]
        gain = (
            prediction.predict(traced, {**base, **place})[0] / prediction.predict(traced, base)[0]
        )
        if gain >= 1 + CACHE_GAIN:
            attempts.append(attempt({**base, **place}))
    before = traced.rate
    if any(trial.rate >= before * (1 + GAIN) for trial in attempts):
        # Beside the trials: a start that was traced in a slow moment of the machine would make any
        # setting look faster.
        before = max(before, rate_of(loader))
    return outcome(traced, attempts, before, output, time.perf_counter() - began, start.compared)


# Data with which a trial may be used.
KEPT = ("identical", "other random draws", "other order")
# Why no trial was run, by its data, and whether the loader reads a stream.
REFUSED = {
    (
        "different",
        False,
    ): "other settings change the data (where only random draws do: --draws any)",
    ("different", True): "workers of streams are not changed: they would read other samples",
    (
        "cannot tell",
        True,
    ): "workers of streams are not changed: whether they divide it is not known",
    ("cannot tell", False): "whether other settings change the data is not known",
}


def _costs(trial: Trial) -> tuple[bool, bool, int]:
    """What a setting takes: memory for a cache, a dataset that is safe for threads, workers."""
    counts = {
        key: count
        for key, count in trial.settings.items()
        if key not in (*CACHE, "prefetch_factor")
    }
    return "cache_bytes" in trial.settings, "threads" in trial.settings, sum(counts.values())


class Start:
    """The data of the loader as it is, and whether another one gives the same.

    Args:
        loader: as it is.
        traced: its trace.
        seconds: wall time to read what is compared, of each loader.
        draws: whether the draws of a seeded pipeline are kept.
        make_loader: makes it anew.
    """

    def __init__(
        self,
        loader: Any,
        traced: Trace,
        seconds: float,
        draws: Draws,
        make_loader: Callable[[], Any],
    ) -> None:
        self.loader, self.stream, self.seconds = loader, traced.stream, seconds
        self.places = comparing.positions(traced.epoch_batches, int(traced.rate * seconds))
        self.hashes = self._hashes(loader)
        drawing = [part.name for part in traced.stages if part.random]
        names = {SOURCE if name.partition(": ")[0] == SOURCE else name for name in drawing}
        self.random = sorted(names) if dataloader.is_loader(loader) else []
        self.fixed = draws == "keep" and bool(self.random) and self._seeded(make_loader)
        self.samples = comparing.Samples()
        if self.stream:
            self.samples = comparing.stream_samples(loader, 2 * seconds)
            self.repeats = comparing.repeats(loader, self.samples.hashes)

    @property
    def compared(self) -> int:
        """Batches."""
        return max(len(self.hashes), len(self.samples.hashes) // self.samples.batch)

    @property
    def most_workers(self) -> float:
        """Of a stream whose end was not reached: each must read some of the samples that are compared."""
        if not self.stream or self.samples.ended:
            return math.inf
        return max(1, len(self.samples.hashes) // (2 * self.samples.batch))

    def data_of(self, other: Any, settings: Mapping[str, int]) -> Data:
        """What the other loader gives, compared to this one."""
        workers = settings.get("num_workers", 0)
        if self.stream and workers != self.loader.num_workers:
            samples = comparing.stream_samples(other, 2 * self.seconds)
            data = comparing.compare_streams(self.samples, samples, workers)
            whole = self.samples.ended and samples.ended and data == "other order"
            return data if whole or self.repeats else "cannot tell"
        # A cache is read the second time; the draws of whole samples would be those of the first.
        times = 2 if "cache_bytes" in settings else 1
        if times > 1 and self.random and "cache_steps" not in settings:
            return "different"
        # Threads draw in any order: that they kept it once says nothing.
        threaded = "threads" in settings and bool(self.random)
        if not threaded and all(self._hashes(other) == self.hashes for _ in range(times)):
            return "identical"
        if self.fixed or not self.random:
            return "different"
        if threaded and SOURCE in self.random:
            return "cannot tell"  # with seeded draws, they would take turns
        seeded = self._hashes(self.loader, self.random)
        same = all(self._hashes(other, self.random) == seeded for _ in range(times))
        return "other random draws" if same else "different"

    def _hashes(self, loader: Any, seeded: Sequence[str] | None = None) -> list[str]:
        loader = loader if dataloader.is_loader(loader) else loader.private()
        return comparing.batch_hashes(loader, self.places, seeded)

    def _seeded(self, make_loader: Callable[[], Any]) -> bool:
        """Whether the pipeline gives the same batches when it is made anew, whatever the random state."""
        with random_state_restored():
            comparing.scatter()
            loader, _ = built(make_loader)
            first = self.places[: comparing.COMPARED]
            return comparing.batch_hashes(loader, first) == self.hashes[: len(first)]


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


def _candidates(traced: Trace, loader: Any, start: Start) -> list[dict[str, int]]:
    """The settings of the plans, the best first; none where the start is as good."""
    settings = [prediction.plan(traced)]
    if prediction.is_graph(traced):
        processes = prediction.plan(traced, loader.free_executors())
        threads, others = (prediction.predict(traced, s)[0] for s in (settings[0], processes))
        settings += [processes] if others > PROCESSES_GAIN * threads else []
    elif traced.stream:
        # In this process nothing divides the stream.
        workers = min(settings[0]["num_workers"], start.most_workers)
        settings[0]["num_workers"] = int(max(1, workers))
    else:
        settings.append(prediction.plan_threads(traced))
    rates = [prediction.predict(traced, candidate)[0] for candidate in settings]
    worth = traced.rate * (1 + GAIN)
    ranked = sorted(zip(rates, settings, strict=True), key=lambda pair: -pair[0])
    return [
        candidate for rate, candidate in ranked if rate >= worth and candidate != traced.settings
    ]


def placed(traced: Trace, loader: Any, seconds: float) -> dict[str, int]:
    """The settings of a cache as near to the batches as it can be; empty if there is none.

    Args:
        traced: by which costs are known.
        loader: whose samples may be cached.
        seconds: for reading some of them.
    """
    if not dataloader.is_loader(loader) or traced.stream or traced.epoch_batches is None:
        return {}
    samples = traced.rate * seconds * max(1.0, traced.stages[0].visits)
    most = SHARE * traced.resources.memory_bytes
    return plan_sample_cache(loader.dataset, int(samples), most)


def _next(traced: Trace, last: Trial) -> list[dict[str, int]]:
    """What to try after a trial of a `DataLoader` that was not as predicted."""
    if prediction.is_graph(traced):
        return []
    if last.measured is None or abs(last.measured / last.predicted - 1) <= SURPRISE:
        return []
    kind = "threads" if "threads" in last.settings else "num_workers"
    workers = last.settings[kind]
    if last.measured > last.predicted:
        return [{**last.settings, kind: 2 * workers}]
    # Something that the trace did not show limits it: as many workers as that can serve.
    fewer = max(1, math.ceil(workers * last.measured / last.predicted))
    return [{**last.settings, kind: fewer}]


def outcome(
    traced: Trace,
    attempts: Sequence[Trial],
    start: float,
    output: Path | None,
    seconds: float,
    compared: int,
) -> Tuning:
    """The fastest of the trials, with the fewest workers among equals, or the start, at its rate."""
    data: Data = "identical" if attempts else "not tried"
    present = Trial(dict(traced.settings), *prediction.predict(traced, {}), start, data)
    top = max((trial.rate for trial in attempts), default=0.0)
    best = min(
        (trial for trial in attempts if trial.rate >= top * (1 - GAIN)), key=_costs, default=present
    )
    faster = best.rate >= start * (1 + GAIN)
    doubts = loaded(traced.queued)
    if faster:
        reason = f"verified, data {best.data} in {compared} batches"
        if "cache_bytes" in best.settings:
            reason += ", cached from the second epoch on"
        if "threads" in best.settings:
            text = f"Threads gave the same data in {compared} batches; a dataset must be safe for threads."
            doubts.append(Unknown(text, "use worker processes if it is not", doubt=True))
    elif not attempts:
        reason = "no other setting is predicted to gain anything"
    elif (refused := [trial for trial in attempts if trial.measured is None]) and (
        traced.stream or len(refused) == len(attempts)
    ):
        reason = REFUSED[refused[-1].data, traced.stream]
    else:
        reason = "what was tried is not faster"
    if any(trial.data == "cannot tell" for trial in attempts):
        text = "Whether other settings give the same data could not be determined."
        remedy = "tune longer (--seconds), or compare the data by hand"
        doubts.append(Unknown(text, remedy, doubt=True))
    first, chosen = (best, best) if faster else ((*attempts, present)[0], present)
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
        compared=compared,
        unknown=doubts,
        seconds=seconds,
        reason=reason,
        output=output,
    )
