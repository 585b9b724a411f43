"""A device that is not the CPU, played on the CPU: tensors there do not mix with those here.

Inside `elsewhere()` torch knows the device ELSEWHERE. An operation on its tensors and on tensors of the CPU
at once fails, as it would on a GPU, and every wait for a number from the device is counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map_only

ELSEWHERE = torch.device("meta")  # torch asks nothing of this one
WAITS = {"_local_scalar_dense", "nonzero", "unique_consecutive", "_unique2", "masked_select"}


class Remote(torch.Tensor):
    """A tensor there; what it holds is kept here."""

    here: torch.Tensor

    @staticmethod
    def __new__(cls, here: torch.Tensor) -> Remote:
        made: Remote = torch.Tensor._make_wrapper_subclass(
            cls,
            here.size(),
            strides=here.stride(),
            storage_offset=here.storage_offset(),
            dtype=here.dtype,
            device=ELSEWHERE,
        )
        made.here = here
        return made

    @classmethod
    def __torch_dispatch__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        raise AssertionError(f"{function} on a remote tensor outside of elsewhere()")


class _Device(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.waits: Counter[str] = Counter()

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        name = function.overloadpacket.__name__
        tensors = [x for x in tree_flatten((args, kwargs))[0] if isinstance(x, torch.Tensor)]
        remote = [x for x in tensors if isinstance(x, Remote)]
        wanted = kwargs.get("device")
        moves = name in ("_to_copy", "copy_")
        if remote and not moves:
            mixed = [x for x in tensors if not isinstance(x, Remote) and x.dim() > 0]
            assert not mixed, f"{name} mixes devices"
            self._count(name, args, kwargs)
        lands_there = bool(remote) if wanted is None else torch.device(wanted).type == "meta"
        if wanted is not None:
            kwargs["device"] = torch.device("cpu")
        if moves and remote and not lands_there:
            self.waits["copied back"] += 1
        args, kwargs = tree_map_only(Remote, lambda x: x.here, (args, kwargs))
        made = function(*args, **kwargs)
        if name.endswith("_") and not name.startswith("_") and remote:
            return remote[0]
        if not lands_there:
            return made
        return tree_map_only(torch.Tensor, Remote, made)

    def _count(self, name: str, args: Any, kwargs: Any) -> None:
        if name in WAITS:
            self.waits[name] += 1
        if name == "repeat_interleave" and kwargs.get("output_size") is None:
            self.waits[name] += 1
        if name in ("index", "index_put_") and any(
            x is not None and x.dtype == torch.bool for x in args[1]
        ):
            self.waits["index by bool"] += 1


@contextmanager
def elsewhere() -> Iterator[Counter[str]]:
    """Play the device; gives the counts of waits, by operation."""
    device = _Device()
    with device:
        yield device.waits
