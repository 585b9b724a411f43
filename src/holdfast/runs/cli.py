"""`holdfast runs`: each command calls the function of the same name and prints its result."""

from __future__ import annotations

import typer

from holdfast.runs.checkpointing.cli import checkpoints
from holdfast.runs.diagnosis.cli import diagnose
from holdfast.runs.flight.cli import hang
from holdfast.runs.goodput.cli import report
from holdfast.runs.pairing import cli as pairing
from holdfast.runs.straggling.cli import stragglers
from holdfast.runs.watching.cli import watch

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
app.command()(report)
app.command()(hang)
app.command()(stragglers)
app.add_typer(
    pairing.app, name="pairtest", help="Find faulty nodes: test pairs of nodes in rounds."
)
app.command()(watch)
app.command()(checkpoints)
app.command()(diagnose)
