"""Mends a dataset so that every byte is what it was: from another copy, from the source, from itself."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.answer import Answer, Section, Value, measured
from holdfast.answer import Finding as Sentence
from holdfast.data.records.checking.inspecting import Finding, Inspected, damage, inspect
from holdfast.data.records.checking.originals import Originals
from holdfast.data.records.checking.replacing import (
    Again,
    Known,
    Maker,
    Replica,
    size_of,
)
from holdfast.data.records.checking.verifying import Progress, read_manifest
from holdfast.data.records.format import layout
from holdfast.data.records.format.layout import Index
from holdfast.data.records.format.manifest import NAME, Manifest
from holdfast.data.records.reading.stores import Store, open_store
from holdfast.data.records.sources import Source
from holdfast.data.records.writing.generations import only_writer, sweep
from holdfast.data.records.writing.settings import Settings
from holdfast.errors import InputError
from holdfast.files import write_whole
from holdfast.numbers import counted, size


@dataclass(frozen=True, slots=True)
class Mended:
    """One file that is now what it was."""

    file: str
    """From the dataset's folder."""
    bytes: int
    """How many of its bytes were wrong or missing, as far as that can be said."""
    by: str
    """What they were taken from: `replica`, `source` or `manifest`, joined by ` and `."""


@dataclass(frozen=True)
class Repaired(Answer):
    """What `repair` did."""

    url: str
    repaired: tuple[Mended, ...]
    remaining: tuple[Finding, ...]
    """What is still wrong; the files concerned were left as they are."""
    fetched: int
    """Bytes that were read from the replica's records."""

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong any more."""
        return not self.remaining

    def to_dict(self) -> dict[str, Any]:
        """The JSON of it."""
        return asdict(self) | {"ok": self.ok}

    @property
    def exit_code(self) -> int:
        """0 if nothing is wrong any more."""
        return int(not self.ok)

    def values(self) -> Sequence[Value]:
        """What was mended, and what is still wrong."""
        return measured(self, repaired="files", remaining=", lower", fetched="bytes, lower")

    def findings(self) -> Sequence[Sentence]:
        """What was mended, and what is still damaged."""
        found = [
            Sentence(f"{size(one.bytes)} restored from the {one.by}.", lead=f"{one.file}:")
            for one in self.repaired
        ]
        if self.remaining:
            found.append(Sentence(f"{counted(len(self.remaining), 'fault')} still there."))
        return found or [Sentence("Nothing to repair.")]

    def sections(self) -> Sequence[Section]:
        """What is still wrong."""
        sentence = f"{counted(len(self.remaining), 'fault')} still there."
        return [damage("remaining", sentence, self.remaining)]


def repair(
    url: str | Path,
    *,
    source: str | Path | Source | None = None,
    replica: str | Path | None = None,
    on_progress: Progress | None = None,
    **options: Any,
) -> Repaired:
    """Mend what `verify` finds. A file is replaced only by what its sums say it was.

    A damaged footer is made from the manifest; a damaged manifest comes from the replica. Other bytes come
    from the replica, of which only those are read, or from the source, whose images are transcoded again.

    Args:
        url: of the dataset's folder, on this machine. Writers are kept out meanwhile; readers are not.
        source: what the dataset was written from.
        replica: URL of another copy.
        on_progress: called with the bytes that were looked at and those there are.
        options: for the replica's store (`open_store`).

    Raises:
        InputError: if there is no dataset, or it is not on this machine.
        StoreError: if another process is writing it, the folder cannot be written, or the replica fails.
    """
    folder = _local(url)
    with only_writer(folder), ExitStack() as opened:
        sweep(folder)
        makers: list[Maker] = []
        copy = None
        if replica is not None:
            copy = Replica(opened.enter_context(open_store(replica, **options)))
            makers.append(copy)
        if source is not None:
            makers.append(Again(Originals(source)))
        store = opened.enter_context(open_store(folder))
        tell = on_progress or (lambda done, total: None)
        repair = _Repair(folder, store, makers, copy, tell)
        return repair.run(str(url))


def _local(url: str | Path) -> Path:
    text = str(url).removeprefix("file://")
    if "://" in text or not Path(text).is_dir():
        raise InputError(
            "only a dataset in a local folder can be repaired",
            code="unsupported",
            path=text,
            expected="a folder on this machine",
            remedy="copy it here, or repair it there",
        )
    return Path(text)


class _Repair:
    """The repair of one dataset."""

    def __init__(
        self,
        folder: Path,
        store: Store,
        makers: Sequence[Maker],
        copy: Replica | None,
        on_progress: Progress,
    ) -> None:
        self._folder, self._store = folder, store
        self._makers, self._copy = makers, copy
        self._tell = on_progress
        self._mended: list[Mended] = []
        self._manifest: Manifest | None = None
        self._records: dict[str, Inspected] = {}

    def run(self, url: str) -> Repaired:
        """Repair the manifest and the records, as far as possible."""
        self._manifest, size, reason = read_manifest(self._store)
        self._look(size)
        if self._manifest is None:
            reason = self._mend_manifest(reason)
        remaining = self._mend_records()
        if self._manifest is None:
            remaining.insert(0, Finding(None, None, None, f"{NAME}: {reason}"))
        return Repaired(
            url=url,
            repaired=tuple(self._mended),
            remaining=tuple(remaining),
            fetched=0 if self._copy is None else self._copy.fetched,
        )

    def _look(self, manifest_size: int) -> None:
        """Inspect every record in the manifest, or every record found if there is no manifest."""
        named: list[tuple[str, Index | None]]
        if self._manifest is not None:
            named = list(zip(self._manifest.paths, self._manifest.records, strict=True))
        else:
            named = [(path, None) for path in self._store.records()]
            if not (named or manifest_size or self._copy is not None):
                raise InputError(
                    "no dataset found",
                    code="not-found",
                    path=self._folder,
                    expected=f"a {NAME} and the records that it names",
                )
        total = sum((self._folder / path).stat().st_size for path, _ in named if self._has(path))
        done = 0
        for path, expected in named:
            inspected = inspect(self._store, path, expected)
            self._store.forget(path)
            if inspected.findings or expected is None or not self._records:
                self._records[path] = inspected  # of the others nothing is needed any more
            done += inspected.size
            self._tell(done, total)

    def _has(self, path: str) -> bool:
        return (self._folder / path).is_file()

    def _mend_manifest(self, reason: str) -> str:
        """Write the replica's manifest, or say why that cannot be."""
        if self._copy is None:
            return (
                f"{reason}; restore it from a replica, or run `holdfast data records write` again"
            )
        made, missing = self._copy.manifest(self._records.values())
        if made is None:
            return f"{reason}; {missing}"
        data = made.to_bytes()
        _write(self._folder, NAME, data)
        self._mended.append(Mended(NAME, len(data), self._copy.name))
        self._manifest = made
        for path, index in zip(made.paths, made.records, strict=True):
            if path not in self._records or self._records[path].findings:
                self._records[path] = inspect(self._store, path, index)
        return ""

    def _mend_records(self) -> list[Finding]:
        """Write anew what can be made whole; what is wrong with the others."""
        rows: dict[str, Index] = {}
        if self._manifest is not None:
            rows = dict(zip(self._manifest.paths, self._manifest.records, strict=True))
        remaining: list[Finding] = []
        for path, inspected in self._records.items():
            if not inspected.findings:
                continue
            expected = rows.get(path) or inspected.footer
            mended = None if expected is None else self._mended_record(inspected, expected)
            if mended is None:
                remaining += inspected.findings
                continue
            data, record = mended
            _write(self._folder, path, data)
            self._store.forget(path)
            self._records[path] = inspect(self._store, path, expected)
            self._mended.append(record)
        return remaining

    def _mended_record(self, inspected: Inspected, expected: Index) -> tuple[bytes, Mended] | None:
        """A damaged record as its sums say it was; None if it cannot be had."""
        before = bytes(self._store.read_all(inspected.path)) if self._has(inspected.path) else b""
        data = bytearray(expected.size)
        kept = min(len(before), expected.ends[-1])
        data[:kept] = before[:kept]
        footer = layout.encode_footer(expected)
        data[expected.ends[-1] :] = footer
        by = [] if before[expected.ends[-1] :] == footer else ["manifest"]
        now = inspect(data, inspected.path, expected)
        # Twice: metadata from one helper tell which pieces another has to give.
        for maker in [*self._makers, *self._makers]:
            if not now.damaged:
                break
            better = bytearray(data)
            for start, part in maker.make(now, expected, self._known()):
                better[start : start + len(part)] = part
            then = inspect(better, inspected.path, expected)
            if size_of(then.damaged) < size_of(now.damaged):
                data, now = better, then
                by += [maker.name] if maker.name not in by else []
        if now.findings:
            return None
        wrong = _differing(before, data)
        return bytes(data), Mended(inspected.path, wrong, " and ".join(by))

    def _known(self) -> Known:
        """What the dataset says about how it was written."""
        contents = next(
            (one.contents for one in self._records.values() if one.contents is not None), None
        )
        if contents is not None:
            return Known(contents.settings, contents.columns.schema)
        manifest = self._manifest
        if manifest is None:
            return Known({}, pa.schema([]))
        notes = manifest.notes
        with suppress(InputError, TypeError, LookupError):
            texts = Settings(**notes["settings"]).to_texts()
            for program in ("transcoder", "decoder"):
                if notes.get(program) is not None:
                    texts[program] = str(notes[program])
            return Known(texts, manifest.schema)
        return Known({}, manifest.schema)


def _differing(one: bytes, other: bytes | bytearray) -> int:
    """How many bytes of two files differ."""
    common = min(len(one), len(other))
    pair = (np.frombuffer(file, np.uint8, common) for file in (one, other))
    return int(np.not_equal(*pair).sum()) + max(len(one), len(other)) - common


def _write(folder: Path, path: str, data: bytes) -> None:
    (folder / path).parent.mkdir(exist_ok=True)
    write_whole(folder / path, data)
