"""Schedules, recipes, texts and exits, against transformers, definitions and shorter models."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import VOCABULARY, tiny
from transformers import get_cosine_with_min_lr_schedule_with_warmup

from holdfast.errors import InputError
from holdfast.lm.generate import ExitRecipe
from holdfast.lm.generate.exit_loss import ExitTraining
from holdfast.lm.generate.schedule import Schedule
from holdfast.lm.generate.training_report import evaluate_exits
from holdfast.lm.generate.training_text import Texts, _chunks, new_tokenizer, windows

# --- Learning rate and recipe --------------------------------------------------------------------


@pytest.mark.parametrize("steps", [1, 2, 19, 20, 100, 777])
def test_the_rate_is_the_cosine_of_transformers_behind_the_warmup(steps: int) -> None:
    schedule = Schedule(steps=steps, learning_rate=0.02)
    warmup = max(1, steps // 20)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(()))], lr=0.02)
    theirs = get_cosine_with_min_lr_schedule_with_warmup(
        optimizer, warmup, steps, min_lr_rate=0.1
    ).lr_lambdas[0]
    for step in range(steps):
        if step >= warmup:
            assert schedule.rate(step) == pytest.approx(0.02 * theirs(step))
        else:  # there the first step has a rate of 0 and is lost
            assert schedule.rate(step) == pytest.approx(0.02 * theirs(step + 1))
    assert schedule.rate(0) > 0


RECIPES = st.builds(
    ExitRecipe,
    st.sampled_from([0.0, 0.1, 0.99]),
    st.booleans(),
    st.sampled_from([0.0, 0.2, 3.0]),
    st.sampled_from(["layerskip", "torchtune"]),
    st.sampled_from(["rotational", "gradual", "all"]),
    st.integers(1, 6),
)


@given(RECIPES, st.integers(2, 9), st.integers(1, 12), st.data())
@pytest.mark.examples(60)
def test_weights_and_rates_by_definition(
    recipe: ExitRecipe, layers: int, steps: int, data: st.DataObject
) -> None:
    step = data.draw(st.integers(0, steps - 1))
    last = layers - 1
    on = {
        "all": [True] * layers,
        "rotational": [layer % recipe.every == step % recipe.every for layer in range(layers)],
        "gradual": [layer >= last - 2 * layers * step // steps for layer in range(layers)],
    }[recipe.curriculum]
    on[last] = True
    assert recipe.selected(step, steps, layers).tolist() == on
    scale = recipe.exit_scale
    if recipe.weights == "layerskip":  # Elhoushi et al. 2024, equation 6
        e = [scale * sum(range(layer + 1)) for layer in range(last)]
        e.append(last + scale * sum(range(last)))
    else:
        e = [
            (1 if layer == last else scale) * sum(n + 1 for n in range(layer + 1) if on[n])
            for layer in range(layers)
        ]
    e = [weight if chosen else 0.0 for weight, chosen in zip(e, on, strict=True)]
    expected = [weight / sum(e) for weight in e]
    assert recipe.exit_weights(step, steps, layers) == pytest.approx(expected)
    growth = 2 ** (step / max(1, steps - 1)) - 1 if recipe.ramp else 1
    rates = [recipe.dropout * growth * (2 ** (layer / last) - 1) for layer in range(layers)]
    assert recipe.drop_rates(step, steps, layers) == pytest.approx(rates)
    assert all(0 <= rate < 1 for rate in rates)
    for layer in range(layers):
        kept = recipe.active_rows(step, steps, 0, layer, layers, 6, 0)
        assert sorted(set(kept.tolist())) == kept.tolist()
        if rates[layer] == 0:
            assert len(kept) == 6


@pytest.mark.parametrize(
    ("place", "value"),
    [
        *(("dropout", value) for value in (-0.1, 1.0, math.nan)),
        *(("exit_scale", value) for value in (-1e-9, math.inf, math.nan)),
        *(("every", value) for value in (0, -1)),
        ("seed", -1),
    ],
)
def test_recipes_outside_of_their_domain(place: str, value: Any) -> None:
    with pytest.raises(InputError) as refused:
        ExitRecipe(**{place: value})
    assert (refused.value.code, refused.value.place) == ("out-of-range", place)


# --- Exits ---------------------------------------------------------------------------------------


def ids(rows: int, length: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("family", ["llama-grouped", "gpt2"])
def test_exits_are_models_with_fewer_layers(family: str) -> None:
    """Perplexity and agreement of shorter models of transformers, counted position by position."""
    model, tokens = tiny(family), ids(11, 7)  # more than one batch
    rows = evaluate_exits(model, tokens.numpy().astype(np.int32))
    name = "h" if family == "gpt2" else "layers"
    with torch.inference_mode():
        choice = model(tokens).logits[:, :-1].argmax(-1)
        for row in rows:
            short = copy.deepcopy(model)
            base = short.transformer if family == "gpt2" else short.model
            setattr(base, name, getattr(base, name)[: row["layers"]])
            short.config.num_hidden_layers = row["layers"]
            logits = short(tokens, use_cache=False).logits[:, :-1].double()
            chances = logits.softmax(-1).gather(-1, tokens[:, 1:, None])[..., 0]
            assert row["perplexity"] == pytest.approx(
                float((-chances.log().mean()).exp()), rel=1e-5
            )
            assert row["agreement"] == pytest.approx(
                float((logits.argmax(-1) == choice).double().mean())
            )
    assert [row["layers"] for row in rows] == [1, 2, 3, 4]


def test_a_recipe_without_exits_and_dropout_is_ordinary_training() -> None:
    """Three steps of AdamW: the same weights, bit by bit; and the gradient of exits by differences."""
    bits = []
    for own in (True, False):
        model = tiny("llama").train()
        training = ExitTraining(model, ExitRecipe(0.0, exit_scale=0.0), 3) if own else None
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        for step in range(3):
            if training:
                training.begin(step)
            model(input_ids=ids(2, 8, step), labels=ids(2, 8, step)).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        bits.append([part.detach().clone() for part in model.parameters()])
    assert all(map(torch.equal, *bits))


def exact_loss(logits: torch.Tensor, labels: torch.Tensor, **_: Any) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())


def test_gradients_of_the_exit_loss_by_differences() -> None:
    model = tiny("gpt2", resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0).double().train()
    model.loss_function = exact_loss  # that of transformers is of float32
    training, tokens = ExitTraining(model, ExitRecipe(0.6, curriculum="all", seed=3), 9), ids(4, 6)
    weight = model.transformer.h[1].mlp.c_fc.weight

    def loss() -> torch.Tensor:
        training.begin(4)  # the same samples are skipped
        return model(input_ids=tokens, labels=tokens).loss

    loss().backward()
    for place in ((0, 0), (3, 7), (31, 100)):
        values = []
        for change in (1e-5, -2e-5):
            with torch.no_grad():
                weight[place] += change
            values.append(float(loss().detach()))
        with torch.no_grad():
            weight[place] += 1e-5
        slope = (values[0] - values[1]) / 2e-5
        assert float(weight.grad[place]) == pytest.approx(slope, rel=1e-4, abs=1e-7)


# --- Texts ---------------------------------------------------------------------------------------


@given(st.text(st.sampled_from("ab\n é🙂"), max_size=60), st.integers(1, 9))
@pytest.mark.examples(40)
def test_chunks_are_the_text(text: str, size: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("holdfast.lm.generate.training_text._CHUNK", size)
        chunks = list(_chunks(text))
    assert "".join(chunks) == text
    assert all(0 < len(chunk) <= size for chunk in chunks)
    assert all(chunk.endswith("\n") or "\n" not in chunk for chunk in chunks[:-1])


@given(st.integers(0, 30), st.integers(1, 8))
@pytest.mark.examples(20)
def test_windows_by_slicing(count: int, length: int) -> None:
    tokens = np.arange(count)
    expected = [tokens[n : n + length].tolist() for n in range(0, count - length + 1, length)]
    assert windows(tokens, length).tolist() == expected


def test_a_new_file_moves_no_other_to_the_other_side(tmp_path: Path) -> None:
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "a.txt").write_text("hidden")
    sides: dict[str, bool] = {}
    for number in range(120):
        (tmp_path / f"{number}.txt").write_text(f"text {number}")
        if number < 80:
            continue  # of few files all may be on one side, and the last one is divided
        texts = Texts(tmp_path)
        now = {text: text in texts.held_out for text in (*texts.train, *texts.held_out)}
        assert now.keys() == {f"text {n}" for n in range(number + 1)}
        assert all(now[text] == side for text, side in sides.items())
        sides = now
    assert 1 <= sum(sides.values()) <= 15  # one in 20 of 120


@pytest.mark.parametrize("length", [1, 2, 19, 20, 400])
def test_the_end_of_a_single_file_is_held_out(tmp_path: Path, length: int) -> None:
    path = tmp_path / "text.txt"
    path.write_text("x" * length)
    texts = Texts(path)
    assert "".join(texts.train + texts.held_out) == "x" * length
    assert [len(part) for part in texts.held_out] == [max(1, length // 20)]


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), max_size=3))
@pytest.mark.examples(15)
def test_a_new_tokenizer_spells_every_text(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str]
) -> None:
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("some words and some words " * 4)
    made = new_tokenizer(Texts(path), 270)
    assert len(made) <= 270
    for text in texts:
        found = made(text, add_special_tokens=False).input_ids
        assert made.decode(found, clean_up_tokenization_spaces=False) == text
    corpus = Texts(path).encoded(made)
    assert corpus.train[-1] == corpus.held_out[-1] == made.eos_token_id
    whole = made.decode(np.concatenate((corpus.train[:-1], corpus.held_out[:-1])).tolist())
    assert whole == path.read_text()
