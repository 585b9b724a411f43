"""Loading one checkpoint on all ranks: its checksums are compared, then it is read, or broadcast."""

from __future__ import annotations

import warnings
from contextlib import ExitStack
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint import load
from torch.distributed.checkpoint.stateful import Stateful

from holdfast.files import Lock, LockHeldError
from holdfast.runs.checkpointing.causes import could_not_load
from holdfast.runs.checkpointing.folder import Checkpoint, Damage, damage_by_checksum
from holdfast.runs.checkpointing.leaves import key_of, leaves, put
from holdfast.runs.checkpointing.manifest import MANIFEST
from holdfast.runs.checkpointing.ranks import Ranks
from holdfast.runs.checkpointing.reading import (
    CarefulPlanner,
    CarefulReader,
    read_metadata,
    refuse_unasked,
    requested_keys,
)
from holdfast.runs.checkpointing.staging import local

ALONE = r"torch\.distributed is .*unavailable or uninitialized, assuming the intent is to"
"""Torch's warning that a process saves or loads by itself, which here is no accident."""


class Loading:
    """One checkpoint on its way into the state of all ranks."""

    def __init__(
        self, checkpoint: Checkpoint, ranks: Ranks, replicas: Any, resources: ExitStack
    ) -> None:
        """Begin; every rank does.

        Args:
            checkpoint: the same on all ranks.
            ranks: who loads.
            replicas: the process group of ranks with the same state, whose first alone reads; or None.
            resources: keeps the checkpoint from being removed until it is closed.
        """
        self._checkpoint = checkpoint
        self._ranks = ranks
        self._replicas = replicas
        self._held = resources
        self._reads = replicas is None or dist.get_rank(replicas) == 0

    def damage(self) -> list[Damage]:
        """What is damaged, the same answer on all ranks; each reader sums its share of the files."""
        manifest = self._checkpoint.manifest
        if manifest is None or self._checkpoint.damage:
            return list(self._checkpoint.damage)
        readers = [rank for rank, reads in enumerate(self._ranks.gather(self._reads)) if reads]

        def share() -> list[Damage]:
            if not self._reads:
                return []
            mine = manifest.files[readers.index(self._ranks.rank) :: len(readers)]
            return self._hold() or [
                one for file in mine for one in damage_by_checksum(self._checkpoint.path, file)
            ]

        return [one for found in self._ranks.everywhere(share) for one in found]

    def _hold(self) -> list[Damage]:
        """Keep the checkpoint from being removed; what is missing if that comes too late."""
        path = self._checkpoint.path / MANIFEST
        try:
            self._held.enter_context(Lock(path, shared=True))
            path.stat()  # it may have gone between the opening and the lock
        except (LockHeldError, FileNotFoundError):
            return [Damage(MANIFEST, "missing", "a manifest", "it was just removed")]
        return []

    def into(self, state_dict: dict[str, Any], strict: bool) -> None:
        """Read the checkpoint into a state dict, in place.

        Raises:
            InputError: if the two do not fit, the same on all ranks.
            StoreError: if it cannot be read.
        """
        state = {
            key: value.state_dict() if isinstance(value, Stateful) else value
            for key, value in state_dict.items()
        }
        metadata = self._fitting(state, strict)
        if self._replicas is None:
            self._read(state, metadata, self._ranks.group)
        else:
            self._ranks.everywhere(
                lambda: self._read(state, metadata, self._ranks.alone()) if self._reads else None
            )
            broadcast_state(state, self._replicas)
        for key, value in state_dict.items():
            if isinstance(value, Stateful):
                value.load_state_dict(state[key])
            else:
                state_dict[key] = state[key]

    def _fitting(self, state: dict[str, Any], strict: bool) -> Any:
        """The table of contents, for a reader, after it was held against the state dicts of all."""
        path, metadata = self._checkpoint.path, None

        def ask() -> int:
            nonlocal metadata
            if not self._reads:
                return 0
            metadata = read_metadata(path)
            return requested_keys(state, metadata, path)

        asked_by_all = 0
        for one in self._ranks.everywhere(ask):
            asked_by_all |= one
        if strict:
            self._ranks.everywhere(
                lambda: refuse_unasked(asked_by_all, metadata, path) if metadata else None
            )
        return metadata

    def _read(self, state: dict[str, Any], metadata: Any, group: Any) -> None:
        path = self._checkpoint.path
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message=ALONE)
                load(
                    state,
                    storage_reader=CarefulReader(path, metadata),
                    planner=CarefulPlanner(path),
                    process_group=group,
                )
        except BaseException as error:  # DCP's own errors are no Exception
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise
            raise could_not_load(path, error) from error


def broadcast_state(state_dict: dict[str, Any], replicas: Any) -> None:
    """Make the state of a group's first rank that of all, in place.

    As MegaScale does on recovery (arXiv 2402.15627, section 3.3): hundreds of data-parallel ranks that
    read the same files are what makes a store slow just when everybody waits for it.

    Args:
        state_dict: the same keys, shapes and types on all ranks.
        replicas: the process group, of any backend.
    """
    source = dist.get_process_group_ranks(replicas)[0]
    parts = sorted(leaves(state_dict), key=lambda leaf: key_of(leaf[0]))
    values = [part for _, part in parts if not isinstance(part, torch.Tensor)]
    sent = [values if dist.get_rank() == source else None]
    dist.broadcast_object_list(sent, src=source, group=replicas)
    told = iter(sent[0] or [])
    with torch.no_grad():
        for path, part in parts:
            if isinstance(part, torch.Tensor):
                _broadcast(local(part), source, replicas)
            else:
                put(state_dict, path, next(told))


def _broadcast(tensor: torch.Tensor, source: int, replicas: Any) -> None:
    device = _carrier(tensor, replicas)
    sent = tensor.to(device).contiguous()
    dist.broadcast(sent, src=source, group=replicas)
    if sent.data_ptr() != tensor.data_ptr():
        tensor.copy_(sent)


def _carrier(tensor: torch.Tensor, replicas: Any) -> torch.device:
    """The device from which the group can send the tensor: its own where possible."""
    backends = dict(
        each.split(":") for each in dist.get_backend_config(replicas).split(",") if ":" in each
    )
    if not backends or tensor.device.type in backends:
        return tensor.device
    kind = next(iter(backends))
    return (
        torch.device(kind)
        if kind == "cpu"
        else torch.device(kind, torch.accelerator.current_device_index())
    )
