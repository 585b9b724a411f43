"""Training a causal language model for early exits: a plain loop that resumes exactly, and a callback.

The loop and the callback apply the same `ExitTraining`. Whatever is random at a step (windows of text,
skipped samples, dropout of the model's own) follows from the seed and the number of the step: a resumed run
needs only weights and optimizer state, and ends with the same bits as an uninterrupted one.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    TrainerCallback,
)
from transformers.utils import logging

from holdfast import progress
from holdfast.errors import HoldfastError, InputError
from holdfast.files import atomic_folder, write_whole
from holdfast.lm.generate.architectures import check_config
from holdfast.lm.generate.exit_loss import ExitTraining
from holdfast.lm.generate.exit_recipe import ExitRecipe
from holdfast.lm.generate.loading import open_tokenizer
from holdfast.lm.generate.schedule import Schedule
from holdfast.lm.generate.settings import in_range
from holdfast.lm.generate.training_report import TrainedExits, evaluate_exits
from holdfast.lm.generate.training_text import Corpus, Texts, new_tokenizer, windows
from holdfast.lm.models.naming import fingerprint

_EVALUATED = 64  # windows of held-out text
_WEIGHTS = ("*.safetensors", "*.bin")


class ExitCallback(TrainerCallback):
    """Layer dropout and early-exit loss in the Trainer of transformers.

        Trainer(model, arguments, train_dataset=data, callbacks=[ExitCallback(ExitRecipe())]).train()

    The skipped samples depend on the recipe's seed, the step and the rank, so the Trainer's own checkpoints
    resume exactly.

    Raises:
        InputError: ``conflict`` when training starts with label smoothing, which bypasses the model's loss.
    """

    def __init__(self, recipe: ExitRecipe) -> None:
        self.recipe = recipe
        self.training: ExitTraining | None = None

    def on_train_begin(
        self, args: Any, state: Any, control: Any, model: Any = None, **_: Any
    ) -> None:
        """Extend the model's forward pass."""
        if args.label_smoothing_factor:
            raise InputError(
                "label smoothing replaces the loss of the model",
                code="conflict",
                place="label_smoothing_factor",
                found=str(args.label_smoothing_factor),
                expected="0",
            )
        if self.training is not None:  # an interrupted run has left its hooks
            self.training.detach()
        self.training = ExitTraining(model, self.recipe, state.max_steps)

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Set the step, from which the skipped samples and the trained exits follow."""
        if self.training is not None:
            self.training.begin(state.global_step)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Give the model its own forward pass back."""
        if self.training is not None:
            self.training.detach()


def train_exits(
    model: Path,
    data: Path,
    output: Path,
    recipe: ExitRecipe | None = None,
    schedule: Schedule | None = None,
) -> TrainedExits:
    """Train a model for early exits, by AdamW on windows of text; an interrupted run resumes exactly.

    Until it has finished the run is kept in a hidden folder beside `output`; the same call resumes it.

    Args:
        model: folder of a model and its tokenizer; or ``config.json`` of a new model, for which a tokenizer
            is trained where none lies beside it.
        data: file or folder of text.
        output: folder of the trained model, which does not exist yet.
        recipe: layer dropout and exit loss; None: the defaults.
        schedule: steps, batches, learning rate; None: the defaults.

    Raises:
        InputError: bad model or data; ``output-exists``; ``no-data`` if the text has fewer tokens than a
            window.
        HoldfastError: if the loss is not finite.
    """
    recipe, schedule = recipe or ExitRecipe(), schedule or Schedule()
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise InputError(
            "output exists", code="output-exists", path=output, remedy="name a new folder"
        )
    texts = Texts(data)
    config, tokenizer = _opened(model, texts, recipe.seed)
    corpus = texts.encoded(tokenizer)
    _check(corpus, schedule, config, len(tokenizer), data)
    run = {"recipe": asdict(recipe), "schedule": asdict(schedule), "config": config.to_dict()}
    weights = fingerprint(model.glob("*.safetensors")) if model.is_dir() else ""
    identity = json.dumps(run, sort_keys=True, default=str) + corpus.digest + weights
    plan = hashlib.sha256(identity.encode()).hexdigest()[:16]
    with _without_bars(), atomic_folder(output, plan=plan) as draft:
        loop = _Loop(draft / "checkpoint", model, config, recipe, schedule)
        loop.run(corpus)
        exits = evaluate_exits(loop.model, windows(corpus.held_out, schedule.length)[:_EVALUATED])
        loop.model.save_pretrained(draft)
        tokenizer.save_pretrained(draft)
        answer = TrainedExits(
            output,
            schedule.steps,
            schedule.steps * schedule.batch * schedule.length,
            loop.layers_run,
            exits,
            loop.losses,
            asdict(recipe),
            corpus.files,
            corpus.skipped,
        )
        report = json.dumps(answer.to_dict(), indent=1).encode() + b"\n"
        write_whole(draft / "training.json", report)
        shutil.rmtree(loop.folder)
    return answer


@contextmanager
def _without_bars() -> Iterator[None]:
    """Transformers draws a bar for every file that it reads or writes."""
    enabled = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if enabled:
            logging.enable_progress_bar()


class _Loop:
    """The optimizer steps of one run, from its last checkpoint on."""

    def __init__(
        self, folder: Path, source: Path, config: Any, recipe: ExitRecipe, schedule: Schedule
    ) -> None:
        self.folder, self.schedule, self.seed = folder, schedule, recipe.seed
        resumed = folder.is_dir()
        self.model = _model(folder if resumed else source, config, recipe.seed)
        self.training = ExitTraining(self.model, recipe, schedule.steps)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=0.0, betas=(0.9, 0.95), weight_decay=0.1
        )
        self.step = 0
        self.losses: list[dict[str, Any]] = []
        if resumed:
            self._load()

    def run(self, corpus: Corpus) -> None:
        """Train to the last step."""
        pieces = windows(corpus.train, self.schedule.length)
        device = next(self.model.parameters()).device
        self.model.train()
        with progress.track("training", self.schedule.steps, "steps") as bar:
            bar.advance(self.step)
            while self.step < self.schedule.steps:
                self._train_step(torch.from_numpy(self._batch(pieces)).long().to(device))
                self.step += 1
                bar.advance(1)
                if self.step % self.schedule.save_every == 0 or self.step == self.schedule.steps:
                    bar.describe(f"training, loss {self._save():.3f}")
        self.training.detach()

    @property
    def layers_run(self) -> float:
        """Share of layer computations that dropout left."""
        rows = self.training.rows_run
        return sum(rows) / (len(rows) * self.schedule.steps * self.schedule.batch)

    def _batch(self, pieces: np.ndarray) -> np.ndarray:
        """The windows of a step, [batch, length]: each epoch is a permutation of all windows."""
        places = self.step * self.schedule.batch + np.arange(self.schedule.batch)
        epochs = places // len(pieces)
        order = {
            epoch: np.random.default_rng([self.seed, 1, epoch]).permutation(len(pieces))
            for epoch in np.unique(epochs)
        }
        batch = [
            order[epoch][place] for epoch, place in zip(epochs, places % len(pieces), strict=True)
        ]
        return pieces[batch]

    def _train_step(self, ids: torch.Tensor) -> None:
        self.training.begin(self.step)
        torch.manual_seed(self.seed + (self.step << 20))  # the model's own dropout
        loss = self.model(input_ids=ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for group in self.optimizer.param_groups:
            group["lr"] = self.schedule.rate(self.step)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.loss = loss.detach()

    def _save(self) -> float:
        """Replace the checkpoint; the loss."""
        loss, last = float(self.loss), float(self.training.losses[len(self.training.layers) - 1])
        if not math.isfinite(loss):
            raise HoldfastError(
                f"the loss is not finite\n  found: {loss} before step {self.step}\n"
                "  remedy: lower the learning rate"
            )
        self.losses.append({"step": self.step, "loss": loss, "last_loss": last})
        state = self.optimizer.state_dict()["state"]
        tensors = {
            f"{place}.{name}": value
            for place, part in state.items()
            for name, value in part.items()
        }
        facts = {"step": self.step, "losses": self.losses, "rows_run": self.training.rows_run}
        with atomic_folder(self.folder, replace=True) as draft:
            self.model.save_pretrained(draft)
            save_file(
                tensors, draft / "optimizer_state"
            )  # a suffix would make it part of the model
            write_whole(draft / "state.json", json.dumps(facts).encode())
        return loss

    def _load(self) -> None:
        facts = json.loads((self.folder / "state.json").read_bytes())
        self.step, self.losses = facts["step"], facts["losses"]
        self.training.rows_run = facts["rows_run"]
        state: dict[int, dict[str, torch.Tensor]] = {}
        for key, value in load_file(self.folder / "optimizer_state").items():
            place, name = key.split(".")
            state.setdefault(int(place), {})[name] = value
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": state})


def _opened(model: Path, texts: Texts, seed: int) -> tuple[Any, Any]:
    """Configuration and tokenizer."""
    folder = model if model.is_dir() else model.parent
    try:
        config = AutoConfig.from_pretrained(model, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise InputError(
            "the model cannot be read",
            code="unreadable" if model.exists() else "not-found",
            path=model,
            found=str(error).splitlines()[0][:200] if model.exists() else None,
            expected="a folder of a model, or config.json of a new one",
        ) from error
    check_config(config)  # before a model of a family that cannot be trained takes the memory
    tokenizer = open_tokenizer(folder)
    if tokenizer is not None or _has_weights(model):
        return config, tokenizer
    tokenizer = new_tokenizer(texts, config.vocab_size)
    config.bos_token_id = config.pad_token_id = None
    config.eos_token_id = tokenizer.eos_token_id
    return config, tokenizer


def _has_weights(model: Path) -> bool:
    return model.is_dir() and any(any(model.glob(pattern)) for pattern in _WEIGHTS)


def _model(source: Path, config: Any, seed: int) -> Any:
    """The model with its weights, or new ones, in float32 on the GPU if there is one."""
    if _has_weights(source):
        model = AutoModelForCausalLM.from_pretrained(
            source, config=config, dtype=torch.float32, local_files_only=True
        )
    else:
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    return model.to("cuda" if torch.cuda.is_available() else "cpu")


def _check(corpus: Corpus, schedule: Schedule, config: Any, tokens: int, data: Path) -> None:
    context = getattr(config, "max_position_embeddings", schedule.length)
    if tokens > config.vocab_size:
        raise InputError(
            "the tokenizer has more tokens than the model",
            code="conflict",
            place="vocab_size",
            found=str(config.vocab_size),
            expected=f"{tokens} or more",
        )
    for place, valid, expected in (
        ("length", 2 <= schedule.length <= context, f"2 to {context}, the positions of the model"),
        ("steps", schedule.steps >= 1, "1 or more"),
        ("batch", schedule.batch >= 1, "1 or more"),
        ("save_every", schedule.save_every >= 1, "1 or more"),
        ("learning_rate", 0 < schedule.learning_rate < math.inf, "above 0"),
    ):
        in_range(place, getattr(schedule, place), valid, expected)
    if min(len(corpus.train), len(corpus.held_out)) < schedule.length:
        raise InputError(
            "the text has fewer tokens than a window",
            code="no-data",
            path=data,
            found=f"{len(corpus.train)} tokens to train on, {len(corpus.held_out)} held out",
            expected=f"at least {schedule.length} of both",
            remedy="more text, or shorter windows",
        )
