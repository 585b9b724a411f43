"""Files that belong together: the shards of a table, the splits of a table, a tree of images."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from holdfast.data.croissant.describing.places import Kind, Place
from holdfast.data.croissant.describing.splits import (
    Split,
    find_split,
    is_split,
    splits_in,
    without_split,
)

# Folders named for what is in them, not for a class that their files show.
_ROLES = frozenset(
    word
    for line in (
        "images image imgs img pictures photos photo jpegimages frames videos video thumbnails",
        "audios audio wavs wav clips sounds texts text txt docs documents",
        "masks mask segmentations segmentation annotations annotation annots labels label targets target",
        "gt groundtruth ground_truth depth rgb left right",
        "data dataset files raw inputs input outputs output originals original metadata meta",
    )
    for word in line.split()
)
_SHARD = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\d+(?:-of-\d+)?", re.IGNORECASE
)
_OF = re.compile(r"\d-of-\d|part[-_.]?\d", re.IGNORECASE)


@dataclass(frozen=True)
class Group:
    """Files that one record set takes its records from.

    Attributes:
        kind: kind of all files.
        places: the files, sorted.
        name: a name for the record set.
        split: the split; None if unknown.
        labels: classes named by the files' folders, sorted; empty if the folders are not classes.
        remark: what could not be determined about the folders; "" for nothing.
    """

    kind: Kind
    places: tuple[Place, ...]
    name: str
    split: Split | None = None
    labels: tuple[str, ...] = ()
    remark: str = ""


LABEL_REGEX = r"^(?:.*/)?([^/]+)/[^/]+$"
"""Captures the name of the folder that a file is in."""


def table_candidates(places: Iterable[Place]) -> list[list[Place]]:
    """Tables that their names make shards or splits of one, if they have the same columns.

    Returns:
        Lists of files; each file is in one, most of them alone.
    """
    groups: dict[tuple[str, ...], list[Place]] = defaultdict(list)
    for place in sorted(places):
        folders = place.path.split("/")[:-1]
        bare = without_split(place.stem)
        parents = [_comparable(folder) for folder in folders]
        key = (_numberless(place.archive), *parents, _numberless(bare), place.ending.lower())
        groups[key].append(place)
    return list(groups.values())


def table_group(places: Sequence[Place]) -> Group:
    """What a table's files say by their names; they are one table's already."""
    first = places[0]
    name = without_split(first.stem)
    if len(places) > 1 or _OF.search(name) or name.isdigit():
        around = _SHARD.split(name)
        name = re.sub(r"(?i)(?<![-_. ])[-_. ]*+(?:\bpart[-_. ]*+)?$", "", around[0] or around[-1])
    name = name.replace("{split}", "").strip("-_. ")
    if not name:
        folders = [
            folder
            for folder in first.path.split("/")[:-1]
            if not (is_split(folder) or "=" in folder or folder.lower() in _ROLES)
        ]
        alone = first.stem
        own = len(places) == 1 and not _OF.search(alone) and not alone.isdigit()
        name = folders[-1] if folders else alone if own else "records"
    return Group(
        Kind.TABLE,
        tuple(places),
        name,
        find_split(places),
    )


def _comparable(folder: str) -> str:
    """What the folders of one table's files have in common."""
    if is_split(folder):
        return "{split}"
    return _numberless(folder.partition("=")[0])  # `year=2024` is a folder of the table by year


def media_groups(places: Iterable[Place]) -> list[Group]:
    """Images, audio or videos (each kind for itself) as the trees that they stand in."""
    trees: dict[tuple[Kind, str, str], list[Place]] = defaultdict(list)
    for place in sorted(places):
        trees[place.kind, _numberless(place.archive), place.charset].append(place)
    return [group for (kind, *_), tree in trees.items() for group in _grouped(kind, tree, 0, "")]


def _grouped(kind: Kind, tree: Sequence[Place], level: int, name: str) -> list[Group]:
    """The groups of a tree whose folders above `level` are settled; `name` is the last that named it."""
    folders = [place.path.split("/")[:-1] for place in tree]
    depths = {len(each) for each in folders}
    while all(len(each) > level for each in folders):
        names = {each[level] for each in folders}
        if len(names) == 1:
            only = next(iter(names))
            name = name if is_split(only) or only.lower() == "data" else only
        elif splits_in(names) is None:
            break
        level += 1
    if min(depths) == level < max(depths):  # some files stand beside folders of others
        here = [place for place, each in zip(tree, folders, strict=True) if len(each) == level]
        below = [place for place, each in zip(tree, folders, strict=True) if len(each) > level]
        return [*_grouped(kind, here, level, name), *_grouped(kind, below, level, name)]
    if min(depths) == level:
        return [_media_group(kind, tree, name)]
    inside: dict[str, list[Place]] = defaultdict(list)
    for place, each in zip(tree, folders, strict=True):
        inside[each[level]].append(place)
    if _are_roles(inside, find_split(tree) is not None):
        return [
            group for folder, part in inside.items() for group in _grouped(kind, part, level, folder)
        ]  # fmt: skip
    if depths != {level + 1}:
        remark = f"what the folders inside {sorted(inside)[0]!r} and its neighbours stand for is not known"
        return [_media_group(kind, tree, name, remark=remark)]
    if remark := _no_classes(inside, len(tree)):
        return [_media_group(kind, tree, name, remark=remark)]
    return [_media_group(kind, tree, name, labels=tuple(sorted(inside)))]


def _media_group(
    kind: Kind, tree: Sequence[Place], name: str, labels: tuple[str, ...] = (), remark: str = ""
) -> Group:
    split = find_split(tree)
    plain = {Kind.IMAGE: "images", Kind.AUDIO: "audio", Kind.VIDEO: "videos"}[kind]
    bare = without_split(name).replace("{split}", "").strip("-_. ")
    return Group(kind, tuple(tree), bare or plain, split, labels, remark=remark)


def _are_roles(inside: dict[str, list[Place]], split: bool) -> bool:
    """Whether neighbouring folders hold different things about the same subjects, not different classes."""
    if any(folder.lower() in _ROLES for folder in inside):
        return True
    stems = {frozenset(place.stem for place in part) for part in inside.values()}
    same = next(iter(stems))
    # The same file names in each; inside splits, numbers may merely count the files of each class.
    counts = split and all(map(str.isdecimal, same))
    return len(stems) == 1 and len(same) > 1 and not counts


def _no_classes(inside: dict[str, list[Place]], files: int) -> str:
    """Why neighbouring folders are not taken for classes; "" where they are."""
    shown = f"{len(inside):,} folders ({', '.join(map(repr, sorted(inside)[:3]))} ...)"
    if sum(map(is_split, inside)) > 1:
        return f"some of {shown} are named for splits, some are not: no label column"
    if files < 2 * len(inside):
        return f"{shown} hold {files:,} files: too few to take them for classes"
    numbers = sorted(int(name) for name in inside if name.isdecimal())
    first = numbers[0] if numbers else 0
    counted = numbers == list(range(first, first + len(numbers))) and first in (0, 1)
    padded = any(len(name) > 1 and name[0] == "0" for name in inside)
    if len(numbers) == len(inside) and (padded or not counted):
        return f"{shown} may be classes or mere parts: no label column"
    archives = [{place.archive for place in part} for part in inside.values()]
    if len(set().union(*archives)) > 1 and all(len(each) == 1 for each in archives):
        return f"{shown} are each in one archive only: too little to take them for classes"
    return ""


def _numberless(name: str) -> str:
    """A name with ``#`` for each of its numbers and random ids."""
    return _SHARD.sub("#", name)
