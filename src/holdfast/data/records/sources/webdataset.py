"""WebDataset: tars in which the files of a sample stand together and share their name up to a dot."""

from __future__ import annotations

import os
import re
from array import array
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from holdfast.data.records.sources import tars
from holdfast.data.records.sources.columns import LABEL, Columns
from holdfast.data.records.sources.example import (
    MAGIC_BYTES,
    SUFFIXES,
    Example,
    Options,
    check_ids,
    check_range,
    image_kind,
    no_images,
)
from holdfast.data.records.sources.folders import classes_of
from holdfast.data.records.sources.shards import shard_files
from holdfast.data.records.sources.values import (
    PositionedFile,
    class_of,
    json_object_of,
    text_of,
)
from holdfast.errors import InputError
from holdfast.numbers import counted

_TEXTS = {"txt": "text", "text": "text", "transcript": "transcript"}
_PARTS = ("image", "cls", "json", *_TEXTS)  # of a sample: what is kept is where each lies
_KEY = re.compile(r"((?:.*/)?[^./]+)\.([^/]*)", re.DOTALL)
_META = re.compile(r"__[^/]*__(/|$)")  # the format's own notes
_ABSENT = -1


class _Sample:
    """The members of one sample while a tar is gone through."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.parts: dict[str, tars.Member] = {}
        self.images: dict[str, tars.Member] = {}
        self.suffixes: set[str] = set()


class WebDataset:
    """The samples of one or more tars, in their order; the id is the key, or a column called `id`.

    A sample's ``.cls`` is its label, ``.json`` its columns (nested values as JSON text), ``.txt`` its text.
    Where shards use the same keys, every id begins with its shard's name. A tar that contains only images
    in folders is read like the folder: the first level is the class.
    """

    def __init__(self, where: str, options: Options) -> None:
        self._options = options
        self._source = Path(where)
        self._files = shard_files(
            where, lambda name: name.endswith((".tar", ".tar.gz", ".tgz")), ".tar"
        )
        self._columns = Columns(options, self._source)
        self._ids: list[str] = []
        self._places = array("q")  # [N, 2 * len(_PARTS)] start and size of each part
        self._firsts = [0]  # [shards + 1] number of each shard's first sample
        self._named = False  # whether ids are from a column
        self.ignored: list[tuple[str, str]] = []
        self._left_out: Counter[tuple[str, str]] = Counter()
        for path in self._files:
            self._index(path)
            self._firsts.append(len(self._ids))
        for (suffix, reason), count in sorted(self._left_out.items()):
            self.ignored.append((f"*.{suffix}", f"{reason} ({counted(count, 'file')})"))
        if not self._ids:
            raise no_images(self._source, self.ignored, "samples such as 000.jpg and 000.cls")
        self._name_by_shard()
        self._folders: list[str] = []  # classes, where nothing but the images' folders names them
        self.schema = self._settle()

    def __len__(self) -> int:
        """How many samples there are."""
        return len(self._ids)

    def ids_and_sizes(self) -> Iterator[tuple[str, int]]:
        """Id and image bytes of every sample."""
        return zip(self._ids, self._places[1 :: 2 * len(_PARTS)], strict=True)

    def read(self, start: int, stop: int) -> Iterator[Example]:
        """The samples with the numbers from `start` to before `stop`."""
        check_range(start, stop, len(self))
        for shard, path in enumerate(self._files):
            first, last = max(start, self._firsts[shard]), min(stop, self._firsts[shard + 1])
            if first >= last:
                continue
            with PositionedFile(path) as tar:
                for number in range(first, last):
                    yield self._example(tar, number)

    def _example(self, tar: PositionedFile, number: int) -> Example:
        parts = self._parts(number)
        row = self._row(tar, parts, f"sample {self._ids[number]}")
        if self._folders:
            row[LABEL] = self._folders[number]
        self._columns.take_id(row, tar.path, "")
        return Example(self._ids[number], tar.read(*parts["image"]), self._columns.values(row))

    def _parts(self, number: int) -> dict[str, tuple[int, int]]:
        width = 2 * len(_PARTS)
        row = self._places[number * width : (number + 1) * width]
        return {
            name: (row[2 * n], row[2 * n + 1])
            for n, name in enumerate(_PARTS)
            if row[2 * n] != _ABSENT
        }

    def _row(
        self, tar: PositionedFile, parts: dict[str, tuple[int, int]], place: str
    ) -> dict[str, object]:
        """The columns of a sample as they stand in its files."""
        row: dict[str, object] = {}
        if "json" in parts:
            row = json_object_of(tar.read(*parts["json"]), tar.path, f"{place}, .json")
        if "cls" in parts:
            label = class_of(tar.read(*parts["cls"]), tar.path, f"{place}, .cls")
            _put(row, LABEL, label, tar.path, f"{place}, .cls")
        for suffix, name in _TEXTS.items():
            if suffix in parts:
                text = text_of(tar.read(*parts[suffix]), tar.path, f"{place}, .{suffix}")
                _put(row, name, text, tar.path, f"{place}, .{suffix}")
        return row

    def _index(self, path: Path) -> None:
        """Note where everything in a shard lies, and what columns it has."""
        keys: set[str] = set()
        with PositionedFile(path) as tar:
            for sample in self._samples(path):
                if sample.key in keys:
                    raise InputError(
                        "the files of a sample are not adjacent, or two samples have the same key",
                        code="conflict",
                        path=path,
                        place=f"sample {sample.key}",
                        expected="the files of each sample one after another",
                        remedy="make the tar from sorted names: tar --sort=name",
                    )
                keys.add(sample.key)
                self._take(tar, sample)

    def _samples(self, path: Path) -> Iterator[_Sample]:
        sample: _Sample | None = None
        for member in tars.members(path, self.ignored):
            match = _KEY.fullmatch(member.name)
            if match is None or _META.match(member.name):
                self.ignored.append((f"{path.name}: {member.name}", "no name of a sample's file"))
                continue
            key, suffix = match[1], match[2].lower()
            if sample is None or key != sample.key:
                if sample is not None:
                    yield sample
                sample = _Sample(key)
            if suffix in sample.suffixes:
                raise InputError(
                    "a sample has two files of the same suffix",
                    code="duplicate",
                    path=path,
                    place=f"sample {key}",
                    found=f"{member.name} twice, or in two spellings",
                    remedy="leave one of them out",
                )
            sample.suffixes.add(suffix)
            self._sort_in(sample, suffix, member)
        if sample is not None:
            yield sample

    def _sort_in(self, sample: _Sample, suffix: str, member: tars.Member) -> None:
        chosen = self._options.image
        if suffix == chosen or (chosen is None and suffix.rpartition(".")[2] in SUFFIXES):
            sample.images[suffix] = member
        elif suffix in _PARTS and suffix not in self._options.drop:
            sample.parts[suffix] = member
        elif suffix.rpartition(".")[2] in SUFFIXES:
            self._left_out[suffix, f"image={chosen} was chosen"] += 1
        else:
            self._left_out[suffix, "not read"] += 1

    def _take(self, tar: PositionedFile, sample: _Sample) -> None:
        path, place = tar.path, f"sample {sample.key}"
        if len(sample.images) > 1:
            raise InputError(
                "a sample has several images",
                code="conflict",
                path=path,
                place=place,
                found=", ".join(f".{suffix}" for suffix in sample.images),
                expected="one image a sample",
                remedy=f"choose one by its suffix: image={next(iter(sample.images))}",
            )
        if not sample.images:
            self.ignored.append((f"{path.name}: {sample.key}", "a sample without an image"))
            return
        image = next(iter(sample.images.values()))
        if image_kind(tar.read(image.start, min(image.size, MAGIC_BYTES))) is None:
            self.ignored.append((f"{path.name}: {image.name}", "not an image by its first bytes"))
            return
        places = {name: (part.start, part.size) for name, part in sample.parts.items()}
        row = self._row(tar, places, place)
        id_ = self._columns.take_id(row, path, place)
        if id_ is None and self._named:
            raise InputError(
                "a sample has no id, but others have one",
                code="missing-key",
                path=path,
                place=place,
            )
        if id_ is not None and not self._named:
            if self._ids:
                raise InputError(
                    "a sample has a column `id`, but those before have none",
                    code="conflict",
                    path=path,
                    place=place,
                    remedy="leave the column out with drop=['id']",
                )
            self._named = True
        self._columns.see(row, path, place)
        self._ids.append(sample.key if id_ is None else id_)
        places["image"] = image.start, image.size
        for name in _PARTS:
            self._places.extend(places.get(name, (_ABSENT, 0)))

    def _name_by_shard(self) -> None:
        """Put the shard's name before every id if shards use the same keys."""
        if self._named or len(set(self._ids)) == len(self._ids):
            check_ids(self._ids, None, self._source)
            return
        top = os.path.commonpath([path.parent for path in self._files])
        stems = [path.relative_to(top).with_suffix("").as_posix() for path in self._files]
        for shard, stem in enumerate(stems):
            for number in range(self._firsts[shard], self._firsts[shard + 1]):
                self._ids[number] = f"{stem}/{self._ids[number]}"
        check_ids(self._ids, None, self._source)

    def _settle(self) -> pa.Schema:
        schema = self._columns.settle()
        only_images = not len(schema) and not self._named and len(self._files) == 1
        if only_images and all(classes := classes_of(self._ids)):
            self._folders = classes
            for id_, name in zip(self._ids, classes, strict=True):
                self._columns.see({LABEL: name}, self._source, id_)
            return self._columns.settle()
        return schema


def _put(row: dict[str, object], name: str, value: object, path: Path, place: str) -> None:
    if name in row and row[name] != value:
        raise InputError(
            f"two files of a sample give different values of {name!r}",
            code="conflict",
            path=path,
            place=place,
            found=f"{value!r}"[:80],
            expected=f"{row[name]!r}, as in its .json"[:80],
            remedy="leave one of the files out by its suffix, for example drop=['cls']",
        )
    row[name] = value
