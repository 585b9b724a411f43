"""Live sources together: what their file may say, how each does, and where a reader sees it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import live_stub
import pytest
from invoking import invoke
from live_stub import serving
from prometheus_client.parser import text_string_to_metric_families

from holdfast.errors import InputError, StoreError
from holdfast.fleet.console.app import Console
from holdfast.fleet.console.metrics import exposition
from holdfast.fleet.console.pages import View
from holdfast.fleet.console.watching import Watcher
from holdfast.fleet.live import asking
from holdfast.fleet.live import slurm as slurm_module
from holdfast.fleet.live.slurm import SlurmSource
from holdfast.fleet.live.sources import Settings, Sources, SourceState, read_sources
from holdfast.fleet.store import Store

NOW = 1_795_959_000
SLURM = '[[slurm]]\nname = "alpha"\nurl = "http://127.0.0.1:1"\n'


@pytest.mark.parametrize(
    ("text", "code", "place"),
    [
        ("", "invalid-value", "slurm"),
        (SLURM + 'token = "eyJ"\n', "unknown-key", "slurm[0].token"),
        (SLURM + 'every = "soon"\n', "invalid-value", "slurm[0].every"),
        ('[[slurm]]\nname = "a"\n', "missing-key", "slurm[0].url"),
        ('[[prometheus]]\nname = "a"\nurl = "http://x"\n', "missing-key", "prometheus[0].rule"),
        (
            '[[prometheus]]\nname = "a"\nurl = "http://x"\n[[prometheus.rule]]\n'
            'query = "up"\ncheck = "c"\nseverity = "WORST"\n',
            "unknown-name",
            "prometheus[0].rule[0].severity",
        ),
        ("[[slurm]\n", "invalid-syntax", None),
    ],
)
def test_a_file_of_sources_is_checked(
    text: str, code: str, place: str | None, tmp_path: Path
) -> None:
    (tmp_path / "sources.toml").write_text(text)
    with pytest.raises(InputError) as caught:
        read_sources(tmp_path / "sources.toml")
    assert (caught.value.code, caught.value.place) == (code, place)


@pytest.mark.parametrize(
    ("names", "url", "place"),
    [
        (("a", "a"), "http://x", "name"),
        (("../a",), "http://x", "name"),
        ((".a",), "http://x", "name"),
        (("a",), "http://root:eyJ@x", "url"),
    ],
)
def test_sources_that_cannot_be(
    names: tuple[str, ...], url: str, place: str, tmp_path: Path
) -> None:
    settings = Settings(slurm=tuple(SlurmSource(name, url) for name in names))
    for _ in range(2):  # a refusal leaves no lock behind
        with pytest.raises(InputError) as caught:
            Sources(tmp_path / "store", settings)
        assert caught.value.place == place
        assert "eyJ" not in str(caught.value)


def test_one_process_feeds_a_store(tmp_path: Path) -> None:
    settings = Settings(slurm=(SlurmSource("a", "http://x"),))
    first = Sources(tmp_path / "store", settings)
    with pytest.raises(StoreError) as caught:
        Sources(tmp_path / "store", settings)
    assert caught.value.code == "in-use"
    first.close()
    Sources(tmp_path / "store", settings).close()


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> live_stub.Slurm:
    """A cluster all of whose jobs are over, at this machine's time."""
    made = live_stub.Slurm(NOW, jobs=8, step_s=0.0)
    made.now_s = made.end_s + 10.0
    monkeypatch.setattr(slurm_module.time, "time", lambda: made.now_s)
    return made


def fed(sources: Sources, store: Path) -> Watcher:
    watcher = Watcher(store, [sources.folder], live=sources)
    sources.poll()
    watcher.look()
    return watcher


@pytest.fixture
def broken() -> dict[str, Any]:
    """Path -> what it answers instead."""
    return {}


@pytest.fixture
def sources(cluster: live_stub.Slurm, broken: dict[str, Any], tmp_path: Path) -> Iterator[Sources]:
    def answer(path: str, *rest: Any) -> Any:
        return broken.get(path.rpartition("/")[2]) or cluster.answer(path, *rest)

    with serving(answer) as url:
        settings = Settings(slurm=(SlurmSource("alpha", url, cluster="alpha"),))
        made = Sources(tmp_path / "store", settings, lambda: cluster.now_s, first_s=0.0)
        yield made
        made.close()


def test_each_page_and_the_metrics_tell_state_and_age(
    sources: Sources, broken: dict[str, Any], cluster: live_stub.Slurm, tmp_path: Path
) -> None:
    watcher = fed(sources, tmp_path / "store")
    blank = {"title": "", "found": "", "remedy": "", "links": {}}
    nothing = View("message.html.j2", blank)  # whose layout is that of every page
    console = Console(SimpleNamespace(answer=lambda build: nothing), watcher)

    def page() -> str:
        return console.show(lambda snapshot: nothing).body.decode()

    success_s = cluster.now_s
    assert "alpha (slurm): ok, v0.0.38; read " in page()
    assert 'class="doubts"' not in page()
    broken["diag"] = (401, b"")
    cluster.now_s += 7200
    sources.poll()
    doubt = page().partition('class="doubts"')[2].partition("</p>")[0]
    assert "alpha (slurm): refused" in doubt
    text = exposition({}, watcher.status(), watcher.sources()).decode()
    told = {
        sample.name.removeprefix("holdfast_watch_source_"): (sample.labels, sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    labels = {"source": "alpha", "kind": "slurm"}
    assert told["state"] == ({**labels, "state": "refused"}, 1)
    assert told["last_success_timestamp_seconds"] == (labels, success_s)
    # A process that starts anew knows how old the data are.
    (before,) = sources.states()
    sources.close()
    again = Sources(tmp_path / "store", sources.settings, lambda: cluster.now_s)
    (after,) = again.states()
    again.close()
    assert (before.state, after.state) == ("refused", "new")
    assert before.age_s(cluster.now_s) == after.age_s(cluster.now_s) == 7200


def test_a_source_without_a_cluster_of_its_own_gets_that_of_its_table(
    sources: Sources, tmp_path: Path
) -> None:
    fed(sources, tmp_path / "store")
    assert set(Store.open(tmp_path / "store").facts["clusters"]) == {"alpha", "livetest"}


def test_an_answer_of_another_shape_is_a_state(
    sources: Sources, broken: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    broken["diag"] = (200, {"errors": [3], "statistics": {}})
    sources.poll()
    (state,) = sources.states()
    assert (state.state, state.trouble) == ("bad-answer", True)
    assert "AttributeError" in state.text
    assert "Traceback" in capfd.readouterr().err


def test_ages() -> None:
    never = SourceState("a", "slurm", "new", 0.0, None)
    assert (never.trouble, never.age_s(9.0)) == (False, None)
    assert SourceState("a", "slurm", "ok", 0.0, 5.0).age_s(4.0) == 0.0


def test_ingest_asks_each_source_once(
    cluster: live_stub.Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "ATTEMPTS", 1)
    file, store = tmp_path / "sources.toml", tmp_path / "store"
    with serving(cluster.answer) as url:
        file.write_text(f'[[slurm]]\nname = "alpha"\nurl = "{url}"\nsince = "1d"\n')
        run = invoke("ingest", "--live", str(file), "-o", str(store), "--json")
        assert run.exit_code == 0
        first = json.loads(run.stdout)
        again = json.loads(invoke("ingest", "--live", str(file), "-o", str(store), "--json").stdout)
    gone = json.loads(invoke("ingest", "--live", str(file), "-o", str(store), "--json").stdout)
    for told in (first, again, gone):
        assert (told["attempts"], told["rejected"]) == (cluster.jobs, 0)
    assert (first["live_troubles"], again["live_troubles"]) == ([], [])
    (trouble,) = gone["live_troubles"]
    assert "alpha (slurm): away" in trouble
    assert len(again["sources"]) == len(first["sources"])


def test_an_untried_version_is_a_doubt(cluster: live_stub.Slurm, tmp_path: Path) -> None:
    def answer(path: str, *rest: Any) -> Any:
        if path == "/openapi/v3":
            return 200, {"paths": {"/slurmdb/v0.0.44/jobs/": {}}}
        status, body = cluster.answer(path.replace("v0.0.44", "v0.0.38"), *rest)
        return status, live_stub.later(body, 44)

    file, store = tmp_path / "sources.toml", tmp_path / "store"
    with serving(answer) as url:
        file.write_text(f'[[slurm]]\nname = "alpha"\nurl = "{url}"\nsince = "1d"\n')
        run = invoke("ingest", "--live", str(file), "-o", str(store), "--json")
    told = json.loads(run.stdout)
    assert told["attempts"] == cluster.jobs
    (doubt,) = told["live_troubles"]
    assert "alpha (slurm): untried, v0.0.44" in doubt
    untried = SourceState("alpha", "slurm", "untried", 0.0, 5.0)
    assert (untried.trouble, untried.age_s(9.0)) == (True, 4.0)
