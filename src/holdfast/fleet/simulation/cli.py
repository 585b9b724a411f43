"""The commands of `holdfast fleet` that simulate."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.console import (
    EngineOption,
    JsonOption,
    QuietOption,
    VerboseOption,
    duration,
    emit,
    remark,
)
from holdfast.errors import InputError
from holdfast.fleet.assumptions import Assumptions
from holdfast.fleet.options import (
    CHECKS,
    PAPER,
    PREEMPTIONS,
    SinceOption,
    StoreArgument,
    assuming,
)
from holdfast.tables import DEFAULT_ENGINE

if TYPE_CHECKING:
    from holdfast.fleet.simulation.scenario import Scenario


def days(text: str | float) -> float:
    """Days in "30" or "1.5", or in a duration such as "12h" or "4w"."""
    try:
        return float(text)
    except ValueError:
        return duration(text) / 86_400.0


PresetOption = Annotated[
    str | None,
    typer.Option("--preset", metavar="NAME", help="A scenario that ships: rsc1, rsc2, small."),
]
ScenarioOption = Annotated[
    Path | None,
    typer.Option("--scenario", metavar="FILE", help="A scenario of your own (TOML)."),
]
DaysOption = Annotated[
    float,
    typer.Option(
        "--days",
        parser=days,
        metavar="DAYS",
        help="Simulated time: days, or a duration such as 12h.",
    ),
]
SeedOption = Annotated[int, typer.Option("--seed", help="Random seed (same seed, same result).")]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="CHANGE",
        help="Change the scenario: cluster.nodes=64, failure_rate*2, lemons=off. Repeatable.",
    ),
]


def chosen_scenario(preset: str | None, file: Path | None, changes: list[str] | None) -> Scenario:
    """The scenario that the options name.

    Raises:
        InputError: if they name none or two, or it says something impossible.
    """
    from holdfast.fleet.simulation.changes import apply
    from holdfast.fleet.simulation.scenario import PRESETS, scenario

    if (preset is None) == (file is None):
        raise InputError(
            "a simulation needs one scenario",
            code="conflict",
            found="none" if preset is None else "a preset and a file",
            expected="--preset " + ", --preset ".join(PRESETS) + " or --scenario FILE",
        )
    if preset is not None and preset not in PRESETS:
        raise InputError(
            f"preset not found: {preset!r}",
            code="unknown-name",
            expected=", ".join(PRESETS),
            remedy="a file is named with --scenario",
        )
    made = scenario(preset or file or "")
    for change in changes or []:
        made = apply(made, change)
    return made


def simulate(
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="STORE", help="The store to write."),
    ] = None,
    preset: PresetOption = None,
    scenario: ScenarioOption = None,
    length: DaysOption = 30.0,
    seed: SeedOption = 1,
    changes: SetOption = None,
    print_scenario: Annotated[
        bool,
        typer.Option("--print-scenario", help="Only print the scenario as TOML, to be edited."),
    ] = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Simulate a cluster into a store that every other command reads as a real log.

    What was injected is in truth.json inside the store.
    """
    made = chosen_scenario(preset, scenario, changes)
    if print_scenario:
        print(made.to_toml(), end="")
        return
    if output is None:
        raise InputError("the simulated log needs a place", code="missing-key", expected="-o STORE")
    from holdfast.fleet.simulation import terminal
    from holdfast.fleet.simulation.simulated_log import simulate as run

    emit(run(made, output, days=length, seed=seed), as_json, terminal.simulated)
    remark(f"store: {output}", quiet or as_json)


def whatif(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[STORE] [CHANGE]...",
            help="A store or a log, unless --preset or --scenario says what to simulate; then "
            "changes.",
        ),
    ] = None,
    preset: PresetOption = None,
    scenario: ScenarioOption = None,
    replicas: Annotated[
        int, typer.Option("--replicas", min=2, help="Simulations of each scenario.")
    ] = 8,
    length: Annotated[
        float | None,
        typer.Option(
            "--days",
            parser=days,
            metavar="DAYS",
            help="Simulated time of each run (default: that of the log; 28 days for a scenario).",
        ),
    ] = None,
    seed: SeedOption = 0,
    given: SetOption = None,
    processes: Annotated[
        int | None,
        typer.Option("--processes", min=1, help="Number of worker processes (default: all cores)."),
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option("--ray", metavar="URL", help="Simulate on a Ray cluster: ray://HOST:10001."),
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write the result as a page.")
    ] = None,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
) -> None:
    """Compare a fleet with and without changes, by simulation.

    A change is KEY=VALUE, KEY*FACTOR, KEY+VALUE or KEY-VALUE: "failure_rate*0.5",
    "checkpoint.write=30s", "replace=node05,node09", "lemons=off; checkpoint.interval=30m". Without changes,
    common ones are tried. --set applies to both the baseline and the change.
    """
    from holdfast.fleet.simulation import terminal
    from holdfast.fleet.simulation.comparison import whatif as run

    changes = list(arguments or [])
    source: Path | str | Scenario
    if preset is None and scenario is None:
        if not changes:
            raise InputError(
                "nothing to simulate",
                code="no-data",
                expected="a store, --preset small or --scenario FILE",
            )
        source = Path(changes.pop(0))
        if not source.exists():
            raise InputError(
                "store or log not found",
                code="not-found",
                path=source,
                remedy="put the store first, or name a scenario with --preset or --scenario",
            )
    else:
        # A file is passed as what it contains: by its path it could be taken for a log.
        chosen = chosen_scenario(preset, scenario, None)
        source = preset or chosen
    found = run(
        source,
        changes,
        replicas=replicas,
        days=length,
        seed=seed,
        processes=processes,
        ray=ray,
        html=html,
        given=given or [],
    )
    emit(found, as_json, lambda result: terminal.what_if(result, verbose))
    if html is not None:
        remark(f"report: {html}", quiet or as_json)


@assuming(*CHECKS, *PREEMPTIONS, "init_s", "write_s", "min_gpus")
def calibrate(
    store: StoreArgument,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write the scenario here (TOML); else it is printed.",
        ),
    ] = None,
    replicas: Annotated[
        int,
        typer.Option(
            "--replicas",
            min=0,
            help="Simulations to hold against the log: does the scenario fit it? (8 are enough)",
        ),
    ] = 0,
    seed: SeedOption = 1,
    processes: Annotated[
        int | None,
        typer.Option("--processes", min=1, help="Number of worker processes (default: all cores)."),
    ] = None,
    since: SinceOption = None,
    assumptions: Assumptions = PAPER,
    engine: EngineOption = DEFAULT_ENGINE,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
) -> None:
    """Fit a scenario to a log: what users submit, what breaks, how it is repaired.

    Each estimate stands in the file with its interval; what the log does not tell is assumed and marked.
    Edit the file, then simulate it with --scenario.
    """
    from holdfast.fleet.log import open_log
    from holdfast.fleet.simulation.calibration import calibrate as run
    from holdfast.fleet.simulation.calibration_terminal import Calibrated, calibrated

    if output is not None and not output.parent.is_dir():
        raise InputError("output folder not found", code="not-found", path=output.parent)
    log = open_log(store, assumptions=assumptions, since=since, engine=engine)
    made = run(log)
    if output is not None:
        made.write(output)
    fit = None
    if replicas:
        from holdfast.fleet.simulation.goodness_of_fit import goodness_of_fit

        fit = goodness_of_fit(log, made, replicas=replicas, seed=seed, processes=processes)
    if output is None and fit is None and not as_json:
        print(made.to_toml(), end="")
        return
    emit(Calibrated(made, fit, output), as_json, lambda found: calibrated(found, verbose))
    if output is not None:
        remark(f"scenario: {output}", quiet or as_json)
