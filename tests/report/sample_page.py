"""A page with every element and every kind of chart that a room draws; `python sample_page.py OUT.html`."""

from __future__ import annotations

import datetime
import math
import random
import sys
from datetime import UTC, timedelta

import altair as alt
import pyarrow as pa

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
    write,
)
from holdfast.report.theme import colour

ENDS = {"NODE_FAIL": "purple", "PREEMPTED": "sky", "COMPLETED": "good"}
ORDERS = {"first order": "first", "second order (preempted by a restart)": "second"}
START = datetime.datetime(2026, 1, 1, tzinfo=UTC)
CAUSES = {
    "hardware": "hardware",
    "system": "system",
    "user": "user",
    "unattributed": "unattributed",
}
STATES = {
    "COMPLETED": "good",
    "FAILED": "hardware",
    "CANCELLED": "unattributed",
    "PREEMPTED": "sky",
    "NODE_FAIL": "purple",
    "TIMEOUT": "yellow",
}


def status_mix() -> alt.Chart:
    shares = {
        "by attempts": [0.60, 0.24, 0.09, 0.05, 0.01, 0.01],
        "by GPU time": [0.42, 0.21, 0.10, 0.12, 0.14, 0.01],
    }
    rows = [
        {"base": base, "state": state, "share": share, "order": order}
        for base, values in shares.items()
        for order, (state, share) in enumerate(zip(STATES, values, strict=True))
    ]
    return (
        alt.Chart(charts.data(rows))
        .mark_bar()
        .encode(
            x=alt.X("share:Q").axis(format=".0%").title("Share").scale(domain=[0, 1]),
            y=alt.Y("base:N").title(None),
            color=charts.meaning_colour("state", STATES),
            order="order:Q",
            tooltip=charts.tooltip({"base": "base", "state": "state", "share": ("share", ".1%")}),
        )
        .properties(height={"step": 34})
    )


def rate_by_month() -> Figure:
    chance = random.Random(1)
    rows = [
        {
            "month": START.replace(month=month + 1),
            "cause": cause,
            "rate": round(chance.uniform(0.4, 2.2), 3),
        }
        for month in range(11)
        for cause in CAUSES
    ]
    bars = (
        alt.Chart(charts.data(rows))
        .mark_bar()
        .encode(
            x=charts.time_axis("month", "Month").timeUnit("utcyearmonth"),
            y=alt.Y("rate:Q").title("Failures per 1,000 node-days"),
            color=charts.meaning_colour("cause", CAUSES),
            tooltip=charts.tooltip(
                {
                    "month": ("month", "%Y-%m"),
                    "cause": "cause",
                    "rate": ("per 1,000 node-days", ".2f"),
                }
            ),
        )
    )
    marks, notes = charts.event_marks(
        [
            (START + timedelta(days=95), "IB link check first seen (2026-04-06)"),
            (START + timedelta(days=101), "maintenance (2026-04-12)"),
            (START + timedelta(days=240), "row remap check first seen (2026-08-29)"),
        ]
    )
    return Figure(bars + marks, legend=CAUSES, notes=notes)


def mttf_by_size() -> alt.LayerChart:
    sizes = [8, 16, 64, 256, 1024, 2048, 4096]
    hours = [1145, 640, 130, 31, 7.9, 4.4, 1.9]
    rows = [
        {"gpus": gpus, "mttf": mttf, "low": mttf * 0.7, "high": mttf * 1.5}
        for gpus, mttf in zip(sizes, hours, strict=True)
    ]
    line = [{"gpus": gpus, "mttf": 8 * 24000 / 23 / gpus * 24 / 24} for gpus in (8, 131072)]
    x = charts.log_axis(alt.X, "gpus", "Job size (GPUs)", domain=[8, 131072])
    y = charts.log_axis(alt.Y, "mttf", "Mean time to failure (hours)")
    shown = charts.tooltip({"gpus": ("GPUs", ",d"), "mttf": ("MTTF (hours)", ".3~s")})
    points = charts.interval_points(x, y, "low", "high", shown).properties(data=charts.data(rows))
    model = (
        alt.Chart(charts.data(line))
        .mark_line(color=colour("model"))
        .encode(x=x, y=y, tooltip=shown)
    )
    labels = charts.line_labels(
        [{"gpus": 8192, "mttf": 8 * 24000 / 23 / 8192, "text": "1/N with the fitted rate"}],
        x,
        y,
        "text",
        align="right",
        dx=-8,
        dy=14,
    )
    return alt.layer(model, points, labels)


def goodput_by_size() -> alt.Chart:
    sizes = ["1-8", "9-64", "65-256", "257-1,024", "over 1,024"]
    rows = [
        {
            "size": size,
            "order": order,
            "hours": (index + 1) ** 2 * (40 if order == "first order" else 9),
        }
        for index, size in enumerate(sizes)
        for order in ORDERS
    ]
    return (
        alt.Chart(charts.data(rows))
        .mark_bar()
        .encode(
            x=alt.X("hours:Q").title("GPU-hours lost"),
            y=alt.Y("size:N").sort(sizes).title("Job size (GPUs)"),
            color=charts.meaning_colour("order", ORDERS),
            tooltip=charts.tooltip(
                {"size": "GPUs", "order": "order", "hours": ("GPU-hours", ",.0f")}
            ),
        )
    )


def ettr() -> alt.LayerChart:
    chance = random.Random(2)
    nodes = [4, 8, 16, 32, 64, 128, 256, 512]
    expected = [{"nodes": n, "ettr": 1 / (1 + n / 1500)} for n in nodes]
    measured = [
        {
            "nodes": n,
            "ettr": min(1.0, e + chance.uniform(-0.05, 0.04)),
            "low": max(0.0, e - 0.07),
            "high": min(1.0, e + 0.05),
        }
        for n, e in ((row["nodes"], row["ettr"]) for row in expected)
    ]
    x = charts.log_axis(alt.X, "nodes", "Job size (nodes)", domain=[4, 512])
    y = alt.Y("ettr", type="quantitative").scale(domain=[0, 1]).axis(format=".0%").title("ETTR")
    shown = charts.tooltip({"nodes": ("nodes", "d"), "ettr": ("ETTR", ".1%")})
    points = charts.interval_points(x, y, "low", "high", shown).properties(
        data=charts.data(measured)
    )
    line = alt.Chart(charts.data(expected)).mark_line().encode(x=x, y=y)
    label = charts.line_labels(
        [{"nodes": 128, "ettr": 0.86, "text": "expected (exact form)"}],
        x,
        y,
        "text",
        align="right",
        dx=0,
        dy=14,
    )
    return alt.layer(line, points, label)


def contours() -> alt.LayerChart:
    levels = [0.5, 0.7, 0.8, 0.9, 0.95]
    rows, ends = [], []
    for level in levels:
        line = []
        for step in range(40):
            interval = 2 * 10 ** (step / 20)
            rate = (1 / level - 1) * 40 / (interval / 2 + 5)
            if 0.3 <= rate <= 30:
                line.append({"interval": interval, "rate": rate, "ettr": f"{level:.0%}"})
        rows += line
        ends.append({**line[0], "text": f"ETTR {level:.0%}"})
    x = charts.log_axis(alt.X, "interval", "Checkpoint interval (minutes)")
    y = charts.log_axis(alt.Y, "rate", "Failures per 1,000 node-days")
    lines = (
        alt.Chart(charts.data(rows))
        .mark_line()
        .encode(x=x, y=y, color=alt.Color("ettr:O").legend(None))
    )
    return lines + charts.line_labels(ends, x, y, "text")


def lemon_steps() -> alt.LayerChart:
    chance = random.Random(3)
    rows = []
    ends = []
    for name in ("node failures", "distinct XIDs", "exclusions"):
        values = sorted(int(chance.expovariate(0.5)) for _ in range(60))
        line = [{"value": v, "share": (i + 1) / 60, "signal": name} for i, v in enumerate(values)]
        rows += line
        ends.append(line[36 + 6 * len(ends)])
    x = alt.X("value", type="quantitative").title("Count in 28 days")
    y = (
        alt.Y("share", type="quantitative")
        .axis(format=".0%")
        .title("Share of nodes at or below")
        .scale(domain=[0, 1])
    )
    meanings = {"node failures": "hardware", "distinct XIDs": "user", "exclusions": "good"}
    lines = (
        alt.Chart(charts.data(rows))
        .mark_line(interpolate="step-after")
        .encode(
            x=x,
            y=y,
            color=charts.meaning_colour("signal", meanings),
        )
    )
    threshold = (
        alt.Chart(charts.data([{"value": 7}]))
        .mark_rule(color=colour("reference"), strokeDash=[5, 4])
        .encode(x=x)
    )
    return alt.layer(
        lines, threshold, charts.line_labels(ends, x, y, "signal", dy=10, baseline="top")
    )


def timeline() -> alt.LayerChart:
    rows = [
        {
            "attempt": index + 1,
            "start": START + timedelta(hours=5 * index),
            "end": START + timedelta(hours=5 * index + 4.5),
            "state": state,
        }
        for index, state in enumerate(["NODE_FAIL"] * 5 + ["PREEMPTED", "COMPLETED"])
    ]
    events = [
        {
            "attempt": row["attempt"],
            "at": row["end"] - timedelta(minutes=6),
            "check": "ib_link </script><b>",
        }
        for row in rows[:5]
    ]
    x = charts.time_axis("start", "Time")
    y = alt.Y("attempt:O").title("Attempt")
    bars = (
        alt.Chart(charts.data(rows))
        .mark_bar(height={"band": 0.6})
        .encode(
            x=x,
            x2="end:T",
            y=y,
            color=charts.meaning_colour("state", ENDS),
            tooltip=charts.tooltip(
                {
                    "attempt": "attempt",
                    "state": "state",
                    "start": ("start", "%Y-%m-%d %H:%M"),
                    "end": ("end", "%Y-%m-%d %H:%M"),
                }
            ),
        )
    )
    ticks = (
        alt.Chart(charts.data(events))
        .mark_tick(color=colour("ink"), thickness=3, height=22)
        .encode(
            x=alt.X("at", type="temporal").scale(type="utc"),
            y=y,
            tooltip=charts.tooltip({"check": "check", "at": ("at", "%Y-%m-%d %H:%M")}),
        )
    )
    return alt.layer(bars, ticks)


def lemons_table(rows: int = 60) -> Table:
    chance = random.Random(4)
    failures = sorted((int(chance.expovariate(0.4)) for _ in range(rows)), reverse=True)
    days = [round(chance.uniform(80, 300), 1) for _ in range(rows)]
    rate = [1000 * f / d for f, d in zip(failures, days, strict=True)]
    data = pa.table(
        {
            "node": [f"node{index:02d}" for index in range(1, rows + 1)],
            "failures": failures,
            "node_days": days,
            "rate": rate,
            "low": [r * 0.5 for r in rate],
            "high": [r * 1.8 + 2 for r in rate],
            "q_value": [min(1.0, math.exp(-f)) for f in failures],
            "share": [f / (sum(failures) or 1) for f in failures],
            "last_failure": [
                None if f == 0 else START + timedelta(days=3 * f, hours=index)
                for index, f in enumerate(failures)
            ],
            "evidence": [
                ["ib_link", "=HYPERLINK(1)"] if f > 6 else (["xid_79"] if f > 3 else [])
                for f in failures
            ],
        }
    )
    return Table(
        data,
        columns={
            "node": ColumnFormat("Node"),
            "failures": ColumnFormat("Failures"),
            "node_days": ColumnFormat("Exposure", "node-days", digits=1),
            "rate": ColumnFormat(
                "Rate, 95 % interval", "per 1,000 node-days", digits=1, interval=("low", "high")
            ),
            "q_value": ColumnFormat("q-value", digits=3),
            "share": ColumnFormat("Share of failures", "%", digits=1),
            "last_failure": ColumnFormat("Last failure", "UTC"),
            "evidence": ColumnFormat("Evidence"),
        },
        caption="One row a node, most failures first.",
    )


def page() -> Page:
    how = How(
        formula=["r_f = failures / Σ node-days", "MTTF(N) = 1 / (N · r_f)"],
        parameters={
            "window before the end": "10 min",
            "window after the end": "5 min",
            "minimum job size": "128 GPUs",
            "confidence level": 0.95,
        },
        source="Kokolis et al. (2025), arXiv 2410.21680v2, section III",
        notes="The interval is exact for a Poisson count; it assumes that nodes fail independently.",
    )
    return Page(
        title="Fleet report: slurm-testbed",
        subtitle="22 nodes, 176 GPUs, 2026-01-01 00:00 to 2026-11-30 23:59 UTC",
        inputs=[
            ("Files", "sacct_D.txt, health_events.jsonl, scontrol_show_node.txt"),
            ("Attempts", "4,012,337 read, 12 set aside (0.0003 %)"),
            ("Duplicates", "present (sacct was run with -D)"),
        ],
        findings=[
            Finding(
                "(3.1 % of 38,840; 95 % interval 1,121 to 1,290). 62 % of it is due to InfiniBand "
                "links on 3 nodes.",
                "goodput",
                lead="1,204 GPU-hours lost since 2026-11-23",
            ),
            Finding(
                "its shrunk failure rate is 41.2 per 1,000 node-days [22.8, 66.0], 6 times the "
                "fleet's (q = 0.003).",
                "lemons",
                lead="Pull node17:",
            ),
            Finding(
                "9 requeues in 24 h after node failures, 548 preemptions of others.",
                "timeline",
                lead="Job 93 loops:",
            ),
            Finding(
                "6.5 failures per 1,000 node-days [5.9, 7.1]; the step in April coincides with a "
                "new health check and is no degradation.",
                "rate",
                lead="The failure rate is steady:",
            ),
            Finding(
                "A checkpoint every 7 min instead of 60 would raise the ETTR of runs on "
                "2,000 nodes from 72 % to 92 %.",
                "ettr",
            ),
        ],
        tiles=[
            Tile("MTTF at 1,024 GPUs", "7.9", "h", "[5.1, 12.4] at 95 %", section_id="mttf"),
            Tile(
                "Failure rate",
                "6.50",
                "per 1,000 node-days",
                "[5.9, 7.1] at 95 %",
                "against October",
                "steady",
                "rate",
            ),
            Tile(
                "GPU-hours lost",
                "1,204",
                "GPU-h",
                note="3.1 % of 38,840",
                trend="rising",
                section_id="goodput",
            ),
            Tile("ETTR of runs over 24 h", "90.5", "%", "[88.9, 92.0] at 95 %", section_id="ettr"),
            Tile("Lemon nodes", "2", "of 22", note="node05, node16", section_id="lemons"),
            Tile("Unattributed failures", "10", "%", "4 of 39", section_id="rate"),
        ],
        sections=[
            Section(
                "status",
                "How do attempts end?",
                "60 % of the attempts complete; NODE_FAIL is 1 % of the attempts but 14 % of "
                "the GPU time.",
                [Figure(status_mix(), legend=STATES)],
                how=how,
            ),
            Section(
                "rate",
                "Is the failure rate drifting?",
                "No: the rate of 6.5 per 1,000 node-days [5.9, 7.1] shows no trend (p = 0.41).",
                [rate_by_month()],
                how=how,
            ),
            Section(
                "mttf",
                "How long will a job of N GPUs run before it fails?",
                "A job on 1,024 GPUs fails every 7.9 h [5.1, 12.4]; at 16,384 GPUs expect 0.5 h.",
                [Figure(mttf_by_size())],
                how=how,
            ),
            Section(
                "goodput",
                "What did failures cost?",
                "1,204 GPU-hours, 84 % of it in the failed jobs themselves.",
                [Figure(goodput_by_size(), legend=ORDERS)],
                [Table(pa.table({"size": pa.array([], pa.string())}), empty="No job was lost.")],
                how,
            ),
            Section(
                "ettr",
                "How much of a large run's time is productive?",
                "Runs on 512 nodes spend 75 % of their time productively, as expected.",
                [
                    Figure(ettr(), "Expected and measured"),
                    Figure(contours(), "Failure rate and checkpoint interval at a given ETTR"),
                ],
                how=how,
            ),
            Section(
                "lemons",
                "Which nodes should I pull?",
                "node05 and node16: 26 failures, 61 % of all (q = 0.03).",
                [Figure(lemon_steps())],
                [lemons_table()],
                how,
            ),
            Section(
                "timeline",
                "What happened to job 93?",
                "Nine attempts ended by node failures; each had an InfiniBand check.",
                [Figure(timeline(), legend=ENDS)],
                how=how,
            ),
        ],
        unknowns=[
            Unknown("12 rows (0.0003 %) could not be read.", "See rejects.csv in the store."),
            Unknown(
                "4 of 39 failures had no check in their window.",
                "Widen --window, or add the kernel log (dmesg) to the sources.",
            ),
        ],
        footer="holdfast 0.1.0",
    )


if __name__ == "__main__":
    print(write(page(), sys.argv[1]))
