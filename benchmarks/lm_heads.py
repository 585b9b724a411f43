"""Fewer attention heads: decode attention beside the best SDPA, storage, perplexity.

    python benchmarks/lm_heads.py [--models OUT]

One new token attends to 2,048, 8,192 and 32,768 stored ones with 32 heads of size 128, of which 4, 8 or 16
compute scores. The bound is 2 / (1 + k / H): keys of k heads and values of all are read. With the models of
`lm_small_models.py`, also the storage and the perplexity that calibration gives on text that they did not
learn. Writes `benchmarks/results/lm_heads.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention

from holdfast.lm.generate.heads import clustered_attention
from measuring import compared, limited, machine

RESULT = Path(__file__).resolve().parent / "results" / "lm_heads.json"
HEADS, SIZE = 32, 128
LENGTHS = (2048, 8192, 32768)
COUNTS = (4, 8, 16)
AIM = 0.85
"""Share of the bound that is aimed at."""


def interleaved(work: dict[str, Callable[[], Any]], samples: int) -> dict[str, float]:
    """Median CPU seconds of each contender, in turn."""
    times: dict[str, list[float]] = {name: [] for name in work}
    for sample in range(samples + 1):
        for name, run in work.items():
            begin = time.thread_time()
            run()
            if sample:  # the first one warms up
                times[name].append(time.thread_time() - begin)
    return {name: statistics.median(each) for name, each in times.items()}


@torch.inference_mode()
def attention(length: int, samples: int) -> dict[str, float]:
    """Median seconds per contender: SDPA in both of its layouts, plain products, ours per k."""
    torch.manual_seed(0)
    q = torch.randn(1, HEADS, 1, SIZE)
    k, v = (torch.randn(1, HEADS, length, SIZE) for _ in range(2))
    k_by_token, v_by_token = (part.transpose(1, 2).contiguous().transpose(1, 2) for part in (k, v))
    scale = SIZE**-0.5
    work: dict[str, Callable[[], Any]] = {
        "SDPA": lambda: scaled_dot_product_attention(q, k, v),
        "SDPA, heads side by side": lambda: scaled_dot_product_attention(q, k_by_token, v_by_token),
        "products and softmax": lambda: torch.softmax(q @ k.transpose(2, 3) * scale, -1) @ v,
    }
    for count in COUNTS:
        partner = torch.arange(HEADS)[None] % count
        few = (q[:, :count].contiguous(), k[:, :count].contiguous())
        expected = scaled_dot_product_attention(q[:, partner[0]], k[:, partner[0]], v)
        torch.testing.assert_close(clustered_attention(*few, v, partner, scale), expected)
        work[f"k = {count}"] = lambda few=few, partner=partner: clustered_attention(
            *few, v, partner, scale
        )
    return interleaved(work, samples)


def calibrations(models: Path) -> list[dict[str, Any]]:
    """Storage and perplexity of every trained model, per level and mode."""
    from holdfast.lm.generate import Arena, Generator, calibrate_heads, read_heads

    rows = []
    for folder in sorted(path.parent for path in models.glob("*-*/training.json")):
        for level in ("kv", "query") if folder.name.startswith("gqa") else ("kv",):
            path = folder / f"chai-{level}.json"
            answer = calibrate_heads(folder, models / "held-out", path, level=level).to_dict()
            perplexity, decoder = answer["perplexity"], Generator(folder).decoder
            everything = Arena(decoder, 1, 512).nbytes()
            rows += [
                {
                    "model": folder.name,
                    "level": level,
                    "mode": mode,
                    "kv_bytes_saved_share": round(answer["kv_bytes_saved_share"][mode], 4),
                    "kv_bytes_saved_in_storage": round(
                        1 - read_heads(path, mode).cache(decoder, 1, 512).nbytes() / everything, 4
                    ),
                    "perplexity_all_heads": round(perplexity["all"], 3),
                    "perplexity_change": round(perplexity[mode] / perplexity["all"] - 1, 5),
                }
                for mode in ("auto", "static", "online")
            ]
    return rows


def main() -> None:
    """Measure, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--models", type=Path, help="folder of lm_small_models.py")
    parser.add_argument("--samples", type=int, default=9)
    parser.add_argument("--result", type=Path, default=RESULT)
    options = parser.parse_args()
    torch.set_num_threads(1)  # whose CPU time other work does not extend
    host = machine()
    comparisons, figures = [], {}
    for length in LENGTHS:
        times = attention(length, options.samples)
        figures[f"{length} tokens, ms"] = {name: round(1e3 * t, 3) for name, t in times.items()}
        peers = {name: t for name, t in times.items() if not name.startswith("k =")}
        best = min(peers, key=lambda name: peers[name])
        for count in COUNTS:
            bound = 2 / (1 + count / HEADS)
            row = compared(
                f"{length:,} tokens, {count} of {HEADS} heads (bound {bound:.2f})",
                times[f"k = {count}"],
                best,
                peers[best],
                round(AIM * bound, 2),
            )
            comparisons.append(row)
            print(f"{row['what']}: {row['ratio']} (aim {row['target']})", flush=True)
    rows = calibrations(options.models) if options.models else []
    for row in rows:
        print(row, flush=True)
    results = {
        "title": "Clustered attention heads",
        "script": "benchmarks/lm_heads.py",
        "input": f"one new token, random float32 keys and values, {HEADS} heads of size {SIZE}, batch 1",
        "comparisons": comparisons,
        "limits": [
            limited(
                f"{what}, {row['model']}, level {row['level']}, mode {row['mode']}",
                100 * row[key],
                "%",
                1.0 if key == "perplexity_change" and row["mode"] == "auto" else None,
            )
            for row in rows
            for what, key in (
                ("perplexity change", "perplexity_change"),
                ("key/value storage saved", "kv_bytes_saved_in_storage"),
            )
        ],
        "figures": {"attention": figures, "calibrations": rows},
        "machine": host,
        "versions": {name: version(name) for name in ("holdfast", "torch")},
        "notes": [
            f"Median CPU time of {options.samples} samples in turn, one thread. The peer "
            "is the fastest of SDPA with keys by head, by token, and of two products with a softmax. "
            f"Load after: {os.getloadavg()[0]:.1f}.",
            "The aim is 85 % of the bound 2 / (1 + k / H). Projections are not part of it.",
        ],
    }
    options.result.write_text(json.dumps(results, indent=2) + "\n")
    print(f"wrote {options.result}")


if __name__ == "__main__":
    main()
