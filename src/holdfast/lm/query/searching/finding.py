"""The most probable texts of a query, in proven order, each once."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from holdfast.lm.models.protocol import Cost, LanguageModel
from holdfast.lm.query.compiling import CompiledQuery
from holdfast.lm.query.decoding import Rule
from holdfast.lm.query.results import Match, Matches, Progress, readable
from holdfast.lm.query.searching.evaluating import Evaluator
from holdfast.lm.query.searching.given import Scale, scales, total
from holdfast.lm.query.searching.paths import Item
from holdfast.lm.query.searching.snapshots import Keeper
from holdfast.lm.query.searching.texts import Found, Texts
from holdfast.lm.query.searching.tree import Tree

NEAR = 1e-9
"""Logarithms closer than this are equal: sums of another order differ by as much."""
MOST_TIED = 256
"""Nodes that are expanded to find texts of exactly the same probability as the next one; a loop of
probability 1 has infinitely many."""
MOST_IN_LINE = 32
"""Texts that are resolved together."""
AHEAD = 0.3
"""Logarithm of how much less than the next text's probability is looked into ahead of time."""

Watch = Callable[[Progress], None]


def search_compiled(
    model: LanguageModel,
    compiled: CompiledQuery,
    n: int = 10,
    batch: int = 64,
    budget: int | None = None,
    tolerance: float = 1e-6,
    state: Path | None = None,
    watch: Watch | None = None,
) -> Matches:
    """The most probable texts of a compiled query.

    A text is given out when it is proven to be the next: what its own encodings may still add is within
    `tolerance`, and no other text, found or not, can have more.

    Args:
        model: the model to ask.
        compiled: the query, compiled for its texts.
        n: how many texts.
        batch: prefixes given to the model together.
        budget: evaluated tokens after which to stop; None for 100,000.
        tolerance: share of a text's probability that encodings not followed may hold.
        state: file in which the search is kept; found there, it goes on from it.
        watch: called after every step.

    Returns:
        The texts in proven order; after a stop, those found besides follow, the most probable first. With
        ``eos=False`` a text's probability is that a token ends where it ends, whatever follows; `lower` and
        `upper` then bound the probability that this happens for some text.

    Raises:
        InputError: if `state` belongs to another question, the prefix has probability 0, or the model lists
            too few tokens for the rule of decoding.
    """
    search = _Search(model, compiled, n, batch, budget, tolerance, state, watch)
    return search.run()


class _Search:
    """One search: the tree, the texts it gave so far, and what proves the next."""

    def __init__(
        self,
        model: LanguageModel,
        compiled: CompiledQuery,
        n: int,
        batch: int,
        budget: int | None,
        tolerance: float,
        state: Path | None,
        watch: Watch | None,
    ) -> None:
        self.model, self.compiled, self.n = model, compiled, n
        self.tolerance, self.watch = tolerance, watch
        self.keeper = Keeper(state, "search", model, compiled)
        self.evaluator = Evaluator(
            model, batch, budget, self.keeper.spent, len(compiled.prompts) > 1
        )
        self.alone = _one_encoding_each(compiled)
        self.cost = Cost(**model.cost.to_dict())
        self.matches: list[Match] = []
        self.tied = 0
        self.resolved: set[bytes] = set()
        """Texts to which encodings that were not followed add no more than the tolerance."""

    def run(self) -> Matches:
        """Ask until `n` texts are proven, nothing is left, or the evaluator stops."""
        query, evaluator = self.compiled.query, self.evaluator
        with evaluator.interruptible():
            self.scales: list[Scale] = self.keeper.scales or scales(
                evaluator, self.compiled, self.tolerance / 10
            )
            self.tree = Tree(
                self.compiled.prompts,
                [scale.start for scale in self.scales],
                self.compiled.tokenizer,
                "exact" if query.eos else "spelled",
                Rule.of(query),
                context=self.model.context,
                max_tokens=query.max_tokens,
            )
            self.keeper.restore(self.tree)
            self.texts = Texts(self.tree, self.alone)
            self.texts.restore(self.keeper.found)
            self.texts.gather()
            self.matches = [self._match(text) for text in self.texts.emitted]
            while nodes := self._next():
                evaluator.expand(self.tree, nodes)
                if self.keeper.due(self.tree):
                    self._save()
                self._show()
            self._save()
        return self._result()

    def _next(self) -> list[int]:
        """The nodes to ask about next, having given out all that is proven; empty at the end."""
        tree, texts = self.tree, self.texts
        while True:
            texts.gather()
            text, top = texts.first(), tree.top()
            if len(self.matches) >= self.n:
                return []
            if text is None or top > texts.found[text].log + self._even():
                nodes = self.evaluator.best(tree)
                if text is not None and top < texts.found[text].log + NEAR:
                    self.tied += len(nodes)
                if nodes or tree.top() > -math.inf or not tree.hits:
                    return nodes
                continue  # what was left needed no answer
            wanted = [] if top == -math.inf or self.alone else self._doubts(text)
            if not wanted:
                texts.emit(text)
                self.matches.append(self._match(text))
                self._show()
                continue
            room = self.evaluator.room()
            if room == 0:
                return []
            for other in self._in_line(text, top):
                if len(wanted) >= room:
                    break
                wanted += self._own(other)
            taken = [tree.look_into(item.node, item.place) for item in dict.fromkeys(wanted[:room])]
            nodes = list(dict.fromkeys(node for node in taken if node >= 0))
            if nodes:
                # What the texts after this one will need, while the model is asked anyway.
                least = texts.found[text].log - AHEAD
                more = len(self.matches) + 1 < self.n
                while more and len(nodes) < room and tree.top() > least:
                    if (node := tree.pop()) >= 0 and node not in nodes:
                        nodes.append(node)
                return nodes

    def _even(self) -> float:
        """What a rival must be above, in logarithm: below zero while texts as probable are looked for."""
        return -NEAR if self.tied < MOST_TIED else NEAR

    def _in_line(self, text: bytes, top: float) -> list[bytes]:
        """Texts found that no single open piece can precede: they come next, and are resolved too."""
        most = min(self.n - len(self.matches) - 1, MOST_IN_LINE)
        return self.texts.after(text, top, most)

    def _own(self, text: bytes) -> list[Item]:
        """What must be looked into before a text's own encodings are followed; empty if they are."""
        if text in self.resolved:
            return []
        own = self.texts.open_on(text, self.texts.found[text].log)
        left = math.fsum(item.mass for item in own)
        if left <= self.tolerance:
            self.resolved.add(text)
            return []
        needed = 0
        while left > self.tolerance / 2 and needed < len(own):
            left -= own[needed].mass
            needed += 1
        return own[:needed]

    def _doubts(self, text: bytes) -> list[Item]:
        """What must be looked into before a text is proven to be the next; empty if it is."""
        if own := self._own(text):
            return own
        if self.texts.unrivalled(text, self._even()):
            return []
        rivals = self.texts.rivals(text, self.tolerance, self._even())
        if not self.texts.unrivalled(text, NEAR):
            return rivals
        self.tied += len(rivals)  # no more than as probable
        return rivals

    def _match(self, text: bytes) -> Match:
        found = self.texts.emitted.get(text) or self.texts.found[text]
        gain = 0.0
        if not self.alone:
            if text in self.resolved:
                gain = self.tolerance
            else:
                gain = math.fsum(item.mass for item in self.texts.open_on(text, found.log))
            gain += self.texts.stuck_on(text, found.log)
        slack = max(
            math.log(scale.up) if scale.up < math.inf else math.inf for scale in self.scales
        )
        return Match(
            readable(text),
            min(found.log, 0.0),
            found.encodings,
            min(found.log + math.log1p(gain) + slack + NEAR, 0.0),
            self._tokens(found),
        )

    def _tokens(self, found: Found) -> tuple[int, ...]:
        return self.tree.path(found.node)

    def _show(self) -> None:
        if self.watch is not None:
            lower, upper = total(self.tree, self.compiled.prompts, self.scales)
            self.watch(
                Progress(
                    self.evaluator.evaluations,
                    self.evaluator.nodes,
                    lower,
                    upper,
                    tuple(self.matches),
                )
            )

    def _save(self) -> None:
        self.texts.gather()
        self.keeper.save(self.tree, self.evaluator, self.scales, found=self.texts.kept())

    def _result(self) -> Matches:
        texts, tree = self.texts, self.tree
        proven = len(self.matches)
        rest = sorted(texts.found, key=lambda text: (-texts.found[text].log, text))
        for text in rest[: max(0, self.n - proven)]:
            self.matches.append(self._match(text))
        stopped = self.evaluator.stopped if proven < self.n else None
        if stopped is None and self._in_doubt(proven):
            stopped = ", ".join(sorted(tree.limits))
        lower, upper = total(tree, self.compiled.prompts, self.scales)
        spent = {
            name: value - getattr(self.cost, name) for name, value in vars(self.model.cost).items()
        }
        return Matches(
            tuple(self.matches[: self.n]),
            stopped is None,
            lower,
            upper,
            Cost(**spent),
            stopped,
            self.compiled.query.decoding(),
        )

    def _in_doubt(self, proven: int) -> bool:
        """Whether mass that cannot be followed might change the texts or their order."""
        stuck = self.tree.log_stuck[: len(self.tree.log)]
        if not (stuck > -math.inf).any():
            return False
        if proven < self.n:
            return True  # other texts may lie there
        least = min(match.logprob for match in self.matches)
        top = float(stuck.max())
        summed = top + math.log(float(sum(math.exp(value - top) for value in stuck)))
        return summed > least + math.log(self.tolerance)


def _one_encoding_each(compiled: CompiledQuery) -> bool:
    """Whether no text has two token sequences that count."""
    prefixes = sorted(prompt.text for prompt in compiled.prompts)
    nested = any(longer.startswith(shorter) for shorter, longer in pairwise(prefixes))
    return compiled.query.encodings == "canonical" and not nested
