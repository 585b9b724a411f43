"""`TensorFst`: a transducer whose weights are a tensor, composed and summed with gradients.

    emitted = emissions(logits.log_softmax(-1))      # [T, C] -> T + 1 states in a row, C arcs between two
    loss = -emitted.compose(labelling).forward_score()
    loss.backward()

The structure (states, labels, arcs) is an `Fst` and has no gradient: an arc whose weight becomes the
semiring's zero stays an arc, and a state that is not final never becomes so. Weights are those of the
semiring: costs, that is negated logarithms of probabilities, in `tropical`, `log` and `log64`, which differ
in nothing here; probabilities in `probability`. Dtype and device are the caller's; sums over paths are
taken in float64 on the CPU.

Source: A. Hannun, V. Pratap, J. Kahn, W.-N. Hsu, "Differentiable weighted finite-state transducers", 2020
(arXiv:2010.01003), for losses as differences of forward scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from holdfast.automata.algebra.strings import linear_emissions
from holdfast.automata.composition.batches import compose_batch, paired
from holdfast.automata.composition.composing import ArcMap, compose
from holdfast.automata.composition.filters import FilterName
from holdfast.automata.fst import I64, Fst
from holdfast.automata.gradients import forward_score, gathered, sent
from holdfast.automata.path_sums.best import paths
from holdfast.automata.semirings import BOOLEAN, Semiring
from holdfast.automata.symbols import SymbolTable
from holdfast.errors import InputError, MissingExtraError

try:
    import torch
    from torch import Tensor
except ModuleNotFoundError as error:
    raise MissingExtraError("torch", "torch") from error


class TensorPath(NamedTuple):
    """One path of a `TensorFst`; epsilons are left out of its labels."""

    ilabels: tuple[int, ...]
    """The input string."""
    olabels: tuple[int, ...]
    """The output string."""
    weight: Tensor
    """[] the product of its weights in the semiring; in a semiring of costs their sum, whose gradient is
    one on each arc of the path."""
    arcs: tuple[int, ...]
    """Its arcs, as positions in the `Fst`."""


class TensorFst:
    """A transducer with V states and E arcs whose weights are tensors.

    Args:
        fst: the structure; its weights are used where no tensor is given.
        weight: [E] weights of the arcs, of any floating dtype, on any device.
        final: [V] final weights; what stands there for states that are not final is not looked at.

    Raises:
        InputError: if a tensor has another shape, is not of a floating dtype, or the two are on different
            devices; in the boolean semiring, which has no gradients.
    """

    def __init__(self, fst: Fst, weight: Tensor | None = None, final: Tensor | None = None) -> None:
        if fst.semiring.code == BOOLEAN:
            raise InputError(
                "the boolean semiring has no gradients",
                code="unsupported",
                found="boolean",
                expected="a semiring of costs or probabilities",
                remedy="convert the machine with as_semiring",
            )
        tensors = [tensor for tensor in (weight, final) if tensor is not None]
        for name, tensor, count in (
            ("weight", weight, fst.num_arcs),
            ("final", final, fst.num_states),
        ):
            if tensor is not None:
                _check(name, tensor, count, tensors[0].device)
        device = tensors[0].device if tensors else torch.device("cpu")
        dtype = torch.promote_types(tensors[0].dtype, tensors[-1].dtype) if tensors else None
        self.structure = fst
        """States, labels and arcs; the weights in it are those that it was made with."""
        # Copies, so that an optimizer that changes the weights in place leaves the Fst as it is.
        self.weight: Tensor = (
            sent(np.array(fst.weight), device, dtype) if weight is None else weight.to(dtype)
        )
        """[E] weights of the arcs."""
        constant = sent(np.array(fst.final), device, self.weight.dtype)
        self.final: Tensor = constant
        """[V] final weights, the semiring's zero for states that are not final."""
        if final is not None:
            self.final = torch.where(constant != fst.semiring.zero, final.to(dtype), constant)

    @property
    def semiring(self) -> Semiring:
        """What the weights are."""
        return self.structure.semiring

    def to_fst(self) -> Fst:
        """The machine with its present weights, in the dtype of the semiring."""
        exact, dtype = self._exactly(), self.semiring.dtype
        return exact.with_trusted(
            weight=exact.weight.astype(dtype), final=exact.final.astype(dtype)
        )

    def compose(
        self,
        other: TensorFst | Fst,
        connect: bool = True,
        *,
        filter: FilterName = "auto",
        max_states: int | None = None,
    ) -> TensorFst:
        """The composition; its weights have gradients by those of both machines.

        Args:
            other: B; the weights of an `Fst` are constants.
            connect: see `compose`.
            filter: see `compose`; "trivial" counts equal paths through epsilons several times.
            max_states: see `compose`.

        Raises:
            InputError: see `compose`.
            LimitError: see `compose`.
        """
        right = self._joined_by(other)
        machine, arcs = compose(
            self.structure,
            right.structure,
            connect,
            filter=filter,
            return_arc_map=True,
            max_states=max_states,
        )
        return _weighted(machine, arcs, self, right)

    def forward_score(self) -> Tensor:
        """The logarithm of the summed probability of all paths, []; -inf if there is no path.

        Weights are read as costs in the tropical semiring too. The gradient by an arc's cost is minus the
        number of times that a path passes it on average, its posterior probability if there are no cycles;
        it is zero if there is no path. Differentiable once.

        Raises:
            InputError: if the sum diverges, naming the component; if a weight is NaN.
        """
        return forward_score(self.structure, self.weight, self.final)

    def shortest_path(self) -> TensorPath | None:
        """The best path (of least cost, or of greatest probability), None if there is none.

        `-path.weight` is the Viterbi score in a semiring of costs.

        Raises:
            InputError: if a cycle has a negative cost.
        """
        best = next(paths(self._exactly(), limit=1), None)
        if best is None:
            return None
        arcs = sent(np.array(best.arcs, np.int64), self.weight.device)
        last = int(self.structure.nextstate[best.arcs[-1]]) if best.arcs else self.structure.start
        factors = torch.cat([gathered(self.weight, arcs, 0.0), self.final[last : last + 1]])
        weight = factors.sum() if self.semiring.is_negative_log else factors.prod()
        return TensorPath(best.ilabels, best.olabels, weight, best.arcs)

    def _exactly(self) -> Fst:
        weight, final = (
            tensor.detach().to("cpu", torch.float64).numpy() for tensor in (self.weight, self.final)
        )
        return self.structure.with_trusted(weight=weight, final=final)

    def _joined_by(self, other: TensorFst | Fst) -> TensorFst:
        if isinstance(other, TensorFst):
            return other
        return TensorFst(other, sent(other.weight, self.weight.device, self.weight.dtype))


def compose_tensors(
    a: TensorFst | Sequence[TensorFst],
    b: TensorFst | Fst | Sequence[TensorFst | Fst],
    connect: bool = True,
    *,
    filter: FilterName = "auto",
) -> list[TensorFst]:
    """The compositions of a batch, as `TensorFst.compose` makes them one by one.

    Args:
        a: one machine, or as many as there are in `b`.
        b: one machine, or as many as there are in `a`; the weights of an `Fst` are constants.
        connect: see `compose`.
        filter: see `compose`.

    Raises:
        InputError: see `compose_batch`.
    """
    lefts: list[TensorFst]
    rights: list[TensorFst | Fst]
    lefts, rights = paired(a, b)
    wrapped = [left._joined_by(right) for left, right in zip(lefts, rights, strict=True)]
    composed = compose_batch(
        [left.structure for left in lefts],
        [right.structure for right in wrapped],
        connect,
        filter=filter,
        return_arc_map=True,
    )
    return [
        _weighted(machine, arcs, left, right)
        for (machine, arcs), left, right in zip(composed, lefts, wrapped, strict=True)
    ]


def emissions(
    log_probs: Tensor,
    labels: Sequence[int] | None = None,
    *,
    symbols: SymbolTable | None = None,
    semiring: str | Semiring = "tropical",
) -> TensorFst:
    """The acceptor of every string of T labels, weighted by a network: `linear_emissions` with gradients.

    Args:
        log_probs: [T, C] natural logarithms, such as a log-softmax over C classes.
        labels: [C] label of each class; 1 to C, if not given: class c is label c + 1, as 0 is epsilon.
        symbols: names of the labels.
        semiring: name or semiring.

    Raises:
        InputError: see `linear_emissions`.
    """
    scores = log_probs.detach().to("cpu", torch.float64).numpy()
    structure = linear_emissions(scores, labels, symbols=symbols, semiring=semiring)
    flat = log_probs.reshape(-1)
    return TensorFst(structure, -flat if structure.semiring.is_negative_log else flat.exp())


def _weighted(machine: Fst, arcs: ArcMap, left: TensorFst, right: TensorFst) -> TensorFst:
    """A composition's structure, with weights gathered from the machines it was made of."""
    ring = machine.semiring
    parts = []
    for side, of_arc, start in (
        (left, arcs.a, left.structure.start),
        (right, arcs.b, right.structure.start),
    ):
        arc, state = (
            sent(index, side.weight.device, torch.int64)
            for index in (of_arc, _states_of(machine, of_arc, side.structure, start))
        )
        parts.append((gathered(side.weight, arc, ring.one), gathered(side.final, state, ring.zero)))
    (weight_a, final_a), (weight_b, final_b) = parts
    if ring.is_negative_log:
        return TensorFst(machine, weight_a + weight_b, final_a + final_b)
    return TensorFst(machine, weight_a * weight_b, final_a * final_b)


def _states_of(machine: Fst, of_arc: I64, side: Fst, start: int) -> I64:
    """[V] the state of one side that each state of a composition stands on.

    The first arc that enters a state comes from a state of smaller number (states are numbered as they
    are found), so these arcs form a tree. A state stands where the last arc of the side on the way to it in
    the tree led.
    """
    count = machine.num_states
    if not count:
        return np.empty(0, np.int64)
    entering = np.empty(count, np.int64)
    entering[machine.nextstate[::-1]] = np.arange(machine.num_arcs)[
        ::-1
    ]  # the last one written stays
    entering[machine.start] = -1
    known = np.full(count, start, np.int64)
    above = np.arange(count)
    inner = np.flatnonzero(entering >= 0)
    arc = entering[inner]
    moved = of_arc[arc] >= 0
    known[inner[moved]] = side.nextstate[of_arc[arc[moved]]]
    above[inner[~moved]] = machine.source[arc[~moved]]
    while not np.array_equal(above, higher := above[above]):  # twice as far each time
        above = higher
    return known[above]


def _check(name: str, tensor: Tensor, count: int, device: torch.device) -> None:
    if tuple(tensor.shape) != (count,):
        raise InputError(
            f"the tensor {name} does not fit the machine",
            code="conflict",
            found=f"shape {list(tensor.shape)}",
            expected=f"shape [{count}]",
        )
    if not tensor.is_floating_point():
        raise InputError(
            f"the tensor {name} has no gradients",
            code="unsupported",
            found=str(tensor.dtype),
            expected="a float dtype",
        )
    if tensor.device != device:
        raise InputError(
            "weight and final are on different devices",
            code="conflict",
            found=f"{device} and {tensor.device}",
            expected="one device",
        )
