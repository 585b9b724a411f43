"""Profile a model: count one forward pass, name its attention, time it where it really runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from holdfast.profile.ops.hardware import Hardware, hardware
from holdfast.profile.ops.lineage import classify_by_axes
from holdfast.profile.ops.recording import Recorder
from holdfast.profile.ops.result import OpProfile
from holdfast.profile.ops.running import ATTENTION, DEVICES, Workload, count, describe, probe
from holdfast.profile.ops.targets import choice
from holdfast.profile.ops.timing import measure
from holdfast.profile.ops.traces import join


def profile(
    module: nn.Module | Workload,
    *args: Any,
    kwargs: Mapping[str, Any] | None = None,
    device: str = "meta",
    attention: str = "fused",
    machine: str | Hardware | None = None,
    runs: int = 5,
    name: str = "",
    trace: str | Path | None = None,
    training: bool = False,
) -> OpProfile:
    """FLOPs, bytes and attention calls of one forward pass; on the CPU also the time.

    Args:
        module: the model (or a workload, which has its inputs); without data (``meta``, ``fake``) its
            weights are not read or changed.
        args: positional inputs; tensors on the device meta will do.
        kwargs: named inputs.
        device: meta (no data; fake tensors or the CPU where the model needs more, which a note says), fake,
            or cpu.
        attention: fused counts `scaled_dot_product_attention` as one kernel; math as separate products and
            softmax; flash is the kernel of a real run.
        machine: ceilings of the roofline: a name in `HARDWARE`, or ``"this"``; default: this machine for
            cpu, else h100-sxm.
        runs: measured runs on cpu.
        name: for titles; default: the class of the module.
        trace: of torch.profiler, with shapes, of a real run on the same inputs: its times are set beside
            the counts.
        training: count the backward pass of the outputs and a step of AdamW, too; without data alone.

    Raises:
        InputError: ``unknown-name``; ``invalid-value`` for inputs that the model refuses;
            ``data-dependent``.
    """
    work = module
    if not isinstance(work, Workload):
        work = Workload(work, args, dict(kwargs or {}), name or type(module).__name__)
    choice(device, DEVICES, "device")
    choice(attention, ("fused", *ATTENTION), "attention")
    work.training = training
    inputs = describe(work)
    parameters = list(work.module.parameters())
    buffers = [(each, each.clone()) for each in work.module.buffers()]
    try:
        recorder, place = count(work, device, attention)
        _name_temporal(work, recorder, place)
        timing = measure(work, recorder, attention, runs) if device == "cpu" and not trace else None
    finally:  # running means, for example
        for each, value in buffers:
            each.detach().copy_(value)
    if not isinstance(machine, Hardware):
        machine = hardware(machine or ("this" if device == "cpu" else "h100-sxm"))
    return OpProfile(
        name=work.name,
        device=place,
        implementation=attention,
        parameters=sum(each.numel() for each in parameters),
        parameter_bytes=sum(each.nbytes for each in parameters),
        ops=recorder.ops,
        attention=recorder.attention,
        peak_bytes=sum(each.nbytes for each in work.state().values())
        + recorder.optimizer_bytes
        + recorder.peak_bytes,
        gradient_bytes=recorder.gradient_bytes,
        optimizer_bytes=recorder.optimizer_bytes,
        inputs_text=inputs,
        notes=[*work.notes, *_noted(recorder)],
        machine=machine,
        timing=timing,
        trace=join(trace, recorder.ops) if trace else None,
    )


def _noted(recorder: Recorder) -> list[str]:
    """What a reader should know about masks of unknown content, and autocast without effect."""
    notes = {
        "causal attention calls pass a mask, not is_causal, or are written as separate operators, and "
        "are counted in full.": sum(
            a.kind == "causal" and not (a.causal or a.window) and a.query_length > 1
            for a in recorder.attention
        ),
        "attention calls count the pairs inside the window that the model declares; a kernel that only "
        "gets a mask computes the whole square.": sum(a.window > 0 for a in recorder.attention),
        "attention calls pass a mask, and are counted in full: also the pairs that it hides.": (
            recorder.masked
        ),
        "calls were counted on another device than that of their autocast, which casts nothing there: "
        "their types are those without it.": recorder.uncast,
    }
    return [f"{count} {note}" for note, count in notes.items() if count]


def _name_temporal(work: Workload, recorder: Recorder, place: str) -> None:
    """Tell temporal attention from spatial by runs on longer videos, without data, axis by axis."""
    videos = [each for each in work.tensors() if each.dim() == 5 and each.is_floating_point()]
    if not videos or not recorder.attention:
        return
    shape, calls = videos[0].shape, len(recorder.attention)
    probes = {}
    for axis in range(1, 5):
        for length in (2 * shape[axis], shape[axis] + 1):
            args, kwargs = work.mapped(partial(_longer, axis=axis, old=shape[axis], new=length))
            result = probe(Workload(work.module, args, kwargs), place)
            if result and len(result.attention) == calls:
                probes[axis] = result.attention
                break
        if axis in (2, 4) and classify_by_axes(recorder.attention, probes, shape, axis == 4):
            return
    work.notes.append(
        "Longer videos do not show which axis holds the frames: temporal and spatial attention are "
        "told apart by the names of modules."
    )


def _longer(each: Tensor, axis: int, old: int, new: int) -> Tensor:
    if each.dim() != 5 or each.shape[axis] != old:
        return each.to("meta")
    shape = (*each.shape[:axis], new, *each.shape[axis + 1 :])
    return torch.empty(shape, dtype=each.dtype, device="meta")


def combine(parts: Sequence[tuple[str, OpProfile, int]], name: str) -> OpProfile:
    """One profile of several components, each called a number of times, such as the steps of a pipeline.

    Args:
        parts: component, its profile, calls.
        name: of the whole.
    """
    ops, attention = [], []
    for label, part, repeats in parts:
        calls = [_repeated(call, label, repeats) for call in part.attention]
        attention += [
            replace(call, ops=tuple(index + len(ops) for index in call.ops)) for call in calls
        ]
        ops += [_repeated(op, label, repeats) for op in part.ops]
    profiles = {id(part): part for _, part, _ in parts}.values()
    held = ("parameters", "parameter_bytes", "gradient_bytes", "optimizer_bytes")
    sums: dict[str, Any] = {each: sum(getattr(part, each) for part in profiles) for each in held}
    active = max(part.peak_bytes - part.parameter_bytes for part in profiles)
    return replace(
        parts[0][1],
        name=name,
        ops=ops,
        attention=attention,
        peak_bytes=active + sums["parameter_bytes"],
        inputs_text="; ".join(f"{label} x {n}: {part.inputs_text}" for label, part, n in parts),
        notes=[note for part in profiles for note in part.notes],
        timing=None,
        trace=None,
        **sums,
    )


def _repeated(call: Any, label: str, repeats: int) -> Any:
    """An operator or attention call as a part of a component that is called a number of times."""
    module = f"{label}.{call.module}".rstrip(".")
    return replace(call, module=module, repeats=call.repeats * repeats)
