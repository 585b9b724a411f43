"""Rounds of drafts, against transformers with the first layers alone, and exact enumeration."""

from __future__ import annotations

import copy
from collections import Counter, defaultdict
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2
from tiny_models import VOCABULARY, tiny
from torch import Tensor
from transformers.generation.utils import _speculative_sampling

from holdfast.errors import InputError
from holdfast.lm.generate import Arena, Decoder, Generator, Plan, Sampling, architecture
from holdfast.lm.generate.sampling import Chooser
from holdfast.lm.generate.speculation import draft_by_exit, parse_plan

GREEDY = Chooser(Sampling(0.0), 1e-3, "cpu")


def truncated(model: Any, layers: int) -> Any:
    """A model of transformers with the first layers alone, and the same norm and head."""
    short = copy.deepcopy(model)
    base = short.transformer if hasattr(short, "transformer") else short.model
    name = "h" if hasattr(base, "h") else "layers"
    setattr(base, name, getattr(base, name)[:layers])
    short.config.num_hidden_layers = layers
    return short


def following(model: Any, text: list[int]) -> Tensor:
    """Logits [V] of the token after a text."""
    with torch.inference_mode():
        return model(torch.tensor([text]), use_cache=False).logits[0, -1]


# --- Names of plans ------------------------------------------------------------------------------

PLANS = st.one_of(
    st.just(Plan()),
    st.builds(Plan, st.just("lookup"), st.just(0), st.integers(1, 99)),
    st.builds(Plan, st.just("early-exit"), st.integers(1, 99), st.integers(1, 99)),
)


@given(PLANS)
@pytest.mark.examples(30)
def test_a_plan_is_what_its_name_says(plan: Plan) -> None:
    name = "off" if plan == Plan() else str(plan)
    assert parse_plan(name) == plan
    assert plan.rows(3) == 3 * plan.length


NO_PLANS = """
none Off off:1 auto:1 lookup:x lookup:1,2 lookup:1.5
early-exit early-exit: early-exit:2 early-exit:1,2,3 early-exit:a,b
"""


@pytest.mark.parametrize("text", ["", *NO_PLANS.split()])
def test_what_is_not_a_plan(text: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_plan(text)
    assert (refused.value.code, refused.value.place) == ("invalid-syntax", "speculate")


@pytest.mark.parametrize(
    ("plan", "exact", "expected"),
    [
        ("early-exit:0,2", False, "1 to 3"),
        ("early-exit:4,2", False, "1 to 3"),
        ("early-exit:1,33", False, "1 to 32"),
        ("lookup:0", False, "1 to 32"),
        ("lookup:-3", False, "1 to 32"),
        ("lookup:33", False, "1 to 32"),
        ("lookup:8", True, "1 to 7"),
        ("early-exit:1,8", True, "1 to 7"),
    ],
)
def test_plans_outside_of_the_model(plan: str, exact: bool, expected: str) -> None:
    with pytest.raises(InputError) as refused:
        Generator(tiny("llama"), exact=exact).generate([[3]], speculate=plan)
    assert (refused.value.code, refused.value.place) == ("out-of-range", "speculate")
    assert refused.value.expected == expected


# --- Drafts --------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["llama-grouped", "gpt2", "opt"])
@pytest.mark.parametrize("exit_layer", [1, 3])
@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_drafts_are_those_of_a_model_with_the_first_layers(
    family: str, exit_layer: int, temperature: float
) -> None:
    model = tiny(family)
    if family == "opt":  # its norm is inside the decoder
        model = tiny("qwen3")
    short, decoder = truncated(model, exit_layer), Decoder(architecture(model))
    texts = [[5, 9, 11, 40, 7], [8], [60, 61, 62]]
    starts = [len(text) - 1 for text in texts]
    chooser = Chooser(Sampling(temperature, top_k=20, seed=1), 1e-3, "cpu")
    with torch.inference_mode():
        cache = Arena(decoder, 3, 32)
        padded = torch.tensor([[*text, *[0] * 5][:5] for text in texts])
        decoder.run(decoder.embed(padded, [0] * 3), cache, [0] * 3)
        latest = torch.tensor([text[-1:] for text in texts])
        plan = Plan("early-exit", exit_layer, 4)
        drafts, proposals, states = draft_by_exit(
            decoder, cache, texts, latest, starts, plan, chooser
        )
    assert (drafts.shape, states.shape) == ((3, 4), (3, 5, 32))
    for number, text in enumerate(texts):
        row = drafts[number].tolist()
        for place, token in enumerate(row):
            logits = following(short, [*text, *row[:place]])
            if proposals is None:
                assert token == int(logits.argmax())
                continue
            scaled = logits / temperature
            expected = scaled.masked_fill(scaled < scaled.topk(20).values[-1], -np.inf).softmax(-1)
            torch.testing.assert_close(proposals[number, place], expected, atol=1e-5, rtol=1e-4)
            assert expected[token] > 0
        with torch.inference_mode():
            whole = model(torch.tensor([[*text, *row]]), output_hidden_states=True)
        hidden = whole.hidden_states[exit_layer][0, -5:]
        torch.testing.assert_close(states[number], hidden, atol=1e-4, rtol=1e-4)


def copied(text: list[int], length: int) -> list[int]:
    """Prompt lookup by a search from the end, for three tokens, two, one."""
    for size in (3, 2, 1):
        for end in range(len(text) - 1, size - 1, -1):
            if text[end - size : end] == text[-size:]:
                tail = text[end:]
                return [tail[step % len(tail)] for step in range(length)]
    return []


def drafted_by(model: Any, plan: Plan) -> Callable[[list[int]], list[int]]:
    """A drafter by brute force: a whole pass of transformers for every token."""
    if plan.drafter == "lookup":
        return lambda text: copied(text, plan.length)
    short = truncated(model, plan.exit_layer)

    def drafts(text: list[int]) -> list[int]:
        row: list[int] = []
        for _ in range(plan.length):
            row.append(int(following(short, [*text, *row]).argmax()))
        return row

    return drafts


@pytest.mark.parametrize("plan", ["early-exit:2,3", "early-exit:3,5", "lookup:4"])
@pytest.mark.parametrize("new", [1, 15])
def test_rounds_and_accepted_drafts_by_brute_force(plan: str, new: int) -> None:
    """Every text alone: draft, take the longest prefix that the whole model chooses, add its token."""
    model = tiny("llama", seed=3)
    with torch.no_grad():  # later layers change little, so that some drafts are accepted
        for layer in model.model.layers[2:]:
            layer.mlp.down_proj.weight.mul_(0.3)
            layer.self_attn.o_proj.weight.mul_(0.3)
    parsed = parse_plan(plan)
    assert parsed is not None
    drafts, rounds, drafted, accepted = drafted_by(model, parsed), 0, 0, 0
    prompts, texts = [[5, 6, 5, 6, 7, 5, 6], [9]], []
    for prompt in prompts:
        text = list(prompt)
        while len(text) < len(prompt) + new:
            row = drafts(text)
            choices = [
                int(following(model, [*text, *row[:n]]).argmax()) for n in range(len(row) + 1)
            ]
            right = next((n for n, t in enumerate(row) if t != choices[n]), len(row))
            tokens = choices[: right + 1][: len(prompt) + new - len(text)]
            text, rounds = [*text, *tokens], rounds + 1
            # Drafts behind the end of a text were not needed: they do not count.
            whole = len(tokens) == right + 1
            drafted += len(row) if whole else len(tokens)
            accepted += min(right, len(tokens))
        texts.append(text[len(prompt) :])
    result = Generator(model).generate(prompts, max_new=new, speculate=plan, ignore_end=True)
    assert result.tokens == texts
    assert (result.rounds, result.drafted, result.accepted) == (rounds, drafted, accepted)
    assert result.acceptance == (accepted / drafted if drafted else None)
    assert sum(row["tokens"] for row in result.plans) == result.count == 2 * new
    assert new == 1 or 0 < accepted < drafted


@pytest.mark.parametrize("family", ["llama-grouped", "gpt2"])
@pytest.mark.parametrize("drafts", [2, 5])
def test_early_exit_and_lookup_beside_those_of_transformers(family: str, drafts: int) -> None:
    """Transformers speculates, too: by `assistant_early_exit` and by `prompt_lookup_num_tokens`."""
    model = tiny(family, eos_token_id=None)
    prompt = [5, 6, 7, 5, 6, 7, 5]
    ids = torch.tensor([prompt])
    options: dict[str, Any] = {
        "attention_mask": torch.ones_like(ids),
        "do_sample": False,
        "max_new_tokens": 20,
        "pad_token_id": 0,
    }
    generator = Generator(model)
    theirs = [{"prompt_lookup_num_tokens": drafts}]
    if family == "llama-grouped":  # the families whose classes have it
        theirs.append({"assistant_early_exit": 2})
    for more in theirs:
        expected = model.generate(ids, **options, **more)[0, len(prompt) :].tolist()
        for plan in (f"lookup:{drafts}", f"early-exit:2,{drafts}"):
            ours = generator.generate([prompt], max_new=20, speculate=plan, ignore_end=True)
            assert ours.tokens == [expected]


# --- Acceptance ----------------------------------------------------------------------------------

SIZE = 3
"""Tokens of the models that are enumerated."""


def random_tables(seed: int, drafts: int) -> tuple[np.ndarray, np.ndarray]:
    """Distributions of the whole model [d + 1, V] and of the drafter [d, V], with zeros."""
    random = np.random.default_rng(seed)
    p, q = random.dirichlet(np.ones(SIZE), drafts + 1), random.dirichlet(np.ones(SIZE), drafts)
    p[0, 0], q[-1, 1] = 0, 0
    return p / p.sum(-1, keepdims=True), q / q.sum(-1, keepdims=True)


def outcomes(p: np.ndarray, q: np.ndarray, limit: int) -> dict[tuple[int, ...], float]:
    """Probability of every sequence that a round can yield, by Algorithm 1 of Leviathan et al."""
    chances = defaultdict[tuple[int, ...], float](float)
    for drafts in product(range(SIZE), repeat=len(q)):
        here = float(np.prod([q[n, token] for n, token in enumerate(drafts)]))
        for n in range(limit + 1):
            rest = p[n] if n == limit else np.maximum(p[n] - q[n], 0)
            accept = 0.0 if n == limit else min(1.0, p[n, drafts[n]] / max(q[n, drafts[n]], 1e-300))
            if rest.sum() > 0:
                for token, chance in enumerate(rest / rest.sum()):
                    chances[(*drafts[:n], token)] += here * (1 - accept) * float(chance)
            here *= accept
    return {row: chance for row, chance in chances.items() if chance > 1e-12}


def statistic(counts: Counter[tuple[int, ...]], expected: dict[tuple[int, ...], float]) -> float:
    """p-value of the counts of sequences; 0 where an impossible one came."""
    if counts.keys() - expected.keys():
        return 0.0
    total = sum(counts.values())
    large = [row for row, chance in expected.items() if chance * total >= 5]
    pairs = [(counts[row], expected[row] * total) for row in large]
    rest = total - sum(count for count, _ in pairs), total - sum(mean for _, mean in pairs)
    pairs += [rest] if rest[1] > 1 else []
    value = sum((count - mean) ** 2 / mean for count, mean in pairs)
    return float(chi2.sf(value, max(1, len(pairs) - 1)))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("limits", [None, (3, 0, 1, 2)])
def test_what_a_round_yields_has_the_enumerated_distribution(
    seed: int, limits: tuple[int, ...] | None
) -> None:
    """Of three drafts at once, and of batches whose texts have different numbers of them."""
    p, q = random_tables(seed, 3)
    count, random = 4_000, np.random.default_rng(seed)
    drafts = np.stack([random.choice(SIZE, count, p=row) for row in q], 1)
    most = [3 if limits is None else limits[n % 4] for n in range(count)]
    logits = torch.from_numpy(np.log(np.maximum(p, 1e-300))).float().clamp_min(-1e30)
    logits = logits.masked_fill(torch.from_numpy(p == 0), -np.inf).expand(count, -1, -1)
    verdict = Chooser(Sampling(1.0, seed=seed), 1e-3, "cpu").verify(
        logits,
        [[0]] * count,
        torch.from_numpy(drafts),
        torch.from_numpy(q).float().expand(count, -1, -1),
        None if limits is None else most,
    )
    for limit in set(most):
        rows = [tuple(row) for row, own in zip(verdict.tokens, most, strict=True) if own == limit]
        assert statistic(Counter(rows), outcomes(p, q, limit)) > 1e-5
    assert all(not any(row) for row in verdict.near_ties)


def test_the_sampler_of_transformers_agrees_with_the_enumeration() -> None:
    """So that the oracle above has an oracle: `_speculative_sampling`, one round at a time."""
    p, q = random_tables(5, 2)
    random, counts = np.random.default_rng(5), Counter[tuple[int, ...]]()
    torch.manual_seed(5)
    logits = [torch.from_numpy(np.log(np.maximum(part, 1e-30))).float()[None] for part in (q, p)]
    for _ in range(1_500):
        drafts = torch.tensor([[0, *(random.choice(SIZE, p=row) for row in q)]])
        tokens, _ = _speculative_sampling(drafts, logits[0], 2, logits[1])
        counts[tuple(tokens[0].tolist())] += 1
    assert statistic(counts, outcomes(p, q, 2)) > 1e-5
    assert statistic(counts, outcomes(p, np.roll(q, 1, 1), 2)) < 1e-9  # it can tell others apart


@given(st.data())
@pytest.mark.examples(25)
def test_greedy_verdicts_by_definition(data: st.DataObject) -> None:
    batch, count = data.draw(st.integers(1, 4)), data.draw(st.integers(0, 3))
    values = st.sampled_from([-np.inf, -2.0, 0.0, 1.0, 1.0004, 1.002, 5.0])
    size = batch * (count + 1) * SIZE
    flat = data.draw(st.lists(values, min_size=size, max_size=size))
    logits = np.array(flat).reshape(batch, count + 1, SIZE)
    logits[:, :, 0] = np.maximum(logits[:, :, 0], -3)  # one of them at least is a number
    limits = [data.draw(st.integers(0, count)) for _ in range(batch)]
    drafts = [[data.draw(st.integers(0, SIZE - 1)) for _ in range(count)] for _ in range(batch)]
    verdict = GREEDY.verify(
        torch.from_numpy(logits).float(),
        [[0]] * batch,
        torch.tensor(drafts, dtype=torch.long).view(batch, count),
        limits=limits,
    )
    for b in range(batch):
        best = [int(row.argmax()) for row in logits[b]]
        right = next((n for n in range(limits[b]) if drafts[b][n] != best[n]), limits[b])
        assert verdict.tokens[b] == best[: right + 1]
        ties = [int((row >= row.max() - 1e-3).sum()) > 1 for row in logits[b].astype(np.float32)]
        assert verdict.near_ties[b] == ties[: right + 1]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_logits_that_are_not_numbers_are_refused_wherever_they_are(
    temperature: float, bad: float
) -> None:
    chooser = Chooser(Sampling(temperature), 1e-3, "cpu")
    for place in np.ndindex(2, 3, SIZE):
        logits = torch.zeros(2, 3, SIZE)
        logits[place] = bad
        with pytest.raises(InputError) as refused:
            chooser.verify(logits, [[0]] * 2, torch.zeros(2, 2, dtype=torch.long))
        assert (refused.value.code, refused.value.place) == ("invalid-value", "logits")
    logits = torch.full((1, 1, SIZE), -np.inf)  # nothing is left to choose
    with pytest.raises(InputError):
        chooser.verify(logits, [[0]], torch.zeros(1, 0, dtype=torch.long))


def test_prompts_at_both_ends_of_the_context() -> None:
    """One token, and all but one of the positions; drafts reach beyond the last position."""
    model = tiny("llama", context=16, eos_token_id=None)
    expected = []
    prompts = [[4], [5] * 15, [6, 7] * 7]
    for prompt in prompts:
        text = list(prompt)
        while len(text) < 16:
            text.append(int(following(model, text).argmax()))
        expected.append(text[len(prompt) :])
    generator = Generator(model)
    for plan in ("off", "lookup:32", "early-exit:1,32", "auto"):
        result = generator.generate(prompts, max_new=10**6, speculate=plan, batch=3)
        assert result.tokens == expected
        assert {text.ended for text in result.details} == {"context"}
    assert max(max(row) for row in expected) < VOCABULARY
