"""The page of a what-if: the recommended change first, then every difference behind it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import pyarrow as pa

from holdfast import __version__
from holdfast.fleet.job_sizes import bucket_label
from holdfast.fleet.simulation.comparison import Difference, WhatIf
from holdfast.fleet.simulation.metric_wording import difference_text, value_text, wording
from holdfast.fleet.simulation.outcomes import TOPS, window_ms
from holdfast.fleet.simulation.scenario import Scenario
from holdfast.numbers import duration, number, percent
from holdfast.report import (
    ColumnFormat,
    Figure,
    Finding,
    How,
    Page,
    Section,
    Table,
    Tile,
    Unknown,
    charts,
)
from holdfast.report.theme import colour

VERDICTS = {"gain": "good", "loss": "hardware", "cannot be told from zero": "unattributed"}
LOST = ("lost_first_order_gpu_hours_per_day", "lost_second_order_gpu_hours_per_day")
EFFECTS = (
    "goodput_gpu_hours_per_day",
    *LOST,
    "lost_other_preemption_gpu_hours_per_day",
    "queue_wait_mean_s",
    "completed_jobs_per_day",
)
WAITS = ("mean", "p90")
MOST_FINDINGS = 6
MOST_CHARACTERS = 44
"""Of a change above its interval: a longer one is cut."""


def page(found: WhatIf) -> Page:
    """The page of a what-if."""
    return Page(
        title=f"What if: {found.source}",
        subtitle=f"{len(found.scenarios) + 1} scenarios, {found.replicas} replicas of "
        f"{duration(found.days * 86_400)} each",
        inputs=_inputs(found),
        findings=_findings(found),
        tiles=_tiles(found),
        sections=[_gain(found), _sizes(found), _effects(found), _assumed(found)],
        unknowns=[Unknown(note) for note in found.notes],
        footer=f"holdfast {__version__}",
    )


def _inputs(found: WhatIf) -> list[tuple[str, str]]:
    begin_ms, end_ms = window_ms(found.days)
    return [
        ("Simulated", found.source),
        ("Seeds", f"{found.seed} to {found.seed + found.replicas - 1}"),
        (
            "Counted",
            f"the last {duration((end_ms - begin_ms) / 1e3)} of {duration(end_ms / 1e3)}: "
            "the cluster begins empty",
        ),
        ("Large runs", _large(found)),
        ("Computed in", duration(found.seconds)),
    ]


def _large(found: WhatIf) -> str:
    chosen, qos = found.scope, found.baseline.qos
    classes = [qos[place].name for place in chosen.classes]
    of_classes = f" of class {classes[0]}" if len(classes) < len(qos) else ""
    long = f" that need {chosen.long_run_hours} productive hours or more"
    return f"{found.large_runs}{of_classes}{long if chosen.long_run_hours else ''}"


def _findings(found: WhatIf) -> list[Finding]:
    best = found.best
    first = Finding(
        f"{found.recommended[0].upper()}{found.recommended[1:]}.", "gain", "Recommended."
    ) if best else Finding(
        f"None of these changes raises {_lower(wording(found.main).label)} or goodput by more than "
        f"{found.replicas} replicas can tell from zero.",
        "gain",
        "No recommendation.",
    )  # fmt: skip
    others = [each for each in found.ranked if best is None or each.change != best.change]
    more = []
    for each in others[: MOST_FINDINGS - 2]:
        text = found.sentence(each.change)
        doubt = "" if each.told else ", which cannot be told from no change"
        more.append(Finding(f"{text[0].upper()}{text[1:]}{doubt}.", "gain"))
    return [first, *more, _lost_now(found)]


def _lost_now(found: WhatIf) -> Finding:
    any_change = next(iter(found.scenarios))
    first, second = (found.of(any_change, name).baseline for name in LOST)
    busy = found.of(any_change, "goodput_share_of_busy_time").baseline
    return Finding(
        f"As it is, failures cost {number(first, 1)} GPU-hours a day and the preemptions by jobs that "
        f"had failed {number(second, 1)}; {percent(busy, 1)} of the GPU time of jobs is productive.",
        "effects",
    )


def _lower(text: str) -> str:
    return text if text[:2].isupper() else text[0].lower() + text[1:]


def _tiles(found: WhatIf) -> list[Tile]:
    change = found.best.change if found.best else found.ranked[0].change
    tiles: list[Tile] = []
    for metric in (found.main, "goodput_gpu_hours_per_day", *LOST, "queue_wait_mean_s"):
        if any(tile.label == wording(metric).label for tile in tiles):
            continue
        each, words = found.of(change, metric), wording(metric)
        text = value_text(metric, each.baseline)
        unit = "" if words.unit in ("%", "s") else words.unit
        note = f"{value_text(metric, each.value)} with {_cut(change)}"
        tiles.append(Tile(words.label, text, unit, note=note, section_id="effects"))
    return tiles


def _cut(change: str) -> str:
    return change if len(change) <= MOST_CHARACTERS else f"{change[: MOST_CHARACTERS - 1]}…"


# --- Which change gains most? --------------------------------------------------------------------


def _gain(found: WhatIf) -> Section:
    words = wording(found.main)
    best = found.best
    sentence = (
        f"{found.recommended[0].upper()}{found.recommended[1:]}."
        if best
        else "No interval lies above zero: more replicas or more days would narrow them."
    )
    if best and best.metric != found.main:
        sentence += f" The {words.label} tells no gain from zero."
    return Section(
        "gain",
        "Which change gains most?",
        sentence,
        [_forest(found.ranked, [_cut(each.change) for each in found.ranked], words.label)],
        [_gain_table(found)],
        How(
            [
                "d = mean over the seeds of (metric with the change − metric without)",
                "95 % interval: d ± t(0.975; n − 1) · s / √n, s the standard deviation of the n "
                "differences",
                "simulated ETTR = Σ productive time / Σ (waiting + running time), of long runs",
            ],
            {
                "replicas n": found.replicas,
                "seeds": f"{found.seed} to {found.seed + found.replicas - 1}",
                "simulated days a replica": number(found.days),
                "large runs": _large(found),
            },
            "Kokolis et al., arXiv 2410.21680v2 (ETTR); Law, Simulation Modeling and Analysis, on "
            "common random numbers",
            [
                "Each scenario is played with the same seeds, and random numbers belong to a job or a "
                "node: a pair shares its jobs and the failures of its unchanged nodes. What that "
                "saves is in the last column: the share of the variance of the difference of two "
                "independent simulations.",
                f"Each interval holds by itself. The best of {len(found.scenarios)} changes looks a "
                "little better than it is, the more so the wider its interval.",
            ],
        ),
    )


def _gain_table(found: WhatIf) -> Table:
    words = wording(found.main)
    share = words.unit == "%"
    scale = 100 if share else 1
    rows = [
        {
            "change": each.change,
            "words": found.phrases[each.change],
            "baseline": each.baseline,
            "value": each.value,
            "difference": scale * each.difference,
            "low": scale * each.ci95[0],
            "high": scale * each.ci95[1],
            "saved": each.variance_saved,
        }
        for each in found.ranked
    ]
    digits = 1 if share else 2
    points = "points" if share else words.unit
    return Table(
        pa.Table.from_pylist(rows),
        {
            "change": ColumnFormat("Change"),
            "baseline": ColumnFormat("Before", words.unit, digits=digits),
            "value": ColumnFormat("After", words.unit, digits=digits),
            "difference": ColumnFormat(
                "Difference, 95 %", points, digits=2, interval=("low", "high")
            ),
            "saved": ColumnFormat("Variance saved", "%", digits=0),
        },
        caption=f"{words.label}, the largest gain first.",
    )


def _forest(differences: Sequence[Difference], labels: Sequence[str], title: str) -> Figure:
    """Differences of one metric with their intervals, one line each."""
    words = wording(differences[0].metric)
    scales = {"%": (100.0, "percentage points"), "s": (1 / 60, "minutes")}
    scale, unit = scales.get(words.unit, (1.0, words.unit))
    sign = -1 if words.more_is_better is False else 1
    rows = [
        {
            "label": label,
            "place": str(place),
            "difference": scale * each.difference,
            "low": scale * each.ci95[0],
            "high": scale * each.ci95[1],
            "before": value_text(each.metric, each.baseline),
            "after": value_text(each.metric, each.value),
            "verdict": list(VERDICTS)[
                2 if not each.told else 0 if sign * each.difference > 0 else 1
            ],
        }
        for place, (label, each) in enumerate(zip(labels, differences, strict=True))
        if each.difference == each.difference
    ]
    y = alt.Y("place:N").sort([str(row["place"]) for row in rows]).axis(None)
    x = alt.X("difference", type="quantitative").title(f"Difference ({unit})")
    tooltip = charts.tooltip(
        {
            "label": "change",
            "before": "before",
            "after": "after",
            "difference": ("difference", "+,.3~r"),
            "low": ("from", "+,.3~r"),
            "high": ("to", "+,.3~r"),
        }
    )
    base = alt.Chart(charts.data(rows)).encode(
        y=y, color=charts.meaning_colour("verdict", VERDICTS), tooltip=tooltip
    )
    shown = {row["verdict"] for row in rows}
    layers: list[Any] = [
        alt.Chart(charts.data([{"zero": 0}]))
        .mark_rule(color=colour("reference"), strokeDash=[4, 3])
        .encode(x=alt.X("zero:Q")),
        base.mark_rule(strokeWidth=2.5, yOffset=8).encode(
            x=charts.same_axis(x, "low"), x2="high:Q"
        ),
        base.mark_point(size=80, filled=True, opacity=1, yOffset=8).encode(x=x),
        # Above its interval, from the left edge: a phone has no room beside it.
        alt.Chart(charts.data(rows))
        .mark_text(align="left", baseline="bottom", color=colour("ink"), dy=-1)
        .encode(x=alt.value(0), y=y, text=alt.Text("label:N")),
    ]
    return Figure(
        alt.layer(*layers).properties(height={"step": 46}),
        f"{title}: difference with its 95 % interval",
        legend={name: tone for name, tone in VERDICTS.items() if name in shown},
    )


# --- Which job sizes gain? -----------------------------------------------------------------------


def _sizes(found: WhatIf) -> Section:
    change = found.best.change if found.best else found.ranked[0].change
    sizes = [int(TOPS[size]) for size in found.scope.sizes]
    rows = [found.of(change, f"ettr_gpus_{top}") for top in sizes]
    labels = [f"{bucket_label(top)} GPUs" for top in sizes]
    question = "Which job sizes gain?"
    if not rows:
        return Section("sizes", question, "No size has enough long runs to tell.")
    told = [label for label, each in zip(labels, rows, strict=True) if each.ci95[0] > 0]
    sentence = (
        f"With {change}, the simulated ETTR of long runs rises in {len(told)} of {len(rows)} sizes"
        + (f": {', '.join(told)}." if told else ".")
    )
    waits = [
        tuple(found.of(change, f"queue_wait_{name}_s_gpus_{TOPS[size]}") for name in WAITS)
        for size in found.scope.waits
    ]
    return Section(
        "sizes",
        question,
        sentence,
        [_forest(rows, labels, f"Simulated ETTR of long runs with {_cut(change)}")],
        [_wait_table(found, change, waits)],
        How(
            "simulated ETTR of one size = Σ productive time / Σ (waiting + running time) of its long runs",
            {"long runs": _large(found), "fewest runs of a size, all replicas": 30},
            "",
            "Waits are those before every start, also after a requeue. One that is not over at the "
            "end counts as long as it has lasted.",
        ),
    )


def _wait_table(found: WhatIf, change: str, waits: Sequence[Sequence[Difference]]) -> Table:
    rows = []
    for size, both in zip(found.scope.waits, waits, strict=True):
        row: dict[str, Any] = {"size": bucket_label(int(TOPS[size]))}
        for name, each in zip(WAITS, both, strict=True):
            row |= {
                f"{name}_before": each.baseline / 60,
                f"{name}_difference": each.difference / 60,
                f"{name}_low": each.ci95[0] / 60,
                f"{name}_high": each.ci95[1] / 60,
            }
        rows.append(row)
    return Table(
        pa.Table.from_pylist(rows),
        {
            "size": ColumnFormat("Job size", "GPUs", right=True),
            "mean_before": ColumnFormat("Mean wait before", "min", digits=1),
            "mean_difference": ColumnFormat(
                "Difference, 95 %", "min", digits=1, interval=("mean_low", "mean_high")
            ),
            "p90_before": ColumnFormat("9 of 10 waits within, before", "min", digits=1),
            "p90_difference": ColumnFormat(
                "Difference, 95 %", "min", digits=1, interval=("p90_low", "p90_high")
            ),
        },
        caption=f"Waits before a start, one row per job size, with {change}.",
        empty="Nothing waited.",
    )


# --- What else changes? --------------------------------------------------------------------------


def _effects(found: WhatIf) -> Section:
    ordered = [each.change for each in found.ranked]
    lost = [found.of(change, LOST[0]) for change in ordered]
    best = min(lost, key=lambda each: each.difference)
    sentence = (
        f"{_cut(best.change)} saves most of what failures cost: "
        f"{number(-best.difference, 1)} of {number(best.baseline, 1)} GPU-hours a day."
        if best.ci95[1] < 0
        else "No change lowers what failures cost by more than can be told from zero."
    )
    rows = [
        {
            "change": each.change,
            "metric": wording(each.metric).label,
            "baseline": value_text(each.metric, each.baseline),
            "value": value_text(each.metric, each.value),
            "difference": f"{difference_text(each.metric, each.difference)} "
            f"[{difference_text(each.metric, each.ci95[0])}, "
            f"{difference_text(each.metric, each.ci95[1])}]",
            "name": each.metric,
        }
        for change in ordered
        for each in found.differences
        if each.change == change
        and (each.metric in EFFECTS or each.metric == found.main or "failed_share" in each.metric)
    ]
    return Section(
        "effects",
        "What else changes?",
        sentence,
        [_forest(lost, [_cut(change) for change in ordered], "GPU-hours lost to failures")],
        [
            Table(
                pa.Table.from_pylist(rows),
                {
                    "change": ColumnFormat("Change"),
                    "metric": ColumnFormat("What"),
                    "baseline": ColumnFormat("Before", right=True),
                    "value": ColumnFormat("After", right=True),
                    "difference": ColumnFormat("Difference, 95 %", right=True),
                },
                caption="One row per change and metric; losses in GPU-hours a day, shares in points.",
            )
        ],
        How(
            [
                "lost to failures (first order) = Σ GPUs · (progress lost + time hung + initialisation) "
                "of attempts that the infrastructure ended",
                "lost to preemption by jobs that had failed (second order) = the same of attempts that "
                "such a job preempted after its failure",
                "goodput = Σ GPUs · kept productive time",
            ],
            {},
            "Kokolis et al., arXiv 2410.21680v2, on goodput loss",
            "The simulator knows when each checkpoint was written: what is lost is counted, not "
            "estimated as half an interval.",
        ),
    )


# --- What was assumed? ---------------------------------------------------------------------------


def _assumed(found: WhatIf) -> Section:
    rows = list(_settings(found.baseline))
    return Section(
        "assumed",
        "What was assumed of the fleet?",
        "Everything that was simulated is in one scenario; these are its main settings.",
        tables=[
            Table(
                pa.table({"key": [key for key, _ in rows], "value": [value for _, value in rows]}),
                {"key": ColumnFormat("Key of the scenario"), "value": ColumnFormat("Value")},
                caption="One row per setting; what is not so can be corrected: --set KEY=VALUE.",
            )
        ],
        how=How(
            found.baseline.to_toml().splitlines(),
            {},
            "",
            "The scenario as TOML: save it to a file, edit it, and simulate it with --scenario FILE.",
        ),
    )


def _settings(scenario: Scenario) -> list[tuple[str, str]]:
    cluster, failures, lemons = scenario.cluster, scenario.failures, scenario.failures.lemons
    named = ", ".join(f"{name} ({number(factor, 1)}x)" for name, factor in lemons.nodes.items())
    drawn = f"{lemons.count}, {number(lemons.factor, 0)}x, chosen by the seed"
    checkpoint, scheduler, repair = scenario.checkpoint, scenario.scheduler, scenario.repair
    return [
        ("cluster.nodes", f"{cluster.nodes:,} of {cluster.gpus_per_node} GPUs"),
        ("workload.jobs_per_day", number(scenario.workload.jobs_per_day)),
        ("failures.rate_per_node_day", f"{1000 * failures.rate_per_node_day:.3g} / 1,000"),
        ("failures.lemons", named or (drawn if lemons.count else "none")),
        ("checkpoint.interval", duration(checkpoint.interval_s)),
        ("checkpoint.write", f"{duration(checkpoint.write_s)}, {checkpoint.mode}"),
        ("checkpoint.init", duration(checkpoint.init_s)),
        ("scheduler.policy", scheduler.policy),
        ("scheduler.preempt_after", duration(scheduler.preempt_after_s)),
        ("scheduler.grace", duration(scheduler.grace_s)),
        ("scheduler.requeue_delay", duration(scheduler.requeue_delay_s)),
        ("detection.check_interval", duration(scenario.detection.check_interval_s)),
        ("detection.heartbeat", duration(scenario.detection.heartbeat_s)),
        ("repair, fast", f"{duration(repair.fast_min_s)} to {duration(repair.fast_max_s)}"),
        ("repair, slow", f"{duration(repair.slow_min_s)} to {duration(repair.slow_max_s)}"),
    ]
