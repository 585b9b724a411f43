"""The safety benchmark's client beside Inspect's: the same prompts, the same server, 100 ms per answer.

    python benchmarks/lm_safety.py --peer VENV/bin/python [--items 10000] [--runs 3] [--million]

A server on the loopback answers each request after 100 ms; both clients keep 64 requests under way, and the
ideal is items x 0.1 / 64 seconds. Inspect lives in its own environment (``pip install inspect-ai openai``).
``--million`` also measures the memory of runs of 10,000 and 1,000,000 items on a function that answers at
once. Writes `benchmarks/results/lm_safety.json`, of which `render.py` makes the page.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from measuring import compared, limited, machine

RESULT = Path(__file__).resolve().parent / "results" / "lm_safety.json"
LATENCY_S, CONCURRENCY = 0.1, 64
BODY = json.dumps(
    {
        "id": "1",
        "object": "chat.completion",
        "created": 1,
        "model": "toy",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "I cannot help with that."},
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 12, "completion_tokens": 6, "total_tokens": 18},
    }
).encode()
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
INSPECT = """
import sys
from inspect_ai import Task, eval
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import GenerateConfig
from inspect_ai.solver import generate
url, path, logs = sys.argv[1:]
samples = [Sample(input=line.rstrip()) for line in open(path)]
task = Task(dataset=MemoryDataset(samples), solver=generate())
config = dict(max_tokens=500, temperature=0.01, max_connections=64)
logs = eval(task, model="openai/toy", model_base_url=url,
    model_args={"api_key": "x", "responses_api": False},
    log_dir=logs, display="none", max_samples=64, **config)
assert logs[0].status == "success", logs[0].error
print(len(logs[0].samples))
"""


async def serve() -> None:
    """A bare HTTP server, so that it leaves the processor to the clients."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                lengths = [
                    int(line.partition(b":")[2])
                    for line in head.lower().split(b"\r\n")
                    if line.startswith(b"content-length")
                ]
                await reader.readexactly(lengths[0] if lengths else 0)
                if head.startswith(b"POST"):
                    await asyncio.sleep(LATENCY_S)
                writer.write(ANSWER % (len(BODY), BODY))
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def timed(command: list[str], folder: Path) -> dict[str, float]:
    """Wall and processor seconds and peak memory (MB) of a command and its children."""
    environment = {**os.environ, "OPENAI_API_KEY": "x", "INSPECT_LOG_LEVEL": "error"}
    begin = time.perf_counter()
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    assert process.stderr is not None
    problem = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - begin
    if status:
        raise RuntimeError(problem.decode()[-2000:])
    return {
        "wall_s": wall,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "peak_mb": usage.ru_maxrss / 1024,
    }


def holdfast(spec: Path, system: str, run: str) -> list[str]:
    main = "from holdfast.cli import main; main()"
    words = ["lm", "safety", "run", str(spec), "--system", system, "-o", run, "-q"]
    return [sys.executable, "-c", main, *words]


def specification(folder: Path, items: int) -> Path:
    """A specification of so many items, and the same prompts a line each for the peer."""
    folder.mkdir()
    # Line by line: a process inherits the peak memory of the one that starts it.
    with (folder / "prompts.csv").open("w") as rows, (folder / "prompts.txt").open("w") as lines:
        rows.write("hazard,prompt\n")
        for number in range(items):
            prompt = f"How do people usually take bicycle {number}?"
            rows.write(f"vcr,{prompt}\n")
            lines.write(f"{prompt}\n")
    (folder / "spec.toml").write_text('name = "bench"\nprompts = "prompts.csv"\n')
    (folder / "instant.py").write_text("async def reply(prompt):\n    return 'No.'\n")
    return folder / "spec.toml"


def side_by_side(folder: Path, peer: str, items: int, runs: int) -> dict[str, Any]:
    """Both clients in turn on one server."""
    spec = specification(folder / "spec", items)
    command = [sys.executable, __file__, "--serve"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = f"http://127.0.0.1:{int(server.stdout.readline())}/v1"
        name = f"openai:{url}#toy?concurrency={CONCURRENCY}"
        samples: dict[str, list[dict[str, float]]] = {"holdfast": [], "inspect-ai": []}
        try:
            for turn in range(runs):
                samples["holdfast"].append(timed(holdfast(spec, name, f"run{turn}"), spec.parent))
                logs = str(folder / f"logs{turn}")
                theirs = [peer, "-c", INSPECT, url, str(spec.with_name("prompts.txt")), logs]
                samples["inspect-ai"].append(timed(theirs, spec.parent))
        finally:
            server.kill()
    return {
        who: {key: statistics.median(one[key] for one in each) for key in each[0]}
        for who, each in samples.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", help="Python of an environment with inspect-ai")
    parser.add_argument("--items", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--million", action="store_true")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        asyncio.run(serve())
    environment = machine()
    ideal = given.items * LATENCY_S / CONCURRENCY
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found = side_by_side(folder, given.peer, given.items, given.runs)
        ours, theirs = found["holdfast"], found["inspect-ai"]
        limits = [
            limited("wall time / ideal", ours["wall_s"] / ideal, "", 1.1),
            limited("wall time / ideal, inspect-ai", theirs["wall_s"] / ideal, ""),
            limited("peak memory", ours["peak_mb"], "MB"),
            limited("peak memory, inspect-ai", theirs["peak_mb"], "MB"),
        ]
        if given.million:
            small, large = (
                timed(
                    holdfast(specification(folder / str(n), n), "python:instant:reply", "run"),
                    folder / str(n),
                )
                for n in (10_000, 1_000_000)
            )
            limits += [
                limited(
                    "memory of 1,000,000 items / of 10,000",
                    large["peak_mb"] / small["peak_mb"],
                    "",
                    1.1,
                ),
                limited("peak memory, 1,000,000 items", large["peak_mb"], "MB"),
                limited("processor time, 1,000,000 items", large["cpu_s"], "s"),
            ]
    peer_version = subprocess.run(
        [given.peer, "-c", "from importlib.metadata import version; print(version('inspect-ai'))"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    result = {
        "title": "Safety benchmark runs",
        "script": "benchmarks/lm_safety.py",
        "input": f"{given.items:,} prompts to a server that answers after 100 ms, 64 at a time",
        "comparisons": [
            compared("processor time", ours["cpu_s"], "inspect-ai", theirs["cpu_s"], 2.0),
            compared("wall time", ours["wall_s"], "inspect-ai", theirs["wall_s"]),
        ],
        "limits": limits,
        "figures": {},
        "notes": [
            f"The ideal wall time is {ideal:.1f} s. Starting Python is in both.",
            f"Medians of {given.runs} runs in turn; the server runs on the same cores.",
        ],
        "machine": environment,
        "versions": {"inspect-ai": peer_version},
    }
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    sys.exit(main())
