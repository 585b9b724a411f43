"""Numeric deviation: ratios, torch's attention backends, W1 against scipy, tracker, spikes, trainings.

    python benchmarks/profile_numerics.py                     # all but the trainings
    python benchmarks/profile_numerics.py --trainings FOLDER --curves FOLDER  # the trainings alone, which
                                                              # profile_numerics_training.py made

Writes `benchmarks/results/profile_numerics.json`, of which `render.py` makes the page.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import wasserstein_distance

from holdfast.profile.numerics import (
    SpikeDetector,
    WeightTracker,
    attention,
    compare,
    spikes,
    track_diff,
)
from holdfast.profile.numerics.distances import distance, positions
from holdfast.profile.numerics.operators import SUITES
from measuring import compared, limited, machine
from profile_numerics_training import BATCH, LENGTH, STEPS, loss_of, model_of

RESULT = Path(__file__).resolve().parent / "results" / "profile_numerics.json"
TRAINED = RESULT.with_name("profile_numerics_training.json")
SPECIFIED = {
    (1024, 16): 8.3, (1024, 64): 3.4, (1024, 128): 2.4,
    (4096, 16): 21.2, (4096, 64): 8.1, (4096, 128): 5.3,
    (8192, 16): 68.0, (8192, 64): 10.2, (8192, 128): 7.6,
}  # fmt: skip


TRACKED_BATCH = 64
"""Windows of a step that the tracker's cost is held against."""


def timed(call: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    """The smallest processor time of some calls (other work on the machine only adds), and the result."""
    seconds, result = [], None
    for _ in range(repeats):
        begin = time.process_time()
        result = call()
        seconds.append(time.process_time() - begin)
    return min(seconds), result


def ratios() -> list[dict[str, Any]]:
    """Flash over baseline with every step in bfloat16, beside the specified values."""
    found = attention([1024, 4096, 8192], [16, 64, 128])
    rows = []
    for row in found.grid:
        wanted = SPECIFIED[row["length"], row["block"]]
        off = abs(row["ratio"] / wanted - 1)
        what = f"ratio at {row['length']:,} keys, block {row['block']}: {row['ratio']:.3g}, off by"
        rows.append(limited(f"{what} (specified {wanted:g})", 100 * off, "%", 15))
    return rows


def backends() -> list[dict[str, Any]]:
    """Deviation of torch's attention backends in bfloat16, with the emulator's kernel mode beside them."""
    given = SUITES["attention"]
    options: dict[str, Any] = {"dtypes": ["bf16"], "grid": [{"length": 1024}], "seeds": 3}
    found = compare(given.implementations, given.inputs, gradients=False, **options)
    rows = [
        limited(f"largest deviation, {row['implementation']}", 1e4 * row["max_abs"], "1e-4")
        for row in found.rows
    ]
    own = attention(1024, 64, inputs="gaussian", mode="kernel", seeds=3)
    for name, part in (("flash", own.flash), ("separate operators", own.baseline)):
        rows.append(limited(f"largest deviation, emulated {name}", 1e4 * part["max_abs"], "1e-4"))
    return rows


def w1(size: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """W1 of two samples by us, by sketches, and by scipy."""
    draw = np.random.default_rng(0)
    a = draw.standard_normal(size, dtype=np.float32)
    b = (1.01 * a + 0.01 * draw.standard_normal(size, dtype=np.float32)).astype(np.float32)
    ours, found = timed(lambda: distance(a, b), 5)
    peer, expected = timed(lambda: wasserstein_distance(a, b), 1)
    quantiles = [np.sort(x)[positions(size)].astype(np.float64) for x in (a, b)]
    sketched = float(np.abs(quantiles[0] - quantiles[1]).mean())
    limits = [
        limited("W1, difference from scipy", 1e12 * abs(found.w1 - expected), "1e-12", 1),
        limited("W1 of sketches, off by", 100 * abs(sketched / expected - 1), "%", 1),
    ]
    row = compared(
        f"W1 of {size:,} float32 values, and paired distances", ours, "scipy", peer, 20.0
    )
    return row, limits


def tracker_cost() -> list[dict[str, Any]]:
    """Processor time of the tracker as a share of training steps of the benchmark's transformer."""
    model = model_of(100, "baseline", "fp32", 0)
    optimizer = torch.optim.AdamW(model.parameters())
    shape = (TRACKED_BATCH, LENGTH + 1)
    window = torch.randint(100, shape, generator=torch.Generator().manual_seed(0))

    def step() -> None:
        optimizer.zero_grad()
        loss_of(model, window).backward()
        optimizer.step()

    training, _ = timed(step, 4)
    with tempfile.TemporaryDirectory() as folder:
        tracker = WeightTracker(model, every=10, dir=folder)
        tracker.write()
        sketch, _ = timed(tracker.write, 5)
        each, _ = timed(tracker._update_ratios, 5)
        size = sum(path.stat().st_size for path in Path(folder).iterdir())
    share = 100 * (each + sketch / 10) / training
    return [
        limited(
            f"tracker, every 10 steps of {TRACKED_BATCH * LENGTH:,} tokens, share of a step",
            share,
            "%",
            1,
        ),
        limited("update ratios of one step, processor time", 1e3 * each, "ms"),
        limited("one sketch of 1.27 M weights, processor time", 1e3 * sketch, "ms"),
        limited("one sketch, file", size / 1e3, "kB"),
    ]


def spike_curves(folder: Path) -> list[dict[str, Any]]:
    """Real curves with bursts of the learning rate: those that raise the loss by 1, and false alarms."""
    found = visible = false = steps = 0
    for path in sorted(folder.glob("spikes-*.csv")):
        bursts = json.loads(path.with_suffix(".json").read_text())
        losses = np.loadtxt(path, delimiter=",", skiprows=1, usecols=1)
        events = spikes(path).events
        starts = [event["step"] for event in events]
        for burst in bursts:
            if losses[burst : burst + 4].mean() > losses[burst - 60 : burst - 3].mean() + 1:
                visible += 1
                found += any(burst - 2 <= start <= burst + 5 for start in starts)
        false += sum(not any(b - 2 <= start <= b + 60 for b in bursts) for start in starts)
        steps += len(losses)
    return [
        limited(
            f"real spikes (rate x 100 or x 40), {visible} that raise the loss by 1, missed",
            visible - found,
            "",
            0,
        ),
        limited(f"real curves, false alarms in {steps:,} steps", false, "", steps / 10_000),
    ]


def injected() -> list[dict[str, Any]]:
    """Curves with spikes of 9 to 30 times the noise at known steps, and the same without."""
    found = onsets = false = steps = 0
    for seed in range(12):
        draw = np.random.default_rng(seed)
        t = np.arange(4000)
        trend = (3.0 + 0 * t, 2 + 8 * (t + 10) ** -0.3, 2.5 + 7 * np.exp(-t / 800))[seed % 3]
        noise = (0.01, 0.05, 0.2)[seed // 3 % 3]
        clean = trend + noise * draw.standard_normal(len(t))
        losses, known = clean.copy(), []
        for first in range(200, len(t) - 200, 300):
            at, length = first + int(draw.integers(80)), int(draw.choice([1, 6, 25, 60]))
            x = np.arange(length)
            ramp = np.minimum(1, (x + 1) / max(1, length / 5)) * np.exp(-2 * x / length)
            shape = (np.ones(length), np.exp(-3 * x / length), ramp / ramp.max())[draw.integers(3)]
            losses[at : at + length] += noise * draw.uniform(9, 30) * shape
            known.append(at)
        starts = [event.step for event in _events(losses)]
        found += sum(any(at - 1 <= start <= at + 15 for start in starts) for at in known)
        onsets += len(known)
        false += len(_events(clean))
        steps += len(t)
    return [
        limited(f"injected spikes missed, of {onsets}", onsets - found, "", 0.05 * onsets),
        limited(
            f"curves without spikes, false alarms in {steps:,} steps", false, "", steps / 10_000
        ),
    ]


def _events(losses: np.ndarray) -> list[Any]:
    detector = SpikeDetector()
    for step, loss in enumerate(losses):
        detector.update(step, float(loss))
    return detector.events


def trainings(folder: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Distances between the trainings, in units of that between two seeds."""

    def between(a: str, b: str) -> dict[str, Any]:
        return track_diff(folder / a, folder / b).totals[-1]

    pairs = {
        "another seed": [("baseline-fp32-0", "baseline-fp32-1")],
        "bf16 instead of fp32": [(f"baseline-fp32-{n}", f"baseline-bf16-{n}") for n in (0, 1)],
        "flash instead of baseline, bf16": [
            (f"baseline-bf16-{n}", f"flash-bf16-{n}") for n in (0, 1)
        ],
        "flash instead of baseline, fp32": [
            (f"baseline-fp32-{n}", f"flash-fp32-{n}") for n in (0, 1)
        ],
    }
    found = {name: [between(a, b) for a, b in each] for name, each in pairs.items()}
    mean = {
        name: {key: statistics.mean(row[key] for row in rows) for key in ("w1", "paired_mean")}
        for name, rows in found.items()
    }
    losses = {
        path.stem: round(statistics.mean(json.loads(path.read_text())["losses"][-50:]), 4)
        for path in sorted(folder.glob("*-?.json"))
    }
    limits = [
        limited(f"{what}, {name}", 1e5 * mean[name][key], "1e-5")
        for key, what in (("paired_mean", "mean paired distance"), ("w1", "W1"))
        for name in mean
    ]
    for key, what in (("paired_mean", "paired"), ("w1", "W1")):
        ratio = mean["bf16 instead of fp32"][key] / mean["flash instead of baseline, bf16"][key]
        limits.append(limited(f"precision / flash, {what} (expected: 2 or more)", ratio, ""))
    return limits, {"distances": mean, "last 50 losses": losses}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--trainings", type=Path)
    parser.add_argument("--curves", type=Path)
    parser.add_argument("--values", type=int, default=10_000_000)
    parser.add_argument("--result", type=Path, default=RESULT)
    options = parser.parse_args(arguments)
    if options.trainings and options.curves:
        rows, figures = trainings(options.trainings)
        rows += spike_curves(options.curves)
        _write(TRAINED, "Numeric deviation: trainings", WHAT_TRAINED, [], rows, figures)
        return
    comparison, limits = w1(options.values)
    limits += [*tracker_cost(), *ratios(), *backends(), *injected()]
    what = "random q, k, v; random samples of weights; a character model of 1.3 M parameters"
    _write(options.result, "Numeric deviation", what, [comparison], limits, {})


WHAT_TRAINED = (
    f"{STEPS} steps of AdamW on {BATCH} windows of {LENGTH} characters of Python's standard library; bf16 "
    "is mixed precision emulated in float32, flash a kernel's arithmetic; distances after the last step "
    "from sketches, means of two seeds"
)


def _write(
    path: Path,
    title: str,
    what: str,
    comparisons: list[dict[str, Any]],
    limits: list[dict[str, Any]],
    figures: dict[str, Any],
) -> None:
    results = {
        "title": title,
        "script": "benchmarks/profile_numerics.py",
        "input": what,
        "comparisons": comparisons,
        "limits": limits,
        "figures": figures,
        "machine": machine(),
        "versions": {n: version(n) for n in ("holdfast", "torch", "scipy", "numpy")},
        "notes": ["Times are processor seconds, the smallest of some calls, on a busy machine."],
    }
    path.write_text(json.dumps(results, indent=2) + "\n")
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
