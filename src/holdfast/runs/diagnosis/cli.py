"""The command `holdfast runs diagnose`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holdfast.console import JsonOption, QuietOption, VerboseOption, emit
from holdfast.errors import InputError


def diagnose(
    logs: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="LOG...", help="Logs of the failed run: files (plain or .gz) or folders."
        ),
    ] = None,
    good: Annotated[
        list[Path] | None,
        typer.Option(
            "--good",
            metavar="LOG",
            help="Logs of a successful run, to rank unknown messages. Repeatable.",
        ),
    ] = None,
    rules: Annotated[
        Path | None,
        typer.Option(
            "--rules",
            metavar="FILE",
            help="TOML file with your own rules, tried before the built-in ones.",
        ),
    ] = None,
    taxonomy: Annotated[
        Path | None,
        typer.Option(
            "--taxonomy",
            metavar="FILE",
            help="TOML file with your own symptoms and XIDs, as in the fleet room.",
        ),
    ] = None,
    print_rules: Annotated[
        bool,
        typer.Option("--print-rules", help="Print the built-in rules as TOML and exit."),
    ] = False,
    processes: Annotated[
        int | None,
        typer.Option("--processes", min=1, help="Number of worker processes (default: all cores)."),
    ] = None,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
) -> None:
    """Find the cause of a failure in its logs, with the lines that show it.

    Reads any text: output of torchrun and Slurm, one file or one per rank, kernel logs beside them.
    """
    from holdfast.runs.diagnosis.diagnosing import diagnose as run
    from holdfast.runs.diagnosis.rules import shipped_text
    from holdfast.runs.diagnosis.terminal import diagnosed

    if print_rules:
        print(shipped_text(), end="")
        return
    if not logs:
        raise InputError(
            "no log to read",
            code="no-data",
            expected="one log or more",
            remedy="holdfast runs diagnose LOG...",
        )
    result = run(logs, good or (), rules=rules, taxonomy=taxonomy, processes=processes)
    emit(result, as_json, lambda found: diagnosed(found, verbose))
