"""The most probable texts of a query, in proven order, each once."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

from holdfast.lm.models.protocol import Cost, LanguageModel
from holdfast.lm.query.compiling import CompiledQuery
from holdfast.lm.query.decoding import Rule, log_sum
from holdfast.lm.query.results import Match, Matches, Progress, about, readable
from holdfast.lm.query.searches.conditioning import Scale, scales, total
from holdfast.lm.query.searches.evaluating import Evaluator
from holdfast.lm.query.searches.paths import Item
from holdfast.lm.query.searches.snapshots import Keeper
from holdfast.lm.query.searches.texts import Texts
from holdfast.lm.query.searches.tree import Tree

NEAR = 1e-9
"""Logarithms closer than this are equal: sums of another order differ by as much."""
MOST_TIED = 256
"""Nodes that are expanded to find texts of exactly the same probability as the next one; a loop of
probability 1 has infinitely many."""
MOST_IN_LINE = 32
"""Texts that are resolved together."""
EARLY = 1_000
"""Evaluations after which a search notes that the model rarely ends after the texts of its query."""
RARELY = 0.01
"""Share of their probability below which that is so."""
AHEAD = 0.3
"""Logarithm of how much less than the next text's probability is looked into ahead of time."""

Watch = Callable[[Progress], None]


class Search(Iterator[Match]):
    """A search under way: iterate for each match as soon as its place is settled, or ask for `result`.

    A match is given out when it is proven to be the next: what its own encodings may still add is within
    the tolerance, and no other text, found or not, can have more. `Match.proven` is False where the model
    hides so much mass (tokens that it does not list, prefixes beyond its context) that another text could.

    Attributes of `Matches` (``found``, ``complete``, ``cost`` ...) run the search to its end first.

    Args:
        model: the model.
        compiled: the query, compiled for its texts.
        n: number of texts.
        batch: prefixes given to the model together.
        budget: evaluations (tokens that the model computes) after which to stop; None for 100,000.
        tolerance: share of a text's probability that encodings not followed may hold.
        state: file in which the search is saved; an existing one is resumed.
        watch: called after every step.

    Raises:
        InputError: if `state` belongs to another query, the prefix has probability 0, or the model lists
            too few tokens for the decoding rule.
    """

    def __init__(
        self,
        model: LanguageModel,
        compiled: CompiledQuery,
        n: int = 10,
        batch: int = 64,
        budget: int | None = None,
        tolerance: float = 1e-6,
        state: Path | None = None,
        watch: Watch | None = None,
    ) -> None:
        self.model, self.compiled, self.n = model, compiled, n
        self.tolerance, self.watch = tolerance, watch
        self.keeper = Keeper(state, "search", model, compiled)
        self.evaluator = Evaluator(
            model, batch, budget, self.keeper.spent, len(compiled.prompts) > 1
        )
        self.alone = _one_encoding_each(compiled)
        self.before = Cost(**model.cost.to_dict())
        self.matches: list[Match] = []
        self.notes = list(compiled.notes)
        self.tied = 0
        self.resolved: set[bytes] = set()
        """Texts to which encodings that were not followed add no more than the tolerance."""
        self._nodes: list[int] | None = None  # to be asked about next; None before the first step
        self._ended = False
        self._hinted = False
        self._given = 0  # matches that the iterator gave out
        self._final: Matches | None = None

    def __next__(self) -> Match:
        while self._given >= len(self.matches) and not self._ended:
            self._advance()
        if self._given < min(self.n, len(self.matches)):
            self._given += 1
            return self.matches[self._given - 1]
        if self.evaluator.stopped == "interrupted":
            raise KeyboardInterrupt
        if not self.result().complete:
            warnings.warn(
                f"the search is not complete ({self.result().stopped}): further texts may exist",
                stacklevel=2,
            )
        raise StopIteration

    def result(self) -> Matches:
        """Run until `n` texts are settled, nothing is left, or the budget is spent."""
        if self._final is None:
            with self.evaluator.interruptible():
                while not self._ended:
                    self._advance()
            self._final = self._result()
        return self._final

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in RESULT:
            raise AttributeError(name)
        return getattr(self.result(), name)

    def _advance(self) -> None:
        """One step: ask the model about the next nodes, and give out what that proves."""
        with self.evaluator.interruptible():
            if self._nodes is None:
                self._begin()
            else:
                self.evaluator.expand(self.tree, self._nodes)
                if self.keeper.due(self.tree):
                    self._save()
                if max(self.evaluator.evaluations, self.evaluator.nodes) >= EARLY:
                    self._hint()
                self._show()
            self._nodes = self._next()
            if not self._nodes:
                self._ended = True
                self._save()

    def _begin(self) -> None:
        query = self.compiled.query
        self.scales: list[Scale] = self.keeper.scales or scales(
            self.evaluator, self.compiled, self.tolerance / 10
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

    def _hint(self) -> None:
        """Note once that the model rarely ends after texts that the query requires to end."""
        reached, ended = self.tree.reached, math.fsum(self.tree.accepted)
        if not self._hinted and ended < RARELY * reached:
            self.notes.append(
                f"the model rarely ends after a text of this query (probability {ended / reached:.2g}): "
                "without --eos (eos=False) the query means texts that continue"
            )
        self._hinted = True

    def _next(self) -> list[int]:
        """The nodes to ask about next, having given out all that is proven; empty at the end."""
        tree, texts = self.tree, self.texts
        while True:
            # 1. Add what the last step accepted to the texts found: a text has many encodings.
            texts.gather()
            text, top = texts.first(), tree.top()
            if len(self.matches) >= self.n:
                return []
            # 2. Something open may have more than the best text found: best-first (ReLM's shortest path).
            if text is None or top > texts.found[text].log + self._even():
                nodes = self.evaluator.best(tree)
                if text is not None and top < texts.found[text].log + NEAR:
                    self.tied += len(nodes)
                if nodes or tree.top() > -math.inf or not tree.hits:
                    return nodes
                continue  # what was left needed no answer
            # 3. The best text is next if its own encodings and its rivals are settled; else look into
            # those.
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
                # 4. Fill the batch with what comes after: one call to the model costs as much as many
                # prefixes.
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
            self.tree.path(found.node),
            proven=not self._hidden_above(found.log),
        )

    def _hidden_above(self, log: float) -> bool:
        """Whether mass that cannot be followed is more than the tolerance of a text's, in logarithm."""
        stuck = log_sum(self.tree.log_stuck[: len(self.tree.log)])
        if stuck == -math.inf:
            return False
        return self.tolerance == 0 or stuck > log + math.log(self.tolerance)

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
                    tuple(self.notes),
                )
            )

    def _save(self) -> None:
        self.texts.gather()
        self.keeper.save(self.tree, self.evaluator, self.scales, found=self.texts.kept())

    def _result(self) -> Matches:
        texts, tree = self.texts, self.tree
        proven = len(self.matches)
        rest = sorted(texts.found, key=lambda text: (-texts.found[text].log, text))
        unproven = (replace(self._match(text), proven=False) for text in rest)
        found = (*self.matches, *islice(unproven, max(0, self.n - proven)))[: self.n]
        stopped = self.evaluator.stopped if proven < self.n else None
        if stopped == "budget":
            self._hint()
        # Mass that cannot be followed may hold other texts, or change the order of these.
        if (
            stopped is None
            and tree.limits
            and (proven < self.n or self._hidden_above(found[-1].logprob))
        ):
            stopped = ", ".join(sorted(tree.limits))
        lower, upper = total(tree, self.compiled.prompts, self.scales)
        spent = {
            name: value - getattr(self.before, name)
            for name, value in vars(self.model.cost).items()
        }
        return Matches(
            found,
            stopped is None,
            lower,
            upper,
            Cost(**spent),
            stopped,
            self.compiled.query.decoding(),
            tuple(self.notes),
            about(self.compiled.query, self.model.name),
        )


RESULT = (*(one.name for one in fields(Matches)), "proven", "to_dict")


def search_compiled(model: LanguageModel, compiled: CompiledQuery, **options: Any) -> Matches:
    """The result of a `Search`."""
    return Search(model, compiled, **options).result()


def _one_encoding_each(compiled: CompiledQuery) -> bool:
    """Whether no text has two token sequences that count."""
    prefixes = sorted(prompt.text for prompt in compiled.prompts)
    nested = any(longer.startswith(shorter) for shorter, longer in pairwise(prefixes))
    return compiled.query.encodings == "canonical" and not nested
