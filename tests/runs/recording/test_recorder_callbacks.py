"""The callbacks in real, tiny trainings of the libraries that call them."""

from __future__ import annotations

import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import InputError
from holdfast.runs import RunRecorder, huggingface_callback, lightning_callback, read_run
from holdfast.runs.recording.events import RecordedRun

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def _offline_and_single(monkeypatch: pytest.MonkeyPatch) -> Any:
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_HUB_DISABLE_TELEMETRY"):
        monkeypatch.setenv(name, "1")
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "SLURM_PROCID", "SLURM_NTASKS"):
        monkeypatch.delenv(name, raising=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the libraries, about this machine
        yield


def rows(run: RecordedRun, attempt: int = 0) -> list[dict[str, Any]]:
    return [
        row
        for row in run.events.to_pylist()
        if row["process"] == attempt and row["event"] not in ("alive", "begin")
    ]


def kinds(run: RecordedRun, attempt: int = 0) -> list[str]:
    """Events in short, data waits left out."""
    short = {"step": "s", "evaluation": "e", "checkpoint": "c", "published": "p", "ready": "r"}
    return [
        f"{short[row['event']]}{'' if row['step'] is None else row['step']}"
        for row in rows(run, attempt)
        if row["event"] in short
    ]


def words(text: str) -> list[str]:
    return text.split()


def spans_are_apart(run: RecordedRun) -> bool:
    """Own times of all spans fit into the life of each process, and no begin is later than an end."""
    own = Counter()
    for row in run.events.to_pylist():
        own[row["process"]] += (row["seconds"] or 0.0) - row["inner_s"]
    return all(
        0 <= own[index] <= process.last_t + 1e-3 for index, process in enumerate(run.processes)
    )


# --- transformers --------------------------------------------------------------------------------


def hf_trainer(folder: Path, recorder: RunRecorder, **options: Any) -> Any:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        n_layer=1, n_head=1, n_embd=8, vocab_size=16, n_positions=8, bos_token_id=0, eos_token_id=0
    )
    torch.manual_seed(0)
    data = [{"input_ids": torch.arange(8) % 16, "labels": torch.arange(8) % 16} for _ in range(24)]
    arguments = transformers.TrainingArguments(
        folder / "out",
        per_device_train_batch_size=2,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        seed=1,
        dataloader_pin_memory=False,
        **options,
    )
    return transformers.Trainer(
        transformers.GPT2LMHeadModel(config),
        arguments,
        train_dataset=data,
        eval_dataset=data[:4],
        callbacks=[huggingface_callback(recorder)],
    )


def test_a_transformers_training_and_its_resumption(tmp_path: Path) -> None:
    options = {
        "max_steps": 6,
        "gradient_accumulation_steps": 2,
        "logging_steps": 2,
        "eval_strategy": "steps",
        "eval_steps": 3,
        "save_steps": 3,
        "include_num_input_tokens_seen": "all",
    }
    with RunRecorder(tmp_path, "run") as recorder:
        hf_trainer(tmp_path, recorder, **options).train()
    checkpoint = tmp_path / "out" / "checkpoint-3"
    with RunRecorder(tmp_path, "run") as recorder:
        hf_trainer(tmp_path, recorder, **options).train(resume_from_checkpoint=str(checkpoint))
    run = read_run(tmp_path, "run")
    assert kinds(run) == ["r", *words("s1 s2 s3 e3 c3 p3 s4 s5 s6 e6 c6 p6")]
    assert kinds(run, 1) == ["r", *words("s4 s5 s6 e6 c6 p6")]
    assert [process.resumed_from for process in run.processes] == [None, 3]
    steps = [row for row in rows(run) if row["event"] == "step"]
    assert [row["loss"] is not None for row in steps] == [False, True] * 3
    assert [row["grad_norm"] is not None for row in steps] == [False, True] * 3
    assert {row["tokens"] for row in steps} == {2 * 2 * 8}
    assert Counter(row["event"] for row in rows(run))["data_wait"] >= 6
    assert spans_are_apart(run)
    before = [
        earlier["event"]
        for earlier, later in zip(rows(run), rows(run)[1:], strict=False)
        if later["event"] == "step"
    ]
    assert set(before) == {"data_wait"}


@pytest.mark.full
def test_transformers_by_epoch_with_evaluations_alone(tmp_path: Path) -> None:
    with RunRecorder(tmp_path, "run") as recorder:
        trainer = hf_trainer(
            tmp_path,
            recorder,
            num_train_epochs=2,
            gradient_accumulation_steps=4,
            eval_strategy="epoch",
            save_strategy="epoch",
            logging_strategy="epoch",
            eval_on_start=True,
        )
        trainer.train()
        trainer.evaluate()
        trainer.predict(trainer.eval_dataset)
    run = read_run(tmp_path, "run")
    assert kinds(run) == ["r", *words("e0 s1 s2 s3 e3 c3 p3 s4 s5 s6 e6 c6 p6 e6 e6")]
    assert spans_are_apart(run)


@pytest.mark.full
def test_transformers_callback_when_others_change_the_plan(tmp_path: Path) -> None:
    """A callback that comes later wants a checkpoint at step 2, and none at step 3."""
    transformers = pytest.importorskip("transformers")

    class Changes(transformers.TrainerCallback):  # type: ignore[misc, name-defined]
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            control.should_save = state.global_step == 2

    with RunRecorder(tmp_path, "run") as recorder:
        trainer = hf_trainer(tmp_path, recorder, max_steps=4, save_steps=3)
        trainer.add_callback(Changes())
        trainer.train()
    run = read_run(tmp_path, "run")
    assert kinds(run)[:6] == ["r", "s1", "s2", "c2", "p2", "s3"]
    assert "c3" not in kinds(run)
    assert Counter(row["event"] for row in rows(run))["data_wait"] >= 4


# --- lightning -----------------------------------------------------------------------------------


def fit(folder: Path, recorder: RunRecorder, resume: Path | None = None, **options: Any) -> Any:
    lightning = pytest.importorskip("lightning.pytorch")

    class Module(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch: Any, _: int) -> Any:
            return self.layer(batch).square().mean() * 0 + 2.5

        def validation_step(self, batch: Any, _: int) -> None:
            self.layer(batch)

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    data = torch.utils.data.DataLoader(torch.zeros(16, 4), batch_size=2)
    trainer = lightning.Trainer(
        default_root_dir=folder / "lightning",
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[
            lightning_callback(recorder),
            lightning.callbacks.ModelCheckpoint(
                folder / "saved", every_n_train_steps=2, save_top_k=-1
            ),
        ],
        **options,
    )
    trainer.fit(Module(), data, data, ckpt_path=resume, weights_only=False)
    return trainer


def test_a_lightning_training_and_its_resumption(tmp_path: Path) -> None:
    options = {"accumulate_grad_batches": 2, "val_check_interval": 4, "max_epochs": 1}
    with RunRecorder(tmp_path, "run") as recorder:
        fit(tmp_path, recorder, **options)
    saved = min((tmp_path / "saved").glob("*.ckpt"), key=lambda path: path.name)
    with RunRecorder(tmp_path, "run") as recorder:
        trainer = fit(tmp_path, recorder, resume=saved, **options)
    run = read_run(tmp_path, "run")
    assert kinds(run) == ["r", *words("s1 s2 c2 p2 e2 s3 s4 c4 p4 e4")]
    assert [kind for kind in kinds(run, 1) if kind.startswith("s")] == ["s3", "s4"]
    assert [process.resumed_from for process in run.processes] == [None, 2]
    steps = [row for row in rows(run) if row["event"] == "step"]
    assert [row["loss"] for row in steps] == [2.5] * 4
    assert all(row["inner_s"] > 0 for row in steps)  # the wait for the second batch
    assert all(row["inner_s"] == 0 for row in rows(run) if row["event"] == "data_wait")
    assert spans_are_apart(run)
    assert "save_checkpoint" not in vars(trainer)


@pytest.mark.full
def test_lightning_over_epochs_and_alone(tmp_path: Path) -> None:
    with RunRecorder(tmp_path, "run") as recorder:
        trainer = fit(tmp_path, recorder, max_epochs=2, limit_train_batches=2)
        trainer.validate(trainer.lightning_module, torch.utils.data.DataLoader(torch.zeros(4, 4)))
    run = read_run(tmp_path, "run")
    expected = words("s1 s2 c2 p2 e2 s3 s4 c4 p4 e4 e4")
    assert kinds(run) == ["r", *expected]
    assert spans_are_apart(run)


# --- Neither -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "library"),
    [(huggingface_callback, "transformers"), (lightning_callback, "lightning")],
)
def test_a_library_that_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Any, library: str
) -> None:
    monkeypatch.setattr(
        "holdfast.runs.recording.callbacks.import_module",
        lambda name: (_ for _ in ()).throw(ImportError(name)),
    )
    with RunRecorder(tmp_path, "run") as recorder, pytest.raises(InputError, match=library):
        make(recorder)
