"""`holdfast profile numerics`: the functions themselves, or what makes their arguments of options."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Literal

from holdfast.command import Answer, Integers, Positive, option, room
from holdfast.profile.ops.targets import refused

app = room(
    "numerics", "Numeric deviation: attention, any operator, invariance, weights, loss spikes."
)
track = room("track", "Weights of runs, tracked by a WeightTracker.")
HOME = "holdfast.profile.numerics"
about = "Measure how far attention deviates from float64, and why."
app.command(f"{HOME}.attention_error:attention", name="attention", help=about)


@app.command
def compare(
    target: Annotated[str, option(metavar="OPERATOR")],
    /,
    *,
    dtypes: Annotated[str, option(metavar="FORMAT,...")] = "bf16,fp16,fp32",
    length: Annotated[Sequence[int], Integers] = (),
    seeds: Positive = 5,
    forward_only: bool = False,
) -> Answer:
    """Compare implementations of an operator with float64; exit with 1 where one deviates too much.

    Args:
        target: attention, matmul, softmax, layer-norm, sum, or package.module:factory.
        dtypes: fp64, fp32, bf16, fp16.
        length: Lengths of the inputs.
        seeds: Number of random inputs per length.
        forward_only: Leave gradients out.
    """
    from holdfast.profile.numerics.comparing import compare as run
    from holdfast.profile.numerics.operators import suite

    operator = suite(target)
    if length and "length" not in inspect.signature(operator.inputs).parameters:
        raise refused("the inputs have no length", "unsupported", "--length", target)
    grid = [{"length": each} for each in length] or [{}]
    options = {"dtypes": dtypes.split(","), "grid": grid, "seeds": seeds, "name": target}
    return run(operator.implementations, operator.inputs, gradients=not forward_only, **options)


@app.command
def invariance(
    target: Annotated[str, option(metavar="OPERATOR")],
    /,
    *,
    dtype: Literal["fp64", "fp32", "bf16", "fp16"] = "fp32",
    sizes: Annotated[Sequence[int], Integers] = (1, 2, 3, 16),
    runs: Positive = 5,
    order_of: Annotated[int, option(at_least=0, at_most=256, metavar="N")] = 0,
) -> Answer:
    """Find what changes the bits of an operator: batch, tile, run; and the order of its sums.

    Args:
        target: attention, matmul, softmax, layer-norm, sum, or package.module:factory.
        dtype: Format of the inputs.
        sizes: Sizes of the slices that are compared with the whole.
        runs: Repetitions on the same inputs.
        order_of: Also find the order in which the operator adds N numbers (matmul, sum).
    """
    import torch

    from holdfast.profile.numerics.bitwise import invariance as run
    from holdfast.profile.numerics.comparing import DTYPES, in_format
    from holdfast.profile.numerics.operators import suite
    from holdfast.profile.numerics.summation import summation_order

    operator = suite(target)
    if order_of and not operator.sums:
        expected = "an operator with sums: matmul, sum, or a factory that gives them"
        raise refused("no sums to look at", "unsupported", "--order-of", target, expected)
    drawn = operator.inputs(torch.Generator().manual_seed(0))
    inputs = [in_format(x, DTYPES[dtype]) for x in drawn]
    options = {"dimensions": operator.dimensions, "sizes": sizes, "runs": runs, "name": target}
    result = run(operator.implementations, inputs, **options)
    if order_of:
        orders = {n: summation_order(add, order_of, dtype) for n, add in operator.sums.items()}
        result = replace(result, orders=orders)
    return result


about = "Find loss spikes in a recorded curve."
app.command(f"{HOME}.spike_report:spikes", name="spikes", help=about)
app.command(track)
about = "Compare the weights of two runs, from their sketches or from two checkpoints."
track.command(f"{HOME}.weights:track_diff", name="diff", help=about)
