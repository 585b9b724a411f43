"""Parts of a dataset for training, validation and testing, by the names of folders and files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from holdfast.data.croissant.describing.places import Place

# Names that hosts of datasets agree on -> what they mean.
_MEANINGS = {
    **dict.fromkeys(("train", "training"), "cr:TrainingSplit"),
    **dict.fromkeys(("val", "valid", "validation", "dev"), "cr:ValidationSplit"),
    **dict.fromkeys(("test", "testing", "eval", "evaluation"), "cr:TestSplit"),
}
# What follows such a name where a file is about the training or a test, and holds no data of it.
_ABOUT = r"[\W_]*(?:logs?|history|curves?|metrics?|results?|reports?|stats|args|config)(?![^\W\d_])"
_IN_NAME = re.compile(
    rf"(?i)(?<![^\W\d_])({'|'.join(sorted(_MEANINGS, key=len, reverse=True))})(?![^\W\d_]|{_ABOUT})"
)


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
class Around:
    """Names that differ only in the split that they name."""

    before: str
    values: list[str]
    after: str


def meaning(split: str) -> str:
    """The class of a split's name, such as ``cr:TrainingSplit``."""
    return _MEANINGS[split.lower()]


def is_split(folder: str) -> bool:
    """Whether a folder's whole name is that of a split."""
    return folder.lower() in _MEANINGS


def split_in(name: str) -> re.Match[str] | None:
    """The match of a split in a file's or archive's name: exactly one, as a separate word."""
    matches = list(_IN_NAME.finditer(name))
    return matches[0] if len(matches) == 1 else None


def _are_splits(names: Iterable[str]) -> bool:
    """Whether names that could be splits' are: one of them is for training, or there are several."""
    meanings = {meaning(name) for name in names}
    return "cr:TrainingSplit" in meanings or len(meanings) > 1


def _alternatives(names: Iterable[str]) -> str:
    """A regular expression's group that captures any of the names, the longest first."""
    longest_first = sorted(set(names), key=lambda name: (-len(name), name))
    return f"({'|'.join(map(re.escape, longest_first))})"


def in_order(splits: Iterable[str]) -> tuple[str, ...]:
    """Names of splits: for training first, then validation, then test."""
    order = list(dict.fromkeys(_MEANINGS.values()))
    return tuple(sorted(set(splits), key=lambda name: (order.index(meaning(name)), name)))


def without_split(name: str) -> str:
    """A name with ``{split}`` where its split stands."""
    split = split_in(name)
    return f"{name[: split.start()]}{{split}}{name[split.end() :]}" if split else name


def splits_in(names: Iterable[str]) -> Around | None:
    """Names cut at their splits; None if one has no split, they differ elsewhere, or are not splits."""
    around, values = set(), []
    for name in names:
        if not (found := split_in(name)):
            return None
        around.add((name[: found.start()], name[found.end() :]))
        values.append(found[0])
    if len(around) > 1 or not _are_splits(values):
        return None
    ((before, after),) = around
    return Around(before, values, after)


def find_split(places: Sequence[Place]) -> Split | None:
    """The split that every path tells at one place, a folder's or the file's name; else the archive's."""
    paths = [place.path for place in places]
    parts = [path.split("/") for path in paths]
    for level in range(min(map(len, parts)) - 1):
        if (found := splits_in(each[level] for each in parts)) is None:
            continue
        group = re.escape(found.before) + _alternatives(found.values) + re.escape(found.after)
        for start in ("(?:.*/)?", f"(?:[^/]+/){{{level}}}"):
            regex = f"^{start}{group}/"
            if _captures(regex, paths, found.values):
                return Split(in_order(found.values), regex)
    values = [match[0] for each in parts if (match := split_in(each[-1]))]
    if len(values) == len(paths) and _are_splits(values):
        regex = rf"^(?:.*/)?(?:[^/]*[^/a-zA-Z])?{_alternatives(values)}(?:[^/a-zA-Z][^/]*)?$"
        if _captures(regex, paths, values):
            return Split(in_order(values), regex)
    archives = {match[0] if (match := split_in(place.archive)) else "" for place in places}
    return Split(tuple(archives)) if len(archives) == 1 and archives != {""} else None


def _captures(regex: str, paths: Sequence[str], values: Sequence[str]) -> bool:
    pattern = re.compile(regex)
    matches = map(pattern.match, paths)
    return all(match and match[1] == value for match, value in zip(matches, values, strict=True))
