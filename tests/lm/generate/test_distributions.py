"""What tokens are drawn from, and which drafts stay, against definitions in NumPy and the theorem."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare
from transformers import RepetitionPenaltyLogitsProcessor

from holdfast.errors import InputError
from holdfast.lm.generate import Sampling
from holdfast.lm.generate.sampling import Chooser

NO_DRAFTS = torch.zeros((1, 0), dtype=torch.long)


def defined(logits: np.ndarray, text: list[int], sampling: Sampling) -> np.ndarray:
    """The distribution in float64: penalty, temperature, the k largest, the least set that holds p."""
    z = logits.astype(float)
    for token in set(text):
        z[token] *= sampling.repetition_penalty if z[token] < 0 else 1 / sampling.repetition_penalty
    z /= sampling.temperature
    kept = np.ones(len(z), bool)
    if sampling.top_k:
        kept &= z >= np.sort(z)[::-1][min(sampling.top_k, len(z)) - 1]
    p = np.where(kept, np.exp(z - z.max()), 0)
    p /= p.sum()
    order = np.argsort(-p, kind="stable")
    before = np.cumsum(p[order]) - p[order]  # what the more likely ones hold
    p[order[before >= sampling.top_p]] = 0
    return p / p.sum()


@st.composite
def choices(draw: Any) -> tuple[np.ndarray, list[int], Sampling]:
    size = draw(st.integers(2, 12))
    # Far enough from each other that a penalty or a temperature makes no ties.
    logits = draw(st.permutations(range(size)))
    shift = draw(st.sampled_from([0.0, -3.3, 5.7]))
    text = draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=5))
    sampling = Sampling(
        temperature=draw(st.sampled_from([0.3, 1.0, 1.7, 50.0])),
        top_k=draw(st.sampled_from([0, 1, 3, 100])),
        top_p=draw(st.sampled_from([1e-9, 0.31, 0.83, 1.0])),
        repetition_penalty=draw(st.sampled_from([0.77, 1.0, 1.37, 1e3])),
    )
    return 0.83 * np.array(logits, np.float32) + np.float32(shift), text, sampling


@given(choices())
@pytest.mark.examples(60)
def test_a_draft_is_drawn_from_the_distribution_that_was_asked_for(
    case: tuple[np.ndarray, list[int], Sampling],
) -> None:
    logits, text, sampling = case
    token, q = Chooser(sampling, 1e-3, "cpu").draft(
        torch.from_numpy(logits.copy())[None, None], [text], NO_DRAFTS
    )
    assert q is not None
    expected = defined(logits, text, sampling)
    assert q[0, 0].numpy() == pytest.approx(expected, abs=2e-6)
    assert expected[int(token)] > 0


@st.composite
def pairs(draw: Any) -> tuple[np.ndarray, np.ndarray]:
    """What the model says, and what the drafts were drawn from; either may exclude tokens."""
    weights = st.lists(st.sampled_from([0, 1, 2, 5, 20]), min_size=4, max_size=4).filter(any)
    p, q = (np.array(draw(weights), float) for _ in range(2))
    return p / p.sum(), q / q.sum()


@given(pairs(), st.booleans())
@pytest.mark.examples(25)
def test_tokens_are_distributed_as_the_model_says_however_they_were_drafted(
    pair: tuple[np.ndarray, np.ndarray], by_lookup: bool
) -> None:
    """Leviathan et al. 2023, theorem 1; and a draft stays with the chance sum of min(p, q)."""
    p, q = pair
    count, rng = 4_000, np.random.default_rng(0)
    if by_lookup:  # a token that was copied: it is proposed surely
        q = np.eye(4)[int(q.argmax())]
    drafts = torch.from_numpy(rng.choice(4, (count, 1), p=q))
    proposals = torch.from_numpy(q).float().expand(count, 1, 4)
    logits = torch.from_numpy(np.log(np.maximum(p, 1e-300))).float().clamp_min(-1e30)
    logits = logits.masked_fill(torch.from_numpy(p == 0), float("-inf")).expand(count, 2, 4)
    verdict = Chooser(Sampling(1.0, seed=1), 1e-3, "cpu").verify(
        logits, [[0]] * count, drafts, None if by_lookup else proposals
    )
    first = np.bincount([tokens[0] for tokens in verdict.tokens], minlength=4)
    assert not first[p == 0].any()
    if (p > 0).sum() > 1:
        assert chisquare(first[p > 0], count * p[p > 0]).pvalue > 1e-6
    accepted = sum(len(tokens) == 2 for tokens in verdict.tokens) / count
    expected = float(np.minimum(p, q).sum())
    assert accepted == pytest.approx(expected, abs=5 * np.sqrt(0.25 / count))
    if expected in (0.0, 1.0):
        assert accepted == expected


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("penalty", [1.001, 1.1, 0.7])
def test_a_penalty_is_that_of_transformers_whatever_the_dtype(
    dtype: torch.dtype, penalty: float
) -> None:
    """Transformers computes it in float32: in half precision two logits would become one."""
    torch.manual_seed(0)
    chooser = Chooser(Sampling(0.0, repetition_penalty=penalty), 0.0, "cpu")
    library = RepetitionPenaltyLogitsProcessor(penalty)
    for _ in range(100):
        logits = (8 + torch.rand(1, 1, 20)).to(dtype)
        text = torch.randint(20, (1, 10))
        expected = library(text, logits[:, 0].float()).argmax(-1)
        verdict = chooser.verify(logits, text.tolist(), NO_DRAFTS)
        assert verdict.tokens == [expected.tolist()]


@pytest.mark.parametrize(
    ("place", "value"),
    [
        *(
            ("temperature", value)
            for value in (1e-45, 1e-39, 1e-7, -1.0, float("nan"), float("inf"))
        ),
        *(("repetition_penalty", value) for value in (0.0, 1e-300, 1e-7, 1e7, float("nan"))),
        *(("top_p", value) for value in (0.0, -0.1, 1.1, float("nan"))),
        ("top_k", -1),
    ],
)
def test_what_leaves_the_range_of_numbers_is_refused(place: str, value: float) -> None:
    with pytest.raises(InputError) as refused:
        Sampling(**{place: value})  # type: ignore[arg-type]
    assert (refused.value.code, refused.value.place) == ("out-of-range", place)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("penalty", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("temperature", [1e-6, 1e30])
def test_at_the_ends_of_the_range_tokens_are_drawn(
    temperature: float, penalty: float, dtype: torch.dtype
) -> None:
    chooser = Chooser(Sampling(temperature, repetition_penalty=penalty), 1e-3, "cpu")
    logits = torch.tensor([[[-100.0, 100.0, 3.0, -3.0]]], dtype=dtype)
    q = chooser.draft(logits, [[0, 1]], NO_DRAFTS)[1]
    assert q is not None
    assert float(q.sum()) == pytest.approx(1, abs=1e-5)
    if temperature == 1e-6:  # the most likely one
        assert float(q.max()) == 1
