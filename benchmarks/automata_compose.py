"""Composition of transducers: holdfast beside OpenFST, rustfst and kaldifst, in one process.

    python benchmarks/automata_compose.py [--install] [--speech DIR] [--tokenizers DIR] [--quick]

Composes the pairs of `automata_inputs` and `automata_speech`, one core against one core, and compares
states and arcs with OpenFST's: a difference ends the benchmark. Batches are in `automata_batches`. The
inputs of speech come from Debian's package pocketsphinx-en-us: `--install` installs it, or with
`--speech DIR` unpacks it into that folder.
Peak memory is measured in fresh processes (`automata_memory`).
Writes `benchmarks/results/automata_compose.json`, of which `render.py` makes the page.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import sphinx_model
from automata_inputs import Case, random_cases, spelling_cases, token_cases
from automata_peers import Peer, carried, installed, ours
from automata_results import MOST_SECONDS, REPEATS, TARGETS, Measured, Timing, print_case, results
from automata_speech import speech_cases
from measuring import CORES, CommandFailed, machine, run

HERE = Path(__file__).resolve().parent
RESULT = HERE / "results" / "automata_compose.json"
TOKENIZERS = HERE.parents[1] / "shared" / "data" / "tokenizers"

QUICK_ARCS = 200_000
BYTES_PER_STATE, BYTES_PER_ARC = 140, 20  # that OpenFST takes for a result, as measured


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and write the results."""
    options = _options(arguments)
    if options.install:
        sphinx_model.install(options.speech)
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(allowed)[:CORES])
    try:
        _run(options)
    finally:
        os.sched_setaffinity(0, allowed)


def _run(options: argparse.Namespace) -> None:
    host = machine()
    bandwidth = copy_bandwidth(1 << 24 if options.quick else 1 << 28)
    peers = installed()
    if not peers or peers[0].name != "OpenFST":
        raise SystemExit("OpenFST is the measure of the results: pip install 'holdfast[bench]'")
    cases, left_out = all_cases(options.speech, options.tokenizers)
    measured = []
    for case in cases:
        if options.only not in case.name:
            continue
        if options.quick and case.arcs > QUICK_ARCS:
            continue
        predicted = (case.states * BYTES_PER_STATE + case.arcs * BYTES_PER_ARC) / 1e9
        if predicted > options.most_gb:
            left_out.append(
                f"Left out: {case.name}, about {case.arcs / 1e6:,.0f} M arcs: OpenFST would take "
                f"{predicted:.0f} GB of memory, and --most-gb allows {options.most_gb:g}."
            )
            continue
        few = [peer for peer in peers if peer.name == "OpenFST" or case.arcs <= options.peer_arcs]
        measured.append(_measure(case, [ours(), *few], options))
        print_case(measured[-1], bandwidth)
    if not options.quick:
        _measure_memory(measured, options)
    told = results(measured, left_out, bandwidth, host, peers)
    options.result.parent.mkdir(exist_ok=True)
    options.result.write_text(json.dumps(told, indent=2) + "\n")
    print(*left_out, f"wrote {options.result}", sep="\n")


def all_cases(speech: Path | None, tokenizers: Path) -> tuple[list[Case], list[str]]:
    """All cases whose input is there, and what is said about the others."""
    cases, missing = random_cases(), []
    model = sphinx_model.folder(speech)
    if model:
        cases += speech_cases(model)
    else:
        missing.append(
            f"Left out: speech; Debian's {sphinx_model.PACKAGE} is not there. --install installs it, "
            "--install --speech DIR unpacks it into a folder."
        )
    if (tokenizers / "gpt2_encoder.json").exists():
        cases += token_cases(tokenizers)
    else:
        missing.append(
            f"Left out: tokens; {tokenizers.name}/gpt2_encoder.json is not there; --tokenizers tells where."
        )
    return cases + spelling_cases(), missing


def copy_bandwidth(size: int) -> float:
    """Bytes that one core copies in a second between arrays of `size` bytes."""
    source, target = np.ones(size, np.uint8), np.ones(size, np.uint8)
    best = np.inf
    for _ in range(REPEATS):
        begin = time.perf_counter()
        np.copyto(target, source)
        best = min(best, time.perf_counter() - begin)
    return size / best


# --- Measuring -----------------------------------------------------------------------------------


def _measure(case: Case, contenders: list[Peer], options: argparse.Namespace) -> Measured:
    a, b = case.make()
    one = contenders[0].compose(a, b)
    size, result_bytes = (one.num_states, one.num_arcs), one.nbytes
    del one
    with tempfile.TemporaryDirectory(prefix="automata-", dir=options.work) as folder:
        held = [(a, b)] + [carried((a, b), peer, Path(folder)) for peer in contenders[1:]]
    timings = {contender.name: Timing() for contender in contenders}
    for turn in range(1 if options.quick else REPEATS):
        for contender, pair in zip(contenders, held, strict=True):
            timing = timings[contender.name]
            if sum(timing.seconds) > MOST_SECONDS:
                continue
            composed = _time(contender, pair, timing)
            if turn == 0 and (found := contender.size(composed)) != size:
                raise SystemExit(f"{case.name}: {contender.name} finds {found}, holdfast {size}")
            del composed
    inputs = (a.num_states, a.num_arcs, b.num_states, b.num_arcs)
    return Measured(case, inputs, *size, result_bytes, timings)


def _time(contender: Peer, pair: tuple[Any, Any], timing: Timing) -> Any:
    x, y = map(contender.fresh, pair)
    begin = time.perf_counter()
    contender.sort(x, y)
    # Peers sort in place: only their first run has something to sort.
    if timing.sort_s == np.inf or contender.distribution == "holdfast":
        timing.sort_s = min(timing.sort_s, time.perf_counter() - begin)
    begin, cpu = time.perf_counter(), time.process_time()
    composed = contender.compose(x, y)
    timing.seconds.append(time.perf_counter() - begin)
    timing.cpu_s.append(time.process_time() - cpu)
    return composed


def _measure_memory(measured: list[Measured], options: argparse.Namespace) -> None:
    """Peak memory of the largest case of each group that has a target."""
    for group in TARGETS:
        of_group = [one for one in measured if one.case.group == group]
        for one in sorted(of_group, key=lambda one: one.arcs)[-1:]:
            for contender in [ours(), installed()[0]]:
                command: list[str | Path] = [sys.executable, HERE / "automata_memory.py"]
                command += [one.case.name, contender.name, "--tokenizers", options.tokenizers]
                command += ["--speech", options.speech] if options.speech else []
                try:
                    one.peak[contender.name] = json.loads(run(command).output)
                except CommandFailed as failure:
                    print(f"memory of {contender.name} on {one.case.name}: {failure}")


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--install", action="store_true", help="get the package with speech by apt")
    parser.add_argument("--speech", type=Path, help="folder into which it is or will be unpacked")
    parser.add_argument(
        "--tokenizers", type=Path, default=TOKENIZERS, help="gpt2_encoder.json's folder"
    )
    parser.add_argument("--most-gb", type=float, default=8, help="memory of one result in OpenFST")
    parser.add_argument(
        "--peer-arcs", type=float, default=1.2e7, help="above, OpenFST is the only peer"
    )
    parser.add_argument("--only", default="", help="cases with this in their name")
    parser.add_argument("--quick", action="store_true", help="small cases, one run, no memory")
    parser.add_argument("--work", type=Path, help="where machines are written for the peers")
    parser.add_argument("--result", type=Path, default=RESULT)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
