"""`holdfast fleet`: each command calls the function of the same name and returns its result.

Here is what analyses a store, or simulates one; what watches a fleet and acts on it is in `live.cli`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from holdfast.command import (
    Answer,
    Days,
    Duration,
    Integers,
    Output,
    Positive,
    Share,
    option,
    room,
)
from holdfast.errors import InputError
from holdfast.fleet.assumptions import Assumptions
from holdfast.fleet.live.cli import act, alerts, judge, morning, serve
from holdfast.fleet.options import (
    Checks,
    Engine,
    File,
    Losses,
    Measured,
    Model,
    Name,
    Size,
    Window,
    Zone,
    opened,
)
from holdfast.tables import DEFAULT_ENGINE, without_pandas

if TYPE_CHECKING:
    from holdfast.fleet.simulation.scenario import Scenario

Changes = Annotated[tuple[str, ...], option("--set", metavar="CHANGE")]

app = room("fleet", "What failures cost a GPU cluster, why, and what would win it back.")


@app.command
def ingest(
    *sources: Annotated[Path, option(metavar="SRC")],
    output: Annotated[Output, option(metavar="STORE")],
    sacct: Annotated[str | None, option(metavar="SINCE")] = None,
    input_format: Annotated[
        str | None, option("--input-format", "--format", metavar="NAME")
    ] = None,
    timezone: Zone = None,
    cluster: str = "",
    live: Annotated[Path | None, option(metavar="TOML")] = None,
    column_map: Annotated[Path | None, option("--map", metavar="FILE")] = None,
    nodes: Positive | None = None,
    max_reject_share: Share = 0.01,
) -> Answer:
    """Read scheduler logs, health events and inventories into a store.

    Ingesting the same log again, or one that overlaps, adds nothing twice. The store changes at the
    end, in one step.

    Args:
        sources: Log files or folders; plain, gzip, zstd, xz or bzip2.
        output: Store to create or extend.
        sacct: Also run `sacct` itself, on a login node, from this time on: now-7d, 2026-11-01.
        input_format: Format of all sources (default: detected).
        timezone: Time zone of times that state none, such as those of sacct (default: UTC).
        cluster: Cluster of logs that state none.
        live: Also ask every live source that this file names, once.
        column_map: TOML map of the columns of CSV or Parquet files in no known format.
        nodes: Number of nodes of the fleet, for node-failure logs (which name failed nodes only).
        max_reject_share: Maximum share of rejected records per source.
    """
    without_pandas()
    from holdfast.fleet.ingestion import ingest as run
    from holdfast.fleet.on_cluster import sacct_output

    if not sources and sacct is None and live is None:
        raise InputError(
            "nothing to ingest",
            code="missing-key",
            expected="SRC..., --sacct now-7d or --live SOURCES.toml",
        )
    places = [*sources]
    with ExitStack() as stack:
        if sacct is not None:
            places.append(stack.enter_context(sacct_output(sacct, timezone or "UTC")))
        if live is not None:
            from holdfast.fleet.live.sources import ingest_live

            answer = ingest_live(live, output, timezone=timezone, cluster=cluster)
            if not places:
                return answer
        return run(
            places,
            output,
            format=input_format,
            timezone=timezone,
            cluster=cluster,
            column_map=column_map,
            nodes=nodes,
            max_reject_share=max_reject_share,
        )


@app.command
def report(
    store: Path,
    /,
    *,
    window: Window = Window(),
    model: Measured = Measured(),
) -> Answer:
    """Summarize the fleet; with --html, write every figure behind the summary.

    Args:
        store: Store folder that `holdfast fleet ingest` wrote.
    """
    from holdfast.fleet.fleet_report import report as run

    return run(opened(store, window, model))


@app.command
def status(store: Path, /, *, window: Window = Window()) -> Answer:
    """Show how attempts ended, by count and by GPU time.

    Args:
        store: Store folder that `holdfast fleet ingest` wrote.
    """
    from holdfast.fleet.state_mix import status as run

    return run(opened(store, window))


@app.command
def mttf(
    store: Path,
    /,
    *,
    project: Annotated[Sequence[int], Integers, option(metavar="GPUS,...")] = (),
    window: Window = Window(),
    checks: Checks = Checks(),
    size: Size = Size(),
) -> Answer:
    """Estimate the failure rate per node-day by job size, and project the MTTF.

    Args:
        store: Store, or a node-failure log (CSV: node, start, end, cause).
        project: Job sizes to project the MTTF to.
    """
    from holdfast.fleet.failures import mttf as run

    return run(opened(store, window, checks, size), project=project)


@app.command
def ettr(
    store: Path | None = None,
    /,
    *,
    nodes: float | None = None,
    rate: float | None = None,
    checkpoint: Duration | None = None,
    init: Duration = 300.0,
    write: Duration = 0.0,
    queue: Duration = 0.0,
    productive: Duration | None = None,
    recovery: Duration | None = None,
    overhead: Share = 0.0,
    state_lost: Share = 0.0,
    solve: Name = None,
    target: float = 0.9,
    monte_carlo: bool = False,
) -> Answer:
    """Compute the expected ETTR of a job and its best checkpoint interval.

    Args:
        store: Store whose failure rate is used, with its interval, instead of --rate.
        nodes: Nodes of the job.
        rate: Failures per node and day (r_f).
        checkpoint: Time between checkpoints.
        init: Unproductive time after each start.
        write: Pause of the job per checkpoint write.
        queue: Mean queue time before each start.
        productive: Productive time that the run needs (default: unlimited).
        recovery: Time from a failure until training goes on from copies of the state that other nodes hold,
            without rollback (default: every failure rolls back).
        overhead: Share by which the copies make each step longer.
        state_lost: Share of the failures that take all copies, so that the job rolls back.
        solve: Parameter to solve for: checkpoint, rate, write, init, queue, nodes or recovery.
        target: Target ETTR of --solve.
        monte_carlo: Also simulate (exponential gaps, fixed seed).
    """
    from holdfast.fleet.ettr_forms import ettr as run
    from holdfast.fleet.ettr_solve import solve as run_solve

    interval = None
    if store is not None:
        if rate is not None:
            raise InputError(
                "two failure rates",
                code="conflict",
                found=f"{store} and --rate {rate}",
                remedy="leave out --rate, or the store",
            )
        from holdfast.fleet.failures import mttf as fitted

        known = fitted(store)
        if known.blind:
            raise InputError(
                "the store does not tell a failure rate",
                code="no-data",
                path=store,
                found=known.blind,
                remedy="state one with --rate",
            )
        model = known.model
        rate, low, high = (x / 1000 for x in (model.rate_per_1000_node_days_, *model.ci95_))
        interval = low, high
    job = {
        "nodes": nodes,
        "rate_per_node_day": rate,
        "checkpoint_interval_s": checkpoint,
        "init_s": init,
        "write_s": write,
        "queue_s": queue,
        "productive_s": productive,
        "recovery_s": recovery,
        "overhead": overhead,
        "state_lost": state_lost,
    }
    if solve is not None:
        return run_solve(solve, target, **job)  # type: ignore[arg-type]  # checked inside
    result = replace(run(**job), rate_ci95=interval)  # type: ignore[arg-type]
    return result.with_monte_carlo() if monte_carlo else result


@app.command
def goodput(
    store: Path,
    /,
    *,
    window: Window = Window(),
    checks: Checks = Checks(),
    losses: Losses = Losses(),
) -> Answer:
    """Compute GPU-hours lost to failures and to preemptions by restarted jobs.

    Args:
        store: Store folder that `holdfast fleet ingest` wrote.
    """
    from holdfast.fleet.losses import goodput as run

    return run(opened(store, window, checks, losses))


@app.command
def lemons(
    store: Path,
    /,
    *,
    commands: bool = False,
    window: Window = Window(),
    checks: Checks = Checks(),
    fdr: Share = Assumptions.lemon_fdr,
) -> Answer:
    """Rank nodes by failure rate and name those that are not bad by chance.

    Args:
        store: Store folder that `holdfast fleet ingest` wrote.
        commands: Only print the commands that would drain the lemon nodes, to be reviewed.
        fdr: False discovery rate of lemon nodes.
    """
    from holdfast.fleet.node_ranking import lemons as run
    from holdfast.fleet.on_cluster import DrainCommands

    log = opened(store, window, checks, lemon_fdr=fdr)
    ranking = run(log)
    return DrainCommands(**vars(ranking)) if commands else ranking


@app.command
def attribute(
    store: Path,
    job_id: Annotated[str, option(metavar="JOBID")],
    /,
    *,
    engine: Engine = DEFAULT_ENGINE,
    checks: Checks = Checks(),
) -> Answer:
    """Explain the end of each attempt of a job by the checks near it.

    Args:
        store: Store folder that `holdfast fleet ingest` wrote.
        job_id: Job id as sacct prints it (93, 306_4), with several clusters alpha:93.
        engine: Where tables are computed: duckdb, spark://HOST:PORT, spark://local[N].
    """
    from holdfast.fleet.attribution import attribute as run

    return run(opened(store, Window(engine=engine), checks), job_id)


# Simulation.


@app.command
def simulate(
    *,
    output: Annotated[Output | None, option("--output", "-o", metavar="STORE")] = None,
    preset: Name = None,
    scenario: File = None,
    days: Days = 30.0,
    seed: int = 1,
    changes: Changes = (),
    print_scenario: bool = False,
) -> Answer | None:
    """Simulate a cluster into a store that every other command reads as a real log.

    What was injected is in truth.json inside the store.

    Args:
        output: The store to write.
        preset: A scenario that ships: rsc1, rsc2, small.
        scenario: A scenario of your own (TOML).
        days: Simulated time: days, or a duration such as 12h.
        seed: Random seed (same seed, same result).
        changes: Change the scenario: cluster.nodes=64, failure_rate*2, lemons=off. Repeatable.
        print_scenario: Only print the scenario as TOML, to be edited.
    """
    chosen = _chosen(preset, scenario, changes)
    if print_scenario:
        print(chosen.to_toml(), end="")
        return None
    if output is None:
        raise InputError("the simulated log needs a place", code="missing-key", expected="-o STORE")
    from holdfast.fleet.simulation.simulated_log import simulate as run

    return run(chosen, output, days=days, seed=seed)


@app.command
def calibrate(
    store: Path,
    /,
    *,
    output: Annotated[Output | None, option("--output", "-o", metavar="FILE")] = None,
    window: Window = Window(),
    model: Model = Model(),
) -> Answer:
    """Fit a scenario to a log: what users submit, what breaks, how it is repaired.

    Each estimate stands in the file with its interval; what the log does not tell is assumed and marked.
    Edit the file, then simulate it with --scenario.

    Args:
        store: Store folder that `holdfast fleet ingest` wrote.
        output: Write the scenario here (TOML).
    """
    from holdfast.fleet.simulation.calibration import calibrate as run

    if output is not None and not output.parent.is_dir():
        raise InputError("output folder not found", code="not-found", path=output.parent)
    fitted = run(opened(store, window, model))
    if output is not None:
        fitted.write(output)
    return replace(fitted, output=output)


@app.command
def whatif(
    *arguments: Annotated[str, option(metavar="[STORE] [CHANGE]...")],
    preset: Name = None,
    scenario: File = None,
    replicas: Annotated[int, option(at_least=2)] = 8,
    days: Days | None = None,
    seed: int = 0,
    changes: Changes = (),
    jobs: Annotated[Positive | None, option("--jobs", "--processes")] = None,
    ray: Annotated[str | None, option(metavar="URL")] = None,
) -> Answer:
    """Compare a fleet with and without changes, by simulation.

    A change is KEY=VALUE, KEY*FACTOR, KEY+VALUE or KEY-VALUE: "failure_rate*0.5",
    "checkpoint.write=30s", "replace=node05,node09", "lemons=off; checkpoint.interval=30m". Without changes,
    common ones are tried. --set applies to both the baseline and the change.

    Args:
        arguments: A store or a log, unless --preset or --scenario says what to simulate; then changes.
        preset: A scenario that ships: rsc1, rsc2, small.
        scenario: A scenario of your own (TOML).
        replicas: Simulations of each scenario.
        days: Simulated time of each run (default: that of the log; 28 days for a scenario).
        seed: Random seed (same seed, same result).
        changes: Change the scenario: cluster.nodes=64, failure_rate*2, lemons=off. Repeatable.
        jobs: Number of worker processes (default: all cores).
        ray: Simulate on a Ray cluster: ray://HOST:10001.
    """
    from holdfast.fleet.simulation.comparison import whatif as run

    tried = list(arguments)
    source: Path | str | Scenario
    if preset is None and scenario is None:
        if not tried:
            raise InputError(
                "nothing to simulate",
                code="no-data",
                expected="a store, --preset small or --scenario FILE",
            )
        source = Path(tried.pop(0))
    else:
        # A file is passed as what it contains: by its path it could be taken for a log.
        chosen = _chosen(preset, scenario, ())
        source = preset or chosen
    return run(
        source,
        tried,
        replicas=replicas,
        days=days,
        seed=seed,
        processes=jobs,
        ray=ray,
        given=list(changes),
    )  # type: ignore[arg-type]


def _chosen(preset: str | None, file: Path | None, changes: tuple[str, ...]) -> Scenario:
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
            expected=f"--preset {', --preset '.join(PRESETS)} or --scenario FILE",
        )
    if preset is not None and preset not in PRESETS:
        raise InputError(
            f"preset not found: {preset!r}",
            code="unknown-name",
            expected=", ".join(PRESETS),
            remedy="give a file with --scenario",
        )
    chosen = scenario(preset or file or "")
    for change in changes:
        chosen = apply(chosen, change)
    return chosen


for command in (serve, alerts, act, judge, morning):
    app.command(command)
