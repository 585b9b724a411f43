"""The options that commands of the fleet room share: the window, and what is assumed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holdfast.console import duration

StoreArgument = Annotated[
    Path, typer.Argument(metavar="STORE", help="The folder that `holdfast fleet ingest` wrote.")
]
SinceOption = Annotated[
    str | None,
    typer.Option(
        "--since",
        metavar="WHEN",
        help="Use only what happened after: 30d (before the end of the log) or an ISO time.",
    ),
]
CheckBeforeOption = Annotated[
    float,
    typer.Option(
        "--check-before",
        parser=duration,
        metavar="DURATION",
        help="A check explains an end at most this long after it fired.",
    ),
]
CheckAfterOption = Annotated[
    float,
    typer.Option(
        "--check-after",
        parser=duration,
        metavar="DURATION",
        help="... or at most this long before it fired.",
    ),
]
GraceOption = Annotated[
    float,
    typer.Option(
        "--preempt-grace",
        parser=duration,
        metavar="DURATION",
        help="Preemption grace time, for a QOS whose own is not in the store.",
    ),
]
SlackOption = Annotated[
    float,
    typer.Option(
        "--preempt-slack",
        parser=duration,
        metavar="DURATION",
        help="A preemptor starts at most grace + this after the end of its victim.",
    ),
]
CheckpointOption = Annotated[
    float,
    typer.Option(
        "--checkpoint",
        parser=duration,
        metavar="DURATION",
        help="Assumed checkpoint interval: a failure loses half of it.",
    ),
]
InitOption = Annotated[
    float,
    typer.Option(
        "--init",
        parser=duration,
        metavar="DURATION",
        help="Assumed unproductive time after each start.",
    ),
]
WriteOption = Annotated[
    float,
    typer.Option(
        "--write",
        parser=duration,
        metavar="DURATION",
        help="Time for which a checkpoint write stops the job.",
    ),
]
MinGpusOption = Annotated[
    int,
    typer.Option(
        "--min-gpus",
        min=0,
        help="Take the failure rate over attempts with more GPUs than this; 0: all.",
    ),
]
LongRunOption = Annotated[
    float,
    typer.Option(
        "--long-run",
        parser=duration,
        metavar="DURATION",
        help="Measure the ETTR of runs that spent at least this long on their nodes.",
    ),
]
ChainOption = Annotated[
    bool,
    typer.Option(
        "--chain-by-name",
        help="Chain attempts also across job ids, by user, name, directory and size.",
    ),
]
TaxonomyOption = Annotated[
    Path | None,
    typer.Option("--taxonomy", metavar="FILE", help="Your own check names and symptoms (TOML)."),
]
