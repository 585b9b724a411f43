"""In a terminal every result fits one screen, also that of a large fleet."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console, RenderableType

import holdfast.fleet as fleet
from holdfast.fleet import FleetLog, terminal
from holdfast.fleet.attribution import Attribution

LINES, COLUMNS = 50, 120


def shown(renderable: RenderableType) -> str:
    console = Console(file=io.StringIO(), width=COLUMNS, no_color=True)
    console.print(renderable)
    file: Any = console.file
    return str(file.getvalue())


@pytest.mark.parametrize(
    ("compute", "render"),
    [
        (fleet.report, terminal.reported),
        (fleet.status, terminal.status),
        (lambda log: fleet.mttf(log, min_gpus=0, project=[1024, 16384]), terminal.mttf),
        (fleet.goodput, terminal.goodput),
        (fleet.lemons, terminal.lemons),
        (lambda log: fleet.attribute(log, "93"), terminal.attributed),
    ],
    ids=["report", "status", "mttf", "goodput", "lemons", "attribute"],
)
def test_one_screen(
    testbed_log_told: FleetLog,
    compute: Callable[[FleetLog], Any],
    render: Callable[[Any], RenderableType],
) -> None:
    text = shown(render(compute(testbed_log_told)))
    assert 3 <= len(text.splitlines()) <= LINES
    assert "nan" not in text
    assert "None" not in text


def test_ettr_names_what_it_assumed() -> None:
    text = shown(terminal.ettr(fleet.ettr(2000, 6.5e-3, 3600, init_s=300)))
    assert "0.7202" in text
    assert "assumed: 2,000 nodes" in text
    assert "checkpoint every 1 h" in text


def test_a_job_of_many_attempts_shows_the_last() -> None:
    attempts = [
        {
            "attempt": k,
            "state": "NODE_FAIL",
            "end": "2026-01-05T00:00:00Z",
            "nodes": [f"n{i}" for i in range(512)],
            "failed_nodes": [f"n{i}" for i in range(40)],
            "causes": [],
            "infrastructure": True,
        }
        for k in range(1, 300)
    ]
    text = shown(terminal.attributed(Attribution("7", attempts)))
    assert len(text.splitlines()) <= 2 * LINES
    assert "284 more" in text
    assert "28 more" in text
    assert "299" in text


def test_lists_of_names_are_cut(testbed_log_told: FleetLog) -> None:
    found = fleet.lemons(testbed_log_told)
    found.detector.rule_lemons_ = [f"node{k:04d}" for k in range(500)]
    assert "and 488 more" in shown(terminal.lemons(found))
