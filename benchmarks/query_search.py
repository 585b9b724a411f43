"""Search of URLs in a language model, beside a plain re-implementation of the published search.

    python benchmarks/query_search.py [--model examples/canaries/model]

`query_search_steps.py` runs each search in a process of its own: ours, and `query_plain`, which gives the
model one whole prefix at a time. Both look for the same number of different texts. Where both found a
text, ours must have at least its probability (it adds up all encodings). Writes
`benchmarks/results/query_search.json`, of which `render.py` makes the page.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from measuring import CommandFailed, Run, compared, limited, machine, run, summary

HERE = Path(__file__).resolve().parent
RESULT = HERE / "results" / "query_search.json"
MODEL = HERE.parent / "examples" / "canaries" / "model"
STEPS = HERE / "query_search_steps.py"
BATCHES = (1, 4, 16, 64, 256)
BATCH = 64
PEER = "one prefix at a time"
CASES = {
    "": ("URLs", []),
    "canonical_": ("URLs, canonical encodings", ["--encodings", "canonical"]),
    "whole_": ("whole sentences", ["--whole"]),
    "whole_canonical_": (
        "whole sentences, canonical encodings",
        ["--whole", "--encodings", "canonical"],
    ),
}
"""Of names of figures: what is searched, and how the steps are told."""

Measured = dict[str, list[tuple[Run, dict[str, Any]]]]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and write the results."""
    options = _options(arguments)
    host = machine()
    measured = _measure(options)
    text = json.dumps(_results(options, measured, host), indent=2) + "\n"
    options.result.parent.mkdir(exist_ok=True)
    options.result.write_text(text)
    print(f"wrote {options.result}")


def _measure(options: argparse.Namespace) -> Measured:
    measured: Measured = defaultdict(list)
    for _ in range(options.repeats):
        for name, (_, told) in CASES.items():
            ours = _one(options, "ours", BATCH, told)
            theirs = _one(options, "plain", 1, told)
            _check(ours[1]["texts"], theirs[1]["texts"])
            measured[f"{name}ours"].append(ours)
            measured[f"{name}plain"].append(theirs)
    for batch in BATCHES:
        measured[f"batches_of_{batch}"].append(_one(options, "ours", batch, []))
    return measured


def _one(
    options: argparse.Namespace, who: str, batch: int, more: list[str]
) -> tuple[Run, dict[str, Any]]:
    command = [sys.executable, STEPS, options.model, who, "--batch", str(batch)]
    command += ["--results", str(options.results), *more]
    measured = run(command)
    told = json.loads(measured.output)
    if len(told["texts"]) != options.results:
        raise CommandFailed(f"{who} found {len(told['texts'])} texts, not {options.results}")
    return measured, told


def _check(ours: dict[str, float], theirs: dict[str, float]) -> None:
    both = ours.keys() & theirs.keys()
    if len(both) < 0.8 * len(ours):
        raise CommandFailed(f"only {len(both)} of {len(ours)} texts are in both lists")
    for text in both:
        if theirs[text] > ours[text] + 1e-3:
            raise CommandFailed(f"{text}: {theirs[text]} from the plain search, ours {ours[text]}")


# --- Results -------------------------------------------------------------------------------------


def _results(options: argparse.Namespace, measured: Measured, host: Any) -> dict[str, Any]:
    def median(name: str, what: str) -> float:
        return statistics.median(told[what] for _, told in measured[name])

    comparisons, limits = [], []
    for name, (what, _) in CASES.items():
        ours, theirs = f"{name}ours", f"{name}plain"
        comparisons.append(
            compared(
                f"first {options.results} different texts: {what}",
                median(ours, "seconds"),
                PEER,
                median(theirs, "seconds"),
                20,
            )
        )
        fewer = median(theirs, "evaluations") / median(ours, "evaluations")
        limits.append(limited(f"times fewer tokens: {what}", fewer, "", 15) | {"least": True})
        each = median(ours, "evaluations") / median(ours, "nodes")
        limits.append(limited(f"tokens computed for each prefix: {what}", each, "", 1))
    for batch in BATCHES:
        told = measured[f"batches_of_{batch}"][0][1]
        rate = told["nodes"] / told["seconds"]
        limits.append(limited(f"prefixes a second in batches of {batch}", round(rate), ""))
    counts = {
        f"{name}_counts": {
            what: median(name, what)
            for what in ("evaluations", "nodes", "passes", "listed", "seconds")
        }
        for name in measured
    }
    plain, whole = counts["plain_counts"], counts["whole_plain_counts"]
    return {
        "title": "Search in a language model",
        "script": "benchmarks/query_search.py",
        "input": (
            "the model of `examples/canaries`; URLs as in ReLM's evaluation, prefix `https://www\\.`, "
            "top-k 40; and the corpus's sentences around them, to their end; a run ends with "
            f"{options.results} different texts"
        ),
        "comparisons": comparisons,
        "limits": limits,
        "figures": counts
        | {name: summary([one for one, _ in each]) for name, each in measured.items()},
        "machine": host,
        "versions": {
            name: version(name) for name in ("holdfast", "torch", "transformers", "numpy")
        },
        "notes": [
            "The peer is a plain re-implementation, in `benchmarks/query_plain.py`, of the search that "
            "ReLM (arXiv 2211.15458) describes: one prefix at a time, whole, nothing kept; the same "
            "automaton and the same decoding. Each encoding is a result of its own: "
            f"{plain['listed']:.0f} results for {options.results} texts.",
            "Ours gives a text out when it is proven to be the next most probable, all its encodings "
            f"together, in batches of {BATCH}.",
            "The prefixes that the peer asks for are "
            f"{plain['evaluations'] / plain['nodes']:.1f} tokens long on average ("
            f"{whole['evaluations'] / whole['nodes']:.1f} for whole sentences): for the same prefixes no "
            "cache can spare more than that. Where all encodings count, the proof needs prefixes that the "
            "peer never asks for.",
            "Seconds of the comparison are those of the search, without imports and reading the model; the "
            "steps below are whole processes. torch uses one thread: the model is too small for more.",
        ],
    }


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", type=Path, default=MODEL)
    parser.add_argument("--results", type=int, default=100, help="different texts to find")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--result", type=Path, default=RESULT)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
