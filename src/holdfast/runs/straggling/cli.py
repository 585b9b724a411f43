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
            help="A folder of recorded events; a CSV file (rank, step, seconds); or the traces of "
            "torch.profiler, one a rank, or their folder.",
        ),
    ],
    run_id: Annotated[
        str | None,
        typer.Option("--run", metavar="ID", help="Which run, where the folder has several."),
    ] = None,
    within: Annotated[
        str | None,
        typer.Option(
            "--within",
            metavar="LABEL",
            help="Compare ranks with those of the same stage, or another label, only.",
        ),
    ] = None,
    false_alarm_rate: Annotated[
        float,
        typer.Option(
            "--false-alarm-rate",
            min=1e-6,
            max=0.2,
            help="Share of runs without a slow rank in which one may be named.",
        ),
    ] = 0.01,
    least_slowdown: Annotated[
        float,
        typer.Option(
            "--least-slowdown", min=0.0, help="Delays below this share of a step do not matter."
        ),
    ] = 0.01,
    max_reject_share: Annotated[
        float,
        typer.Option(
            "--max-reject-share",
            min=0.0,
            max=1.0,
            help="Share of unusable rows above which a CSV file is refused.",
        ),
    ] = 0.01,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write the result as a page.")
    ] = None,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
) -> None:
    """Which ranks slow everybody down, since when, what they share, and what it costs."""
    from holdfast.runs.straggling import terminal
    from holdfast.runs.straggling.scores import stragglers as run

    if html is not None and not html.parent.is_dir():
        raise InputError("there is no such folder to write to", code="not-found", path=html.parent)
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
