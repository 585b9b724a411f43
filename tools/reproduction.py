"""Published figures of RSC-1 and RSC-2 against those of simulated clusters: `docs/reproduction.md`.

    python tools/reproduction.py STORES [NAME ...]

simulates each of `EXPERIMENTS` (or those named) into the folder STORES unless its store is there,
analyses it as a real log is analysed, keeps the figures in `docs/reproduction.json`, and writes the
page from them. It takes about a minute of one core for each simulated cluster and year.

    python tools/reproduction.py STORES known-fleets
    python tools/reproduction.py STORES titan alibaba

prove the intervals and the lemons on logs of known fleets (an hour or two of one core), and compute the
figures of public logs, whose files lie in the folders STORES/titan and STORES/alibaba.

    python tools/reproduction.py

writes the page again from the figures that are kept; a test fails when it is stale.

Published: Kokolis et al., "Revisiting Reliability in Large-Scale Machine Learning Research Clusters",
arXiv 2410.21680v2.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from incident_figures import incident_lines, measure_incidents
from measured_figures import measure
from public_logs import PUBLIC, measure_public, public_lines
from published_figures import AFTER, RSC1, RSC2, Figures, mean_of, misses, state

if TYPE_CHECKING:
    from holdfast.fleet.simulation.scenario import Scenario

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE = DOCS / "reproduction.md"
KEPT = DOCS / "reproduction.json"
KNOWN_FLEETS = "known-fleets"


# --- What is simulated ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Experiment:
    """One simulated log."""

    name: str
    preset: str
    seed: int
    days: float = 335.0
    change: str = ""
    """As for `holdfast fleet whatif`."""
    pulled_of: str = ""
    """The experiment whose lemons, as the analysis found them, are pulled."""


SEEDS = {"rsc1": (1, 2, 3), "rsc2": (1, 2)}
QUARTER = (
    "workload.sizes[12].gpus=1024; workload.sizes[11].gpus=1024; "
    "nodes=500; lemons=6; workload.jobs_per_day*0.25"
)
OTHERS = (
    Experiment("half the failure rate", "rsc1", 11, 60, "failure_rate*0.5"),
    Experiment("twice the failure rate", "rsc1", 12, 60, "failure_rate*2"),
    Experiment("no lemons, healthy nodes as before", "rsc1", 13, 60, "lemons=off"),
    Experiment("lemons that fail 50 times as often", "rsc1", 14, 60, "failures.lemons.factor=50"),
    Experiment("500 nodes, 6 lemons, jobs to 1,024 GPUs", "rsc1", 15, 120, QUARTER),
)
EXPERIMENTS = (
    *(Experiment(f"{preset}-{k}", preset, k) for preset, seeds in SEEDS.items() for k in seeds),
    *(Experiment(f"rsc1-{k}-pulled", "rsc1", k, pulled_of=f"rsc1-{k}") for k in SEEDS["rsc1"]),
    *OTHERS,
)


def scenario_of(experiment: Experiment, kept: Mapping[str, Figures]) -> Scenario:
    """The scenario of an experiment; `kept` has the figures of the one it builds on."""
    from holdfast import fleet
    from holdfast.fleet.simulation.changes import apply

    made = fleet.scenario(experiment.preset)
    change = experiment.change
    if experiment.pulled_of:
        change = "pull=" + ",".join(kept[experiment.pulled_of]["lemons_found"])
    return apply(made, change) if change else made


# --- The page ------------------------------------------------------------------------------------


HEAD = """\
<!-- Made by tools/reproduction.py from reproduction.json; edit those. -->

# Reproducing the published figures

Kokolis et al. (arXiv 2410.21680v2) report what eleven months of failures did to two clusters, RSC-1 with
16,000 GPUs and RSC-2 with 8,000. The [presets](simulator.md) `rsc1` and `rsc2` hold their published
parameters. Do simulated clusters show what the real ones did?

Each log below is {days} simulated days, written as a store and analysed by the commands that analyse a
real one. *Ours* is the mean over seeds {rsc1} (RSC-2: {rsc2}) and, in brackets, their range. *Allowed* is
the tolerance that was set before anything was simulated; where none was, it is 10 % either way, or what
rounds to the published figure.

The last column says what agreement is worth:

- **input**: the preset sets it. Agreement shows that it survives the way through simulation, log and
  analysis, nothing more.
- **chosen**: the paper does not print what it follows from (hours and classes by size, hazards of users'
  failures, the factor of the lemons), so that was chosen with this figure in view. Agreement is no
  evidence.
- **emerges**: neither sets it; it takes the mechanisms (sharing of nodes, requeueing, preemption).

What follows from a chosen factor is called chosen, however many steps lie between. So are the lemons
found and the share of large attempts that fail: both follow from how much more often the preset's lemons
fail. Which weaker lemons are found is listed
[below](#does-the-interval-hold-the-truth-and-are-lemons-lemons).
"""
TABLE = [
    "| | published | ours | allowed | inside | |",
    "|-|-|-|-|-|-|",
]


def page(kept: Mapping[str, Figures]) -> str:
    """`docs/reproduction.md` from the figures of all experiments."""
    rsc1, rsc2 = (logs_of(kept, preset) for preset in SEEDS)
    after = logs_of(kept, "rsc1", "-pulled")
    seeds = {preset: ", ".join(map(str, of)) for preset, of in SEEDS.items()}
    parts = [
        HEAD.format(days=round(rsc1[0]["days"]), **seeds),
        "## RSC-1",
        "",
        *TABLE,
        *(row.cells(rsc1) for row in RSC1),
        AFTER.cells(after),
        "",
        _chains(rsc1),
        "",
        "## RSC-2",
        "",
        *TABLE,
        *(row.cells(rsc2) for row in RSC2),
        "",
        _other_states(rsc2),
        "",
        *_misses(rsc1, rsc2, after),
        *_recovery(kept),
        *incident_lines(kept[KNOWN_FLEETS]),
        *_ettr(rsc1),
        *public_lines(kept),
    ]
    return "\n".join(parts)


def logs_of(kept: Mapping[str, Figures], preset: str, suffix: str = "") -> list[Figures]:
    """The figures of all seeds of a preset."""
    return [kept[f"{preset}-{seed}{suffix}"] for seed in SEEDS[preset]]


def _chains(logs: Sequence[Figures]) -> str:
    by_requeues = max(logs, key=lambda f: f["longest_chain"]["requeues"])["longest_chain"]
    by_victims = max(logs, key=lambda f: f["worst_chain"]["preempted"])["worst_chain"]

    def chain(of: Mapping[str, int]) -> str:
        return (
            f"a job of {of['gpus']:,} GPUs that failed and was requeued {of['requeues']} times and "
            f"preempted {of['preempted']:,} attempts"
        )

    text = f"The longest of ours is {chain(by_requeues)}"
    if by_victims != by_requeues:
        text += f"; the one with most victims is {chain(by_victims)}"
    return (
        "The paper tells of a job of 1,024 GPUs that was requeued 35 times and preempted 548 others. "
        f"{text}. It is one event of eleven months, so nothing was allowed or forbidden."
    )


def _other_states(logs: Sequence[Figures]) -> str:
    names = ("COMPLETED", "FAILED", "PREEMPTED", "CANCELLED", "REQUEUED")
    shares = (f"{name} {100 * statistics.fmean(map(state(name), logs)):.1f} %" for name in names)
    return (
        f"How the attempts of RSC-2 ended is not among the figures that we compare; ours: "
        f"{', '.join(shares)}."
    )


def _misses(
    rsc1: Sequence[Figures], rsc2: Sequence[Figures], after: Sequence[Figures]
) -> Iterator[str]:
    yield from ("## What does not match, and why", "")
    facts = {
        "touched_gpu_time": mean_of(rsc1, "touched_gpu_time"),
        "before": mean_of(rsc1, "injected"),
        "after": mean_of(after, "injected"),
    }
    for name, logs, rows in (
        ("RSC-1", rsc1, RSC1),
        ("RSC-1", after, [AFTER]),
        ("RSC-2", rsc2, RSC2),
    ):
        for row in misses(logs, rows):
            ours = row.text(row.mean(logs))
            what = row.what.removeprefix("... ")
            why = row.why.format(**facts)
            yield f"- **{name}, {what}**: published {row.published}, ours {ours}. {why}"
    yield from (
        "",
        "Three rows of RSC-1 that are inside are near an edge, and single seeds may be outside: PREEMPTED, "
        "the GPU time of",
        "failed attempts, and the second order. They pull against each other: longer large jobs would "
        "raise the GPU time that",
        "fails and the second order together, and a lower load would lower all three.",
    )
    yield ""


def _recovery(kept: Mapping[str, Figures]) -> Iterator[str]:
    """Injected and found rates of all logs."""
    tested = [kept[each.name] for each in EXPERIMENTS]
    held = sum(holds(f) for f in tested)
    yield from (
        "## Is what was injected found again?",
        "",
        "Failures per 1,000 node-days, in attempts above 128 GPUs. *Injected* is the hazard that the "
        "simulation",
        "applied to those attempts; *found* is what `holdfast fleet mttf` says from the log alone. The "
        "scenario's rate is the",
        "mean of all nodes in service. Large jobs meet less of it: a node that comes back from repair "
        "comes alone, so a small",
        "job takes it, and lemons come back most often. So the rate that RSC-1's preset sets is not that "
        "of the attempts above",
        "128 GPUs, and an interval has to hold what they met.",
        "",
        "| log | days | of the scenario | injected | found | 95 % | inside | lemons | found | wrong |",
        "|-|-:|-:|-:|-:|-|-|-:|-:|-:|",
    )
    for each in EXPERIMENTS:
        f = kept[each.name]
        low, high = f["rate_ci95"]
        wrong = len(f["lemons_found"]) - f["lemons_right"]
        lemons = 0 if each.pulled_of else f["lemons"]
        nominal = "" if each.pulled_of else f"{f['nominal']:.2f}"  # that of the pulled nodes too
        yield (
            f"| {_spoken(each)} | {f['days']:g} | {nominal} | {f['injected']:.2f} "
            f"| {f['rate']:.2f} | {low:.2f} to {high:.2f} | {'yes' if holds(f) else '**no**'} "
            f"| {lemons} | {f['lemons_right']} | {wrong} |"
        )
    yield from (
        "",
        f"{held} of {len(tested)} intervals hold the injected rate; of intervals at 95 %, one in twenty "
        "misses. The other clusters",
        "are RSC-1 with the change named and a seed of their own: nothing was chosen for them.",
        "",
    )


def holds(f: Figures) -> bool:
    """Whether the interval of the rate holds the injected one."""
    low, high = f["rate_ci95"]
    return bool(low <= f["injected"] <= high)


def _spoken(each: Experiment) -> str:
    if each.pulled_of:
        return f"RSC-1, seed {each.seed}, lemons found pulled"
    if not each.change:
        return f"RSC-{each.preset[-1]}, seed {each.seed}"
    return each.name[0].upper() + each.name[1:]


def _ettr(logs: Sequence[Figures]) -> Iterator[str]:
    """Measured and expected ETTR by size, all seeds together."""
    yield from (
        "## ETTR of the large runs",
        "",
        "RSC-1, runs of 24 hours or more, of the class with the highest priority, as "
        "`holdfast fleet report` measures them, against",
        "the paper's formula and the exact form, both with the rate and the waits found in the same log.",
        "",
        "| GPUs | runs | measured | of the seeds | the paper's formula | exact |",
        "|-|-:|-:|-|-:|-:|",
    )
    tops = sorted({row["gpus_max"] for f in logs for row in f["ettr"]})
    for top in tops:
        rows = [row for f in logs for row in f["ettr"] if row["gpus_max"] == top]
        runs = sum(row["runs"] for row in rows)
        mean = {
            key: sum(row[key] * row["runs"] for row in rows) / runs
            for key in ("ettr", "v2", "exact")
        }
        ends = [row["ettr"] for row in rows]
        yield (
            f"| {top // 2 + 1:,} to {top:,} | {runs} | {mean['ettr']:.3f} "
            f"| {min(ends):.3f} to {max(ends):.3f} | {mean['v2']:.3f} | {mean['exact']:.3f} |"
        )
    yield from (
        "",
        "They need not be equal: the formulas are those of a run without end, while a real one also "
        "waits and initialises",
        "for its first start; runs that fail more often take longer, so more of them are among those of "
        "24 hours; and of the",
        "largest sizes there are few.",
        "",
    )


def measured(names: list[str], stores: Path, kept: dict[str, Figures]) -> dict[str, Figures]:
    """`kept` with the figures of what is named; experiments are simulated where they have no store yet."""
    from holdfast import fleet

    for each in EXPERIMENTS:
        if each.name not in names:
            continue
        store = stores / each.name.replace(" ", "-").replace(",", "")
        if not (store / "store.json").exists():
            fleet.simulate(scenario_of(each, kept), store, days=each.days, seed=each.seed)
        kept[each.name] = _rounded(measure(store))
    if KNOWN_FLEETS in names:
        kept[KNOWN_FLEETS] = _rounded(measure_incidents(stores / KNOWN_FLEETS))
    for name in [name for name in PUBLIC if name in names]:
        kept[name] = _rounded(measure_public(PUBLIC[name], stores / name))
    return kept


def _rounded(value: Any) -> Any:
    """Floats to ten digits: the last ones depend on the order in which sums were taken."""
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    return float(f"{value:.10g}") if isinstance(value, float) else value


def main() -> None:
    """Simulate and measure what is named, and write the page."""
    stores, names = sys.argv[1:2], sys.argv[2:] or [each.name for each in EXPERIMENTS]
    kept = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}
    if stores:
        kept = measured(names, Path(stores[0]), kept)
        text = json.dumps(kept, indent=1, sort_keys=True)
        KEPT.write_text(text + "\n", encoding="utf-8")
    PAGE.write_text(page(kept), encoding="utf-8")


if __name__ == "__main__":
    main()
