"""The standard figures: what each draws of its rows, and that the engine draws it."""

from __future__ import annotations

import datetime
import re
from datetime import UTC

import pyarrow as pa
import pytest

from holdfast.report import Figure, Section, figures, parts

DAY = datetime.datetime(2026, 1, 1, tzinfo=UTC)
HOUR = datetime.timedelta(hours=1)
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c6360000002000001e221bc330000000049454e44ae426082"
)

SAMPLES = {
    "bars": figures.bars(
        [
            {"cause": cause, "order": order, "hours": hours}
            for cause, first, second in (("XID 79", 120.0, 30.0), ("IB link", 40.0, 5.0))
            for order, hours in (("first", first), ("second", second))
        ],
        "cause",
        "hours",
        "GPU-hours lost",
        label_title="Cause",
        part="order",
        meanings={"first": "first", "second": "second"},
    ),
    "timeline": figures.timeline(
        [
            {"attempt": n, "start": DAY + n * HOUR, "end": DAY + (n + 0.8) * HOUR, "state": s}
            for n, s in enumerate(["FAILED", "FAILED", "COMPLETED"])
        ],
        "attempt",
        "start",
        "end",
        "state",
        {"FAILED": "user", "COMPLETED": "good"},
        lane_title="Attempt",
        marks=[{"attempt": 1, "at": DAY + 1.5 * HOUR, "text": "XID 79"}],
    ),
    "intervals": figures.intervals(
        pa.table({"size": ["8", "64"], "rate": [2.0, 5.0], "low": [1.0, 4.0], "high": [3.5, None]}),
        "size",
        "rate",
        "low",
        "high",
        "Failures per 1,000 node-days",
        reference=3.0,
    ),
    "waterfall": figures.waterfall(
        [("machine time", 100.0), ("failures", -12.0), ("waiting", -8.0)],
        "GPU-hours",
        total="productive",
        meanings={"failures": "hardware", "waiting": "system"},
    ),
    "heat_map": figures.heat_map(
        [
            {"day": d, "node": n, "failures": (d * 3 + i) % 5}
            for d in range(4)
            for i, n in enumerate(("n1", "n2"))
        ],
        "day",
        "node",
        "failures",
        "Failures",
    ),
    "lines": figures.lines(
        pa.table(
            {
                "gpus": [8, 64, 512],
                "mttf": [400.0, 50.0, 6.0],
                "low": [300.0, 40.0, 4.0],
                "high": [600.0, 66.0, 9.0],
            }
        ),
        "gpus",
        "mttf",
        "GPUs",
        "MTTF (hours)",
        low="low",
        high="high",
        log_x=True,
        log_y=True,
        points=True,
    ),
}


def values(figure: Figure, layer: int = 0) -> list[dict[str, object]]:
    made = figure.chart()  # type: ignore[operator]
    data = made["layer"][layer].get("data") if "data" not in made else made["data"]
    return data["values"]


@pytest.mark.parametrize("name", SAMPLES)
def test_every_figure_is_drawn(name: str) -> None:
    laid = parts.lay_out(Section("s", "Q?", "A.", [SAMPLES[name]]))
    assert re.search(r"<(path|rect|image)\b", str(laid["figures"][0]["svg"]))


def test_a_waterfall_ends_at_what_is_left() -> None:
    rows = values(SAMPLES["waterfall"])
    assert [(row["from"], row["to"]) for row in rows] == [(0, 100), (100, 88), (88, 80), (0, 80)]


def test_a_figure_that_is_not_shown_costs_nothing() -> None:
    def rows() -> object:
        raise AssertionError("the rows were read")
        yield

    figures.bars(rows(), "a", "b", "B")  # type: ignore[arg-type]


if __name__ == "__main__":  # python tests/report/test_figures.py OUT.html
    import sys

    from holdfast.report import Page, write

    sections = [
        Section(n.replace("_", "-"), f"{n}?", "One sentence.", [f]) for n, f in SAMPLES.items()
    ]
    write(Page("Standard figures", sections=sections), sys.argv[1])
