"""Join a torch.profiler trace of a real run with counted operators: by operator and shapes of its inputs.

    operators of the trace -> the counted operator with the same inputs -> its kernels, or its own time

Time on a GPU is that of the kernels that an operator launched; on a CPU that of the operator itself. What
no counted operator explains stays visible: kernels by name, operators of a CPU by theirs.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.opening import open_source
from holdfast.profile.ops.formulas import RULES
from holdfast.profile.ops.recording import OpCall
from holdfast.profile.ops.targets import refused

# Classes whose operators differ between devices for the same work, as do products (mm and addmm).
_FAMILIES = ("conv", "batch_norm", "recurrent")
_KERNELS = ("kernel", "gpu_memcpy", "gpu_memset")

# Name or family of an operator, shapes of its inputs.
_Signature = tuple[str, tuple[tuple[int, ...], ...]]


@dataclass(frozen=True)
class TraceJoin:
    """What a trace says of counted operators.

    Attributes:
        path: the trace.
        device: gpu: kernels were timed; cpu: operators.
        seconds: of all kernels, or all operators, in the whole trace.
        joined_s: share of it that belongs to counted operators, in seconds.
        passes: calls in the trace for each counted call, the median operator.
        unknown: name, launched_by (operator), calls, seconds: what no counted operator explains.
        missing: operators that were counted and are not in the trace: op, calls.
    """

    path: Path
    device: str
    seconds: float
    joined_s: float
    passes: float
    unknown: list[dict[str, Any]]
    missing: list[dict[str, Any]]


@dataclass(eq=False)
class _Event:
    """An operator of the trace; times in microseconds."""

    name: str
    end: float
    duration: float
    signature: _Signature
    parent: _Event | None = None
    inside: float = 0.0
    kernels: list[tuple[str, float]] = field(default_factory=list)


def join(path: str | Path, ops: Sequence[OpCall]) -> TraceJoin:
    """Set the seconds of counted operators from a trace; of views that it does not have they are 0.

    Args:
        path: Chrome trace of torch.profiler with ``record_shapes=True``; may be compressed.
        ops: of one pass of the same model on the same inputs; changed in place.

    Raises:
        InputError: ``invalid-syntax`` or ``no-data`` for what is not such a trace.
    """
    path = Path(path)
    events, device = _read(path)
    counted = defaultdict[_Signature, list[OpCall]](list)
    for op in ops:
        counted[_signature(op.op, op.inputs)].append(op)
    # The outermost operator that was counted has the time of all that is inside it.
    found = defaultdict[_Signature, dict[int, float]](dict)
    unknown = defaultdict[tuple[str, str], list[float]](list)
    for event in events:
        owner = None
        above: _Event | None = event
        while above is not None:
            owner = above if above.signature in counted else owner
            above = above.parent
        own = event.kernels if device == "gpu" else [(event.name, event.duration - event.inside)]
        for name, duration in own:
            if owner is None:
                unknown[name, event.name].append(duration / 1e6)
            else:
                times = found[owner.signature]
                times[id(owner)] = times.get(id(owner), 0.0) + duration / 1e6
        if owner is event:
            found[event.signature].setdefault(
                id(event), 0.0
            )  # its kernels may be those of its parts
    ratios = sorted(len(times) / len(counted[signature]) for signature, times in found.items())
    if not ratios:
        raise refused("no operator of the model is in the trace", "no-data", path=path)
    passes, missing = ratios[len(ratios) // 2], Counter[str]()
    for signature, calls in counted.items():
        times = found.get(signature)
        for call in calls:
            if times:
                call.seconds = sum(times.values()) / passes / len(calls)
            elif not (call.bytes or call.flops):
                call.seconds = 0.0
            else:
                missing[call.op] += call.repeats
    joined = sum(sum(times.values()) for times in found.values())
    rest = [
        {"name": name, "launched_by": op, "calls": len(times), "seconds": sum(times)}
        for (name, op), times in unknown.items()
    ]
    rest.sort(key=lambda row: -row["seconds"])
    total = joined + sum(row["seconds"] for row in rest)
    return TraceJoin(
        path,
        device,
        total,
        joined,
        passes,
        rest,
        [{"op": op, "calls": calls} for op, calls in missing.items()],
    )


def _read(path: Path) -> tuple[list[_Event], str]:
    """Operators in the order of their starts, nested by time, with their kernels; and the device."""
    with open_source(path) as source:
        try:
            content = json.load(source)
            rows = content["traceEvents"] if isinstance(content, dict) else content
            spans = [row for row in rows if row.get("ph") == "X"]
            return _nested(spans)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise refused(
                "not a Chrome trace",
                "invalid-syntax",
                None,
                str(error),
                "the file of export_chrome_trace",
                path=path,
            ) from error


def _nested(spans: Sequence[Mapping[str, Any]]) -> tuple[list[_Event], str]:
    by_thread = defaultdict[Any, list[Mapping[str, Any]]](list)
    for row in spans:
        if row.get("cat") == "cpu_op":
            by_thread[row["pid"], row["tid"]].append(row)
    events, by_id = list[_Event](), dict[Any, _Event]()
    for rows in by_thread.values():
        open_events = list[_Event]()
        # Of two that start together the longer one is outside.
        for row in sorted(rows, key=lambda row: (row["ts"], -row["dur"])):
            while open_events and open_events[-1].end <= row["ts"]:
                open_events.pop()
            given = row.get("args", {})
            dims = tuple(_shapes(given.get("Input Dims", [])))
            name = row["name"].replace("::", ".")
            event = _Event(name, row["ts"] + row["dur"], row["dur"], _signature(name, dims))
            if open_events:
                event.parent = open_events[-1]
                event.parent.inside += event.duration
            open_events.append(event)
            events.append(event)
            by_id[given.get("External id")] = event
    launches = {
        row["args"].get("correlation"): row["args"].get("External id")
        for row in spans
        if row.get("cat") in ("cuda_runtime", "cuda_driver", "hip_runtime") and "args" in row
    }
    kernels = [row for row in spans if row.get("cat") in _KERNELS]
    stray = _Event("unknown", 0.0, 0.0, ("", ()))
    for row in kernels:
        given = row.get("args", {})
        number = given.get("External id", launches.get(given.get("correlation")))
        by_id.get(number, stray).kernels.append((row["name"], row["dur"]))
    return [*events, *([stray] if stray.kernels else [])], "gpu" if kernels else "cpu"


def _shapes(value: Any) -> Iterator[tuple[int, ...]]:
    """Shapes of tensors, those of lists too; scalars have none."""
    if value and all(type(each) is int for each in value):
        yield tuple(value)
    elif isinstance(value, list):
        for each in value:
            yield from _shapes(each)


def _signature(name: str, shapes: Sequence[tuple[int, ...]]) -> _Signature:
    """What a counted operator and one of a trace have in common."""
    rule = RULES.get(name)
    family = rule.op_class if rule else ""
    if "scaled_dot_product" in name:
        # Every kernel starts with queries, keys and values, backward with the gradient before them.
        backward = name.endswith("_backward")
        return f"attention {backward}", tuple(shapes[: 3 + backward])
    if name == "aten._fused_adamw_":  # one call for all parameters, which are counted one by one
        return name, ()
    if family in ("linear", "matmul"):
        # With or without a bias it is the same product.
        return "product", tuple(shape for shape in shapes if len(shape) > 1)[-2:]
    if family in _FAMILIES:
        return family, tuple(shapes[:2])
    return name.removesuffix("_"), tuple(shape for shape in shapes if shape)
