"""The charts of a run report hold what the breakdown says: sums, shares and places worked out again."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
from goodput.building import ORIGIN_S, Script, recorded

from holdfast.report import Figure
from holdfast.runs.goodput import figures
from holdfast.runs.goodput.accounting import Breakdown, account
from holdfast.runs.goodput.figures import PARTS_IN_WORDS
from holdfast.runs.goodput.ledger import PARTS, Ledger, keep_books


@pytest.fixture(scope="module")
def ledger() -> Ledger:
    """Two ranks that drift apart; killed in a checkpoint, then done."""
    scripts = []
    for rank in range(2):
        late = 0.3 * rank
        first = Script(rank=rank, world_size=2, lived_s=1 + late, ready=2, submitted_s=-4)
        first.span("data_wait", 2, 2.7).steps(1, 20, 2.7, 0.5)
        first.at("begin", 12.7, what="checkpoint").span("checkpoint", 12.7, 13.2, step=20)
        first.steps(21, 10, 13.2, 0.5).at("begin", 18.2, what="checkpoint")
        first.at("published", 14.0, step=20).at("alive", 19.4)
        again = Script(rank=rank, world_size=2, attempt=1, start_s=30 + late, ready=1, end="clean")
        again.resumed_from = 20
        again.steps(21, 30, 1, 0.5).span("evaluation", 16, 17.5)
        scripts += [first, again]
    return keep_books(recorded(scripts))


@pytest.fixture(scope="module")
def made(ledger: Ledger) -> Breakdown:
    return account(ledger, now_s=ORIGIN_S + 1e6)


def layers(figure: Figure | None) -> list[list[dict[str, Any]]]:
    """The rows of each layer that has its own, else those of the whole."""
    assert figure is not None
    chart: Any = figure.chart() if callable(figure.chart) else figure.chart
    spec = chart if isinstance(chart, dict) else chart.to_dict(context={"pre_transform": False})
    parts = [part for part in spec.get("layer", [spec]) if "data" in part] or [spec]
    named = spec.get("datasets", {})
    return [
        named[part["data"]["name"]] if "name" in part["data"] else part["data"]["values"]
        for part in parts
    ]


def test_bins_add_up_to_the_parts_of_every_attempt(ledger: Ledger) -> None:
    assert ledger.binned.sum(axis=2) == pytest.approx(ledger.by_attempt, abs=1e-9)


def test_waterfall_goes_down_from_the_wall_time_to_the_productive(made: Breakdown) -> None:
    (rows,) = layers(figures.waterfall(made))
    assert [rows[0]["step"], rows[-1]["step"]] == ["wall time", "productive steps"]
    assert rows[0]["amount"] == pytest.approx(sum(made.gpu_hours.values()) * 60)
    for before, row in pairwise(rows[:-1]):
        assert row["from"] == pytest.approx(before["to"])
    assert rows[-1]["amount"] == pytest.approx(made.gpu_hours["productive"] * 60)


def test_the_time_line_shows_the_largest_part_of_each_moment(
    ledger: Ledger, made: Breakdown
) -> None:
    rows = layers(figures.time_line(ledger, made))[0]
    first, second = (f"{each.attempt} {each.ending}" for each in made.attempts)
    for attempt, lane in zip(made.attempts, (first, second), strict=True):
        shown = [row for row in rows if row["attempt"] == lane]
        drawn = math.fsum((row["to"] - row["from"]) / 1000 for row in shown)
        assert drawn == pytest.approx(math.fsum(attempt.parts.values()), abs=3 * ledger.bin_s)
        # Neighbours differ: what is one part is one bar.
        assert all(
            one["part"] != two["part"] or one["to"] < two["from"] for one, two in pairwise(shown)
        )
    evaluated = [row for row in rows if row["part"] == PARTS_IN_WORDS["evaluation"].name]
    assert [row["attempt"] for row in evaluated] == [second]
    length = (evaluated[0]["to"] - evaluated[0]["from"]) / 1000
    assert length == pytest.approx(1.5, abs=3 * ledger.bin_s)


def test_marks_of_the_time_line(ledger: Ledger, made: Breakdown) -> None:
    _, complete = layers(figures.time_line(ledger, made))
    assert [mark["text"] for mark in complete] == ["checkpoint of step 20 complete"]
    assert complete[0]["at"] / 1000 == pytest.approx(ORIGIN_S + 15, abs=0.002)


def test_many_attempts_share_a_lane() -> None:
    run = recorded([Script(attempt=k, start_s=3.0 * k).steps(1, 2, 0, 1.0) for k in range(60)])
    books = keep_books(run)
    drawn = figures.time_line(books, account(books, now_s=ORIGIN_S + 1e6))
    rows = layers(drawn)[0]
    assert {row["attempt"] for row in rows} == {"all"}


def test_colours_of_the_parts_differ() -> None:
    assert len({words.colour for words in PARTS_IN_WORDS.values()}) == len(PARTS)
