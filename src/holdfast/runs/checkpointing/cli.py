"""The command `holdfast runs checkpoints`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holdfast.console import JsonOption, QuietOption, emit


def checkpoints(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of checkpoints.")],
    verify: Annotated[
        bool, typer.Option("--verify", help="Read every file and verify its checksum.")
    ] = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """List checkpoints, complete or damaged, by file size or (--verify) checksum.

    Exits with 1 if no checkpoint is complete, or --verify finds damage.
    """
    from holdfast.progress import track
    from holdfast.runs.checkpointing import terminal
    from holdfast.runs.checkpointing.folder import look, verify_all

    found = look(folder)
    if verify:
        total = sum(each.manifest.size_bytes for each in found.checkpoints if each.manifest)
        with track("comparing checksums", total) as bar:
            found = verify_all(found, bar.advance)
    emit(found, as_json, terminal.listed)
    if not found.complete or (verify and found.damaged):
        raise typer.Exit(1)
