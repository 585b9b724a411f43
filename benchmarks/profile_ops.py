"""Counting the FLOPs of published models: holdfast, torch's FlopCounterMode, calflops and fvcore.

    python benchmarks/profile_ops.py [--peers PYTHON] [--runs N]

Each counter counts one forward pass of the Stable Diffusion UNet (512 px) and of LLaMA-7B (1,024 tokens) in
fresh processes, on tensors without data. PYTHON is an interpreter that has torch, diffusers, transformers,
calflops and fvcore; without it their rows are left out. Then a text encoder and an image decoder run on the
CPU: how much of the time is attributed, what measuring adds, whether an operator beats its bound. Writes
`benchmarks/results/profile_ops.json` after every measurement, of which `render.py` makes the page.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from measuring import compared, limited, machine, run

RESULT = Path(__file__).resolve().parent / "results" / "profile_ops.json"
MODELS = {
    "stable-diffusion-unet": ("Stable Diffusion UNet, 512 px", 803_273_441_280),
    "llama-7b": ("LLaMA-7B, 1,024 tokens", 13_806_440_808_448),
}
COUNTERS = {
    "holdfast": "holdfast",
    "flop_counter": "torch FlopCounterMode",
    "calflops": "calflops",
    "fvcore": "fvcore",
}
TIMED: dict[str, dict[str, Any]] = {
    "clip-text": {},
    "stable-diffusion-vae": {"image_size": 64},
}
SECONDS, MEMORY = 5.0, 2048.0
"""Limits for one model: seconds, and MB of the whole process."""

SETUP = """
import contextlib, io, json, sys, time, warnings
warnings.simplefilter("ignore")
import torch
from holdfast.profile.ops.suite import workload
work = workload({model!r})
work.module.eval()
start, cpu = time.perf_counter(), time.process_time()
with contextlib.redirect_stdout(io.StringIO()), torch.no_grad():
    flops = count(work)
print(json.dumps([flops, time.process_time() - cpu, time.perf_counter() - start]))
"""
COUNT = {
    "holdfast": """
def count(work):
    from holdfast.profile.ops.profiling import profile
    return profile(work, machine="h100-sxm").flops
""",
    "flop_counter": """
def count(work):
    from torch.utils.flop_counter import FlopCounterMode
    with FlopCounterMode(display=False) as counter:
        work.module(*work.args, **work.kwargs)
    return counter.get_total_flops()
""",
    "calflops": """
def count(work):
    from calflops import calculate_flops
    found = calculate_flops(work.module, args=list(work.args), kwargs=work.kwargs, print_results=False,
                            output_as_string=False)
    return int(found[0])
""",
    "fvcore": """
def count(work):
    from fvcore.nn import FlopCountAnalysis
    class Tuple(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = work.module
        def forward(self, *args):
            return self.inner(*args, return_dict=False, **work.kwargs)[0]
    counter = FlopCountAnalysis(Tuple(), work.args).unsupported_ops_warnings(False)
    return 2 * int(counter.uncalled_modules_warnings(False).total())  # it counts multiply-adds
""",
}


def counted(counter: str, model: str, python: str, runs: int) -> dict[str, Any]:
    """What a counter counts, CPU seconds, and the memory of its process; or why it does not."""
    program = COUNT[counter] + SETUP.format(model=model)
    found = []
    for _ in range(runs):
        try:
            done = run([python, "-c", program])
        except RuntimeError as error:
            return {"error": str(error).strip().splitlines()[-1][:200]}
        flops, cpu_s, wall_s = json.loads(done.output.strip().splitlines()[-1])
        found.append({"flops": flops, "cpu_s": cpu_s, "wall_s": wall_s, "peak_mb": done.peak_mb})
    return {
        "flops": found[0]["flops"],
        "cpu_s": statistics.median(each["cpu_s"] for each in found),
        "fastest_wall_s": min(each["wall_s"] for each in found),
        "peak_mb": max(each["peak_mb"] for each in found),
    }


def timed(name: str, settings: dict[str, Any], runs: int) -> dict[str, Any]:
    """A real run: attribution, overhead, and operators that beat their bound."""
    from holdfast.profile.ops.profiling import profile
    from holdfast.profile.ops.suite import workload

    work = workload(name, {"dtype": "float32", **settings})
    result = profile(work, device="cpu", runs=runs)
    assert result.timing is not None
    rows = [row for row in result.roofline().ops if row["seconds"]]
    faster = [row for row in rows if row["seconds"] < row["bound_s"]]
    return {
        **result.timing.to_dict(),
        "operators": len(rows),
        "below_bound": len(faster),
        "fastest_of_bound": min(row["seconds"] / (row["bound_s"] or 1e-12) for row in rows),
        "below_bound_ops": sorted({row["op"] for row in faster}),
        "bound_share": result.roofline().bound_s / (result.seconds or 1.0),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--peers", default="")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--result", type=Path, default=RESULT)
    options = parser.parse_args(arguments)
    host = machine()
    made: dict[str, Any] = {model: {} for model in MODELS}
    run_s: dict[str, Any] = {}
    for model in MODELS:
        for counter in COUNTERS:
            own = counter in ("holdfast", "flop_counter")
            if own or options.peers:
                python = sys.executable if own else options.peers
                made[model][counter] = counted(counter, model, python, options.runs)
                _write(_results(made, run_s, host, options), options.result)
    for name, settings in TIMED.items():
        run_s[name] = timed(name, settings, options.runs)
        _write(_results(made, run_s, host, options), options.result)
    print(f"wrote {options.result}")


def _write(result: dict[str, Any], path: Path) -> None:
    path.write_text(json.dumps(result, indent=2) + "\n")


def _results(
    made: dict[str, Any], run_s: dict[str, Any], host: dict[str, Any], options: argparse.Namespace
) -> dict[str, Any]:
    comparisons, limits, notes = [], [], []
    for model, (label, exact) in MODELS.items():
        if "holdfast" not in made[model]:
            continue
        ours = made[model]["holdfast"]
        limits += [
            limited(f"{label}: CPU time", ours["cpu_s"], "s", SECONDS),
            limited(f"{label}: memory of the process", ours["peak_mb"], "MB", MEMORY),
            limited(f"{label}: error of the count", abs(ours["flops"] - exact), "FLOP", 0.0),
        ]
        for counter, name in COUNTERS.items():
            found = made[model].get(counter)
            if found is None:
                continue
            if "error" in found:
                notes.append(f"{label}: {name} fails: {found['error']}")
                continue
            notes.append(
                f"{label}: {name} counts {found['flops'] / 1e9:,.2f} GFLOP, "
                f"{found['flops'] / exact - 1:+.1%}; {found['peak_mb']:.0f} MB."
            )
            if counter != "holdfast":
                comparisons.append(compared(label, ours["cpu_s"], name, found["cpu_s"]))
    for name, each in run_s.items():
        outside, added = 1 - each["attributed"], max(0.0, each["overhead"])
        limits += [
            limited(f"{name}: share of wall time outside operators", outside, "", 0.05),
            limited(f"{name}: overhead of measuring", added, "", 0.10),
            limited(f"{name}: operators faster than their bound", each["below_bound"], "", 0.0),
        ]
        notes.append(
            f"{name}: float32, {each['threads']} threads, {each['operators']} operators, "
            f"{each['wall_s']:.2f} s per pass, load {each['load']}; the operator nearest to its bound "
            f"takes {each['fastest_of_bound']:.2f} of it."
        )
    return {
        "title": "Operator profiles",
        "script": "benchmarks/profile_ops.py",
        "input": "one forward pass of the Stable Diffusion UNet and of LLaMA-7B, from their configurations",
        "comparisons": comparisons,
        "limits": limits,
        "figures": {"counters": made, "timed": run_s},
        "machine": host,
        "versions": {n: version(n) for n in ("holdfast", "torch", "diffusers", "transformers")},
        "notes": [
            f"Medians of {options.runs} fresh processes, CPU seconds of the count alone; load after: "
            f"{os.getloadavg()[0]:.1f}. holdfast counts bytes, kinds of attention and modules too.",
            *notes,
        ],
    }


if __name__ == "__main__":
    main()
