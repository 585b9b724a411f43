"""Files that belong together: the shards of a table, the splits of a table, a tree of images."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from holdfast.data.croissant.describing.kinds import Kind
from holdfast.data.croissant.describing.naming import stem
from holdfast.data.croissant.describing.places import Place
from holdfast.data.croissant.describing.splits import (
    alternatives,
    are_splits,
    is_split,
    split_in,
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
class Split:
    """How a file tells its split.

    Attributes:
        names: the splits, in the order train, validation, test as far as they are these.
        regex: captures it from a file's full path; "" where all files are of the one split in `names`,
            which only the archive's name tells.
    """

    names: tuple[str, ...]
    regex: str = ""


@dataclass(frozen=True)
class Group:
    """Files that one record set takes its records from.

    Attributes:
        kind: of all of them.
        places: the files, sorted.
        name: a name for the record set.
        split: None where nothing tells one.
        labels: the classes that the files' folders are named for, sorted; empty where they are for none.
        numbered: file names hold a number that is no mere count of shards, such as a year.
        remark: what could not be told about the folders; "" for nothing.
    """

    kind: Kind
    places: tuple[Place, ...]
    name: str
    split: Split | None = None
    labels: tuple[str, ...] = ()
    numbered: bool = False
    remark: str = ""


LABEL_REGEX = r"^(?:.*/)?([^/]+)/[^/]+$"
"""Captures the name of the folder that a file is in."""


def in_order(splits: Iterable[str]) -> tuple[str, ...]:
    """Names of splits: for training first, then validation, then test."""
    rank = {"t": 0, "v": 1, "d": 1, "e": 2}
    return tuple(
        sorted(
            set(splits),
            key=lambda name: (
                2 if name.lower().startswith("test") else rank[name[0].lower()],
                name,
            ),
        )
    )


def table_candidates(places: Iterable[Place]) -> list[list[Place]]:
    """Tables that their names make shards or splits of one, if they have the same columns.

    Returns:
        Lists of files; each file is in one, most of them alone.
    """
    groups: dict[tuple[str, ...], list[Place]] = defaultdict(list)
    for place in sorted(places):
        *folders, name = place.path.split("/")
        bare = _without_split(stem(name, place.ending))
        parents = ["{split}" if is_split(folder) else _numberless(folder) for folder in folders]
        key = (_numberless(place.archive), *parents, _numberless(bare), place.ending.lower())
        groups[key].append(place)
    return list(groups.values())


def table_group(places: Sequence[Place]) -> Group:
    """What a table's files say by their names; they are one table's already."""
    paths = [place.path for place in places]
    first = places[0]
    split = _split_of_paths(paths) or _split_of_archives(places)
    name = _without_split(stem(first.path, first.ending))
    if len(places) > 1 or _OF.search(name) or name.isdigit():
        around = _SHARD.split(name)
        name = re.sub(r"(?i)[-_. ]*(?:\bpart)?[-_. ]*$", "", around[0] or around[-1])
    name = name.replace("{split}", "").strip("-_. ")
    if not name:
        folders = [
            folder
            for folder in first.path.split("/")[:-1]
            if not is_split(folder) and folder.lower() not in _ROLES
        ]
        alone = stem(first.path, first.ending)
        own = len(places) == 1 and not _OF.search(alone) and not alone.isdigit()
        name = folders[-1] if folders else alone if own else "records"
    return Group(
        Kind.TABLE, tuple(places), name, split, numbered=len(places) > 1 and _numbers_mean(places)
    )


def media_groups(places: Iterable[Place]) -> list[Group]:
    """Images, audio, videos or texts (each kind for itself) as the trees that they stand in."""
    trees: dict[tuple[Kind, str], list[Place]] = defaultdict(list)
    for place in sorted(places):
        trees[place.kind, _numberless(place.archive)].append(place)
    return [group for (kind, _), tree in trees.items() for group in _grouped(kind, tree, 0, "")]


def _grouped(kind: Kind, tree: Sequence[Place], level: int, name: str) -> list[Group]:
    """The groups of a tree whose folders above `level` are settled; `name` is the last that named it."""
    folders = [place.path.split("/")[:-1] for place in tree]
    depths = {len(each) for each in folders}
    while all(len(each) > level for each in folders):
        names = {each[level] for each in folders}
        if len(names) == 1:
            only = next(iter(names))
            name = name if is_split(only) or only.lower() == "data" else only
        elif not ((found := _one_place(names)) and are_splits(found.values)):
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
    if _are_roles(inside):
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
    split = _split_of_paths([place.path for place in tree]) or _split_of_archives(tree)
    plain = {Kind.IMAGE: "images", Kind.AUDIO: "audio", Kind.VIDEO: "videos"}.get(kind, "texts")
    bare = _without_split(name).replace("{split}", "").strip("-_. ")
    return Group(kind, tuple(tree), bare or plain, split, labels, remark=remark)


def _are_roles(inside: dict[str, list[Place]]) -> bool:
    """Whether neighbouring folders hold different things about the same subjects, not different classes."""
    if any(folder.lower() in _ROLES for folder in inside):
        return True
    stems = {
        frozenset(stem(place.path, place.ending) for place in part) for part in inside.values()
    }
    return len(stems) == 1 and len(next(iter(stems))) > 1  # the same file names in each


def _no_classes(inside: dict[str, list[Place]], files: int) -> str:
    """Why neighbouring folders are not taken for classes; "" where they are."""
    shown = f"{len(inside):,} folders ({', '.join(map(repr, sorted(inside)[:3]))} ...)"
    if sum(map(is_split, inside)) > 1:
        return f"some of {shown} are named for splits, some are not: no label was made of them"
    if files < 2 * len(inside):
        return f"{shown} hold {files:,} files: too few to take them for classes"
    numbers = sorted(int(name) for name in inside if name.isdecimal())
    first = numbers[0] if numbers else 0
    counted = numbers == list(range(first, first + len(numbers))) and first in (0, 1)
    padded = any(len(name) > 1 and name[0] == "0" for name in inside)
    if len(numbers) == len(inside) and (padded or not counted):
        return f"{shown} may be classes or mere parts: no label was made of their numbers"
    archives = [{place.archive for place in part} for part in inside.values()]
    if len(set().union(*archives)) > 1 and all(len(each) == 1 for each in archives):
        return f"{shown} are each in one archive only: too little to take them for classes"
    return ""


def _split_of_paths(paths: Sequence[str]) -> Split | None:
    """The split that every path tells at one place: a folder's name, or the file's."""
    parts = [path.split("/") for path in paths]
    for level in range(min(map(len, parts)) - 1):
        found = _one_place(each[level] for each in parts)
        if found is None or not are_splits(found.values):
            continue
        group = re.escape(found.before) + alternatives(found.values) + re.escape(found.after)
        for start in ("(?:.*/)?", f"(?:[^/]+/){{{level}}}"):
            regex = f"^{start}{group}/"
            if _captures(regex, paths, found.values):
                return Split(in_order(found.values), regex)
    values = [match[0] for each in parts if (match := split_in(each[-1]))]
    if len(values) < len(paths) or not are_splits(values):
        return None
    regex = rf"^(?:.*/)?(?:[^/]*[^/a-zA-Z])?{alternatives(values)}(?:[^/a-zA-Z][^/]*)?$"
    return Split(in_order(values), regex) if _captures(regex, paths, values) else None


def _split_of_archives(places: Sequence[Place]) -> Split | None:
    values = {found[0] if (found := split_in(place.archive)) else "" for place in places}
    return Split(tuple(values)) if len(values) == 1 and values != {""} else None


def _captures(regex: str, paths: Sequence[str], values: Sequence[str]) -> bool:
    pattern = re.compile(regex)
    matches = map(pattern.match, paths)
    return all(match and match[1] == value for match, value in zip(matches, values, strict=True))


@dataclass(frozen=True)
class _Around:
    """Names that differ only in the split that they name."""

    before: str
    values: list[str]
    after: str


def _one_place(names: Iterable[str]) -> _Around | None:
    """Names cut at their splits; None if one names none, or they differ elsewhere too."""
    around, values = set(), []
    for name in names:
        if not (found := split_in(name)):
            return None
        around.add((name[: found.start()], name[found.end() :]))
        values.append(found[0])
    if len(around) > 1:
        return None
    before, after = around.pop()
    return _Around(before, values, after)


def _without_split(name: str) -> str:
    """A name with ``{split}`` where its split stands."""
    found = split_in(name)
    return f"{name[: found.start()]}{{split}}{name[found.end() :]}" if found else name


def _numberless(name: str) -> str:
    """A name with ``#`` for each of its numbers and random ids."""
    return _SHARD.sub("#", name)


def _numbers_mean(places: Sequence[Place]) -> bool:
    """Whether the numbers in file names say more than which shard a file is."""
    if any(_OF.search(place.name) for place in places):
        return False
    found = (re.search(r"\d+", place.name) for place in places)
    numbers = sorted({int(match[0]) for match in found if match})
    return bool(numbers) and numbers not in (
        list(range(first, first + len(numbers))) for first in (0, 1)
    )
