"""Steps and goodput as files for TensorBoard, read back by it, and pushed to an OpenTelemetry collector."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from watched_events import Story

from holdfast.errors import InputError
from holdfast.runs import report
from holdfast.runs.recording.reading import read_run, run_folder
from holdfast.runs.watching.lookout import Lookout
from holdfast.runs.watching.metrics import Exporter
from holdfast.runs.watching.replaying import replayed
from holdfast.runs.watching.watcher import replay, watch

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
RUN = EXAMPLES / "training-run" / "recorded" / "events"


def read_back(folder: Path) -> Any:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    return events


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What TensorBoard reads of a recorded run."""
    pytest.importorskip("tensorboardX")
    board = tmp_path_factory.mktemp("board")
    replay(RUN, tensorboard=board)
    return read_back(board)


def test_tensorboard_reads_every_step(events: Any) -> None:
    run = read_run(run_folder(RUN))
    steps = {row["step"] for row in run.events.to_pylist() if row["event"] == "step"}
    points = events.Scalars("step/seconds")
    assert {point.step for point in points} == steps
    assert all(point.value > 0 for point in points)
    # On the wall clock of the run's own events.
    longest_s = max(each.last_t + at for each, at in zip(run.processes, run.start_s, strict=True))
    assert (
        run.origin_s < points[0].wall_time < points[-1].wall_time <= run.origin_s + longest_s + 60
    )


def test_tensorboard_ends_with_the_goodput_of_the_report(events: Any) -> None:
    parts = report(RUN).to_dict()["parts"]
    for part in ("productive", "replayed"):
        last = events.Scalars(f"run/{part}_seconds")[-1]
        assert last.value == pytest.approx(parts[part], rel=0.02)
    assert not [tag for tag in events.Tags()["scalars"] if "alarms" in tag]


def test_a_folder_that_is_a_file(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    (tmp_path / "board").touch()
    with pytest.raises(InputError) as caught:
        replay(RUN, tensorboard=tmp_path / "board")
    assert caught.value.code == "unwritable"


# --- OpenTelemetry -------------------------------------------------------------------------------


@pytest.fixture
def collector() -> Iterator[tuple[str, list[Any]]]:
    """A collector on the loopback: its URL, and the requests that it received."""
    service = pytest.importorskip("opentelemetry.proto.collector.metrics.v1.metrics_service_pb2")
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    received: list[Any] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            received.append((self.path, service.ExportMetricsServiceRequest.FromString(body)))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Collector) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", received
        server.shutdown()
        thread.join()


def samples(request: Any) -> dict[tuple[str, str], float]:
    """(metric, kind of alarm) -> value."""
    found = {}
    (resource,) = request.resource_metrics
    assert {"service.name"} <= {each.key for each in resource.resource.attributes}
    for metric in resource.scope_metrics[0].metrics:
        data = metric.sum if metric.HasField("sum") else metric.gauge
        assert metric.HasField("sum") == (metric.name in COUNTERS)
        for point in data.data_points:
            labels = {each.key: each.value.string_value for each in point.attributes}
            assert labels.pop("run_id") == "my-run"
            found[metric.name, labels.get("kind", "")] = point.as_double
    return found


COUNTERS = {
    f"holdfast.run.{name}"
    for name in ("attempts", "wall_seconds", "productive_seconds", "replayed_seconds", "alarms")
}


def test_a_collector_receives_the_figures(collector: tuple[str, list[Any]]) -> None:
    url, received = collector
    story = Story(ranks=4).begin()
    for step in range(1, 101):
        story.steps(step, step, seconds=1.5, tokens=100, loss=2.5)
    lookout = Lookout()
    for _ in replayed(lookout, story.events, 5.0):
        pass
    with Exporter.pushing(url, 3600.0) as exporter:  # the last push comes at the end
        exporter.update(lookout, "my-run", story.now)
    path, request = received[-1]
    assert path == "/v1/metrics"
    found = samples(request)
    assert found["holdfast.run.step", ""] == 100
    assert found["holdfast.run.attempts", ""] == 1
    assert found["holdfast.run.loss", ""] == 2.5
    assert found["holdfast.run.productive_seconds", ""] == pytest.approx(150.0)
    assert found["holdfast.run.alarms_open", "hang"] == 0


def test_the_watcher_pushes_and_writes(collector: tuple[str, list[Any]], tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    url, received = collector
    board = tmp_path / "board"
    done = watch(
        RUN,
        once=True,
        otlp=f"{url}/v1/metrics",
        tensorboard=board,
        poll_s=3600.0,
        state=tmp_path / "watch.json",
    )
    names = {metric.name for metric in received[-1][1].resource_metrics[0].scope_metrics[0].metrics}
    assert "holdfast.run.ettr_ratio" in names
    assert max(point.step for point in read_back(board).Scalars("step/seconds")) == done.step


@pytest.mark.parametrize("endpoint", ["127.0.0.1:4318", "ftp://host", "http://", ""])
def test_an_endpoint_that_is_no_url(endpoint: str) -> None:
    with pytest.raises(InputError) as caught, Exporter.pushing(endpoint, 1.0):
        pass
    assert caught.value.code == "invalid-value"
