"""What is remembered is not asked again, and a model that stops leaves its answers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import toy

from holdfast.lm.models.caching import Answers, Cached
from holdfast.lm.models.protocol import ModelStopped, NextToken, Prefix


def test_each_prefix_is_asked_once() -> None:
    model = toy.ToyModel()
    cached = Cached(model)
    answers = cached.logprobs([(1,), (2,), (1,)])
    assert model.asked == [(1,), (2,)]
    assert answers[0] is answers[2]
    cached.logprobs([(2,), (3,), (1,)])
    assert model.asked == [(1,), (2,), (3,)]
    assert cached.cost is model.cost
    assert (cached.tokenizer, cached.context, cached.name) == (toy.TOKENIZER, None, "toy:0")
    np.testing.assert_array_equal(cached.logprobs([(3,)])[0].logprobs, model.distribution((3,)))


def test_a_budget_forgets_the_oldest() -> None:
    model = toy.ToyModel()
    cached = Cached(model, budget_bytes=2 * (8 * 30 + 8 + 400))
    cached.logprobs([(1,), (2,)])
    cached.logprobs([(1,)])
    cached.logprobs([(3,)])
    cached.logprobs([(1,), (2,)])
    assert model.asked == [(1,), (2,), (3,), (2,)]


def test_one_answer_is_always_kept() -> None:
    answers = Answers(budget_bytes=0)
    answers.keep((1,), NextToken(np.zeros(3)))
    assert answers.get((1,)) is not None
    answers.keep((2,), NextToken(np.zeros(3)))
    assert answers.get((1,)) is None


class Stops(toy.ToyModel):
    """Answers the second prefix of every batch, then is gone."""

    def logprobs(self, prefixes: Sequence[Prefix]) -> list[NextToken]:
        self.asked += prefixes
        raise ModelStopped("gone", {1: NextToken(self.distribution(prefixes[1]))})


def test_a_model_that_stops_leaves_its_answers() -> None:
    model = Stops()
    cached = Cached(model)
    with pytest.raises(ModelStopped, match="gone") as caught:
        cached.logprobs([(1,), (1,), (2,), (3,), (2,)])
    assert set(caught.value.answered) == {2, 4}
    assert model.asked == [(1,), (2,), (3,)]
    cached.logprobs([(2,)])
    assert len(model.asked) == 3
