"""Random paths, against the chances of every path listed."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
import scipy.stats
from machines import random_fst
from plain_paths import arc_paths

from holdfast.automata import Fst
from holdfast.automata.path_sums import counting, sampling
from holdfast.automata.path_sums.best import paths
from holdfast.automata.path_sums.counting import count_paths
from holdfast.automata.path_sums.sampling import random_paths
from holdfast.errors import InputError, LimitError

DRAWN = 1000
WEIGHTINGS = ("uniform", "weight")


def chances(costs: npt.NDArray[np.float64], weighting: str) -> npt.NDArray[np.float64]:
    weights = np.exp(costs.min() - costs) if weighting == "weight" else np.ones(len(costs))
    made: npt.NDArray[np.float64] = weights / weights.sum()
    return made


def p_value(drawn: list[tuple[int, ...]], expected: dict[tuple[int, ...], float]) -> float:
    """Of the chi-square test; rare paths are counted together."""
    counts = Counter(drawn)
    assert counts.keys() <= expected.keys()
    rows = [(counts[path], chance * len(drawn)) for path, chance in expected.items()]
    often = [row for row in rows if row[1] >= 8]
    rare = [row for row in rows if row[1] < 8]
    often.append((sum(row[0] for row in rare), sum(row[1] for row in rare)))
    observed, wanted = np.array(often).T
    if wanted[-1] < 8:  # too rare to tell, even together
        observed[0], wanted[0] = observed[0] + observed[-1], wanted[0] + wanted[-1]
        observed, wanted = observed[:-1], wanted[:-1]
    return float(scipy.stats.chisquare(observed, wanted).pvalue) if len(wanted) > 1 else 1.0


@pytest.mark.quick(2)
@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize("bound", [None, 5])
def test_paths_are_drawn_with_their_chances(weighting: str, bound: int | None) -> None:
    """The p-values of many seeded draws are as even as those of right chances."""
    found = []
    for seed in range(100):
        semiring = ("tropical", "log", "log64")[seed % 3]
        f = random_fst(
            seed,
            states=3 + seed % 6,
            arcs=(seed * 7) % 20,
            acyclic=bound is None,
            semiring=semiring,
        )
        listed = arc_paths(f, bound or 99)
        if not 1 < len(listed) < 400:
            continue
        drawn = random_paths(f, DRAWN, weighting=weighting, seed=seed, max_length=bound)
        assert len(drawn) == DRAWN
        likely = chances(np.array(list(listed.values())), weighting)
        found.append(p_value([path.arcs for path in drawn], dict(zip(listed, likely, strict=True))))
    tested = [p for p in found if p < 1.0]
    assert len(tested) > 25
    assert min(tested) > 0.01 / len(tested)
    assert scipy.stats.kstest(tested, "uniform").pvalue > 0.001


def test_a_drawn_path_is_a_path_as_listed() -> None:
    f = random_fst(3, states=7, arcs=20, acyclic=True, semiring="log64")
    listed = {path.arcs: path for path in paths(f)}
    for weighting in WEIGHTINGS:
        for path in random_paths(f, 200, weighting=weighting):
            assert path == listed[path.arcs]


def test_cycles_are_walked_by_weight_without_a_bound() -> None:
    stop = 0.25
    arcs = [(0, 1, 1, 0.5, 0), (0, 2, 2, 0.25, 0)]
    f = Fst.build(arcs, {0: stop}, semiring="probability")
    lengths = [len(path.arcs) for path in random_paths(f, 20_000, weighting="weight")]
    expected = [stop * (1 - stop) ** length * 20_000 for length in range(20)]
    observed = [lengths.count(length) for length in range(20)]
    observed.append(20_000 - sum(observed))
    expected.append(20_000 - sum(expected))
    assert scipy.stats.chisquare(observed, expected).pvalue > 0.001


def test_uniform_is_exact_where_numbers_are_large() -> None:
    """3 to the 200 paths through one side, 1 through the other."""
    length = 200
    arcs = [(s, 1 + c, 1, 0.0, s + 1) for s in range(length) for c in range(3)]
    f = Fst.build([*arcs, (0, 9, 1, 0.0, length)], [length], semiring="log")
    drawn = random_paths(f, 1500)
    labels = Counter(label for path in drawn for label in path.ilabels)
    assert set(labels) == {1, 2, 3}
    assert scipy.stats.chisquare([labels[c] for c in (1, 2, 3)]).pvalue > 0.001
    assert len({path.arcs for path in drawn}) == len(drawn)


@pytest.mark.parametrize("below", [1, 2, 3, 2**62 - 1, 2**62, 2**62 + 1, 5 * 2**124 + 7])
def test_ranks_lie_below_their_bound_and_fill_it(below: int) -> None:
    limbs = sampling._random_ranks(below, 3, 4000, np.random.default_rng(1))
    ranks = [counting.number_of(row) for row in limbs]
    assert 0 <= min(ranks) <= max(ranks) < below
    parts = Counter(rank * min(below, 5) // below for rank in ranks)
    assert len(parts) == min(below, 5)
    if below > 1000:
        assert scipy.stats.chisquare([parts[k] for k in range(5)]).pvalue > 0.001


def test_every_rank_is_one_path() -> None:
    for seed in range(60):
        f = random_fst(seed, states=6, arcs=14, acyclic=seed % 2 == 0)
        bound = None if seed % 2 == 0 else 4
        number = count_paths(f, bound)
        if not 0 < number < 500:
            continue
        graph = counting.useful_part(f)
        table = counting.count_table(f, graph, counting.bounded_length(f, graph, bound))
        ranks = np.zeros((number, table.shape[2]), np.int64)
        ranks[:, 0] = np.arange(number)
        bounds, arcs = sampling.kernels.by_rank(
            graph.offsets, graph.nextstate, graph.is_final, f.start, table, ranks
        )
        listed = {tuple(graph.arc[arcs[begin:end]].tolist()) for begin, end in pairwise(bounds)}
        assert listed == arc_paths(f, bound or 99).keys(), seed


def test_the_seed_decides() -> None:
    with pytest.raises(InputError) as caught:
        random_paths(random_fst(1), 5, seed=-1)
    assert caught.value.code == "out-of-range"
    f = random_fst(3, states=7, arcs=20, acyclic=True)
    for weighting in WEIGHTINGS:
        first = random_paths(f, 50, weighting=weighting, seed=1)
        assert first == random_paths(f, 50, weighting=weighting, seed=1)
        assert first != random_paths(f, 50, weighting=weighting, seed=2)
        assert random_paths(f, 0, weighting=weighting) == []


def test_a_walk_goes_on_over_blocks_of_random_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "BLOCK", 7)
    length = 20
    arcs = [(s, 1 + c, 1, 0.0, s + 1) for s in range(length) for c in range(2)]
    f = Fst.build(arcs, [length], semiring="log")
    for bound in (None, length):
        drawn = random_paths(f, 9, weighting="weight", max_length=bound)
        assert [len(path.arcs) for path in drawn] == [length] * 9


def test_what_cannot_be_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Fst.build([(0, 1, 1, 0.0, 0)], [0], semiring="log")
    with pytest.raises(InputError, match="infinitely many"):
        random_paths(loop, 1)
    with pytest.raises(InputError, match="diverges"):
        random_paths(loop, 1, weighting="weight")
    late = Fst.build([(0, 1, 1, 1.0, 1), (1, 1, 1, 1.0, 2)], [2], semiring="log")
    for weighting in WEIGHTINGS:
        for f, bound in (
            (Fst.empty(semiring="log"), None),
            (Fst.build([], {}, states=1, semiring="log"), 3),
            (late, 1),
        ):
            with pytest.raises(InputError, match="no path to draw"):
                random_paths(f, 1, weighting=weighting, max_length=bound)
        with pytest.raises(InputError, match="max_length"):
            random_paths(loop, 1, weighting=weighting, max_length=-1)
        monkeypatch.setattr(counting, "KEPT_TABLE_BYTES", 100)
        monkeypatch.setattr(sampling, "KEPT_TABLE_BYTES", 100)
        with pytest.raises(LimitError, match="does not fit"):
            random_paths(loop, 1, weighting=weighting, max_length=1000)
        monkeypatch.undo()
    with pytest.raises(InputError, match="number of paths"):
        random_paths(loop, -1)
    with pytest.raises(InputError, match="invalid weighting"):
        random_paths(loop, 1, weighting="even")  # type: ignore[arg-type]


def test_every_path_of_the_boolean_semiring_has_the_same_weight() -> None:
    f = random_fst(5, states=6, arcs=12, acyclic=True, semiring="boolean")
    listed = arc_paths(f, 99)
    drawn = random_paths(f, DRAWN, weighting="weight")
    assert p_value([path.arcs for path in drawn], dict.fromkeys(listed, 1 / len(listed))) > 0.001
    assert all(path.weight == 1.0 for path in drawn)
    assert not math.isnan(drawn[0].weight)
