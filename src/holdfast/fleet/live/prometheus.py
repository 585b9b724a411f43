"""Prometheus as a live source: rules turn series into health events.

A rule is a query as of an alert: a series that it gives is on fire. An event is written at the first step
at which a series is there, at each step at which its value changes (``on = "change"``, for counters and for
XIDs), and, with result "ok", at the first step at which it is gone. Steps are whole multiples of the rule's
step since 1970, and what burned at the last one is in the cursor: whoever asks again for the same time gets
the same events, which the store has once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from holdfast.config import Duration
from holdfast.fleet.live.asking import MINUTE, Server, Source, Trouble
from holdfast.fleet.live.spool import Spool
from holdfast.fleet.schema import Row

MOST_STEPS = 10_000  # of one question: Prometheus refuses more than 11,000
DAY = Duration(86400)


@dataclass(frozen=True)
class Rule:
    """A table ``[[prometheus.rule]]``: which series are health events."""

    query: str  # PromQL; a series that it gives is on fire
    check: str  # Name of the check
    node: str = "instance"  # Label that names the node; a port is left out
    severity: Literal["HIGH", "LOW", ""] = ""
    result: Literal["fail", "warn"] = "fail"
    on: Literal["start", "change"] = "start"
    xid: bool = False  # Whether the value is an XID
    cluster: str = ""  # Label that names the cluster
    step: Duration = MINUTE


@dataclass(frozen=True)
class PrometheusSource(Source):
    """A table ``[[prometheus]]`` of the sources; a rule's label of the cluster goes before `cluster`."""

    rule: tuple[Rule, ...] = field(kw_only=True)
    since: Duration = DAY  # How far back the first poll asks
    late: Duration = MINUTE  # How late a sample may reach Prometheus


class Prometheus(Server[PrometheusSource]):
    """Polls one Prometheus."""

    def poll(self, spool: Spool) -> str:
        """Bring the spool up to date; arguments and errors as `Slurm.poll`."""
        now_s = float(self._data("/api/v1/query", query="time()")["result"][1])
        troubles = []
        for rule in self.source.rule:
            try:
                self._follow(rule, spool, now_s)
            except Trouble as trouble:  # of one query: the others go on
                if trouble.state != "bad-answer":
                    raise
                troubles.append(trouble)
        self.settle(now_s, troubles)
        return ""

    def _data(self, path: str, **parameters: str | float) -> Any:
        answer = self.ask(path, **parameters)
        if not isinstance(answer, dict) or answer.get("status") != "success":
            said = answer.get("error") if isinstance(answer, dict) else "not a JSON object"
            raise Trouble("bad-answer", f"{path}: {said}")
        return answer["data"]

    def _follow(self, rule: Rule, spool: Spool, now_s: float) -> None:
        """The events of a rule since the last poll."""
        key = f"{rule.check}: {rule.query}"
        step_s = max(1, int(rule.step))
        if key not in spool.cursor:  # noted first: what burns at the beginning begins there, once
            first = int((now_s - self.source.since) // step_s)
            spool.commit(**{key: {"step": first, "burning": []}})
        kept = spool.cursor[key]
        last = int((now_s - self.source.late) // step_s)  # the last step that is whole
        done = kept["step"]
        burning = {tuple(map(tuple, labels)): value for labels, value in kept["burning"]}
        while done < last and not self.halt.is_set():
            until = min(done + MOST_STEPS, last)
            window = {"start": (done + 1) * step_s, "end": until * step_s, "step": step_s}
            data = self._data("/api/v1/query_range", query=rule.query, **window)
            steps = _by_step(data, step_s)
            lines = [
                msgspec.json.encode(self._event(rule, labels, value, step * step_s, over))
                for step in range(done + 1, until + 1)
                for labels, value, over in _changes(burning, steps.get(step, {}), rule.on)
            ]
            spool.append("health", lines, "jsonl")
            done = until
            spool.commit(**{key: {"step": done, "burning": list(burning.items())}})

    def _event(self, rule: Rule, labels: Labels, value: float, time_s: int, over: bool) -> Row:
        named = dict(labels)
        node = named.get(rule.node, "")
        host, _, port = node.rpartition(":")
        shown = ", ".join(f"{k}={v}" for k, v in labels if k not in ("__name__", rule.node))
        event: Row = {
            "time": time_s,
            "node": host if host and port.isdigit() else node,
            "check": rule.check,
            "severity": "" if over else rule.severity,
            "result": "ok" if over else rule.result,
            "message": f"{value:g} {shown}".strip(),
            "cluster": named.get(rule.cluster) or self.source.cluster,
        }
        if rule.xid and not over:
            event["xid"] = int(value)
        return event


Labels = tuple[tuple[str, str], ...]


def _by_step(data: Mapping[str, Any], step_s: int) -> dict[int, dict[Labels, float]]:
    """Step -> series -> value, in whatever order and however often the series come."""
    found: dict[int, dict[Labels, float]] = {}
    for series in data["result"]:
        labels = tuple(sorted((str(k), str(v)) for k, v in series["metric"].items()))
        for time_s, value in series["values"]:
            number = float(value)
            if not math.isnan(number):
                found.setdefault(round(float(time_s) / step_s), {})[labels] = number
    return found


def _changes(
    burning: dict[Labels, float], here: Mapping[Labels, float], on: str
) -> Iterator[tuple[Labels, float, bool]]:
    """What begins (or changes) and what is over at a step; brings `burning` up to it."""
    for labels in sorted(burning.keys() - here.keys()):
        yield labels, burning.pop(labels), True
    for labels, value in sorted(here.items()):
        if labels not in burning or (on == "change" and value != burning[labels]):
            yield labels, value, False
        burning[labels] = value
