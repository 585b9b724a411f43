"""The most probable alignment of phones with the outputs of a CTC network (Viterbi).

Words may have several pronunciations and silences between them, so the phones of a text are a graph; its
paths are the ways to say the text. A step from phone a to phone b outputs the label "a b" (of a network of
single phones: "b") for one or more frames; then come blanks until the next step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from holdfast.errors import InputError
from holdfast.speech.recognize.labels import BLANK
from holdfast.speech.speak.dictionary import PAUSE, Phones, plain_phone
from holdfast.speech.speak.segmentation import PhoneAlphabet

Array = npt.NDArray[Any]
LARGEST = 400_000_000
"""Frames times states that are searched."""
START = -1
"""Node before the first phone."""


@dataclass
class PhoneGraph:
    """Ways to say a text: a node is a phone at one place, an arc joins two that can follow each other."""

    phones: list[str] = field(default_factory=list)
    """Of each node, with stress."""
    words: list[int] = field(default_factory=list)
    """Word of each node; -1: a silence."""
    arcs: list[tuple[int, int]] = field(default_factory=list)
    """From node, to node; from `START` to first phones."""
    finals: list[int] = field(default_factory=list)
    """Nodes with which the text can end."""
    fewest: int = 2
    """Phones of the shortest path."""

    @classmethod
    def of_words(cls, words: Sequence[Sequence[Phones]]) -> PhoneGraph:
        """The graph of words with their pronunciations.

        There may be silence between words. At both ends there is, as in the training speech, if only for
        one output: left to choose, Viterbi would omit it wherever its peak is spread.
        """
        graph = cls()
        ends = [START]
        for number, alternates in enumerate(words):
            silence = graph._node(PAUSE, -1, ends)
            starts, ends = [*ends, silence] if number else [silence], []
            distinct = {tuple(map(plain_phone, each)): each for each in reversed(alternates)}
            graph.fewest += min(map(len, alternates))
            for phones in reversed(distinct.values()):
                before = starts
                for phone in phones:
                    before = [graph._node(phone, number, before)]
                ends += before
        graph.finals = [graph._node(PAUSE, -1, ends)]
        return graph

    def _node(self, phone: str, word: int, before: Sequence[int]) -> int:
        self.phones.append(phone)
        self.words.append(word)
        node = len(self.phones) - 1
        self.arcs += [(each, node) for each in before]
        return node


@dataclass(frozen=True)
class AlignedPath:
    """The best path."""

    nodes: list[int]
    """Phones said, in order."""
    first: list[int]
    """Frame in which each begins to be output; the first phone's is 0."""
    last: list[int]
    """Last frame of that output."""
    gaps: Array
    """ln of how much more probable the best output of each frame is than the path's; [T]."""
    log_prob: float
    """ln of the path's probability."""


def best_path(log_probs: Array, graph: PhoneGraph, alphabet: PhoneAlphabet) -> AlignedPath:
    """Viterbi over the states "output of arc e" and "blanks within node q".

    Args:
        log_probs: of the network; [T, L].
        graph: of the text.
        alphabet: meaning of the outputs.

    Raises:
        InputError: ``audio-too-short`` for the phones; ``out-of-range`` for more than can be searched.
    """
    frames = len(log_probs)
    if frames < graph.fewest:
        raise InputError(
            "the audio is too short for the text",
            code="audio-too-short",
            found=f"{frames} frames",
            expected=f"at least {graph.fewest}, one per phone",
        )
    # States: "output of arc e" for each arc, then "blanks within node q", "blanks before the first output",
    # and one that is never reached.
    arcs, size = len(graph.arcs), len(graph.arcs) + len(graph.phones) + 2
    if frames * size > LARGEST:
        raise InputError(
            "audio and text are too long to align at once",
            code="out-of-range",
            found=f"{frames} frames, {len(graph.phones)} phones and silences",
            expected=f"at most {LARGEST:,} frames times states",
            remedy="divide both at a pause",
        )
    columns = np.full(size, BLANK)
    columns[:arcs] = [
        alphabet.column("" if start == START else graph.phones[start], graph.phones[end])
        for start, end in graph.arcs
    ]
    before = _predecessors(graph, columns)
    score = np.full(size, -np.inf)
    score[-2] = 0
    back = np.zeros((frames, size), np.uint8)
    for frame in range(frames):
        candidates = score[before]  # [states, K]
        back[frame] = candidates.argmax(axis=1)
        score = candidates.max(axis=1) + log_probs[frame, columns]
    nodes = [*(end for _, end in graph.arcs), *range(len(graph.phones))]
    ends = [state for state, node in enumerate(nodes) if node in graph.finals]
    path = [max(ends, key=lambda each: score[each])]
    total = float(score[path[0]])
    # The states of the frames, from the last to the first.
    for frame in range(frames - 1, 0, -1):
        path.append(int(before[path[-1], back[frame, path[-1]]]))
    path.reverse()
    found: dict[int, list[int]] = {}
    for frame, state in enumerate(path):
        if state < arcs:
            found.setdefault(state, []).append(frame)
    return AlignedPath(
        [nodes[arc] for arc in found],
        [own[0] for own in found.values()],
        [own[-1] for own in found.values()],
        log_probs.max(axis=1) - log_probs[range(frames), columns[path]],
        total,
    )


def _predecessors(graph: PhoneGraph, columns: Array) -> Array:
    """States that can come before each state: [states, K], filled with the one that is never reached."""
    arcs, nodes = len(graph.arcs), len(graph.phones)
    waiting, never = arcs + nodes, arcs + nodes + 1
    into: list[list[int]] = [[] for _ in range(nodes)]
    for arc, (_, end) in enumerate(graph.arcs):
        into[end].append(arc)
    lists: list[list[int]] = []
    for arc, (start, _) in enumerate(graph.arcs):
        # Without a blank between, two equal labels are one.
        different = [each for each in into[start] if columns[each] != columns[arc]]
        lists.append([arc, waiting] if start == START else [arc, arcs + start, *different])
    lists += [[arcs + node, *into[node]] for node in range(nodes)]
    lists += [[waiting], [never]]
    width = max(map(len, lists))
    return np.array([each + [never] * (width - len(each)) for each in lists])
