"""Traces of real runs, explained: holdfast, TraceLens and torch.profiler's own table on the same files.

    python benchmarks/profile_trace.py [--peers PYTHON] [--traces DIR] [--passes N]

Records training steps of a transformer and passes of a convolutional network on the CPU with torch.profiler
(shapes and FLOPs), and asks each tool for time, FLOPs and bytes by operator. PYTHON is an interpreter with
TraceLens, from a checkout of github.com/AMD-AGI/TraceLens (measured: commit 171dd747; the package of that
name in the registry is another project); without it its columns are empty. Its report needs kernels of a
GPU, so on these traces its performance models are asked for the outermost operators that have one. DIR is
`tests/traces/h100` of that checkout: traces of published models on an H100, on which both tools are in
their element. Writes `benchmarks/results/profile_trace.json`, of which `render.py` makes the page.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import tempfile
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.profiler import ProfilerActivity

from holdfast.profile.ops.profiling import profile
from holdfast.profile.ops.roofline import Roofline
from measuring import limited, machine, run

RESULT = Path(__file__).resolve().parent / "results" / "profile_trace.json"
UNITS = ("ms", "GFLOP", "MB")
# Operators of one tool -> those of another that compute the same.
SAME = {
    "_scaled_dot_product_flash_attention": "scaled_dot_product_attention",
    "layer_norm": "native_layer_norm",
    "batch_norm": "native_batch_norm",
    "clamp_min": "relu",
    "index_select": "embedding",
    "add_": "add",
    "conv2d": "convolution",
    "mkldnn_convolution": "convolution",
    "_scaled_dot_product_flash_attention_for_cpu": "scaled_dot_product_attention",
    "_scaled_dot_product_flash_attention_for_cpu_backward": "scaled_dot_product_attention_backward",
}
PEER = """
import contextlib, csv, io, json, sys, warnings
warnings.simplefilter("ignore")
from TraceLens.Reporting.generate_perf_report_pytorch import generate_perf_report_pytorch
from TraceLens.TreePerf import tree_perf
kernels = {}
with contextlib.redirect_stdout(io.StringIO()):
    analyzer = tree_perf.TreePerfAnalyzer.from_file(sys.argv[1])
    try:
        generate_perf_report_pytorch(sys.argv[1], output_csvs_dir=sys.argv[2])
        report = "made"
        for row in csv.DictReader(open(f"{sys.argv[2]}/unified_perf_summary.csv")):
            found, count = kernels.setdefault(row["name"], [0, 0, 0.0, 0.0]), int(row["operation_count"])
            seconds = float(row["Kernel Time (\\u00b5s)_sum"] or 0) / 1e6
            for n, column, unit in ((0, "GFLOPS", 1e9), (1, "Data Moved (MB)", 2**20)):
                # An empty cell is a kernel without a model: the sum of its operator is not known.
                known = found[n] is not None and row[column] not in ("", "nan")
                found[n] = found[n] + float(row[column]) * unit * count if known else None
            found[2] += seconds * (row["has_perf_model"] == "True")
            found[3] += seconds
    except Exception as error:
        report = f"{type(error).__name__}: {error}"
rows, failed, tree = {}, {}, analyzer.tree
def model_of(event):
    try:
        return tree_perf.resolve_perf_model_class(event["name"])
    except Exception:
        return None
for event in tree.events:
    found = model_of(event) if analyzer.event_to_category(event) == "cpu_op" else None
    above = tree.get_parent_event(event)
    while found and above:
        if model_of(above):
            found = None  # the outermost operator has the work of those inside it
        above = tree.get_parent_event(above)
    if not found:
        continue
    row = rows.setdefault(event["name"], [0, 0, 0.0])
    try:
        model = found(**tree_perf._perf_model_init_kwargs(found, event, None, None, False))
        counts = [model.flops(), model.bytes()]
    except Exception as error:
        failed[event["name"]] = f"{type(error).__name__}: {error}"
        counts = [None, None]
    # Of an operator whose formula fails once, or has no answer, the sum is not known.
    for n, each in enumerate(counts):
        row[n] = None if row[n] is None or each is None else row[n] + each
    row[2] += event["dur"] / 1e6 * (counts != [None, None])
print(json.dumps({"report": report, "rows": rows, "kernels": kernels, "failed": failed}))
"""


@dataclass(frozen=True)
class Case:
    """A model, its input, and the products that one pass takes, by formula."""

    label: str
    model: nn.Module
    x: torch.Tensor
    training: bool
    flops: int


def cases() -> dict[str, Case]:
    """A transformer that trains, a convolutional network that does not."""
    torch.manual_seed(0)
    batch, length, width, inner, layers = 4, 64, 128, 256, 2
    layer = nn.TransformerEncoderLayer(width, 4, inner, dropout=0.0, batch_first=True)
    encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
    tokens, projection = batch * length, 3 * width * width
    linear = 2 * tokens * (projection + width * width + 2 * width * inner)
    attention = 4 * batch * length * length * width
    # Two products backward for each forward, but none for the input; attention has five for two.
    training = layers * (3 * linear + attention * 7 // 2) - 2 * tokens * projection
    side, channels = 64, (3, 32, 64)
    network = nn.Sequential(
        nn.Conv2d(channels[0], channels[1], 3, padding=1),
        nn.BatchNorm2d(channels[1]),
        nn.ReLU(),
        nn.Conv2d(channels[1], channels[2], 3, stride=2, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(channels[2], 10),
    )
    first = side * side * channels[0] * channels[1] * 9
    second = (side // 2) ** 2 * channels[1] * channels[2] * 9
    image = torch.randn(batch, channels[0], side, side)
    pixels = 2 * batch * (first + second + channels[2] * 10)
    return {
        "transformer": Case(
            "training step of a transformer",
            encoder,
            torch.randn(batch, length, width),
            True,
            training,
        ),
        "conv": Case("pass of a convolutional network", network.eval(), image, False, pixels),
    }


def published(name: str) -> tuple[str, str, nn.Module, dict[str, torch.Tensor]]:
    """Label, file, model without weights and inputs of a published trace."""
    from transformers import BertConfig, BertForMaskedLM, Qwen2Config, Qwen2ForCausalLM

    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device("meta"):
            if name == "bert":
                config = BertConfig(
                    hidden_size=512,
                    num_hidden_layers=4,
                    num_attention_heads=8,
                    intermediate_size=2048,
                )
                model: nn.Module = BertForMaskedLM(config)
                label, shape = "BERT small, 141 tokens, H100", (1, 141)
                file = "gaunernst_bert-small-uncased__1016001.json.gz"
            else:
                config = Qwen2Config(
                    hidden_size=1024,
                    num_hidden_layers=24,
                    num_attention_heads=16,
                    num_key_value_heads=16,
                    intermediate_size=2816,
                )
                model = Qwen2ForCausalLM(config)
                label, shape = "Qwen 1.5 0.5B, 16 x 559 tokens, H100", (16, 559)
                file = "Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz"
            ids = torch.zeros(shape, dtype=torch.int64)
    finally:
        torch.set_default_dtype(before)
    return label, file, model.eval(), {"input_ids": ids}


def recorded(case: Case, path: Path, passes: int) -> dict[str, list[float]]:
    """Write a trace; FLOPs and seconds by operator as torch.profiler itself sums them, of one pass."""
    optimizer = torch.optim.AdamW(case.model.parameters(), fused=True)

    def once() -> None:
        if case.training:
            optimizer.zero_grad()
            case.model(case.x).sum().backward()
            optimizer.step()
        else:
            with torch.no_grad():
                case.model(case.x)

    once()
    with torch.profiler.profile(
        activities=[ProfilerActivity.CPU], record_shapes=True, with_flops=True
    ) as found:
        for _ in range(passes):
            once()
    found.export_chrome_trace(str(path))
    sums: dict[str, list[float]] = {}
    for row in found.key_averages():
        each = sums.setdefault(name_of(row.key), [0.0, 0.0])
        each[0] += row.flops / passes
        each[1] += row.self_cpu_time_total / 1e6 / passes
    return sums


def ours(model: nn.Module, path: Path, *inputs: torch.Tensor, **named: Any) -> dict[str, Any]:
    """Our rows by operator, and the share of the trace's time that they explain."""
    result = profile(model, *inputs, trace=path, machine="h100-sxm", **named)
    trace = result.trace
    assert trace is not None
    return {
        "flops": result.flops,
        "seconds": trace.seconds / trace.passes,
        "share": trace.joined_s / trace.seconds,
        "missing": trace.missing,
        "rows": Roofline(
            result.machine,
            [row for row in result.roofline().ops if row["seconds"] is not None],
        ).by("op"),
        "unknown": trace.unknown,
        "passes": trace.passes,
    }


def theirs(python: str, path: Path, folder: Path) -> dict[str, Any]:
    """What TraceLens reports, and what its models count of operators."""
    if not python:
        return {"report": "not run", "rows": {}, "kernels": {}, "failed": {}}
    return dict(json.loads(run([python, "-c", PEER, path, folder]).output.strip().splitlines()[-1]))


def on_a_gpu(
    name: str, options: argparse.Namespace, folder: Path
) -> tuple[dict[str, Any], dict[str, Any], str]:
    """Shares of the time, a table by operator, and a note, of a published trace."""
    label, file, model, inputs = published(name)
    own = ours(model, options.traces / file, kwargs=inputs)
    peer = theirs(options.peers, options.traces / file, folder)
    rows: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for row in own["rows"]:
        each = rows[name_of(row["op"])]
        each["ms, holdfast"] += 1e3 * (row.get("seconds") or 0.0)
        each["GFLOP, holdfast"] += (row["flops"] + row["vector_flops"]) / 1e9
        each["MB, holdfast"] += row["bytes"] / 1e6
    for operator, (flops, moved, _, seconds) in peer["kernels"].items():
        each = rows[name_of(operator)]
        each["ms, TraceLens"] += 1e3 * seconds
        # NaN stays NaN, whatever is added.
        each["GFLOP, TraceLens"] += math.nan if flops is None else flops / 1e9
        each["MB, TraceLens"] += math.nan if moved is None else moved / 1e6
    columns = [f"{what}, {tool}" for what in UNITS for tool in ("holdfast", "TraceLens")]
    large = [
        (operator, row)
        for operator, row in rows.items()
        if max(row["ms, holdfast"], row["ms, TraceLens"]) >= 10 * own["seconds"]
    ]
    large.sort(key=lambda each: -max(each[1]["ms, holdfast"], each[1]["ms, TraceLens"]))
    shown = [{"operator": operator, **cells(row, columns)} for operator, row in large]
    stray = sum(row["seconds"] for row in own["unknown"] if row["launched_by"] == "unknown")
    whole = own["seconds"] * own["passes"]
    known = sum(seconds for *_, seconds, _ in peer["kernels"].values())
    share = {
        "trace": label,
        "holdfast": 100 * own["share"],
        "torch.profiler (FLOPs alone)": "",
        "TraceLens": 100 * known / whole,
    }
    note = (
        f"{label}: {1e3 * whole:.3f} ms of kernels, of which {stray / whole:.0%} have no operator in the "
        f"trace. Counted and not in the trace: {_listed(own['missing'])}."
    )
    return share, {"caption": f"{label}, by operator", "rows": shown}, note


def name_of(operator: str) -> str:
    """The name without its namespace, the same for all tools."""
    name = operator.replace("::", ".").removeprefix("aten.")
    return SAME.get(name, name)


def table(
    own: dict[str, Any], summed: dict[str, list[float]], peer: dict[str, Any], passes: int
) -> list[dict[str, Any]]:
    """One row per operator that takes 1 % of the time, or that a tool knows work of."""
    rows: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for row in own["rows"]:
        each = rows[name_of(row["op"])]
        each["ms, holdfast"] += 1e3 * (row.get("seconds") or 0.0)
        each["MFLOP, holdfast"] += (row["flops"] + row["vector_flops"]) / 1e6
        each["MB, holdfast"] += row["bytes"] / 1e6
    for row in own["unknown"]:
        rows[name_of(row["name"])]["ms, holdfast"] += 1e3 * row["seconds"] / own["passes"]
    for name, (flops, seconds) in summed.items():
        rows[name]["ms (own), torch.profiler"] += 1e3 * seconds
        if flops:  # 0: it has no formula
            rows[name]["MFLOP, torch.profiler"] += flops / 1e6
    for name, counts in peer["rows"].items():
        for what, count in zip(("MFLOP", "MB"), counts, strict=False):
            count = math.nan if count is None else count
            rows[name_of(name)][f"{what}, TraceLens"] += count / passes / 1e6
    columns = [
        f"{what}, {who}" for what, who in (("ms", "holdfast"), ("ms (own)", "torch.profiler"))
    ]
    for what, tools in (
        ("MFLOP", ("holdfast", "torch.profiler", "TraceLens")),
        ("MB", ("holdfast", "TraceLens")),
    ):
        columns += [f"{what}, {tool}" for tool in tools]
    large = [
        (name, row)
        for name, row in rows.items()
        if row["ms, holdfast"] >= 10 * own["seconds"]
        or any(row[column] >= 0.001 or math.isnan(row[column]) for column in columns[2:])
    ]
    large.sort(key=lambda each: -each[1]["ms, holdfast"])
    return [{"operator": name, **cells(row, columns)} for name, row in large]


def cells(row: Counter[str], columns: Sequence[str]) -> dict[str, float | str]:
    """What each tool says of an operator: nothing is unknown, never 0."""
    return {
        column: float(row[column])
        if column in row and not math.isnan(row[column])
        else ""
        if column.startswith("ms")
        else "unknown"
        for column in columns
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--peers", default="", metavar="PYTHON")
    parser.add_argument("--traces", type=Path, metavar="DIR")
    parser.add_argument("--passes", type=int, default=20)
    parser.add_argument("--result", type=Path, default=RESULT)
    options = parser.parse_args(arguments)
    host = machine()
    torch.set_num_threads(1)
    figures, tables, limits, notes = {}, [], [], []
    shares: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for name, case in cases().items():
            path = Path(folder) / f"{name}.json"
            summed = recorded(case, path, options.passes)
            own = ours(case.model, path, case.x, training=case.training)
            peer = theirs(options.peers, path, Path(folder) / name)
            products = sum(flops for flops, _ in summed.values())
            modeled = sum(seconds for *_, seconds in peer["rows"].values()) / options.passes
            counted = sum(seconds for flops, seconds in summed.values() if flops)
            whole = sum(seconds for _, seconds in summed.values())
            limits.append(
                limited(
                    f"{case.label}: error of the products' FLOPs, holdfast",
                    abs(own["flops"] - case.flops),
                    "FLOP",
                    0.0,
                )
            )
            shares.append(
                {
                    "trace": case.label,
                    "holdfast": 100 * own["share"],
                    "torch.profiler (FLOPs alone)": 100 * counted / whole,
                    "TraceLens": 100 * modeled / own["seconds"],
                }
            )
            caption = f"{case.label.capitalize()}, per pass"
            tables.append({"caption": caption, "rows": table(own, summed, peer, options.passes)})
            notes += [
                f"{case.label.capitalize()}: {case.flops / 1e6:,.1f} MFLOP of products by formula; "
                f"holdfast {own['flops'] / 1e6:,.1f}, torch.profiler {products / 1e6:,.1f}. "
                f"Counted and not in the trace: {_listed(own['missing'])}. "
                f"TraceLens' own report of this trace: {peer['report']}; formulas that failed: "
                + ("; ".join(f"{name} ({why})" for name, why in peer["failed"].items()) or "none")
                + "."
            ]
            figures[name] = {
                "formula_flops": case.flops,
                "holdfast": {key: own[key] for key in ("flops", "seconds", "share", "missing")},
                "torch_profiler": {"flops": products, "share": counted / whole},
                "tracelens": peer,
            }
        for name in ("bert", "qwen") if options.traces else ():
            share, rows, note = on_a_gpu(name, options, Path(folder) / name)
            shares.append(share)
            tables.append(rows)
            notes.append(note)
    result = {
        "title": "Traces of real runs",
        "script": "benchmarks/profile_trace.py",
        "input": "traces of torch.profiler of a transformer's training step (2 layers, width 128, 4 x 64 "
        "tokens, AdamW) and of a convolutional network (4 images of 64 px), on the CPU; published traces "
        "of BERT small and Qwen 1.5 0.5B on an H100, from TraceLens' own tests",
        "comparisons": [],
        "limits": limits,
        "figures": figures,
        "tables": [
            {
                "caption": "Share (%) of the measured time with counted FLOPs or bytes",
                "rows": shares,
            },
            *tables,
        ],
        "machine": host,
        "versions": {each: version(each) for each in ("holdfast", "torch")}
        | ({"TraceLens": _peer_version(options.peers)} if options.peers else {}),
        "notes": [
            f"CPU: means of {options.passes} passes, one thread, load after: {os.getloadavg()[0]:.1f}. "
            "There is no GPU here: traces of one are other people's. unknown: the tool has no count of "
            "the XX products, sums and differences.",
            "holdfast has the time of an operator with all that runs inside it, torch.profiler's column "
            "that of the operator alone. TraceLens has the time of kernels alone; on traces of a CPU its "
            "FLOPs and bytes are those of the outermost operators that it has a model for.",
            "Only holdfast: attention forward and backward, the optimizer, gathers, phase and module of "
            "each operator, the kind of an attention, what is in the trace and not in the model and the "
            "other way. Only TraceLens (traces of GPUs): kernels by launcher, communication between ranks, "
            "overlap and idle time, the difference of two traces, all without the model's code.",
            "torch's own analysis of traces (torch._inductor.analysis.profile_analysis) reads kernels of "
            "GPUs alone: its report of these traces is empty.",
            *notes,
        ],
    }
    options.result.write_text(json.dumps(result, indent=2) + "\n")
    print(f"wrote {options.result}")


def _listed(missing: Sequence[dict[str, Any]]) -> str:
    return ", ".join(f"{row['op']} ({row['calls']})" for row in missing) or "nothing"


def _peer_version(python: str) -> str:
    script = "import importlib.metadata as m; print(m.version('TraceLens'))"
    return run([python, "-c", script]).output.strip()


if __name__ == "__main__":
    main()
