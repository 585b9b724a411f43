"""The page of a profile: classes, ceilings, attention calls, modules, time."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from holdfast.answer import ColumnFormat, How, Section, Table
from holdfast.numbers import brief, counted, duration, number, percent, size
from holdfast.profile.ops.roofline import COMPUTE, MEMORY, VECTOR, Roofline, roofline
from holdfast.report.figures import bars, lines, scatter

if TYPE_CHECKING:
    from holdfast.profile.ops.result import OpProfile

COLOURS = {
    "attention": "hardware",
    "linear": "user",
    "matmul": "sky",
    "convolution": "system",
    "norm": "good",
    "elementwise": "purple",
    "memory": "unattributed",
}
"""Group of classes -> its colour in every figure."""
_GROUPS = {
    **dict.fromkeys(("attention", "linear", "matmul"), ""),
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), "convolution"),
    **dict.fromkeys(("group_norm", "layer_norm", "batch_norm"), "norm"),
    **dict.fromkeys(("softmax", "activation", "elementwise", "reduction"), "elementwise"),
    **dict.fromkeys(("embedding", "memory", "other"), "memory"),
    "recurrent": "linear",
}
_KINDS = {
    "spatial-self": "hardware",
    "self": "hardware",
    "causal": "user",
    "cross": "system",
    "temporal": "good",
    "spatio-temporal": "purple",
}
_COUNTS = {
    "flops": ColumnFormat("Matrix", "GFLOP", digits=3),
    "vector_flops": ColumnFormat("Vector", "GFLOP", digits=3),
    "bytes": ColumnFormat("Bytes", "MB", digits=1),
}
_MOST_MODULES = 24


def group(op_class: str) -> str:
    """The group that a class is drawn with."""
    return _GROUPS[op_class] or op_class


def of(made: OpProfile) -> list[Section]:
    """All sections that the profile has something for."""
    sections = [_classes(made)]
    if made.machine:
        sections.append(_roofline(made, made.roofline()))
    if made.attention:
        sections.append(_attention(made))
    sections.append(_modules(made))
    if made.timing:
        sections.append(_time(made))
    return sections


def _scaled(row: dict[str, Any]) -> dict[str, Any]:
    """Counts in the units of the tables."""
    units = {"flops": 1e9, "vector_flops": 1e9, "bytes": 1e6}
    return {key: value / units[key] if key in units else value for key, value in row.items()}


def _classes(made: OpProfile) -> Section:
    rows = made.by_class()
    measures = {"Matrix FLOPs": "flops", "Vector FLOPs": "vector_flops", "Bytes": "bytes"}
    if made.machine:
        for row in made.roofline().rows:
            rows[row["op_class"]]["bound_s"] = row["bound_s"]
        measures[f"Least time, {made.machine.name}"] = "bound_s"
    if made.seconds is not None:
        measures["Measured time"] = "seconds"
    stacked = []
    for label, key in measures.items():
        total = sum(row.get(key, 0) for row in rows.values()) or 1
        shares: Counter[str] = Counter()
        for name, row in rows.items():
            shares[group(name)] += row.get(key, 0) / total
        stacked += [{"measure": label, "group": g, "share": round(100 * s, 4)} for g, s in shares.items()]
    largest = max(rows, key=lambda name: rows[name]["flops"]) if rows else "none"
    share = rows[largest]["flops"] / made.flops if made.flops else 0.0
    sentence = (
        f"One pass takes {si(made.flops, 'FLOP')} of products and {si(made.vector_flops, 'FLOP')} of other "
        f"arithmetic, and moves at least {size(made.bytes)}; {percent(share)} of the products are "
        f"{largest.replace('_', ' ')}."
    )
    columns = {
        "op_class": ColumnFormat("Class"),
        "calls": ColumnFormat("Calls"),
        **_COUNTS,
        "share": ColumnFormat("Of matrix FLOPs", "%", digits=1),
        **({"seconds": ColumnFormat("Measured", "s", digits=4)} if made.seconds is not None else {}),
    }
    table = [
        _scaled({"op_class": name, **row, "share": row["flops"] / (made.flops or 1)})
        for name, row in rows.items()
    ]
    how = How(
        [
            "product [m, k] x [k, n]: 2 m n k; convolution: 2 x results x inputs per group x kernel",
            "attention: 2 pairs (dim + value dim) per head; causal pairs: n (n + 1) / 2",
            "bytes: every input element once, every result once; views nothing; gathers what they return",
        ],
        notes="1 multiply-add = 2 FLOP. Vector FLOPs: elementary operations per element of norms, softmax, "
        "activations and bias; they run on other units than products, so the two are not added.",
    )
    figure = bars(stacked, "measure", "share", "Share (%)", part="group", meanings=COLOURS)
    return Section(
        "classes",
        "What does it compute?",
        sentence,
        [figure],
        [Table(pa.Table.from_pylist(table), columns)],
        how,
    )


def _roofline(made: OpProfile, roof: Roofline) -> Section:
    machine = roof.hardware
    by_type: Counter[str] = Counter()
    points: dict[tuple[Any, ...], dict[str, Any]] = {}
    for each, bound in zip(made.ops, roof.bounds_s, strict=True):
        by_type[each.dtype] += each.flops * each.repeats
        work = each.flops + each.vector_flops
        if not work or not each.bytes:
            continue
        key = (each.op, each.shape, each.flops, each.bytes)
        row = points.setdefault(
            key,
            {
                "group": group(each.op_class),
                "op": each.op.removeprefix("aten."),
                "result": " x ".join(map(str, each.shape)),
                "calls": 0,
                "intensity": work / each.bytes,
                "work": 0.0,
                "seconds": 0.0,
            },
        )
        row["calls"] += each.repeats
        row["work"] += work * each.repeats / 1e9
        row["seconds"] += bound if each.seconds is None else each.seconds * each.repeats
    rows = [
        {**row, "rate": row["work"] / row["seconds"]} for row in points.values() if row["seconds"]
    ]
    main = by_type.most_common(1)[0][0] if by_type else "float32"
    ridge = machine.peak(main) / machine.bandwidth
    ends = [min([r["intensity"] for r in rows] + [ridge / 100]), ridge]
    ends.append(max([r["intensity"] for r in rows] + [ridge * 10]))
    ceiling = [
        {"intensity": x, "rate": min(machine.peak(main), x * machine.bandwidth) / 1e9} for x in ends
    ]
    bound = roof.bound_s
    sentence = (
        f"On {machine.name} the pass takes at least {duration(bound)}: {percent(roof.share(COMPUTE))} limited by "
        f"products, {percent(roof.share(MEMORY))} by memory, {percent(roof.share(VECTOR))} by vector units; of "
        f"the time of the products {percent(roof.products)} is limited by arithmetic, as in "
        f"{'prefill' if roof.products >= 0.5 else 'decoding'} of a language model."
    )
    measured = made.seconds is not None
    if measured and made.seconds:
        sentence += f" It reaches {percent(bound / made.seconds)} of that bound."
    columns = {
        "op_class": ColumnFormat("Class"),
        "intensity": ColumnFormat("Intensity", "FLOP/byte", digits=1),
        "bound_s": ColumnFormat("Least time", "ms", digits=3),
        "limit": ColumnFormat("Limited by"),
        **(
            {
                "seconds": ColumnFormat("Measured", "ms", digits=3),
                "efficiency": ColumnFormat("Of the bound", "%", digits=1),
            }
            if measured
            else {}
        ),
    }
    table = [
        {k: v * 1e3 if k in ("bound_s", "seconds") and v is not None else v for k, v in row.items()}
        for row in roof.rows
    ]
    figure = scatter(
        rows,
        "intensity",
        "rate",
        "Arithmetic intensity (FLOP/byte)",
        "Measured rate (GFLOP/s)" if measured else "Attainable rate (GFLOP/s)",
        series="group",
        meanings=COLOURS,
        details=("op", "result", "calls"),
        ceiling=ceiling,
        log_x=True,
        log_y=True,
    )
    how = How(
        "least time = max(matrix FLOPs / peak, vector FLOPs / vector peak, bytes / bandwidth), per operator",
        parameters={
            f"Peak, {main}": f"{brief(machine.peak(main) / 1e12)} TFLOP/s",
            "Vector peak": f"{brief(machine.vector_peak / 1e12)} TFLOP/s",
            "Bandwidth": f"{brief(machine.bandwidth / 1e9)} GB/s",
        },
        source=machine.source,
        notes="The line is the ceiling of the type with the most FLOPs and of the main memory; a point above "
        "it worked in a cache. Language models are limited by arithmetic in prefill and by memory in decoding.",
    )
    return Section(
        "roofline",
        "What limits it?",
        sentence,
        [figure],
        [Table(pa.Table.from_pylist(table), columns), *_phases(made, roof)],
        how,
    )


def _phases(made: OpProfile, roof: Roofline) -> list[Table]:
    """The components of a pipeline: which resemble prefill, which decoding."""
    rows = []
    for name in made.components:
        own = [op for op in made.ops if f"{op.module}.".startswith(f"{name}.")]
        part = roofline(own, roof.hardware)
        phase = "prefill" if part.products >= 0.5 else "decoding"
        rows.append(
            {
                "component": name,
                "calls": max((op.repeats for op in own), default=0),
                "flops": sum(op.flops * op.repeats for op in own) / 1e9,
                "bytes": sum(op.bytes * op.repeats for op in own) / 1e6,
                "bound_s": 1e3 * part.bound_s,
                "products": part.products,
                "resembles": phase,
            }
        )
    columns = {
        "component": ColumnFormat("Component"),
        "calls": ColumnFormat("Calls"),
        "flops": _COUNTS["flops"],
        "bytes": _COUNTS["bytes"],
        "bound_s": ColumnFormat("Least time", "ms", digits=3),
        "products": ColumnFormat("Products limited by arithmetic", "%", digits=1),
        "resembles": ColumnFormat("As in"),
    }
    return [Table(pa.Table.from_pylist(rows), columns, "Components of the pipeline.")] if rows else []


def _attention(made: OpProfile) -> Section:
    calls = made.attention
    lengths = [each.query_length for each in calls]
    flops = sum(each.flops * each.repeats for each in calls)
    grouped: dict[tuple[Any, ...], dict[str, Any]] = {}
    for each in calls:
        key = (each.kind, each.query_length, each.key_length, each.heads, each.head_dim)
        row = grouped.setdefault(
            key,
            {
                "kind": each.kind,
                "query_length": each.query_length,
                "key_length": each.key_length,
                "heads": each.heads,
                "head_dim": each.head_dim,
                "batch": each.batch,
                "calls": 0,
                "flops": 0.0,
                "first": each.module or "(model)",
            },
        )
        row["calls"] += each.repeats
        row["flops"] += each.flops * each.repeats / 1e9
    kinds = Counter(each.kind for each in calls)
    sentence = (
        f"{counted(len(calls), 'attention call')} ({', '.join(f'{n} {kind}' for kind, n in kinds.items())}) take "
        f"{percent(flops / made.flops if made.flops else 0)} of the matrix FLOPs; "
    )
    low, high = min(lengths), max(lengths)
    spread = f", a factor of {brief(high / low)}" if low else ""
    sentence += (
        f"the query length is {low:,} throughout."
        if low == high
        else f"the query length varies from {low:,} to {high:,}{spread}."
    )
    trace = [
        {"call": n, "query_length": each.query_length, "kind": each.kind}
        for n, each in enumerate(calls, 1)
        if each.query_length
    ]
    columns = {
        "kind": ColumnFormat("Kind"),
        "query_length": ColumnFormat("Queries"),
        "key_length": ColumnFormat("Keys"),
        "heads": ColumnFormat("Heads"),
        "head_dim": ColumnFormat("Head dim"),
        "batch": ColumnFormat("Batch", detail=True),
        "calls": ColumnFormat("Calls"),
        "flops": ColumnFormat("Matrix", "GFLOP", digits=3),
        "first": ColumnFormat("First module", detail=True),
    }
    how = How(
        "cross: keys are not projections of what the queries are projections of; temporal: the length is the "
        "number of frames and follows it; causal: triangle only, or so declared by the module",
        source="Golden et al., arXiv 2312.14385 (sequence length per call)",
    )
    figure = lines(
        trace,
        "call",
        "query_length",
        "Attention call",
        "Query length (tokens)",
        series="kind",
        meanings={kind: _KINDS[kind] for kind in kinds},
        points=True,
        log_y=True,
    )
    table = Table(pa.Table.from_pylist(list(grouped.values())), columns)
    return Section("attention", "Which attention is which?", sentence, [figure], [table], how)


def _modules(made: OpProfile) -> Section:
    rows = made.by_module()
    # The deepest level that still fits a figure.
    depth = 1
    while sum(_depth(row["module"]) == depth + 1 for row in rows) in range(1, _MOST_MODULES + 1):
        depth += 1
    rows.sort(key=lambda row: -row["total_flops"])
    shown = [row for row in rows if _depth(row["module"]) == depth and row["total_flops"]] or rows
    largest = shown[0]
    share = largest["total_flops"] / made.flops if made.flops else 0.0
    sentence = f"{largest['module'] or 'The model itself'} has the largest part: {percent(share)} of the matrix FLOPs."
    drawn = [
        {"module": row["module"] or "(model)", "gflop": row["total_flops"] / 1e9}
        for row in shown[:_MOST_MODULES]
    ]
    columns = {
        "module": ColumnFormat("Module"),
        "type": ColumnFormat("Type"),
        **_COUNTS,
        "total_flops": ColumnFormat("With children", "GFLOP", digits=3),
    }
    scaled = [
        {
            **_scaled(row),
            "total_flops": row["total_flops"] / 1e9,
            "module": row["module"] or "(model)",
        }
        for row in rows[:20_000]
    ]
    table = Table(
        pa.Table.from_pylist(scaled),
        columns,
        "Own operators of each module; 'with children' includes those below it.",
        detail=True,
    )
    figure = bars(drawn, "module", "gflop", "Matrix FLOPs with children (GFLOP)")
    return Section("modules", "Where in the model?", sentence, [figure], [table])


def si(value: float, unit: str) -> str:
    """``"803.3 GFLOP"``."""
    for prefix, factor in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= factor:
            return f"{number(value / factor, 1)} {prefix}{unit}".rstrip()
    return f"{value:,.0f} {unit}".rstrip()


def _depth(path: str) -> int:
    return path.count(".") + 1 if path else 0


def _time(made: OpProfile) -> Section:
    timing = made.timing
    assert timing is not None
    sentence = (
        f"One pass takes {duration(timing.wall_s)} (median of {timing.runs}); {percent(timing.attributed)} of it is "
        f"inside operators, {duration(timing.residual_s)} is Python and dispatch; measuring adds "
        f"{percent(max(0.0, timing.overhead))}."
    )
    slowest: dict[tuple[str, str], dict[str, Any]] = {}
    for each in made.ops:
        row = slowest.setdefault(
            (each.op, each.module),
            {"op": each.op, "module": each.module, "calls": 0, "ms": 0.0},
        )
        row["calls"] += 1
        row["ms"] += 1e3 * (each.seconds or 0.0)
    rows = sorted(slowest.values(), key=lambda row: -row["ms"])[:20]
    total = 1e3 * (made.seconds or 0.0) or 1.0
    columns = {
        "op": ColumnFormat("Operator"),
        "module": ColumnFormat("Module"),
        "calls": ColumnFormat("Calls"),
        "ms": ColumnFormat("Time", "ms", digits=3),
        "share": ColumnFormat("Share", "%", digits=1),
    }
    table = pa.Table.from_pylist([{**row, "share": row["ms"] / total} for row in rows])
    how = How(
        "time of an operator: median over the runs of its wall time between dispatch and return",
        parameters={"threads": timing.threads, "load before": timing.load},
        notes="Plain and measured runs take turns. Overhead: fastest measured run / fastest plain run - 1.",
    )
    caption = "The 20 slowest pairs of operator and module."
    return Section(
        "time", "Where does the time go?", sentence, tables=[Table(table, columns, caption)], how=how
    )
