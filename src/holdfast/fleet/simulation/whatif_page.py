"""The page of a what-if: the recommended change first, then every difference behind it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import altair as alt
import pyarrow as pa

from holdfast import __version__
from holdfast.fleet.job_sizes import bucket_label
from holdfast.fleet.simulation.change_wording import at
from holdfast.fleet.simulation.changes import leaves
from holdfast.fleet.simulation.comparison import Difference, WhatIf
from holdfast.fleet.simulation.metric_wording import wording
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
SETTINGS = (
    *("cluster.nodes", "cluster.gpus", "workload.jobs", "failures", "checkpoint", "scheduler"),
    *("detection", "repair"),
)
"""How the keys begin that are shown of a scenario."""
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
        _sentence(found.recommended), "gain", "Recommended."
    ) if best else Finding(
        f"None of these changes raises “{wording(found.main).label}” or goodput by more than "
        f"{found.replicas} replicas can tell from zero.",
        "gain",
        "No recommendation.",
    )  # fmt: skip
    others = [each for each in found.ranked if best is None or each.change != best.change]
    more = []
    for each in others[: MOST_FINDINGS - 2]:
        doubt = "" if each.told else ", which cannot be told from no change"
        more.append(Finding(_sentence(found.sentence(each.change) + doubt), "gain"))
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


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _subject(found: WhatIf) -> str:
    """The change that tiles and sizes are about."""
    return (found.best or found.ranked[0]).change


def _tiles(found: WhatIf) -> list[Tile]:
    change = _subject(found)
    tiles: list[Tile] = []
    shown = (found.main, "goodput_gpu_hours_per_day", *LOST, "queue_wait_mean_s")
    for metric in dict.fromkeys(shown):
        each, words = found.of(change, metric), wording(metric)
        unit = "" if words.unit in ("%", "s") else words.unit
        note = f"{words.value(each.value)} with {_cut(change)}"
        text = words.value(each.baseline)
        tiles.append(Tile(words.label, text, unit, note=note, section_id="effects"))
    return tiles


def _cut(change: str) -> str:
    return change if len(change) <= MOST_CHARACTERS else f"{change[: MOST_CHARACTERS - 1]}…"


# --- Which change gains most? --------------------------------------------------------------------


def _gain(found: WhatIf) -> Section:
    words, best = wording(found.main), found.best
    ranked = [(each.change, each) for each in found.ranked]
    sentence = (
        _sentence(found.recommended)
        if best
        else "No interval lies above zero: more replicas or more days would narrow them."
    )
    if best and best.metric != found.main:
        sentence += f" The {words.label} tells no gain from zero."
    return Section(
        "gain",
        "Which change gains most?",
        sentence,
        [_forest(ranked, words.label)],
        [_table(ranked, "Change", f"{words.label}, the largest gain first.")],
        How(
            [
                "d = mean over the seeds of (metric with the change − metric without)",
                "95 % interval: d ± t(0.975; n − 1) · s / √n, s the standard deviation of the n "
                "differences",
                "simulated ETTR = Σ productive time / Σ (waiting + running time), of long runs",
            ],
            {"replicas n": found.replicas, "large runs": _large(found)},
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


def _table(
    differences: Sequence[tuple[str, Difference]], first: str, caption: str, empty: str = "No rows."
) -> Table:
    """Differences with their labels, one row each, as texts; the file of the table has the numbers."""
    rows = [
        {
            "label": label,
            "what": words.label,
            "was": words.value(each.baseline),
            "is": words.value(each.value),
            "by": f"{words.difference(each.difference)} {words.interval(each.ci95)}",
            "saved": each.variance_saved,
            "metric": each.metric,
            "before": each.baseline,
            "after": each.value,
            "difference": each.difference,
            "low": each.ci95[0],
            "high": each.ci95[1],
        }
        for label, each in differences
        for words in [wording(each.metric)]
    ]
    columns = {
        "label": ColumnFormat(first),
        "what": ColumnFormat("What"),
        "was": ColumnFormat("Before", right=True),
        "is": ColumnFormat("After", right=True),
        "by": ColumnFormat("Difference, 95 %", right=True),
        "saved": ColumnFormat("Variance saved", "%", digits=0),
    }
    return Table(pa.Table.from_pylist(rows), columns, caption, empty)


def _forest(differences: Sequence[tuple[str, Difference]], title: str) -> Figure:
    """Differences of one metric with their intervals, one line each."""
    words = wording(differences[0][1].metric)
    sign = -1 if words.more_is_better is False else 1
    rows = [
        {
            "label": _cut(label),
            "place": str(place),
            "difference": words.scaled(each.difference),
            "low": words.scaled(each.ci95[0]),
            "high": words.scaled(each.ci95[1]),
            "before": words.value(each.baseline),
            "after": words.value(each.value),
            "verdict": list(VERDICTS)[
                2 if not each.told else 0 if sign * each.difference > 0 else 1
            ],
        }
        for place, (label, each) in enumerate(differences)
        if each.difference == each.difference
    ]
    y = alt.Y("place:N").sort([str(row["place"]) for row in rows]).axis(None)
    x = alt.X("difference", type="quantitative").title(f"Difference ({words.difference_unit})")
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
    change = _subject(found)
    sizes = [int(TOPS[size]) for size in found.scope.sizes]
    rows = [(f"{bucket_label(top)} GPUs", found.of(change, f"ettr_gpus_{top}")) for top in sizes]
    question = "Which job sizes gain?"
    if not rows:
        return Section("sizes", question, "No size has enough long runs to tell.")
    told = [label for label, each in rows if each.ci95[0] > 0]
    sentence = (
        f"With {change}, the simulated ETTR of long runs rises in {len(told)} of {len(rows)} sizes"
        + (f": {', '.join(told)}." if told else ".")
    )
    waits = [
        (bucket_label(int(TOPS[size])), found.of(change, f"queue_wait_{name}_s_gpus_{TOPS[size]}"))
        for size in found.scope.waits
        for name in ("mean", "p90")
    ]
    return Section(
        "sizes",
        question,
        sentence,
        [_forest(rows, f"Simulated ETTR of long runs with {_cut(change)}")],
        [
            _table(
                waits,
                "Job size (GPUs)",
                f"Waits before a start, two rows per job size, with {change}.",
                "Nothing waited.",
            )
        ],
        How(
            "simulated ETTR of one size = Σ productive time / Σ (waiting + running time) of its long runs",
            {"long runs": _large(found), "fewest runs of a size, all replicas": 30},
            "",
            "Waits are those before every start, also after a requeue. One that is not over at the "
            "end counts as long as it has lasted.",
        ),
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
        (change, each)
        for change in ordered
        for each in found.differences
        if each.change == change
        and (each.metric in (*EFFECTS, found.main) or "failed_share" in each.metric)
    ]
    return Section(
        "effects",
        "What else changes?",
        sentence,
        [_forest([(each.change, each) for each in lost], "GPU-hours lost to failures")],
        [
            _table(
                rows,
                "Change",
                "One row per change and metric; losses in GPU-hours a day, shares in points.",
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


def _settings(scenario: Scenario) -> Iterator[tuple[str, str]]:
    """(key, value) of what is no list of tables."""
    for path, leaf in leaves().items():
        value = at(scenario, path)
        if not path.startswith(SETTINGS) or value is None:
            continue
        if isinstance(value, dict):
            text = ", ".join(f"{name}: {number(factor, 1)}" for name, factor in value.items())
        elif isinstance(value, str | bool):
            text = str(value).lower() if isinstance(value, bool) else value
        else:
            plain = f"{value:.4g}" if abs(value) < 1e4 else number(value)
            text = duration(value) if leaf.duration else plain
        yield path, text or "none"
