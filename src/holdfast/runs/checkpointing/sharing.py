"""One rank of a group reads; the others, which hold the same state, get it over the network.

As MegaScale does on recovery (arXiv 2402.15627, section 3.3): hundreds of data-parallel ranks that
read the same files are what makes a store slow just when everybody waits for it.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from holdfast.runs.checkpointing.leaves import key_of, leaves, put
from holdfast.runs.checkpointing.staging import local


def broadcast_state(state_dict: dict[str, Any], replicas: Any) -> None:
    """Make the state of a group's first rank that of all, in place.

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
