"""The console in a browser, as an operator uses it: load, sort, open, drag, run."""

from __future__ import annotations

import asyncio
import re
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Literal, cast

import pytest
import uvicorn
from fastapi import FastAPI
from fastapi.testclient import TestClient
from logs import Attempt, Log
from playwright.sync_api import Browser, Page, expect, sync_playwright

import holdfast.fleet as fleet
from holdfast.fleet.console.app import create_app

CHROMIUM = Path("/usr/bin/chromium")
ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PATIENCE_MS = 60_000

pytestmark = pytest.mark.skipif(not CHROMIUM.exists(), reason=f"no Chromium at {CHROMIUM}")


@contextmanager
def served(app: FastAPI, lifespan: Literal["on", "off"] = "on") -> Iterator[str]:
    """The address of an application that a server of its own shows on a free port of the loopback."""
    config = uvicorn.Config(
        app, log_level="warning", lifespan=lifespan, timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        thread = Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])))
        thread.start()
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture(scope="module")
def address(console: TestClient) -> Iterator[str]:
    """Of a console that its client has started."""
    with served(cast("FastAPI", console.app), "off") as found:
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        expect.set_options(timeout=PATIENCE_MS)
        yield started
        started.close()


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    """A tab that fails the test if a script fails or the policy blocks something."""
    trouble: list[str] = []
    context = browser.new_context(base_url=address, viewport={"width": 1280, "height": 900})
    context.set_default_timeout(PATIENCE_MS)
    tab = context.new_page()
    tab.on("pageerror", lambda error: trouble.append(str(error)))
    tab.on("console", lambda said: trouble.append(said.text) if said.type == "error" else None)
    tab.on("request", lambda each: trouble.append(each.url) if address not in each.url else None)
    yield tab
    context.close()
    # A field that makes no sense is answered with 400, which the browser notes as an error.
    expected = ("data:", "Failed to load resource: the server responded with a status of 400")
    assert not [each for each in trouble if not each.startswith(expected)]


def column(page: Page, place: int) -> list[str]:
    return page.locator(f"#lemons-table-1 tbody td:nth-child({place})").all_inner_texts()


def test_the_summary_and_the_way_to_its_evidence(page: Page) -> None:
    page.goto("/summary")
    expect(page.locator("#findings li").first).to_contain_text("GPU-hours were lost")
    page.get_by_role("link", name="Evidence for finding 2").click()
    page.wait_for_url("**/nodes#lemons")
    expect(page.locator("nav a[aria-current=page]")).to_have_text("Nodes")


@pytest.mark.parametrize(("width", "height", "screens"), [(1280, 1000, 1), (390, 844, 3)])
def test_the_first_screen_is_one(
    browser: Browser, tmp_path: Path, width: int, height: int, screens: int
) -> None:
    jobs = [Attempt(k + 1, (f"n{k % 3}",), k * 40_000, k * 40_000 + 30_000) for k in range(60)]
    with served(create_app(Log(jobs).store(tmp_path), patience_s=60)) as address:
        tab = browser.new_page(viewport={"width": width, "height": height})
        tab.goto(address)
        expect(tab.locator("#findings li").first).to_contain_text("as usual")
        assert tab.locator("#changes tbody tr").count() == 6
        [tall, wide] = tab.evaluate(
            "[document.documentElement.scrollHeight, document.documentElement.scrollWidth]"
        )
        tab.close()
    assert wide <= width
    assert tall <= screens * height


@pytest.mark.full
@pytest.mark.parametrize(("width", "height", "screens"), [(1280, 1000, 1), (390, 844, 3)])
def test_several_clusters_are_on_one_screen(
    browser: Browser, tmp_path: Path, width: int, height: int, screens: int
) -> None:
    jobs = [Attempt(k + 1, (f"n{k % 3}",), k * 40_000, k * 40_000 + 30_000) for k in range(60)]
    [log] = Log(jobs).write(tmp_path / "logs")
    clusters = [f"c{k}" for k in range(4)]
    for name in clusters:
        own = tmp_path / f"{name}.psv"
        own.write_text(log.read_text().replace("|c|", f"|{name}|"))
        fleet.ingest([own], tmp_path / "store")
    with served(create_app(tmp_path / "store", patience_s=60)) as address:
        tab = browser.new_page(viewport={"width": width, "height": height})
        tab.goto(address)
        rows = tab.locator("#clusters tbody tr")
        assert [text.split()[0] for text in rows.all_inner_texts()] == clusters
        [tall, wide] = tab.evaluate(
            "[document.documentElement.scrollHeight, document.documentElement.scrollWidth]"
        )
        tab.get_by_role("link", name="c2", exact=True).click()
        expect(tab.locator(".subtitle")).to_have_text("Cluster c2")
        expect(tab.locator("#findings li").first).to_contain_text("as usual")
        tab.close()
    assert wide <= width
    assert tall <= screens * height


def test_a_table_is_sorted_with_the_keyboard(page: Page) -> None:
    page.goto("/nodes")
    head = page.locator("#lemons-table-1 th").first
    assert head.get_attribute("aria-sort") == "none"
    head.get_by_role("button").focus()
    page.keyboard.press("Enter")
    expect(head).to_have_attribute("aria-sort", "ascending")
    assert column(page, 1) == [f"node{k:02}" for k in range(1, 17)]
    page.keyboard.press("Space")
    expect(head).to_have_attribute("aria-sort", "descending")
    assert column(page, 1) == [f"node{k:02}" for k in range(16, 0, -1)]
    blame = page.locator("#lemons-table-1 th", has_text="Blame")
    blame.get_by_role("button").click()
    expect(blame).to_have_attribute("aria-sort", "descending")
    expect(head).to_have_attribute("aria-sort", "none")
    values = [float(text) for text in column(page, 2)]
    assert values == sorted(values, reverse=True)


def test_the_drawer_opens_closes_and_has_an_address(page: Page) -> None:
    page.goto("/nodes")
    link = page.get_by_role("link", name="node16")
    link.focus()
    page.keyboard.press("Enter")
    drawer = page.get_by_role("dialog", name="node16")
    expect(drawer).to_be_visible()
    expect(drawer.get_by_role("heading", name="Is it a lemon?")).to_be_visible()
    expect(drawer).to_contain_text("jobs that exclude it")
    expect(drawer).to_contain_text("When was it out of service?")
    expect(page).to_have_url(re.compile("/nodes/node16$"))
    page.keyboard.press("Escape")
    expect(drawer).to_be_hidden()
    expect(link).to_be_focused()
    expect(page).to_have_url(re.compile("/nodes$"))
    link.click()
    expect(drawer).to_be_visible()
    expect(page).to_have_url(re.compile("/nodes/node16$"))
    page.reload()  # the address is that of the node's own page
    expect(page.get_by_role("heading", level=1)).to_have_text("node16")


def test_a_job_is_found(page: Page) -> None:
    page.goto("/jobs")
    page.get_by_label("Job id, user, node").fill("93")
    page.keyboard.press("Enter")
    page.get_by_role("link", name="93", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Job 93")
    expect(page.locator("#timeline .plot svg")).to_be_visible()
    expect(page.locator("#timeline-table-1 tbody tr")).to_have_count(10)


def test_a_phone_needs_no_sideways_scrolling(browser: Browser, address: str) -> None:
    size = {"width": 390, "height": 844}
    context = browser.new_context(base_url=address, viewport=size, color_scheme="light")
    context.set_default_timeout(PATIENCE_MS)
    tab = context.new_page()
    for path in ("/", "/nodes", "/ettr", "/jobs/93"):
        tab.goto(path)
        for scheme, background in (("light", "rgb(255, 255, 255)"), ("dark", "rgb(21, 24, 28)")):
            tab.emulate_media(color_scheme=scheme)
            assert tab.evaluate("document.documentElement.scrollWidth") <= 390, (path, scheme)
            shown = tab.evaluate("getComputedStyle(document.body).backgroundColor")
            assert shown == background, (path, scheme)
    context.close()


@pytest.mark.full
def test_a_new_commit_shows_itself(browser: Browser, tmp_path: Path) -> None:
    """The summary reloads; a page on which somebody types only says that there is news."""
    jobs = [Attempt(job, ("n1",), job * 3600, (job + 1) * 3600) for job in range(3)]
    store = Log(jobs[:2]).store(tmp_path)
    more = Log(jobs).store(tmp_path / "more")
    with served(create_app(store, patience_s=60)) as address:
        context = browser.new_context(base_url=address)
        tabs = {path: context.new_page() for path in ("/", "/ettr")}
        for path, tab in tabs.items():
            tab.clock.install()
            tab.goto(path)
        expect(tabs["/"].get_by_text("2 of 2 jobs")).to_be_visible()
        for part in (more / "attempts").iterdir():
            shutil.copy(part, store / "attempts")
        (more / "store.json").replace(store / "store.json")
        for tab in tabs.values():
            tab.clock.run_for(6_000)
        expect(tabs["/"].get_by_text("3 of 3 jobs")).to_be_visible()
        expect(tabs["/ettr"].get_by_text("The store has new data.")).to_be_visible()
        context.close()
