"""`holdfast lm`: the commands and their groups."""

from __future__ import annotations

import typer

from holdfast.lm.commands.auditing import bias, cloze, memorization, toxicity
from holdfast.lm.commands.options import asks
from holdfast.lm.commands.querying import count, many, mass, plan, sample, search

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

_query = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
for command in (plan, search, sample, mass, count):
    _query.command()(asks(command))
_query.command()(many)
app.add_typer(_query, name="query", help="Query a model with regular expressions.")

_audit = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
for audit in (memorization, bias, toxicity, cloze):
    _audit.command()(audit)
app.add_typer(
    _audit, name="audit", help="Audit a model for memorization, bias, toxicity or cloze accuracy."
)


@app.command(help="AI safety benchmark: hazards, grades, and how certain they are.")
def safety() -> None:
    """Listed here; `holdfast.cli` runs its commands, which are made from functions."""


@app.command(help="Continue prompts faster: drafts by early exit, verified by the whole model.")
def generate() -> None:
    """Listed here; `holdfast.cli` runs it, which is made from a function."""


@app.command(
    name="train-exits", help="Train a language model whose early layers predict the next token too."
)
def train_exits() -> None:
    """Listed here; `holdfast.cli` runs it, which is made from a function."""


@app.command(
    name="calibrate-heads", help="Find attention heads that attend alike, to compute fewer of them."
)
def calibrate_heads() -> None:
    """Listed here; `holdfast.cli` runs it, which is made from a function."""
