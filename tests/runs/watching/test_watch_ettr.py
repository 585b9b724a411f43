"""The watcher's ETTR is that of the report."""

from __future__ import annotations

from pathlib import Path

import pytest
from watched_events import Files, Story

from holdfast.runs.goodput.accounting import breakdown
from holdfast.runs.watching.lookout import Lookout
from holdfast.runs.watching.replaying import replayed


def test_the_ettr_so_far_is_the_reports(tmp_path: Path) -> None:
    story = Story(ranks=3).begin(ready=False).alive(20).say("ready").steps(1, 40, seconds=2.0)
    story.within("checkpoint", 15.0).steps(41, 55).alive(60)
    story.again(after=45, ready=False).alive(10).say("ready").steps(41, 90)
    story.within("evaluation", 25.0)
    story.again(after=10).steps(41, 95).say("end", how="clean")
    Files(tmp_path).write(story)
    lookout = Lookout()
    for _ in replayed(lookout, story.events, 5.0):
        pass
    report = breakdown(tmp_path)
    productive_s, replayed_s = lookout.run.ettr_seconds()
    assert productive_s == pytest.approx(report.parts["productive"])
    assert replayed_s == pytest.approx(report.parts["replayed"])
    assert lookout.ettr(story.now) == pytest.approx(report.ettr)
