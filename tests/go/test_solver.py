"""Values of small boards: published ones, brute force over all games, and points that stay."""

from __future__ import annotations

import pytest
from plain_go import PlainGame

from holdfast.go import RULES, Game, solve
from holdfast.go.solver import secured


@pytest.mark.parametrize(
    ("rows", "cols", "value"),
    [
        (2, 2, 1),  # Tromp and Farneback, Combinatorics of Go (2007), section 6
        pytest.param(3, 3, 9, marks=pytest.mark.full),
    ],
)
def test_published_values(rows: int, cols: int, value: int) -> None:
    assert solve(Game(rows, cols, "tromp-taylor")) == (value, value)


def reaches(game: PlainGame, lead: int) -> bool:
    """Whether black reaches a lead: all games that alpha-beta needs, by the plain rules."""
    if game.passes == 2:
        return game.score() >= lead
    replies = (reaches(game.play(move), lead) for move in [None, *game.legal()])
    return any(replies) if game.turn == 1 else all(replies)


@pytest.mark.parametrize("moves", ["", "A1", "A1 B2", "A1 B1 B2"])
@pytest.mark.parametrize("rules", ["tromp-taylor", "chinese", "aga", "new-zealand"])
def test_brute_force(moves: str, rules: str) -> None:
    game = Game(2, 2, rules, komi=0.5)
    plain = PlainGame(2, 2, RULES[rules].ko, RULES[rules].suicide)
    for vertex in moves.split():
        game.play(vertex)
        plain = plain.play((2 - int(vertex[1]), "AB".index(vertex[0])))
    value = max(lead for lead in range(-4, 5) if reaches(plain, lead))
    assert solve(game) == (value, value)


def test_what_is_not_proved_is_an_interval() -> None:
    # Without superko, games need not end.
    assert solve(Game(2, 2, "simple-ko"), 500) == (-4, 4)
    assert solve(Game(4, 4), 10) == (-16, 16)
    game = Game(3, 3)
    game.play("B2")
    low, high = solve(game, 300)
    assert low <= 9 <= high
    assert len(game.moves) == 1


@pytest.mark.parametrize(
    ("stones", "points"),
    [
        ("B1 B2 B3", 9),  # two regions of three points
        ("A2 B2 C2", 9),
        ("B2", 0),
        ("A1 A2 A3", 0),
        ("B1 B2", 0),
    ],
)
@pytest.mark.parametrize("color", [1, 2])
def test_points_that_stay(stones: str, points: int, color: int) -> None:
    game = Game(3)
    for vertex in stones.split():
        game.play(vertex, color)
    assert secured(game, color) == points
    assert secured(game, 3 - color) == 0
