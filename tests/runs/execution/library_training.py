"""Tiny trainings in loops of libraries: ``library_training.py LIBRARY FOLDER [CHECKPOINT]``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch

STEPS, ACCUMULATED, SAVE_EVERY = 6, 2, 3


def transformers(folder: Path, checkpoint: str | None) -> None:
    """Train a GPT-2 of one layer with the Trainer of transformers."""
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    config = GPT2Config(n_layer=1, n_head=1, n_embd=8, vocab_size=16, n_positions=8)
    tokens = torch.arange(8) % 16
    arguments = TrainingArguments(
        folder / "out",
        per_device_train_batch_size=2,
        gradient_accumulation_steps=ACCUMULATED,
        max_steps=STEPS,
        save_steps=SAVE_EVERY,
        eval_strategy="steps",
        eval_steps=SAVE_EVERY,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    data = [{"input_ids": tokens, "labels": tokens} for _ in range(24)]
    trainer = Trainer(GPT2LMHeadModel(config), arguments, train_dataset=data, eval_dataset=data[:4])
    trainer.train(resume_from_checkpoint=checkpoint)


def lightning(folder: Path, checkpoint: str | None) -> None:
    """Train one layer with the Trainer of Lightning."""
    from lightning.pytorch import LightningModule, Trainer
    from lightning.pytorch.callbacks import ModelCheckpoint

    class Module(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch: Any, _: int) -> Any:
            return self.layer(batch).square().mean()

        def validation_step(self, batch: Any, _: int) -> None:
            self.layer(batch)

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(self.parameters())

    saving = ModelCheckpoint(
        folder / "out",
        filename="checkpoint-{step}",
        auto_insert_metric_name=False,
        every_n_train_steps=SAVE_EVERY,
        save_top_k=-1,
    )
    trainer = Trainer(
        default_root_dir=folder,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        accumulate_grad_batches=ACCUMULATED,
        max_steps=STEPS,
        val_check_interval=SAVE_EVERY * ACCUMULATED,
        callbacks=[saving],
    )
    data = torch.utils.data.DataLoader(torch.zeros(24, 4), batch_size=2)
    trainer.fit(Module(), data, data, ckpt_path=checkpoint, weights_only=False)


if __name__ == "__main__":
    train = {"transformers": transformers, "lightning": lightning}[sys.argv[1]]
    train(Path(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else None)
