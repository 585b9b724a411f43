"""One round of decoding: draft some tokens, verify them with the whole model in one pass.

A draft by early exit runs the layers below E and the head; verification runs only the layers from E on,
over the hidden states that the draft left (LayerSkip, arXiv 2404.16710, section 4.3). A draft by prompt
lookup copies what followed the last occurrence of the latest tokens. Plain decoding is a round without
drafts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast.errors import InputError
from holdfast.lm.generate.arena import Cache
from holdfast.lm.generate.decoder import Decoder
from holdfast.lm.generate.sampling import Chooser, Verdict

LONGEST_MATCH = 3
"""Number of latest tokens that prompt lookup searches for first."""


@dataclass(frozen=True)
class Plan:
    """How the next round drafts."""

    drafter: str = "none"
    """``none``, ``early-exit`` or ``lookup``."""
    exit_layer: int = 0
    """E: the draft runs layers 0 to E - 1."""
    length: int = 0
    """Number d of drafted tokens."""
    counts: tuple[int, ...] = ()
    """Number of each text of a batch, at most d, where they differ; lookup only."""

    def rows(self, batch: int) -> int:
        """Drafts of a batch."""
        return sum(self.counts) if self.counts else self.length * batch

    def __str__(self) -> str:
        if self.drafter == "early-exit":
            return f"early-exit:{self.exit_layer},{self.length}"
        return f"lookup:{self.length}" if self.drafter == "lookup" else "none"


def parse_plan(text: str) -> Plan | None:
    """``off``, ``lookup``, ``lookup:D`` or ``early-exit:E,D``; None for ``auto``.

    Raises:
        InputError: ``invalid-syntax`` for anything else.
    """
    kind, _, rest = text.partition(":")
    try:
        if kind in ("auto", "off") and not rest:
            return None if kind == "auto" else Plan()
        if kind == "lookup":
            return Plan("lookup", 0, int(rest or 6))
        if kind == "early-exit":
            exit_layer, length = map(int, rest.split(","))
            return Plan("early-exit", exit_layer, length)
    except ValueError:
        pass
    raise InputError(
        "invalid way to speculate",
        code="invalid-syntax",
        place="speculate",
        found=repr(text),
        expected="auto, off, lookup, lookup:D or early-exit:E,D",
    )


class Matches:
    """The last earlier occurrence of the latest tokens of a text, by an index that grows with it.

    Args:
        text: tokens; the list is extended while the text grows.

    Source: prompt lookup decoding (Saxena 2023): the longest match of at most `LONGEST_MATCH` tokens wins.
    """

    def __init__(self, text: list[int]) -> None:
        self.text = text
        self.size = 0
        """Number of matching tokens; 0 without a match."""
        self._behind: dict[tuple[int, ...], int] = {}
        """Tokens -> position behind their last occurrence, the one at the end of the text excluded."""
        self._indexed = 0
        self._place = 0

    def find(self) -> Matches:
        """Match the latest tokens."""
        text, behind = self.text, self._behind
        for end in range(self._indexed + 1, len(text)):
            for size in range(1, min(LONGEST_MATCH, end) + 1):
                behind[tuple(text[end - size : end])] = end
        self._indexed = max(self._indexed, len(text) - 1)
        for size in range(min(LONGEST_MATCH, len(text)), 0, -1):
            if place := behind.get(tuple(text[-size:])):
                self.size, self._place = size, place
                return self
        self.size = 0
        return self

    def copy(self, length: int) -> list[int]:
        """`length` tokens that followed the match; where the text ends, it continues periodically."""
        if not self.size:
            return []
        period = len(self.text) - self._place
        return [self.text[self._place + step % period] for step in range(length)]


@dataclass(frozen=True)
class Round:
    """What one round yielded."""

    plan: Plan
    """As carried out: without drafts where lookup had no match."""
    verdict: Verdict
    drafted: list[int]
    """Drafts of each sequence."""


def run_round(
    decoder: Decoder,
    cache: Cache,
    texts: Sequence[list[int]],
    plan: Plan,
    chooser: Chooser,
    matches: Sequence[Matches | None] = (),
) -> Round:
    """Extend every text; its last token is not in the cache yet.

    Args:
        decoder: of the model.
        cache: keys and values of all but the last token of each text.
        texts: tokens so far.
        plan: how to draft.
        chooser: greedy, or the distribution.
        matches: of each text, for lookup; None for a text that has ended.
    """
    starts = [len(text) - 1 for text in texts]
    latest = torch.tensor([text[-1:] for text in texts], device=decoder.device)  # [B, 1]
    drafts, proposals, limits = latest[:, :0], None, None
    first = 0
    if plan.drafter == "early-exit":
        first = plan.exit_layer
        drafts, proposals, x = draft_by_exit(decoder, cache, texts, latest, starts, plan, chooser)
    else:
        if plan.drafter == "lookup":
            most = plan.counts or [plan.length] * len(matches)
            pairs = zip(matches, most, strict=True)
            copies = [match.find().copy(length) if match else [] for match, length in pairs]
            limits = [len(copy) for copy in copies]
            width = max(limits)
            plan = plan if width else Plan()
            padded = [copy + [0] * (width - len(copy)) for copy in copies]
            drafts = latest.new_tensor(padded).view(len(texts), width)
        x = decoder.embed(torch.cat((latest, drafts), 1), starts)
    if limits and cache.joins and min(limits) < max(limits):
        logits = _joined_logits(decoder, cache, x, starts, [limit + 1 for limit in limits])
    else:
        logits = decoder.logits(decoder.run(x, cache, starts, first))
    verdict = chooser.verify(logits, texts, drafts, proposals, limits)
    return Round(plan, verdict, [drafts.shape[1]] * len(texts) if limits is None else limits)


def _joined_logits(
    decoder: Decoder, cache: Cache, x: Tensor, starts: Sequence[int], counts: Sequence[int]
) -> Tensor:
    """[B, M, V] of rows x [B, M, D], of which text b needs only the first ``counts[b]``."""
    needed = (
        torch.arange(x.shape[1], device=x.device) < torch.tensor(counts, device=x.device)[:, None]
    )
    line = decoder.run(x[needed][None], cache, starts, counts=counts)
    joined = decoder.logits(line)[0]
    logits = joined.new_zeros(*needed.shape, joined.shape[-1])
    logits[needed] = joined
    return logits


def draft_by_exit(
    decoder: Decoder,
    cache: Cache,
    texts: Sequence[Sequence[int]],
    latest: Tensor,
    starts: Sequence[int],
    plan: Plan,
    chooser: Chooser,
) -> tuple[Tensor, Tensor | None, Tensor]:
    """(drafts [B, d], their distributions [B, d, V] or None, hidden states [B, d + 1, D] at E)."""
    token, exits, proposals = latest, [], []
    drafts = latest[:, :0]
    for step in range(plan.length + 1):
        places = [start + step for start in starts]
        exits.append(decoder.run(decoder.embed(token, places), cache, places, 0, plan.exit_layer))
        if step < plan.length:
            token, q = chooser.draft(decoder.logits(exits[-1]), texts, drafts)
            drafts = torch.cat((drafts, token), 1)
            proposals.append(q)
    joined = None if proposals[0] is None else torch.cat(proposals, 1)
    return drafts, joined, torch.cat(exits, 1)
