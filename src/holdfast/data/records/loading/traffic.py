"""Numbers that the processes of one dataset share: epoch, fidelity, and what was read and waited for."""

from __future__ import annotations

import threading
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from holdfast.data.records.reading.records import checked_fidelity
from holdfast.data.records.reading.stores import Store
from holdfast.data.records.tuning.mixture import Mixture
from holdfast.errors import MissingExtraError

try:
    import torch
except ImportError as error:
    raise MissingExtraError("torch", "torch") from error

Fidelity: TypeAlias = int | Literal["full"] | Mixture


class Traffic(NamedTuple):
    """What one dataset's processes have read and waited for on this rank, since it was opened."""

    bytes: float = 0
    """Bytes that storage gave, without the manifest."""
    requests: float = 0
    """Requests for them."""
    images: float = 0
    """Images delivered."""
    skipped: float = 0
    """Images left out for damage, or because the quarantine lists them."""
    degraded: float = 0
    """Images served below their fidelity for damage."""
    storage_s: float = 0
    """Seconds for which a process waited for bytes from storage; summed over processes."""
    decode_s: float = 0
    """Seconds for which it waited for images to be decoded (or otherwise processed)."""
    reading_s: float = 0
    """Seconds from the start of iterating to the latest images; summed over processes."""
    waited_s: float = 0
    """Seconds that the consumer of a `Loader` waited for batches."""
    consuming_s: float = 0
    """Seconds from the start of iterating over a `Loader` to its latest batch."""

    def __sub__(self, earlier: Traffic) -> Traffic:
        """What came to pass since an earlier look."""
        return Traffic(*(a - b for a, b in zip(self, earlier, strict=True)))

    @property
    def storage_share(self) -> float:
        """The share of its time, 0 to 1, for which the consumer waited because bytes had not arrived.

        Where the dataset is iterated over in the consumer's process, that is measured. The time for which
        the consumer of a `Loader` waited is taken to be storage's by as much as the waiting of the
        processes that read was. Workers of another loader tell the share of their own time.
        """
        if self.consuming_s > 0:
            waiting = self.storage_s + self.decode_s
            return self.waited_s / self.consuming_s * self.storage_s / waiting if waiting else 0.0
        return self.storage_s / self.reading_s if self.reading_s > 0 else 0.0


_COUNTERS = len(Traffic._fields)
_WORKERS = 512  # rows of counters; workers beyond share rows
_MAX_GROUPS = 64
_SLOTS = 4
_KINDS: tuple[Literal["record"], Literal["image"]] = ("record", "image")
# epoch, version of the fidelity, then slots of: kind (0 fixed, 1 by record, 2 by image), fidelity, shares
_SLOT = 2 + _MAX_GROUPS
_ROWS_AT = 2 + _SLOTS * _SLOT


class Board:
    """Shared memory in which a dataset's processes see the same epoch and fidelity, and count.

    Every number has one writer: the maker writes the epoch and the fidelity, each process its own row of
    counters. A fidelity is written to a slot that is not in use, then its version is raised: a reader
    sees the old or the new one, never a part of it.

    Args:
        groups: G, the highest fidelity.
    """

    def __init__(self, groups: int) -> None:
        self.groups = groups
        size = _ROWS_AT + (_WORKERS + 1) * _COUNTERS
        self._shared: Any = torch.zeros(size, dtype=torch.float64).share_memory_()
        self._view()

    def _view(self) -> None:
        self._numbers: npt.NDArray[np.float64] = self._shared.numpy()
        self._rows = self._numbers[_ROWS_AT:].reshape(-1, _COUNTERS)

    def __getstate__(self) -> dict[str, Any]:
        return {"groups": self.groups, "_shared": self._shared}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state
        self._view()

    @property
    def epoch(self) -> int:
        """The epoch that the next iteration is of."""
        return int(self._numbers[0])

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self._numbers[0] = epoch

    @property
    def fidelity(self) -> int | Mixture:
        """What is read of the stretches that are planned from now on."""
        at = 2 + int(self._numbers[1]) % _SLOTS * _SLOT
        kind, fixed = int(self._numbers[at]), int(self._numbers[at + 1])
        if not kind:
            return fixed
        shares = self._numbers[at + 2 : at + 2 + self.groups].tolist()
        return Mixture(
            {group: share for group, share in enumerate(shares, 1) if share}, _KINDS[kind - 1]
        )

    @fidelity.setter
    def fidelity(self, fidelity: Fidelity) -> None:
        kind, fixed, shares = 0, 0, np.zeros(self.groups)
        if isinstance(fidelity, Mixture):
            kind, shares = 1 + _KINDS.index(fidelity.by), fidelity.shares(self.groups)
        else:
            fixed = checked_fidelity(fidelity, self.groups)
        version = int(self._numbers[1]) + 1
        at = 2 + version % _SLOTS * _SLOT
        self._numbers[at : at + 2] = kind, fixed
        self._numbers[at + 2 : at + 2 + self.groups] = shares
        self._numbers[1] = version

    def add(self, worker: int | None, passed: Traffic) -> None:
        """Count what one process did.

        Args:
            worker: its number; None for the process that made the dataset.
            passed: since it was last called.
        """
        self._rows[0 if worker is None else 1 + worker % _WORKERS] += passed

    def traffic(self) -> Traffic:
        """The counters of all processes together."""
        return Traffic(*self._rows.sum(0).tolist())


class Since:
    """Traffic since it was last asked for."""

    def __init__(self) -> None:
        self._seen = Traffic()

    def __call__(self, now: Traffic) -> Traffic:
        """What came to pass since the last call."""
        passed, self._seen = now - self._seen, now
        return passed


class Meter:
    """What a store gave this process, since it was last asked for."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._seen = store.bytes_read, store.requests

    def __call__(self) -> Traffic:
        """What came to pass since the last call."""
        with self._lock:
            now = self._store.bytes_read, self._store.requests
            before, self._seen = self._seen, now
        return Traffic(bytes=now[0] - before[0], requests=now[1] - before[1])
