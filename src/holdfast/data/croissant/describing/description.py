"""A description that was made, and what it was made from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from holdfast.answer import Answer, Finding, Section, Table, Value
from holdfast.data.croissant.document.writing import write_json
from holdfast.errors import InputError
from holdfast.numbers import counted
from holdfast.plain import plain

Json = dict[str, Any]


@dataclass(frozen=True)
class Note:
    """What a reader of the description should know about how it came about.

    Attributes:
        about: the id, or the path of the file, that it is about; "" for the dataset.
        kind: "inferred" from evidence that stands in `text`; "unknown": could not be told, left out;
            "skipped": a file that no record set describes, or that is not described at all.
        text: one sentence.
    """

    about: str
    kind: Literal["inferred", "unknown", "skipped"]
    text: str


@dataclass(frozen=True)
class Description(Answer):
    """What `describe` found.

    Attributes:
        folder: its relative paths start here, and here it is written.
        metadata: the description, as JSON.
        notes: what was inferred and from what evidence, what could not be told, what was left out.
        path: where it is written unless another name is given.
    """

    folder: Path
    metadata: Mapping[str, Any]
    notes: tuple[Note, ...]
    path: Path

    def to_dict(self) -> dict[str, Any]:
        """The JSON that programs read."""
        return {
            "path": str(self.path),
            "metadata": dict(self.metadata),
            "notes": plain(self.notes),
        }

    def written(self) -> Mapping[str, Path]:
        """The description."""
        return {"description": self.path}

    def values(self) -> Sequence[Value]:
        """How many things are described, and how many could not be."""
        kinds = Counter(note.kind for note in self.notes)
        return [
            Value("resources", len(self.metadata.get("distribution", ()))),
            Value("record_sets", len(self.metadata.get("recordSet", ()))),
            Value("inferred", kinds["inferred"]),
            Value("unknown", kinds["unknown"], better="lower"),
            Value("skipped", kinds["skipped"], better="lower"),
        ]

    def findings(self) -> Sequence[Finding]:
        """What is described."""
        found = {value.name: int(value.value or 0) for value in self.values()}
        sets = counted(found["record_sets"], "record set")
        files = counted(found["resources"], "file or set of files", "files or sets of files")
        return [Finding(f"{sets} from {files}.", "notes")]

    def sections(self) -> Sequence[Section]:
        """What was inferred, what not, what was left out."""
        rows = [asdict(note) | {"about": note.about or "dataset"} for note in self.notes]
        table = Table(pa.Table.from_pylist(rows))
        sentence = f"{counted(len(rows), 'note')}."
        return [Section("notes", "How did it come about?", sentence, tables=[table])]

    def write(self, path: str | Path | None = None, *, overwrite: bool = False) -> Path:
        """Write the description, whole or not at all.

        Args:
            path: a file in the folder of the data; `self.path` without one.
            overwrite: replace a file that is there.

        Returns:
            Where it stands.

        Raises:
            InputError: a file is there already, or `path` is in another folder.
            HoldfastError: it cannot be written.
        """
        target = self.path if path is None else Path(path)
        if target.resolve().parent != self.folder.resolve():
            raise InputError(
                "the description must be in the folder of its data",
                code="invalid-value",
                path=target,
                expected=f"a file in {self.folder}",
                remedy="write it there, and move it together with the data",
            )
        return write_json(self.metadata, target, overwrite=overwrite)


def reference_to(identity: str) -> Json:
    """A node that is described elsewhere."""
    return {"@id": identity}
