"""Both searches: counts, signs, forced moves, reuse of trees, and batches beside single simulations."""

from __future__ import annotations

import numpy as np
import pytest

from holdfast.go import Game, PlayoutSearch, PuctSearch
from holdfast.go._playouts import count, pattern_code
from holdfast.go._puct import IN_FLIGHT, PLANES, PRIOR
from holdfast.go._search import CHILDREN, FIRST, MOVE, VISITS, WINS
from holdfast.go.patterns import pattern_table
from holdfast.go.puct import Floats, oriented, restored
from holdfast.go.search import children


def plain_evaluator(planes: Floats) -> tuple[Floats, Floats]:
    """Every move alike; the side with more stones is likely to win."""
    policy = np.ones((len(planes), planes[0, 0].size + 1), np.float32)
    lead = planes[:, 0].sum((1, 2)) - planes[:, 8].sum((1, 2))
    return policy, (1 / (1 + np.exp(-lead / 2))).astype(np.float32)


def forced_capture(black: bool) -> Game:
    """Five stones in atari: who takes them wins, and who does not, loses them the other way round."""
    game = Game(5, rules="chinese", komi=0.0)
    own, other = (1, 2) if black else (2, 1)
    for vertex in ("A4", "B4", "C4", "D4", "A3", "B3"):
        game.play(vertex, own)
    for vertex in ("A5", "B5", "C5", "D5"):
        game.play(vertex, other)
    if game.turn != own:
        game.play("pass")
    return game


@pytest.mark.parametrize("black", [True, False])
def test_a_forced_capture_for_both_colors(black: bool) -> None:
    game = forced_capture(black)
    assert game.vertex(PlayoutSearch().choose(game, 300).cell) == "E5"
    puct = PuctSearch(plain_evaluator).choose(game, 300)
    assert game.vertex(puct.cell) == "E5"
    assert puct.win_rate > 0.6


@pytest.mark.parametrize("batch", [1, 7, 8])
@pytest.mark.parametrize("loss", [0.0, 0.3, 5.0])
def test_visits_are_simulations_and_nothing_stays_in_flight(batch: int, loss: float) -> None:
    search = PuctSearch(plain_evaluator, batch=batch, virtual_loss=loss)
    choice = search.choose(Game(5), 101)
    tree = search.tree.tree
    used = int(tree.used[0])
    assert choice.visits == 100  # the first simulation is the root's own
    assert (tree.values[:used, IN_FLIGHT] == 0).all()
    for node in np.flatnonzero(tree.links[:used, FIRST]):
        below = children(tree, int(node))
        visits = tree.values[node, VISITS]
        # A node that two leaves of a batch reached before it had children was visited twice itself.
        own = visits - tree.values[below, VISITS].sum()
        assert 1 <= own <= batch
        assert tree.values[below, PRIOR].sum() == pytest.approx(1.0, abs=1e-5)
        assert tree.values[node, WINS] <= visits


@pytest.mark.parametrize("batch", [1, 3, 8])
def test_a_batch_visits_the_moves_that_single_leaves_visit(batch: int) -> None:
    priors = np.array([0.5, 0.25, 0.125, 0.0625, 0.0625])

    def evaluate(planes: Floats) -> tuple[Floats, Floats]:
        policy = np.zeros((len(planes), 26), np.float32)
        policy[:, : len(priors)] = priors
        return policy, np.full(len(planes), 0.5, np.float32)

    search = PuctSearch(evaluate, batch=batch, symmetries=False)
    search.choose(Game(5), 65)
    # With values that are all alike, what is left of PUCT is the largest P / (1 + n).
    visits = np.zeros(len(priors))
    for _ in range(64):
        visits[np.argmax(priors / (1 + visits))] += 1
    found = search.tree.tree.values[children(search.tree.tree, 0), VISITS]
    assert sorted(found, reverse=True)[: len(priors)] == sorted(visits, reverse=True)


def test_a_search_goes_on_in_the_tree_of_the_moves_played() -> None:
    for search in (PuctSearch(plain_evaluator, symmetries=False), PlayoutSearch()):
        game = Game(5)
        first = search.choose(game, 400)
        game.play(first.line[0])
        assert search.choose(game, 50).visits > 55
        # Another game, and a move taken back: nothing is left.
        game.undo()
        game.play("A1" if game.legal()[0] == game.cell("A1") else "B1")
        game.play("pass")
        assert search.choose(Game(4), 50).visits <= 50


def test_a_side_that_moves_out_of_turn_has_no_tree_yet() -> None:
    for first, second in ((2, None), (1, 1)):
        search, game = PlayoutSearch(), Game(5)
        search.choose(game, 400)
        game.play("C3", first)
        if second:
            game.play("B3", second)
        # It is the same search as that of a new tree, but for its random numbers.
        assert search.choose(game, 50).visits == 50


def test_a_kept_tree_is_the_part_below_the_move() -> None:
    search = PuctSearch(plain_evaluator, symmetries=False)
    game = Game(4)
    search.choose(game, 300)
    before = search.tree.tree
    node = max(children(before, 0), key=lambda child: before.values[child, VISITS])

    def below(tree: object, start: int) -> list[tuple[float, ...]]:
        rows, waiting = [], [start]
        while waiting:
            one = waiting.pop(0)
            links, values = tree.links[one], tree.values[one]  # type: ignore[attr-defined]
            rows.append((int(links[MOVE]), *values[[VISITS, WINS]].tolist(), int(links[CHILDREN])))
            waiting += children(tree, one).tolist()  # type: ignore[arg-type]
        return rows

    expected = below(before, int(node))
    game.play(int(before.links[node, MOVE]))
    assert below(search.tree.follow(game), 0) == expected


def test_playouts_are_half_of_the_value_of_a_leaf() -> None:
    # The evaluator is sure that the side to move wins; black owns all of the board, and playouts know it.
    def sure(planes: Floats) -> tuple[Floats, Floats]:
        policy = np.ones((len(planes), planes[0, 0].size + 1), np.float32)
        return policy, np.ones(len(planes), np.float32)

    for black in (True, False):
        game = Game(5, komi=0.5)
        for vertex in ("B1", "B2", "B3", "B4", "B5", "D1", "D2", "D3", "D4", "D5"):
            game.play(vertex, 1 if black else 2)
        if game.turn == (1 if black else 2):
            game.play("pass")
        # The loser moves: the value of the root is 1 without playouts, and half of it with them.
        for playouts, value in ((0, 1.0), (4, 0.5)):
            search = PuctSearch(sure, playouts=playouts)
            search.choose(game, 1)
            assert 1.0 - search.tree.tree.values[0, WINS] == value


def test_a_full_tree_grows_no_more() -> None:
    puct = PuctSearch(plain_evaluator, nodes=60)
    assert puct.choose(Game(5), 200).visits == 199
    assert puct.tree.tree.used[0] <= 60
    assert PlayoutSearch(nodes=60).choose(Game(5), 200).visits == 200


def test_the_same_seed_is_the_same_search() -> None:
    one, two = (PlayoutSearch(seed=5).choose(Game(7), 300) for _ in range(2))
    assert one == two
    assert one != PlayoutSearch(seed=6).choose(Game(7), 300)


def test_symmetries_are_undone() -> None:
    planes = np.arange(2 * 3 * 4 * 4, dtype=np.float32).reshape(2, 3, 4, 4)
    seen = {oriented(planes, symmetry).tobytes() for symmetry in range(8)}
    assert len(seen) == 8
    for symmetry in range(8):
        assert (restored(oriented(planes, symmetry), symmetry) == planes).all()
    rectangle = planes[..., :3]
    for symmetry in range(4):
        assert (restored(oriented(rectangle, symmetry), symmetry) == rectangle).all()


@pytest.mark.parametrize(("rows", "cols"), [(5, 5), (4, 6)])
def test_an_evaluator_sees_every_orientation_and_its_policy_comes_back(
    rows: int, cols: int
) -> None:
    game = Game(rows, cols, komi=0.0)
    corner = game.cell("B2")
    game.play(corner)
    seen = set()

    def evaluate(planes: Floats) -> tuple[Floats, Floats]:
        # All of the policy beside the only stone, on the side of the middle along the rows of the planes.
        assert planes.shape[1] == PLANES
        policy = np.zeros((len(planes), rows * cols + 1), np.float32)
        for number, (own, other) in enumerate(zip(planes[:, 0], planes[:, 8], strict=True)):
            if other.sum() == 1 and own.sum() == 0:
                seen.add(other.tobytes() + bytes(other.shape))
            policy[number, :-1] = (own + other).ravel() + np.roll(other, 1, 0).ravel() + 0.01
        return policy, np.full(len(planes), 0.5, np.float32)

    for seed in range(30):
        search = PuctSearch(evaluate, seed=seed)
        search.choose(game, 2)
        tree = search.tree.tree
        priors = {int(tree.links[n, MOVE]): float(tree.values[n, PRIOR]) for n in children(tree, 0)}
        best = max(priors, key=lambda move: priors[move])
        row, col = divmod(best, cols + 1)
        row_, col_ = divmod(corner, cols + 1)
        assert abs(row - row_) + abs(col - col_) in (1, rows - 1, cols - 1)
    assert len(seen) == 4


@pytest.mark.parametrize("wrong", ["nan", "shape", "negative"])
def test_evaluators_that_give_nonsense_are_refused(wrong: str) -> None:
    def evaluate(planes: Floats) -> tuple[Floats, Floats]:
        policy, values = plain_evaluator(planes)
        if wrong == "nan":
            values[:] = np.nan
        if wrong == "negative":
            policy[:] = -1
        return (policy[:, :-1] if wrong == "shape" else policy), values

    with pytest.raises(ValueError, match="evaluator"):
        PuctSearch(evaluate).choose(Game(5), 10)


def test_a_game_that_is_over_has_its_score() -> None:
    for color in (1, 2):
        for passes, expected in ((color, 0.0), (3 - color, 1.0)):
            game = Game(3, komi=0.0)
            game.play("B2", color)  # nine points
            game.play("pass", passes)
            found = PuctSearch(plain_evaluator).choose(game, 100).candidates
            assert [row.win_rate for row in found if row.cell == 0] == [expected]


def test_noise_changes_the_priors_of_the_root_only() -> None:
    search = PuctSearch(plain_evaluator, noise=0.25)
    search.choose(Game(5), 300)
    tree = search.tree.tree
    root = tree.values[children(tree, 0), PRIOR]
    assert root.sum() == pytest.approx(1.0, abs=1e-5)
    assert root.std() > 0.005
    inner = int(np.argmax(tree.values[1 : int(tree.used[0]), VISITS])) + 1
    assert np.ptp(tree.values[children(tree, inner), PRIOR]) == pytest.approx(0.0, abs=1e-6)


def test_patterns_hold_under_symmetries_and_exchanged_colors() -> None:
    table = pattern_table()
    random = np.random.default_rng(4)
    hits = 0
    for _ in range(300):
        grid = random.integers(0, 3, (3, 3))
        codes = []
        for turned in (grid, np.rot90(grid), np.rot90(grid, 2), grid.T, grid[::-1]):
            game = Game(5)
            for (row, col), color in np.ndenumerate(turned):
                if color and (row, col) != (1, 1):
                    game.board[0, game.cell("BCD"[col] + str(4 - row))] = color
            codes.append(pattern_code(game.board, game.cell("C3")))
        assert len({bool(table[0, code]) for code in codes}) == 1
        swapped = [0, 2, 1]
        cells = np.delete(grid.ravel(), 4)
        other = sum(swapped[color] << (2 * place) for place, color in enumerate(cells.tolist()))
        assert table[0, codes[0]] == table[1, other]
        hits += table[0, codes[0]]
    assert 10 < hits < 150
    hane = sum(color << (2 * place) for place, color in enumerate((1, 2, 1, 0, 0, 0, 0, 0)))
    assert table[:, hane].all()
    assert not table[:, 0].any()


def test_counting_is_the_area_where_regions_are_single_points() -> None:
    game = Game(3, komi=0.0)
    for vertex in ("B1", "B2", "B3", "A2"):
        game.play(vertex, 1)
    game.play("C2", 2)
    assert count(game.board) == 4 + 2 - 1
