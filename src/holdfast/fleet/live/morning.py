"""What changed since the last look: losses beside what is usual, lemons, loops, silent sources, forecasts.

The last look of each reader is the end of the log that was looked at, in `looks.json` in the store. It
changes when the reader says so. Where a store has several clusters, each has a morning of its own: its
losses beside what was usual for it, up to the end of what the log knows of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from holdfast.answer import Finding, Section
from holdfast.errors import InputError
from holdfast.files import write_whole
from holdfast.fleet.analysis import Analysis
from holdfast.fleet.gaps import Doubtful
from holdfast.fleet.live import forecast, journal
from holdfast.fleet.live.following import Amount
from holdfast.fleet.live.forecast import KINDS, Forecast
from holdfast.fleet.live.proposals import blind, proposals
from holdfast.fleet.live.rules import history
from holdfast.fleet.log import CHANCE, DAY_S, HOUR_S, AnyLog, FleetLog, bucket, extent, open_log
from holdfast.fleet.moments import iso, minute, since_s
from holdfast.fleet.schema import Row
from holdfast.fleet.wording import brief_interval, how, listed, table
from holdfast.numbers import brief, counted, duration, percent

LOOKS = "looks.json"
LAST = "last"
# In the order in which clusters want a look
WORDS = {
    "more": "more than usual",
    "unknown": "cannot tell whether that is usual",
    "usual": "as usual",
    "less": "less than usual",
}
CHANGES = {
    "new_lemons": "New lemon nodes: {}.",
    "gone_lemons": "No longer lemon nodes: {}.",
    "new_loops": "New crash loops: job {}.",
    "proposed": "Should be pulled: {}.",
}
FEWEST_HOURS = 5  # Hours with a sign of a source from which its silence can be told


@dataclass(frozen=True)
class Morning(Doubtful):
    """What changed in a fleet, or in one of its clusters, since a moment."""

    since_s: float
    until_s: float
    # failures, hours (first order) since then; empty where the log of the cluster ends before
    lost: dict[str, float]
    usual: dict[str, Amount] | None  # Of so long a time, from the log before; None: it is too short
    unit: str
    new_lemons: list[str]
    gone_lemons: list[str]
    new_loops: list[str]  # Job ids
    proposed: list[str]  # Nodes that wait for a decision
    silent: list[Row]  # source, last_s
    forecasts: list[Forecast]  # Of the next day and week, and those that are over
    blind: str  # Why the log cannot tell which nodes are lemons; "" if it can
    clusters: dict[str, Morning] = field(default_factory=dict)  # Where the store has several

    @property
    def title(self) -> str:
        """The heading of the page."""
        return "This morning"

    @property
    def verdict(self) -> str:
        """Whether more or less failed than usual, "usual", or "unknown": the log before is too short."""
        if self.usual is None:
            return "unknown"
        low, high = self.usual["failures"][1:]
        more = self.lost["failures"] > high or self.lost["hours"] > self.usual["hours"].high
        return "more" if more else "less" if self.lost["failures"] < low else "usual"

    @property
    def scores(self) -> dict[str, dict[str, float]]:
        """How the forecasts that are over did."""
        return forecast.scores(self.forecasts)

    def to_dict(self) -> dict[str, Any]:
        """The JSON of ``holdfast fleet morning``."""
        fields = {name: value for name, value in vars(self).items() if name != "log"}
        times = {"since": iso(self.since_s), "until": iso(self.until_s)}
        return {**times, "verdict": self.verdict, "scores": self.scores, **fields}

    def findings(self) -> Sequence[Finding]:
        """The changes, one sentence each."""
        [section] = self.sections()
        return [Finding(text, section.id) for text in (self._losses(), *self._changes())]

    def _losses(self) -> str:
        if self.clusters:
            words = [f"{name} ({WORDS[each.verdict]})" for name, each in self._ranked()]
            return f"Lost since {minute(self.since_s)}: {listed(words)}."
        if self.until_s <= self.since_s:
            return f"Nothing is new: the log ends at {minute(self.until_s)}."
        failures, hours = self.lost.values()
        span = duration(self.until_s - self.since_s)
        text = f"{counted(int(failures), 'failure')} and {brief(hours)} {self.unit} lost since "
        text += f"{minute(self.since_s)}, {WORDS[self.verdict]}"
        if self.usual is None:
            return f"{text}: the log before is too short for {span}."
        usual, cost = map(_brief, self.usual.values())
        return f"{text} (in {span} usually {usual} failures and {cost} {self.unit})."

    def _changes(self) -> Iterator[str]:
        for name, text in CHANGES.items():
            if names := getattr(self, name):
                yield text.format(listed(names, 4))
        if self.silent:
            ends = [f"{row['source']} since {minute(row['last_s'])}" for row in self.silent]
            yield f"Silent: {listed(ends, 4)}."
        for each in self.forecasts:
            if each.missed and each.until_s > self.since_s:
                parts = (
                    f"{kind} {_brief(each.expected[kind])}, came {brief(each.came[kind])}"
                    for kind in each.missed
                )
                when = f"{each.span} to {minute(each.until_s)}"
                yield f"The forecast of the {when} failed: {', '.join(parts)}."

    def _ranked(self) -> list[tuple[str, Morning]]:
        order = [*WORDS]
        return sorted(self.clusters.items(), key=lambda own: order.index(own[1].verdict))

    def sections(self) -> Sequence[Section]:
        """What changed, and what is to come; of several clusters, which needs a look."""
        if self.clusters:
            return [self._by_cluster()]
        spans = [("since the last look", self.lost, self.usual or {})]
        spans += [
            (f"next {each.span}", {}, each.expected) for each in self.forecasts if not each.came
        ]
        rows = [
            {"what": f"{name}, {span}", "came": lost.get(kind), **_ends(amounts.get(kind))}
            for span, lost, amounts in spans
            for kind, name in zip(KINDS, ("failures", self.unit), strict=True)
        ]
        scores = "; ".join(
            f"{percent(each['coverage'])} of {each['n']} forecasts of {kind} were right, and "
            f"{brief(each['bias'])} times the expected came"
            for kind, each in self.scores.items()
        )
        return [
            Section(
                "changes",
                "What changed, and what is to come?",
                f"{scores or 'No forecast is over yet'}.",
                tables=[table(rows, "what came expected_loss", f"Since {minute(self.since_s)}.")],
                how=how("forecast"),
            )
        ]

    def _by_cluster(self) -> Section:
        rows = [
            {
                "cluster": name,
                "came": each.lost.get("hours"),
                **_ends((each.usual or {}).get("hours")),
                "loss": each.verdict,
                "silent": len(each.silent),
                "new_lemons": None if self.blind else len(each.new_lemons),
                "proposed": None if self.blind else len(each.proposed),
            }
            for name, each in self._ranked()
        ]
        clusters = table(
            rows,
            "cluster loss came expected_loss proposed new_lemons silent",
            "One row per cluster, up to the end of its log.",
            came={"label": "Lost", "unit": self.unit},
        )
        question = "Which cluster needs a look?"
        return Section("clusters", question, self._losses(), tables=[clusters], how=how("forecast"))


def _brief(amount: Amount) -> str:
    return f"{brief(amount.value)} {brief_interval(amount.low, amount.high)}"


def _ends(amount: Amount | None) -> Row:
    """An amount in a row of a table; None: not known."""
    return dict(zip(("expected_loss", "low", "high"), amount or (None,) * 3, strict=True))


def morning(log: AnyLog | Analysis, since: str = LAST, *, reader: str = "") -> Morning:
    """What changed since the last look of a reader.

    The forecasts of the next day and week are written into the store, where it can be written.

    Args:
        log: a store, an open log, or what is computed of it.
        since: "last": the reader's last look, or without one a day before the end of the log; or a
            time, or a duration before the end of the log.
        reader: whose look.

    Raises:
        InputError: if `since` is no time, or not before the end of the log.
    """
    analysis = log if isinstance(log, Analysis) else Analysis(open_log(log))
    log = analysis.log
    at_s = log.end_s - DAY_S
    at_s = looks(log).get(reader, at_s) if since == LAST else since_s(since, log.end_s)
    if at_s > log.end_s:
        raise InputError(
            "the log ends before", code="conflict", found=since, expected=iso(log.end_s)
        )
    lemons = analysis.lemons
    before = set()
    if log.nodes_known and log.ended():
        past = history(log)
        places = past.lemons(max(at_s, log.begin_s), log.assumptions.lemon_fdr)
        before = {past.nodes["node"][place].as_py() for place in places}
    loops = analysis.goodput.crash_loops.to_pylist()
    lives = journal.lives(journal.entries(log.store.path))
    names = {
        "new_lemons": sorted(set(lemons.lemons) - before),
        "gone_lemons": sorted(before - set(lemons.detector.lemons_)),  # one drained is one still
        "new_loops": [loop["job_id"] for loop in loops if loop["first_s"] > at_s],
        "proposed": [journal.named(each) for each in proposals(analysis, lives)],
    }
    silences = silent(log)

    def of(cluster: str) -> Morning:
        with suppress(InputError):  # a store that cannot be written keeps no forecasts
            forecast.save(log, cluster)
        prefix = f"{cluster}:" if cluster else ""
        own: dict[str, Any] = {
            kind: [name for name in every if name.startswith(prefix)]
            for kind, every in names.items()
        }
        begin_s, end_s = extent(log, cluster)
        from_s = max(at_s, begin_s)
        return Morning(
            since_s=from_s,
            until_s=end_s,
            lost=forecast.losses_between(log, from_s, end_s, cluster) if end_s >= from_s else {},
            usual=forecast.predict(log, from_s, end_s - from_s, cluster),
            unit=analysis.goodput.unit,
            **own,
            silent=[row for row in silences if row["source"].startswith(prefix)],
            forecasts=forecast.forecasts(log, cluster),
            blind=blind(analysis),
            log=log,
        )

    clusters = log.store.facts["clusters"] if log.several_clusters else ()
    return replace(of(""), clusters={name: of(name) for name in clusters})


def silent(log: FleetLog) -> list[Row]:
    """Sources that stopped: source, last_s.

    A source is a check, or the attempts, of a cluster. A share p of its hours has a sign; it is silent
    where the hours without one since the last, less one, have a probability (1 - p)^hours below `CHANCE`.
    """
    hour = bucket("at_s", HOUR_S)
    own = "cluster || ':' || " if log.several_clusters else ""
    return log.rows(
        f"""SELECT source, last_s FROM (
            SELECT {own}source AS source, count(DISTINCT {hour}) AS hours, max(at_s) AS last_s,
                (max(at_s) - min(at_s)) / {HOUR_S} AS known,
                ({log.end_s} - max(at_s)) / {HOUR_S} - 1 AS gone
            FROM (
                SELECT coalesce(cluster, '') AS cluster, 'check ' || "check" AS source, time_s AS at_s
                FROM {log.table("health")}
                UNION ALL SELECT coalesce(cluster, ''), 'attempts', stop_s FROM {log.attempts}
            ) AS signs GROUP BY cluster, source
        ) AS sources WHERE hours >= {FEWEST_HOURS} AND gone > 0
            AND power(1 - hours / greatest(known, hours), gone) < {CHANCE} ORDER BY source"""
    )


def looks(log: FleetLog) -> dict[str, float]:
    """The last look of each reader: the end of the log that it saw (epoch seconds)."""
    path = log.store.path / LOOKS
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def seen(answer: Morning, reader: str = "") -> None:
    """Remember a look.

    Raises:
        OSError: if the store cannot be written.
    """
    text = json.dumps({**looks(answer.log), reader: answer.until_s})
    write_whole(answer.log.store.path / LOOKS, text.encode())
