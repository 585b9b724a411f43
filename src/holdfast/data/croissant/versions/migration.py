"""A description in the newest version of the format, with every change named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.answer import Answer, Finding, Section, Table, Value, measured
from holdfast.data.croissant.document.building import build
from holdfast.data.croissant.document.model import Version
from holdfast.data.croissant.document.reading import DescriptionSource, read_document
from holdfast.data.croissant.document.slips import escaped
from holdfast.data.croissant.document.writing import write_json
from holdfast.data.croissant.versions.rewriting import NEWER, Rewriter, Shift
from holdfast.data.croissant.versions.target_contexts import NEWEST, Spelling
from holdfast.errors import InputError
from holdfast.numbers import counted
from holdfast.plain import plain


@dataclass(frozen=True, kw_only=True)
class Migrated(Answer):
    """A description that was brought to another version of the format.

    Attributes:
        path: the file it was read from.
        version: the version it was in.
        metadata: the new description, as plain JSON.
        changes: what was written otherwise than before, in the document's order.
        lost: what could not be carried over, with the reason.
        out: the file that was written, if one was.
    """

    path: Path | str
    version: Version
    metadata: dict[str, Any]
    changes: tuple[Shift, ...]
    lost: tuple[Shift, ...] = ()
    out: Path | None = None

    @property
    def is_changed(self) -> bool:
        """Whether anything is written otherwise than before."""
        return bool(self.changes or self.lost)

    def to_dict(self) -> dict[str, Any]:
        """The JSON that programs read."""
        return {
            "path": str(self.path),
            "from": self.version,
            "to": NEWEST,
            "changes": plain(self.changes),
            "lost": plain(self.lost),
            "metadata": self.metadata,
        }

    def written(self) -> Mapping[str, Path]:
        """The new description."""
        return {} if self.out is None else {"description": self.out}

    def values(self) -> Sequence[Value]:
        """Changes, and what is lost."""
        return measured(self, changes="", lost=", lower")

    def findings(self) -> Sequence[Finding]:
        """How much changed."""
        verdict = counted(len(self.changes), "change") if self.is_changed else "no changes"
        found = [Finding(f"From {self.version} to {NEWEST}: {verdict}.", "changes")]
        lost = [Finding(f"{one.at}: {one.what}: {one.why}.", "changes") for one in self.lost]
        return [*found, *(replace(one, lead="Not migrated:") for one in lost)]

    def sections(self) -> Sequence[Section]:
        """Each kind of change once, with how often it was made and where first."""
        rows = []
        for why in dict.fromkeys(change.why for change in self.changes):
            found = [change for change in self.changes if change.why == why]
            first = {"at": found[0].at or "/", "what": found[0].what}
            rows.append({"why": why, "times": len(found), **first})
        tables = [Table(pa.Table.from_pylist(rows))] if rows else []
        sentence = f"{counted(len(rows), 'kind')} of change."
        return [Section("changes", "What is written otherwise?", sentence, tables=tables)]

    def write(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write the new description, whole or not at all.

        Raises:
            InputError: if the file exists and `overwrite` is false.
            HoldfastError: if it cannot be written.
        """
        return write_json(self.metadata, path, overwrite=overwrite)


def migrate(path: DescriptionSource) -> Migrated:
    """Bring a description to version 1.1 of the format.

    Nothing that it says is lost: what no version knows is kept as it stands, with the definitions of
    the context that it needs. A description that is in the version already is written in the recommended
    way, and says the same.

    Args:
        path: the description, as `open_description` takes it, of version 0.8, 1.0 or 1.1.

    Raises:
        InputError: if the file cannot be read as a JSON object.
    """
    document = read_document(path)
    metadata = build(document)
    dataset = document.terms.dataset
    if dataset is None:
        raise InputError(
            "no dataset found in the description",
            code="no-data",
            path=document.path,
            expected='"@type": "sc:Dataset"',
        )
    top = dataset.raw if "@context" in dataset.raw else document.value
    given = top.get("@context") if isinstance(top, dict) else None
    spelling = Spelling(given, document.terms.context)
    rewriter = Rewriter(document, metadata, spelling)
    written = rewriter.dataset(dataset)
    if given != spelling.written:
        rewriter.tell("/@context", f"the context of {NEWEST}", NEWER)
    redefined = "the recommended context defines the name otherwise; keys are spelt out"
    lost = [Shift(at, "an object", "nothing refers to it") for at in rewriter.unused()]
    lost += [Shift(f"/@context/{escaped(name)}", name, redefined) for name, _ in spelling.dropped]
    return Migrated(
        path=document.path,
        version=metadata.version,
        metadata=written,
        changes=tuple(rewriter.changes),
        lost=tuple(lost),
    )
