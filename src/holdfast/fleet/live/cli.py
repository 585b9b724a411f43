"""Commands of `holdfast fleet` that watch a fleet and act on it; `holdfast.fleet.cli` registers them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from holdfast.command import Answer, Duration, Share, option
from holdfast.errors import InputError
from holdfast.fleet.assumptions import Assumptions
from holdfast.fleet.options import (
    Checks,
    Engine,
    File,
    Losses,
    Measured,
    Model,
    Name,
    Window,
    Zone,
    assumed,
    opened,
)
from holdfast.tables import DEFAULT_ENGINE

Id = Annotated[str | None, option(metavar="ID")]


def serve(
    store: Path,
    /,
    *,
    host: str = "127.0.0.1",
    port: int = 8090,
    token: Annotated[str | None, option(env_var="HOLDFAST_TOKEN")] = None,
    watch: Annotated[tuple[Path, ...], option(metavar="PATH")] = (),
    runs: Annotated[tuple[Path, ...], option(metavar="FOLDER")] = (),
    live: Annotated[Path | None, option(metavar="TOML")] = None,
    poll: Duration = 60.0,
    timezone: Zone = None,
    cluster: str = "",
    actions: File = None,
    model: Measured = Measured(),
) -> None:
    """Serve the web console, with /metrics for Prometheus, until Ctrl-C.

    Args:
        store: Store folder; created if missing with --watch or --live.
        host: Address to bind; any but localhost needs --token.
        port: Port; 0 picks a free one.
        token: Access token; prefer HOLDFAST_TOKEN so it does not show up in `ps`.
        watch: Log or folder of logs to ingest whenever it changes; repeatable.
        runs: Folder with records of runs, or around them, for the ledger in /metrics; repeatable.
        live: Sources to ask while the console runs: slurmrestd, Prometheus (TOML).
        poll: Polling interval of --watch, and of what --live brings.
        timezone: Time zone of watched logs that state none (default: the store's, else UTC).
        cluster: Cluster of watched logs that state none.
        actions: Limits, commands and people who may act on nodes (TOML).
    """
    from holdfast.fleet.console.serving import serve as run
    from holdfast.progress import remark

    for path in watch:
        if not path.exists():
            remark(f"{path} is not there yet; it is read when it appears")
    run(
        store,
        host=host,
        port=port,
        token=token,
        watch=list(watch),
        runs=runs,
        live=live,
        poll_s=poll,
        timezone=timezone,
        cluster=cluster,
        assumptions=assumed(model),
        actions=actions,
        on_start=lambda url: remark(f"console: {url} (Ctrl-C ends it)"),
    )


def alerts() -> None:
    """Print the alert rules for Prometheus that go with the metrics of `serve`."""
    from holdfast.fleet.console.views import alert_rules

    print(alert_rules(), end="")


def act(
    store: Path,
    /,
    *,
    approve: Id = None,
    undo: Id = None,
    repaired: Id = None,
    give_back: Id = None,
    reject: Id = None,
    why: str = "",
    who: Name = None,
    actions: File = None,
    window: Window = Window(),
    checks: Checks = Checks(),
    losses: Losses = Losses(),
    fdr: Share = Assumptions.lemon_fdr,
) -> Answer:
    """List what should be done about nodes; do it once it is approved, on Slurm.

    Without an id nothing is done. Each step goes into the store's journal, with who and why.

    Args:
        store: Store folder that `holdfast fleet ingest` wrote.
        approve: Drain the node of this id, if the limits allow it.
        undo: Resume a node that was drained by mistake.
        repaired: Note that a drained node was repaired; --why says how.
        give_back: Resume a node after its repair.
        reject: Note that a node is not to be drained.
        why: Reason, for the journal.
        who: Name for the journal (default: the user).
        actions: Limits, commands and people (TOML).
        fdr: False discovery rate of lemon nodes.
    """
    from holdfast.fleet.live import actions as room
    from holdfast.fleet.live.settings import read_settings

    lives = dict(zip(room.DEEDS, (approve, undo, give_back, repaired, reject), strict=True))
    deeds = [deed for deed, life in lives.items() if life is not None]
    if len(deeds) > 1:
        options = " and ".join(f"--{deed}" for deed in deeds)
        raise InputError("one thing at a time", code="conflict", found=options)
    settings = read_settings(actions)
    log = opened(store, window, checks, losses, lemon_fdr=fdr)
    for deed in deeds:
        return room.act(log, deed, lives[deed] or "", who=who or "", why=why, settings=settings)
    return room.actions(log, settings)


def judge(
    store: Path,
    rules: Annotated[Path, option(metavar="RULES.toml")],
    /,
    *,
    window: Window = Window(),
    checks: Checks = Checks(),
    losses: Losses = Losses(),
) -> Answer:
    """Judge rules that pull nodes, and the actions that happened, by what became of the nodes.

    Each rule is replayed through the log: what it would have pulled and when, how many of these nodes
    failed again beside matched ones, hours saved and wasted, false alarms.

    Args:
        store: Store folder that `holdfast fleet ingest` wrote.
        rules: Rules: a check fires, so many failures in a time, a lemon test (TOML).
    """
    from holdfast.fleet.live.judge import judge as run

    return run(opened(store, window, checks, losses), rules)


def morning(
    store: Path,
    /,
    *,
    since: Annotated[str, option(metavar="last|WHEN")] = "last",
    seen: bool = False,
    reader: str = "",
    engine: Engine = DEFAULT_ENGINE,
    model: Model = Model(),
) -> Answer:
    """Show what changed since the last look: losses, lemon nodes, loops, silent sources, forecasts.

    Args:
        store: Store folder that `holdfast fleet ingest` wrote.
        since: Start of the change: the last look, 12h (before the end of the log) or an ISO time.
        seen: Remember this look for --since last.
        reader: Name of the reader whose looks are remembered.
        engine: Where tables are computed: duckdb, spark://HOST:PORT, spark://local[N].
    """
    from holdfast.fleet.live import morning as room

    answer = room.morning(opened(store, Window(engine=engine), model), since, reader=reader)
    if seen:
        room.seen(answer, reader)
    return answer
