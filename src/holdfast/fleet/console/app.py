"""The console as a web application: routes, what they answer, and what they answer when they cannot.

Every page is written on the server from the current snapshot of the store; the scripts only sort, open
and redraw. No route takes a file name, and job ids and node names are compared with columns of tables.
"""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qsl

from holdfast.errors import HoldfastError, MissingExtraError, StoreError
from holdfast.fleet.analysis import Analysis
from holdfast.fleet.assumptions import Assumptions
from holdfast.fleet.console import metrics, pages, views
from holdfast.fleet.console.access import Access, check_token, is_own
from holdfast.fleet.console.pages import View
from holdfast.fleet.console.snapshots import PATIENCE_S, Snapshot, Snapshots
from holdfast.fleet.console.watching import Background, Watcher
from holdfast.fleet.live import actions, morning, notices
from holdfast.fleet.live.settings import Person, Settings, secret
from holdfast.report import warm_up

try:
    from fastapi import FastAPI, Request
    from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
    from starlette.concurrency import run_in_threadpool
    from starlette.exceptions import HTTPException
    from starlette.routing import Route
except ModuleNotFoundError as error:
    raise MissingExtraError("fastapi", "console") from error

MOST_BYTES = 10_000  # Of a form
NOTICES_S = 60.0  # Between two looks for changes to send
A_YEAR = "public, max-age=31536000, immutable"


def create_app(
    store: Path,
    *,
    assumptions: Assumptions | None = None,
    token: str | None = None,
    settings: Settings | None = None,
    watcher: Watcher | None = None,
    runs: Sequence[Path] = (),
    patience_s: float = PATIENCE_S,
) -> FastAPI:
    """The console of a store.

    Args:
        store: the folder that `ingest` wrote; it may come later.
        assumptions: what to assume where the log is silent; None: the paper's values.
        token: what a reader must show; None: whoever asks under a name of the loopback.
        settings: who may act on nodes, and how; None: nobody, here.
        watcher: feeds the store while the console runs.
        runs: folders with the records of its runs, for the ledger in `/metrics`.
        patience_s: how long a page waits for the analysis of a new commit.

    Raises:
        InputError: if the token is too short to be a secret.
        MissingExtraError: if the extra ``console`` is not installed.
    """
    settings = settings or Settings()
    tokens: dict[str, Person | None] = {} if token is None else {token: None}
    tokens |= {secret(each.token, f"the token of {each.name}"): each for each in settings.people}
    for each in tokens:
        check_token(each)
    console = Console(
        Snapshots(
            store, assumptions or Assumptions(), prepare=pages.prepare, patience_s=patience_s
        ),
        watcher,
        runs,
        settings,
    )
    no_docs: dict[str, Any] = dict.fromkeys(("docs_url", "redoc_url", "openapi_url"))
    app = FastAPI(title="holdfast", lifespan=console.lifespan, redirect_slashes=False, **no_docs)
    app.add_middleware(Access, tokens=tokens, refuse=message)
    _add_pages(app, console)
    _add_actions(app, console)
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
    watcher: Watcher | None = None
    runs: Sequence[Path] = ()
    settings: Settings = field(default_factory=Settings)

    @asynccontextmanager
    async def lifespan(self, app: FastAPI) -> AsyncIterator[None]:
        """Start what runs in the background; end it with the console."""
        warm_up()
        Thread(target=self._look, daemon=True).start()
        background: list[Watcher | Background] = [] if self.watcher is None else [self.watcher]
        if self.settings.notices is not None:
            send = notices.sender(self.settings.notices)
            background.append(Background("notices", lambda: self._notify(send)))
        for each in background:
            each.start()
        try:
            yield
        finally:
            for each in background:
                each.stop()

    def _notify(self, send: Callable[[str, str], bool]) -> float:
        try:
            self.notify(send, time.time())
        except Exception as error:  # the console works without it
            text = " ".join(str(error).split())
            print(f"notices: {type(error).__name__}: {text}", file=sys.stderr)
        return NOTICES_S

    def notify(self, send: Callable[[str, str], bool], now_s: float) -> list[str]:
        """Send what is new, and the day's digest when it is due; gives the keys of what was sent."""
        assert self.settings.notices is not None
        decisions, news = self.snapshots.answer(
            lambda snapshot: snapshot.read(
                lambda analysis: (
                    actions.actions(analysis, self.settings),
                    morning.morning(analysis),
                )
            )
        )
        sources = () if self.watcher is None else self.watcher.sources()
        return notices.send_new(
            self.snapshots.store,
            self.settings.notices,
            notices.changes(decisions, news, sources, now_s),
            send,
            now_s=now_s,
            digest=lambda: self.snapshots.answer(pages.digest),
        )

    def _look(self) -> None:
        """Analyse the store before the first reader comes; trouble is reported to that reader."""
        with suppress(HoldfastError):
            self.snapshots.current()

    def show(self, build: Callable[[Snapshot], View]) -> HTMLResponse:
        """The page that `build` makes of the current snapshot."""
        view = self.snapshots.answer(build)
        if self.watcher is None:
            return HTMLResponse(views.html(view.template, view.context))
        sources = [(s.trouble, s.sentence(time.time())) for s in self.watcher.sources()]
        live = {"watching": self.watcher.describe(), "sources": sources}
        return HTMLResponse(views.html(view.template, {**view.context, **live}))


def _add_pages(app: FastAPI, console: Console) -> None:
    def add(address: str, build: Callable[[Snapshot], View]) -> None:
        app.add_api_route(address, lambda: console.show(build), response_model=None)

    add("/nodes", pages.nodes)
    for address in pages.OF_REPORT:
        add(address, partial(pages.of_report, here=address))

    @app.get("/")
    def this_morning(request: Request, cluster: str = "") -> Response:
        person = request.scope.get("person")
        return console.show(lambda snapshot: pages.morning(snapshot, person, cluster))

    @app.get("/nodes/{name}")
    def node(name: str) -> Response:
        return console.show(lambda snapshot: pages.node(snapshot, name))

    @app.get("/jobs")
    def jobs(q: str = "") -> Response:
        return console.show(lambda snapshot: pages.jobs(snapshot, q.strip()))

    @app.get("/jobs/{job_id}")
    def job(job_id: str) -> Response:
        return console.show(lambda snapshot: pages.job(snapshot, job_id))


def _add_actions(app: FastAPI, console: Console) -> None:
    @app.get("/actions")
    def actions_page(request: Request) -> Response:
        person = request.scope.get("person")
        return console.show(lambda snapshot: pages.acting(snapshot, console.settings, person))

    async def read_form(request: Request) -> tuple[Person, str]:
        """Who sent a form from a page of this console, and the reason in it."""
        person: Person | None = request.scope.get("person")
        if person is None:
            raise HTTPException(403, "Only somebody with a token of their own decides here")
        body = (await request.body())[:MOST_BYTES].decode("utf-8", "replace")
        form = dict(parse_qsl(body))
        if not is_own(request.headers, person, form.get("word", "")):
            raise HTTPException(403, "This was not asked from a page of this console")
        return person, form.get("why", "")

    async def run(build: Callable[[Analysis], object]) -> None:
        """Run what takes a while beside the loop of events."""
        read = console.snapshots.answer
        await run_in_threadpool(read, lambda snapshot: snapshot.read(build))

    @app.post("/seen")
    async def look(request: Request) -> Response:
        person, _ = await read_form(request)
        reader = person.name
        await run(lambda it: morning.seen(morning.morning(it, reader=reader), reader))
        return RedirectResponse("/", 303)

    @app.post("/actions/{life_id}/{deed}")
    async def decide(request: Request, life_id: str, deed: str) -> Response:
        person, why = await read_form(request)
        if deed not in actions.DEEDS:
            raise HTTPException(404)
        act = partial(
            actions.act,
            deed=deed,
            life_id=life_id,
            who=person.name,
            why=why,
            settings=console.settings,
            may=person.may_act_on,
        )
        await run(lambda it: act(it.log))
        return RedirectResponse("/actions", 303)


def _add_data(app: FastAPI, console: Console) -> None:
    @app.get("/generation")
    def generation() -> Response:
        try:
            return JSONResponse({"generation": console.snapshots.current().generation})
        except StoreError as error:
            # A page that is open reloads, and says what is wrong.
            return JSONResponse({"generation": "none", "problem": str(error)}, 503)

    measure = partial(metrics.measure, runs=console.runs)

    @app.get("/metrics")
    def exposition() -> Response:
        status = None if console.watcher is None else console.watcher.status()
        sources = [] if console.watcher is None else console.watcher.sources()
        text = console.snapshots.answer(
            lambda it: metrics.exposition(it.cache("metrics", measure), status, sources)
        )
        return Response(text, headers={"Content-Type": metrics.CONTENT_TYPE})

    @app.get("/static/{name}")
    def static(name: str) -> Response:
        asset = views.asset_file(name)
        if asset is None:
            raise HTTPException(404)
        return Response(asset[1], media_type=asset[0], headers={"Cache-Control": A_YEAR})


def _add_errors(app: FastAPI) -> None:
    def trouble(request: Request, error: Exception) -> Response:
        if isinstance(error, pages.Unknown):
            return message(404, error.what, error.remedy, links=error.links)
        if isinstance(error, StoreError):
            remedy = "Fix the store; this page then shows it without a restart of the console."
            links = {"/": "Try again"}
            return message(503, "The store cannot be read", remedy, found=str(error), links=links)
        if isinstance(error, HoldfastError):
            return message(400, "This cannot be shown", "", found=str(error))
        if isinstance(error, HTTPException):
            title = "Page not found" if error.status_code == 404 else str(error.detail)
            return message(error.status_code, title, "")
        remedy = "It is in the output of `holdfast fleet serve`; the other pages still work."
        return message(500, "The console made a mistake", remedy)

    for kind in (pages.Unknown, HoldfastError, HTTPException, Exception):
        app.add_exception_handler(kind, trouble)


_HOME = {"/": "This morning"}


def message(
    status: int, title: str, remedy: str, *, found: str = "", links: Mapping[str, str] = _HOME
) -> Response:
    """A page that says what is wrong and what to do."""
    context = {"title": title, "remedy": remedy, "found": found, "links": links}
    if status in (401, 421):  # who is not let in is led nowhere
        context |= {"navigation": {}, "links": {}}
    return HTMLResponse(views.html("message.html.j2", context), status)
