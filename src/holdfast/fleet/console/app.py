"""The console as a web application: routes, what they answer, and what they answer when they cannot.

Every page is written on the server from the current snapshot of the store; the scripts only sort, open
and redraw. No route takes a file name, and job ids and node names are compared with columns of tables.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any

from holdfast.errors import HoldfastError, MissingExtraError, StoreError
from holdfast.fleet.assumptions import Assumptions
from holdfast.fleet.console import metrics, pages, views
from holdfast.fleet.console.access import Access, check_token
from holdfast.fleet.console.pages import View
from holdfast.fleet.console.snapshots import PATIENCE_S, Snapshot, Snapshots
from holdfast.fleet.console.watching import Watcher
from holdfast.report import warm_up

try:
    from fastapi import FastAPI, Request
    from fastapi.responses import HTMLResponse, JSONResponse, Response
    from starlette.exceptions import HTTPException
    from starlette.routing import Route
except ModuleNotFoundError as error:
    raise MissingExtraError("fastapi", "console") from error

A_YEAR = "public, max-age=31536000, immutable"


def create_app(
    store: Path,
    *,
    assumptions: Assumptions | None = None,
    token: str | None = None,
    watcher: Watcher | None = None,
    patience_s: float = PATIENCE_S,
) -> FastAPI:
    """The console of a store.

    Args:
        store: the folder that `ingest` wrote; it may come later.
        assumptions: what to assume where the log is silent; None: the paper's values.
        token: what a reader must show; None: whoever asks under a name of the loopback.
        watcher: feeds the store while the console runs.
        patience_s: how long a page waits for the analysis of a new commit.

    Raises:
        InputError: if the token is too short to be a secret.
        MissingExtraError: if the extra ``console`` is not installed.
    """
    if token is not None:
        check_token(token)
    console = Console(
        Snapshots(
            store, assumptions or Assumptions(), prepare=pages.prepare, patience_s=patience_s
        ),
        watcher,
    )
    no_docs: dict[str, Any] = dict.fromkeys(("docs_url", "redoc_url", "openapi_url"))
    app = FastAPI(title="holdfast", lifespan=console.lifespan, redirect_slashes=False, **no_docs)
    app.add_middleware(Access, token=token, refuse=message)
    _add_pages(app, console)
    _add_data(app, console)
    _add_errors(app)
    for route in app.routes:  # a probe asks with HEAD; the server leaves the body out
        if isinstance(route, Route) and route.methods is not None and "GET" in route.methods:
            route.methods.add("HEAD")
    return app


@dataclass(eq=False)
class Console:
    """What the routes share."""

    snapshots: Snapshots
    watcher: Watcher | None

    @asynccontextmanager
    async def lifespan(self, app: FastAPI) -> AsyncIterator[None]:
        """Start what runs in the background; end it with the console."""
        warm_up()
        Thread(target=self._look, daemon=True).start()
        if self.watcher is not None:
            self.watcher.start()
        try:
            yield
        finally:
            if self.watcher is not None:
                self.watcher.stop()

    def _look(self) -> None:
        """Analyse the store before the first reader comes; trouble is reported to that reader."""
        with suppress(HoldfastError):
            self.snapshots.current()

    def show(self, build: Callable[[Snapshot], View]) -> HTMLResponse:
        """The page that `build` makes of the current snapshot."""
        view = self.snapshots.answer(build)
        watching = "" if self.watcher is None else self.watcher.describe()
        return HTMLResponse(views.html(view.template, {**view.context, "watching": watching}))


def _add_pages(app: FastAPI, console: Console) -> None:
    def route(address: str) -> Callable[[], Response]:
        return lambda: console.show(lambda snapshot: pages.of_report(snapshot, address))

    for address in pages.OF_REPORT:
        app.add_api_route(address, route(address), response_model=None)

    @app.get("/")
    def morning() -> Response:
        return console.show(pages.morning)

    @app.get("/nodes")
    def nodes() -> Response:
        return console.show(pages.nodes)

    @app.get("/nodes/{name}")
    def node(name: str) -> Response:
        return console.show(lambda snapshot: pages.node(snapshot, name))

    @app.get("/jobs")
    def jobs(q: str = "") -> Response:
        return console.show(lambda snapshot: pages.jobs(snapshot, q.strip()))

    @app.get("/jobs/{job_id}")
    def job(job_id: str) -> Response:
        return console.show(lambda snapshot: pages.job(snapshot, job_id))


def _add_data(app: FastAPI, console: Console) -> None:
    @app.get("/generation")
    def generation() -> Response:
        try:
            return JSONResponse({"generation": console.snapshots.current().generation})
        except StoreError as error:
            # A page that is open reloads, and says what is wrong.
            return JSONResponse({"generation": "none", "problem": str(error)}, 503)

    @app.get("/metrics")
    def exposition() -> Response:
        status = None if console.watcher is None else console.watcher.status()
        text = console.snapshots.answer(
            lambda it: metrics.exposition(it.kept("metrics", metrics.measure), status)
        )
        return Response(text, headers={"Content-Type": metrics.CONTENT_TYPE})

    @app.get("/static/{name}")
    def static(name: str) -> Response:
        found = views.asset_file(name)
        if found is None:
            raise HTTPException(404)
        return Response(found[1], media_type=found[0], headers={"Cache-Control": A_YEAR})


def _add_errors(app: FastAPI) -> None:
    def trouble(request: Request, error: Exception) -> Response:
        if isinstance(error, pages.Unknown):
            return message(404, error.what, error.remedy, links=error.links)
        if isinstance(error, StoreError):
            again = {"/": "Try again"}
            return message(
                503,
                "The store cannot be read",
                "Fix the store; this page then shows it without a restart of the console.",
                found=str(error),
                links=again,
            )
        if isinstance(error, HoldfastError):
            return message(400, "This cannot be shown", "", found=str(error), links=_HOME)
        if isinstance(error, HTTPException):
            what = "Page not found" if error.status_code == 404 else str(error.detail)
            return message(error.status_code, what, "", links=_HOME)
        return message(
            500,
            "The console made a mistake",
            "It is in the output of `holdfast fleet serve`; the other pages still work.",
            links=_HOME,
        )

    for kind in (pages.Unknown, HoldfastError, HTTPException, Exception):
        app.add_exception_handler(kind, trouble)


_HOME = {"/": "This morning"}


def message(
    status: int, title: str, remedy: str, *, found: str = "", links: dict[str, str] | None = None
) -> Response:
    """A page that says what is wrong and what to do."""
    context = {"title": title, "remedy": remedy, "found": found, "links": links or {}}
    if status in (401, 421):
        context["navigation"] = {}
    return HTMLResponse(views.html("message.html.j2", context), status)
