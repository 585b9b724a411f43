"""The texts of one batch while they grow, and the totals of a request over its batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from holdfast.lm.generate.prompts import spell
from holdfast.lm.generate.results import Text
from holdfast.lm.generate.speculation import Round


@dataclass(frozen=True)
class Ends:
    """What ends a text.

    Args:
        ids: tokens.
        stop: strings.
        tokenizer: of transformers; None without strings to stop at.
        context: positions of the model.
    """

    ids: frozenset[int]
    stop: tuple[str, ...]
    tokenizer: Any
    context: int

    @cached_property
    def stop_ids(self) -> frozenset[int]:
        """Tokens that are a stop string: special tokens, which spell nothing."""
        added = self.tokenizer.get_added_vocab() if self.stop else {}
        return frozenset(added[text] for text in self.stop if text in added)

    def stopped(self, text: Sequence[int], first: int) -> bool:
        """Whether the last token of a continuation, which begins at `first`, completes a stop string."""
        if not self.stop:
            return False
        longest = max(map(len, self.stop))
        first = max(first, len(text) - 4 * longest - 8)  # a character has at most four tokens
        tail = spell(self.tokenizer, text[:first], text[first:])
        return text[-1] in self.stop_ids or any(one in tail for one in self.stop)


class Sequences:
    """The texts of one batch while they grow.

    Args:
        texts: tokens of the prompts.
        max_new: most new tokens of each.
        ends: what else ends them.
    """

    def __init__(self, texts: Sequence[Sequence[int]], max_new: int, ends: Ends) -> None:
        self.texts = [list(text) for text in texts]
        """Tokens of prompt and continuation; keys and values of all but the last are stored."""
        self.prompts = [len(text) for text in texts]
        """Length of each prompt."""
        self.limits = [min(len(text) + max_new, ends.context) for text in texts]
        """Length at which each text ends."""
        self.ended = ["" for _ in texts]
        """Why each text ended; empty while it grows."""
        self.near_ties: list[list[int]] = [[] for _ in texts]
        """Places in the continuation of tokens that were near-ties."""
        self.rows = list(range(len(texts)))
        """Number of the text in each row of the batch."""
        self._ends = ends

    @property
    def left(self) -> list[int]:
        """Tokens that each text may still grow by; 0 if it has ended."""
        return [
            0 if self.ended[place] else limit - len(self.texts[place])
            for place, limit in enumerate(self.limits)
        ]

    def accept(self, done: Round) -> tuple[list[int], int]:
        """Append what a round yielded, cut at the first end.

        Returns:
            Number of tokens per row, and by how much the text that is furthest from its limit came closer.
        """
        by_text = self.left
        left = [by_text[place] for place in self.rows]
        verdicts = zip(self.rows, done.verdict.tokens, done.verdict.near_ties, strict=True)
        lengths = [
            self._append(place, tokens, near) if not self.ended[place] else 0
            for place, tokens, near in verdicts
        ]
        return lengths, max(left) - max(most - n for most, n in zip(left, lengths, strict=True))

    def close_rows(self) -> list[int]:
        """Drop the rows of ended texts; the last rows take their places.

        Returns:
            The former row of each row that remains; empty where nothing changes.
        """
        growing = [row for row, place in enumerate(self.rows) if not self.ended[place]]
        if len(growing) in (0, len(self.rows)):
            return []
        moved = [row for row in growing if row >= len(growing)]
        sources = [
            moved.pop() if self.ended[place] else row
            for row, place in enumerate(self.rows[: len(growing)])
        ]
        self.rows = [self.rows[row] for row in sources]
        return sources

    def _append(self, place: int, tokens: Sequence[int], near: Sequence[bool]) -> int:
        text, first = self.texts[place], self.prompts[place]
        before = len(text)
        for token, tie in zip(tokens, near, strict=True):
            text.append(token)
            if tie:
                self.near_ties[place].append(len(text) - 1 - first)
            if token in self._ends.ids:
                self.ended[place] = "end"
            elif self._ends.stopped(text, first):
                self.ended[place] = "stop"
            elif len(text) >= self.limits[place]:
                full = self.limits[place] == self._ends.context
                self.ended[place] = "context" if full else "length"
            if self.ended[place]:
                break
        return len(text) - before

    def results(self) -> list[Text]:
        """The continuations, cut before a stop string."""
        results = []
        for tokens, first, ended, near in zip(
            self.texts, self.prompts, self.ended, self.near_ties, strict=True
        ):
            text = spell(self._ends.tokenizer, tokens[:first], tokens[first:])
            if ended == "stop":
                places = [at for at in map(text.find, self._ends.stop) if at >= 0]
                text = text[: min(places, default=len(text))]
            results.append(Text(text, tokens[first:], first, ended, near))
        return results


@dataclass
class Totals:
    """What a request has cost so far, over its batches; fields as of `Generation`."""

    details: list[Text] = field(default_factory=list)
    seconds: float = 0.0
    prefill_seconds: float = 0.0
    kv_bytes: int = 0
    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    plans: dict[str, dict[str, float]] = field(default_factory=dict)

    def count(
        self, done: Round, growing: Sequence[bool], lengths: Sequence[int], seconds: float
    ) -> None:
        """Add a round; drafts behind an end of text were not needed, and are not counted."""
        self.rounds += 1
        plan = self.plans.setdefault(str(done.plan), {"rounds": 0, "tokens": 0, "seconds": 0.0})
        plan["rounds"] += 1
        plan["tokens"] += sum(lengths)
        plan["seconds"] += seconds
        for open_, row, drafted, length in zip(
            growing, done.verdict.tokens, done.drafted, lengths, strict=True
        ):
            if open_:
                accepted = min(len(row) - 1, length)
                self.accepted += accepted
                self.drafted += drafted if length == len(row) else accepted

    def entries(self) -> Mapping[str, Any]:
        """Fields of `Generation`."""
        plans = sorted(self.plans.items(), key=lambda item: -item[1]["rounds"])
        return vars(self) | {
            "texts": tuple(text.text for text in self.details),
            "acceptance": self.accepted / self.drafted if self.drafted else None,
            "plans": [{"plan": name, **totals} for name, totals in plans],
        }
