"""What commands share: durations, JSON, tables."""

from __future__ import annotations

import datetime
import json
import math
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import progress
from holdfast.answer import Answer as Base
from holdfast.command import Common, emit
from holdfast.durations import parse_duration
from holdfast.plain import plain
from holdfast.report.terminal import table


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("60m", 3600),
        ("5m", 300),
        ("7d", 604800),
        ("90s", 90),
        ("1h30m", 5400),
        ("1h 30min", 5400),
        ("10", 10),
        ("0.5h", 1800),
        ("250ms", 0.25),
        (" 2W ", 1209600),
        ("0", 0),
        (42.5, 42.5),
    ],
)
def test_durations(text: str | float, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["", "h", "1h30", "30m1h", "1m1m", "-5m", "1y", "5 m x", "1e3s", "inf"]
)
def test_no_durations(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(text)


@given(st.integers(0, 60), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59))
def test_durations_add_up(days: int, hours: int, minutes: int, seconds: int) -> None:
    text = f"{days}d{hours}h{minutes}m{seconds}s"
    span = datetime.timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    assert parse_duration(text) == span.total_seconds()


class Colour(Enum):
    RED = "red"


def test_plain_values() -> None:
    value = {
        "nan": math.nan,
        "interval": (1.5, math.inf),
        "numpy": np.float64(2.0),
        "count": np.int64(3),
        "flag": np.bool_(True),
        "array": np.array([1.0, np.nan]),
        "when": datetime.datetime(2026, 1, 2, 3, 4, tzinfo=datetime.UTC),
        "long": datetime.timedelta(minutes=2),
        "path": Path("a/b"),
        "enum": Colour.RED,
        "set": {"b", "a"},
        "table": pa.table({"x": [1, None]}),
        7: None,
    }
    assert plain(value) == {
        "nan": None,
        "interval": [1.5, None],
        "numpy": 2.0,
        "count": 3,
        "flag": True,
        "array": [1.0, None],
        "when": "2026-01-02T03:04:00+00:00",
        "long": 120.0,
        "path": "a/b",
        "enum": "red",
        "set": ["a", "b"],
        "table": [{"x": 1}, {"x": None}],
        "7": None,
    }


def test_what_json_cannot_hold_is_a_bug() -> None:
    with pytest.raises(TypeError, match="object"):
        plain({"x": object()})


@dataclass(frozen=True)
class Answer(Base):
    rate: float
    shown: Any = "unused"

    def rendered(self, _: bool) -> Any:
        return self.shown

    def to_dict(self) -> dict[str, Any]:
        return {"rate": self.rate, "ci95": [0.0, math.inf], "node": "nöde\udcff[red]"}


def test_emit(capsys: pytest.CaptureFixture[str]) -> None:
    emit(Answer(2.5), Common(as_json=True))
    printed = capsys.readouterr().out
    assert json.loads(printed)["ci95"] == [0.0, None]
    assert list(json.loads(printed)) == ["rate", "ci95", "node"]
    assert printed.isascii()
    shown = table({"Node": "left", "Rate (1/d)": "right"}, [("[red]n1[/]", 2.5)])
    emit(Answer(2.5, shown), Common())
    printed = capsys.readouterr().out
    assert "[red]n1[/]" in printed  # no markup from data
    assert "Rate (1/d)" in printed
    emit(Answer(2.5, "[bold]one line"), Common())
    assert capsys.readouterr().out == "[bold]one line\n"


def test_remarks_go_to_stderr(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for quiet in (False, True):
        monkeypatch.setattr(progress, "_quiet", quiet)
        progress.remark("written: x.html")
    output = capsys.readouterr()
    assert (output.out, output.err) == ("", "written: x.html\n")
