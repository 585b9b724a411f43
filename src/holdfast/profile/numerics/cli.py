"""`holdfast profile numerics`: commands that call the function of the same name.

`spikes` and `track diff` are the functions themselves.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

from holdfast.command import Answer, Positive, option
from holdfast.profile.numerics.sections import invalid

Numbers = Annotated[str, option(metavar="N,...")]


def attention(
    *,
    length: Numbers = "4096",
    block: Numbers = "64",
    inputs: Annotated[str, option(metavar="KIND")] = "uniform",
    mode: Literal["all-rounded", "kernel"] = "all-rounded",
    dtype: str = "bf16",
    seeds: Positive = 5,
    head_dim: Positive = 64,
    rows: Positive = 1024,
    order: Literal["forward", "reverse", "shuffled"] = "forward",
    accumulate: str = "fp64",
    magnitude: float = 1.0,
) -> Answer:
    """Measure how far flash attention and its baseline deviate from float64, and which step causes it.

    Args:
        length: Keys; several lengths make a grid, of which the first is the headline.
        block: Keys per block of flash attention; several as for length.
        inputs: uniform, gaussian, or a safetensors file with q, k, v (its heads are the samples).
        mode: Round every step, or only what a fused kernel stores (float32 on chip).
        dtype: fp64, fp32, tf32, bf16, fp16, fp8_e4m3 or fp8_e5m2.
        seeds: Number of random inputs.
        head_dim: Columns of q, k and v.
        rows: Queries that are computed.
        order: Order in which blocks are read.
        accumulate: Format of the running sums inside a step (fp64: each sum is rounded once).
        magnitude: Factor on random inputs.
    """
    from holdfast.profile.numerics.attention_error import attention as run

    return run(
        _numbers("--length", length),
        _numbers("--block", block),
        inputs=inputs,
        mode=mode,
        dtype=dtype,
        seeds=seeds,
        head_dim=head_dim,
        rows=rows,
        order=order,
        accumulate=accumulate,
        magnitude=magnitude,
    )


def compare(
    target: Annotated[str, option(metavar="OPERATOR")],
    /,
    *,
    dtypes: Annotated[str, option(metavar="FORMAT,...")] = "bf16,fp16,fp32",
    length: Numbers = "",
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
    from holdfast.profile.numerics.operators import points, suite

    operator = suite(target)
    grid = points(operator, _numbers("--length", length))
    kinds = dtypes.split(",")
    options = {"dtypes": kinds, "grid": grid, "seeds": seeds, "name": target}
    return run(operator.implementations, operator.inputs, gradients=not forward_only, **options)


def invariance(
    target: Annotated[str, option(metavar="OPERATOR")],
    /,
    *,
    dtype: Literal["fp64", "fp32", "bf16", "fp16"] = "fp32",
    sizes: Numbers = "1,2,3,16",
    runs: Positive = 5,
    threads: Numbers = "1,2",
    order_of: Annotated[int, option(at_least=0, at_most=256, metavar="N")] = 0,
) -> Answer:
    """Find what changes the bits of an operator: batch, tile, run, threads; and the order of its sums.

    Args:
        target: attention, matmul, softmax, layer-norm, sum, or package.module:factory.
        dtype: Format of the inputs.
        sizes: Sizes of the slices that are compared with the whole.
        runs: Repetitions on the same inputs.
        threads: Numbers of threads to compare.
        order_of: Also find the order in which the operator adds N numbers (matmul, sum).
    """
    import torch

    from holdfast.profile.numerics.bitwise import invariance as run
    from holdfast.profile.numerics.comparing import DTYPES
    from holdfast.profile.numerics.operators import suite
    from holdfast.profile.numerics.summation import summation_order

    operator = suite(target)
    if order_of and not operator.sums:
        expected = "an operator with sums: matmul, sum, or a factory that gives them"
        raise invalid("no sums to look at", "unsupported", "--order-of", target, expected)
    drawn = operator.inputs(torch.Generator().manual_seed(0), **operator.grid[0])
    inputs = [x.to(DTYPES[dtype]) if x.is_floating_point() else x for x in drawn]
    result = run(
        operator.implementations,
        inputs,
        dimensions=operator.dimensions,
        sizes=_numbers("--sizes", sizes),
        runs=runs,
        threads=_numbers("--threads", threads),
        name=target,
    )
    if order_of:
        orders = {n: summation_order(add, order_of, dtype) for n, add in operator.sums.items()}
        result = replace(result, orders=orders)
    return result


def _numbers(place: str, text: str) -> list[int]:
    """Whole numbers of 1 or more, separated by commas."""
    parts = text.split(",") if text else []
    if not all(part.isdecimal() and int(part) for part in parts):
        raise invalid(f"invalid {place}", "invalid-value", place, text, "1024 or 1024,4096")
    return list(dict.fromkeys(map(int, parts)))
