"""`holdfast fleet`: each command calls the function of the same name and prints its result."""

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
from holdfast.fleet.console import cli as console
from holdfast.fleet.options import (
    CHECKS,
    PAPER,
    PREEMPTIONS,
    SinceOption,
    StoreArgument,
    WriteOption,
    assuming,
)
from holdfast.fleet.simulation import cli as simulation
from holdfast.tables import DEFAULT_ENGINE

if TYPE_CHECKING:
    from holdfast.fleet.log import FleetLog

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


def _open(store: Path, assumptions: Assumptions, engine: str, since: str | None = None) -> FleetLog:
    """The store under the assumptions of the command line."""
    from holdfast.fleet.log import open_log

    return open_log(store, assumptions=assumptions, since=since, engine=engine)


@app.command()
def ingest(
    sources: Annotated[
        list[Path],
        typer.Argument(
            metavar="SRC...", help="Log files or folders; plain, gzip, zstd, xz or bzip2."
        ),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="STORE", help="Store to create or extend.")
    ],
    file_format: Annotated[
        str | None,
        typer.Option("--format", metavar="NAME", help="Format of all sources (default: detected)."),
    ] = None,
    timezone: Annotated[
        str,
        typer.Option(
            "--timezone",
            metavar="ZONE",
            help="Time zone of times that state none, such as those of sacct.",
        ),
    ] = "UTC",
    cluster: Annotated[
        str, typer.Option("--cluster", help="Cluster of logs that state none.")
    ] = "",
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="TIME", help="Skip attempts that ended before this time."),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            "--until", metavar="TIME", help="Skip attempts that ended at or after this time."
        ),
    ] = None,
    delimiter: Annotated[
        str | None,
        typer.Option("--delimiter", help="Field delimiter of sacct output (default: detected)."),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            "--columns",
            metavar="A,B,...",
            help="Columns of sacct output without a header, as given to sacct --format.",
        ),
    ] = None,
    column_map: Annotated[
        Path | None,
        typer.Option(
            "--map",
            metavar="FILE",
            help="TOML map of the columns of CSV or Parquet files in no known format.",
        ),
    ] = None,
    gpus_per_node: Annotated[
        int | None,
        typer.Option(
            "--gpus-per-node",
            min=1,
            help="GPUs per node, for logs that count only nodes or processors.",
        ),
    ] = None,
    nodes: Annotated[
        int | None,
        typer.Option(
            "--nodes",
            min=1,
            metavar="N",
            help="Number of nodes of the fleet, for node-failure logs (which name failed nodes only).",
        ),
    ] = None,
    max_reject_share: Annotated[
        float,
        typer.Option(
            "--max-reject-share",
            min=0.0,
            max=1.0,
            help="Maximum share of rejected records per source.",
        ),
    ] = 0.01,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Read scheduler logs, health events and inventories into a store.

    Ingesting the same log again, or one that overlaps, adds nothing twice; an interrupted run
    continues where it stopped.
    """
    from holdfast.fleet import terminal
    from holdfast.fleet.ingestion import ingest as run
    from holdfast.fleet.moments import instant

    result = run(
        sources,
        output,
        format=file_format,
        timezone=timezone,
        cluster=cluster,
        since=None if since is None else instant(since, "--since"),
        until=None if until is None else instant(until, "--until"),
        delimiter=delimiter,
        columns=columns,
        column_map=column_map,
        gpus_per_node=gpus_per_node,
        nodes=nodes,
        max_reject_share=max_reject_share,
    )
    emit(result, as_json, terminal.ingested)
    remark(f"store: {output}", quiet or as_json)


@app.command()
@assuming(*CHECKS, *PREEMPTIONS, "init_s", "write_s", "min_gpus", "long_run_s")
def report(
    store: StoreArgument,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write the full report to FILE.")
    ] = None,
    since: SinceOption = None,
    assumptions: Assumptions = PAPER,
    engine: EngineOption = DEFAULT_ENGINE,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Summarize the fleet; with --html, write every figure behind the summary."""
    from holdfast.fleet import terminal
    from holdfast.fleet.page import report as run

    log = _open(store, assumptions, engine, since)
    emit(run(log, html=html), as_json, terminal.reported)
    if html is not None:
        remark(f"report: {html}", quiet or as_json)


@app.command()
def status(
    store: StoreArgument,
    since: SinceOption = None,
    engine: EngineOption = DEFAULT_ENGINE,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Show how attempts ended, by count and by GPU time."""
    from holdfast.fleet import terminal
    from holdfast.fleet.state_mix import status as run

    emit(run(_open(store, PAPER, engine, since)), as_json, terminal.status)


@app.command()
@assuming(*CHECKS, "min_gpus")
def mttf(
    store: Annotated[
        Path,
        typer.Argument(
            metavar="STORE", help="Store, or a node-failure log (CSV: node, start, end, cause)."
        ),
    ],
    assumptions: Assumptions = PAPER,
    project: Annotated[
        str,
        typer.Option("--project", metavar="GPUS,...", help="Job sizes to project the MTTF to."),
    ] = "",
    since: SinceOption = None,
    engine: EngineOption = DEFAULT_ENGINE,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Estimate the failure rate per node-day by job size, and project the MTTF."""
    from holdfast.fleet import terminal
    from holdfast.fleet.failures import mttf as run

    sizes = _sizes(project)
    log = _open(store, assumptions, engine, since)
    emit(run(log, project=sizes), as_json, terminal.mttf)


@app.command()
def ettr(
    nodes: Annotated[float | None, typer.Option("--nodes", help="Nodes of the job.")] = None,
    rate: Annotated[
        float | None, typer.Option("--rate", help="Failures per node and day (r_f).")
    ] = None,
    checkpoint: Annotated[
        float | None,
        typer.Option(
            "--checkpoint", parser=duration, metavar="DURATION", help="Time between checkpoints."
        ),
    ] = None,
    init: Annotated[
        float,
        typer.Option(
            "--init",
            parser=duration,
            metavar="DURATION",
            help="Unproductive time after each start.",
        ),
    ] = 300.0,
    write: WriteOption = 0.0,
    queue: Annotated[
        float,
        typer.Option(
            "--queue",
            parser=duration,
            metavar="DURATION",
            help="Mean queue time before each start.",
        ),
    ] = 0.0,
    productive: Annotated[
        float | None,
        typer.Option(
            "--productive",
            parser=duration,
            metavar="DURATION",
            help="Productive time that the run needs (default: unlimited).",
        ),
    ] = None,
    solve: Annotated[
        str | None,
        typer.Option(
            "--solve",
            metavar="NAME",
            help="Parameter to solve for: checkpoint, rate, write, init, queue or nodes.",
        ),
    ] = None,
    target: Annotated[float, typer.Option("--target", help="Target ETTR of --solve.")] = 0.9,
    monte_carlo: Annotated[
        bool, typer.Option("--monte-carlo", help="Also simulate (exponential gaps, fixed seed).")
    ] = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Compute the expected ETTR of a job and its best checkpoint interval."""
    from holdfast.fleet import terminal

    given = {"nodes": nodes, "rate": rate, "checkpoint": checkpoint}
    missing = [f"--{name}" for name, value in given.items() if value is None and name != solve]
    if missing:
        raise InputError(
            "the ETTR needs nodes, failure rate and checkpoint interval",
            code="missing-key",
            found=f"without {', '.join(missing)}",
            expected="for example --nodes 2000 --rate 6.5e-3 --checkpoint 60m",
        )
    if solve is not None:
        from holdfast.fleet.ettr_solve import solve as run_solve

        solved = run_solve(
            solve,  # type: ignore[arg-type]  # checked inside, with a message
            target,
            nodes=nodes,
            rate_per_node_day=rate,
            checkpoint_interval_s=checkpoint,
            init_s=init,
            write_s=write,
            queue_s=queue,
            productive_s=productive,
        )
        emit(solved, as_json, terminal.solved)
        return
    from holdfast.fleet.ettr_forms import ettr as run

    # None of the three is None here; the type checker does not see that through the list above.
    result = run(
        nodes or 0.0,
        rate or 0.0,
        checkpoint or 0.0,
        init_s=init,
        write_s=write,
        queue_s=queue,
        productive_s=productive,
    )
    if monte_carlo:
        result = result.with_monte_carlo()
    emit(result, as_json, terminal.ettr)


@app.command()
@assuming(*CHECKS, *PREEMPTIONS)
def goodput(
    store: StoreArgument,
    since: SinceOption = None,
    assumptions: Assumptions = PAPER,
    engine: EngineOption = DEFAULT_ENGINE,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Compute GPU-hours lost to failures and to preemptions by restarted jobs."""
    from holdfast.fleet import terminal
    from holdfast.fleet.losses import goodput as run

    log = _open(store, assumptions, engine, since)
    emit(run(log), as_json, terminal.goodput)


@app.command()
@assuming(*CHECKS, "lemon_fdr")
def lemons(
    store: StoreArgument,
    since: SinceOption = None,
    assumptions: Assumptions = PAPER,
    rule: Annotated[
        Path | None,
        typer.Option("--rule", metavar="FILE", help="Thresholds of the seven signals (TOML)."),
    ] = None,
    engine: EngineOption = DEFAULT_ENGINE,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Rank nodes by failure rate and name those that are not bad by chance."""
    from holdfast.fleet import terminal
    from holdfast.fleet.lemon_model import LemonRule
    from holdfast.fleet.node_ranking import lemons as run

    log = _open(store, assumptions, engine, since)
    found = run(log, rule=None if rule is None else LemonRule.from_toml(rule))
    emit(found, as_json, lambda result: terminal.lemons(result, verbose))


@app.command()
@assuming(*CHECKS)
def attribute(
    store: StoreArgument,
    job_id: Annotated[
        str,
        typer.Argument(
            metavar="JOBID",
            help="Job id as sacct prints it (93, 306_4), with several clusters alpha:93.",
        ),
    ],
    assumptions: Assumptions = PAPER,
    engine: EngineOption = DEFAULT_ENGINE,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Explain the end of each attempt of a job by the checks near it."""
    from holdfast.fleet import terminal
    from holdfast.fleet.attribution import attribute as run

    log = _open(store, assumptions, engine)
    emit(run(log, job_id), as_json, terminal.attributed)


app.command()(simulation.simulate)
app.command()(simulation.calibrate)
app.command()(simulation.whatif)
app.command()(console.serve)
app.command()(console.alerts)


def _sizes(text: str) -> list[int]:
    """Job sizes in "16384,131072"."""
    try:
        sizes = [int(part.strip().replace("_", "")) for part in text.split(",") if part.strip()]
    except ValueError as error:
        raise InputError(
            "--project takes numbers of GPUs",
            code="invalid-syntax",
            found=text,
            expected="for example 16384,131072",
        ) from error
    if any(size < 1 for size in sizes):
        raise InputError(
            "--project takes positive numbers of GPUs", code="invalid-value", found=text
        )
    return sizes
