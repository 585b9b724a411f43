"""Images out of a dataset again: a folder of files, WebDataset tars, rows of metadata, one image.

A folder has one file an image, named by its id, and the columns in `metadata.jsonl`, as the `datasets`
library has it; `open_source` reads both formats back.
"""

from __future__ import annotations

import io
import os
import tarfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import xxhash

from holdfast.data.records.extracting.ahead import Ahead
from holdfast.data.records.extracting.drafts import Draft, drafting
from holdfast.data.records.extracting.names import FileNames, Keys
from holdfast.data.records.extracting.samples import Samples, groups_of, image_bytes, samples
from holdfast.data.records.extracting.values import LABEL, class_of, json_line, json_row
from holdfast.data.records.reading.prefixes import Damaged, Fault, Prefix, damaged
from holdfast.data.records.reading.records import Records, open_records
from holdfast.data.records.reading.stores import Store, local_folder
from holdfast.data.records.sources.example import MAGIC_BYTES, image_kind
from holdfast.errors import InputError

__all__ = ["Extracted", "Samples", "extract", "image_bytes", "samples"]

OnFault = Literal["raise", "skip", "degrade"]
METADATA = "metadata.jsonl"


@dataclass(frozen=True)
class Extracted:
    """What was taken out of a dataset."""

    path: Path
    """The folder that was made."""
    format: str
    fidelity: int
    """1..G."""
    images: int
    files: int
    """Images, or tars."""
    bytes_read: int
    """Of the dataset, in this run."""
    bytes_written: int
    """Of images or tars, in all."""
    resumed: int
    """Images that an earlier run had taken out."""
    renamed: int
    """Images whose file or key is not their id: it was unsafe, too long, or lacked the suffix."""
    faults: tuple[Fault, ...] = ()
    """Damage that was passed over."""
    degraded: int = 0
    """Images that are of a lower fidelity, for damage."""

    def to_dict(self) -> dict[str, Any]:
        """The JSON of it."""
        return {
            "path": str(self.path),
            "format": self.format,
            "fidelity": self.fidelity,
            "images": self.images,
            "files": self.files,
            "bytes_read": self.bytes_read,
            "bytes_written": self.bytes_written,
            "resumed": self.resumed,
            "renamed": self.renamed,
            "degraded": self.degraded,
            "faults": [fault.to_dict() for fault in self.faults],
        }


@dataclass
class _Step:
    """What one step of an export has done, as its journal notes it."""

    records: list[int]
    images: int = 0
    files: list[list[Any]] = field(default_factory=list)
    """[name, bytes] of each file."""
    rows: list[dict[str, Any]] = field(default_factory=list)
    """Of `metadata.jsonl`."""
    names: list[str] = field(default_factory=list)
    """Ids whose names are taken, so that a later run finds the same names."""
    renamed: int = 0
    degraded: int = 0
    faults: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class _Done:
    """What is kept in memory of a step that is done."""

    images: int
    files: int
    bytes: int
    renamed: int
    degraded: int
    faults: tuple[Fault, ...]

    @classmethod
    def of(cls, step: _Step) -> _Done:
        """The sums of a step."""
        return cls(
            images=step.images,
            files=len(step.files),
            bytes=sum(size for _, size in step.files),
            renamed=step.renamed,
            degraded=step.degraded,
            faults=tuple(Fault(**fault) for fault in step.faults),
        )


def extract(
    url: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    fidelity: int | Literal["full"] = "full",
    format: Literal["folder", "webdataset"] = "folder",
    shard_images: int = 1000,
    on_fault: OnFault = "raise",
    store: Store | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> Extracted:
    """Write the images of a dataset as files, or as WebDataset tars.

    Killed at any time, it leaves nothing under the name `out`; run again, it goes on.

    Args:
        url: the dataset, or a single `.pcr` file.
        out: the folder to make; it must not exist, or be empty.
        fidelity: 1..G, or "full"; only the bytes of that fidelity are read.
        format: "folder" or "webdataset" (``.jpg``, ``.cls``, ``.json`` for each image).
        shard_images: images in a tar, rounded up to whole records.
        on_fault: what to do about damaged images: stop, leave them out, or take the highest fidelity
            at which they are whole.
        store: reads the dataset, instead of one opened by its URL.
        on_progress: called with the bytes read and the bytes to read.

    Raises:
        InputError: if there is no dataset, or something stands in the place of `out`.
        Damaged: if an image is and `on_fault` is "raise".
        StoreError: if the dataset cannot be read or the folder not written.
    """
    if format not in ("folder", "webdataset") or on_fault not in ("raise", "skip", "degrade"):
        raise InputError(
            "an export that is not known",
            found=f"format {format}, on_fault {on_fault}",
            expected="format folder or webdataset; on_fault raise, skip or degrade",
        )
    if shard_images < 1:
        raise InputError("a tar without images", found=f"shard_images={shard_images}")
    target = local_folder(out)
    with open_records(url, store=store) as records:
        groups = groups_of(records, fidelity)
        export = _Folder if format == "folder" else _Tars
        plan = {
            "format": format,
            "fidelity": groups,
            "on_fault": on_fault,
            "shard_images": shard_images if format == "webdataset" else None,
            "dataset": _fingerprint(records, groups),
        }
        with drafting(target, plan) as draft:
            run = export(records, groups, on_fault, draft)
            steps = _steps_of(records, 1 if format == "folder" else shard_images)
            found = run.run(steps, on_progress)
    return Extracted(path=target, format=format, fidelity=groups, **found)


def _fingerprint(records: Records, groups: int) -> str:
    """A hash of what an export reads."""
    digest = xxhash.xxh3_128()
    for path, index in zip(records.paths, records.indexes, strict=True):
        digest.update(repr((path, index.sums[: groups + 1])).encode())
    return digest.hexdigest()


def _steps_of(records: Records, images: int) -> list[list[int]]:
    """The records, grouped so that each group has at least so many images."""
    steps: list[list[int]] = []
    size = images
    for number, index in enumerate(records.indexes):
        if size >= images:
            steps.append([])
            size = 0
        steps[-1].append(number)
        size += index.images
    return steps


@dataclass(frozen=True)
class _Image:
    """One image on its way out."""

    id: str
    data: bytes
    row: dict[str, Any]
    """Columns as Arrow gives them."""

    @property
    def kind(self) -> str | None:
        """What it is, by its first bytes."""
        return image_kind(self.data[:MAGIC_BYTES])


class _Export(ABC):
    """Goes through the steps of an export; a subclass writes the files of one."""

    def __init__(self, records: Records, groups: int, on_fault: OnFault, draft: Draft) -> None:
        self._records = records
        self._groups = groups
        self._on_fault = on_fault
        self._draft = draft
        self._schema = records.manifest.schema
        self._classes = records.classes

    def run(
        self, steps: Sequence[list[int]], on_progress: Callable[[int, int], None] | None
    ) -> dict[str, Any]:
        """Do what is not done; returns the fields of `Extracted`."""
        done = self._resume(steps)
        resumed = sum(step.images for step in done)
        sizes = [index.ends[self._groups] for index in self._records.indexes]
        todo = steps[len(done) :]
        total, read = sum(sizes), sum(sizes[n] for step in steps[: len(done)] for n in step)
        before = read
        with Ahead(self._read, [number for step in todo for number in step]) as prefixes:
            for numbers in todo:
                step = _Step(numbers)
                self._write(step, self._images(step, prefixes))
                self._draft.note(step.__dict__)
                done.append(_Done.of(step))
                read += sum(sizes[number] for number in numbers)
                if on_progress is not None:
                    on_progress(read, total)
        self._finish()
        return {
            "images": sum(step.images for step in done),
            "files": sum(step.files for step in done),
            "bytes_read": read - before,
            "bytes_written": sum(step.bytes for step in done),
            "resumed": resumed,
            "renamed": sum(step.renamed for step in done),
            "degraded": sum(step.degraded for step in done),
            "faults": tuple(fault for step in done for fault in step.faults),
        }

    def _resume(self, steps: Sequence[list[int]]) -> list[_Done]:
        """The first steps, as far as an earlier run has done them and their files are there."""
        done = []
        for numbers, noted in zip(steps, self._draft.steps(), strict=False):
            step = _Step(**noted)
            if step.records != numbers or not all(self._is_there(*file) for file in step.files):
                break
            self._take_names(step)
            done.append(_Done.of(step))
        self._draft.keep(len(done))
        return done

    def _is_there(self, name: str, size: int) -> bool:
        path = self._draft.folder / name
        return path.is_file() and path.stat().st_size == size

    def _read(self, number: int) -> Prefix | Damaged:
        try:
            return self._records.read(number, self._groups)
        except Damaged as error:
            if self._on_fault == "raise":
                raise
            return error

    def _images(self, step: _Step, prefixes: Iterator[Prefix | Damaged]) -> Iterator[_Image]:
        """The images of a step's records, without those that damage leaves out."""
        for _ in step.records:
            prefix = next(prefixes)
            step.faults += [fault.to_dict() for fault in prefix.faults]
            if isinstance(prefix, Damaged):
                continue
            if prefix.faults and self._on_fault == "raise":
                raise damaged(prefix.faults)
            rows = prefix.contents.columns.to_pylist()
            for number, row in enumerate(rows):
                intact = prefix.intact(number)
                if not intact or (intact < self._groups and self._on_fault == "skip"):
                    continue
                step.degraded += intact < self._groups
                step.images += 1
                yield _Image(row["id"], prefix.image(number, intact), row)

    @abstractmethod
    def _write(self, step: _Step, images: Iterator[_Image]) -> None:
        """Write the images of a step, and note them in it."""

    @abstractmethod
    def _take_names(self, step: _Step) -> None:
        """Count the names of a step that an earlier run has done as taken."""

    def _finish(self) -> None:  # noqa: B027
        """After the last step."""


class _Folder(_Export):
    """One file an image; one step a record."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._names = FileNames()

    def _write(self, step: _Step, images: Iterator[_Image]) -> None:
        for image in images:
            name = self._names.name(image.id, image.kind)
            self._draft.put(name, image.data)
            step.files.append([name, len(image.data)])
            step.rows.append(self._metadata(name, image))
            step.renamed += name != image.id

    def _metadata(self, name: str, image: _Image) -> dict[str, Any]:
        row = json_row(image.row, self._schema)
        name_of_class = class_of(row.get(LABEL), self._classes)
        if name_of_class is not None:
            row[LABEL] = name_of_class
        own = {"file_name": name} | ({} if name == image.id else {"id": image.id})
        return own | {f"{key}_" if key in own else key: value for key, value in row.items()}

    def _take_names(self, step: _Step) -> None:
        for name, _ in step.files:
            self._names.take(name)

    def _finish(self) -> None:
        """Write `metadata.jsonl`, if it says more than the names of the files."""
        draft = self._draft.folder / f".{METADATA}.part"
        with draft.open("wb") as file:
            says_more = False
            for step in self._draft.steps():
                for row in step["rows"]:
                    says_more = says_more or len(row) > 1
                    file.write(json_line(row))
            file.flush()
            os.fsync(file.fileno())
        if says_more:
            draft.replace(self._draft.folder / METADATA)
        else:
            draft.unlink()


class _Tars(_Export):
    """Tars of some whole records each; one step a tar."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._keys = Keys()
        self._tars = 0

    def _write(self, step: _Step, images: Iterator[_Image]) -> None:
        name = f"{self._tars:06d}.tar"
        draft = self._draft.folder / f".{name}.part"
        with draft.open("wb") as file:
            with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
                for image in images:
                    step.names.append(self._keys.key(image.id, image.kind))
                    step.renamed += step.names[-1] != image.id
                    for suffix, data in self._members(image).items():
                        _add(tar, f"{step.names[-1]}.{suffix}", data)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self._draft.folder / name)
        step.files.append([name, (self._draft.folder / name).stat().st_size])
        self._tars += 1

    def _members(self, image: _Image) -> dict[str, bytes]:
        """Suffix -> bytes of the files of a sample."""
        row = json_row(image.row, self._schema)
        members = {image.kind or "bin": image.data}
        label = row.get(LABEL)
        if label is None or isinstance(label, int):  # a text stays a column
            row.pop(LABEL, None)
        if isinstance(label, int):
            members["cls"] = str(int(label)).encode()
            name = class_of(label, self._classes)
            if name is not None:
                row.setdefault("class", name)
        return members | {"json": json_line({"id": image.id, **row}).rstrip()}

    def _take_names(self, step: _Step) -> None:
        self._keys.take(step.names)
        self._tars += 1


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    """Add a file that looks the same whoever adds it, and when."""
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))
