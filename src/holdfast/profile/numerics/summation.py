"""The order in which a function adds: its summation tree, found from its results alone (FPRev).

Among n small equal numbers, i becomes a huge M and j becomes -M. Whatever is added to M or -M before they
cancel is absorbed, so the result counts the numbers outside the smallest subtree that contains both:
n - result = the size of that subtree. The sizes for all pairs determine the tree.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from holdfast.answer import Answer, ColumnFormat, How, Section, Table
from holdfast.errors import InputError
from holdfast.profile.numerics.comparing import DTYPES
from holdfast.profile.numerics.formats import as_float64, rounded

Tree = Any
"""A leaf is the index of a number, a node the list of what it adds: nested lists."""
_MASKS = {
    # (M, unit): units are exact in sums of up to 2,048 (fp16), and absorbed by M even in float32.
    "fp64": (2.0**1000, 1.0),
    "fp32": (2.0**100, 1.0),
    "bf16": (2.0**100, 1.0),
    "fp16": (2.0**15, 2.0**-24),
}
CHECKS = 20
"""Random vectors on which the tree must give the function's bits."""


@dataclass(frozen=True)
class SummationOrder(Answer):
    """A summation tree.

    Attributes:
        n: numbers added.
        dtype: their format.
        tree: nested lists of indices.
        kind: sequential, reverse, pairwise, or other.
        depth: additions on the longest path.
        fan_in: most operands of one addition; more than 2: a fused sum.
        stride: index of the first number that number 0 is added to: the count of interleaved sums.
        accumulated_in: the format in which the tree gives the function's bits on random numbers; None: in
            none of fp16, bf16, fp32, fp64.
    """

    n: int
    dtype: str
    tree: Tree
    kind: str
    depth: int
    fan_in: int
    stride: int
    accumulated_in: str | None

    @property
    def title(self) -> str:
        """The heading of the page."""
        return "Order of summation"

    def sections(self) -> Sequence[Section]:
        """The tree."""
        confirmed = (
            f"sums in {self.accumulated_in} in this order give its bits"
            if self.accumulated_in
            else "no format of the sums gives its bits in this order"
        )
        sentence = (
            f"{self.n} numbers in {self.dtype} are added in {self.kind} order, depth {self.depth}; "
            f"{confirmed}."
        )
        facts = {"kind": self.kind, "depth": self.depth, "operands of an addition": self.fan_in}
        facts |= {"first partner of number 0": self.stride}
        if self.kind == "other":
            facts["tree"] = _text(self.tree)
        rows = [{"property": name, "value": str(value)} for name, value in facts.items()]
        table = Table(
            pa.Table.from_pylist(rows), {"property": ColumnFormat(""), "value": ColumnFormat("")}
        )
        how = How(
            "size of the smallest subtree with i and j = n - f(units, M at i, -M at j) / unit",
            source="FPRev: Xie et al., arXiv 2411.00442",
            notes=f"The tree is evaluated on {CHECKS} random vectors and compared with the function bit by bit.",
        )
        return [Section("order", "In which order are numbers added?", sentence, (), [table], how)]


def summation_order(
    function: Callable[[torch.Tensor], Any], n: int, dtype: str = "fp32"
) -> SummationOrder:
    """Find the order in which a function adds n numbers.

    Args:
        function: takes a tensor [n] and returns its sum; deterministic.
        n: how many; sums in a 16-bit format hold exact counts of up to 256 (bf16) or 2,048 (fp16).
        dtype: format of the numbers: fp64, fp32, bf16 or fp16.

    Raises:
        InputError: ``unknown-name``, ``out-of-range``, or ``unsupported`` where results are no summation
            tree's: the sum is exact, compensated, random, or its order depends on the values.
    """
    if dtype not in _MASKS:
        raise InputError(
            "unknown format", code="unknown-name", place="dtype", found=dtype, expected=", ".join(_MASKS)
        )
    if n < 2:
        raise InputError("too few numbers", code="out-of-range", place="n", found=str(n), expected="2 or more")
    probe = _Probe(function, n, dtype)
    tree = _children(list(range(n)), n + 1, probe)[0]
    leaves = list(_leaves(tree))
    depth, fan_in = _shape(tree)
    return SummationOrder(
        n, dtype, tree, _kind(leaves, depth, fan_in, tree), depth, fan_in, probe.partner,
        _accumulated_in(function, tree, n, dtype),
    )  # fmt: skip


class _Probe:
    """Sizes of the smallest subtrees that contain two numbers."""

    def __init__(self, function: Callable[[torch.Tensor], Any], n: int, dtype: str) -> None:
        self._function, self._n, self._dtype = function, n, dtype
        self.partner = 0

    def size(self, i: int, j: int) -> int:
        huge, unit = _MASKS[self._dtype]
        numbers = torch.full((self._n,), unit, dtype=DTYPES[self._dtype])
        numbers[i], numbers[j] = huge, -huge
        outside = float(as_float64(self._function(numbers))) / unit
        size = self._n - outside
        if not (math.isfinite(size) and size == round(size) and 2 <= size <= self._n):
            raise self.no_tree(f"{outside:g} of {self._n} numbers are left for M at {i} and -M at {j}")
        return int(size)

    def no_tree(self, found: str) -> InputError:
        return InputError(
            "the results are not those of a summation tree",
            code="unsupported",
            place="function",
            found=found,
            expected="a deterministic sum, rounded at each addition, in an order that ignores the values",
            remedy="fewer numbers, where a 16-bit sum cannot count them",
        )


def _children(numbers: list[int], size: int, probe: _Probe) -> list[Tree]:
    """The subtrees below one node that together hold some numbers.

    Args:
        numbers: ascending.
        size: leaves of the node: two numbers whose smallest common subtree has this size are in different
            subtrees below it.
        probe: measures.
    """
    made = []
    while numbers:
        head = numbers[0]
        sizes = {j: probe.size(head, j) for j in numbers[1:]}
        node, count = head, 1
        for level in sorted({each for each in sizes.values() if each < size}):
            siblings = [j for j, each in sizes.items() if each == level]
            if head == 0 and count == 1:
                probe.partner = siblings[0]
            node = [node, *_children(siblings, level, probe)]
            count += len(siblings)
            if count != level:
                raise probe.no_tree(f"{count} numbers in a subtree of size {level}")
        made.append(node)
        numbers = [j for j, each in sizes.items() if each >= size]
    return made


def _leaves(tree: Tree) -> Iterator[int]:
    """Indices in the order of the tree; without recursion, for chains are deep."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting.extend(reversed(node))
        else:
            yield node


def _shape(tree: Tree) -> tuple[int, int]:
    """Additions on the longest path, and the most operands of one."""
    depth, fan_in, waiting = 0, 0, [(tree, 0)]
    while waiting:
        node, level = waiting.pop()
        depth = max(depth, level)
        if isinstance(node, list):
            fan_in = max(fan_in, len(node))
            waiting += [(child, level + 1) for child in node]
    return depth, fan_in


def _kind(leaves: Sequence[int], depth: int, fan_in: int, tree: Tree) -> str:
    n = len(leaves)
    if fan_in == n:
        return "fused"
    if depth == n - 1 and n > 2:
        # A chain lists its later numbers behind its first two; 0 leads its node wherever it is added.
        if leaves == sorted(leaves):
            chain: list[int] = []
            node = tree
            while isinstance(node, list):
                left, right = node[0], node[-1]
                chain.append(right if isinstance(left, list) else left)
                node = left if isinstance(left, list) else right
            return "sequential" if chain[0] == n - 1 else "reverse"
        return "other"
    if depth == math.ceil(math.log2(n)):
        return "pairwise"
    return "other"


def _accumulated_in(
    function: Callable[[torch.Tensor], Any], tree: Tree, n: int, dtype: str
) -> str | None:
    """The format of the sums with which the tree gives the function's bits on random numbers."""
    draws = np.random.default_rng(0).standard_normal((CHECKS, n))
    numbers = rounded(draws, dtype)
    expected = [
        float(as_float64(function(torch.from_numpy(row).to(DTYPES[dtype])))) for row in numbers
    ]
    for form in dict.fromkeys([dtype, "fp32", "fp64"]):
        sums = rounded(_evaluated(tree, numbers, form), dtype)
        if np.array_equal(sums, expected):
            return form
    return None


def _evaluated(tree: Tree, numbers: np.ndarray, form: str) -> np.ndarray:
    """The sums of all rows by the tree, each addition rounded once; [rows]."""
    done: list[np.ndarray] = []
    waiting: list[tuple[Tree, bool]] = [(tree, False)]
    while waiting:
        node, ready = waiting.pop()
        if not isinstance(node, list):
            done.append(numbers[:, node])
        elif ready:
            terms = [done.pop() for _ in node][::-1]
            done.append(rounded(np.sum(terms, axis=0), form))
        else:
            waiting.append((node, True))
            waiting += [(child, False) for child in reversed(node)]
    return done[0]


def _text(tree: Tree, most: int = 300) -> str:
    text = str(tree).replace("[", "(").replace("]", ")").replace(", ", " + ")
    return text if len(text) <= most else text[:most] + " ..."
