"""The most probable alignment of phones with the outputs of a CTC network (Viterbi).

Words may have several pronunciations and silences between them, so the phones of a text are a graph; its
paths are the ways to say the text. A phone b behind a phone a begins with the label "a b" (of a network of
single phones: "b") for one or more frames; then come blanks until the next phone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from holdfast.errors import InputError
from holdfast.speech.recognize.labels import BLANK
from holdfast.speech.speak.dictionary import PAUSE, Phones, plain_phone
from holdfast.speech.speak.segmentation import PhoneAlphabet

Array = npt.NDArray[Any]
LARGEST = 400_000_000
"""Frames times states that are searched."""
START = 0
"""Node before the first phone."""


class Node(NamedTuple):
    """A phone at one place in the text, behind one other phone."""

    phone: str
    """With stress."""
    word: int
    """Number of the word; -1: a silence."""
    column: int
    """Output with which it begins."""
    before: list[int]
    """Nodes that can come before it."""


class PhoneGraph:
    """Ways to say a text.

    There may be silence between words. At both ends there is, as in the training speech, if only for one
    output: left to choose, Viterbi would omit it wherever its peak is spread.

    Args:
        words: each with its pronunciations.
        alphabet: meaning of the outputs.
    """

    def __init__(self, words: Sequence[Sequence[Phones]], alphabet: PhoneAlphabet) -> None:
        self.alphabet = alphabet
        self.nodes = [Node("", -1, BLANK, [])]
        """The first is `START`."""
        self.fewest = 2 + sum(min(map(len, alternates)) for alternates in words)
        """Phones of the shortest path."""
        ends = [START]
        for number, alternates in enumerate(words):
            silences = self._add(PAUSE, -1, ends)
            starts, ends = [*ends, *silences] if number else silences, []
            distinct = {tuple(map(plain_phone, each)): each for each in reversed(alternates)}
            for phones in reversed(distinct.values()):
                before = starts
                for phone in phones:
                    before = self._add(phone, number, before)
                ends += before
        self.finals = self._add(PAUSE, -1, ends)
        """Nodes with which the text can end."""

    def _add(self, phone: str, word: int, before: Sequence[int]) -> list[int]:
        """Add a phone: a node for each output with which it can begin."""
        groups: dict[int, list[int]] = {}
        for node in before:
            groups.setdefault(self.alphabet.column(self.nodes[node].phone, phone), []).append(node)
        first = len(self.nodes)
        self.nodes += [Node(phone, word, *group) for group in groups.items()]
        return [*range(first, len(self.nodes))]


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


def best_path(log_probs: Array, graph: PhoneGraph) -> AlignedPath:
    """Viterbi over two states per node: 2 n is "output of node n", 2 n + 1 "blanks within node n".

    Args:
        log_probs: of the network; [T, L].
        graph: of the text.

    Raises:
        InputError: ``audio-too-short`` for the phones; ``out-of-range`` for more than can be searched.
    """
    frames, size = len(log_probs), 2 * len(graph.nodes)
    if frames < graph.fewest:
        raise InputError(
            "the audio is too short for the text",
            code="audio-too-short",
            found=f"{frames} frames",
            expected=f"at least {graph.fewest}, one per phone",
        )
    if frames * size > LARGEST:
        raise InputError(
            "audio and text are too long to align at once",
            code="out-of-range",
            found=f"{frames} frames, {len(graph.nodes)} phones and silences",
            expected=f"at most {LARGEST:,} frames times states",
            remedy="divide both at a pause",
        )
    columns = np.full(size, BLANK)
    columns[::2] = [node.column for node in graph.nodes]
    before = _predecessors(graph)
    # Blanks before the first output; `START` itself has no output, so that state is never reached.
    score = np.full(size, -np.inf)
    score[2 * START + 1] = 0
    back = np.zeros((frames, size), np.uint8)
    for frame in range(frames):
        candidates = score[before]  # [states, K]
        back[frame] = candidates.argmax(axis=1)
        score = candidates.max(axis=1) + log_probs[frame, columns]
    ends = [state for node in graph.finals for state in (2 * node, 2 * node + 1)]
    path = [max(ends, key=lambda each: score[each])]
    total = float(score[path[0]])
    # The states of the frames, from the last to the first.
    for frame in range(frames - 1, 0, -1):
        path.append(int(before[path[-1], back[frame, path[-1]]]))
    path.reverse()
    paths: dict[int, list[int]] = {}
    for frame, state in enumerate(path):
        if state % 2 == 0:
            paths.setdefault(state // 2, []).append(frame)
    return AlignedPath(
        [*paths],
        [own[0] for own in paths.values()],
        [own[-1] for own in paths.values()],
        log_probs.max(axis=1) - log_probs[range(frames), columns[path]],
        total,
    )


def _predecessors(graph: PhoneGraph) -> Array:
    """States that can come before each state: [states, K], filled with one that is never reached."""
    lists = []
    for place, node in enumerate(graph.nodes):
        # Without a blank between, two equal labels are one.
        different = [each for each in node.before if graph.nodes[each].column != node.column]
        states = [*(2 * each + 1 for each in node.before), *(2 * each for each in different)]
        lists += [[2 * place, *states], [2 * place + 1, 2 * place]]
    width = max(map(len, lists))
    return np.array([each + [2 * START] * (width - len(each)) for each in lists])
