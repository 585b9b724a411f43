"""`holdfast profile`: the commands, each with the function that it calls."""

from __future__ import annotations

from holdfast.command import room
from holdfast.profile.numerics.cli import app as numerics

app = room(
    "profile", "Where the FLOPs, bytes and time of a model go, and how far its numbers deviate."
)
app.command(
    "holdfast.profile.ops.workloads:ops",
    name="ops",
    help="Count the FLOPs, bytes and attention calls of a model; on the CPU also measure its time.",
)
app.command(
    "holdfast.profile.ops.workloads:sweep",
    name="sweep",
    help="Profile a model at several sizes: how its cost grows, and what fused attention saves.",
)
app.command(
    "holdfast.profile.ops.fewer_bits:quantization",
    name="quantization",
    help="Score and time a small language model at several levels of quantization on this machine's CPU.",
)
app.command(numerics)
