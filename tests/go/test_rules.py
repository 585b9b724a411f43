"""The rules beside their definition in plain Python, and published numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from plain_go import PlainGame

from holdfast.errors import InputError
from holdfast.go import RULES, Game, IllegalMove, Rules, perft
from holdfast.go import _kernels as kernels
from holdfast.go._playouts import count, playout
from holdfast.go.patterns import pattern_table

SIZES = [(1, 5), (2, 2), (2, 7), (3, 3), (4, 3), (5, 5), (6, 4)]


def pair(rows: int, cols: int, rules: str) -> tuple[Game, PlainGame]:
    given = RULES[rules]
    return Game(rows, cols, rules, komi=0), PlainGame(rows, cols, given.ko, given.suicide)


def cell(game: Game, point: tuple[int, int]) -> int:
    return (point[0] + 1) * (game.cols + 1) + point[1] + 1


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize(("rows", "cols"), SIZES)
def test_random_games_are_those_of_the_definition(rows: int, cols: int, rules: str) -> None:
    random = np.random.default_rng(rows * 100 + cols)
    for _ in range(3):
        game, plain = pair(rows, cols, rules)
        for _ in range(3 * rows * cols):
            legal = plain.legal()
            assert game.legal() == [cell(game, point) for point in legal]
            assert game.colors.tolist() == [list(row) for row in plain.grid]
            assert game.score() == plain.score()
            place = int(random.integers(len(legal) + (random.random() < 0.1 or not legal)))
            move = legal[place] if place < len(legal) else None
            game.play("pass" if move is None else cell(game, move))
            plain = plain.play(move)
            _check_chains(game, plain)


def _check_chains(game: Game, plain: PlainGame) -> None:
    """Sizes and ataris of all chains."""
    for row in range(plain.rows):
        for col in range(plain.cols):
            if plain.grid[row][col]:
                stones, _ = plain.region(plain.grid, (row, col))
                open_ = {q for p in stones for q in plain.near(p) if not plain.grid[q[0]][q[1]]}
                head = game.board[kernels.CHAIN, cell(game, (row, col))]
                only = cell(game, open_.pop()) if len(open_) == 1 else 0
                assert game.board[kernels.SIZE, head] == len(stones)
                assert kernels.atari(game.board, head) == only


@pytest.mark.parametrize(
    ("size", "rules", "nodes"),
    [
        (2, "tromp-taylor", [5, 21, 68, 156, 316]),
        (3, "chinese", [10, 91, 738, 5281]),
        (5, "tromp-taylor", [26, 651, 15650]),
    ],
)
def test_published_numbers_of_move_sequences(size: int, rules: str, nodes: list[int]) -> None:
    assert [perft(size, size, n, rules) for n in range(1, len(nodes) + 1)] == nodes


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize(("rows", "cols", "depth"), [(1, 3, 7), (2, 2, 6), (2, 3, 4), (3, 2, 4)])
def test_move_sequences_are_those_of_the_definition(
    rows: int, cols: int, depth: int, rules: str
) -> None:
    _, plain = pair(rows, cols, rules)
    assert perft(rows, cols, depth, rules) == plain.perft(depth)


def reached(rows: int, cols: int) -> int:
    """Number of positions that moves and passes reach from the empty board."""
    free = Rules("simple", suicide=False)
    waiting, found = [Game(rows, cols, free)], {bytes(rows * cols)}
    while waiting:
        board = waiting.pop().board
        for color in (kernels.BLACK, kernels.WHITE):
            for place in range(board[kernels.INFO, kernels.N_FREE]):
                point = board[kernels.FREE, place]
                board[kernels.INFO, kernels.KO] = 0
                if kernels.legal(board, point, color, False):
                    game = Game(rows, cols, free)
                    game.board[:] = board
                    kernels.play(game.board, point, color)
                    if (key := game.colors.tobytes()) not in found:
                        found.add(key)
                        waiting.append(game)
    return len(found)


@pytest.mark.parametrize(("size", "legal"), [(1, 1), (2, 57)])
def test_number_of_legal_positions(size: int, legal: int) -> None:
    # Tromp and Farnebaeck, Combinatorics of Go, table 1.
    assert reached(size, size) == legal


@pytest.mark.full
@pytest.mark.parametrize(("size", "legal"), [(3, 12_675), (4, 24_318_165)])
def test_number_of_legal_positions_of_larger_boards(size: int, legal: int) -> None:
    assert _search()(Game(size, size, "simple-ko").board, 3 ** (size * size)) == legal


def _search() -> Callable[..., int]:
    """`reached`, compiled: positions are numbers in base 3."""
    from numba import njit

    legal, play, color_plane = kernels.legal, kernels.play, kernels.COLOR
    info, ko, turn = kernels.INFO, kernels.KO, kernels.TURN

    @njit
    def number(board: Any, powers: Any) -> int:
        total = 0
        for cell in range(powers.size):
            total += board[color_plane, cell] % 3 * powers[cell]
        return total

    @njit
    def run(empty: Any, positions: int) -> int:
        width, rows, cols = empty[info, 0], empty[info, 1], empty[info, 2]
        powers = np.zeros(empty.shape[1], np.int64)
        points = np.zeros(rows * cols, np.int64)
        for place in range(rows * cols):
            points[place] = (place // cols + 1) * width + place % cols + 1
            powers[points[place]] = 3**place
        found = np.zeros(positions, np.bool_)
        waiting = np.zeros(positions, np.int32)
        board, child = np.empty_like(empty), np.empty_like(empty)
        found[0], ends, count = True, 1, 1
        while ends > 0:
            ends -= 1
            left = waiting[ends]
            board[:] = empty
            for point in points:
                if left % 3:
                    play(board, point, np.int64(left % 3))
                left //= 3
            for point in points:
                for color in (1, 2):
                    board[info, ko], board[info, turn] = 0, color
                    if board[color_plane, point] == 0 and legal(board, point, color, False):
                        child[:] = board
                        play(child, point, color)
                        reached = number(child, powers)
                        if not found[reached]:
                            found[reached] = True
                            waiting[ends] = reached
                            ends += 1
                            count += 1
        return count

    return run


def test_superko_compares_positions_not_keys() -> None:
    game = Game(5, 5)
    game.history.zobrist[:] = 0  # all positions have one key
    game.play("C3")
    assert len(game.legal()) == 24


@pytest.mark.parametrize("rules", ["tromp-taylor", "new-zealand"])
@pytest.mark.parametrize("seed", range(4))
def test_superko_over_longer_histories_than_there_is_room_for_at_first(
    seed: int, rules: str
) -> None:
    game, plain = pair(2, 3, rules)
    random = np.random.default_rng(seed)
    for _ in range(80):
        legal = plain.legal()
        assert game.legal() == [cell(game, point) for point in legal]
        move = legal[int(random.integers(len(legal)))] if legal else None
        game.play("pass" if move is None else cell(game, move))
        plain = plain.play(move)
        key = (
            np.bitwise_xor.reduce(
                [
                    game.history.zobrist[c - 1, cell(game, (i, j))]
                    for i, row in enumerate(plain.grid)
                    for j, c in enumerate(row)
                    if c
                ],
                dtype=np.uint64,
            )
            if any(map(any, plain.grid))
            else 0
        )
        assert game.history.keys[game.history.count[0] - 1] == key


@pytest.mark.parametrize(
    ("rules", "moves", "move", "code"),
    [
        ("chinese", "A1", "A1", "occupied"),
        ("chinese", "A2 D4 B1", "A1", "suicide"),
        ("simple-ko", "B1 C1 A2 D2 B3 C3 C2 B2", "C2", "ko"),
        ("tromp-taylor", "A2 D4 B1", "A1", "superko"),
    ],
)
def test_illegal_moves_change_nothing(rules: str, moves: str, move: str, code: str) -> None:
    game = Game(4, 4, rules)
    for vertex in moves.split():
        game.play(vertex)
    before = game.board.copy()
    with pytest.raises(IllegalMove) as caught:
        game.play(move)
    assert (caught.value.code, caught.value.place) == (code, move)
    assert (game.board == before).all()
    assert len(game.moves) == len(moves.split())


def test_undo_is_the_game_without_the_move() -> None:
    game = Game(3, 3)
    for vertex in ("B2", "A1", "A2", "B1", "C1"):  # the last captures two
        before = game.board.copy()
        game.play(vertex)
    game.undo()
    assert (game.board == before).all()
    assert game.history.count[0] == 5
    with pytest.raises(InputError):
        Game(3).undo()


@pytest.mark.parametrize(
    "vertex", ["", "I3", "A0", "A6", "F1", "3A", "A1 ", "A²", "AA1", "A" + "9" * 5000]
)
def test_vertices_that_are_none(vertex: str) -> None:
    with pytest.raises(InputError) as caught:
        Game(5).play(vertex)
    assert caught.value.code == "invalid-value"


def test_vertices_of_all_points() -> None:
    game = Game(19)
    assert [game.cell(game.vertex(point)) for point in game.legal()] == game.legal()
    assert (game.vertex(game.legal()[0]), game.vertex(game.legal()[-1])) == ("A19", "T1")
    assert "J" in str(Game(9))


@pytest.mark.parametrize(("rows", "cols"), [(0, 5), (20, 20), (5, 20), (-1, 3)])
def test_sizes_that_are_none(rows: int, cols: int) -> None:
    with pytest.raises(InputError):
        Game(rows, cols)


def test_playouts_end_and_are_fair() -> None:
    game, scores = Game(5, 5), np.zeros(2000, np.int64)
    state, first = np.array([7], np.uint64), np.zeros(game.board.shape[1], np.int64)
    for wise in (False, True):
        moves = 0
        for number in range(len(scores)):
            board = game.board.copy()
            moves += playout(board, pattern_table(), state, first, wise)
            scores[number] = count(board)
        assert len(scores) * 20 < moves < len(scores) * 75
        assert (abs(scores) <= 25).all()
        # Black moves first; the standard error of the mean is 0.3.
        assert 0.5 < scores.mean() < 8


@pytest.mark.parametrize("komi", [float("nan"), float("inf"), float("-inf")])
def test_komi_is_a_number(komi: float) -> None:
    with pytest.raises(InputError) as caught:
        Game(5, komi=komi)
    assert (caught.value.code, caught.value.place) == ("out-of-range", "komi")
