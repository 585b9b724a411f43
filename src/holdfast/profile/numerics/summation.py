"""The order in which a function adds: its summation tree, found from its results alone (FPRev).

Among n small equal numbers, i becomes a huge M and j becomes -M. Whatever is added to M or -M before they
cancel is absorbed, so the result counts the numbers outside the smallest subtree that contains both:
n - result = the size of that subtree. The sizes for all pairs determine the tree.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import torch
from torch import Tensor

from holdfast.answer import Section
from holdfast.errors import InputError
from holdfast.profile.numerics.comparing import DTYPES
from holdfast.profile.numerics.formats import FloatArray, as_float64, rounded
from holdfast.profile.ops.sections import section
from holdfast.profile.ops.targets import choice, refused

# A leaf is the index of a number, a node the list of what it adds: nested lists.
Tree = Any
_MASKS = {
    # (M, unit): units are exact in sums of up to 2,048 (fp16), and absorbed by M even in float32.
    "fp64": (2.0**1000, 1.0),
    "fp32": (2.0**100, 1.0),
    "bf16": (2.0**100, 1.0),
    "fp16": (2.0**15, 2.0**-24),
}
# Random vectors on which the tree must give the function's bits.
CHECKS = 20
# Numbers; a chain nests as deep as it is long.
MOST = 256


@dataclass(frozen=True)
class SummationOrder:
    """A summation tree.

    Attributes:
        n: numbers added.
        dtype: their format.
        tree: nested lists of indices.
        kind: sequential (0, 1, 2 ... one after the other), pairwise (the least depth), fused (one addition
            of all) or other.
        depth: additions on the longest path.
        fan_in: most operands of one addition; more than 2: a fused sum.
        accumulated_in: the format in which the tree gives the function's bits on random numbers; None: in
            neither the format of the numbers nor fp32 or fp64.
    """

    n: int
    dtype: str
    tree: Tree
    kind: str
    depth: int
    fan_in: int
    accumulated_in: str | None


def orders_section(orders: Mapping[str, SummationOrder]) -> Section:
    """A row per implementation."""
    rows = [{"implementation": name, **vars(order)} for name, order in orders.items()]
    facts = [
        f"{row['implementation']} adds {row['n']} numbers in {row['dtype']}: order {row['kind']}, depth "
        f"{row['depth']}, sums in {row['accumulated_in'] or 'no format that gives its bits'}"
        for row in rows
    ]
    return section(
        "order",
        "In which order does it add?",
        f"{'; '.join(facts)}.",
        rows,
        "implementation kind depth fan_in accumulated_in",
        source="FPRev: Xie et al., arXiv 2411.00442",
        formula="size of the smallest subtree with i and j = n - f(units, M at i, -M at j) / unit",
    )


def summation_order(
    function: Callable[[Tensor], Any], n: int, dtype: str = "fp32"
) -> SummationOrder:
    """Find the order in which a function adds n numbers.

    Args:
        function: takes a tensor [n] and returns its sum; deterministic.
        n: how many; sums in a 16-bit format hold exact counts of up to 256 (bf16) or 2,048 (fp16).
        dtype: format of the numbers: fp64, fp32, bf16 or fp16.

    Raises:
        InputError: ``unknown-name``, ``out-of-range``, or ``unsupported`` where no summation tree explains
            the results: the sum is exact, compensated, random, or its order depends on the values.
    """
    choice(dtype, _MASKS, "format", "dtype")
    if not 2 <= n <= MOST:
        raise refused("invalid n", "out-of-range", "n", n, f"2 to {MOST}")
    tree = _Probe(function, n, dtype).subtrees(list(range(n)), n + 1)[0]
    depth, fan_in = _depth(tree), _fan_in(tree)
    kind = "other"
    if fan_in == n > 2:
        kind = "fused"
    elif tree == reduce(lambda sum, number: [sum, number], range(n)):
        kind = "sequential"
    elif depth == math.ceil(math.log2(n)):
        kind = "pairwise"
    accumulated_in = _accumulated_in(function, tree, n, dtype)
    return SummationOrder(n, dtype, tree, kind, depth, fan_in, accumulated_in)


class _Probe:
    """Measures subtrees of a function's sum."""

    def __init__(self, function: Callable[[Tensor], Any], n: int, dtype: str) -> None:
        self._function, self._n, self._dtype = function, n, dtype

    def subtrees(self, numbers: list[int], size: int) -> list[Tree]:
        """The subtrees below one node that together hold some numbers.

        Args:
            numbers: ascending.
            size: leaves of the node: two numbers whose smallest common subtree has this size are in
                different subtrees below it.
        """
        trees = []
        while numbers:
            head = numbers[0]
            sizes = {j: self._size(head, j) for j in numbers[1:]}
            node, count = head, 1
            for level in sorted({each for each in sizes.values() if each < size}):
                siblings = [j for j, each in sizes.items() if each == level]
                node = [node, *self.subtrees(siblings, level)]
                count += len(siblings)
                if count != level:
                    raise self._no_tree(f"{count} numbers in a subtree of size {level}")
            trees.append(node)
            numbers = [j for j, each in sizes.items() if each >= size]
        return trees

    def _size(self, i: int, j: int) -> int:
        """Leaves of the smallest subtree that contains two numbers."""
        huge, unit = _MASKS[self._dtype]
        numbers = torch.full((self._n,), unit, dtype=DTYPES[self._dtype])
        numbers[i], numbers[j] = huge, -huge
        outside = _value(self._function(numbers)) / unit
        if outside not in range(self._n - 1):
            left = f"{outside:g} of {self._n} numbers are left"
            raise self._no_tree(f"{left} for M at {i} and -M at {j}")
        return self._n - int(outside)

    def _no_tree(self, found: str) -> InputError:
        problem = "the results are not those of a summation tree"
        expected = "a deterministic sum in an order that ignores the values, rounded each time"
        remedy = "fewer numbers, where a 16-bit sum cannot count them"
        return refused(problem, "unsupported", "function", found, expected, remedy=remedy)


def _value(result: Any) -> float:
    value = as_float64(result)
    if value.size != 1:
        raise refused("not one number", "shape-mismatch", "function", value.shape, "a sum")
    return float(value.item())


def _depth(tree: Tree) -> int:
    """Additions on the longest path."""
    return 1 + max(map(_depth, tree)) if isinstance(tree, list) else 0


def _fan_in(tree: Tree) -> int:
    """Most operands of one addition."""
    return max(len(tree), *map(_fan_in, tree)) if isinstance(tree, list) else 0


def _accumulated_in(
    function: Callable[[Tensor], Any], tree: Tree, n: int, dtype: str
) -> str | None:
    """The format of the sums with which the tree gives the function's bits on random numbers."""
    numbers = rounded(np.random.default_rng(0).standard_normal((CHECKS, n)), dtype)
    kind = DTYPES[dtype]
    expected = [_value(function(torch.from_numpy(row).to(kind))) for row in numbers]
    for form in dict.fromkeys([dtype, "fp32", "fp64"]):
        if np.array_equal(rounded(_sums(tree, numbers, form), dtype), expected):
            return form
    return None


def _sums(tree: Tree, numbers: FloatArray, form: str) -> FloatArray:
    """The sums of all rows by the tree, each addition rounded once; [rows]."""
    if not isinstance(tree, list):
        return numbers[:, tree]
    return rounded(np.sum([_sums(part, numbers, form) for part in tree], axis=0), form)
