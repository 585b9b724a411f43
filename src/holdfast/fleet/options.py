"""The options that commands of the fleet room share: the window, and what is assumed."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from holdfast.console import duration
from holdfast.fleet.assumptions import Assumptions

StoreArgument = Annotated[
    Path, typer.Argument(metavar="STORE", help="Store folder that `holdfast fleet ingest` wrote.")
]
SinceOption = Annotated[
    str | None,
    typer.Option(
        "--since",
        metavar="WHEN",
        help="Start of the analyzed window: 30d (before the end of the log) or an ISO time.",
    ),
]
CheckBeforeOption = Annotated[
    float,
    typer.Option(
        "--check-before",
        parser=duration,
        metavar="DURATION",
        help="Attribute a failure to a check that fired up to this long before it.",
    ),
]
CheckAfterOption = Annotated[
    float,
    typer.Option(
        "--check-after",
        parser=duration,
        metavar="DURATION",
        help="Attribute a failure to a check that fired up to this long after it.",
    ),
]
GraceOption = Annotated[
    float,
    typer.Option(
        "--preempt-grace",
        parser=duration,
        metavar="DURATION",
        help="Preemption grace time of a QOS that is not in the store.",
    ),
]
SlackOption = Annotated[
    float,
    typer.Option(
        "--preempt-slack",
        parser=duration,
        metavar="DURATION",
        help="Maximum time beyond the grace period from a victim's end to its preemptor's start.",
    ),
]
CheckpointOption = Annotated[
    float,
    typer.Option(
        "--checkpoint",
        parser=duration,
        metavar="DURATION",
        help="Assumed checkpoint interval; a failure loses half of it.",
    ),
]
InitOption = Annotated[
    float | None,
    typer.Option(
        "--init",
        parser=duration,
        metavar="DURATION",
        help="Assumed unproductive time after each start (default: 5m, or less where completed "
        "attempts ran shorter).",
    ),
]
SaveOption = Annotated[
    bool,
    typer.Option(
        "--save-on-signal",
        help="Preempted jobs save their work in the grace period (default: they lose half an interval).",
    ),
]
WriteOption = Annotated[
    float,
    typer.Option(
        "--write",
        parser=duration,
        metavar="DURATION",
        help="Assumed pause of the job per checkpoint write.",
    ),
]
MinGpusOption = Annotated[
    int,
    typer.Option(
        "--min-gpus",
        min=0,
        help="Only attempts with more GPUs than this count for the failure rate (0: all).",
    ),
]
LongRunOption = Annotated[
    float,
    typer.Option(
        "--long-run",
        parser=duration,
        metavar="DURATION",
        help="Minimum time on nodes of runs whose ETTR is measured.",
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
    typer.Option(
        "--taxonomy",
        metavar="FILE",
        help="Taxonomy of check names and symptoms (TOML; default: the built-in one).",
    ),
]
FdrOption = Annotated[
    float, typer.Option("--fdr", min=0.0, max=1.0, help="False discovery rate of lemon nodes.")
]

_ASSUMED: dict[str, Any] = {
    "check_before_s": CheckBeforeOption,
    "check_after_s": CheckAfterOption,
    "preemption_grace_s": GraceOption,
    "preemption_slack_s": SlackOption,
    "checkpoint_interval_s": CheckpointOption,
    "init_s": InitOption,
    "save_on_signal": SaveOption,
    "write_s": WriteOption,
    "min_gpus": MinGpusOption,
    "long_run_s": LongRunOption,
    "chain_by_name": ChainOption,
    "taxonomy": TaxonomyOption,
    "lemon_fdr": FdrOption,
}
"""Fields of `Assumptions` that a command may take, in the order of its help."""

PAPER = Assumptions()
"""What is assumed unless the user says otherwise."""

CHECKS = ("check_before_s", "check_after_s", "taxonomy")
PREEMPTIONS = (
    *("preemption_grace_s", "preemption_slack_s", "checkpoint_interval_s", "save_on_signal"),
    "chain_by_name",
)


def assuming(*fields: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of these assumptions in place of its parameter ``assumptions``."""
    chosen = [name for name in _ASSUMED if name in fields]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def run(**given: Any) -> None:
            assumed = {name: given.pop(name) for name in chosen}
            command(**given, assumptions=Assumptions(**assumed))

        signature = inspect.signature(command, eval_str=True)
        options = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=getattr(PAPER, name),
                annotation=_ASSUMED[name],
            )
            for name in chosen
        ]
        parameters: list[inspect.Parameter] = []
        for parameter in signature.parameters.values():
            if parameter.name == "assumptions":
                parameters += options
            else:
                parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        return run

    return decorate
