"""Training for early exits: schedules, layer dropout, loss, exact resumption."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tiny_models import VOCABULARY, tiny
from torch.nn import functional as F
from transformers import LlamaConfig

from holdfast.errors import HoldfastError, InputError
from holdfast.lm.generate import calibrate_heads
from holdfast.lm.generate.exit_loss import ExitTraining
from holdfast.lm.generate.exit_recipe import ExitRecipe
from holdfast.lm.generate.training import ExitCallback, Schedule, _Loop, train_exits
from holdfast.lm.generate.training_report import evaluate_exits

ALL = ExitRecipe(dropout=0.0, exit_scale=0.5, curriculum="all")
HALF = ExitRecipe(dropout=0.9, exit_scale=0.2, every=2)


def ids(rows: int = 6, length: int = 9, seed: int = 0) -> torch.Tensor:
    return torch.randint(VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(seed))


def still(family: str) -> torch.nn.Module:
    """A tiny model without dropout of its own."""
    rates = ("resid_pdrop", "embd_pdrop", "attn_pdrop") if family == "gpt2" else ()
    return tiny(family, **dict.fromkeys(rates, 0.0))


def trained_bits(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def test_rates_and_weights_follow_the_published_formulas() -> None:
    recipe = ExitRecipe(dropout=0.2, exit_scale=0.5, curriculum="all")
    np.testing.assert_allclose(recipe.drop_rates(3, 10, 3), [0, 0.2 * (2**0.5 - 1), 0.2])
    ramp = replace(recipe, ramp=True)
    assert ramp.drop_rates(0, 10, 3).tolist() == [0, 0, 0]
    np.testing.assert_allclose(ramp.drop_rates(9, 10, 3), recipe.drop_rates(9, 10, 3))
    # Sums of the layer numbers 0, 1, 3 times 1/2; the last 3 + 3/2.
    np.testing.assert_allclose(recipe.exit_weights(0, 10, 4), np.array([0, 0.5, 1.5, 4.5]) / 6.5)
    other = replace(recipe, weights="torchtune", curriculum="rotational", every=2)
    # Exits 0, 2 and 3: sums of 1, 3, 4; the last without the scale.
    np.testing.assert_allclose(other.exit_weights(0, 10, 4), np.array([0.5, 0, 2, 8]) / 10.5)


def test_curricula() -> None:
    rotational = ExitRecipe(every=3)
    assert [np.flatnonzero(rotational.selected(t, 9, 5)).tolist() for t in range(4)] == [
        [0, 3, 4],
        [1, 4],
        [2, 4],
        [0, 3, 4],
    ]
    gradual = ExitRecipe(curriculum="gradual")
    on = [int(gradual.selected(t, 80, 4).sum()) for t in range(80)]
    assert on[0] == 1
    assert on == sorted(on)
    assert on.index(4) <= 40
    assert all(gradual.selected(t, 80, 4)[-1] for t in range(80))


@pytest.mark.parametrize("family", ["llama-grouped", "opt", "gpt2", "gpt_neox"])
def test_loss_is_that_of_the_exits_with_one_norm_and_head(family: str) -> None:
    model, tokens = still(family), ids()
    model.train()
    before = model(input_ids=tokens, labels=tokens, output_hidden_states=True)
    norm, head = _norm(model), model.get_output_embeddings()
    weights = ALL.exit_weights(0, 10, 4)
    expected = weights[3] * before.loss
    for layer in range(3):
        logits = head(norm(before.hidden_states[layer + 1]))[:, :-1].flatten(0, 1)
        expected = expected + weights[layer] * F.cross_entropy(logits, tokens[:, 1:].flatten())
    training = ExitTraining(model, ALL, 10)
    torch.testing.assert_close(model(input_ids=tokens, labels=tokens).loss, expected)
    torch.testing.assert_close(training.losses[3], before.loss)
    # The Trainer's mean over accumulated batches is a sum over their tokens.
    count = 3 * tokens[:, 1:].numel()
    loss = model(input_ids=tokens, labels=tokens, num_items_in_batch=count).loss
    torch.testing.assert_close(loss, expected / 3)
    training.detach()
    torch.testing.assert_close(model(input_ids=tokens, labels=tokens).loss, before.loss)


def _norm(model: torch.nn.Module) -> torch.nn.Module:
    names = ("norm", "final_layer_norm", "ln_f")
    named = dict(model.named_modules())
    return next(
        m for name, m in named.items() if name.split(".")[-1] in names and "layers" not in name
    )


@pytest.mark.parametrize("family", ["llama-grouped", "opt", "gpt2", "gpt_neox"])
def test_dropped_samples_skip_their_layers_and_cost_nothing(family: str) -> None:
    model, tokens = still(family), ids()
    layers = _layers(model)
    rows = [0] * 4
    for place, layer in enumerate(layers):
        first = next(m for m in layer.modules() if not list(m.children()))

        def count(module: torch.nn.Module, inputs: tuple[torch.Tensor], place: int = place) -> None:
            rows[place] += len(inputs[0])

        first.register_forward_pre_hook(count)
    plain = model(input_ids=tokens).logits
    rows[:] = [0] * 4
    training = ExitTraining(model, HALF, 10)
    assert torch.equal(model(input_ids=tokens).logits, plain), "evaluation mode changed"
    rows[:] = [0] * 4
    model.train()
    training.begin(2)
    mixed = model(input_ids=tokens).logits
    kept = [HALF.active_rows(2, 10, 0, layer, 4, 6, 0) for layer in range(4)]
    assert rows == [len(part) for part in kept] == training.rows_run
    assert sum(rows) < 20
    training.detach()
    model.eval()
    originals = [layer.forward for layer in layers]
    for sample in range(6):  # brute force: each sample alone through the layers that it keeps
        for place, layer in enumerate(layers):
            layer.forward = (
                originals[place] if sample in kept[place] else lambda hidden, *_, **__: hidden
            )
        alone = model(input_ids=tokens[sample : sample + 1]).logits
        torch.testing.assert_close(mixed[sample : sample + 1], alone)


def _layers(model: torch.nn.Module) -> torch.nn.ModuleList:
    return next(m for m in model.modules() if isinstance(m, torch.nn.ModuleList))


def test_rates_of_dropout_and_independent_layers() -> None:
    recipe = ExitRecipe(dropout=0.5)
    runs = np.zeros((2000, 4, 2), bool)
    for step in range(2000):
        for layer in range(4):
            runs[step, layer, recipe.active_rows(step, 2000, 0, layer, 4, 2, 0)] = True
    share = 1 - runs.mean((0, 2))
    np.testing.assert_allclose(share, recipe.drop_rates(0, 1, 4), atol=0.03)
    assert abs(np.corrcoef(runs[:, 2, 0], runs[:, 3, 0])[0, 1]) < 0.1
    assert not np.array_equal(
        recipe.active_rows(1, 9, 0, 3, 4, 64, rank=0), recipe.active_rows(1, 9, 0, 3, 4, 64, rank=1)
    )


def test_gradients_with_checkpointing_and_of_skipped_layers() -> None:
    gradients = []
    for checkpointing in (False, True):
        model = tiny("llama").train()
        if checkpointing:
            model.activation_checkpointing_enable()
        training = ExitTraining(model, HALF, 10)
        step = next(t for t in range(99) if not len(HALF.active_rows(t, 10, 0, 3, 4, 2, 0)))
        training.begin(step)
        model(input_ids=ids(2), labels=ids(2)).loss.backward()
        assert all(parameter.grad is not None for parameter in model.parameters())
        assert not any(parameter.grad.any() for parameter in _layers(model)[3].parameters())
        gradients.append([parameter.grad for parameter in model.parameters()])
    torch.testing.assert_close(gradients[0], gradients[1])


# --- The plain loop ------------------------------------------------------------------------------

SHORT = Schedule(steps=6, batch=3, length=16, save_every=2)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A configuration with dropout of its own, and text."""
    folder = tmp_path_factory.mktemp("world")
    config = LlamaConfig(
        vocab_size=300,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        attention_dropout=0.1,
    )
    (folder / "config.json").write_text(json.dumps(config.to_dict()))
    (folder / "text").mkdir()
    for number in range(40):
        words = " ".join(f"word{(number * place) % 17}" for place in range(60))
        (folder / "text" / f"{number}.txt").write_text(f"{words}\n")
    (folder / "text" / "image.bin").write_bytes(b"\xff\xfe\x00")
    return folder


def run(world: Path, output: Path, schedule: Schedule = SHORT) -> object:
    return train_exits(world / "config.json", world / "text", output, HALF, schedule)


def test_interrupted_training_ends_with_the_same_bits(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = run(world, tmp_path / "whole")
    step = _Loop._train_step

    def interrupted(loop: _Loop, tokens: torch.Tensor) -> None:
        if loop.step == 5:
            raise KeyboardInterrupt
        step(loop, tokens)

    monkeypatch.setattr(_Loop, "_train_step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(world, tmp_path / "cut")
    steps = []

    def counted(loop: _Loop, tokens: torch.Tensor) -> None:
        steps.append(loop.step)
        step(loop, tokens)

    monkeypatch.setattr(_Loop, "_train_step", counted)
    torch.rand(3)  # the state of the generators is not that of the first run
    resumed = run(world, tmp_path / "cut")
    assert steps == [4, 5]
    whole, cut = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "cut"))
    assert whole.keys() == cut.keys()
    assert all(torch.equal(whole[name], cut[name]) for name in whole)
    assert replace(resumed, model=answer.model) == answer  # type: ignore[type-var]
    assert answer.skipped == 1  # type: ignore[attr-defined]
    assert 0 < answer.layers_run < 1  # type: ignore[attr-defined]
    assert [row["layers"] for row in answer.exits] == [1, 2, 3, 4]  # type: ignore[attr-defined]
    assert answer.exits[-1]["agreement"] == 1  # type: ignore[attr-defined]
    with pytest.raises(InputError) as error:
        run(world, tmp_path / "whole")
    assert error.value.code == "output-exists"
    # A trained folder is a model with its tokenizer: it can be trained further.
    more = train_exits(
        tmp_path / "whole", world / "text", tmp_path / "more", ALL, replace(SHORT, steps=2)
    )
    assert more.losses[0]["last_loss"] < answer.losses[0]["last_loss"]  # type: ignore[attr-defined]


def test_perplexity_of_exits_is_the_models_own() -> None:
    model, tokens = tiny("llama"), ids(5, 12)
    exits = evaluate_exits(model, tokens.numpy().astype(np.int32))
    with torch.no_grad():
        loss = model(input_ids=tokens, labels=tokens).loss
    assert exits[-1]["perplexity"] == pytest.approx(float(loss.exp()), rel=1e-5)
    assert not model.training


@pytest.mark.parametrize(
    ("recipe", "place"),
    [
        ({"dropout": 1.0}, "dropout"),
        ({"exit_scale": -1.0}, "exit_scale"),
        ({"exit_scale": float("nan")}, "exit_scale"),
        ({"every": 0}, "every"),
    ],
)
def test_impossible_recipes(recipe: dict[str, float], place: str) -> None:
    with pytest.raises(InputError) as error:
        ExitRecipe(**recipe)  # type: ignore[arg-type]
    assert (error.value.code, error.value.place) == ("out-of-range", place)


def test_bad_input(world: Path, tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_text("two words")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    (tmp_path / "config.json").write_text('{"model_type": "mixtral", "num_hidden_layers": 2}')
    text = world / "text"
    cases = [
        (tmp_path / "none", text, SHORT, "not-found"),
        (tmp_path / "short.txt", text, SHORT, "unreadable"),
        (tmp_path, text, SHORT, "unsupported"),
        (world / "config.json", tmp_path / "none", SHORT, "not-found"),
        (world / "config.json", tmp_path / "bytes", SHORT, "no-data"),
        (world / "config.json", tmp_path / "short.txt", SHORT, "no-data"),
        (world / "config.json", text, replace(SHORT, length=65), "out-of-range"),
        (world / "config.json", text, replace(SHORT, steps=0), "out-of-range"),
    ]
    for model, data, schedule, code in cases:
        with pytest.raises(InputError) as error:
            train_exits(model, data, tmp_path / "out", HALF, schedule)
        assert error.value.code == code
    with pytest.raises(HoldfastError, match="not finite"):
        run(world, tmp_path / "out", replace(SHORT, learning_rate=1e30))
    with pytest.raises(InputError) as error:
        ExitTraining(tiny("llama", layers=1), HALF, 10)
    assert error.value.code == "unsupported"


# --- The Trainer of transformers, and DDP --------------------------------------------------------


def trained(folder: Path, resume: bool = False, stop: int | None = None) -> dict[str, torch.Tensor]:
    from transformers import Trainer, TrainingArguments  # two seconds, for every worker

    data = [{"input_ids": row, "labels": row} for row in ids(24, 8)]
    arguments = TrainingArguments(
        str(folder),
        max_steps=6,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        save_steps=3,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        logging_strategy="no",
    )
    model = tiny("llama")
    callback = ExitCallback(HALF)
    if stop:
        callback.on_step_end = lambda args, state, control, **_: setattr(  # type: ignore[method-assign]
            control, "should_training_stop", state.global_step == stop
        )
    trainer = Trainer(model, arguments, train_dataset=data, callbacks=[callback])  # type: ignore[arg-type]
    trainer.train(resume_from_checkpoint=str(folder / "checkpoint-3") if resume else None)
    assert callback.training is not None
    assert sum(callback.training.rows_run) < 24 * 4
    assert "forward" not in vars(_layers(model)[0])
    return trained_bits(model)


def test_callback_resumes_exactly_and_refuses_label_smoothing(tmp_path: Path) -> None:
    whole = trained(tmp_path / "whole")
    trained(tmp_path / "cut", stop=3)
    cut = trained(tmp_path / "cut", resume=True)
    assert all(torch.equal(whole[name], cut[name]) for name in whole)
    assert not torch.equal(whole["lm_head.weight"], tiny("llama").lm_head.weight)
    callback = ExitCallback(HALF)
    with pytest.raises(InputError) as error:
        callback.on_train_begin(type("Smooth", (), {"label_smoothing_factor": 0.1}), None, None)
    assert error.value.code == "conflict"


def _rank(rank: int, folder: str) -> None:
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2
    )
    model = tiny("llama").train()
    training = ExitTraining(model, HALF, 8)
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(8):
        training.begin(step)
        tokens = ids(2, 8, seed=2 * step + rank)
        parallel(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.save((trained_bits(model), training.rows_run), f"{folder}/{rank}.pt")
    torch.distributed.destroy_process_group()


@pytest.mark.full
def test_processes_of_ddp_stay_equal_while_they_skip_different_layers(tmp_path: Path) -> None:
    # By fork: this module has no name by which a new process could import it.
    torch.multiprocessing.start_processes(_rank, (str(tmp_path),), nprocs=2, start_method="fork")
    (first, rows), (second, others) = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert rows != others


def test_a_model_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    tiny("llama").save_pretrained(tmp_path / "model")
    text = tmp_path / "text.txt"
    text.write_text("some words\n" * 200)
    for run in (train_exits, calibrate_heads):
        with pytest.raises(InputError) as raised:
            run(tmp_path / "model", text, tmp_path / "out")
        assert (raised.value.code, raised.value.place) == ("not-found", "tokenizer")
