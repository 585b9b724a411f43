"""Gradients: against numeric differences, torch's CTC loss, every path listed, and closed forms."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from elsewhere import ELSEWHERE, elsewhere
from machines import path_costs, random_fst
from torch import Tensor

from holdfast.automata import Fst
from holdfast.automata.composition.composing import compose
from holdfast.automata.composition.filters import FilterName
from holdfast.automata.differentiable import TensorFst, compose_tensors, emissions
from holdfast.automata.path_sums import distances
from holdfast.errors import InputError

FILTERS: tuple[FilterName, ...] = ("sequence", "alt_sequence", "match", "trivial")
INF = math.inf


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    # Threads that wait for each other's small parts are slow where others need the cores.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def weights(machine: Fst, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    return (
        torch.tensor(machine.weight, dtype=dtype, requires_grad=True),
        torch.tensor(machine.final, dtype=dtype, requires_grad=True),
    )


def pair_with_paths(seed: int, semiring: str, acyclic: bool) -> tuple[Fst, Fst]:
    """Two small machines with epsilons on the matched sides that have something in common."""
    while True:
        shape = {"states": 4, "arcs": 7, "epsilons": 0.4, "labels": 2}
        a, b = (random_fst(seed + k, semiring=semiring, acyclic=acyclic, **shape) for k in (0, 500))
        has_epsilons = (a.olabel == 0).any() and (b.ilabel == 0).any()
        if has_epsilons and compose(a, b).num_arcs > 4:
            return a, b
        seed += 1000


@pytest.mark.quick(4)
@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize("semiring", ["log", "probability"])
def test_gradients_of_composition_and_score_are_the_numeric_ones(
    name: FilterName, semiring: str
) -> None:
    for seed in range(3):
        # Costs of cycles are raised until their sums surely converge.
        a, b = pair_with_paths(seed, semiring, acyclic=seed % 2 == 0)
        if semiring == "log":
            a, b = (machine.with_(weight=machine.weight + 2) for machine in (a, b))

        def score(*given: Tensor, a: Fst = a, b: Fst = b) -> Tensor:
            left, right = TensorFst(a, *given[:2]), TensorFst(b, *given[2:])
            return left.compose(right, filter=name).forward_score()

        parameters = (*weights(a), *weights(b))
        assert torch.isfinite(score(*parameters))
        assert torch.autograd.gradcheck(score, parameters)


def test_a_score_sums_each_path_once_and_its_gradient_is_their_posterior() -> None:
    for seed in range(40):
        a, b = pair_with_paths(seed, "log64", acyclic=True)
        left, right = (TensorFst(machine, *weights(machine)) for machine in (a, b))
        made = left.compose(right)
        score = made.forward_score()
        costs = [cost for some in path_costs(made.to_fst()).values() for cost in some]
        torch.testing.assert_close(
            score, torch.logsumexp(-torch.tensor(costs, dtype=torch.float64), 0)
        )
        gradient = torch.autograd.grad(score, (made.weight, made.final))
        assert gradient[1].sum().item() == pytest.approx(-1)  # a path ends once
        torch.testing.assert_close(gradient[0], -occupancy(made.to_fst()))


def occupancy(machine: Fst) -> Tensor:
    """[E] how often a path passes each arc on average; every path of an acyclic machine is listed."""
    passed, total = np.zeros(machine.num_arcs), 0.0
    finals = machine.finals
    waiting: list[tuple[int, float, tuple[int, ...]]] = [(machine.start, 0.0, ())]
    while waiting:
        state, cost, taken = waiting.pop()
        if state in finals:
            chance = math.exp(-cost - finals[state])
            total += chance
            np.add.at(passed, np.array(taken, np.int64), chance)
        waiting += [
            (int(machine.nextstate[arc]), cost + float(machine.weight[arc]), (*taken, arc))
            for arc in range(machine.offsets[state], machine.offsets[state + 1])
        ]
    return torch.from_numpy(passed / total)


@pytest.mark.parametrize("name", FILTERS)
def test_weights_and_finals_are_those_of_compose(name: FilterName) -> None:
    for seed in range(25):
        for semiring in ("tropical", "probability"):
            a, b = (random_fst(seed + k, semiring=semiring) for k in (0, 500))
            made = TensorFst(a).compose(TensorFst(b), filter=name).to_fst()
            expected = compose(a, b, filter=name)
            np.testing.assert_array_equal(made.weight, expected.weight)
            np.testing.assert_array_equal(made.final, expected.final)


def labelling(target: list[int]) -> Fst:
    """CTC's acceptor of a target: class c is label c + 1, class 0 is the blank."""
    row = [0, *(c for label in target for c in (label, 0))]
    arcs = []
    for j, c in enumerate(row):  # state j + 1 has just read row[j]
        skips = c != 0 and (j < 2 or row[j - 2] != c)
        arcs += [
            (i + 1, c + 1, c + 1, 0.0, j + 1)
            for i in ((j, j - 1, j - 2) if skips else (j, j - 1))
            if i >= -1
        ]
    return Fst.build(arcs, [len(row), len(row) - 1], semiring="log")


@pytest.mark.parametrize("batched", [False, True])
def test_ctc_is_torchs(batched: bool) -> None:
    generator = torch.Generator().manual_seed(5)
    targets = [[1, 2, 3], [4], [2, 2, 2], [1, 1, 3, 3], [5, 4, 5, 4, 4]]
    steps, classes = 12, 6
    logits = torch.randn(len(targets), steps, classes, generator=generator, dtype=torch.float64)
    logits.requires_grad_()
    heard = [emissions(each, semiring="log") for each in logits.log_softmax(-1)]
    graphs = [labelling(target) for target in targets]
    if batched:
        joined = compose_tensors(heard, graphs)
    else:
        joined = [one.compose(graph) for one, graph in zip(heard, graphs, strict=True)]
    losses = -torch.stack([one.forward_score() for one in joined])
    (ours,) = torch.autograd.grad(losses.sum(), logits)
    theirs = torch.nn.functional.ctc_loss(
        logits.log_softmax(-1).transpose(0, 1),
        torch.tensor([label for target in targets for label in target]),
        torch.full((len(targets),), steps),
        torch.tensor([len(target) for target in targets]),
        reduction="none",
    )
    (expected,) = torch.autograd.grad(theirs.sum(), logits)
    torch.testing.assert_close(losses, theirs)
    torch.testing.assert_close(ours, expected)


def test_emissions_are_costs_or_probabilities() -> None:
    scores = torch.randn(4, 3, generator=torch.Generator().manual_seed(2), requires_grad=True)
    totals = []
    for semiring in ("log", "probability"):
        score = emissions(scores, [3, 1, 2], semiring=semiring).forward_score()
        totals.append(torch.cat([score[None], torch.autograd.grad(score, scores)[0].ravel()]))
    torch.testing.assert_close(totals[0], totals[1])
    torch.testing.assert_close(totals[0][0], scores.logsumexp(1).sum())


def test_a_loop_sums_to_a_geometric_series() -> None:
    loop = Fst.build([(0, 1, 1, 0.5, 0)], {0: 0.25}, semiring="probability")
    machine = TensorFst(loop, *weights(loop))
    score = machine.forward_score()
    assert score.item() == pytest.approx(math.log(0.25 / (1 - 0.5)))
    by_weight, by_final = torch.autograd.grad(score, (machine.weight, machine.final))
    assert by_weight.item() == pytest.approx(1 / (1 - 0.5))
    assert by_final.item() == pytest.approx(1 / 0.25)


def test_a_probability_of_zero_has_a_slope_and_an_infinite_cost_none() -> None:
    two = Fst.build([(0, 1, 1, 0.5, 1), (0, 2, 2, 0.5, 1)], {1: 1.0}, semiring="probability")
    weight = torch.tensor([0.5, 0.0], dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(TensorFst(two, weight).forward_score(), weight)
    assert slope.tolist() == pytest.approx([2.0, 2.0])
    cost = torch.tensor([0.5, INF], requires_grad=True)
    (slope,) = torch.autograd.grad(TensorFst(two.as_semiring("log"), cost).forward_score(), cost)
    assert slope.tolist() == [-1.0, 0.0]


def test_a_cycle_that_no_path_takes_does_not_count() -> None:
    # State 2 turns forever, state 3 does and is not reached; both sums would diverge.
    arcs = [(0, 1, 1, 1.0, 1), (0, 1, 1, 1.0, 2), (2, 1, 1, -1.0, 2), (3, 1, 1, -1.0, 3)]
    machine = Fst.build([*arcs, (3, 1, 1, 1.0, 1)], [1], semiring="log")
    weight, _ = weights(machine)
    score = TensorFst(machine, weight).forward_score()
    assert score.item() == -1
    assert torch.autograd.grad(score, weight)[0].tolist() == [-1, 0, 0, 0, 0]


def test_the_best_path_has_a_gradient_of_one_on_its_arcs() -> None:
    for seed in range(40):
        machine = random_fst(seed, acyclic=True)
        weight, final = weights(machine)
        best = TensorFst(machine, weight, final).shortest_path()
        costs = path_costs(machine)
        if best is None:
            assert not costs
            continue
        assert best.weight.item() == min(cost for some in costs.values() for cost in some)
        assert best.weight.item() in costs[best.ilabels, best.olabels]
        best.weight.backward()
        assert weight.grad is not None
        assert weight.grad.tolist() == [float(arc in best.arcs) for arc in range(machine.num_arcs)]
        assert final.grad is not None
        assert final.grad.sum() == 1


def test_the_best_path_of_probabilities_has_their_product() -> None:
    machine = Fst.build([(0, 1, 1, 0.5, 1), (0, 2, 2, 0.25, 1)], {1: 0.5}, semiring="probability")
    given = weights(machine)
    best = TensorFst(machine, *given).shortest_path()
    assert best is not None
    assert (best.ilabels, best.weight.item()) == ((1,), 0.25)
    assert torch.autograd.grad(best.weight, given[0])[0].tolist() == [0.5, 0.0]


def test_without_a_path_the_score_is_minus_infinity_and_nothing_has_a_slope() -> None:
    machine = Fst.build([(0, 1, 1, 1.0, 1)], {}, states=2, semiring="log")
    weight, final = weights(machine)
    score = TensorFst(machine, weight, final).forward_score()
    assert score.item() == -INF
    assert torch.autograd.grad(score, (weight, final))[0].tolist() == [0.0]
    empty = TensorFst(Fst.empty(semiring="log"))
    assert empty.forward_score().item() == -INF
    assert empty.shortest_path() is None
    assert empty.compose(TensorFst(machine)).weight.shape == (0,)
    assert TensorFst(machine).compose(empty).final.shape == (0,)


def test_scores_agree_with_the_plain_sum_in_every_semiring() -> None:
    for seed in range(40):
        for semiring in ("tropical", "log", "log64", "probability"):
            machine = random_fst(seed, semiring=semiring, acyclic=True)
            ours = TensorFst(machine).forward_score().item()
            assert ours == pytest.approx(distances.forward_score(machine), rel=1e-5)


def test_a_batch_is_what_its_machines_give_one_by_one() -> None:
    lexicon = random_fst(3, states=6, arcs=20)
    others = [random_fst(seed, states=4, arcs=9) for seed in range(10)]
    shared = TensorFst(lexicon, *weights(lexicon))
    left = compose_tensors(shared, others)
    right = compose_tensors([TensorFst(other) for other in others], shared)
    for k, other in enumerate(others):
        alone, mirrored = shared.compose(other), TensorFst(other).compose(shared)
        assert torch.equal(left[k].weight, alone.weight)
        assert torch.equal(right[k].final, mirrored.final)
    assert compose_tensors(shared, []) == []


def test_gradients_are_the_same_bytes_every_time() -> None:
    hub = Fst.build([(0, 1, 1, 0.0, 0)], [0], semiring="log")
    generator = torch.Generator().manual_seed(1)
    scores = torch.randn(5000, 1, generator=generator)
    seen = set()
    for _ in range(3):
        weight = torch.zeros(1, requires_grad=True)
        made = emissions(scores, semiring="log").compose(TensorFst(hub, weight))
        (gradient,) = torch.autograd.grad((made.weight * scores[:, 0].sin()).sum(), weight)
        seen.add(gradient.item())
    assert len(seen) == 1


def test_everything_stays_on_the_device_of_the_weights() -> None:
    a, b = pair_with_paths(3, "log", acyclic=True)

    def worked(device: torch.device) -> list[Tensor]:
        given = [torch.tensor(x).to(device) for x in (a.weight, a.final, b.weight, b.final)]
        for tensor in given:
            tensor.requires_grad_()
        made = TensorFst(a, *given[:2]).compose(TensorFst(b, *given[2:]))
        score, best = made.forward_score(), made.shortest_path()
        assert best is not None
        heard = emissions(torch.zeros(2, 3).to(device), semiring="log").compose(b)
        results = [
            score,
            *torch.autograd.grad(score, given, retain_graph=True),
            *torch.autograd.grad(best.weight, given),
            heard.weight,
            heard.final,
        ]
        assert all(result.device == device for result in results)
        return [result.detach().cpu() for result in results]

    with elsewhere():
        there = worked(ELSEWHERE)
    for ours, theirs in zip(there, worked(torch.device("cpu")), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_weights_changed_in_place_leave_the_fst_as_it_is() -> None:
    machine = Fst.build([(0, 1, 1, 1.0, 1)], [1], semiring="log")
    for made in (TensorFst(machine), emissions(torch.zeros(1, 1), semiring="log").compose(machine)):
        before = made.structure.weight.copy()
        made.weight.detach().add_(1)
        np.testing.assert_array_equal(made.structure.weight, before)
    exported = TensorFst(machine, torch.tensor([3.0]), torch.tensor([9.0, 2.0])).to_fst()
    assert (exported.weight.tolist(), exported.finals) == ([3.0], {1: 2.0})


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda f: TensorFst(f, torch.zeros(2)), "shape [2]"),
        (lambda f: TensorFst(f, torch.zeros(1), torch.zeros(2)), "shape [2]"),
        (lambda f: TensorFst(f, torch.zeros(1, dtype=torch.int64)), "no gradients"),
        (lambda f: TensorFst(f, torch.zeros(1), torch.zeros(1, device="meta")), "devices"),
        (lambda f: TensorFst(f.as_semiring("boolean")), "boolean"),
        (lambda f: TensorFst(f, torch.tensor([math.nan])).forward_score(), "arc 0"),
        (lambda f: TensorFst(f, torch.tensor([-0.5])).forward_score(), "diverges"),
        (lambda f: TensorFst(f, torch.tensor([-0.5])).shortest_path(), "negative"),
        (lambda f: TensorFst(f).compose(f.as_semiring("tropical")), "semirings"),
        (lambda f: compose_tensors([TensorFst(f)] * 2, [f] * 3), "2 and 3"),
        (lambda _: emissions(torch.zeros(3), semiring="log"), "[T, L]"),
        (lambda _: emissions(torch.tensor([[math.nan]]), semiring="log"), "time 0, column 0"),
    ],
)
def test_what_cannot_be_is_refused(make: object, says: str) -> None:
    machine = Fst.build([(0, 1, 1, 1.0, 0)], [0], semiring="log")
    assert callable(make)
    with pytest.raises(InputError, match=says.replace("[", r"\[")):
        make(machine)


WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None
from holdfast import automata as fa
from holdfast.errors import MissingExtraError
machine = fa.Fst.build([], [0])
assert fa.compose(machine, machine).num_states == 1
for use in (lambda: fa.TensorFst, lambda: fa.emissions):
    try:
        use()
    except MissingExtraError as error:
        print(error.extra)
"""


def test_without_torch_the_extra_is_named() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["torch"] * 2
