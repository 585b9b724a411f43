"""What changed since the last look: losses beside what is usual, lemons, loops, silent sources, forecasts.

The last look of each reader is the end of the log that was looked at, in `looks.json` in the store. It
changes when the reader says so.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from holdfast.answer import Finding, Section
from holdfast.errors import InputError
from holdfast.files import write_whole
from holdfast.fleet.analysis import Analysis
from holdfast.fleet.gaps import Doubtful
from holdfast.fleet.live import forecast
from holdfast.fleet.live.following import Amount
from holdfast.fleet.live.rules import history
from holdfast.fleet.log import CHANCE, DAY_S, HOUR_S, AnyLog, FleetLog, bucket, open_log
from holdfast.fleet.moments import iso, minute, since_s
from holdfast.fleet.schema import Row
from holdfast.fleet.wording import brief_interval, how, listed, table
from holdfast.numbers import brief, counted, duration, percent

LOOKS = "looks.json"
LAST = "last"
WORDS = {
    "more": "more than usual",
    "less": "less than usual",
    "usual": "as usual",
    "unknown": "cannot tell whether that is usual",
}
FEWEST_HOURS = 5  # Hours with a sign of a source from which its silence can be told


@dataclass(frozen=True)
class Morning(Doubtful):
    """What changed in a fleet since a moment."""

    since_s: float
    until_s: float
    lost: dict[str, float]  # failures, hours (first order) since then
    usual: dict[str, Amount] | None  # Of so long a time, from the log before; None: it is too short
    unit: str
    new_lemons: list[str]
    gone_lemons: list[str]
    new_loops: list[str]  # Job ids
    silent: list[Row]  # source, last_s
    forecasts: list[Row]  # Of the next day and week, and those that are over

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
        """Of the forecasts that are over, by what was forecast: n, coverage, bias; empty without any."""
        over = [row for row in self.forecasts if row["came"] is not None]
        return {kind: forecast.score(over, kind) for kind in forecast.KINDS} if over else {}

    def to_dict(self) -> dict[str, Any]:
        """The JSON of ``holdfast fleet morning``."""
        told = {name: value for name, value in vars(self).items() if name != "log"}
        times = {"since": iso(self.since_s), "until": iso(self.until_s)}
        return {**times, "verdict": self.verdict, "scores": self.scores, **told}

    def findings(self) -> Sequence[Finding]:
        """The changes, one sentence each."""
        return [Finding(text, "changes") for text in (self._losses(), *self._changes())]

    def _losses(self) -> str:
        if self.until_s == self.since_s:
            return f"Nothing is new: the log ends at the last look, {minute(self.until_s)}."
        failures, hours = counted(int(self.lost["failures"]), "failure"), brief(self.lost["hours"])
        span = duration(self.until_s - self.since_s)
        text = f"{failures} and {hours} {self.unit} lost since {minute(self.since_s)}"
        text += f", {WORDS[self.verdict]}"
        if self.usual is None:
            return f"{text}: the log before is too short for {span}."
        usual, cost = (_brief(self.usual[kind]) for kind in forecast.KINDS)
        return f"{text} (in {span} usually {usual} failures and {cost} {self.unit})."

    def _changes(self) -> Iterator[str]:
        for text, names in (
            ("New lemon nodes: {}.", self.new_lemons),
            ("No longer lemon nodes: {}.", self.gone_lemons),
            ("New crash loops: job {}.", self.new_loops),
            (
                "Silent: {}.",
                [f"{row['source']} since {minute(row['last_s'])}" for row in self.silent],
            ),
        ):
            if names:
                yield text.format(listed(names, 4))
        for row in self.forecasts:
            if row["came"] and row["until_s"] > self.since_s and (wrong := forecast.missed(row)):
                said = ", ".join(
                    f"{k} {_brief(row[k])}, came {brief(row['came'][k])}" for k in wrong
                )
                moment = minute(row["until_s"])
                yield f"The forecast of the {row['span']} to {moment} failed: {said}."

    def sections(self) -> Sequence[Section]:
        """What changed, and what is to come."""
        usual = self.usual or dict.fromkeys(forecast.KINDS)
        spans = [("since the last look", self.lost, usual)]
        spans += [
            (f"next {row['span']}", dict.fromkeys(forecast.KINDS), row)
            for row in self.forecasts
            if row["came"] is None
        ]
        rows = [
            {"what": f"{name}, {span}", "came": lost[kind]}
            | dict(zip(("expected_loss", "low", "high"), amounts[kind] or (None,) * 3, strict=True))
            for span, lost, amounts in spans
            for kind, name in zip(forecast.KINDS, ("failures", self.unit), strict=True)
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


def _brief(amount: Amount) -> str:
    return f"{brief(amount.value)} {brief_interval(amount.low, amount.high)}"


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
    until_s = log.end_s
    at_s = looks(log).get(reader, until_s - DAY_S) if since == LAST else since_s(since, until_s)
    if at_s > until_s:
        raise InputError("the log ends before", code="conflict", found=since, expected=iso(until_s))
    at_s = max(at_s, log.begin_s)
    with suppress(InputError):  # a store that cannot be written keeps no forecasts
        forecast.keep(log)
    lemons = analysis.lemons
    known = set()
    if log.nodes_known and log.ended():
        past = history(log)
        places = past.lemons(at_s, log.assumptions.lemon_fdr)
        known = {past.nodes["node"][place].as_py() for place in places}
    loops = analysis.goodput.crash_loops.to_pylist()
    return Morning(
        at_s,
        until_s,
        forecast.counted_in(log, at_s, until_s),
        forecast.predict(log, at_s, until_s - at_s) if until_s > at_s else None,
        analysis.goodput.unit,
        sorted(set(lemons.lemons) - known),
        sorted(known - set(lemons.detector.lemons_)),  # one that was drained is one still
        [loop["job_id"] for loop in loops if loop["first_s"] > at_s],
        silent(log),
        forecast.forecasts(log),
        log=log,
    )


def silent(log: FleetLog) -> list[Row]:
    """Sources that stopped: source, last_s.

    A source is a check, or the attempts of a cluster. A share p of its hours has a sign; it is silent
    where the hours without one since the last, less one, have a probability (1 - p)^hours below `CHANCE`.
    """
    hour = bucket("at_s", HOUR_S)
    rows = log.rows(
        f"""SELECT trim(source) AS source, count(DISTINCT {hour}) AS hours, max(at_s) AS last_s,
            (max(at_s) - min(at_s)) / {HOUR_S} AS known, ({log.end_s} - max(at_s)) / {HOUR_S} - 1 AS gone
        FROM (
            SELECT 'check ' || "check" AS source, time_s AS at_s FROM {log.table("health")}
            UNION ALL SELECT 'attempts ' || coalesce(cluster, ''), stop_s FROM {log.attempts}
        ) AS signs GROUP BY source HAVING count(DISTINCT {hour}) >= {FEWEST_HOURS} ORDER BY source"""
    )
    return [
        {"source": row["source"], "last_s": row["last_s"]}
        for row in rows
        if row["gone"] > 0
        and (1 - row["hours"] / max(row["known"], row["hours"])) ** row["gone"] < CHANCE
    ]


def looks(log: FleetLog) -> dict[str, float]:
    """The last look of each reader: the end of the log that it saw (epoch seconds)."""
    path = log.store.path / LOOKS
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def seen(found: Morning, reader: str = "") -> None:
    """Remember a look.

    Raises:
        OSError: if the store cannot be written.
    """
    text = json.dumps({**looks(found.log), reader: found.until_s})
    write_whole(found.log.store.path / LOOKS, text.encode())
