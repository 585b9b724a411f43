"""Profile a model: count one forward pass, name its attention, time it where it really runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from holdfast.profile.ops.hardware import Hardware, hardware
from holdfast.profile.ops.lineage import classify_by_frames
from holdfast.profile.ops.recording import Recorder
from holdfast.profile.ops.result import OpProfile
from holdfast.profile.ops.running import ATTENTION, DEVICES, Workload, count, describe
from holdfast.profile.ops.targets import choice
from holdfast.profile.ops.timing import measure


def profile(
    module: nn.Module | Workload,
    *args: Any,
    kwargs: Mapping[str, Any] | None = None,
    device: str = "meta",
    attention: str = "fused",
    machine: str | Hardware | None = None,
    runs: int = 5,
    name: str = "",
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

    Raises:
        InputError: ``unknown-name``; ``invalid-value`` for inputs that the model refuses;
            ``data-dependent``.
    """
    work = module
    if not isinstance(work, Workload):
        work = Workload(work, args, dict(kwargs or {}), name or type(module).__name__)
    choice(device, DEVICES, "device")
    choice(attention, ("fused", *ATTENTION), "attention")
    inputs = describe(work)
    parameters = list(work.module.parameters())
    recorder, place = count(work, device, attention)
    _name_temporal(work, recorder)
    timing = measure(work, recorder, attention, runs) if device == "cpu" else None
    if not isinstance(machine, Hardware):
        machine = hardware(machine or ("this" if device == "cpu" else "h100-sxm"))
    state = work.state().values()
    return OpProfile(
        name=work.name,
        device=place,
        implementation=attention,
        parameters=sum(each.numel() for each in parameters),
        parameter_bytes=sum(each.nbytes for each in parameters),
        ops=recorder.ops,
        attention=recorder.attention,
        peak_bytes=sum(each.nbytes for each in state) + recorder.peak_bytes,
        inputs_text=inputs,
        notes=[*work.notes, *_masked(recorder)],
        machine=machine,
        timing=timing,
    )


def _masked(recorder: Recorder) -> list[str]:
    """What a reader should know about causal attention with a mask of unknown content."""
    calls = [a for a in recorder.attention if a.kind == "causal" and a.fused and not a.causal]
    full = sum(a.query_length > 1 for a in calls)
    text = f"{full} causal attention calls pass a mask, not is_causal, and are counted in full."
    return [text] * bool(full)


def _name_temporal(work: Workload, recorder: Recorder) -> None:
    """Tell temporal attention from spatial by running once more with one more frame, without data."""
    videos = [each for each in work.tensors() if each.dim() == 5 and each.is_floating_point()]
    if not videos or not recorder.attention:
        return
    frames = videos[0].shape[2]  # [batch, channels, frames, height, width]

    def longer(each: Tensor) -> Tensor:
        if each.dim() != 5 or each.shape[2] != frames:
            return each.to("meta")
        shape = (*each.shape[:2], frames + 1, *each.shape[3:])
        return torch.empty(shape, dtype=each.dtype, device="meta")

    args, kwargs = work.mapped(longer)
    # A model that takes a fixed number of frames keeps the kinds that the names of its modules suggest.
    with suppress(Exception):
        probe, _ = count(Workload(work.module, args, kwargs), "meta", "fused")
        classify_by_frames(recorder.attention, probe.attention, frames)


def combine(parts: Sequence[tuple[str, OpProfile, int]], name: str) -> OpProfile:
    """One profile of several components, each called a number of times, such as the steps of a pipeline.

    Args:
        parts: component, its profile, calls.
        name: of the whole.
    """
    ops, attention = [], []
    for label, part, repeats in parts:
        calls = [_repeated(call, label, repeats) for call in part.attention]
        attention += [replace(call, op=call.op + len(ops)) for call in calls]
        ops += [_repeated(op, label, repeats) for op in part.ops]
    profiles = {id(part): part for _, part, _ in parts}.values()
    return OpProfile(
        name=name,
        device=parts[0][1].device,
        implementation=parts[0][1].implementation,
        parameters=sum(part.parameters for part in profiles),
        parameter_bytes=sum(part.parameter_bytes for part in profiles),
        ops=ops,
        attention=attention,
        peak_bytes=max(part.peak_bytes - part.parameter_bytes for part in profiles)
        + sum(part.parameter_bytes for part in profiles),
        inputs_text="; ".join(f"{label} x {n}: {part.inputs_text}" for label, part, n in parts),
        notes=[note for part in profiles for note in part.notes],
        machine=parts[0][1].machine,
    )


def _repeated(call: Any, label: str, repeats: int) -> Any:
    """An operator or attention call as a part of a component that is called a number of times."""
    module = f"{label}.{call.module}".rstrip(".")
    return replace(call, module=module, repeats=call.repeats * repeats)
