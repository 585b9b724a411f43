"""A page with every element and every kind of chart that a room draws; `python sample_page.py OUT.html`."""

from __future__ import annotations

import datetime
import math
import random
import sys
from dataclasses import replace
from datetime import UTC, timedelta

import pyarrow as pa

from holdfast import __version__
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
    figures,
    write,
)

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


def status_mix() -> Figure:
    shares = {
        "by attempts": [60, 24, 9, 5, 1, 1],
        "by GPU time": [42, 18, 11, 7, 14, 8],
    }
    rows = [
        {"base": base, "state": state, "share": share}
        for base, values in shares.items()
        for state, share in zip(STATES, values, strict=True)
    ]
    return figures.bars(rows, "base", "share", "Share (%)", part="state", meanings=STATES)


def rate_by_month() -> Figure:
    chance = random.Random(2)
    rows = [
        {"month": START.replace(month=month), "cause": cause, "rate": chance.uniform(0.3, 2.2)}
        for month in range(1, 12)
        for cause in CAUSES
    ]
    return figures.lines(
        rows,
        "month",
        "rate",
        "Month",
        "Failures per 1,000 node-days",
        series="cause",
        meanings=CAUSES,
        zone="UTC",
        marks=[
            {"at": START.replace(month=4, day=3), "text": "IB link check first seen"},
            {"at": START.replace(month=4, day=9), "text": "driver update"},
        ],
    )


def mttf_by_size() -> Figure:
    rows = [
        {"gpus": gpus, "mttf": 8100 / gpus, "low": 5200 / gpus, "high": 12_700 / gpus}
        for gpus in (8, 64, 512, 4096, 16_384)
    ]
    return figures.lines(
        rows, "gpus", "mttf", "Job size (GPUs)", "Mean time to failure (hours)",
        low="low", high="high", points=True, log_x=True, log_y=True,
    )  # fmt: skip


def goodput_by_size() -> Figure:
    rows = [
        {"size": size, "order": order, "hours": hours / (1 + place)}
        for size, hours in (("1-8", 40), ("9-64", 180), ("65-512", 420), ("513-4096", 560))
        for place, order in enumerate(ORDERS)
    ]
    return figures.bars(
        rows, "size", "hours", "GPU-hours lost",
        label_title="Job size (GPUs)", part="order", meanings=ORDERS,
    )  # fmt: skip


def ettr() -> Figure:
    rows = [
        {"nodes": nodes, "ettr": 100 / (1 + nodes / 900), "kind": kind}
        for kind in ("expected", "measured")
        for nodes in (4, 16, 64, 256, 512)
    ]
    return figures.lines(rows, "nodes", "ettr", "Nodes", "ETTR (%)", series="kind", log_x=True)


def by_rate_and_interval() -> Figure:
    rows = [
        {"interval": f"{interval} min", "rate": str(rate), "ettr": 100 - 2 * interval * rate / 10}
        for interval in (5, 15, 60)
        for rate in (2, 6, 20)
    ]
    return figures.heat_map(rows, "interval", "rate", "ettr", "ETTR (%)")


def lemon_steps() -> Figure:
    chance = random.Random(3)
    signals = ("XID errors", "tickets")
    rows = [
        {"signal": name, "count": count, "share": 1 - chance.random() * 0.5**count}
        for name in signals
        for count in range(12)
    ]
    return figures.lines(
        rows, "count", "share", "Count in 28 days", "Share at or below", series="signal"
    )


def timeline() -> Figure:
    states = ["NODE_FAIL"] * 3 + ["PREEMPTED", "COMPLETED"]
    starts = [START + timedelta(hours=3 * place) for place in range(len(states))]
    rows = [
        {"attempt": str(place), "start": at, "end": at + timedelta(hours=2), "state": state}
        for place, (at, state) in enumerate(zip(starts, states, strict=True), 1)
    ]
    marks = [
        {"attempt": row["attempt"], "at": row["end"], "text": "ib_link"}
        for row in rows
        if row["state"] == "NODE_FAIL"
    ]
    return figures.timeline(
        rows, "attempt", "start", "end", "state", ENDS, lane_title="Attempt", marks=marks
    )


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
                [status_mix()],
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
                [mttf_by_size()],
                how=how,
            ),
            Section(
                "goodput",
                "What did failures cost?",
                "1,204 GPU-hours, 84 % of it in the failed jobs themselves.",
                [goodput_by_size()],
                [Table(pa.table({"size": pa.array([], pa.string())}), empty="No job was lost.")],
                how,
            ),
            Section(
                "ettr",
                "How much of a large run's time is productive?",
                "Runs on 512 nodes spend 75 % of their time productively, as expected.",
                [
                    replace(ettr(), caption="Expected and measured"),
                    replace(by_rate_and_interval(), caption="By failure rate and interval"),
                ],
                how=how,
            ),
            Section(
                "lemons",
                "Which nodes should I pull?",
                "node05 and node16: 26 failures, 61 % of all (q = 0.03).",
                [lemon_steps()],
                [lemons_table()],
                how,
            ),
            Section(
                "timeline",
                "What happened to job 93?",
                "Nine attempts ended by node failures; each had an InfiniBand check.",
                [timeline()],
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
        footer=f"holdfast {__version__}",
    )


if __name__ == "__main__":
    print(write(page(), sys.argv[1]))
