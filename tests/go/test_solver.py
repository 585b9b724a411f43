"""Values of small boards: published ones, and brute force over all games by the plain rules."""

from __future__ import annotations

import random

import numpy as np
import pytest
from plain_go import PlainGame

from holdfast.go import RULES, Game, solve
from holdfast.go import _loops as loops
from holdfast.go.solver import _values


@pytest.mark.parametrize(
    ("rows", "cols", "value"),
    [
        # Tromp and Farneback, Combinatorics of Go (2007), section 6; Van der Werf, Van den Herik and
        # Uiterwijk, Solving Go on small boards (2003)
        (2, 2, 1),
        (2, 3, 0),
        (2, 4, 8),
        (3, 3, 9),
        (3, 4, 4),
        pytest.param(4, 4, 2, marks=pytest.mark.full),
    ],
)
def test_published_values(rows: int, cols: int, value: int) -> None:
    assert solve(Game(rows, cols, "chinese")) == (value, value)


def test_a_game_that_is_over_is_worth_its_score() -> None:
    for moves, score in (("pass pass", 0), ("A1 pass pass", 6)):
        game = Game(2, 3, rules="chinese", komi=0.5)
        for vertex in moves.split():
            game.play(vertex)
        assert solve(game) == (score, score)


@pytest.mark.parametrize("first", ["A1", "B1", "B2"])
@pytest.mark.parametrize("rules", ["tromp-taylor", "aga"])
def test_first_moves_on_3x3(first: str, rules: str) -> None:
    # In the middle black keeps all, at the side 3 points; in the corner white gets all.
    game = Game(3, rules=rules)
    game.play(first)
    value = {"A1": -9, "B1": 3, "B2": 9}[first]
    assert solve(game) == (value, value)


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


def state_of(game: PlainGame) -> int:
    """The state from the view of black: base 3, 1 for own stones and the point of a ko; then a column."""
    number = 0
    for place, cell in enumerate(cell for row in game.grid for cell in row):
        point = divmod(place, game.cols)
        ko = cell == 0 and game.previous is not None and game.after(point) == game.previous
        number += 3**place * (1 if ko or cell == game.turn else 2 if cell else 0)
    return 4 * number + 2 * game.passes + game.turn - 1


@pytest.mark.parametrize(("rows", "cols"), [(2, 3), (3, 3), (3, 4)])
def test_claims_are_kept_under_the_plain_rules(rows: int, cols: int) -> None:
    """Black follows its claim, white plays at random; positional superko is checked for all moves."""
    board, room, draw = _values(rows, cols, 99), np.empty(20, np.int64), random.Random(1)
    followed = 0
    for _ in range(60):
        game = PlainGame(rows, cols, "positional", suicide=False)
        for _ in range(draw.randrange(6)):
            game = game.play(draw.choice(game.legal() or [None]))
        game.seen, game.passes = game.seen[-1:], 0
        claim = loops.claim(state_of(game), board)
        if claim <= -rows * cols or not loops.assured(state_of(game), board):
            continue
        followed += 1
        while game.passes < 2:
            replies = [game.play(move) for move in [None, *game.legal()]]
            if game.turn == 1:
                kept = room[: loops.follow(state_of(game), board, room)]
                known = [after for after in replies if state_of(after) in kept]
                assert bool(known) == bool(len(kept))
                replies = known or replies[:1]  # the pass that ends the game
            game = draw.choice(replies)
        assert game.score() >= claim
    assert followed > 20


def test_what_is_not_proved_is_an_interval() -> None:
    # Without superko, games need not end.
    assert solve(Game(2, 2, "simple-ko")) == (-4, 4)
    assert solve(Game(3, 4, "simple-ko")) == (4, 12)
    assert solve(Game(5), positions=10) == (-25, 25)
    game = Game(3, 4)
    low, high = solve(game, 10)
    assert low <= 4 <= high > low
    assert not game.moves
