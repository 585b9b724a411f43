"""`holdfast sparse`: each command calls the function of the same name and returns its result."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from holdfast.command import Answer, Integers, Output, Positive, Share, option, room
from holdfast.errors import InputError

app = room("sparse", "Pruned networks that are smaller and faster: schedules, packing, kernels.")

Patterns = Annotated[tuple[str, ...], option(metavar="PATTERN", negative="")]


@app.command
def plan(
    dense: Annotated[Path, option(metavar="MODEL")],
    /,
    *,
    epochs: Positive,
    steps_per_epoch: Positive,
    freq: Positive = 100,
    percentile: Share = 0.9,
    layout: Literal["csr", "bsr16x1"] = "csr",
    include: Patterns = (),
    exclude: Patterns = (),
) -> Answer:
    """Show the published pruning schedule for a model, and the sparsity that it would give.

    Args:
        dense: Safetensors file of a model trained without pruning.
        epochs: Epochs of the run to be pruned.
        steps_per_epoch: Optimizer steps per epoch.
        freq: Optimizer steps between updates of the masks.
        percentile: Share of the dense weights below the final threshold, per layer type.
        layout: Prune single weights (csr) or blocks of 16 rows by one column (bsr16x1).
        include: Weights of linear layers, by name or pattern; needed where a matrix could be an embedding.
        exclude: Weights to leave out, such as embeddings, by name or pattern.
    """
    from holdfast.sparse.schedules import plan as run
    from holdfast.sparse.storage import read

    block = 16 if layout == "bsr16x1" else 1
    return run(
        read(dense),
        epochs,
        steps_per_epoch,
        freq=freq,
        share=percentile,
        block=block,
        include=include,
        exclude=exclude,
    )


@app.command
def pack(
    model: Annotated[Path, option(metavar="MODEL")],
    /,
    *,
    output: Output,
    layout: Literal["auto", "csr", "bsr16x1"] = "auto",
    batch: Positive = 1,
) -> Answer:
    """Pack the weights of a pruned model.

    Args:
        model: Safetensors file with the dense state dict of a pruned model.
        output: Packed file to write.
        layout: Layout of every weight; auto times each layer and keeps it dense where dense is faster.
        batch: Vectors or sequences that auto measures with.
    """
    from holdfast.sparse.storage import pack_file

    return pack_file(model, output, layout, batch)


@app.command
def inspect(model: Annotated[Path, option(metavar="MODEL")], /) -> Answer:
    """Show how sparse the weights of a model are and how they are stored; verify a packed file.

    Args:
        model: Safetensors file, packed or not.
    """
    from holdfast.sparse.storage import inspect as run

    return run(model)


@app.command
def bench(
    *,
    shape: Annotated[str, option(metavar="ROWSxCOLUMNS")] = "7680x2560",
    sparsity: Share = 0.9,
    batch: Annotated[Sequence[int], Integers] = (1, 16),
    repeats: Positive = 7,
) -> Answer:
    """Measure packed products on this machine beside dense and sparse products of torch and scipy.

    Args:
        shape: Rows (outputs) and columns (inputs) of the matrix.
        sparsity: Share of zeros.
        batch: Numbers of vectors per product.
        repeats: Samples of each contender.
    """
    from holdfast.sparse.benchmark import bench as run

    if not re.fullmatch(r"[1-9]\d*x[1-9]\d*", shape):
        problem = "invalid --shape"
        raise InputError(
            problem, code="invalid-value", place="--shape", found=shape, expected="7680x2560"
        )
    rows, columns = map(int, shape.split("x"))
    return run(rows, columns, sparsity, batch, repeats)
