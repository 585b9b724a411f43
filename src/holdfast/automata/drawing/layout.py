"""Positions of the states, labels and curves of a picture: a layered layout from left to right.

The method of Sugiyama, Tagawa and Toda ("Methods for visual understanding of hierarchical system
structures", 1981): break cycles, put states into layers, order each layer so that few lines cross, then
place. States are in even layers; the label of an arc is a separate box in an odd layer, so labels never
overlap. A line that passes a layer has a point there that takes part in the ordering.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.optimize import isotonic_regression

from holdfast.automata.drawing.labels import Bundle

RADIUS = 17.0
LINE = 14.0  # height of a line of text
CHARACTER = 7.3  # width of one
GAP_X, GAP_Y = 24.0, 14.0
LOOP = 24.0  # how far a loop rises above its state
SWEEPS = 12

Point = tuple[float, float]


@dataclass(frozen=True)
class Route:
    """The way of one bundle of arcs."""

    points: tuple[Point, ...]
    """From the centre of its source to that of its target, level under its label; one point for a loop."""
    label: Point
    """The middle of the lower edge of its label."""


@dataclass(frozen=True)
class Layout:
    """A placed machine, in CSS pixels."""

    states: list[Point]
    """[V] centres"""
    routes: list[Route]
    """One each bundle."""
    width: float
    height: float


def text_width(lines: Sequence[str]) -> float:
    """How wide lines of text are, on the generous side."""
    return CHARACTER * max((len(line) for line in lines), default=0)


def place(count: int, start: int, state_labels: Sequence[str], drawn: Sequence[Bundle]) -> Layout:
    """Place `count` states and the bundles of arcs between them.

    Args:
        count: V.
        start: the start state, which goes leftmost.
        state_labels: [V] what stands in each state.
        drawn: the bundles of arcs.
    """
    sheet = _Sheet(count, start, state_labels, drawn)
    sheet.order_layers()
    y = sheet.heights()
    return sheet.finished(y)


def node_width(label: str) -> float:
    """How wide the shape of a state is."""
    return max(2 * RADIUS, CHARACTER * len(label) + 14)


class _Sheet:
    """Nodes 0..V-1 are the states, then come labels and points on lines, each in one layer."""

    def __init__(
        self, count: int, start: int, state_labels: Sequence[str], drawn: Sequence[Bundle]
    ) -> None:
        self.count, self.drawn = count, drawn
        depth = _layers(count, start, drawn)
        self.layer = [2 * one for one in depth]
        self.width = [node_width(label) for label in state_labels]
        self.above, self.below = [RADIUS] * count, [RADIUS] * count
        self.links: list[tuple[int, int]] = []  # from a layer to the next
        self.chains: list[list[int]] = []  # of each bundle: nodes from left to right
        self.label_of: dict[int, int] = {}  # bundle -> its label's node
        for number, one in enumerate(drawn):
            self.chains.append([] if one.source == one.target else self._thread(number, one))
            if one.source == one.target:
                rise = RADIUS + LOOP + LINE * len(one.lines)
                self.above[one.source] = rise
                self.width[one.source] = max(self.width[one.source], text_width(one.lines))
        self.layers: list[list[int]] = [[] for _ in range(max(self.layer, default=-1) + 1)]
        for node, layer in enumerate(self.layer):
            self.layers[layer].append(node)
        self.neighbours: dict[int, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
        for left, right in self.links:
            self.neighbours[right][0].append(left)
            self.neighbours[left][1].append(right)

    def _thread(self, number: int, one: Bundle) -> list[int]:
        """The nodes of a bundle: its two states, a label between, points where it passes layers."""
        left, right = sorted((one.source, one.target), key=lambda state: (self.layer[state], state))
        begin, end = self.layer[left], self.layer[right]
        middle = (begin + end) // 2
        middle += 1 - middle % 2
        chain = [left]
        for layer in range(begin + 1, max(end, begin + 2)):
            node = len(self.layer)
            self.layer.append(layer)
            if layer == middle:
                self.label_of[number] = node
                self.width.append(text_width(one.lines) + 8)
                self.above.append(LINE * len(one.lines) + 4)
                self.below.append(4.0)
            else:
                self.width.append(0.0)
                self.above.append(2.0)
                self.below.append(2.0)
            self.links.append((chain[-1], node))
            chain.append(node)
        self.links.append((chain[-1], right))
        return [*chain, right]

    def order_layers(self) -> None:
        """Order each layer so that few lines cross: sweeps of barycentres, the best order is kept."""
        best, fewest = [list(layer) for layer in self.layers], self._crossings()
        for sweep in range(SWEEPS):
            forward = sweep % 2 == 0
            for layer in self.layers if forward else reversed(self.layers):
                rank = self._ranks()
                layer.sort(key=lambda node: self._centre(node, rank, 0 if forward else 1))
            crossings = self._crossings()
            if crossings < fewest:
                best, fewest = [list(layer) for layer in self.layers], crossings
        self.layers = best

    def _ranks(self) -> dict[int, int]:
        return {node: rank for layer in self.layers for rank, node in enumerate(layer)}

    def _centre(self, node: int, rank: dict[int, int], side: int) -> float:
        beside = self.neighbours[node][side]
        if not beside:
            return float(rank[node])
        return sum(rank[one] for one in beside) / len(beside)

    def _crossings(self) -> int:
        rank = self._ranks()
        between: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for left, right in self.links:
            between[min(self.layer[left], self.layer[right])].append((rank[left], rank[right]))
        total = 0
        for links in between.values():
            ends = np.array(sorted(links))
            later = np.triu(ends[:, None, 1] > ends[None, :, 1], 1)
            total += int((later & (ends[:, None, 0] < ends[None, :, 0])).sum())
        return total

    def heights(self) -> list[float]:
        """The y of each node: near its neighbours, as far apart as the boxes of the layer need."""
        y = [0.0] * len(self.layer)
        for layer in self.layers:
            for node, offset in zip(layer, self._offsets(layer), strict=True):
                y[node] = offset - self._offsets(layer)[-1] / 2
        for sweep in range(2 * SWEEPS):
            for layer in self.layers if sweep % 2 == 0 else reversed(self.layers):
                targets = []
                for node in layer:
                    beside = [*self.neighbours[node][0], *self.neighbours[node][1]]
                    targets.append(
                        float(np.mean([y[one] for one in beside])) if beside else y[node]
                    )
                # Least squares under "each at least that far below the one above": an isotonic fit.
                offsets = self._offsets(layer)
                fitted = isotonic_regression(np.array(targets) - offsets).x + offsets
                for node, value in zip(layer, fitted, strict=True):
                    y[node] = float(value)
        return y

    def _offsets(self, layer: list[int]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """How far below the first each node of a layer stands when they are packed."""
        steps = [0.0]
        for upper, lower in pairwise(layer):
            steps.append(self.below[upper] + GAP_Y + self.above[lower])
        return np.cumsum(steps)

    def finished(self, y: list[float]) -> Layout:
        """The layout, moved so that nothing is left of or above the origin."""
        left = 2 * GAP_X + RADIUS  # room for the arrow into the start state
        x_of_layer = []
        for layer in self.layers:
            width = max((self.width[node] for node in layer), default=0.0)
            x_of_layer.append(left + width / 2)
            left += width + GAP_X
        top = min((y[n] - self.above[n] for n in range(len(y))), default=0.0) - GAP_Y
        bottom = max((y[n] + self.below[n] for n in range(len(y))), default=0.0) + GAP_Y
        point = [(x_of_layer[self.layer[n]], y[n] - top) for n in range(len(y))]
        routes = []
        for number, one in enumerate(self.drawn):
            if one.source == one.target:
                x, level = point[one.source]
                routes.append(Route(((x, level),), (x, level - RADIUS - LOOP - 2)))
                continue
            chain, label = self.chains[number], self.label_of[number]
            x, level = point[label]
            half = self.width[label] / 2
            points: list[Point] = []
            for node in chain:
                points += [(x - half, level), (x + half, level)] if node == label else [point[node]]
            if chain[0] != one.source:
                points.reverse()
            routes.append(Route(tuple(points), (x, level - 3)))
        return Layout(point[: self.count], routes, left + GAP_X, bottom - top)


def _layers(count: int, start: int, drawn: Sequence[Bundle]) -> list[int]:
    """The longest way to each state, from the start, once arcs that close a cycle are turned round."""
    after: list[list[int]] = [[] for _ in range(count)]
    for one in drawn:
        if one.source != one.target:
            after[one.source].append(one.target)
    finished: list[int] = []
    seen: set[int] = set()

    def visit(state: int) -> None:
        seen.add(state)
        for target in after[state]:
            if target not in seen:
                visit(target)
        finished.append(state)

    for root in [start, *range(count)] if count else []:
        if root not in seen:
            visit(root)
    # Arcs against this order close cycles, or enter the start: turned round, they follow it.
    order = [start, *(state for state in reversed(finished) if state != start)] if count else []
    place_of = {state: place for place, state in enumerate(order)}
    onward: list[set[int]] = [set() for _ in range(count)]
    for source in range(count):
        for target in after[source]:
            first, second = sorted((source, target), key=place_of.__getitem__)
            onward[first].add(second)
    depth = [0] * count
    for source in order:
        for target in onward[source]:
            depth[target] = max(depth[target], depth[source] + 1)
    return depth
