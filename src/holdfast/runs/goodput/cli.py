"""The command `holdfast runs report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holdfast.console import JsonOption, QuietOption, VerboseOption, duration, emit, remark


def report(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder that was passed to RunRecorder.")
    ],
    run: Annotated[
        str | None,
        typer.Option("--run", metavar="ID", help="Run id, if DIR contains several runs."),
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write an HTML report to FILE.")
    ] = None,
    fleet: Annotated[
        Path | None,
        typer.Option("--fleet", metavar="STORE", help="Fleet store to take the failure rate from."),
    ] = None,
    rate_per_node_day: Annotated[
        float | None,
        typer.Option(
            "--rate-per-node-day",
            help="Failures per node and day (default: from --fleet, else from the run itself).",
        ),
    ] = None,
    window: Annotated[
        float | None,
        typer.Option(
            "--window",
            parser=duration,
            metavar="DURATION",
            help="Length of the rolling window (default: a tenth of the run).",
        ),
    ] = None,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
) -> None:
    """Report where a run's wall time went, its ETTR, the expected ETTR and the best checkpoint interval.

    The failure rate of the expected ETTR is the one given, else that of the fleet's log, else the run's
    own interruptions.
    """
    from holdfast.runs.goodput import terminal
    from holdfast.runs.goodput.page import report as make

    made = make(
        folder,
        run,
        html=html,
        rate_per_node_day=rate_per_node_day,
        fleet=fleet,
        window_s=window,
    )
    emit(made, as_json, lambda result: terminal.reported(result, verbose))
    if html is not None:
        remark(f"report: {html}", quiet or as_json)
