"""What `holdfast runs exec` puts into each training process: a recorder, and hooks that feed it.

A step ends when the first optimizer that steps has stepped, and begins where the last one ended; after an
evaluation, when the batch of its first `backward` was there. Nothing is read back from an
accelerator but, in one of a hundred steps, whether the loss is a number.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import math
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

from holdfast.runs.recording.collectives import WAITS
from holdfast.runs.recording.identity import lived_s
from holdfast.runs.recording.recorder import RunRecorder
from holdfast.runs.recording.spans import Span

FOLDER, RUN_ID, PARENT, OWNER, HANG = (
    f"HOLDFAST_EXEC_{name}" for name in ("FOLDER", "RUN", "PARENT", "OWNER", "HANG")
)
"""Variables of the environment: where to record, the run, the pid of `runs exec`, that of the rank to which
a process belongs, and the seconds after which a silence is a hang."""
LAUNCHERS = ("torchrun", "accelerate", "deepspeed", "lightning", "mpirun", "horovodrun")
LAUNCHING_MODULES = (
    "torch.distributed.run",
    "torch.distributed.launch",
    "accelerate.commands.launch",
)
SLOW_LOOK = 100
"""Steps between two looks at a loss on an accelerator, each of which waits for the device."""
WEIGHT_LOOK = 50
"""Steps between two norms of the weights of a replicated model."""
LABELS = {"SLURM_JOB_ID": "slurm_job", "SLURM_RESTART_COUNT": "slurm_restarts"}


def start(environment: Mapping[str, str] = os.environ) -> None:
    """Record this process, now if a launcher says its rank, else when it trains; a rank's child never."""
    if FOLDER not in environment or OWNER in environment or is_launcher(sys.orig_argv):
        return
    training = Training(environment.get(PARENT) == str(os.getppid()))
    sys.meta_path.insert(0, _Patcher(training.patches()))
    sys.excepthook = training.with_place(sys.excepthook)
    if "RANK" in environment and "LOCAL_RANK" in environment:
        training.open()


def is_launcher(arguments: Sequence[str]) -> bool:
    """Whether a command line of Python is that of a program that only starts ranks."""
    words = iter(arguments[1:])
    for word in words:
        if word == "-m":
            return next(words, "") in LAUNCHING_MODULES
        if not word.startswith("-"):
            return Path(word).name in LAUNCHERS
        if word in ("-W", "-X"):
            next(words, "")
        elif word == "-c":
            return False
    return False


class Training:
    """The training of this process, as its hooks see it.

    Args:
        direct: it is what `runs exec` started itself.
    """

    def __init__(self, direct: bool) -> None:
        self.recorder: RunRecorder | None = None
        self._direct = direct
        self._pid = os.getpid()
        self._lead: int | None = None
        """The optimizer whose steps count: the first that stepped."""
        self._number = 0
        self._ended: float | None = None
        """When the last step ended."""
        self._begun = time.monotonic()
        self._unused = 0
        """Batches since then that no `backward` has followed."""
        self._inner_s = self._inner_before_s = 0.0
        """Time since then in spans of other kinds; of it, before the batch of the first `backward`."""
        self._waits, self._waits_before = WAITS.mark(), WAITS.mark()
        """`WAITS` when that batch was there, and when the last step ended."""
        self._has_gradients = self._ready = False
        self._loss: Any = None
        self._saving = False

    def open(self) -> RunRecorder:
        """Begin to record; processes that a program starts itself have their ranks from torch."""
        if self.recorder is not None:
            return self.recorder
        environment, torch = os.environ, sys.modules.get("torch.distributed")
        joined = torch is not None and torch.is_available() and torch.is_initialized()
        environment[OWNER] = str(self._pid)
        labels = {name: environment[key] for key, name in LABELS.items() if key in environment}
        self.recorder = RunRecorder(
            environment[FOLDER],
            environment[RUN_ID],
            rank=torch.get_rank() if joined and torch else None,
            world_size=torch.get_world_size() if joined and torch else None,
            labels=labels,
            hang_after_s=float(environment[HANG]),
        )
        return self.recorder

    def patches(self) -> dict[str, Callable[[ModuleType], None]]:
        """Module -> what to do when it has been imported."""
        return WAITS.patches() | {
            "torch._tensor": self._patch_backward,
            "torch.optim.optimizer": self._hook_optimizers,
            "torch.utils.data.dataloader": self._patch_loader,
            "torch.serialization": self._patch_save,
        }

    @property
    def _is_here(self) -> bool:
        """Whether a hook runs in the process and thread that are recorded."""
        return os.getpid() == self._pid and threading.current_thread() is threading.main_thread()

    # --- Hooks -----------------------------------------------------------------------------------

    def _hook_optimizers(self, module: ModuleType) -> None:
        module.register_optimizer_step_post_hook(self._stepped)  # type: ignore[attr-defined]

    def _stepped(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """An optimizer has stepped."""
        if not self._is_here:
            return
        recorder = self.open()
        if self._lead is None:
            self._lead = id(optimizer)
            # What a loaded checkpoint had completed, where the optimizer counts (Adam and its kin do).
            self._number = max(0, _steps_of(optimizer) - 1)
            self._be_ready()
        if id(optimizer) != self._lead:
            return
        self._number += 1
        span = Span(recorder, "step", self._number)
        span.begun, span.waits = self._begun, self._waits
        span.inner_s = self._inner_s - self._inner_before_s
        if self._follows(time.monotonic()):
            span.begun, span.inner_s = self._ended or 0.0, self._inner_s
            span.waits = self._waits_before
        span.loss = self._lost()
        if WAITS.replicates and self._number % WEIGHT_LOOK == 1:
            span.weight_norm = _weight_norm(optimizer)
        recorder._exit_span(span, None)
        self._ended = self._begun = time.monotonic()
        self._inner_s = self._inner_before_s = 0.0
        self._waits = self._waits_before = WAITS.mark()
        self._has_gradients, self._unused = False, 0

    def _follows(self, now: float) -> bool:
        """Whether what came between the last step and this one's batch belongs to this one.

        Such as writing a log; an evaluation does not, which is longer or takes batches.
        """
        if self._ended is None or self._unused > 1:
            return False
        between_s = self._begun - self._ended - self._inner_before_s
        return between_s <= now - self._begun

    def _be_ready(self) -> None:
        """The initialisation is over with the first batch, or else with the first step."""
        if not self._ready:
            self._ready = True
            self.open().ready()

    def _lost(self) -> float | None:
        """The last loss if it is no number; None: it is one, or nobody looked."""
        loss, self._loss = self._loss, None
        if loss is None or loss.numel() != 1:
            return None
        if loss.device.type != "cpu" and self._number % SLOW_LOOK:
            return None
        value = float(loss)
        # A finite one may be scaled or one of several: it would not be the training's.
        return None if math.isfinite(value) else value

    def _patch_backward(self, module: ModuleType) -> None:
        tensor: Any = module.Tensor  # type: ignore[attr-defined]
        backward = tensor.backward

        def marked(loss: Any, *args: Any, **kwargs: Any) -> Any:
            if self._is_here:
                self._has_gradients = True
                self._loss = loss.detach()
            return backward(loss, *args, **kwargs)

        tensor.backward = wraps(backward)(marked)

    def _patch_loader(self, module: ModuleType) -> None:
        iterator: Any = module._BaseDataLoaderIter  # type: ignore[attr-defined]
        following = iterator.__next__

        def timed(batches: Any) -> Any:
            if not self._is_here or not (self._direct or self.recorder):
                return following(batches)
            self._be_ready()
            with self.open().data_wait() as wait:
                batch = following(batches)
            self._inner_s += time.monotonic() - wait.begun
            if not self._has_gradients:  # else gradients accumulate over several batches
                self._begun, self._inner_before_s = time.monotonic(), self._inner_s
                self._waits = WAITS.mark()
                self._unused += 1
            return batch

        iterator.__next__ = wraps(following)(timed)

    def _patch_save(self, module: ModuleType) -> None:
        save: Any = module.save  # type: ignore[attr-defined]

        def timed(*args: Any, **kwargs: Any) -> Any:
            if self.recorder is None or self._saving or not self._is_here or not self._number:
                return save(*args, **kwargs)
            self._saving = True
            try:
                with self.recorder.checkpoint(self._number) as span:
                    return save(*args, **kwargs)
            finally:
                self._saving = False
                self._inner_s += time.monotonic() - span.begun

        module.save = wraps(save)(timed)  # type: ignore[attr-defined]

    def with_place(self, hook: Callable[..., Any]) -> Callable[..., Any]:
        """An excepthook that records an exception with its place, at once, and calls the one before."""

        def recorded(
            kind: type[BaseException], error: BaseException, trace: TracebackType | None
        ) -> None:
            if os.getpid() == self._pid and (self.recorder or (self._direct and self._is_alone())):
                if isinstance(error, KeyboardInterrupt):
                    self.open()._close("signal", "SIGINT")
                else:
                    self.open()._close("exception", described(error, trace))
            hook(kind, error, trace)

        return recorded

    def _is_alone(self) -> bool:
        """Whether no process that this one started has recorded the exception that comes up here."""
        own = Path(os.environ[FOLDER], os.environ[RUN_ID])
        since_s = time.time() - lived_s()
        return not any(each.stat().st_mtime > since_s for each in own.glob("rank-*.jsonl"))


def described(error: BaseException, trace: TracebackType | None) -> str:
    """``"ValueError: no such layer (train.py:12)"``: the place is the innermost outside libraries."""
    frames = [each for each in traceback.extract_tb(trace) if each.filename != __file__]
    own = [each for each in frames if "site-packages" not in each.filename] or frames
    place = f" ({Path(own[-1].filename).name}:{own[-1].lineno})" if own else ""
    return f"{type(error).__name__}: {error}{place}"


def _weight_norm(optimizer: Any) -> float:
    """Norm of all parameters that an optimizer has on this rank."""
    import torch

    weights = [each.detach() for group in optimizer.param_groups for each in group["params"]]
    norms = [torch.linalg.vector_norm(each, dtype=torch.float64) for each in weights]
    # Those of one device are added there, so that one number is waited for.
    return math.hypot(*torch.stack([norm.to(norms[0].device) for norm in norms]).tolist())


def _steps_of(optimizer: Any) -> int:
    """How many steps an optimizer says that it has made; 0 where it does not count."""
    state = next(iter(optimizer.state.values()), None)
    steps = state.get("step") if isinstance(state, dict) else None
    return 0 if steps is None else int(steps)


# --- Imports -------------------------------------------------------------------------------------


class _Patcher(importlib.abc.MetaPathFinder):
    """Finds modules as they would be found, and changes them once they have been executed."""

    def __init__(self, patches: Mapping[str, Callable[[ModuleType], None]]) -> None:
        self._patches = dict(patches)

    def find_spec(
        self, name: str, path: Any = None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The module's own spec, whose loader calls the patch."""
        patch = self._patches.pop(name, None)
        if patch is None:
            return None
        spec = importlib.util.find_spec(name)
        loader = None if spec is None else spec.loader
        if loader is None:
            return None
        execute = loader.exec_module

        def executed(module: ModuleType) -> None:
            execute(module)
            try:
                patch(module)
            except Exception as error:  # a torch that is made otherwise trains all the same
                print(f"holdfast: {name} is not recorded: {error!r}", file=sys.stderr)

        loader.exec_module = executed  # type: ignore[method-assign]
        return spec
