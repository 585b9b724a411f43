"""Images out of a dataset again: a folder of files, WebDataset tars, rows of metadata, one image.

A folder has one file per image, named by its id, and the columns in `metadata.jsonl`, as the `datasets`
library has it; `open_source` reads both formats back.
"""

from __future__ import annotations

import io
import os
import tarfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from holdfast.answer import Answer, Finding, Value, measured
from holdfast.data.records.arguments import check_choice, check_number
from holdfast.data.records.export.names import FileNames, Keys
from holdfast.data.records.export.samples import (
    LABEL,
    Samples,
    class_of,
    image_bytes,
    json_line,
    json_row,
    samples,
)
from holdfast.data.records.reading.prefixes import Damaged, Fault, Prefix, damaged
from holdfast.data.records.reading.records import Records, checked_fidelity, in_order, open_records
from holdfast.data.records.reading.stores import Store, local_folder
from holdfast.data.records.sources.example import MAGIC_BYTES, image_kind
from holdfast.errors import InputError, StoreError
from holdfast.files import LockHeldError, atomic_folder
from holdfast.numbers import counted, size

__all__ = ["Extracted", "Samples", "extract", "image_bytes", "samples"]

OnFault = Literal["raise", "skip", "degrade"]
METADATA = "metadata.jsonl"
_THREADS = 2
_COUNTS = ("images", "files", "bytes_read", "bytes_written", "renamed", "degraded")


@dataclass(frozen=True)
class Extracted(Answer):
    """Result of an export."""

    path: Path
    """The folder that was made."""
    format: str
    fidelity: int
    """1..G."""
    images: int
    files: int
    """Number of image files, or of tars."""
    bytes_read: int
    """Bytes of the dataset read in this run."""
    bytes_written: int
    """Total size of the images or tars."""
    renamed: int
    """Images whose file or key is not their id: it was unsafe, too long, or lacked the suffix."""
    faults: tuple[Fault, ...] = ()
    """Damage that was passed over."""
    degraded: int = 0
    """Images that are of a lower fidelity, for damage."""

    def written(self) -> Mapping[str, Path]:
        """The folder."""
        return {"written": self.path}

    def values(self) -> Sequence[Value]:
        """What was written and read, and what is damaged."""
        return measured(
            self,
            images="",
            files="",
            bytes_read="bytes, lower",
            bytes_written="bytes",
            renamed="images, lower",
            degraded="images, lower",
            faults=", lower",
        )

    def findings(self) -> Sequence[Finding]:
        """What was written, and what is not as it was."""
        images = f"{counted(self.images, 'image')} at fidelity {self.fidelity}"
        files = f"{counted(self.files, 'file')}: {size(self.bytes_written)}"
        found = [Finding(f"{images} in {files}.")]
        if self.renamed:
            images = counted(self.renamed, "image")
            found.append(Finding(f"{images} were renamed: the id is not a usable file name."))
        if self.degraded:
            images = counted(self.degraded, "image")
            found.append(Finding(f"{images} have a lower fidelity due to damage."))
        return [*found, *(Finding(f"{fault}", lead="Damaged:") for fault in self.faults)]


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

    The folder appears when it is complete: an interrupted run leaves nothing at `out`.

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
    check_choice("format", format, ("folder", "webdataset"))
    check_choice("on_fault", on_fault, ("raise", "skip", "degrade"))
    check_number("shard_images", shard_images, 1)
    target = local_folder(out)
    with open_records(url, store=store) as records:
        groups = checked_fidelity(fidelity, records.groups, records.url)
        export = _Folder if format == "folder" else _Tars
        images = 1 if format == "folder" else shard_images
        with _writing(target) as folder:
            run = export(records, groups, on_fault, folder)
            run.run(_steps_of(records, images), on_progress)
    return Extracted(
        path=target, format=format, fidelity=groups, faults=tuple(run.faults), **run.counts
    )


@contextmanager
def _writing(target: Path) -> Iterator[Path]:
    """A hidden folder to write to; it becomes the target when the block ends without an error."""
    target = target.absolute()
    empty = target.is_dir() and not any(target.iterdir())
    if not empty and (target.exists() or target.is_symlink() or not target.name):
        raise InputError(
            "the output already exists",
            code="output-exists",
            path=target,
            found="a folder that is not empty" if target.is_dir() else "a file",
            expected="a new folder, or an empty one",
            remedy="choose another folder, or remove this one",
        )
    try:
        with atomic_folder(target) as folder:
            yield folder
    except LockHeldError:
        raise StoreError(
            f"{target}: another process is writing it\n"
            "  remedy: wait until it has finished, or choose another folder"
        ) from None
    except OSError as error:
        raise StoreError(
            f"{target}: the folder cannot be written\n  found: {error.strerror or error}\n"
            "  remedy: free disk space or fix the permissions, then rerun the command"
        ) from error


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
    """Goes through the records of an export; a subclass writes the files."""

    def __init__(self, records: Records, groups: int, on_fault: OnFault, folder: Path) -> None:
        self._records = records
        self._groups = groups
        self._on_fault = on_fault
        self._out = folder
        self._schema = records.manifest.schema
        self._classes = records.classes
        self.counts = dict.fromkeys(_COUNTS, 0)
        """The fields of `Extracted` that count something."""
        self.faults: list[Fault] = []

    def run(
        self, steps: Sequence[list[int]], on_progress: Callable[[int, int], None] | None
    ) -> None:
        """Write the files: `steps` are the numbers of the records that belong together."""
        sizes = [index.ends[self._groups] for index in self._records.indexes]
        with closing(in_order(self._read, len(sizes), _THREADS)) as prefixes:
            for number, step in enumerate(steps):
                self._write(number, self._images(len(step), prefixes))
                self.counts["bytes_read"] += sum(sizes[record] for record in step)
                if on_progress is not None:
                    on_progress(self.counts["bytes_read"], sum(sizes))
        self._finish()

    def _read(self, number: int) -> Prefix | Damaged:
        try:
            return self._records.read(number, self._groups)
        except Damaged as error:
            if self._on_fault == "raise":
                raise
            return error

    def _images(self, records: int, prefixes: Iterator[Prefix | Damaged]) -> Iterator[_Image]:
        """The images of the next records, without those that damage leaves out."""
        for prefix in islice(prefixes, records):
            self.faults += prefix.faults
            if isinstance(prefix, Damaged):
                continue
            if prefix.faults and self._on_fault == "raise":
                raise damaged(prefix.faults)
            for number, row in enumerate(prefix.contents.columns.to_pylist()):
                intact = prefix.intact(number)
                if not intact or (intact < self._groups and self._on_fault == "skip"):
                    continue
                self.counts["degraded"] += intact < self._groups
                self.counts["images"] += 1
                yield _Image(row["id"], prefix.image(number, intact), row)

    @abstractmethod
    def _write(self, number: int, images: Iterator[_Image]) -> None:
        """Write the images of a step."""

    def _finish(self) -> None:  # noqa: B027 - most have nothing to do
        """After the last step."""


class _Folder(_Export):
    """One file per image; one record per step."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._names = FileNames()
        self._says_more = False

    def _write(self, number: int, images: Iterator[_Image]) -> None:
        with (self._out / METADATA).open("ab") as metadata:
            for image in images:
                name = self._names.name(image.id, image.kind)
                path = self._out / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(image.data)
                row = self._row(name, image)
                self._says_more = self._says_more or len(row) > 1
                metadata.write(json_line(row))
                self.counts["files"] += 1
                self.counts["bytes_written"] += len(image.data)
                self.counts["renamed"] += name != image.id

    def _row(self, name: str, image: _Image) -> dict[str, Any]:
        row = json_row(image.row, self._schema)
        name_of_class = class_of(row.get(LABEL), self._classes)
        if name_of_class is not None:
            row[LABEL] = name_of_class
        own = {"file_name": name} | ({} if name == image.id else {"id": image.id})
        return own | {f"{key}_" if key in own else key: value for key, value in row.items()}

    def _finish(self) -> None:
        """Keep `metadata.jsonl` if it says more than the names of the files."""
        if not self._says_more:
            (self._out / METADATA).unlink()


class _Tars(_Export):
    """One tar per step."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._keys = Keys()

    def _write(self, number: int, images: Iterator[_Image]) -> None:
        path = self._out / f"{number:06d}.tar"
        with tarfile.open(path, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for image in images:
                key = self._keys.key(image.id, image.kind)
                self.counts["renamed"] += key != image.id
                for suffix, data in self._members(image).items():
                    _add(tar, f"{key}.{suffix}", data)
        self.counts["files"] += 1
        self.counts["bytes_written"] += path.stat().st_size

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


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    """Add a file that looks the same whoever adds it, and when."""
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))
