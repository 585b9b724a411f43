"""What a new version of a description changed, and the version number that this calls for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from holdfast.data.croissant.evolving import versions
from holdfast.data.croissant.evolving.versions import BUMPS, Bump, Said
from holdfast.numbers import counted

GroupName = Literal["metadata", "resources", "record sets", "fields", "splits", "data"]
GROUPS: tuple[GroupName, ...] = ("metadata", "resources", "record sets", "fields", "splits", "data")
_QUOTED = 60


@dataclass(frozen=True, kw_only=True)
class Change:
    """One difference between two descriptions.

    Attributes:
        kind: stable, such as ``field-removed``.
        group: which part of the description it is in.
        bump: which number of the data's version it calls for.
        certain: whether the descriptions alone prove that; else it is the cautious reading, and only the
            data could tell.
        subject: the id of what changed, as the newer description has it; ``""`` for the dataset.
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
    message: str
    reason: str
    certain: bool = True
    subject: str = ""
    old: Any = None
    new: Any = None
    old_at: str | None = None
    new_at: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """The JSON that programs read."""
        return {
            "kind": self.kind,
            "group": self.group,
            "bump": self.bump,
            "certain": self.certain,
            "subject": self.subject,
            "message": self.message,
            "reason": self.reason,
            "old": self.old,
            "new": self.new,
            "old_at": self.old_at,
            "new_at": self.new_at,
        }


@dataclass(frozen=True, kw_only=True)
class Difference:
    """All changes from one description to another.

    Attributes:
        old: the older file.
        new: the newer file.
        changes: by group, in the order of the newer description; what is gone stands first.
        old_version: the data's version that the older description states.
        new_version: the one that the newer states.
        live: whether the newer description is of a live dataset, whose files may grow.
        description_version_changed: whether ``sdVersion`` differs, the version of the description itself.
    """

    old: Path | str
    new: Path | str
    changes: tuple[Change, ...]
    old_version: str | None
    new_version: str | None
    live: bool = False
    description_version_changed: bool = False

    @cached_property
    def needed(self) -> Bump:
        """The bump that the changes call for, on the cautious reading."""
        return versions.worst([change.bump for change in self.changes])

    @cached_property
    def proven(self) -> Bump:
        """The bump that the descriptions alone prove to be needed."""
        return versions.worst([change.bump for change in self.changes if change.certain])

    @property
    def said(self) -> Said:
        """The part of the version number that the descriptions' authors raised."""
        return versions.said(self.old_version, self.new_version)

    @property
    def suffices(self) -> bool:
        """Whether the versions say what the changes need.

        Where only the description changed, a new ``sdVersion`` will do.
        """
        only_said = all(
            change.group == "metadata" for change in self.changes if change.bump != "none"
        )
        if self.description_version_changed and self.needed == "patch" and only_said:
            return self.said != "back"
        return versions.is_enough(self.said, self.needed)

    @property
    def suggested(self) -> str | None:
        """The least version that would do; None where no number can be counted up."""
        return versions.raised(self.old_version, self.needed)

    def grouped(self) -> Iterator[tuple[GroupName, list[Change]]]:
        """The groups that have changes."""
        for group in GROUPS:
            if found := [change for change in self.changes if change.group == group]:
                yield group, found

    def to_dict(self) -> dict[str, Any]:
        """The JSON that programs read."""
        return {
            "old": str(self.old),
            "new": str(self.new),
            "old_version": self.old_version,
            "new_version": self.new_version,
            "live": self.live,
            "needed": self.needed,
            "proven": self.proven,
            "said": self.said,
            "suffices": self.suffices,
            "suggested": self.suggested,
            "counts": {bump: sum(change.bump == bump for change in self.changes) for bump in BUMPS},
            "changes": [change.to_dict() for change in self.changes],
        }

    def text(self) -> str:
        """The report for a terminal."""
        lines: list[str] = []
        for group, changes in self.grouped():
            lines.append(f"{group[0].upper()}{group[1:]}")
            for change in changes:
                bump = (
                    ""
                    if change.bump == "none"
                    else change.bump.upper() + ("" if change.certain else "?")
                )
                lines.append(f"  {bump:7}{change.message}")
                lines.append(f"         {_places(change)}")
        if lines:
            lines.append("")
        return "\n".join([*lines, self.verdict()]) + "\n"

    def verdict(self) -> str:
        """One sentence: what changed, what that calls for, and whether the versions say so."""
        if not self.changes:
            return f"No changes. {self._versions()}"
        count = counted(len(self.changes), "change")
        if self.needed == "none":
            return f"{count}; no new version of the data is needed. {self._versions()}"
        doubt = "" if self.needed == self.proven else ", unless the data are unchanged"
        wanted = f"{count}; a {self.needed.upper()} version increase is needed{doubt}. {self._versions()}"
        if self.suffices or self.suggested is None:
            return wanted
        return f"{wanted} Next version: {self.suggested}."

    def _versions(self) -> str:
        old, new = self.old_version, self.new_version
        if old is None and new is None:
            return "Neither description has a version."
        if old is None or new is None:
            which, stated = ("older", new) if old is None else ("newer", old)
            return f"The {which} description has no version (the other: {stated})."
        if old == new:
            return f"Both have version {old}" + ("." if self.suffices else ", which is too low.")
        verdicts = {"back": "a decrease", "unreadable": "not of the form MAJOR.MINOR.PATCH"}
        verdict = verdicts.get(
            self.said, "which is sufficient" if self.suffices else "which is too low"
        )
        return f"The version went from {old} to {new}, {verdict}."


def _places(change: Change) -> str:
    old, new = (None if at is None else at or "/" for at in (change.old_at, change.new_at))
    if old == new or old is None or new is None:
        return f"{'old ' if new is None else 'new ' if old is None else ''}{old if new is None else new}"
    return f"old {old}, new {new}"


SAME = "the data are unchanged"
MORE = "existing data remain available unchanged"
GONE = "existing data are no longer available unchanged"
DOUBT = "records may differ; only the data can show it"
LIVE = "the files of a live dataset are expected to grow"


def short(value: Any) -> str:
    """A value as a message quotes it: JSON, cut off where it is long."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _QUOTED else f"{text[: _QUOTED - 1]}…"
