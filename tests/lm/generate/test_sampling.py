"""The distribution of sampled texts does not depend on how they were drafted."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from tiny_models import tiny

from holdfast.lm.generate import Generator, Plan, Sampling
from holdfast.lm.generate.sampling import Chooser

SIZE = 5
"""Tokens of the model: 125 texts of 3 tokens."""
PROMPT = [3, 4, 3, 4]


def small() -> Any:
    return tiny("llama", vocab_size=SIZE, eos_token_id=None, spread=0.35)


def enumerated(model: Any, sampling: Sampling) -> np.ndarray:
    """[SIZE ** 3] probability of every text of 3 tokens, by forward passes of transformers."""
    texts = list(product(range(SIZE), repeat=3))
    with torch.inference_mode():
        logits = model(torch.tensor([[*PROMPT, *text] for text in texts])).logits.double()
    steps = logits[:, len(PROMPT) - 1 : len(PROMPT) + 2] / sampling.temperature
    if sampling.top_k:
        least = steps.topk(sampling.top_k).values[..., -1:]
        steps = steps.masked_fill(steps < least, float("-inf"))
    probabilities = steps.softmax(-1).gather(-1, torch.tensor(texts)[..., None])[..., 0]
    return probabilities.prod(-1).numpy()


def drawn(model: Any, sampling: Sampling, plan: str | Plan, count: int) -> np.ndarray:
    """[SIZE ** 3] counts."""
    result = Generator(model).generate(
        [PROMPT] * count, max_new=3, speculate=plan, sampling=sampling, batch=2000
    )
    places = np.array(result.tokens) @ [SIZE**2, SIZE, 1]
    return np.bincount(places, minlength=SIZE**3)


def consistent(counts: np.ndarray, probabilities: np.ndarray) -> bool:
    """Chi-square of the cells with at least 5 expected draws, the others as one cell; false alarms 1e-6."""
    from scipy.stats import chi2

    expected = probabilities * counts.sum()
    large = expected >= 5
    observed = np.append(counts[large], counts[~large].sum())
    expected = np.append(expected[large], expected[~large].sum())
    if counts[probabilities == 0].any():
        return False
    observed, expected = observed[expected > 0], expected[expected > 0]
    statistic = float(((observed - expected) ** 2 / expected).sum())
    return statistic < chi2.isf(1e-6, len(expected) - 1)


@pytest.mark.parametrize("plan", ["early-exit:2,2", "lookup:2"])
def test_distribution_of_three_tokens(plan: str) -> None:
    check_distribution(plan, Sampling(temperature=0.8, seed=1), 4_000)


@pytest.mark.full
@pytest.mark.parametrize("plan", ["off", "early-exit:1,3", "early-exit:3,1", "lookup:3"])
@pytest.mark.parametrize("top_k", [0, 3])
def test_distribution_of_three_tokens_in_200_000_draws(plan: str, top_k: int) -> None:
    check_distribution(plan, Sampling(temperature=0.7, top_k=top_k, seed=2), 200_000)


def check_distribution(plan: str, sampling: Sampling, count: int) -> None:
    model = small()
    counts = drawn(model, sampling, plan, count)
    exact = enumerated(model, sampling)
    assert consistent(counts, exact)
    other = enumerated(model, Sampling(temperature=2 * sampling.temperature))
    assert not consistent(counts, other)  # the test can tell distributions apart


def test_a_draft_that_the_model_excludes_is_never_taken() -> None:
    chooser = Chooser(Sampling(1.0, seed=3), 1e-3, "cpu")
    logits = torch.tensor([[[0.0, float("-inf"), 0.0], [0.0, 0.0, 0.0]]])
    drafts, proposals = torch.tensor([[1]]), torch.tensor([[[0.0, 1.0, 0.0]]])
    for _ in range(50):
        verdict = chooser.verify(logits, [[0]], drafts, proposals)
        assert verdict.tokens[0][0] != 1
        assert len(verdict.tokens[0]) == 1


def test_equal_distributions_accept_every_draft() -> None:
    chooser = Chooser(Sampling(1.0, seed=4), 1e-3, "cpu")
    logits = torch.randn(1, 4, 6, generator=torch.Generator().manual_seed(0))
    q = logits.softmax(-1)[:, :3]
    for _ in range(50):
        drafts = torch.multinomial(q[0], 1).T
        assert chooser.verify(logits, [[0]], drafts, q).tokens[0][:3] == drafts[0].tolist()


def test_same_seed_same_text() -> None:
    generator = Generator(tiny("llama"))
    sampling = Sampling(temperature=1.0, top_p=0.9, seed=5)
    runs = [
        generator.generate(
            [[3, 4]], max_new=12, speculate="early-exit:2,3", sampling=sampling
        ).tokens
        for _ in range(2)
    ]
    assert runs[0] == runs[1]
