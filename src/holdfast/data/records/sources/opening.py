"""Opens a source of any format."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal, get_args

from holdfast.data.records.sources import shards
from holdfast.data.records.sources.columns import LABEL
from holdfast.data.records.sources.croissant_fields import description_at
from holdfast.data.records.sources.example import Options, Source, named_as_image
from holdfast.data.records.sources.folders import Folder
from holdfast.data.records.sources.joining import Joined, own_table, read_table
from holdfast.data.records.sources.rows import Rows
from holdfast.data.records.sources.webdataset import WebDataset
from holdfast.errors import InputError

Format = Literal["auto", "folder", "webdataset", "croissant"]


def open_source(
    where: str | Path | Iterable[Mapping[str, object]],
    *,
    format: Format = "auto",
    columns: str | Path | None = None,
    image: str | None = None,
    label: str | None = None,
    id: str | None = None,
    drop: Collection[str] = (),
    record_set: str | None = None,
) -> Source:
    """A source of images, indexed: where each lies, and one type for every column.

    Args:
        where: a folder of images; a tar, a folder of tars or a pattern such as ``shard-{000..012}.tar``;
            a Croissant description, or a folder with one; or dicts, one for each image, with the bytes of
            its file under "image" and its columns: what a reader of any other format gives.
        format: which of these; "auto" looks at the names, and takes a JSON file, or a folder's
            `croissant.json` or `metadata.json`, for a description if it is a schema.org Dataset that has
            record sets or says that it conforms to Croissant.
        columns: a table (CSV, JSON lines, Parquet) joined by its column `id` or `file_name`. A folder's
            own `metadata.jsonl`, `.csv` or `.parquet` is taken without being named; where it has none,
            those of the folders in it.
        image: the suffix (WebDataset), key (dicts) or field (Croissant) of the image, where several
            could be it.
        label: the column that becomes `label`; texts become classes, numbered in the order of their names.
            Of a Croissant description, by default a field called so or else the one of dataType cr:Label.
        id: the column that holds the id; by default one called `id`, else what the format names images by.
        drop: columns to leave out.
        record_set: of a Croissant description: whose records, where several record sets have images.

    Raises:
        InputError: if there is nothing, it is damaged, ids are not unique, or a column has no one type.
    """
    if format not in get_args(Format):
        raise InputError(
            "unknown format of a source",
            code="unknown-format",
            found=format,
            expected=", ".join(get_args(Format)),
        )
    options = Options(image=image, label=label, id=id, drop=frozenset(drop), record_set=record_set)
    if not isinstance(where, (str, Path)):
        return Rows(where, options)
    name = str(where)
    chosen = _format_of(name) if format == "auto" else format
    if record_set is not None and chosen != "croissant":
        raise InputError(
            "only a Croissant description has record sets",
            code="unsupported",
            path=name,
            found=f"format {chosen}",
            remedy="leave out --record-set (record_set), or add --format croissant (format=)",
        )
    read = None if columns is None else read_table(Path(columns))
    if chosen == "folder" and read is None:
        read = own_table(Path(name))
    if read is None:
        if chosen == "folder":
            _check_dropped(options.drop, name)
        return _open(name, chosen, options)
    in_table = label is None or any(label in row for row in read.rows)
    of_table = replace(options, id=None, label=label if in_table else None)
    of_source = replace(options, label=None if in_table else label)
    return Joined(_open(name, chosen, of_source), read, of_table)


def _check_dropped(drop: frozenset[str], folder: str) -> None:
    """A folder's one column is the label: another name is a slip that would keep what shall go."""
    if unknown := sorted(drop - {LABEL}):
        raise InputError(
            "a folder does not have this column",
            code="unknown-name",
            path=folder,
            place="drop",
            found=", ".join(unknown),
            expected=LABEL,
        )


def _open(name: str, format: str, options: Options) -> Source:
    if format == "folder":
        if not Path(name).is_dir():
            raise InputError(
                "no such folder", code="not-found", path=name, expected="a folder of images"
            )
        if options.label not in (None, LABEL):
            raise InputError(
                "a folder does not have the column named as the label",
                code="unknown-name",
                path=name,
                found=options.label,
                remedy="give a table with such a column: columns=",
            )
        return Folder(Path(name), options)
    if format == "webdataset":
        return WebDataset(name, options)
    from holdfast.data.records.sources.croissant import Croissant

    return Croissant(name, options)


def _format_of(name: str) -> str:
    """The format that a name, or the names in a folder, speak for."""
    path = Path(name)
    if path.is_dir():
        return _format_of_folder(path)
    if description_at(path) is not None:
        return "croissant"
    first = Path(shards.expand(name)[0] if shards.is_pattern(name) else name).name
    if ".tar" in first or first.endswith(".tgz"):
        return "webdataset"
    if not shards.is_pattern(name) and not path.exists():
        remedy = None
        if "://" in name:
            remedy = "copy it to this machine first, or mount it: sources are read from local disks"
        raise InputError("no such file or folder", code="not-found", path=name, remedy=remedy)
    raise InputError(
        "the format of this source cannot be inferred from its name",
        code="unknown-format",
        path=name,
        expected="a folder, .tar or a Croissant description",
        remedy="name the format: --format webdataset, croissant or folder (format=); images of any other "
        "format can be given to holdfast.data.records.write as dicts",
    )


def _format_of_folder(path: Path) -> str:
    if description_at(path) is not None:
        return "croissant"
    entries = [entry for entry in path.iterdir() if not entry.name.startswith(".")]
    names = [entry.name for entry in entries if not entry.is_dir()]
    tars = [name for name in names if name.endswith((".tar", ".tar.gz", ".tgz"))]
    if not tars:
        return "folder"
    folders = [entry.name for entry in entries if entry.is_dir()]
    if others := folders or [name for name in names if named_as_image(name)]:
        raise InputError(
            "this folder could be read in several ways",
            code="ambiguous-format",
            path=path,
            found=f"{tars[0]} beside {others[0]}",
            remedy="name the format: --format webdataset or folder (format=); or give the shards as a "
            "pattern",
        )
    return "webdataset"
