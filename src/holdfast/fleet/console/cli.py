"""The commands `holdfast fleet serve` and `holdfast fleet alerts`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holdfast.console import QuietOption, duration, remark
from holdfast.fleet.options import (
    ChainOption,
    CheckAfterOption,
    CheckBeforeOption,
    CheckpointOption,
    GraceOption,
    InitOption,
    LongRunOption,
    MinGpusOption,
    SlackOption,
    TaxonomyOption,
    WriteOption,
)


def serve(
    store: Annotated[
        Path,
        typer.Argument(
            metavar="STORE", help="The folder of the store; with --watch made if it is missing."
        ),
    ],
    host: Annotated[
        str,
        typer.Option("--host", help="Address to bind; another than the loopback needs a token."),
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="0: any that is free.")] = 8090,
    token: Annotated[
        str | None,
        typer.Option(
            "--token",
            envvar="HOLDFAST_TOKEN",
            help="What a reader must show; better set it in the environment, where `ps` does not.",
        ),
    ] = None,
    watch: Annotated[
        list[Path] | None,
        typer.Option(
            "--watch",
            metavar="PATH",
            help="A log, or a folder of logs, to read into the store as it grows; repeatable.",
        ),
    ] = None,
    poll: Annotated[
        float,
        typer.Option(
            "--poll", parser=duration, metavar="DURATION", help="Time between two looks at --watch."
        ),
    ] = 60.0,
    timezone: Annotated[
        str | None,
        typer.Option(
            "--timezone",
            metavar="ZONE",
            help="Zone of times in watched logs that name none; else the store's, or UTC.",
        ),
    ] = None,
    cluster: Annotated[
        str, typer.Option("--cluster", help="Cluster name for watched logs that do not carry one.")
    ] = "",
    check_before: CheckBeforeOption = 600.0,
    check_after: CheckAfterOption = 300.0,
    preempt_grace: GraceOption = 300.0,
    preempt_slack: SlackOption = 300.0,
    checkpoint: CheckpointOption = 3600.0,
    init: InitOption = 300.0,
    write: WriteOption = 0.0,
    min_gpus: MinGpusOption = 128,
    long_run: LongRunOption = 86_400.0,
    chain_by_name: ChainOption = False,
    taxonomy: TaxonomyOption = None,
    quiet: QuietOption = False,
) -> None:
    """The operator's web console, with /metrics for Prometheus; Ctrl-C ends it."""
    from holdfast.fleet.assumptions import Assumptions
    from holdfast.fleet.console.serving import serve as run

    paths = watch or []
    for path in paths:
        if not path.exists():
            remark(f"{path} is not there yet; it is read when it appears", quiet)
    run(
        store,
        host=host,
        port=port,
        token=token,
        watch=paths,
        poll_s=poll,
        timezone=timezone,
        cluster=cluster,
        assumptions=Assumptions(
            check_before_s=check_before,
            check_after_s=check_after,
            preemption_grace_s=preempt_grace,
            preemption_slack_s=preempt_slack,
            checkpoint_interval_s=checkpoint,
            init_s=init,
            write_s=write,
            min_gpus=min_gpus,
            long_run_s=long_run,
            chain_by_name=chain_by_name,
            taxonomy=taxonomy,
        ),
        on_start=lambda url: remark(f"console: {url} (Ctrl-C ends it)", quiet),
    )


def alerts() -> None:
    """Print the alert rules for Prometheus that go with the metrics of `serve`."""
    from holdfast.fleet.console.alert_rules import alert_rules

    print(alert_rules(), end="")
