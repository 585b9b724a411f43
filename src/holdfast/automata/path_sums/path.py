"""`Path`: one path of a machine, from the start to a final state."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from holdfast.automata.fst import EPS, I32, I64, Fst
from holdfast.automata.symbols import SymbolTable


@dataclass(frozen=True, slots=True)
class Path:
    """One path; epsilons are left out of its labels."""

    ilabels: tuple[int, ...]
    """The input string."""
    olabels: tuple[int, ...]
    """The output string."""
    weight: float
    """The product of the weights of its arcs and of its final state, in the machine's semiring."""
    arcs: tuple[int, ...]
    """Its arcs, as positions in the `Fst`."""

    def input(self, f: Fst) -> str:
        """The input string as symbols of the machine's table, numbers where it has none."""
        return _spelled(self.ilabels, f.isymbols)

    def output(self, f: Fst) -> str:
        """The output string as symbols of the machine's table, numbers where it has none."""
        return _spelled(self.olabels, f.osymbols)


def paths_of(f: Fst, bounds: I64, arcs: I64) -> list[Path]:
    """Paths from their arcs.

    Args:
        f: the machine.
        bounds: [n + 1] where each path begins in `arcs`.
        arcs: the arcs of all paths, each from the start to a final state.
    """
    lengths = np.diff(bounds)
    ends = np.full(len(lengths), f.start)
    ends[lengths > 0] = f.nextstate[arcs[bounds[1:][lengths > 0] - 1]]
    # Each path's final weight stands before the weights of its arcs, so that no run is empty.
    factors = np.insert(f.weight[arcs].astype(np.float64), bounds[:-1], f.final[ends])
    product = np.add if f.semiring.is_negative_log else np.multiply
    weights = product.reduceat(factors, bounds[:-1] + np.arange(len(lengths))).tolist()
    ilabels, olabels = _strings(f.ilabel[arcs], bounds), _strings(f.olabel[arcs], bounds)
    listed, where = arcs.tolist(), bounds.tolist()
    return [
        Path(ilabels[k], olabels[k], weights[k], tuple(listed[where[k] : where[k + 1]]))
        for k in range(len(lengths))
    ]


def chains(f: Fst, bounds: I64, arcs: I64) -> Fst:
    """The machine in which each path is a chain from the start, which all share."""
    if len(bounds) == 1:
        return Fst.empty(f.semiring, f.isymbols, f.osymbols)
    lengths = np.diff(bounds)
    first = np.zeros(len(arcs), bool)
    first[bounds[:-1][lengths > 0]] = True
    # State k + 1 is the one that arc k enters; the start has the first arc of every path.
    leaves = np.where(first, 0, np.arange(len(arcs)))
    order = np.argsort(leaves, kind="stable")
    offsets = np.concatenate(([0], np.cumsum(np.bincount(leaves, minlength=len(arcs) + 1))))
    ordered = arcs[order]
    final = np.full(len(arcs) + 1, f.semiring.zero, f.semiring.dtype)
    ends = bounds[1:][lengths > 0]
    final[ends] = f.final[f.nextstate[arcs[ends - 1]]]
    if (lengths == 0).any():
        final[0] = f.final[f.start]
    return f.with_trusted(
        offsets=offsets.astype(np.int64),
        ilabel=f.ilabel[ordered],
        olabel=f.olabel[ordered],
        nextstate=(order + 1).astype(np.int32),
        weight=f.weight[ordered],
        final=final,
        start=0,
    )


def _strings(labels: I32, bounds: I64) -> list[tuple[int, ...]]:
    """The labels of each path without epsilons."""
    kept = labels != EPS
    listed = labels[kept].tolist()
    where = np.concatenate(([0], np.cumsum(kept)))[bounds].tolist()
    return [tuple(listed[begin:end]) for begin, end in pairwise(where)]


def _spelled(labels: tuple[int, ...], symbols: SymbolTable | None) -> str:
    return " ".join(str(label) if symbols is None else symbols.symbol(label) for label in labels)
