"""The commands `holdfast fleet serve` and `holdfast fleet alerts`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holdfast.console import QuietOption, duration, remark
from holdfast.fleet.assumptions import Assumptions
from holdfast.fleet.options import (
    CHECKS,
    PAPER,
    PREEMPTIONS,
    assuming,
)


@assuming(*CHECKS, *PREEMPTIONS, "init_s", "write_s", "min_gpus", "long_run_s")
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
    assumptions: Assumptions = PAPER,
    quiet: QuietOption = False,
) -> None:
    """The operator's web console, with /metrics for Prometheus; Ctrl-C ends it."""
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
        assumptions=assumptions,
        on_start=lambda url: remark(f"console: {url} (Ctrl-C ends it)", quiet),
    )


def alerts() -> None:
    """Print the alert rules for Prometheus that go with the metrics of `serve`."""
    from holdfast.fleet.console.alert_rules import alert_rules

    print(alert_rules(), end="")
