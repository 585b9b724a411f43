"""The command `holdfast runs stragglers`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holdfast.console import JsonOption, QuietOption, VerboseOption, emit, remark
from holdfast.errors import InputError


def stragglers(
    source: Annotated[
        list[Path],
        typer.Argument(
            metavar="SRC...",
            help="Folder of recorded events, CSV file (rank, step, seconds), or torch.profiler "
            "traces, one per rank, or their folder.",
        ),
    ],
    run_id: Annotated[
        str | None,
        typer.Option("--run", metavar="ID", help="Run id, if the folder contains several runs."),
    ] = None,
    within: Annotated[
        str | None,
        typer.Option(
            "--within",
            metavar="LABEL",
            help="Label, such as stage: compare only ranks with the same value.",
        ),
    ] = None,
    false_alarm_rate: Annotated[
        float,
        typer.Option(
            "--false-alarm-rate",
            min=1e-6,
            max=0.2,
            help="Maximum share of runs without a slow rank in which one is reported.",
        ),
    ] = 0.01,
    least_slowdown: Annotated[
        float,
        typer.Option(
            "--least-slowdown", min=0.0, help="Smallest delay to report, as a share of a step."
        ),
    ] = 0.01,
    max_reject_share: Annotated[
        float,
        typer.Option(
            "--max-reject-share",
            min=0.0,
            max=1.0,
            help="Maximum share of unusable rows in a CSV file.",
        ),
    ] = 0.01,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write an HTML report to FILE.")
    ] = None,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
) -> None:
    """Find slow ranks: since when they are slow, what they have in common, and what they cost."""
    from holdfast.runs.straggling import terminal
    from holdfast.runs.straggling.scores import stragglers as run

    if html is not None and not html.parent.is_dir():
        raise InputError("output folder not found", code="not-found", path=html.parent)
    found = run(
        source,
        run_id=run_id,
        within=within,
        false_alarm_rate=false_alarm_rate,
        least_slowdown=least_slowdown,
        max_reject_share=max_reject_share,
    )
    if html is not None:
        from holdfast.report import write
        from holdfast.runs.straggling.page import page

        write(page(found), html)
    emit(found, as_json, lambda result: terminal.stragglers(result, verbose))
    if html is not None:
        remark(f"report: {html}", quiet or as_json)
