"""Elo, the referee, and what counts as a game."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import minimize

from holdfast.errors import InputError
from holdfast.go import Game, elo_difference, match, ratings, settle
from holdfast.go.matches import Match, Played


@pytest.mark.parametrize("size", [2, 3, 5])
def test_ratings_have_the_largest_likelihood(size: int) -> None:
    random = np.random.default_rng(size)
    points = random.integers(1, 20, (size, size)).astype(float)
    np.fill_diagonal(points, 0)
    found = ratings(points)
    assert found is not None

    def loss(rest: np.ndarray) -> float:
        r = np.append(rest, -rest.sum())
        return float((points * np.log1p(np.exp((r[None, :] - r[:, None])))).sum())

    best = minimize(loss, np.zeros(size - 1), tol=1e-10).x
    expected = np.append(best, -best.sum()) * 400 / math.log(10)
    assert found[0] == pytest.approx(expected.tolist(), abs=0.01)


def test_ratings_of_two_are_the_closed_form() -> None:
    found = ratings([[0, 30], [10, 0]])
    assert found is not None
    difference = 400 * math.log10(3)
    assert found[0][0] - found[0][1] == pytest.approx(difference)
    # The half width of a rating with mean 0 is half that of the difference: 1.96 / sqrt(n p q).
    half = 1.959964 * 400 / math.log(10) / math.sqrt(40 * 0.75 * 0.25) / 2
    assert found[1] == pytest.approx([half, half], rel=1e-4)
    assert elo_difference(30, 10)[0] == pytest.approx(difference)


@pytest.mark.parametrize("points", [[[0, 3], [0, 0]], [[0, 1, 1], [1, 0, 1], [0, 0, 0]]])
def test_games_that_do_not_determine_ratings(points: list[list[float]]) -> None:
    assert ratings(points) is None


def test_intervals_of_one_sided_and_no_results() -> None:
    assert elo_difference(0, 0) == (None, (None, None))
    elo, (low, high) = elo_difference(10, 0)
    # Clopper and Pearson: 0.025 ** (1 / 10) is the lower limit of the share.
    share = 0.025**0.1
    assert (elo, high) == (None, None)
    assert low == pytest.approx(400 * math.log10(share / (1 - share)))
    assert elo_difference(0, 10)[1] == (None, pytest.approx(-low))  # type: ignore[operator]
    assert elo_difference(5, 5, 2)[0] == pytest.approx(0.0)


def test_identical_games_are_counted_once() -> None:
    # Two moves of one point each: every game is the same, up to who has black.
    found = match("visits:1", "visits:1", 6, size=(2, 2), komi=0.5)
    distinct = {(game.black, game.moves) for game in found.games}
    assert len(distinct) == len(found.games)
    assert len(found.games) + found.repeated == 6
    data = found.to_dict()
    assert data["wins"] + data["losses"] + data["draws"] == data["games"] == len(found.games)


def test_the_same_seed_is_the_same_match() -> None:
    one, two = (match("visits:20", "visits:10", 4, size=(5, 5), seed=3) for _ in range(2))
    assert [game.moves for game in one.games] == [game.moves for game in two.games]
    assert {game.black for game in one.games} == {"a", "b"}


def test_more_simulations_win() -> None:
    found = match("visits:400", "visits:5", 8, size=(5, 5), komi=0.5)
    assert found.wins >= 7 * len(found.games) / 8


def test_the_view_of_the_first_player() -> None:
    games = [
        Played("a", "a", "B+1", ((1, 5),)),
        Played("b", "a", "W+1", ()),
        Played("b", "b", "B+1", ()),
    ]
    found = Match("x", "y", games, 0, (1.0, 2.0))
    assert (found.wins, found.losses, found.draws) == (2, 1, 0)
    assert found.to_dict()["core_seconds"] == 3.0


@pytest.mark.parametrize("black", [True, False])
def test_the_referee_captures_dead_stones(black: bool) -> None:
    own, other = (1, 2) if black else (2, 1)
    game = Game(5, rules="chinese", komi=0)
    for vertex in ("A3", "B3", "C3", "D3", "E3", "C4"):
        game.play(vertex, own)
    game.play("B2", other)
    game.play("D1", other)
    game.play("pass", own)
    game.play("pass", other)
    before = list(game.moves)
    assert abs(game.score()) < 15
    assert settle(game).score() == (25 if black else -25)
    assert game.moves == before


# Whoever plays E1 is captured. GNU Go 3.8, --chinese-rules: B+6, no dead stones.
SEKI = [*["....XO..."] * 6, "XXXXXOOOO", "OOOOOXXXX", ".OOO.XXX."]


# White's A1, B2, G2 and black's F5 are dead: B+23 by GNU Go.
DEAD = [
    *("....XOO..", "...XXXOO.", "...XOO...", "...XO.OO.", "..XXOXOOO"),
    *(".XOOOOXOX", ".XXXOOXXX", ".O.XXXOX.", "O........"),
]


def left(rows: list[str], first: int, transposed: bool = False, swapped: bool = False) -> Game:
    """A game with these stones (X black) that both sides left by passing."""
    board = np.array([list(row) for row in rows])
    game = Game(9, rules="chinese", komi=0)
    for row, col in np.argwhere((board.T if transposed else board) != "."):
        black = (board[col, row] if transposed else board[row, col]) == "X"
        game.play(f"{'ABCDEFGHJ'[col]}{9 - row}", 1 if black != swapped else 2)
    game.play("pass", first)
    game.play("pass", 3 - first)
    return game


@pytest.mark.parametrize("first", [1, 2])
@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("transposed", [False, True])
def test_a_seki_stands_whoever_passed_first(transposed: bool, swapped: bool, first: int) -> None:
    game = left(SEKI, first, transposed, swapped)
    settled, stones = settle(game, visits=100), game.colors
    assert settled.score() == game.score() == (-6 if swapped else 6)
    assert (settled.owners() == stones)[stones > 0].all()


def test_dead_stones_that_put_themselves_in_atari_are_dead() -> None:
    assert settle(left(DEAD, 1)).score() == 23


def test_rules_that_are_none() -> None:
    with pytest.raises(InputError) as caught:
        match("visits:1", "visits:1", 1, rules="ing")
    assert caught.value.code == "unknown-name"
