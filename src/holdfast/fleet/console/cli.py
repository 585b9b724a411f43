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
        typer.Argument(metavar="STORE", help="Store folder; created if missing with --watch."),
    ],
    host: Annotated[
        str,
        typer.Option("--host", help="Address to bind; any but localhost needs --token."),
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="Port; 0 picks a free one.")] = 8090,
    token: Annotated[
        str | None,
        typer.Option(
            "--token",
            envvar="HOLDFAST_TOKEN",
            help="Access token; prefer HOLDFAST_TOKEN so it does not show up in `ps`.",
        ),
    ] = None,
    watch: Annotated[
        list[Path] | None,
        typer.Option(
            "--watch",
            metavar="PATH",
            help="Log or folder of logs to ingest as it grows; repeatable.",
        ),
    ] = None,
    poll: Annotated[
        float,
        typer.Option(
            "--poll", parser=duration, metavar="DURATION", help="Polling interval of --watch."
        ),
    ] = 60.0,
    timezone: Annotated[
        str | None,
        typer.Option(
            "--timezone",
            metavar="ZONE",
            help="Time zone of watched logs that state none (default: the store's, else UTC).",
        ),
    ] = None,
    cluster: Annotated[
        str, typer.Option("--cluster", help="Cluster of watched logs that state none.")
    ] = "",
    assumptions: Assumptions = PAPER,
    quiet: QuietOption = False,
) -> None:
    """Serve the web console, with /metrics for Prometheus, until Ctrl-C."""
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
