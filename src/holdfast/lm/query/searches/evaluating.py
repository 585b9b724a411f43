"""Asking the model about nodes: together, each prefix once, within a budget, and interruptible."""

from __future__ import annotations

import signal
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from holdfast.lm.models.protocol import LanguageModel, ModelStopped, NextToken, Prefix
from holdfast.lm.query.searches.tree import Reply, Tree

Hear = Callable[[Prefix, NextToken], None]

BUDGET = 100_000
"""Evaluations after which a question ends when its user names no budget."""
REMEMBERED = 256
"""Answers kept where several prompts may ask about the same prefix."""


class Evaluator:
    """A model, and how far it may be asked.

    Args:
        model: the model.
        batch: prefixes given to it together.
        budget: evaluations it may spend in this session; None for `BUDGET`.
        spent: (evaluations, nodes) of the sessions before this one.
        shared: whether several prompts may ask about the same prefix.
    """

    def __init__(
        self,
        model: LanguageModel,
        batch: int,
        budget: int | None,
        spent: tuple[int, int] = (0, 0),
        shared: bool = False,
    ) -> None:
        self.model = model
        self.batch = max(1, batch)
        self.budget = BUDGET if budget is None else budget
        self.stopped: str | None = None
        """Why nothing more can be asked."""
        self.known: dict[tuple[int, Prefix], Reply] = {}
        """Replies that were learned with those of the prefix given, by (prompt, path)."""
        self._before = spent
        self._start = model.cost.evaluations
        self._nodes = 0
        self._recent: OrderedDict[Prefix, NextToken] = OrderedDict()
        self._shared = shared
        self._asking = self._interrupted = False

    @property
    def evaluations(self) -> int:
        """Tokens that the model computed for this question."""
        return self._before[0] + self.model.cost.evaluations - self._start

    @property
    def nodes(self) -> int:
        """Distinct prefixes that it was asked about."""
        return self._before[1] + self._nodes

    def room(self) -> int:
        """How many nodes may be evaluated next; 0, with `stopped` set, when none."""
        if self._interrupted:
            self.stopped = "interrupted"
        if self.stopped is not None:
            return 0
        # A model that answers from its cache computes nothing, yet the question must end.
        left = self.budget - max(self.model.cost.evaluations - self._start, self._nodes)
        if left <= 0:
            self.stopped = "budget"
        return max(0, min(left, self.batch))

    def best(self, tree: Tree) -> list[int]:
        """The most probable nodes, to be expanded together; empty if there is none, or no room."""
        nodes: list[int] = []
        room = self.room()
        while len(nodes) < room and (node := tree.pop()) >= 0:
            nodes.append(node)
        return nodes

    def expand(self, tree: Tree, nodes: Sequence[int], hear: Hear | None = None) -> bool:
        """Expand nodes; those without an answer from the model keep waiting. False if it stopped.

        With `hear`, it is called with every answer, and no known answers are used.
        """
        replies: dict[int, Reply] = {}
        if hear is None and self.known:
            for node in nodes:
                found = self.known.pop((tree.prompt[node], tree.path(node)), None)
                if found is not None:
                    replies[node] = found
        prefixes = {node: tree.prefix(node) for node in nodes if node not in replies}
        answers = self._ask(list(dict.fromkeys(prefixes.values())))
        for node, prefix in prefixes.items():
            if prefix in answers:
                replies[node] = tree.reply(node, answers[prefix])
                if hear is not None:
                    hear(tree.path(node), answers[prefix])
        for node in nodes:
            if node in replies:
                tree.expand(node, replies[node])
            else:
                tree.put_back(node)
        return self.stopped is None

    def _ask(self, prefixes: list[Prefix]) -> dict[Prefix, NextToken]:
        answers = {prefix: self._recent[prefix] for prefix in prefixes if prefix in self._recent}
        prefixes = [prefix for prefix in prefixes if prefix not in answers]
        if not prefixes:
            return answers
        if self._interrupted:
            self.stopped = "interrupted"
            return answers
        self._asking = True
        try:
            new = dict(zip(prefixes, self.model.logprobs(prefixes), strict=True))
        except ModelStopped as stop:
            self.stopped = stop.reason
            new = {prefixes[place]: answer for place, answer in stop.answered.items()}
        except KeyboardInterrupt:
            self.stopped = "interrupted"
            new = {}
        finally:
            self._asking = False
        self._nodes += len(new)
        if self._shared:
            self._recent.update(new)
            while len(self._recent) > REMEMBERED:
                self._recent.popitem(last=False)
        return answers | new

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Ctrl-C ends the question between two steps (or in the model), so that the tree stays whole."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def interrupt(number: int, frame: FrameType | None) -> None:
            if self._asking or self._interrupted:  # a second one: the user insists
                raise KeyboardInterrupt
            self._interrupted = True

        before = signal.signal(signal.SIGINT, interrupt)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)
