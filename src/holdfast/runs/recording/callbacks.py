"""Callbacks that record a training which another library's loop runs."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

from holdfast.errors import InputError
from holdfast.runs.recording.recorder import RunRecorder
from holdfast.runs.recording.spans import Span


def huggingface_callback(recorder: RunRecorder) -> Any:
    """A `transformers.TrainerCallback` that records what a `Trainer` does.

        with RunRecorder("events", "my-run") as recorder:
            Trainer(..., callbacks=[huggingface_callback(recorder)]).train()

    Steps are the optimizer's (`state.global_step`), and end after the loss is gathered where it is
    logged; data waits, evaluations and checkpoints are what lies between the trainer's own events. Loss
    and gradient norm come with the steps that are logged: the mean since the last log, in which the
    trainer hides NaN unless ``logging_nan_inf_filter=False``. Tokens come with
    ``include_num_input_tokens_seen``.

    Raises:
        InputError: transformers is not installed.
    """
    transformers = _imported("transformers")

    class RecorderCallback(transformers.TrainerCallback):  # type: ignore[misc, name-defined]
        """Turns the events of a `Trainer` into those of a recorder."""

        def __init__(self) -> None:
            self._phase = _Phase(recorder)
            self._in_epoch = False
            self._log_is_due = False
            self._tokens = 0

        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self._phase.leave()
            recorder.ready(resumed_from=state.global_step or None)

        def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self._in_epoch = True
            self._phase.enter(recorder.data_wait())

        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self._tokens = state.num_input_tokens_seen
            self._phase.was("data_wait")
            self._phase.enter(recorder.step(state.global_step + 1))

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            tokens = state.num_input_tokens_seen - self._tokens
            if tokens and self._phase.kind == "step":
                self._phase.span.tokens = tokens / args.world_size  # the trainer counts all ranks'
            self._log_is_due = control.should_log
            if not self._log_is_due:
                self._go_on(state, control)

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            if self._log_is_due and self._phase.kind == "step":
                self._phase.span.loss = (logs or {}).get("loss")
                self._phase.span.grad_norm = (logs or {}).get("grad_norm")
                self._go_on(state, control)
            self._log_is_due = False

        def on_prediction_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if self._phase.kind != "evaluation":  # one that nobody announced
                self._phase.enter(recorder.evaluation(state.global_step))

        def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self._phase.was("evaluation", state.global_step)
            self._go_on(state, control, evaluated=True)

        def on_predict(self, args: Any, state: Any, control: Any, *_: Any, **__: Any) -> None:
            self._phase.leave()

        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self._phase.was("checkpoint", state.global_step)
            self._phase.leave()
            if state.is_world_process_zero:
                recorder.published(state.global_step)
            if self._in_epoch:
                self._phase.enter(recorder.data_wait())

        def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self._in_epoch = False
            self._go_on(state, control)

        def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self._phase.leave()

        def _go_on(self, state: Any, control: Any, evaluated: bool = False) -> None:
            """End what was; begin what the trainer is going to do next."""
            if control.should_evaluate and not evaluated:
                self._phase.enter(recorder.evaluation(state.global_step))
            elif control.should_save:
                self._phase.enter(recorder.checkpoint(state.global_step))
            elif self._in_epoch:
                self._phase.enter(recorder.data_wait())
            else:
                self._phase.leave()

    return RecorderCallback()


def lightning_callback(recorder: RunRecorder) -> Any:
    """A `lightning.pytorch.Callback` that records what a `Trainer` does.

        with RunRecorder("events", "my-run") as recorder:
            Trainer(callbacks=[lightning_callback(recorder)]).fit(module, data)

    Steps are the optimizer's (`trainer.global_step`); with accumulated gradients a step holds several
    batches, and the waits for them are nested in it. Checkpoints are timed where the trainer saves them.
    The loss comes with every step on a CPU; on an accelerator, where reading it waits, with every
    ``log_every_n_steps``-th. The sanity check counts as initialisation.

    Raises:
        InputError: lightning is not installed.
    """
    old_name = "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules
    pytorch = _imported("pytorch_lightning" if old_name else "lightning.pytorch")

    class RecorderCallback(pytorch.Callback):  # type: ignore[misc, name-defined]
        """Turns the hooks of a `Trainer` into events of a recorder."""

        def __init__(self) -> None:
            self._step: Span | None = None
            self._phase = _Phase(recorder)  # inside the step, or between steps
            self._in_epoch = False
            self._loss: Any = None

        def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
            if "save_checkpoint" not in vars(trainer):  # Lightning has no hook after a checkpoint
                trainer.save_checkpoint = self._timed(trainer, trainer.save_checkpoint)

        def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
            vars(trainer).pop("save_checkpoint", None)

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            self._step = None
            self._phase.leave()
            recorder.ready(resumed_from=trainer.global_step or None)

        def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
            self._in_epoch = True
            self._phase.enter(recorder.data_wait())

        def on_train_batch_start(self, trainer: Any, *_: Any) -> None:
            self._phase.leave()
            if self._step is None:
                self._loss = None
                self._step = recorder.step(trainer.global_step + 1)
                self._step.__enter__()

        def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, *_: Any) -> None:
            loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
            if loss is not None:  # the trainer has divided it by the number of accumulated batches
                self._loss = loss if self._loss is None else self._loss + loss
            if self._step is not None and trainer.global_step >= (self._step.number or 0):
                self._step.number = trainer.global_step
                if self._is_cheap(trainer):
                    self._step.loss = self._loss
                self._end_step()
            self._phase.enter(recorder.data_wait())

        def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
            if not trainer.sanity_checking:
                self._phase.enter(recorder.evaluation(trainer.global_step))

        def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
            self._phase.leave()
            if self._in_epoch and not trainer.sanity_checking:
                self._phase.enter(recorder.data_wait())

        on_test_start = on_validation_start
        on_test_end = on_validation_end

        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            self._in_epoch = False
            self._phase.leave()

        def on_train_end(self, trainer: Any, pl_module: Any) -> None:
            self._phase.leave()
            self._end_step()

        def _end_step(self) -> None:
            if self._step is not None:
                self._step.__exit__(None, None, None)
                self._step = None

        def _is_cheap(self, trainer: Any) -> bool:
            if getattr(getattr(self._loss, "device", None), "type", "cpu") == "cpu":
                return True
            every = trainer.log_every_n_steps
            return bool(every) and trainer.global_step % every == 0

        def _timed(self, trainer: Any, save: Any) -> Any:
            def save_checkpoint(*arguments: Any, **options: Any) -> None:
                waited = self._phase.kind == "data_wait"
                if waited:
                    self._phase.leave()
                with recorder.checkpoint(trainer.global_step):
                    save(*arguments, **options)
                if trainer.is_global_zero and not _in_background(trainer):
                    recorder.published(trainer.global_step)
                if waited:
                    self._phase.enter(recorder.data_wait())

            return save_checkpoint

    return RecorderCallback()


class _Phase:
    """What a loop that tells only of changes is at: one span at a time."""

    def __init__(self, recorder: RunRecorder) -> None:
        self.span = recorder.data_wait()
        self._open = False

    @property
    def kind(self) -> str:
        """Kind of the open span; empty without one."""
        return self.span.kind if self._open else ""

    def enter(self, span: Span) -> None:
        """Begin a span where the last one ends."""
        self.leave()
        self.span, self._open = span, True
        span.__enter__()

    def was(self, kind: str, number: int | None = None) -> None:
        """The open span turns out to have been of this kind, whatever was announced."""
        if self._open and self.span.kind not in ("step", kind):
            self.span.kind, self.span.number = kind, number

    def leave(self) -> None:
        """End the open span, if there is one."""
        if self._open:
            self._open = False
            self.span.__exit__(None, None, None)


def _in_background(trainer: Any) -> bool:
    """Whether checkpoints are written in the background while the trainer continues."""
    writer = getattr(trainer.strategy, "checkpoint_io", None)
    return any(each.__name__ == "AsyncCheckpointIO" for each in type(writer).__mro__)


def _imported(library: str) -> ModuleType:
    try:
        return import_module(library)
    except ImportError:
        package = library.partition(".")[0]
        raise InputError(
            f"this callback needs {package}, which is not installed",
            code="missing-extra",
            remedy=f"pip install {package}",
        ) from None
