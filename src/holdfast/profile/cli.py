"""`holdfast profile`: each command calls the function of the same name and returns its result."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from holdfast.command import Answer, Positive, option, room

app = room("profile", "Where the FLOPs, bytes and time of a model go, and how far its numbers deviate.")

Device = Literal["meta", "fake", "cpu", "cuda"]
Attention = Literal["fused", "math", "flash", "efficient", "cudnn"]
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
    trace: Annotated[Path | None, option(metavar="FILE")] = None,
    strict: bool = False,
) -> Answer:
    """Count the FLOPs, bytes and attention calls of a model; on cpu or cuda also measure its time.

    Args:
        target: package.module:factory, or suite:NAME (suite:list prints the names).
        input: Input as [NAME=]1x3x224x224[:DTYPE], or a TOML, JSON or YAML file; repeat for several.
        set: Argument of the factory or of the suite model (image_size=1024), or a side (S=224); repeatable.
        device: meta and fake need no weights and no data; cpu and cuda run the model.
        attention: One fused kernel, separate products (math), or the kernel of a real run.
        hw: Hardware of the roofline, or 'this' (default: h100-sxm; on cpu: this).
        steps: Calls of the model, or of the parts of a pipeline that run once per step.
        runs: Measured runs on cpu or cuda.
        trace: Write a Chrome trace of one measured run.
        strict: Exit with 1 if an operator has no formula.
    """
    from dataclasses import replace

    from holdfast.profile.ops.workloads import profile_target, read_settings

    made = profile_target(
        target,
        input,
        read_settings(set),
        steps=steps,
        device=device,
        attention=attention,
        machine=hw or None,
        runs=runs,
        trace=trace,
    )
    return replace(made, strict=strict)
