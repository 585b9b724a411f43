"""What Prometheus reads of a run, and in which form."""

from __future__ import annotations

import builtins
import math
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families
from watched_events import Story

from holdfast.errors import InputError, MissingExtraError
from holdfast.runs.watching.alarms import KINDS
from holdfast.runs.watching.lookout import Lookout
from holdfast.runs.watching.metrics import Exporter, parsed
from holdfast.runs.watching.replaying import replayed


def looked_at(story: Story) -> Lookout:
    lookout = Lookout()
    for _ in replayed(lookout, story.events, 5.0):
        pass
    return lookout


def scraped(exporter: Exporter) -> dict[str, Metric]:
    with urllib.request.urlopen(exporter.url) as answer:
        assert answer.status == 200
        text = answer.read().decode()
    found = list(text_string_to_metric_families(text))
    assert len({family.name for family in found}) == len(found)
    return {family.name: family for family in found}


@pytest.fixture
def exporter() -> Iterator[Exporter]:
    with Exporter.serving("127.0.0.1:0") as serving:
        yield serving


def value(families: dict[str, Metric], name: str, **labels: str) -> float:
    samples = families[f"holdfast_run_{name}"].samples
    (found,) = [s.value for s in samples if labels.items() <= s.labels.items()]
    return float(found)


def test_names_types_and_help(exporter: Exporter) -> None:
    story = Story().begin().steps(1, 100, tokens=50, samples=2, loss=2.0, grad_norm=1.0)
    exporter.update(looked_at(story), "my-run", story.now)
    families = scraped(exporter)
    assert len(families) >= 20
    for family in families.values():
        assert family.name.startswith("holdfast_run_")
        assert family.documentation.endswith(".")
        assert family.type in ("counter", "gauge")
        assert family.samples, family.name
        for sample in family.samples:
            assert sample.name.endswith("_total") == (family.type == "counter")
            assert sample.labels["run_id"] == "my-run"
            assert set(sample.labels) <= {"run_id", "kind"}
            assert not math.isnan(sample.value)


def test_the_figures_of_a_run(exporter: Exporter) -> None:
    story = Story(ranks=4).begin()
    for step in range(1, 101):
        story.now += 0.5
        story.say("data_wait", seconds=0.5)
        story.steps(step, step, seconds=1.5, tokens=100, loss=2.5)
    story.within("checkpoint", 20.0)
    exporter.update(looked_at(story), "r", story.now + 3)
    families = scraped(exporter)
    assert value(families, "step") == 100
    assert value(families, "attempts") == 1
    assert value(families, "ranks") == value(families, "ranks_alive") == 4
    assert value(families, "steps_per_second") == pytest.approx(0.5)
    assert value(families, "tokens_per_second") == pytest.approx(200)
    assert value(families, "step_seconds") == pytest.approx(1.5)
    assert value(families, "data_wait_ratio") == pytest.approx(0.25)
    assert value(families, "loss") == 2.5
    assert value(families, "progress_age_seconds") == pytest.approx(3)
    assert value(families, "wall_seconds") == pytest.approx(223)
    assert value(families, "productive_seconds") == pytest.approx(150)
    assert value(families, "ettr_ratio") == pytest.approx(150 / 223)
    assert value(families, "recent_ettr_ratio") == pytest.approx(150 / 223)
    assert "holdfast_run_grad_norm" in families
    assert families["holdfast_run_grad_norm"].samples == []


def test_heartbeats_are_no_progress(exporter: Exporter) -> None:
    story = Story().begin().steps(1, 20).alive(30)
    exporter.update(looked_at(story), "r", story.now + 2)
    assert value(scraped(exporter), "progress_age_seconds") == pytest.approx(32)


def test_replayed_steps_are_not_productive(exporter: Exporter) -> None:
    story = Story(ranks=2).begin().steps(1, 100).again(after=50).steps(81, 120)
    lookout = looked_at(story)
    assert lookout.run.ettr_seconds() == pytest.approx((120, 20))
    exporter.update(lookout, "r", story.now)
    families = scraped(exporter)
    assert value(families, "replayed_seconds") == pytest.approx(20)
    assert value(families, "attempts") == 2


def test_the_rolling_ettr_forgets(exporter: Exporter) -> None:
    story = Story(ranks=1).begin().steps(1, 1800)
    story.alive(1800).steps(1801, 1830)
    lookout = looked_at(story)
    assert lookout.recent_ettr(story.now) == pytest.approx(0.5, abs=0.01)
    assert lookout.recent_ettr(story.now + 3600) == 0


def test_alarms_by_kind(exporter: Exporter) -> None:
    story = Story().begin().steps(1, 60).alive(300).steps(61, 90).alive(300)
    exporter.update(looked_at(story), "r", story.now)
    families = scraped(exporter)
    assert value(families, "alarms_open", kind="hang") == 1
    assert value(families, "alarms", kind="hang") == 2
    assert value(families, "alarms_open", kind="silence") == 0
    assert len(families["holdfast_run_alarms_open"].samples) == len(KINDS)


def test_before_anything_is_known(exporter: Exporter) -> None:
    assert scraped(exporter) == {}
    exporter.update(Lookout(), "r", 0.0)
    families = scraped(exporter)
    assert families["holdfast_run_step"].samples == []
    assert value(families, "attempts") == 0


def test_a_run_id_cannot_break_the_format(exporter: Exporter) -> None:
    exporter.update(looked_at(Story().begin()), 'a"b\\c\nd', 1.0)
    families = scraped(exporter)
    assert families["holdfast_run_attempts"].samples[0].labels["run_id"] == 'a"b\\c\nd'


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [
        ("9400", "127.0.0.1", 9400),
        (":0", "127.0.0.1", 0),
        ("0.0.0.0:80", "0.0.0.0", 80),
        ("[::1]:9400", "[::1]", 9400),
        ("node-1.example:1", "node-1.example", 1),
    ],
)
def test_addresses(address: str, host: str, port: int) -> None:
    assert parsed(address) == (host, port)


@pytest.mark.parametrize("address", ["", "host", "host:", "host:x", "::1:80", "1:70000", "a:b:1"])
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(InputError, match="invalid metrics address"):
        parsed(address)


def test_an_address_that_is_taken(exporter: Exporter) -> None:
    address = exporter.url.removeprefix("http://").removesuffix("/metrics")
    with (
        pytest.raises(InputError, match="cannot be served") as caught,
        Exporter.serving(address),
    ):
        pass
    assert address in (caught.value.found or "")


def test_without_prometheus_client_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def absent(name: str, *rest: Any) -> Any:
        if name.startswith("prometheus_client"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(MissingExtraError, match=r"holdfast\[console\]"), Exporter.serving("0"):
        pass
