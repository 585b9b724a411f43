"""The command `holdfast runs hang`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holdfast.console import JsonOption, QuietOption, VerboseOption, emit, remark


def hang(
    places: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR|FILE...",
            help="Flight Recorder dumps of all ranks (JSON or pickle), or folders with them.",
        ),
    ],
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write an HTML report to FILE.")
    ] = None,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
) -> None:
    """Find the ranks that caused a hang, from Flight Recorder dumps.

    Reads the dumps of PyTorch's Flight Recorder (NCCL or gloo): one file per rank, with the rank in its
    name. Pickles are read as data, never executed.
    """
    from holdfast.runs.flight import terminal
    from holdfast.runs.flight.verdict import hang as judged

    found = judged(*places)
    emit(found, as_json, lambda result: terminal.rendered(result, verbose))
    if html is not None:
        from holdfast.report import write
        from holdfast.runs.flight.sections import page

        write(page(found, ", ".join(map(str, places))), html)
        remark(f"report: {html}", quiet or as_json)
