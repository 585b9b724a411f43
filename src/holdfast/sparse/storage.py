"""Packed models as safetensors files: written, read back, checked, described.

A packed file is a state dict like any other; its metadata hold, as JSON under ``holdfast-sparse``, the
CRC-32 of every tensor and the names that share one (``tied``). Nothing is ever unpickled.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from holdfast.answer import Answer, ColumnFormat, How, Section, Table, Value
from holdfast.errors import InputError
from holdfast.files import write_whole
from holdfast.numbers import counted, percent, size
from holdfast.report.figures import bars
from holdfast.sparse.layers import Choice, Decision, decision, install, matrices_in, pack_state
from holdfast.sparse.schedules import kind_of, no_weights

METADATA = "holdfast-sparse"
SHORT = (torch.bfloat16, torch.float16)


def save(model: nn.Module | Mapping[str, Tensor], path: str | Path) -> None:
    """Write a packed model, or its state dict, as one safetensors file.

    Args:
        model: such as `pack` returns.
        path: replaced at once, when everything is written.
    """
    state = model.state_dict() if isinstance(model, nn.Module) else model
    tensors: dict[str, Tensor] = {}
    tied: dict[str, str] = {}
    names: dict[tuple[Any, ...], str] = {}
    for name, tensor in state.items():
        # safetensors stores no views: one name holds the data, the others refer to it.
        key = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)
        holder = names.setdefault(key, name) if tensor.numel() else name
        if holder == name:
            tensors[name] = tensor.detach().contiguous()
        else:
            tied[name] = holder
    checksums = {name: _checksum(tensor) for name, tensor in tensors.items()}
    metadata = json.dumps({"version": 1, "crc32": checksums, "tied": tied})
    # One key: safetensors writes several in any order, and equal models should be equal files.
    write_whole(path, safetensors.torch.save(tensors, {METADATA: metadata}))


def read(path: str | Path) -> dict[str, Tensor]:
    """The state dict of a safetensors file; of a packed one every tensor is checked.

    Raises:
        InputError: if the file is missing, of another kind, or damaged.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError("file not found", code="not-found", path=path)
    with path.open("rb") as source:
        start = source.read(9)
    # A safetensors file starts with the length of its header, whatever that looks like, and JSON.
    if start[:1] in (b"P", b"\x80") and start[8:] != b"{":
        raise InputError(
            "a pickle, which could run any program",
            code="unknown-format",
            path=path,
            remedy="save the state dict with safetensors.torch.save_model",
        )
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            own = json.loads((file.metadata() or {}).get(METADATA, "{}"))
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (safetensors.SafetensorError, ValueError, OSError) as error:
        problem = "damaged safetensors file"
        raise InputError(
            problem, code="damaged", path=path, place="header", found=str(error)
        ) from error
    checksums = own.get("crc32", {})
    for name in {*checksums, *(state if own else ())}:
        found = _checksum(state[name]) if name in state else None
        if found != checksums.get(name):
            expected = f"CRC-32 {checksums.get(name)}, found {found}"
            raise InputError(
                "damaged tensor", code="damaged", path=path, place=name, expected=expected
            )
    return state | {
        name: state[holder] for name, holder in own.get("tied", {}).items() if holder in state
    }


def load(model: nn.Module, path: str | Path) -> nn.Module:
    """Load a file of `save` or `holdfast sparse pack` into a model: see `install`.

    Raises:
        InputError: if the file is damaged or of another model.
    """
    return install(model, read(path))


def _checksum(tensor: Tensor) -> int:
    """CRC-32 of type, shape and bytes."""
    start = zlib.crc32(f"{tensor.dtype} {list(tensor.shape)}".encode())
    if not tensor.numel():
        return start
    return zlib.crc32(tensor.contiguous().reshape(-1).view(torch.uint8).numpy(), start)


@dataclass(frozen=True)
class Packing(Answer):
    """How the weights of a model are stored, and what that saves.

    Args:
        path: the file that was packed or inspected.
        weights: one per linear or recurrent weight.
        stored_bytes: bytes of all tensors as they are stored, with biases, embeddings and the rest.
        output: the file that was written.
        converted: 16-bit types of the file; they were converted to float32, in which sizes are compared.

    Raises:
        InputError: if there is no such weight.
    """

    path: Path
    weights: list[Decision]
    stored_bytes: int
    output: Path | None = None
    converted: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.weights:
            raise no_weights(self.path)

    @property
    def title(self) -> str:
        """The heading of the page."""
        return "Packed model" if self.output else "Sparsity of a model"

    @property
    def dense_bytes(self) -> int:
        """Bytes of all tensors with dense weights."""
        saved = sum(each.dense_bytes - each.stored_bytes for each in self.weights)
        return self.stored_bytes + saved

    @property
    def sparsity(self) -> float:
        """Share of zeros in all weights that could be packed."""
        counts = [each.shape[0] * each.shape[1] for each in self.weights]
        zeros = sum(each.sparsity * n for each, n in zip(self.weights, counts, strict=True))
        return zeros / sum(counts)

    def to_dict(self) -> dict[str, Any]:
        """The JSON of ``holdfast sparse pack`` and ``inspect``."""
        sums = {"sparsity": self.sparsity, "dense_bytes": self.dense_bytes}
        return {**super().to_dict(), **sums}

    def values(self) -> Sequence[Value]:
        """Sparsity and bytes."""
        return [
            Value("sparsity", self.sparsity),
            Value("stored_bytes", self.stored_bytes, "bytes", better="lower"),
        ]

    def written(self) -> Mapping[str, Path]:
        """The packed file."""
        return {"model": self.output} if self.output else {}

    def sections(self) -> Sequence[Section]:
        """The weights, one row each."""
        packed = sum(each.layout != "dense" for each in self.weights)
        ratio = self.dense_bytes / self.stored_bytes
        sentence = (
            f"{percent(self.sparsity)} of the weights are zero; {packed} of "
            f"{counted(len(self.weights), 'matrix', 'matrices')} are packed: "
            f"{size(self.dense_bytes)} of tensors take {size(self.stored_bytes)} "
            f"({ratio:.2f} times smaller)."
        )
        empty = [each.weight for each in self.weights if each.sparsity == 1]
        if empty:
            sentence += f" Pruned to zero, so that only biases are left: {', '.join(empty)}."
        if self.converted:
            sentence += (
                f" Tensors of type {' and '.join(self.converted)} were converted to float32 (exact); "
                "sizes are compared with float32."
            )
        rows = [
            {**vars(each), "shape": f"{each.shape[0]} x {each.shape[1]}", "seconds": None}
            for each in self.weights
        ]
        columns = {
            "weight": ColumnFormat("Weight"),
            "shape": ColumnFormat("Shape", right=True),
            "sparsity": ColumnFormat("Sparsity", "%", digits=1),
            "layout": ColumnFormat("Layout"),
            "dense_bytes": ColumnFormat("Dense", "bytes"),
            "stored_bytes": ColumnFormat("Stored", "bytes"),
        }
        if self.output:
            columns["reason"] = ColumnFormat("Why")
        how = How(
            [
                "csr: 6 bytes per non-zero + 4 (rows + 1)",
                "bsr16x1: 66 bytes per block + 4 (ceil(rows / 16) + 1)",
                "2 bytes more per entry with over 65,536 columns; 16 bytes for the shape of each",
            ],
            notes="Layout auto times each layer on this machine and keeps it dense where dense is faster; "
            "size decides where times are within 10 %.",
        )
        table = Table(pa.Table.from_pylist(rows), columns)
        figure = bars(rows, "weight", "stored_bytes", "Stored bytes")
        return [Section("weights", "How are the weights stored?", sentence, [figure], [table], how)]


def pack_file(
    path: str | Path, output: str | Path, layout: Choice = "auto", batch: int = 1
) -> Packing:
    """Pack the weights of a safetensors file.

    Args:
        path: state dict of a pruned model, with dense weights in float32, bfloat16 or float16.
        output: packed file, replaced when it is complete.
        layout: "csr", "bsr16x1", or "auto": see `pack_state`.
        batch: vectors or sequences that "auto" measures with.

    Raises:
        InputError: if the file cannot be read, is packed already, or has nothing to pack.
    """
    state = read(path)
    for name in matrices_in(state):
        raise InputError("the model is packed already", code="conflict", path=path, place=name)
    converted = sorted({str(each.dtype)[6:] for each in state.values() if each.dtype in SHORT})
    state = {name: each.float() if each.dtype in SHORT else each for name, each in state.items()}
    packed, decisions = pack_state(state, layout, batch)
    packing = Packing(Path(path), decisions, _bytes(packed), Path(output), converted)
    save(packed, output)
    return packing


def inspect(path: str | Path) -> Packing:
    """How sparse the weights of a safetensors file are and how they are stored; a packed file is verified.

    Raises:
        InputError: if the file cannot be read, is damaged, or has no linear or recurrent weight.
    """
    state = read(path)
    dense = {name: w for name, w in state.items() if kind_of(name, w.ndim) and w.numel()}
    weights = [decision(name, stored) for name, stored in (matrices_in(state) | dense).items()]
    return Packing(Path(path), weights, _bytes(state))


def _bytes(state: Mapping[str, Tensor]) -> int:
    return sum(tensor.nbytes for tensor in state.values())
