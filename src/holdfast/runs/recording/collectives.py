"""How long a process waits for other ranks, without a change to its code: `WAITS`.

A wait is measured where the program's thread stands still: in `Work.wait`, which ends every collective and
message that Python calls (also those of FSDP and of pipelines), and in `wait_tensor`, which ends those of
DTensor. The reducer of `DistributedDataParallel` waits in C++: its wait lasts from the moment at which a
backward has computed every gradient, so that its last bucket is ready, until all buckets are reduced.

With an accelerator these calls return at once and the device waits instead, so nothing is measured there.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping
from functools import wraps
from types import ModuleType
from typing import Any
from weakref import WeakSet

MESSAGES = ("send", "recv")
"""Kinds of waits for one other rank. In a pipeline they hold what that rank computes."""
_KINDS = (
    *("broadcast", "all_reduce", "all_reduce", "reduce", "all_gather", "all_gather", "all_gather"),
    *("gather", "scatter", "reduce_scatter", "all_to_all", "all_to_all", "send", "recv", "recv"),
    *("barrier", "reduce_scatter", "coalesced"),
)
"""By the numbers of c10d's `OpType`."""


class Waits:
    """Seconds that this process has waited for others, by kind of operation.

    Of waits inside each other (`all_gather_object` waits for several collectives, DDP's hooks may, too)
    the outer one counts. Only the main thread is looked at, as the recorder's spans are of one thread.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        """Kind (``"all_reduce"``, ``"recv"``, ``"gradients"`` for DDP's) -> seconds so far."""
        self._since: float | None = None
        self._asked = False
        self._blocks: bool | None = None
        self._hooked: WeakSet[Any] = WeakSet()

    def mark(self) -> dict[str, float]:
        """A copy of `seconds`, to compare with; what an exception has left open is over."""
        self._since, self._asked = None, False
        return dict(self.seconds)

    def forget(self, before: Mapping[str, float]) -> None:
        """Take out what was added since a `mark`."""
        self.seconds = dict(before)

    def since(self, before: Mapping[str, float]) -> dict[str, float]:
        """What was added to an earlier copy of `seconds`; empty where no wait was seen."""
        kinds = [each for each in self.seconds if self.seconds[each] != before.get(each)]
        return {each: round(self.seconds[each] - before.get(each, 0.0), 6) for each in kinds}

    def patches(self) -> dict[str, Callable[[ModuleType], None]]:
        """Module -> what to do when it has been imported."""
        return {
            "torch.distributed.distributed_c10d": self._patch_work,
            "torch.distributed._functional_collectives": self._patch_functional,
            "torch.nn.parallel.distributed": self._patch_ddp,
        }

    @property
    def replicates(self) -> bool:
        """Whether a model of this process is held by other ranks, too (DDP)."""
        return len(self._hooked) > 0

    def install(self) -> None:
        """Measure from now on, in the modules that are there."""
        for name, patch in self.patches().items():
            if name in sys.modules and not hasattr(sys.modules[name], "_holdfast_waits"):
                patch(sys.modules[name])

    def _patch_work(self, module: ModuleType) -> None:
        module._holdfast_waits = self  # type: ignore[attr-defined]
        work: Any = module.Work  # type: ignore[attr-defined]
        work.wait = self._timed(work.wait, _kind)

    def _patch_functional(self, module: ModuleType) -> None:
        module._holdfast_waits = self  # type: ignore[attr-defined]
        functional: Any = module
        functional.wait_tensor = self._timed(functional.wait_tensor, lambda tensor: "tensor")

    def _timed(self, wait: Any, kind: Callable[[Any], str]) -> Any:
        """A function that waits, measured; `kind` tells the kind by its first argument."""

        @wraps(wait)
        def timed(each: Any, *args: Any, **kwargs: Any) -> Any:
            if not self._begin():
                return wait(each, *args, **kwargs)
            try:
                return wait(each, *args, **kwargs)
            finally:
                self._end(kind(each))

        return timed

    def _patch_ddp(self, module: ModuleType) -> None:
        module._holdfast_waits = self  # type: ignore[attr-defined]
        ddp: Any = module.DistributedDataParallel  # type: ignore[attr-defined]
        forward = ddp.forward

        @wraps(forward)
        def hooked(model: Any, *args: Any, **kwargs: Any) -> Any:
            if model not in self._hooked:
                self._hooked.add(model)
                self._hook(model)
            return forward(model, *args, **kwargs)

        ddp.forward = hooked

    def _hook(self, model: Any) -> None:
        """Note when a backward through the model has its gradients, and when they are reduced.

        What autograd calls at the end of a backward it calls in the order in which it was asked to. A
        parameter's own hook runs before the reducer's, which asks for its wait when the last bucket is
        ready; so the first of these callbacks comes before that wait, and what it asks for after it.
        """
        from torch.autograd import Variable

        engine: Any = Variable._execution_engine

        def ready() -> None:
            self._asked = False
            if self._begin():
                engine.queue_callback(lambda: self._end("gradients"))

        def ask(parameter: Any) -> None:
            if not self._asked and threading.current_thread() is threading.main_thread():
                self._asked = True
                engine.queue_callback(ready)

        trained = [each for each in model.parameters() if each.requires_grad]
        for parameter in {id(each): each for each in trained[:1] + trained[-1:]}.values():
            parameter.register_post_accumulate_grad_hook(ask)

    def _begin(self) -> bool:
        """A wait begins, if it is one that counts."""
        if self._since is not None or threading.current_thread() is not threading.main_thread():
            return False
        if self._blocks is None:
            accelerator = getattr(sys.modules.get("torch"), "accelerator", None)
            self._blocks = accelerator is not None and not accelerator.is_available()
        if self._blocks:
            self._since = time.monotonic()
        return self._blocks

    def _end(self, kind: str) -> None:
        since, self._since = self._since, None
        if since is not None:
            waited = time.monotonic() - since
            self.seconds[kind] = self.seconds.get(kind, 0.0) + waited


def _kind(work: Any) -> str:
    try:
        return _KINDS[int(work._get_op_type())]
    except (AttributeError, IndexError, TypeError, ValueError, RuntimeError):
        return "other"


WAITS = Waits()
"""Those of this process."""
