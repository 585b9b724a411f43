"""Names in archives: relative, inside the archive, each once; any other is refused before it is used."""

from __future__ import annotations

import re
from collections.abc import Iterable

from holdfast.errors import InputError

_DRIVE = re.compile(r"[A-Za-z]:")
_CLIMBS = re.compile(r"(?:\.\./)+")


def clean(name: str, archive: str) -> str:
    """A name as a path from the archive's root, without ``.`` and empty parts.

    Raises:
        InputError: if it could lead out of the archive, or means different files on different systems.
    """
    if "\0" in name:
        why = "a NUL in it, at which some programs end it"
    elif "\\" in name:
        why = "a backslash, which separates folders on some systems"
    elif name.startswith("/"):
        why = "an absolute path"
    elif _DRIVE.match(name):
        why = "a drive's letter"
    elif ".." in name and ".." in name.split("/"):
        why = "a path that leads out of the archive"
    elif "//" in name or name.startswith("./") or "/./" in name or name.endswith(("/", "/.")):
        return "/".join(part for part in name.split("/") if part not in ("", "."))
    else:
        return name
    raise refused(f"a name in this archive has {why}", name, archive)


def refused(problem: str, name: str, archive: str, expected: str | None = None) -> InputError:
    """The error of a member that no honest archive has."""
    return InputError(
        problem,
        code="unsafe-archive",
        path=archive,
        place=f"member {name!r}",
        expected=expected or "plain files with relative names below the archive's root",
        remedy="do not trust this archive; if you made it, rebuild it without that member",
    )


def taken_twice(name: str, archive: str) -> InputError:
    """The error of two members of one name."""
    problem = "two members of this archive have the same name"
    return refused(problem, name, archive, "each name once")


def common_climb(names: Iterable[str]) -> str:
    """The ``../../`` with which all of several names start; empty where they do not start alike.

    An archive packed from beside its folder (``zip files.zip ../../data/*``) has names that climb, all
    alike, and means what is below. One name that climbs on its own is meant to lead somewhere else.
    """
    climbs: list[str] = []
    for name in names:
        climb = _CLIMBS.match(name)
        if climb is None or (climbs and climb[0] != climbs[0]):
            return ""
        climbs.append(climb[0])
    return climbs[0] if len(climbs) > 1 else ""
