"""The steps and the goodput of a run as files for TensorBoard, one point per step and figure."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.errors import InputError, MissingExtraError
from holdfast.runs.watching.lookout import Lookout
from holdfast.runs.watching.metrics import figures

if TYPE_CHECKING:
    from holdfast.runs.watching.step_summaries import StepSummary


@contextlib.contextmanager
def written(folder: Path, lookout: Lookout, origin_s: Callable[[], float]) -> Iterator[None]:
    """Write each step that the lookout takes while the block runs.

    Tags are ``step/...`` for what the ranks recorded of the step (medians over the ranks, tokens and
    samples of a rank) and ``run/...`` for the metrics of the run at its end, named as for Prometheus.

    Args:
        folder: of the files; one more per call, none is overwritten.
        lookout: takes the steps.
        origin_s: wall clock of run time 0, seconds since 1970.

    Raises:
        InputError: the folder cannot be written.
        MissingExtraError: tensorboardX is not installed.
    """
    try:
        from tensorboardX import SummaryWriter
    except ImportError as error:
        raise MissingExtraError("tensorboardX", "tensorboard") from error
    try:
        writer = SummaryWriter(str(folder))
    except OSError as error:
        raise InputError(
            "the files for TensorBoard cannot be written",
            code="unwritable",
            path=folder,
            found=error.strerror,
            remedy="name another folder with --tensorboard",
        ) from None

    def take(summary: StepSummary, at_s: float) -> None:
        of_step = {
            "seconds": summary.own_s,
            "data_wait_seconds": summary.data_wait_s,
            "tokens": summary.tokens,
            "samples": summary.samples,
        }
        points = {f"step/{name}": value for name, value in of_step.items() if value is not None}
        for figure in figures(lookout, at_s):
            if "" in figure.samples:  # those with a label of their own are about alarms
                points[f"run/{figure.name}"] = figure.samples[""]
        for tag, value in points.items():
            writer.add_scalar(tag, value, summary.step, walltime=origin_s() + at_s)

    lookout.on_step = take
    with contextlib.closing(writer):
        yield
