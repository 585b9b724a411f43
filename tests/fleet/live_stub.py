"""Servers on the loopback that answer as slurmrestd and Prometheus do, with known futures."""

from __future__ import annotations

import copy
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

RECORDED = Path(__file__).parent / "live" / "recorded"
Answer = tuple[int, Any]  # Status; what is sent as JSON, or bytes as they are
Answering = Callable[[str, dict[str, str], dict[str, str]], Answer]
"""Path, parameters and headers (names in lower case) -> answer."""


def recorded(name: str) -> Any:
    """An answer of slurmrestd 22.05.8, v0.0.38, as it came."""
    return json.loads((RECORDED / f"{name}.json").read_bytes())


def later(answer: Any, version: int) -> Any:
    """An answer of v0.0.38 as v0.0.39 (Slurm 23.02) or one of v0.0.40 to v0.0.44 (23.11 to 25.11) has it.

    From their OpenAPI documents and from answers of 23.11, 24.11 and 25.11 that others published; no
    slurmrestd of them was asked.
    """

    def number(value: int | None) -> Any:
        if version < 40:
            return value
        return {"set": value is not None, "infinite": False, "number": value or 0}

    def code(old: dict[str, Any]) -> dict[str, Any]:
        signal = old.get("signal", {})
        if version < 40:
            return old
        return {
            "status": [old["status"]],
            "return_code": number(old.get("return_code")),
            "signal": {"id": number(signal.get("signal_id")), "name": signal.get("name") or ""},
        }

    def states(old: str) -> Any:
        return old if version < 40 else [old]

    new = copy.deepcopy(answer)
    for job in new.get("jobs", ()):
        job |= {key: code(job[key]) for key in ("exit_code", "derived_exit_code")}
        job["state"]["current"] = states(job["state"]["current"])
        job["time"]["limit"] = number(job["time"]["limit"])
        job["priority"] = number(job["priority"])
        job["array"]["task_id"] = number(job["array"]["task_id"])
        job["array"]["task"] = job["array"]["task"] or ""
        job["het"]["job_offset"] = number(job["het"]["job_offset"])
        for step in job["steps"]:
            step |= {"state": states(step["state"]), "exit_code": code(step["exit_code"])}
            step["time"] |= {key: number(step["time"][key]) for key in ("start", "end")}
            step["nodes"]["list"] = step["nodes"]["list"] or []
    for node in new.get("nodes", ()):
        node["state"] = [node["state"].upper(), *node.pop("state_flags")]
        for key in ("boot_time", "reason_changed_at", "slurmd_start_time", "last_busy"):
            node[key] = number(node[key])
    if "statistics" in new:
        new["statistics"]["req_time"] = number(new["statistics"]["req_time"])
    new["meta"] = {"plugin": {"data_parser": f"data_parser/v0.0.{version}"}}
    return {**new, "errors": [], "warnings": []}


@contextmanager
def serving(answering: Answering) -> Iterator[str]:
    """A server on a free port; yields its URL. An answer that is cut off is `Cut`."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            headers = {name.lower(): value for name, value in self.headers.items()}
            status, body = answering(parts.path, dict(parse_qsl(parts.query)), headers)
            data = body if isinstance(body, (bytes, Cut)) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(bytes(data) if isinstance(data, bytes) else data.sent)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass
class Cut:
    """An answer of which the connection carries a part."""

    sent: bytes
    announced: int

    def __len__(self) -> int:
        return self.announced


@dataclass
class Slurm:
    """A cluster whose jobs and outages lie ahead; `now_s` moves by `step_s` at each question for the time.

    Jobs run on one node each for 100 to 700 s, one after another; every seventh ends with its node.
    """

    begin_s: int
    jobs: int = 60
    now_s: float = 0.0
    step_s: float = 120.0
    nodes: int = 4
    questions: int = 0
    asked: Callable[[int], None] = lambda number: None
    down: list[tuple[int, int, int]] = field(default_factory=list)  # node, since, until

    def __post_init__(self) -> None:
        self.now_s = self.now_s or self.begin_s
        self._job = recorded("jobs")["jobs"][-1]
        self._node = recorded("nodes")["nodes"][0]
        self._times = []
        at = [self.begin_s] * self.nodes
        for number in range(self.jobs):
            node = number % self.nodes
            start = at[node]
            end = start + 100 + 37 * number % 600
            failed = number % 7 == 3
            self._times.append((start, end, failed))
            at[node] = end + 20 + failed * 500
            if failed:
                self.down.append((node, end, end + 400))
        self.end_s = max(end for _, end, _ in self._times)

    def answer(self, path: str, asked: dict[str, str], headers: dict[str, str]) -> Answer:
        """As slurmrestd."""
        self.questions += 1
        self.asked(self.questions)
        if path == "/openapi/v3":
            return 200, recorded("openapi")
        if path == "/slurm/v0.0.38/diag":
            self.now_s += self.step_s
            answer = recorded("diag")
            answer["statistics"]["req_time"] = int(self.now_s)
            return 200, answer
        if path == "/slurm/v0.0.38/nodes":
            return 200, {"errors": [], "nodes": [self._shown(each) for each in range(self.nodes)]}
        if path == "/slurmdb/v0.0.38/jobs":
            since = float(asked["start_time"].removeprefix("uts"))
            until = float(asked.get("end_time", "uts1e12").removeprefix("uts"))
            return 200, {
                "meta": {"openapi/dbv0.0.38": 1},
                "errors": [],
                "jobs": self.within(since, until),
            }
        return 404, b"Unable find requested URL."

    def within(self, since: float = 0.0, until: float = 1e12) -> list[dict[str, Any]]:
        """The jobs of a window as accounting has them now."""
        found = []
        for number, (start, end, failed) in enumerate(self._times):
            over = end <= self.now_s
            if start > min(self.now_s, until) or (over and end < since):
                continue
            job = copy.deepcopy(self._job)
            job |= {"job_id": number + 1, "nodes": f"n{number % self.nodes}", "steps": []}
            job["array"]["job_id"] = 0
            job["time"] |= {
                "submission": start - 5,
                "eligible": start - 5,
                "start": start,
                "end": end if over else 0,
                "elapsed": int(min(end, self.now_s)) - start,
            }
            ended = "NODE_FAIL" if failed else "COMPLETED"
            job["state"] = {"current": ended if over else "RUNNING", "reason": "None"}
            found.append(job)
        return found

    def _shown(self, node: int) -> dict[str, Any]:
        shown = {**self._node, "name": f"n{node}", "state": "idle", "state_flags": [], "reason": ""}
        shown |= {"reason_changed_at": 0, "slurmd_start_time": self.begin_s}
        for which, since, until in self.down:
            if which == node and since <= self.now_s:
                shown["slurmd_start_time"] = until if until <= self.now_s else self.begin_s
                if until > self.now_s:
                    shown |= {"state": "down", "reason": "hc: xid", "reason_changed_at": since}
        return shown

    def outages(self) -> set[tuple[str, int, int | None]]:
        """Node, start and end of what has begun by now."""
        return {
            (f"n{node}", since, until if until <= self.now_s else None)
            for node, since, until in self.down
            if since <= self.now_s
        }


@dataclass
class Prometheus:
    """Series whose samples are known: name of the query -> [(labels, value at a time or None)]."""

    series: dict[str, list[tuple[dict[str, str], Callable[[int], float | None]]]]
    now_s: float
    step_s: float = 0.0
    reverse: bool = False
    windows: list[tuple[str, int, int]] = field(default_factory=list)
    asked: Callable[[int], None] = lambda number: None

    def answer(self, path: str, asked: dict[str, str], headers: dict[str, str]) -> Answer:
        """As Prometheus."""
        if path == "/api/v1/query":
            self.now_s += self.step_s
            return 200, _success("scalar", [self.now_s, str(self.now_s)])
        start, end, step = (int(float(asked[name])) for name in ("start", "end", "step"))
        self.windows.append((asked["query"], start, end))
        self.asked(len(self.windows))
        if (end - start) // step > 11_000:
            text = "exceeded maximum resolution of 11,000 points per timeseries"
            return 400, {"status": "error", "errorType": "bad_data", "error": text}
        result = []
        for labels, value in self.series[asked["query"]]:
            samples = [(t, value(t)) for t in range(start, end + 1, step)]
            values = [[t, f"{each:g}"] for t, each in samples if each is not None]
            if values:
                result.append({"metric": labels, "values": values})
        return 200, _success("matrix", result[::-1] if self.reverse else result)


def _success(kind: str, result: Any) -> dict[str, Any]:
    return {"status": "success", "data": {"resultType": kind, "result": result}}
