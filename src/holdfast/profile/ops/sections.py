"""The page of a profile: classes, ceilings, attention calls, modules, time."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from holdfast.answer import ColumnFormat, Figure, How, Section, Table
from holdfast.numbers import brief, counted, duration, number, percent, size
from holdfast.profile.ops.roofline import Roofline, grouped
from holdfast.report.figures import bars, lines, scatter

if TYPE_CHECKING:
    from holdfast.profile.ops.result import OpProfile

# Group of classes -> its colour in every figure.
COLOURS = {
    "attention": "hardware",
    "linear": "user",
    "matmul": "sky",
    "convolution": "system",
    "norm": "good",
    "elementwise": "purple",
    "memory": "unattributed",
}
_GROUPS = {
    **{name: name for name in COLOURS},
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), "convolution"),
    **dict.fromkeys(("group_norm", "layer_norm", "batch_norm"), "norm"),
    **dict.fromkeys(("softmax", "activation", "reduction"), "elementwise"),
    **dict.fromkeys(("embedding", "other"), "memory"),
    "recurrent": "linear",
}

# What every table of this room can show: label, unit, decimals, and what a value is divided by.
_COLUMNS: dict[str, tuple[str, str, int | None, float]] = {
    "flops": ("Matrix", "GFLOP", 3, 1e9),
    "vector_flops": ("Vector", "GFLOP", 3, 1e9),
    "total_flops": ("With children", "GFLOP", 3, 1e9),
    "bytes": ("Bytes", "MB", 1, 1e6),
    "weight_bytes": ("Weights", "MB", 2, 1e6),
    "peak_bytes": ("Peak memory", "MB", 1, 1e6),
    "bound_s": ("Least time", "ms", 3, 1e-3),
    "seconds": ("Measured", "ms", 3, 1e-3),
    "intensity": ("Intensity", "FLOP/byte", 1, 1),
    "efficiency": ("Of the bound", "%", 1, 1),
    "share": ("Share", "%", 1, 1),
    "limit_share": ("Of the bound by it", "%", 1, 1),
    "op_class": ("Class", "", None, 1),
    "agreement": ("Agrees with fp32", "%", 1, 1),
    "changed": ("Changed", "%", 1, 1),
    "prefill_s": ("First token", "ms", 2, 1e-3),
    "tokens_per_s": ("Decoding", "tokens/s", 1, 1),
}


def section(
    id: str,
    question: str,
    sentence: str,
    rows: Sequence[Mapping[str, Any]],
    columns: str,
    figures: Sequence[Figure] = (),
    *,
    caption: str = "",
    details: str = "",
    forms: Mapping[str, ColumnFormat] | None = None,
    **how: Any,
) -> Section:
    """A section with one table: the columns named, in their units; those that no row has are left out.

    Args:
        id: of the section.
        question: its heading.
        sentence: its answer.
        rows: of the table.
        columns: names, separated by spaces.
        figures: above the table.
        caption: what one row is.
        details: further columns, shown with ``--verbose``.
        forms: of columns that need another format than `_COLUMNS` gives.
        how: of `How`: formula, parameters, source, notes.
    """
    shown: dict[str, ColumnFormat] = {}
    for name in [*columns.split(), *details.split()]:
        if any(row.get(name) is not None for row in rows):
            label, unit, digits, _ = _COLUMNS.get(name, (_label(name), "", None, 1))
            plain = ColumnFormat(label, unit, digits=digits, detail=name in details.split())
            shown[name] = (forms or {}).get(name, plain)
    wanted = [*shown, *(end for each in shown.values() for end in each.interval or ())]
    data = {name: [_scaled(name, row.get(name)) for row in rows] for name in wanted}
    tables = [Table(pa.table(data), shown, caption)] if data or not rows else []
    return Section(id, question, sentence, figures, tables, How(**how) if how else None)


def log_lines(
    rows: Sequence[Mapping[str, Any]], x: str, y: str, x_title: str, y_title: str, series: str
) -> list[Figure]:
    """Points joined by lines on logarithmic axes, where any is positive."""
    shown = [row for row in rows if row[y]]
    log = {"points": True, "log_x": True, "log_y": True}
    return [lines(shown, x, y, x_title, y_title, series=series, **log)] if shown else []


def _label(name: str) -> str:
    return name[:1].upper() + name[1:].replace("_", " ")


def _scaled(name: str, value: Any) -> Any:
    scale = _COLUMNS[name][3] if name in _COLUMNS else 1
    return value if scale == 1 or value is None else value / scale


def si(value: float, unit: str) -> str:
    """``"803.3 GFLOP"``."""
    for prefix, factor in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= factor:
            return f"{number(value / factor, 1)} {prefix}{unit}"
    return f"{value:,.0f} {unit}"


def of(result: OpProfile) -> list[Section]:
    """All sections that the profile has something for."""
    if not result.ops:
        return [section("classes", "What does it compute?", "The model runs no operators.", [], "")]
    about = {
        _classes: True,
        _roofline: True,
        _training: result.gradient_bytes,
        _attention: result.attention,
        _modules: True,
        _time: result.timing,
        _trace: result.trace,
    }
    return [make(result) for make, there in about.items() if there]


def _classes(result: OpProfile) -> Section:
    rows = result.roofline().by("op_class")
    names = {"Matrix FLOPs": "flops", "Vector FLOPs": "vector_flops", "Bytes": "bytes"}
    names[f"Least time, {result.machine.name}"] = "bound_s"
    if result.seconds is not None:
        names["Measured time"] = "seconds"
    stacked = []
    for label, name in names.items():
        parts = [{"group": _GROUPS[row["op_class"]], "part": row.get(name, 0)} for row in rows]
        total = sum(part["part"] for part in parts) or 1
        for part in grouped(parts, ("group",), ("part",)):
            share = round(100 * part["part"] / total, 4)
            stacked.append({"measure": label, "group": part["group"], "share": share})
    for row in rows:
        row["share"] = row["flops"] / (result.flops or 1)
    largest = max(rows, key=lambda row: row["flops"])
    least = "at least " * bool(result.unknown_ops) + si(result.flops, "FLOP")
    sentence = (
        f"One pass takes {least} of products and {si(result.vector_flops, 'FLOP')} of "
        f"other arithmetic, and moves at least {size(result.bytes)}; {percent(largest['share'])} of the "
        f"products are {largest['op_class'].replace('_', ' ')}."
    )
    return section(
        "classes",
        "What does it compute?",
        sentence,
        rows,
        "op_class calls flops vector_flops bytes share seconds",
        [bars(stacked, "measure", "share", "Share (%)", part="group", meanings=COLOURS)],
        formula=[
            "product [m, k] x [k, n]: 2 m n k; convolution: 2 x results x inputs per group x kernel",
            "attention: 2 pairs (dim + value dim) per head; causal pairs: n (n + 1) / 2",
            "bytes: every input element once, every result once; views nothing; gathers what they return",
        ],
        notes="1 multiply-add = 2 FLOP, of complex numbers 8. Vector FLOPs: elementary operations of "
        "norms, softmax and so on.",
    )


def _roofline(result: OpProfile) -> Section:
    roof = result.roofline()
    machine, bound = roof.hardware, roof.bound_s
    types = grouped(roof.ops, ("dtype",), ("flops",))
    main = max(types, key=lambda row: row["flops"])["dtype"]
    peak = machine.peak(main)
    points = []
    for row in roof.by("op", "op_class", "shape"):
        time = row.get("seconds") or row["bound_s"]
        work = row["flops"] + row["vector_flops"]
        if work and row["bytes"] and time:
            row |= {"group": _GROUPS[row["op_class"]], "rate": work / time / 1e9}
            points.append(row | {"result": " x ".join(map(str, row["shape"]))})
    ridge = peak / machine.bandwidth
    intensities = [row["intensity"] for row in points] + [ridge / 100, ridge * 10]
    ceiling = [
        {"intensity": x, "rate": min(peak, x * machine.bandwidth) / 1e9}
        for x in (min(intensities), ridge, max(intensities))
    ]
    shares = [f"{percent(roof.share(limit))} limited by {limit}" for limit in ("compute", "memory")]
    sentence = (
        f"On {machine.name} the pass takes at least {duration(bound)}: {', '.join(shares)}; its products "
        f"are {percent(roof.share('compute', products=True))} limited by compute."
    )
    if result.seconds:
        sentence += f" Operators reach {percent(bound / result.seconds)} of the bound."
    if result.peak_bytes > machine.memory_bytes:
        sentence += f" It does not fit: {size(result.peak_bytes)} of {size(machine.memory_bytes)}."
    figure = scatter(
        points,
        "intensity",
        "rate",
        "Arithmetic intensity (FLOP/byte)",
        "Attainable rate (GFLOP/s)" if result.seconds is None else "Measured rate (GFLOP/s)",
        series="group",
        meanings=COLOURS,
        details=("op", "result", "calls"),
        ceiling=ceiling,
        log_x=True,
        log_y=True,
    )
    return section(
        "roofline",
        "What limits it?",
        sentence,
        roof.by("op_class"),
        "op_class intensity bound_s limit limit_share seconds efficiency",
        [figure],
        formula="per operator: max(matrix FLOPs / peak, vector FLOPs / vector peak, bytes / bandwidth)",
        parameters={
            f"Peak, {main}": f"{brief(peak / 1e12)} TFLOP/s",
            "Vector peak": "unknown, no ceiling"
            if math.isinf(machine.vector_peak)
            else f"{brief(machine.vector_peak / 1e12)} TFLOP/s",
            "Bandwidth": f"{brief(machine.bandwidth / 1e9)} GB/s",
        },
        source=machine.source,
        notes="The line is the ceiling of the type with the most FLOPs and of the main memory; a point "
        "above it worked in a cache.",
    )


def _attention(result: OpProfile) -> Section:
    calls = result.attention
    lengths = [each.query_length for each in calls]
    low, high = min(lengths), max(lengths)
    rows = [{**asdict(a), "calls": a.repeats, "flops": a.flops * a.repeats} for a in calls]
    flops = sum(row["flops"] for row in rows)
    kinds = Counter(each.kind for each in calls)
    times = f", a factor of {brief(high / low)}" if low else ""
    varies = f"is {low:,} throughout" if low == high else f"varies from {low:,} to {high:,}{times}"
    listing = ", ".join(f"{n} {kind}" for kind, n in kinds.items())
    sentence = (
        f"{counted(len(calls), 'attention call')} ({listing}) take "
        f"{percent(flops / (result.flops or 1))} of the matrix FLOPs; the query length {varies}."
    )
    by_kind = result.attention_kinds()
    sides = {row["kind"]: row for row in by_kind}
    if sides.keys() >= {"temporal", "spatial-self"}:
        first, second = sides["temporal"], sides["spatial-self"]
        measured = bool(first.get("seconds"))
        time, words = ("seconds", "measured") if measured else ("bound_s", "least")
        less = brief(second["flops"] / (first["flops"] or 1))
        factor = brief(first[time] / (second[time] or 1))
        sentence += (
            f" Temporal attention takes {less} times fewer FLOPs than spatial attention and {factor} times "
            f"its {words} time."
        )
    figure = lines(
        [{"call": n, **row} for n, row in enumerate(rows, 1) if row["query_length"]],
        "call",
        "query_length",
        "Attention call",
        "Query length (tokens)",
        series="kind",
        points=True,
        log_y=True,
    )
    by = ("kind", "query_length", "key_length", "heads", "head_dim", "batch")
    kinds = section(
        "attention-kinds",
        "",
        "",
        by_kind,
        "kind calls flops bytes bound_s limit limit_share intensity seconds",
    )
    shown = section(
        "attention",
        "Which attention is which?",
        sentence,
        grouped(rows, by, ("calls", "flops")),
        "kind query_length key_length heads head_dim calls flops",
        [figure],
        details="batch",
        formula="cross: keys are not projections of what the queries are projections of; temporal: the "
        "length follows the number of frames; causal: triangle only, or so declared by the module",
        source="Golden et al., arXiv 2312.14385 (sequence length per call)",
        notes="Kinds: the kernel, or the products and what is between them. The bound assumes contiguous "
        "reads: it does not show what strided temporal reads cost.",
    )
    return replace(shown, tables=[*kinds.tables, *shown.tables])


def _modules(result: OpProfile) -> Section:
    rows = sorted(result.by_module(), key=lambda row: -row["total_flops"])
    for row in rows:
        row["module"] = row["module"] or "(model)"
    largest = max(rows, key=lambda row: row["flops"])
    return section(
        "modules",
        "Where in the model?",
        f"The operators of {largest['module']} take most: "
        f"{percent(largest['flops'] / (result.flops or 1))} of the matrix FLOPs.",
        rows[:20_000],
        "module type total_flops flops bytes seconds",
        caption="Own operators of each module; 'with children' includes those below it.",
    )


def _training(result: OpProfile) -> Section:
    parts = {
        "weights": result.parameter_bytes,
        "gradients": result.gradient_bytes,
        "moments of AdamW": result.optimizer_bytes,
    }
    listed = ", ".join(f"{size(each)} of {name}" for name, each in parts.items())
    return section(
        "training",
        "What does a training step take?",
        f"A step peaks at {size(result.peak_bytes)}: {listed}, the rest activations.",
        result.roofline().by("phase"),
        "phase calls flops vector_flops bytes bound_s limit limit_share",
        formula="backward: gradients of every output for every trained parameter; fused attention: five "
        "products where the forward pass has two; optimizer: a fused step of AdamW, moments as the weights",
    )


def _trace(result: OpProfile) -> Section:
    trace = result.trace
    assert trace is not None
    kinds = {index: call.kind for call in result.attention for index in call.ops}
    bounds = result.roofline().ops
    measured = [
        {**row, "kind": kinds.get(n, row["op_class"])}
        for n, row in enumerate(bounds)
        if row["seconds"] is not None
    ]
    rows = Roofline(result.machine, measured).by("op", "kind")
    rows += [
        {"op": row["name"], "kind": f"unknown, by {row['launched_by']}", "calls": row["calls"]}
        | {"seconds": row["seconds"] / trace.passes}
        for row in trace.unknown
    ]
    rows.sort(key=lambda row: -row.get("seconds", 0.0))
    what = "kernels" if trace.device == "gpu" else "operators"
    sentence = (
        f"One pass took {duration(trace.seconds / trace.passes)} of {what} ({brief(trace.passes)} passes "
        f"in the trace); {percent(trace.joined_s / (trace.seconds or 1.0))} of it belongs to counted "
        "operators."
    )
    return section(
        "trace",
        "Where did the time of the trace go?",
        sentence,
        rows,
        "op kind calls seconds flops bytes bound_s limit limit_share efficiency",
        caption="Seconds per pass. Unknown: kernels or operators that no counted operator explains.",
        formula="an operator of the trace is the counted one with the same name (or family, such as mm and "
        "addmm) and shapes of inputs; it has the time of all that ran inside it",
        parameters={"trace": str(trace.path)},
    )


def _time(result: OpProfile) -> Section:
    timing, total = result.timing, result.seconds or 1.0
    assert timing is not None
    sentence = (
        f"One pass takes {duration(timing.wall_s)} (median of {timing.runs}); {percent(timing.attributed)} "
        f"of it is inside operators, {duration(timing.residual_s)} is Python; measuring adds "
        f"{percent(max(0.0, timing.overhead))}."
    )
    slowest = grouped(result.roofline().ops, ("op", "module"), ("calls", "seconds"))
    for row in slowest:
        row["share"] = row.get("seconds", 0.0) / total
    slowest.sort(key=lambda row: -row["share"])
    return section(
        "time",
        "Where does the time go?",
        sentence,
        slowest[:20],
        "op module calls seconds share",
        caption="The 20 slowest pairs of operator and module.",
        formula="time of an operator: median over the runs of its wall time between dispatch and return",
        parameters={"threads": timing.threads, "load before": timing.load},
        notes="Plain and measured runs take turns; shares are of the fastest. Measuring: CPU time added.",
    )
