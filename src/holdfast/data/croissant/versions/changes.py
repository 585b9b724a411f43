"""What a new version of a description changed, and the version number that this calls for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from holdfast.answer import Answer, Finding, Section, Table
from holdfast.data.croissant.versions import version_numbers as versions
from holdfast.data.croissant.versions.version_numbers import BUMPS, Bump, StatedBump
from holdfast.numbers import counted
from holdfast.plain import plain

GroupName = Literal["metadata", "resources", "record sets", "fields"]


@dataclass(frozen=True, kw_only=True)
class Change:
    """One difference between two descriptions.

    Attributes:
        kind: stable, such as ``field-removed``.
        group: which part of the description it is in.
        bump: which number of the data's version it calls for.
        certain: whether the descriptions alone prove that; else it is the cautious reading, and only the
            data could tell.
        subject: the id of what changed; ``""`` for the dataset.
        message: one sentence.
        reason: why it has this consequence.
        old: what was there, as JSON; None where nothing was.
        new: what is there, as JSON.
        old_at: pointer into the older description; None where it has no such thing.
        new_at: pointer into the newer one.
    """

    kind: str
    group: GroupName
    bump: Bump
    certain: bool = True
    subject: str = ""
    message: str
    reason: str
    old: Any = None
    new: Any = None
    old_at: str | None = None
    new_at: str | None = None


@dataclass(frozen=True, kw_only=True)
class Difference(Answer):
    """All changes from one description to another.

    Attributes:
        old: the older file.
        new: the newer file.
        changes: the dataset's, those of files, of record sets and of fields.
        old_version: the data's version that the older description states.
        new_version: the one that the newer states.
        unverified: ids of files in both of which no checksum tells whether their bytes changed.
    """

    old: Path | str
    new: Path | str
    changes: tuple[Change, ...]
    old_version: str | None
    new_version: str | None
    unverified: tuple[str, ...] = ()

    @cached_property
    def needed(self) -> Bump:
        """The bump that the changes call for, on the cautious reading."""
        return versions.worst([change.bump for change in self.changes])

    @cached_property
    def proven(self) -> Bump:
        """The bump that the descriptions alone prove to be needed."""
        return versions.worst([change.bump for change in self.changes if change.certain])

    @property
    def stated_bump(self) -> StatedBump:
        """The part of the version number that the descriptions' authors raised."""
        return versions.stated_bump(self.old_version, self.new_version)

    @property
    def suffices(self) -> bool | None:
        """Whether the versions say what the changes need; None where that cannot be told.

        That is so between what the descriptions prove and what only the data could, and of versions that
        are not of the form MAJOR.MINOR.PATCH.
        """
        if versions.is_enough(self.stated_bump, self.needed):
            return True
        may_do = self.stated_bump == "unreadable" or versions.is_enough(
            self.stated_bump, self.proven
        )
        return None if may_do else False

    @property
    def suggested(self) -> str | None:
        """The least version that would do; None where no number can be counted up."""
        return versions.raised(self.old_version, self.needed)

    @property
    def unknown(self) -> list[str]:
        """What the descriptions do not let anyone tell."""
        return [
            f"whether the bytes of {name} changed: no checksum to compare"
            for name in self.unverified
        ]

    def to_dict(self) -> dict[str, Any]:
        """The JSON that programs read."""
        counts = Counter(change.bump for change in self.changes)
        return {
            "old": str(self.old),
            "new": str(self.new),
            "old_version": self.old_version,
            "new_version": self.new_version,
            "needed": self.needed,
            "proven": self.proven,
            "said": self.stated_bump,
            "suffices": self.suffices,
            "suggested": self.suggested,
            "unknown": self.unknown,
            "counts": {bump: counts[bump] for bump in BUMPS},
            "changes": plain(self.changes),
        }

    @property
    def exit_code(self) -> int:
        """0 if the versions say what the changes need."""
        return int(not self.suffices)

    def findings(self) -> Sequence[Finding]:
        """One sentence each: what changed, what the versions say, and what cannot be told."""
        said = [f"{counted(len(self.changes), 'change')}; version increase needed: {self.needed}"]
        if self.needed != self.proven:
            said[0] += f" ({self.proven} if the data are unchanged)"
        answers = {True: "enough", False: "too low", None: "enough or not, cannot be told"}
        said.append(
            f"Versions: {self.old_version or 'none'}, then {self.new_version or 'none'}: "
            f"{answers[self.suffices]}"
        )
        if not self.suffices and self.suggested:
            said.append(f"Next version: {self.suggested}")
        if self.unverified:
            files = counted(len(self.unverified), "file")
            said.append(f"Cannot tell whether the bytes of {files} changed: no checksum to compare")
        return [Finding(f"{one}.", "changes") for one in said]

    def sections(self) -> Sequence[Section]:
        """Each change, what it calls for, and where it is."""
        rows = [
            {
                "calls_for": change.bump + "?" * (not change.certain),
                "change": change.message,
                "old": change.old_at if change.old_at != "" else "/",
                "new": change.new_at if change.new_at != "" else "/",
            }
            for change in self.changes
        ]
        table = Table(pa.Table.from_pylist(rows), empty="No changes.")
        sentence = f"{counted(len(rows), 'change')}."
        return [Section("changes", "What changed?", sentence, tables=[table])]
