"""Streams that one core serves: eager batches (Batch Dispatch) beside one stream at a time.

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

from holdfast.speech.recognize import SpeechModel, Stream, advance, read_audio
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


def most(
    model: SpeechModel, sounds: list[np.ndarray], batch: int, seconds: float
) -> dict[str, float]:
    """The most streams within the limit, to a tenth."""
    low, high, kept = 1, 0, {}
    while not high or high > 1.1 * low:
        count = 2 * low if not high else (low + high) // 2
        found, size = latencies(model, sounds, count, batch, seconds)
        p98 = float(np.quantile(found, 0.98))
        if p98 <= LIMIT_S:
            low = count
            kept = {"streams": count, "p98_ms": 1000 * p98, "streams_per_batch": size}
            kept["p50_ms"] = 1000 * float(np.median(found))
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
        row = most(model, sounds, batch, given.seconds)
        rows.append({"dispatch": what, **{key: round(value, 1) for key, value in row.items()}})
    ratio = rows[0]["streams"] / rows[1]["streams"]
    result = {
        "title": "Streams of a recognizer",
        "script": "benchmarks/speech_streams.py",
        "input": f"the model of examples/speech, chunks of {1000 * CHUNK_S:.0f} ms, beam 100, one core",
        "comparisons": [],
        "limits": [limited("streams one at a time / in eager batches", ratio, "x", 1 / 3)],
        "figures": {},
        "tables": [{"caption": "Most streams with p98 of at most 200 ms", "rows": rows}],
        "notes": ["Played event by event with the CPU seconds that each batch takes."],
        "machine": where,
        "versions": {"torch": torch.__version__, "numpy": np.__version__},
    }
    RESULT.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
