"""The board in a browser: what the endpoint says, what it refuses, and a game on the page."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest
from starlette.testclient import TestClient

from holdfast.errors import InputError
from holdfast.go.serving import MOST_BYTES, Board, Question, serve
from holdfast.serving import listen

CHROMIUM = Path("/usr/bin/chromium")
EATEN = ["C3", "A1", "B1", "pass", "A2"]


@pytest.fixture(scope="module")
def board() -> Board:
    return Board(visits=50)


@pytest.fixture(scope="module")
def client(board: Board) -> Iterator[TestClient]:
    with TestClient(board.app()) as found:
        yield found


def test_a_position_is_that_of_its_moves(client: TestClient) -> None:
    found = client.post("/position", json={"moves": EATEN, "size": "5x4", "komi": 0.5}).json()
    # The stone in the corner was captured; white may not play there again.
    assert [row[0] for row in found["colors"]] == [0, 0, 0, 1, 0]
    assert (found["turn"], found["over"], found["result"]) == (2, False, None)
    assert "A1" not in found["legal"]
    assert len(found["legal"]) == 20 - 3 - 1
    assert 0 <= found["win_rate"] <= 1
    assert found["line"][0] == found["candidates"][0]["vertex"]
    assert [len(row) for row in found["owners"]] == [4] * 5


@pytest.mark.parametrize("black", [True, False])
def test_everything_is_seen_by_black(board: Board, black: bool) -> None:
    wall = ["B1", "B2", "B3", "B4", "B5", "D1", "D2", "D3", "D4", "D5"]
    moves = [move for one in wall for move in ([one, "pass"] if black else ["pass", one])]
    for extra in ([], ["pass"]):  # whoever moves
        found = board.position(Question([*moves, *extra][:-1] if black else moves, "5x5"))
        assert (found["win_rate"] > 0.7) == black
        assert (found["lead"] > 0) == black
        assert (sum(map(sum, found["owners"])) > 10) == black


def test_a_game_that_is_over_is_scored_without_dead_stones(board: Board) -> None:
    moves = ["B1", "A1", "B2", "pass", "B3", "pass", "A3", "pass", "C2", "pass", "pass"]
    found = board.position(Question(moves, "3x3", komi=0.5))
    assert (found["over"], found["result"], found["win_rate"]) == (True, "B+8.5", 1.0)
    assert found["owners"] == [[1.0] * 3] * 3


@pytest.mark.parametrize(
    "body",
    [
        "",
        "[1]",
        "null",
        '"examples/go/train-7x7.toml"',
        "[" * 50_000,
        '{"moves": ["E5", "E5"]}',
        '{"moves": ["Z1"]}',
        '{"moves": 3}',
        '{"size": "20x20"}',
        '{"komi": NaN}',
        '{"komi": 1e9}',
        '{"rules": "ing"}',
        '{"net": "x"}',
        "\xff",
    ],
)
def test_what_is_no_position_is_refused(client: TestClient, body: str) -> None:
    found = client.post("/position", content=body.encode("latin-1"))
    assert found.status_code == 400
    assert found.json()["error"]


@pytest.mark.parametrize("body", ["[]", '[["size", "5x5"]]', "null", '"x"', "3", "true"])
def test_a_position_is_an_object(client: TestClient, body: str) -> None:
    found = client.post("/position", content=body)
    assert (found.status_code, found.json()) == (400, {"error": "the position: invalid value"})


def test_a_client_that_leaves_is_no_error(board: Board) -> None:
    parts = [
        {"type": "http.request", "body": b"{}", "more_body": True},
        {"type": "http.disconnect"},
    ]
    scope = {"type": "http", "method": "POST", "path": "/position", "headers": []}

    async def receive() -> dict[str, object]:
        return parts.pop(0)

    async def send(_: object) -> None:
        pass

    asyncio.run(board.app()(scope, receive, send))
    assert not parts


def test_requests_have_a_largest_size(client: TestClient) -> None:
    assert client.post("/position", content=bytes(MOST_BYTES + 1)).status_code == 413


def test_a_port_that_is_taken_is_refused() -> None:
    with listen("127.0.0.1", 0) as taken, pytest.raises(InputError) as caught:
        serve(port=taken.getsockname()[1])
    assert caught.value.code == "address-in-use"


def test_the_command_serves_until_it_is_interrupted() -> None:
    line = "from holdfast.cli import main; main()"
    command = [sys.executable, "-c", line, "go", "serve", "--port", "0", "--visits", "10"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as run:
        try:
            assert run.stderr is not None
            urls = (re.search(r"http://[^\s/]+/", line) for line in run.stderr)
            url = next(found[0] for found in urls if found)
            with urllib.request.urlopen(url, timeout=60) as answer:
                assert b'<svg id="board"' in answer.read()
            run.send_signal(signal.SIGINT)
            assert run.wait(60) == 0
        finally:
            run.kill()


@pytest.mark.full
@pytest.mark.skipif(not CHROMIUM.exists(), reason=f"no Chromium at {CHROMIUM}")
def test_a_game_in_a_browser(board: Board) -> None:
    import uvicorn
    from playwright.sync_api import expect, sync_playwright

    server = uvicorn.Server(uvicorn.Config(board.app(), log_level="warning", lifespan="on"))
    trouble: list[str] = []
    with listen("127.0.0.1", 0) as listener, sync_playwright() as playwright:
        thread = Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])), daemon=True)
        thread.start()
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        expect.set_options(timeout=20_000)
        page = browser.new_page(viewport={"width": 390, "height": 800})
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.on("console", lambda said: trouble.append(said.text) if said.type == "error" else None)
        page.goto(f"http://127.0.0.1:{listener.getsockname()[1]}/")
        status, stones = page.locator("#status"), page.locator(".stone")
        expect(status).to_contain_text("Black to move. Estimated")
        # 1. A click, and the engine's reply; by keyboard, the point to the right of the middle.
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        box = page.locator("#board").bounding_box()
        assert box is not None
        cell = box["width"] / 9.8
        page.mouse.click(box["x"] + 5.2 * cell, box["y"] + 5.2 * cell)  # column E, row 5
        expect(stones).to_have_count(2)
        expect(status).to_contain_text("Black to move. Estimated")
        page.locator("#board").focus()
        page.keyboard.press("ArrowRight")
        page.keyboard.press("Enter")
        expect(stones).to_have_count(4)
        expect(status).to_contain_text("Black to move. Estimated")
        assert page.evaluate("game.question.moves[0]") == "E5"
        # 2. Undo takes back the engine's move, too; nobody's engine leaves both sides to the reader.
        page.get_by_role("button", name="Undo").click()
        expect(stones).to_have_count(2)
        expect(status).to_contain_text("Black to move. Estimated")
        page.select_option("#engine", "0")
        page.select_option("#show", "owners")
        expect(page.locator(".owner").first).to_be_visible()
        page.select_option("#show", "line")
        expect(page.locator(".line").first).to_be_visible()
        expect(page.locator("#line")).to_contain_text("1. ")
        # 3. The end of a game, and a new one on another board.
        for _ in range(2):
            expect(status).to_contain_text("to move. Estimated")
            page.get_by_role("button", name="Pass").click()
        expect(status).to_contain_text("Game over")
        page.select_option("#size", "5x5")
        page.get_by_role("button", name="New game").click()
        expect(status).to_contain_text("Black to move. Estimated")
        assert page.evaluate("position.legal.length") == 25
        browser.close()
        server.should_exit = True
        thread.join()
    assert trouble == []
