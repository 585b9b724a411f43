"""Choosing tokens from logits, and the acceptance rule of speculative sampling.

Draft x from q, accept with probability min(1, p(x) / q(x)), else draw from the normalized max(0, p -
q): the token is then distributed as p (Leviathan et al. 2023, Theorem 1). Both p and q are taken after
temperature, top-k, top-p and penalties. Greedy decoding accepts the longest prefix that equals the
argmax.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from holdfast.errors import InputError
from holdfast.lm.generate.settings import GREEDY, Sampling

TOLERANCE = {"float64": 1e-9, "float32": 1e-3, "float16": 0.05, "bfloat16": 0.3}
"""Top-2 margin of logits, by dtype, below which a matrix product of another shape may reverse the order."""


@dataclass(frozen=True)
class Verdict:
    """What verification made of a round, for B sequences."""

    tokens: list[list[int]]
    """Per sequence: accepted drafts, then one token of the full model."""
    near_ties: list[list[bool]]
    """Per token: the two largest logits are within the tolerance."""


class Chooser:
    """Draws tokens, and verifies drafts.

    Args:
        sampling: the distribution.
        tolerance: top-2 margin of a near-tie.
        device: of the logits.
    """

    def __init__(self, sampling: Sampling, tolerance: float, device: Any) -> None:
        from transformers import (
            LogitsProcessorList,
            RepetitionPenaltyLogitsProcessor,
            TemperatureLogitsWarper,
            TopKLogitsWarper,
            TopPLogitsWarper,
        )

        sampling = sampling.over(GREEDY)
        self.greedy, self.tolerance = not sampling.temperature, tolerance
        self._random = torch.Generator(device).manual_seed(sampling.seed)
        self._penalty = self._warpers = None
        if sampling.repetition_penalty != 1:
            self._penalty = RepetitionPenaltyLogitsProcessor(sampling.repetition_penalty)
        if not self.greedy:
            self._warpers = LogitsProcessorList(
                [TemperatureLogitsWarper(float(sampling.temperature or 1))]
            )
            if sampling.top_k:
                self._warpers.append(TopKLogitsWarper(sampling.top_k))
            if sampling.top_p != 1:
                self._warpers.append(TopPLogitsWarper(sampling.top_p))

    def draft(
        self, logits: Tensor, texts: Sequence[Sequence[int]], drafts: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """Logits [B, 1, V] after texts and drafts [B, j] -> (tokens [B, 1], probabilities [B, 1, V])."""
        if self.greedy:
            return self._penalized(logits, texts, drafts, drafts.shape[1]).argmax(-1), None
        _check_finite(logits.amax(-1))
        q = self._probabilities(logits, texts, drafts, drafts.shape[1])
        return torch.multinomial(q[:, 0], 1, generator=self._random), q

    def verify(
        self,
        logits: Tensor,
        texts: Sequence[Sequence[int]],
        drafts: Tensor,
        proposals: Tensor | None = None,
        limits: Sequence[int] | None = None,
    ) -> Verdict:
        """Judge a round.

        Args:
            logits: [B, d + 1, V] of the full model, before each draft and after the last.
            texts: tokens before the drafts.
            drafts: [B, d].
            proposals: [B, d, V] distributions that the drafts were drawn from; None: they were not drawn.
            limits: number of drafts of each sequence, at most d; None: all d.

        Raises:
            InputError: ``invalid-value`` for logits that are not finite.
        """
        count = drafts.shape[1]
        if self.greedy:
            logits = self._penalized(logits, texts, drafts, 0)
            best = logits.argmax(-1)  # [B, d + 1]
            top = logits.gather(-1, best[..., None])
            _check_finite(top)
            near = (logits >= top - self.tolerance).sum(-1) > 1
            tokens, near_ties = best.tolist(), near.tolist()
            proposed = drafts.tolist()
            accepted = []
            for b, row in enumerate(proposed):
                most, n = count if limits is None else limits[b], 0
                while n < most and row[n] == tokens[b][n]:
                    n += 1
                accepted.append(n)
        else:
            _check_finite(logits.amax(-1))
            accepted, final = self._accept(logits, texts, drafts, proposals, limits)
            tokens = [
                [*row[:n], last]
                for row, n, last in zip(drafts.tolist(), accepted, final, strict=True)
            ]
            near_ties = [[False] * len(row) for row in tokens]
        return Verdict(
            [row[: n + 1] for row, n in zip(tokens, accepted, strict=True)],
            [row[: n + 1] for row, n in zip(near_ties, accepted, strict=True)],
        )

    def _accept(
        self,
        logits: Tensor,
        texts: Sequence[Sequence[int]],
        drafts: Tensor,
        proposals: Tensor | None,
        limits: Sequence[int] | None,
    ) -> tuple[list[int], list[int]]:
        """(accepted drafts, token after them) of each sequence."""
        batch, count = drafts.shape
        p = self._probabilities(logits, texts, drafts, 0)
        q = torch.zeros_like(p)  # nothing is proposed after the last draft: its residual is p
        if proposals is not None:
            q[:, :count] = proposals
        else:
            q[:, :count].scatter_(-1, drafts[..., None], 1.0)
        if limits is not None:
            beyond = torch.arange(count + 1, device=p.device) >= drafts.new_tensor(limits)[:, None]
            q[beyond] = 0
        index = drafts[..., None]
        chance = torch.rand(drafts.shape, generator=self._random, device=p.device, dtype=p.dtype)
        proposed = q[:, :count].gather(-1, index)[..., 0]
        taken = (chance * proposed < p[:, :count].gather(-1, index)[..., 0]) & (proposed > 0)
        accepted = taken.long().cumprod(-1).sum(-1)  # [B]
        rows = torch.arange(batch, device=p.device)
        rest = (p[rows, accepted] - q[rows, accepted]).clamp_(min=0)
        # p equals q but for rounding: a rejection there has probability 0 in exact arithmetic.
        rest = torch.where(rest.sum(-1, keepdim=True) > 0, rest, p[rows, accepted])
        final = torch.multinomial(rest, 1, generator=self._random)[:, 0]
        return accepted.tolist(), final.tolist()

    def _probabilities(
        self, logits: Tensor, texts: Sequence[Sequence[int]], drafts: Tensor, first: int
    ) -> Tensor:
        """[B, M, V] after penalties and warpers."""
        assert self._warpers is not None
        logits = self._penalized(logits, texts, drafts, first).float()
        flat: Any = self._warpers(None, logits.flatten(0, 1))  # type: ignore[arg-type]  # warpers read no tokens
        return flat.softmax(-1).view(logits.shape)

    def _penalized(
        self, logits: Tensor, texts: Sequence[Sequence[int]], drafts: Tensor, first: int
    ) -> Tensor:
        """Column i of the logits follows the text and the first `first` + i drafts."""
        if self._penalty is None:
            return logits
        # As in transformers: a penalty in half precision would make ties, and leave its range.
        logits = logits + torch.zeros(1, device=logits.device)
        for b, row in enumerate(drafts.tolist()):
            for column in range(logits.shape[1]):
                prefix: Any = drafts.new_tensor([[*texts[b], *row[: first + column]]])
                logits[b, column] = self._penalty(prefix, logits[b, column : column + 1])[0]
        return logits


def _check_finite(values: Tensor) -> None:
    if not bool(values.isfinite().all()):
        raise InputError(
            "the model's logits are not numbers",
            code="invalid-value",
            place="logits",
            found="NaN or infinity",
            remedy="check the weights, or compute with more digits: dtype float32",
        )
