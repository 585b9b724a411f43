"""Starts the console: checks what it is given, binds its address, and serves until it is interrupted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from holdfast import serving
from holdfast.errors import InputError, MissingExtraError
from holdfast.fleet.assumptions import Assumptions
from holdfast.fleet.console.watching import Watcher
from holdfast.fleet.ingestion import zone_of
from holdfast.fleet.live.settings import read_settings
from holdfast.fleet.live.sources import Sources, read_sources
from holdfast.fleet.store import MANIFEST, Store, existing_store


def serve(
    store: str | Path,
    *,
    host: str = "127.0.0.1",
    port: int = 8090,
    token: str | None = None,
    watch: Sequence[str | Path] = (),
    runs: Sequence[str | Path] = (),
    live: str | Path | None = None,
    poll_s: float = 60.0,
    timezone: str | None = None,
    cluster: str = "",
    assumptions: Assumptions | None = None,
    actions: str | Path | None = None,
    on_start: Callable[[str], None] = lambda url: None,
) -> None:
    """Show a store in a web console, until Ctrl-C.

    Args:
        store: the folder of the store; with `watch` it is made if it is missing.
        host: the address to bind. Another than the loopback needs a token.
        port: 0: any that is free.
        token: what a reader must show; None: whoever is on this machine.
        watch: logs to read into the store while they grow: files, and folders of them (a spool).
        runs: folders with the records of runs, or around them, for the ledger in `/metrics`.
        live: TOML file of sources to ask while the console runs (`holdfast.fleet.live.sources`).
        poll_s: time between two looks at them.
        timezone: zone of times in them that are written without one; None: the store's, or UTC.
        cluster: name for logs that carry none.
        assumptions: what to assume where the log is silent; None: the paper's values.
        actions: file of limits, commands and people; None: nobody acts on nodes here.
        on_start: called with the address when the console can be opened.

    Raises:
        StoreError: if there is no store and nothing to make it from, or it holds a simulation and
            is to be extended; if another process asks live sources for it.
        InputError: if the address is in use or not this machine's, a token is missing or too short,
            or a watched path cannot be.
        MissingExtraError: if the extra ``console`` is not installed.
    """
    folder = Path(store)
    paths = [Path(path) for path in watch]
    records = [Path(path) for path in runs]
    settings = read_settings(None if actions is None else Path(actions))
    _check(host, port, token or settings.people, paths, poll_s)
    for path in records:
        if not path.is_dir():
            raise InputError("folder not found", code="not-found", place="--runs", path=path)
    live_settings = None if live is None else read_sources(Path(live))
    if timezone is not None:
        zone_of(timezone)
    try:
        import prometheus_client  # noqa: F401  # told now, not at the first scrape
        import uvicorn  # noqa: F401
    except ModuleNotFoundError as error:
        raise MissingExtraError(str(error.name), "console") from error
    from holdfast.fleet.console.app import create_app

    watcher = None
    if paths or live_settings is not None:
        existing_store(folder)
        sources = None if live_settings is None else Sources(folder, live_settings)
        paths += [] if sources is None else [sources.folder]
        watcher = Watcher(
            folder, paths, poll_s=poll_s, timezone=timezone, cluster=cluster, live=sources
        )
    else:
        Store.open(folder)
    app = create_app(
        folder,
        assumptions=assumptions,
        token=token,
        settings=settings,
        watcher=watcher,
        runs=records,
    )
    app.middleware_stack = app.build_middleware_stack()  # now: a token that is too short is told
    with serving.listen(host, port) as listener:
        if watcher is not None and not (folder / MANIFEST).exists():
            watcher.look()  # a page needs a store
        serving.run(app, listener, host, on_start, "console")


def _check(host: str, port: int, tokens: object, paths: Sequence[Path], poll_s: float) -> None:
    from holdfast.fleet.console.access import is_loopback

    if not tokens and not is_loopback(f"[{host}]" if ":" in host else host):
        raise InputError(
            "whoever can reach this address could read the whole log",
            code="token-needed",
            found=f"--host {host} without a token",
            expected="a token, or an address of the loopback such as 127.0.0.1",
            remedy="set HOLDFAST_TOKEN to a secret, for example of `openssl rand -hex 16`",
        )
    if not poll_s > 0:
        raise InputError(
            "the time between two looks is not above zero",
            code="invalid-value",
            found=f"{poll_s:g} s",
        )
    for path in paths:
        if not path.exists() and not path.parent.is_dir():
            raise InputError(
                "folder not found", code="not-found", path=path, remedy="correct --watch"
            )
