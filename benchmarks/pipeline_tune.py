"""Tuned input pipelines beside the exhaustive grid, PyTorch's defaults and SPDL; predicted and measured.

    python benchmarks/pipeline_tune.py [--quick] [--only NAME ...]

Five pipelines and a store that answers after 50 ms. For each: `tune` from PyTorch's defaults, without a
cache; then the rate of every num_workers and prefetch_factor of a grid, and of 1, 2, 4, 8 threads, in
turns; SPDL with as many threads where it is installed (Grain is not run: its loader takes another kind of
source). Then `tune` with a cache, where it places one, measured once it is full, beside the same without,
and beside what a user can write in ten lines: SPDL's threads over a dict of the same samples. Takes about
twenty minutes, on a machine that is otherwise idle.

The result of each pipeline is written at once, to `results/pipeline_tune.partial.json`: a run that was
stopped, or one with --only, is continued by the next. With all six, it becomes
`results/pipeline_tune.json`. --quick measures briefly and writes nothing.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import math
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pipeline_loaders
from holdfast.data import pipeline
from holdfast.data.pipeline.dataloader import picked, with_settings
from holdfast.data.pipeline.measuring import measure
from holdfast.data.pipeline.prediction import predict
from holdfast.errors import InputError
from measuring import limited, machine

HERE = Path(__file__).resolve().parent
RESULT = HERE / "results" / "pipeline_tune.json"
PARTIAL = RESULT.with_suffix(".partial.json")
LOADERS = {**pipeline_loaders.PIPELINES, "store": pipeline_loaders.store}
DEFAULTS = {"num_workers": 0, "prefetch_factor": 2}
THREADS = (1, 2, 4, 8)
# Batches that come again and again where a cache is measured.
REPEATED = 32


def rate(loader: Any, settings: dict[str, int], seconds: float) -> float:
    """Batches per second without a trace."""
    run = measure(with_settings(loader, settings), seconds)
    return run.batches / run.seconds


def cached_rate(loader: Any, settings: dict[str, int], seconds: float) -> float:
    """Batches per second of `REPEATED` batches that come again and again, after the first time."""
    some = picked(with_settings(loader, settings), range(REPEATED))
    run = measure(some, seconds, warm_up=REPEATED + 8)
    return run.batches / run.seconds


def dict_cached(dataset: Any, steps: int | None) -> Any:
    """The dataset with a plain dict of samples, or of what the first steps of its Compose give."""
    samples: dict[int, Any] = {}

    class Kept:
        def __getitem__(self, index: int) -> Any:
            if steps is None:
                if index not in samples:
                    samples[index] = dataset[index]
                return samples[index]
            chain = dataset.transform.transforms
            if index not in samples:
                samples[index] = pipeline_loaders.Compose(chain[:steps])(dataset.read(index))
            return pipeline_loaders.Compose(chain[steps:])(samples[index])

    return Kept()


def spdl_rate(
    loader: Any, threads: int, seconds: float, dataset: Any = None, repeated: int | None = None
) -> float:
    """Batches per second of the same dataset in SPDL, batches in threads; of some again and again."""
    from spdl.pipeline import PipelineBuilder

    samples = loader.dataset if dataset is None else dataset

    def load(indices: Any) -> Any:
        return loader.collate_fn([samples[index] for index in indices])

    batches_of = list(itertools.islice(loader.batch_sampler, repeated))
    builder = PipelineBuilder().add_source(itertools.cycle(batches_of))
    graph = builder.pipe(load, concurrency=threads).add_sink(4).build(num_threads=threads)
    with graph.auto_stop():
        batches = iter(graph)
        for _ in range(threads + (repeated or 0)):
            next(batches)
        start, count = time.perf_counter(), 0
        while time.perf_counter() - start < seconds or count < 2:
            next(batches)
            count += 1
        return count / (time.perf_counter() - start)


class Plain:
    """A loader as it is, of which `measure` knows nothing."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader

    def __iter__(self) -> Iterator[Any]:
        return iter(self.loader)


def overhead(loader: Any, seconds: float, rounds: int) -> float:
    """CPU time that tracing adds to a batch of the default settings, as a share of its wall time.

    CPU time, as the wall time of a batch differs between two runs by more than that. Without workers all of
    it is in this process. The least of runs in turns, beside the loader as it is.
    """
    plain, traced, walls = [], [], []
    for _ in range(rounds):
        run = measure(Plain(loader), seconds)
        plain.append(run.cpu_s / run.batches)
        walls.append(run.seconds / run.batches)
        with tempfile.TemporaryDirectory() as folder:
            run = measure(loader, seconds, None, Path(folder), timing=True)
        traced.append(run.cpu_s / run.batches)
    return float((min(traced) - min(plain)) / min(walls))


def examine(name: str, make: Callable[[], Any], quick: bool) -> dict[str, Any]:
    """Tune one pipeline, measure the grid, compare."""
    seconds, rounds = (1.5, 1) if quick else (2.0, 3)
    started = time.perf_counter()
    tuned = pipeline.tune(make, seconds=15.0 if quick else 30.0, cache=False)
    took = time.perf_counter() - started
    loader = make()
    trace = pipeline.trace(loader, 3.0 if quick else 8.0)
    epoch_s = (trace.epoch_batches or math.inf) / trace.rate
    if epoch_s < 10.0:  # batches that differ: whole epochs, also of slower settings
        seconds = max(seconds, 2 * epoch_s)
    workers = (0, 1, 2, 4)
    grid = [
        {"num_workers": count, "prefetch_factor": prefetch}
        for count in workers
        for prefetch in ((2,) if quick or not count else (2, 4))
    ]
    grid += [{**DEFAULTS, "threads": count} for count in THREADS]
    if tuned.settings not in grid:
        grid.append(tuned.settings)
    # Written before anything of the grid is measured.
    predicted = [predict(trace, settings)[0] for settings in grid]
    measured: list[list[float]] = [[] for _ in grid]
    for _ in range(rounds):
        for place, settings in enumerate(grid):
            measured[place].append(rate(loader, settings, seconds))
    rates = [statistics.median(values) for values in measured]
    ours = rates[grid.index(tuned.settings)]
    rows = [
        {"settings": settings, "predicted": p, "measured": m, "error": p / m - 1}
        for settings, p, m in zip(grid, predicted, rates, strict=True)
    ]
    grid_best = max(m for settings, m in zip(grid, rates, strict=True) if "threads" not in settings)
    used = next((trial for trial in tuned.trials if trial.settings == tuned.settings), None)
    explained = pipeline.explain(trace)
    result: dict[str, Any] = {
        "name": name,
        "settings": tuned.settings,
        "bottleneck": [
            explained.bottleneck or " or ".join(explained.candidates),
            explained.kind or "cannot tell",
        ],
        "tuned": ours,
        "defaults": rates[0],
        "grid_best": grid_best,
        "error_before": tuned.before / rates[0] - 1,
        "error_after": used.predicted / used.rate - 1 if used else tuned.before / rates[0] - 1,
        "data": tuned.data,
        "compared": tuned.compared,
        "seconds": took,
        "trials": len(tuned.trials),
        "overhead": overhead(loader, seconds, rounds + 2),
        "grid": rows,
    }
    if importlib.util.find_spec("spdl"):
        result["spdl"] = max(spdl_rate(loader, threads, seconds) for threads in THREADS)
    return result | cache_figures(make, tuned, seconds, rounds, quick)


def cache_figures(
    make: Callable[[], Any], tuned: Any, seconds: float, rounds: int, quick: bool
) -> dict[str, Any]:
    """What a cache gains over the tuned settings, and the same by hand; or why there is none.

    Rates once the cache is full, of the same batches again and again; the first epoch fills it.
    """
    answer = pipeline.tune(make, seconds=15.0 if quick else 30.0)
    settings = answer.settings
    if "cache_bytes" not in settings:
        tried = any("cache_bytes" in trial.settings for trial in answer.trials)
        reason = "tried, and not kept" if tried else "none that gains, fits and never changes"
        return {"cache": reason}
    loader = make()
    mine, plain, rival = [], [], []
    kept = dict_cached(loader.dataset, settings.get("cache_steps"))
    for _ in range(rounds):
        mine.append(cached_rate(loader, settings, seconds))
        plain.append(cached_rate(loader, tuned.settings, seconds))
        if importlib.util.find_spec("spdl"):
            rates = [spdl_rate(loader, count, seconds, kept, REPEATED) for count in THREADS]
            rival.append(max(rates))
    result = {
        "cache": settings,
        "cache_data": answer.data,
        "cached": statistics.median(mine),
        "without_cache": statistics.median(plain),
    }
    return result | ({"spdl_dict": statistics.median(rival)} if rival else {})


def show(result: dict[str, Any]) -> None:
    """One pipeline on the terminal."""
    print(f"{result['name']}: {result['settings']}, {' / '.join(result['bottleneck'])}")
    rates = {
        key: round(result[key], 1)
        for key in (
            "tuned",
            "defaults",
            "grid_best",
            "spdl",
            "cached",
            "without_cache",
            "spdl_dict",
        )
        if key in result
    }
    print(f"    {rates} batches/s; {result['seconds']:.0f} s, {result['trials']} trials")
    shares = {key: f"{result[key]:+.1%}" for key in ("error_before", "error_after", "overhead")}
    print(f"    {shares}")
    for row in result["grid"]:
        print(
            f"    {row['settings']}: {row['predicted']:.1f} -> {row['measured']:.1f} ({row['error']:+.0%})"
        )


def main() -> None:
    """Measure, print, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", help="short runs, a small grid, no result file"
    )
    parser.add_argument("--only", nargs="+", choices=LOADERS, help="measure these again")
    options = parser.parse_args()
    where = machine()
    print(where)
    done = json.loads(PARTIAL.read_text()) if PARTIAL.exists() and not options.quick else {}
    for name in options.only or [name for name in LOADERS if name not in done]:
        try:
            done[name] = examine(name, LOADERS[name], options.quick)
            show(done[name])
        except InputError as error:  # such as a rate that varies too much to tune by
            print(f"{name}: refused: {error}")
            done[name] = None
        if not options.quick:
            PARTIAL.write_text(json.dumps(done, indent=1))
    if options.quick or set(done) != set(LOADERS):
        return
    results = [done[name] for name in LOADERS if done[name]]
    refused = [name for name in LOADERS if not done[name]]
    errors = [abs(r[key]) for r in results for key in ("error_before", "error_after")]
    comparisons = [
        {
            "what": f"{r['name']}: a batch, tuned",
            "ratio": round(r["tuned"] / r[key], 2),
            "target": 0.95 if key == "grid_best" else 20.0 if r["name"] == "store" else 1.0,
            "ours_s": round(1 / r["tuned"], 5),
            "peer": peer,
            "peer_s": round(1 / r[key], 5),
        }
        for r in results
        for key, peer in (
            ("grid_best", "the best of the grid"),
            ("defaults", "PyTorch's defaults"),
            ("spdl", "the best of SPDL's 1, 2, 4, 8 threads"),
        )
        if key in r and not (r["name"] == "store" and key == "spdl")
    ]
    # The paper's second headline: over 40 % end to end by caching, against the best tuner without.
    comparisons += [
        {
            "what": f"{r['name']}: a batch, cached, from the second epoch on",
            "ratio": round(r["cached"] / r[key], 2),
            "target": target,
            "ours_s": round(1 / r["cached"], 5),
            "peer": peer,
            "peer_s": round(1 / r[key], 5),
        }
        for r in results
        for key, target, peer in (
            ("without_cache", 1.4, "tuned without a cache"),
            ("spdl_dict", 1.0, "the best of SPDL's threads over a dict of the same samples"),
        )
        if key in r
    ]
    report = {
        "title": "Tuning input pipelines",
        "script": "benchmarks/pipeline_tune.py",
        "input": "images, detection, documents, translations, speech, and a store that answers after 50 ms",
        "comparisons": comparisons,
        "limits": [
            limited("largest error of a prediction", 100 * max(errors), "%", 15),
            limited("median error of predictions", 100 * statistics.median(errors), "%", 8),
            limited(
                "largest overhead of tracing", 100 * max(r["overhead"] for r in results), "%", 3
            ),
            limited("longest tuning", max(r["seconds"] for r in results), "s", 30),
            limited("most trials", max(r["trials"] for r in results), "trials", 3),
        ],
        "figures": {},
        "tables": [
            {
                "caption": "Batches per second, predicted before they were measured",
                "rows": [
                    {
                        "pipeline": r["name"],
                        "settings": ", ".join(
                            f"{key} {value}" for key, value in row["settings"].items()
                        ),
                        "predicted": round(row["predicted"], 1),
                        "measured": round(row["measured"], 1),
                        "error %": round(100 * row["error"]),
                    }
                    for r in results
                    for row in r["grid"]
                ],
            }
        ],
        "details": results,
        "machine": where,
        "versions": {name: version(name) for name in ("holdfast", "torch", "scipy")},
        "notes": [
            *(f"Refused, since the rate varies too much to tune by: {name}." for name in refused),
            f"A cache is measured on {REPEATED} batches again and again; the first epoch fills it.",
            *(f"{r['name']}: no cache ({r['cache']})." for r in results if "cached" not in r),
        ],
    }
    RESULT.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    PARTIAL.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
