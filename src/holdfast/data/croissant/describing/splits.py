"""Parts of a dataset for training, validation and testing, by the names of folders and files."""

from __future__ import annotations

import re
from collections.abc import Iterable

# Names that hosts of datasets agree on -> what they mean.
_MEANINGS = {
    "train": "cr:TrainingSplit",
    "training": "cr:TrainingSplit",
    "val": "cr:ValidationSplit",
    "valid": "cr:ValidationSplit",
    "validation": "cr:ValidationSplit",
    "dev": "cr:ValidationSplit",
    "test": "cr:TestSplit",
    "testing": "cr:TestSplit",
    "eval": "cr:TestSplit",
    "evaluation": "cr:TestSplit",
}
_IN_NAME = re.compile(
    rf"(?i)(?<![^\W\d_])({'|'.join(sorted(_MEANINGS, key=len, reverse=True))})(?![^\W\d_])"
)


def meaning(split: str) -> str:
    """The class of a split's name, such as ``cr:TrainingSplit``."""
    return _MEANINGS[split.lower()]


def is_split(folder: str) -> bool:
    """Whether a folder's whole name is that of a split."""
    return folder.lower() in _MEANINGS


def split_in(name: str) -> re.Match[str] | None:
    """Where a file's or archive's name says its split: once, as a word of its own."""
    found = list(_IN_NAME.finditer(name))
    return found[0] if len(found) == 1 else None


def are_splits(names: Iterable[str]) -> bool:
    """Whether names that could be splits' are: one of them is for training, or there are several."""
    meanings = {meaning(name) for name in names}
    return "cr:TrainingSplit" in meanings or len(meanings) > 1


def alternatives(names: Iterable[str]) -> str:
    """A regular expression's group that captures any of the names, the longest first."""
    return (
        f"({'|'.join(re.escape(name) for name in sorted(set(names), key=lambda n: (-len(n), n)))})"
    )
