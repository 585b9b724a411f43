"""A board in the browser: one page, and one endpoint that says what a position is worth.

The page has the game; a request has all of its moves, so that a game can be undone, left and opened twice.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

from holdfast import serving
from holdfast.config import invalid_value, read_config
from holdfast.errors import InputError, MissingExtraError
from holdfast.go._kernels import BLACK, WHITE
from holdfast.go.analysis import Judge
from holdfast.go.puct import make_search
from holdfast.go.referee import settle
from holdfast.go.rules import Game, read_size, result_text

try:
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import HTMLResponse, JSONResponse, Response
    from starlette.routing import Route
except ModuleNotFoundError as error:
    raise MissingExtraError(str(error.name), "go") from error

HOST = "127.0.0.1"
MOST_BYTES = 100_000
"""Of a request."""
MOST_KOMI = 1_000.0


@dataclass(frozen=True)
class Question:
    """A position, as the page sends it."""

    moves: list[str] = field(default_factory=list)
    """Vertices, black first."""
    size: str = "9x9"
    rules: str = "chinese"
    komi: float = 7.5


class Board:
    """Answers for the page, one after the other.

    Args:
        net: file of a network; None: playouts.
        visits: simulations per position.
        seed: of the search.
    """

    def __init__(self, net: str | Path | None = None, visits: int = 1000, seed: int = 1) -> None:
        self.search, self.judge = make_search(net, seed), Judge(net, seed)
        self.visits, self._one = visits, Lock()

    def position(self, question: Question) -> dict[str, Any]:
        """The position after some moves, and what the search says of it, from the view of black.

        Raises:
            InputError: an illegal move, or a setting out of range.
        """
        if not abs(question.komi) <= MOST_KOMI:  # NaN, too
            found = str(question.komi)
            raise InputError("invalid komi", code="out-of-range", place="komi", found=found)
        game = Game(*read_size(question.size), question.rules, question.komi)
        for move in question.moves:
            game.play(move)
        sign = 1 if game.turn == BLACK else -1
        answer: dict[str, Any] = {
            "colors": game.colors.tolist(),
            "turn": game.turn,
            "legal": [game.vertex(cell) for cell in game.legal()],
            "over": game.over,
        }
        with self._one:
            if game.over:  # played on until dead stones are captured
                settled = settle(game)
                owned = settled.owners()
                owners = (owned == BLACK) - 1.0 * (owned == WHITE)
                score = settled.score()
                rate = 0.5 if score == 0 else float(score > 0)
                return answer | {
                    "result": result_text(score),
                    "lead": score,
                    "win_rate": rate,
                    "owners": owners.tolist(),
                    "candidates": [],
                    "line": [],
                }
            choice = self.search.choose(game, self.visits)
            by_turn = self.judge.owners(game)
        return answer | {
            "result": None,
            "lead": sign * self.judge.lead(game, by_turn),
            "win_rate": choice.win_rate if sign > 0 else 1.0 - choice.win_rate,
            "owners": (sign * by_turn).round(3).tolist(),
            "candidates": [
                {"vertex": game.vertex(row.cell), "visits": row.visits, "win_rate": row.win_rate}
                for row in choice.candidates[:8]
            ],
            "line": [game.vertex(cell) for cell in choice.line[:10]],
        }

    def app(self) -> Starlette:
        """The application."""
        page = Path(__file__).with_name("board.html").read_text(encoding="utf-8")

        async def show(_: Request) -> Response:
            return HTMLResponse(page)

        async def position(request: Request) -> Response:
            body = b""
            try:
                async for part in request.stream():
                    body += part
                    if len(body) > MOST_BYTES:
                        return JSONResponse({"error": "request too large"}, 413)
                given = json.loads(body)
                if not isinstance(given, dict):  # a text would be the name of a file
                    problem = "the position: invalid value"
                    raise invalid_value(problem, None, "", repr(given)[:80], "an object")
                question = read_config(given, Question, "the position")
                return JSONResponse(await run_in_threadpool(self.position, question))
            except ClientDisconnect:
                return Response(status_code=400)  # which nobody reads
            except (InputError, ValueError, RecursionError) as error:
                return JSONResponse({"error": getattr(error, "problem", str(error))}, 400)

        return Starlette(routes=[Route("/", show), Route("/position", position, methods=["POST"])])


def serve(
    net: str | Path | None = None,
    *,
    visits: int = 1000,
    port: int = 8361,
    seed: int = 1,
    on_start: Callable[[str], None] = lambda url: None,
) -> None:
    """Show a board in the browsers of this machine, until Ctrl-C.

    Args:
        net: file of a network; None: search by playouts.
        visits: simulations per position.
        port: 0: any that is free.
        seed: of the search.
        on_start: called with the address when the board can be opened.

    Raises:
        InputError: a file that is not a network, or ``address-in-use``.
    """
    board = Board(net, visits, seed)
    with serving.listen(HOST, port) as listener:
        board.position(Question(size="2x2"))  # kernels are compiled before somebody waits
        serving.run(board.app(), listener, HOST, on_start, "go")
