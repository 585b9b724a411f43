"""The source of a dataset, against which its images are held."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa

from holdfast.data.records.checking.inspecting import Finding
from holdfast.data.records.format.layout import Contents
from holdfast.data.records.jpeg import parsing
from holdfast.data.records.jpeg.turbojpeg import Operation, TranscodeError, transcode
from holdfast.data.records.sources import Example, Source, open_source
from holdfast.errors import LimitError

_NOT_COMPARABLE = (parsing.NotAJpeg, parsing.DamagedJpeg, TranscodeError, LimitError)


class Originals:
    """The images of a source by their ids; it may be used by several threads.

    Args:
        source: what `open_source` gives, or where it is.
    """

    def __init__(self, source: str | Path | Source) -> None:
        self.source = open_source(source) if isinstance(source, str | Path) else source
        self._numbers = {id_: at for at, (id_, _) in enumerate(self.source.ids_and_sizes())}
        self._held = np.zeros(len(self._numbers), bool)
        self._lock = threading.Lock()
        self.compared = 0
        """How many images were held against their source."""
        self.unknown: list[Finding] = []
        """Images that do not decode on one side: whether they are the same cannot be told."""

    def hold(self, ids: Iterable[str]) -> None:
        """Note that the dataset has these images."""
        numbers = [self._numbers[id_] for id_ in ids if id_ in self._numbers]
        with self._lock:
            self._held[numbers] = True

    def missing(self) -> list[str]:
        """The ids of the source that were not noted, in its order."""
        return [id_ for id_, number in self._numbers.items() if not self._held[number]]

    def examples(self, ids: Sequence[str]) -> dict[str, Example]:
        """Those images that the source has, read in runs of neighbours."""
        numbers = sorted(self._numbers[id_] for id_ in ids if id_ in self._numbers)
        breaks = [at for at, (a, b) in enumerate(pairwise(numbers), 1) if b != a + 1]
        found = {}
        for first, last in pairwise([0, *breaks, len(numbers)] if numbers else []):
            for example in self.source.read(numbers[first], numbers[last - 1] + 1):
                found[example.id] = example
        return found

    def compare(
        self, path: str, contents: Contents, rows: Sequence[int], images: Sequence[bytes]
    ) -> Iterator[tuple[int, str]]:
        """What images of a record do not have in common with their source (an `inspecting.Compare`).

        Args:
            path: the record.
            contents: of the record.
            rows: which of its images.
            images: they, at full fidelity.

        Yields:
            (row, what differs)
        """
        ids = [contents.ids[row] for row in rows]
        examples = self.examples(ids)
        for row, id_, image in zip(rows, ids, images, strict=True):
            if id_ not in examples:
                yield row, "the source has no such image"
                continue
            try:
                for reason in _differences(contents, row, image, examples[id_]):
                    yield row, reason
            except _NOT_COMPARABLE as error:
                self.unknown.append(Finding(path, id_, None, f"not comparable: {error}"))
                continue
            with self._lock:
                self.compared += 1


def _differences(contents: Contents, row: int, image: bytes, example: Example) -> Iterator[str]:
    if contents.opaque[row]:
        if image != example.data:
            yield "it is stored opaque, and not the source's bytes"
    else:
        reason = _difference(contents, row, image, example.data)
        if reason is not None:
            yield reason
    for column in contents.columns.schema:
        if column.name == "id":
            continue
        kept = contents.table[column.name][row]
        try:
            given = pa.scalar(example.columns.get(column.name), column.type)
        except (pa.ArrowException, TypeError, ValueError):
            given = None
        if given is None or not kept.equals(given):
            found = example.columns.get(column.name)
            yield f"column {column.name} is {kept.as_py()!r}, and in the source {found!r}"


def _difference(contents: Contents, row: int, image: bytes, source: bytes) -> str | None:
    """How the coefficients differ. Both are written anew, as baseline: if they agree, as the same file."""
    parsed = parsing.parse(source)
    baked = Operation.NONE
    if int(contents.orientations[row]) != parsed.orientation:
        if contents.settings.get("orientation") != "bake" or contents.orientations[row] != 1:
            return "its orientation is not the source's"
        baked = Operation.upright(parsed.orientation)
    theirs = transcode(source, progressive=False, operation=baked)
    if transcode(image, progressive=False) != theirs:
        return "its coefficients are not the source's"
    return None
