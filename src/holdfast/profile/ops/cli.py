"""`holdfast profile`: each command calls the function of the same name and returns its result."""

from __future__ import annotations

from typing import Annotated, Literal

from holdfast.command import Answer, Positive, option, room
from holdfast.profile.numerics.cli import app as numerics

app = room(
    "profile", "Where the FLOPs, bytes and time of a model go, and how far its numbers deviate."
)

Device = Literal["meta", "fake", "cpu"]
Attention = Literal["fused", "math", "flash"]
Several = tuple[str, ...]


@app.command
def ops(
    target: str,
    /,
    *,
    input: Annotated[Several, option(metavar="SPEC")] = (),
    set: Annotated[Several, option(metavar="NAME=VALUE")] = (),
    device: Device = "meta",
    attention: Attention = "fused",
    hw: Annotated[str, option(metavar="NAME")] = "",
    steps: Positive = 1,
    runs: Positive = 5,
    strict: bool = False,
) -> Answer:
    """Count the FLOPs, bytes and attention calls of a model; on the CPU also measure its time.

    Args:
        target: package.module:factory, or suite:NAME (an unknown name lists them).
        input: Input as [NAME=]1x3x224x224[:DTYPE], or a TOML or JSON file; repeat for several.
        set: Argument of the factory or of the suite model (image_size=1024), or a side (S=224); repeatable.
        device: meta and fake need no weights and no data; cpu runs the model.
        attention: One fused kernel, separate products (math), or the kernel of a real run.
        hw: Hardware of the roofline, or 'this' (default: h100-sxm; on cpu: this).
        steps: Calls of the model, or of the parts of a pipeline that run once per step.
        runs: Measured runs on cpu.
        strict: Exit with 1 if an operator has no formula.
    """
    from dataclasses import replace

    from holdfast.profile.ops.inputs import read_settings
    from holdfast.profile.ops.workloads import profile_target

    result = profile_target(
        target,
        input,
        read_settings(set),
        steps=steps,
        device=device,
        attention=attention,
        machine=hw or None,
        runs=runs,
    )
    return replace(result, strict=strict)


@app.command
def sweep(
    target: str,
    /,
    *,
    over: Annotated[str, option(metavar="NAME=N,...")],
    input: Annotated[Several, option(metavar="SPEC")] = (),
    set: Annotated[Several, option(metavar="NAME=VALUE")] = (),
    device: Device = "meta",
    attention: Annotated[str, option(metavar="NAME,...")] = "fused",
    hw: Annotated[str, option(metavar="NAME")] = "",
    runs: Positive = 3,
) -> Answer:
    """Profile a model at several sizes, fit how its cost grows, and compare implementations of attention.

    Args:
        target: package.module:factory, or suite:NAME.
        over: Setting or side that varies, such as image_size=256,512,1024 or S=64,128.
        input: Input as [NAME=]1x3xSxS[:DTYPE], or a TOML or JSON file; repeat for several.
        set: Argument of the factory or of the suite model, or a side of an input; repeatable.
        device: meta and fake need no weights and no data; cpu measures time and peak memory.
        attention: Implementations to compare: fused, math; on cpu also flash.
        hw: Hardware of the roofline, or 'this' (default: h100-sxm; on cpu: this).
        runs: Measured runs per point on cpu.
    """
    from holdfast.profile.ops.inputs import read_settings, read_values
    from holdfast.profile.ops.sweeps import sweep as run
    from holdfast.profile.ops.workloads import resolve

    name, values = read_values(over)
    settings = read_settings(set)
    return run(
        lambda value: resolve(target, input, {**settings, name: value}),
        name,
        values,
        device=device,
        attention=tuple(dict.fromkeys(attention.split(","))),
        machine=hw or None,
        runs=runs,
        name=target,
    )


@app.command
def quantization(
    target: str = "",
    /,
    *,
    levels: Annotated[str, option(metavar="NAME,...")] = "fp32,bf16,fp16,int8-dynamic,int4-weight",
    new_tokens: Positive = 16,
    steps: Positive = 400,
) -> Answer:
    """Score and time a small language model at several levels of quantization on this machine's CPU.

    Args:
        target: package.module:factory that returns a model, token sequences and the number of answer tokens
            (default: a small Llama, trained for some seconds to reverse sequences).
        levels: Levels to measure beside fp32: bf16, fp16, int8-dynamic, int4-weight.
        new_tokens: Tokens to decode for the speed.
        steps: Training steps of the small model.
    """
    from holdfast.profile.ops.quantization import quantization as run

    return run(target, levels.split(","), new_tokens=new_tokens, steps=steps)


app.command(numerics)
