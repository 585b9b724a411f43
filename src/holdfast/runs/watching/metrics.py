"""The figures of the run that is watched: for Prometheus to scrape, or pushed by OTLP.

Names, units and types follow Prometheus' conventions: seconds, ratios from 0 to 1, counters that end in
``_total``. Every metric carries the label ``run_id``. What is not known yet has no sample. Pushed ones are
``holdfast.run.step`` for ``holdfast_run_step``, without ``_total``.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Literal

from holdfast.errors import InputError, MissingExtraError
from holdfast.runs.watching.alarms import KINDS
from holdfast.runs.watching.lookout import Lookout

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Observation
    from prometheus_client import Metric

LOOPBACK = "127.0.0.1"
OTLP_PATH = "/v1/metrics"
LAST_PUSH_S = 5.0
"""For the last push, when the watching ends."""
_ADDRESS = re.compile(r"(?:(?P<host>[^:\[\]]+|\[[^\]]+\])?:)?(?P<port>\d{1,5})")


_RECENT = "over the last 11 steps, without checkpoints, evaluations and pauses."
_PACE = (
    ("steps_per_second", "steps_per_s", f"Steps a second, {_RECENT}"),
    ("tokens_per_second", "tokens_per_s", f"Tokens a second of all ranks, {_RECENT}"),
    ("samples_per_second", "samples_per_s", f"Samples a second of all ranks, {_RECENT}"),
    ("step_seconds", "step_s", "Median length of the last 11 steps."),
    ("data_wait_ratio", "data_wait_share", f"Share of the time spent waiting for data, {_RECENT}"),
)
"""Metrics of the pace: name, field of `Rates`, text."""


@dataclass(frozen=True)
class Figure:
    """One metric: its samples by the value of its label, or one under the empty text."""

    name: str
    kind: Literal["gauge", "counter"]
    text: str
    samples: Mapping[str, float]
    label: str = ""


def figures(lookout: Lookout, now_s: float) -> list[Figure]:
    """All metrics of a run, at run time `now_s`."""
    run, ledger = lookout.run, lookout.ledger
    heard = [rank for rank in run.living if now_s - rank.seen_at <= lookout.limits.silence_s]
    productive_s, replayed_s = run.ettr_seconds()
    waiting = [now_s - rank.progress_at for rank in run.living]
    rates, last = lookout.rates(), lookout.last
    loss, grad_norm = (None, None) if last is None else (last.loss, last.grad_norm)
    return [
        _gauge("step", "Highest completed step.", run.completed),
        _counter("attempts", "Times that the run was started.", run.attempt + 1),
        _gauge("over", "1: every rank has ended as it meant to.", int(run.over)),
        _gauge("ranks", "Ranks of the present attempt.", run.world_size),
        _gauge("ranks_alive", "Ranks that have not ended and were heard of.", len(heard)),
        _gauge(
            "progress_age_seconds",
            "Seconds since the rank that stands still longest made progress.",
            max(waiting, default=None),
        ),
        *(_gauge(name, text, getattr(rates, of, None)) for name, of, text in _PACE),
        _gauge("loss", "Loss of the last step, median of the ranks.", loss),
        _gauge(
            "grad_norm",
            "Norm of the gradient of the last step, median of the ranks.",
            grad_norm,
        ),
        _counter("wall_seconds", "Seconds since the run began.", max(0.0, now_s)),
        _counter(
            "productive_seconds",
            "Seconds in steps that were done for the first time, mean of the ranks.",
            productive_s,
        ),
        _counter(
            "replayed_seconds", "Seconds in steps that were done before and lost.", replayed_s
        ),
        _gauge("ettr_ratio", "Productive over wall-clock time of the run.", lookout.ettr(now_s)),
        _gauge("recent_ettr_ratio", "The same over the last hour.", lookout.recent_ettr(now_s)),
        Figure(
            "alarms_open",
            "gauge",
            "1: an alarm of this kind is open.",
            {kind: float(kind in ledger.open) for kind in KINDS},
            "kind",
        ),
        Figure(
            "alarms",
            "counter",
            "Alarms that were opened.",
            {kind: float(ledger.counts.get(kind, 0)) for kind in KINDS},
            "kind",
        ),
    ]


@dataclass
class Exporter:
    """Shows the figures of the last look: over HTTP, or to a collector."""

    url: str = ""
    _shown: tuple[str, list[Figure]] = ("", [])
    _grown: dict[tuple[str, str], float] = field(default_factory=dict)

    @classmethod
    @contextlib.contextmanager
    def serving(cls, address: str) -> Iterator[Exporter]:
        """An exporter that answers at ``HOST:PORT`` (or a port of the loopback) while the block runs.

        Raises:
            InputError: the address is none, or taken.
            MissingExtraError: prometheus-client is not installed.
        """
        host, port = parsed(address)
        try:
            from prometheus_client import CollectorRegistry, start_http_server
            from prometheus_client.registry import Collector
        except ImportError as error:
            raise MissingExtraError("prometheus-client", "console") from error
        exporter = cls()

        class Shown(Collector):
            def collect(self) -> Iterable[Metric]:
                return exporter.families()

        registry = CollectorRegistry(auto_describe=False)
        registry.register(Shown())
        try:
            server, thread = start_http_server(port, addr=host.strip("[]"), registry=registry)
        except (OSError, OverflowError) as error:
            raise InputError(
                "metrics cannot be served at this address",
                code="invalid-value",
                found=f"{address} ({error})",
                expected="HOST:PORT that is free; port 0 is any",
            ) from None
        exporter.url = f"http://{host}:{server.server_port}/metrics"
        try:
            yield exporter
        finally:
            server.shutdown()
            server.server_close()
            thread.join()

    @classmethod
    @contextlib.contextmanager
    def pushing(cls, endpoint: str, every_s: float) -> Iterator[Exporter]:
        """An exporter that pushes to an OpenTelemetry collector by OTLP over HTTP while the block runs.

        A collector that does not answer stops nobody: the library logs it and tries again.

        Args:
            endpoint: ``http://host:4318``, or with the whole path; headers come from the environment
                (``OTEL_EXPORTER_OTLP_HEADERS``), as the library documents.
            every_s: seconds between two pushes.

        Raises:
            InputError: the endpoint is no URL.
            MissingExtraError: the OpenTelemetry SDK or its exporter is not installed.
        """
        url = endpoint.rstrip("/")
        found = re.fullmatch(r"https?://[^/\s]+(/\S*)?", url)
        if found is None:
            raise InputError(
                "invalid OTLP endpoint",
                code="invalid-value",
                found=endpoint,
                expected="the URL of a collector, such as http://127.0.0.1:4318",
            )
        try:
            from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
            from opentelemetry.sdk.metrics import MeterProvider
            from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
            from opentelemetry.sdk.resources import Resource
        except ImportError as error:
            raise MissingExtraError("opentelemetry-exporter-otlp-proto-http", "otel") from error
        exporter = cls(url if found[1] else url + OTLP_PATH)
        reader = PeriodicExportingMetricReader(
            OTLPMetricExporter(exporter.url), export_interval_millis=1000 * every_s
        )
        resource = Resource.create({"service.name": "holdfast"})
        provider = MeterProvider([reader], resource)
        meter = provider.get_meter("holdfast.runs")
        for figure in figures(Lookout(), 0.0):
            create = getattr(meter, f"create_observable_{figure.kind}")
            create(
                f"holdfast.run.{figure.name}",
                [partial(exporter.observations, figure.name)],
                unit="s" if figure.name.endswith("seconds") else "1",
                description=figure.text,
            )
        try:
            yield exporter
        finally:
            provider.shutdown(1000 * LAST_PUSH_S)

    def update(self, lookout: Lookout, run_id: str, now_s: float) -> None:
        """Show how the run stands now."""
        self._shown = (run_id, [self._never_less(each) for each in figures(lookout, now_s)])

    def _never_less(self, figure: Figure) -> Figure:
        """A counter as large as it was: a mean over ranks may dip while a rank joins."""
        if figure.kind == "gauge":
            return figure
        for key, value in figure.samples.items():
            self._grown[figure.name, key] = max(value, self._grown.get((figure.name, key), 0.0))
        return replace(
            figure, samples={key: self._grown[figure.name, key] for key in figure.samples}
        )

    def observations(self, name: str, options: CallbackOptions) -> Iterator[Observation]:
        """The samples of one figure, as the OpenTelemetry SDK asks for them."""
        from opentelemetry.metrics import Observation

        run_id, shown = self._shown
        for figure in shown:
            for key, value in figure.samples.items() if figure.name == name else ():
                labels = {figure.label: key} if figure.label else {}
                yield Observation(value, {"run_id": run_id, **labels})

    def families(self) -> list[Metric]:
        """What is shown, as prometheus-client wants it."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        run_id, shown = self._shown
        families: list[Metric] = []
        for figure in shown:
            of = CounterMetricFamily if figure.kind == "counter" else GaugeMetricFamily
            labels = ["run_id", *([figure.label] if figure.label else [])]
            family = of(f"holdfast_run_{figure.name}", figure.text, labels=labels)
            for key, value in figure.samples.items():
                family.add_metric([run_id, *([key] if figure.label else [])], value)
            families.append(family)
        return families


def parsed(address: str) -> tuple[str, int]:
    """Host and port of ``HOST:PORT``, ``:PORT`` or ``PORT``; the host is the loopback unless named.

    Raises:
        InputError: invalid address.
    """
    match = _ADDRESS.fullmatch(address.strip())
    if match is None or int(match["port"]) > 65_535:
        raise InputError(
            "invalid metrics address",
            code="invalid-value",
            found=address,
            expected="HOST:PORT such as 127.0.0.1:9400; port 0 is any that is free",
        )
    return match["host"] or LOOPBACK, int(match["port"])


def _gauge(name: str, text: str, value: float | None) -> Figure:
    return Figure(name, "gauge", text, {} if value is None else {"": float(value)})


def _counter(name: str, text: str, value: float) -> Figure:
    return Figure(name, "counter", text, {"": float(value)})
