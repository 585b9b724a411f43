"""Samples of a query: drawn token by token and weighted, or from the language itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from holdfast.errors import InputError, LimitError
from holdfast.lm.models.protocol import F64, Cost, LanguageModel, ModelStopped
from holdfast.lm.query.compiling import CompiledQuery
from holdfast.lm.query.exact import (
    ExactDistances,
    exact_distances,
    exact_log_condition,
    has_finite_contexts,
)
from holdfast.lm.query.results import Sample, Samples, about
from holdfast.lm.query.sampling.conditional import draw_paths, total_log_mass
from holdfast.lm.query.sampling.crowd import Crowd, advance
from holdfast.lm.query.sampling.estimating import (
    effective_size,
    mean_and_error,
    shares_of_texts,
    text_of,
)
from holdfast.lm.query.sampling.walking import I64, Status, Walk
from holdfast.lm.query.searches.conditioning import scales
from holdfast.lm.query.searches.evaluating import Evaluator

Method = Literal["auto", "local", "exact"]
LONGEST = 1024
"""Maximum tokens of a sample if neither the query nor the model has a limit."""
BATCH = 64
FEW = 20
"""Effective sample size below which an estimate is marked as rough."""

Watch = Callable[[int, int], None]
"""Called after each step: (finished samples, open samples)."""


def sample_compiled(
    model: LanguageModel,
    compiled: CompiledQuery,
    n: int,
    seed: int = 0,
    method: Method = "auto",
    batch: int = BATCH,
    max_tokens: int | None = None,
    watch: Watch | None = None,
) -> Samples:
    """Draw weighted samples of a query's texts, and estimate its mass from them.

    ``local``: tokens are drawn from the (decoded) model restricted to those that the automaton allows.
    This is not the model's own distribution of the language, so each sample carries the importance weight
    that makes up for it, the product of the probabilities that were left at each step; a dead end weighs
    nothing.
    ``exact``: from the conditional distribution itself, for models of finitely many contexts (n-grams); all
    weights are the mass, which is exact.
    ``auto``: ``exact`` where it can be, else ``local``.

    Several prefix strings: each sample draws one by its share (``exact``: in proportion to share times
    mass), and weights are divided by the probability of what is given.

    Args:
        model: the model.
        compiled: the query, compiled for its event.
        n: number of samples.
        seed: the same seed draws the same samples, whatever the batch.
        method: as above.
        batch: prefixes that the model is asked at once, at most.
        max_tokens: longest token sequence after a prompt; the least of it, the query's and `LONGEST` (where
            neither is set) counts. Longer ones are cut: their mass is not part of the estimate.
        watch: told after each step.

    Raises:
        InputError: if n or the method makes no sense, or the model has no exact sums.
        LimitError: ``exact`` only: if the product of automaton and model is too large.
    """
    if n < 1 or batch < 1:
        name, value = ("n", n) if n < 1 else ("batch", batch)
        raise InputError(
            f"invalid {name}", code="invalid-value", found=str(value), expected="1 or more"
        )
    if method not in get_args(Method):
        removed = str(method) == "smc"
        raise InputError(
            "unknown sampling method",
            code="unsupported" if removed else "unknown-name",
            place="method",
            found=method,
            expected="auto, local or exact",
            remedy="use local: resampling gave no better estimates and was removed"
            if removed
            else None,
        )
    before = Cost(**model.cost.to_dict())
    limits = [limit for limit in (max_tokens, compiled.query.max_tokens) if limit is not None]
    distances = _distances(model, compiled, method, min(limits, default=None))
    rng = np.random.default_rng(seed)
    if distances is not None:
        drawn = _from_language(compiled, distances, n, rng)
    else:
        walk = Walk(compiled, model.context, min(limits, default=LONGEST))
        drawn = _step_by_step(model, walk, compiled, n, rng, batch, watch)
    effective = effective_size(np.array([sample.log_weight for sample in drawn.samples]))
    notes = compiled.notes + drawn.notes
    if 0 < effective < min(FEW, n / 2):
        notes += (
            f"as few as {effective:.1f} samples carry the weight: the estimate and its error are "
            "rough; draw more samples, or bound the mass (lm query mass)",
        )
    after = model.cost.to_dict()
    return Samples(
        drawn=drawn.samples,
        method="exact" if distances is not None else "local",
        mass=drawn.mass,
        mass_error=drawn.error,
        effective=effective,
        texts=shares_of_texts(drawn.samples),
        cost=Cost(**{name: after[name] - spent for name, spent in before.to_dict().items()}),
        decoding=compiled.query.decoding(),
        stopped=drawn.stopped,
        notes=notes,
        query_inputs=about(compiled.query, model.name),
    )


@dataclass(frozen=True)
class _Drawn:
    samples: tuple[Sample, ...]
    mass: float
    error: float
    stopped: str | None = None
    notes: tuple[str, ...] = ()


# --- From the language itself --------------------------------------------------------------------


def _distances(
    model: LanguageModel, compiled: CompiledQuery, method: Method, limit: int | None
) -> Sequence[ExactDistances] | None:
    """What exact samples need, where they are asked for or can be had."""
    if method not in ("auto", "exact"):
        return None
    if method == "exact":
        if limit is not None:
            raise InputError(
                "exact sampling does not support max_tokens",
                code="unsupported",
                found=f"max_tokens {limit}",
                remedy="leave max_tokens out, or use the method local",
            )
        return exact_distances(model, compiled)
    checked = any(prompt.accepts is not None for prompt in compiled.prompts)
    if limit is not None or checked or not has_finite_contexts(model):
        return None
    try:
        return exact_distances(model, compiled)
    except LimitError:
        return None


def _from_language(
    compiled: CompiledQuery,
    distances: Sequence[ExactDistances],
    n: int,
    rng: np.random.Generator,
) -> _Drawn:
    log_mass = total_log_mass(distances)
    if log_mass == -math.inf:
        return _Drawn(
            (), 0.0, 0.0, notes=("the event has probability 0: there is no sample of it",)
        )
    texts: dict[tuple[int, tuple[int, ...]], str] = {}
    samples = []
    for path in draw_paths(distances, n, rng):
        key = (path.prompt, path.tokens)
        if key not in texts:
            texts[key] = text_of(compiled, *key, ended=True)
        samples.append(Sample(texts[key], path.tokens, path.logprob, log_mass))
    return _Drawn(tuple(samples), min(1.0, math.exp(log_mass)), 0.0)


# --- Step by step --------------------------------------------------------------------------------


def _step_by_step(
    model: LanguageModel,
    walk: Walk,
    compiled: CompiledQuery,
    n: int,
    rng: np.random.Generator,
    batch: int,
    watch: Watch | None,
) -> _Drawn:
    shares = np.array([prompt.share for prompt in compiled.prompts])
    prompts = rng.choice(len(shares), n, p=shares / shares.sum())
    log_given, notes = log_condition_of(model, compiled, batch)
    crowd, stopped = Crowd.at_prompts(walk, prompts, log_given), None
    try:
        while crowd.is_open().any():
            advance(model, walk, crowd, rng, batch)
            if watch is not None:
                status = crowd.status()
                watch(int((status == Status.ENDED).sum()), int((status == Status.OPEN).sum()))
    except ModelStopped as stop:
        stopped = stop.reason
    except KeyboardInterrupt:
        stopped = "interrupted"
    return _gathered(walk, compiled, crowd, log_given, stopped, notes)


def _gathered(
    walk: Walk,
    compiled: CompiledQuery,
    crowd: Crowd,
    log_given: F64,
    stopped: str | None,
    notes: tuple[str, ...],
) -> _Drawn:
    status = crowd.status()
    log_weight = np.where(status == Status.ENDED, crowd.log_weight, -math.inf)
    texts = [
        text_of(compiled, node.prompt, node.tokens, node.status == Status.ENDED)
        for node in crowd.nodes
    ]
    samples = []
    for place, weight in zip(crowd.at.tolist(), log_weight.tolist(), strict=True):
        node = crowd.nodes[place]
        logprob = node.logprob - float(log_given[node.prompt])
        samples.append(Sample(texts[place], node.tokens, logprob, weight))
    mass, error = mean_and_error(log_weight)
    notes += _remarks(walk, crowd, status)
    return _Drawn(tuple(samples), min(1.0, mass), error, stopped, notes)


def _remarks(walk: Walk, crowd: Crowd, status: I64) -> tuple[str, ...]:
    """What to know of samples that weigh nothing, and of what could not be drawn."""
    number = {one: int((status == one).sum()) for one in Status}
    notes = []
    if number[Status.DEAD]:
        notes.append(f"{number[Status.DEAD]:,} samples met a dead end: they weigh nothing")
    if number[Status.CUT]:
        limit = f"{walk.max_tokens:,} tokens"
        if walk.context is not None:
            limit += f", or the context of {walk.context:,}"
        notes.append(
            f"{number[Status.CUT]:,} samples were cut at {limit}: the mass beyond is not in the estimate"
        )
    if number[Status.OPEN]:
        notes.append(
            f"{number[Status.OPEN]:,} samples were not finished: they weigh nothing, the estimate is low"
        )
    if crowd.unlisted:
        notes.append(
            "the model lists its most probable tokens only: others cannot be drawn, and the estimate is of "
            "the listed part, which is lower"
        )
    return tuple(notes)


TOLERANCE = 1e-4
"""Relative gap between the bounds at which they are close enough: far below the error of any sample."""


def log_condition_of(
    model: LanguageModel, compiled: CompiledQuery, batch: int
) -> tuple[F64, tuple[str, ...]]:
    """Log probability of the bytes given by each prompt, and what to know of it.

    Exact for models of finitely many contexts; otherwise the (geometric) middle of bounds that a search
    closes, to `TOLERANCE` or until its budget is spent. Samples of what is given would have more error than
    samples of what follows.

    Raises:
        InputError: if the model gives a prefix probability 0.
    """
    if not any(prompt.remainder_automaton for prompt in compiled.prompts):
        return np.zeros(len(compiled.prompts)), ()
    if has_finite_contexts(model):
        logs = [
            exact_log_condition(model, compiled, prompt) if prompt.automaton.start >= 0 else 0.0
            for prompt in compiled.prompts
        ]
        return np.array(logs), ()
    evaluator = Evaluator(model, batch, None)
    with evaluator.interruptible():
        found = scales(evaluator, compiled, TOLERANCE)
    if evaluator.stopped == "interrupted":  # nothing was drawn yet that could be kept
        raise KeyboardInterrupt
    logs = [
        math.log(prompt.share) - scale.start
        for prompt, scale in zip(compiled.prompts, found, strict=True)
    ]
    widest = max(scale.up / scale.down for scale in found)
    if widest <= 1 + 10 * TOLERANCE:
        return np.array(logs), ()
    why = evaluator.stopped or "its search ended"
    return np.array(logs), (
        f"the prefix has a probability known within a factor of {widest:.3g} only ({why}): so has the mass",
    )
