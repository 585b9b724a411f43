"""Streams that one core serves, in eager batches (Batch Dispatch) or one at a time.

    python benchmarks/speech_streams.py [--seconds S]

Streams of spoken digits send 100 ms at a time, each with its own offset. The server is played event by
event: a batch takes the CPU seconds that it really takes, and whatever has arrived by its end is the next.
So the load of the machine does not count. Given are the most streams of which 98 % of the chunks have their
answer within 200 ms. Writes `benchmarks/results/speech_streams.json`.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch

from holdfast.speech.recognize import (
    SpeechModel,
    Stream,
    advance,
    read_audio,
)
from measuring import limited, machine

HERE = Path(__file__).resolve().parent
RESULT = HERE / "results" / "speech_streams.json"
EXAMPLES = HERE.parent / "examples" / "speech"
CHUNK_S, LIMIT_S = 0.1, 0.2


def latencies(
    model: SpeechModel, sounds: list[np.ndarray], count: int, batch: int, seconds: float
) -> tuple[np.ndarray, float]:
    """Latency of each chunk in seconds, and streams per batch."""
    decoder, size = model.decoder(), round(CHUNK_S * model.features.rate)
    streams = [Stream(model, decoder) for _ in range(count)]
    offsets = np.random.default_rng(0).uniform(0, CHUNK_S, count)
    arrivals = sorted(
        (offset + step * CHUNK_S, number, step)
        for number, offset in enumerate(offsets)
        for step in range(round(seconds / CHUNK_S))
    )
    now, done, batches, found = 0.0, 0, 0, []
    while done < len(arrivals):
        now = max(now, arrivals[done][0])
        jobs, chosen = [], set()
        for job in arrivals[done : done + batch]:
            if job[0] > now or job[1] in chosen:
                break
            jobs.append(job)
            chosen.add(job[1])
        chunks = [
            np.take(sounds[n % len(sounds)], range(k * size, (k + 1) * size), mode="wrap")
            for _, n, k in jobs
        ]
        begin = time.process_time()
        advance([streams[n] for _, n, _ in jobs], chunks, [False] * len(jobs))
        now += time.process_time() - begin
        found += [now - at for at, _, _ in jobs]
        done, batches = done + len(jobs), batches + 1
        if now - arrivals[done - 1][0] > 5 * LIMIT_S:  # it falls behind for good
            break
    return np.array(found), len(found) / batches


def row(
    model: SpeechModel, sounds: list[np.ndarray], count: int, batch: int, seconds: float
) -> dict[str, float]:
    """What so many streams get."""
    begin = time.process_time()
    found, size = latencies(model, sounds, count, batch, seconds)
    hour = 3600 * (time.process_time() - begin) / (len(found) * CHUNK_S)
    p50, p98 = (1000 * float(np.quantile(found, share)) for share in (0.5, 0.98))
    named = {"p50 ms": p50, "p98 ms": p98, "streams per batch": size, "CPU s per hour": hour}
    return {"streams": count, **{name: round(value, 1) for name, value in named.items()}}


def most(
    model: SpeechModel, sounds: list[np.ndarray], batch: int, seconds: float
) -> dict[str, float]:
    """The most streams within the limit, to a tenth."""
    low, high, kept = 1, 0, {}
    while not high or high > 1.1 * low:
        count = 2 * low if not high else (low + high) // 2
        found = row(model, sounds, count, batch, seconds)
        if found["p98 ms"] <= 1000 * LIMIT_S:
            low, kept = count, found
        else:
            high = count
    return kept


def main() -> None:
    """Measure and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3.0, help="of each stream")
    given = parser.parse_args()
    torch.set_num_threads(1)
    where = machine()
    model = SpeechModel.load(EXAMPLES / "model")
    rate = model.features.rate
    sounds = [
        read_audio(path, rate).samples for path in sorted((EXAMPLES / "strings").glob("*.wav"))
    ]
    latencies(model, sounds, 2, 2, 1.0)  # compile
    rows = []
    for what, batch in (("one at a time", 1), ("eager batches of up to 64", 64)):
        rows.append({"dispatch": what, **most(model, sounds, batch, given.seconds)})
    loads = [row(model, sounds, count, 64, given.seconds) for count in (1, 10, 30, 100)]
    ratio = rows[1]["streams"] / rows[0]["streams"]
    result = {
        "title": "Streams of a recognizer",
        "script": "benchmarks/speech_streams.py",
        "input": f"the model of examples/speech, chunks of {1000 * CHUNK_S:.0f} ms, beam 100, one core",
        "comparisons": [],
        "limits": [
            {**limited("streams in eager batches / one at a time", ratio, "x", 3), "least": True}
        ],
        "figures": {},
        "tables": [
            {"caption": "Most streams with p98 of at most 200 ms", "rows": rows},
            {"caption": "Latency against streams, eager batches", "rows": loads},
        ],
        "notes": ["Played event by event with the CPU seconds that each batch takes."],
        "machine": where,
        "versions": {"torch": torch.__version__, "numpy": np.__version__},
    }
    RESULT.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
