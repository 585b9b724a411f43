"""Cells of the tables that set tools side by side."""

from collections import Counter

import profile_trace


def test_what_a_tool_does_not_know_is_not_zero() -> None:
    row: Counter[str] = Counter()
    row["ms, holdfast"] += 2.0  # type: ignore[assignment]
    row["GFLOP, holdfast"] += 0.0  # type: ignore[assignment]
    row["MB, TraceLens"] += float("nan")  # type: ignore[assignment]
    row["MB, TraceLens"] += 3.0  # type: ignore[assignment]
    assert profile_trace.cells(row, [*row, "ms, TraceLens", "GFLOP, TraceLens"]) == {
        "ms, holdfast": 2.0,
        "GFLOP, holdfast": 0.0,
        "MB, TraceLens": "unknown",
        "ms, TraceLens": "",
        "GFLOP, TraceLens": "unknown",
    }
