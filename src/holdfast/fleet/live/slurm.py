"""slurmrestd as a live source: jobs of the accounting in overlapping windows, nodes and their outages.

Tried live: v0.0.36 to v0.0.38 of Slurm 22.05. Later ones have other shapes of the same answers, which the
reader of `sacct --json` knows from files; as live sources they are untried.

Three traps of slurmrestd, each seen with 22.05: with an expired token the accounting answers 200, an error
in the body and no jobs; the controller then answers 500; and neither says so in words. No answer with an
error in its body is taken for an empty one.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from threading import Event
from typing import Any

from holdfast.config import Duration
from holdfast.fleet.formats.sacct_json import number_of, rows_of
from holdfast.fleet.live.asking import Server, Source, Trouble
from holdfast.fleet.live.spool import Spool
from holdfast.fleet.schema import Row

TRIED = range(36, 39)
KNOWN = range(36, 45)
"""The n of the versions v0.0.n whose answers can be read."""

TRUE_START = 38  # Before, "start" is when a job became eligible, and a drain is not told before 37
WINDOW_S = 6 * 3600.0  # of accounting that one question asks for
REFRESH_S = 900  # A running job that changes by its elapsed time only is written this often
NOTHING_FOUND = 9003
DENIED = (1007, 2002, 5005)  # of authentication: slurmdbd's protocol, the account, the controller's
_EVENT_COLUMNS = b"Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User"
_JOBS = "/slurmdb/v0.0.{}/jobs"
_VERSIONS = re.compile(r"(?:^v?|/slurmdb/v)0\.0\.(\d+)(?:$|/jobs/?(?: |$))")  # of paths, or alone
HOUR = Duration(3600)
WEEK = Duration(7 * 86400)


@dataclass(frozen=True)
class SlurmSource(Source):
    """A table ``[[slurm]]`` of the sources."""

    user: str = "root"  # To whom the token was given
    version: str = ""  # "v0.0.38"; "": the latest that the server offers and is known
    since: Duration = WEEK  # How far back the first poll asks
    overlap: Duration = HOUR  # How late the accounting may write what has happened


class Slurm(Server[SlurmSource]):
    """Polls one slurmrestd."""

    def __init__(self, source: SlurmSource, halt: Event, first_s: float = 1.0) -> None:
        super().__init__(source, halt, first_s)
        self._version: int | None = None
        self._seen: dict[tuple[Any, ...], int] = {}  # Job -> what was last written of it

    def headers(self, token: str) -> Mapping[str, str]:
        """The headers of a question."""
        names = {"X-SLURM-USER-NAME": self.source.user, "X-SLURM-USER-TOKEN": token}
        return names if token else {"X-SLURM-USER-NAME": self.source.user}

    def poll(self, spool: Spool) -> str:
        """Bring the spool up to date.

        Returns:
            what a reader should know of the source; "" for nothing.

        Raises:
            Trouble: if it did not answer as it should. What came before is in the spool.
        """
        number = self._version or self._negotiated()
        now_s = self._now(number)
        self._jobs(spool, number, now_s)
        nodes = self._asked(f"/slurm/v0.0.{number}/nodes", "nodes")
        self._nodes(spool, [node for node in nodes if isinstance(node, dict)], now_s)
        self._version = number
        untried = Trouble("untried", f"v0.0.{number} was never tried live")
        self.settle(now_s, [] if number in TRIED else [untried])
        return f"v0.0.{number}{', which tells no drain' * (number < TRIED[1])}"

    def _negotiated(self) -> int:
        stated = self.source.version
        text = stated or " ".join(self.ask("/openapi/v3").get("paths", ()))
        offered = {int(number) for number in _VERSIONS.findall(text)}
        if known := offered.intersection(KNOWN):
            return max(known)
        names = stated or ", ".join(f"v0.0.{number}" for number in sorted(offered)) or "no version"
        expected = f"v0.0.{KNOWN[0]} to v0.0.{KNOWN[-1]}"
        raise Trouble("unknown-version", f"{names}; known are {expected}")

    def _asked(self, path: str, key: str, **parameters: str) -> Any:
        """One part of an answer that has no error in its body."""
        answer = self.ask(path, **parameters)
        if not isinstance(answer, dict):
            raise Trouble("bad-answer", f"{path}: not a JSON object")
        for error in answer.get("errors") or []:
            number = error.get("error_number", error.get("errno"))
            if number == NOTHING_FOUND:
                continue
            text = f"{path}: {error.get('error') or error.get('description')} ({number})"
            raise Trouble("refused" if number in DENIED else "away", text)
        if key not in answer:
            raise Trouble("bad-answer", f"{path}: no {key!r} in the answer")
        return answer[key]

    def _now(self, number: int) -> float:
        """The controller's clock: its times are compared with no other."""
        try:
            statistics = self._asked(f"/slurm/v0.0.{number}/diag", "statistics")
        except Trouble:
            # The accounting tells an expired token, the controller calls that "unspecified".
            self._asked(_JOBS.format(number), "jobs", start_time=f"uts{int(time.time())}")
            raise
        now_s = number_of(statistics.get("req_time"))
        if now_s is None:
            raise Trouble("bad-answer", "no time (req_time) in the controller's statistics")
        return float(now_s)

    # --- Jobs ------------------------------------------------------------------------------------

    def _jobs(self, spool: Spool, number: int, now_s: float) -> None:
        since_s = spool.cursor.get("until_s", now_s - self.source.since) - self.source.overlap
        while True:
            until_s = min(since_s + WINDOW_S + self.source.overlap, now_s)
            window = {"start_time": f"uts{int(since_s)}"}
            if until_s < now_s:
                window["end_time"] = f"uts{int(until_s)}"
            jobs = self._asked(_JOBS.format(number), "jobs", **window)
            if number < TRUE_START:
                jobs = [_restarted(job, now_s) for job in jobs]
            answer = list(self._changed(jobs))
            if answer:
                head = {"plugin": {"type": f"openapi/dbv0.0.{number}"}}
                line = json.dumps({"meta": head, "jobs": answer}).encode()
                spool.append("jobs", [line], "json")
            spool.commit(until_s=until_s)
            if until_s >= now_s or self.halt.is_set():
                return
            since_s = until_s - self.source.overlap

    def _changed(self, jobs: list[Any]) -> Iterator[Any]:
        """The jobs that say something new; only those of one window are remembered."""
        before, self._seen = self._seen, {}
        for job in jobs:
            try:
                first, *steps = rows_of(job)
            except (TypeError, ValueError, AttributeError, KeyError, OverflowError):
                yield job  # a reject of the ingest, which says what is wrong
                continue
            place = (first["JobIDRaw"], first["Submit"], first["Start"], first["DBIndex"])
            elapsed_s = first.pop("ElapsedRaw") or 0
            period = elapsed_s // REFRESH_S if first["End"] is None else elapsed_s
            says = hash(repr((first, steps, period)))
            self._seen[place] = says
            if before.get(place) != says:
                yield job

    # --- Nodes -----------------------------------------------------------------------------------

    def _nodes(self, spool: Spool, nodes: list[Row], now_s: float) -> None:
        """The inventory as it is now, and the outages that began or ended.

        In the cursor, ``down`` has for each node since when, state, reason and whether that is in the
        spool: an outage is written when a second poll finds it, or when it is over.
        """
        spool.replace("nodes.txt", "".join(map(_inventory_line, nodes)).encode())
        before = {name: tuple(each) for name, each in spool.cursor.get("down", {}).items()}
        polled_s = spool.cursor.get("nodes_s", 0.0)
        lines = []
        down = {}
        for node in nodes:
            name = str(node.get("name"))
            state, reason = _outage(node), _one_line(node.get("reason"))
            said_s = number_of(node.get("reason_changed_at")) or 0
            old = before.get(name)
            if state and old and old[1:3] == (state, reason) and said_s <= old[0]:
                if not old[3]:
                    lines.append(self._event(name, old, None))
                down[name] = (*old[:3], True)
                continue
            since_s = int(said_s if 0 < said_s <= now_s else now_s)
            if old and old[1:3] == (state, reason) and not old[3]:
                old = None  # The controller corrects the time of a node that went silent
            if old:  # Slurm does not tell when an outage ended, unless slurmd started then
                started_s = number_of(node.get("slurmd_start_time")) or 0
                end_s = started_s if polled_s < started_s <= now_s else now_s
                lines.append(self._event(name, old, int(max(since_s if state else end_s, old[0]))))
            if state:
                down[name] = (since_s, state, reason, False)
        spool.append("outages", lines, "psv", _EVENT_COLUMNS)
        spool.commit(down=down, nodes_s=now_s)

    def _event(self, name: str, outage: tuple[Any, ...], end_s: int | None) -> bytes:
        since_s, state, reason, _ = outage
        end = "Unknown" if end_s is None else end_s
        return f"{self.source.cluster}|{name}|{since_s}|{end}|{state}|{reason}|".encode()


def _restarted(job: Any, now_s: float) -> Any:
    """A job of an old version with the start that its steps or its elapsed time tell."""
    try:
        times = job["time"]
        elapsed_s = times["elapsed"] + times.get("suspended", 0)
        began = [step["time"]["start"] for step in job.get("steps") or []]
        start_s = (times["end"] or int(now_s)) - elapsed_s if elapsed_s else 0
        start_s = min([at for at in began if at], default=start_s) if not times["end"] else start_s
    except (TypeError, KeyError, AttributeError):
        return job  # a reject of the ingest, which says what is wrong
    return {**job, "time": {**times, "start": start_s}}


def _one_line(text: object) -> str:
    return " ".join(str(text or "").split())


def _states(node: Row) -> list[str]:
    """The base state, then flags: since v0.0.39 they are in one list."""
    state = node.get("state")
    states = state if isinstance(state, list) else [state, *(node.get("state_flags") or [])]
    return [str(each).upper() for each in states]


def _outage(node: Row) -> str:
    """The state as `sacctmgr show event` prints it; "" for a node that is in service."""
    states = {*_states(node)}
    if states & {"DOWN", "ERROR"}:
        return "DOWN*" if states & {"NOT_RESPONDING", "NO_RESPOND"} else "DOWN"
    return next((name for name in ("FAIL", "DRAIN") if name in states), "")


def _inventory_line(node: Row) -> str:
    """A node as `scontrol show node -o` prints it."""
    pairs = {
        "NodeName": node.get("name"),
        "CPUTot": number_of(node.get("cpus")),
        "Gres": node.get("gres") or "(null)",
        "State": "+".join(_states(node)),
    }
    if reason := _one_line(node.get("reason")):
        pairs["Reason"] = reason
    return " ".join(f"{key}={value}" for key, value in pairs.items()) + "\n"
