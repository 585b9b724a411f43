"""Patterns for sets of files: they choose the files that were meant, and no others."""

from __future__ import annotations

import glob
import posixpath
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from holdfast.data.croissant.describing.places import Place
from holdfast.data.croissant.files.patterns import Patterns


@dataclass(frozen=True)
class Chosen:
    """What a FileSet says about its files."""

    includes: tuple[str, ...]
    excludes: tuple[str, ...] = ()


def choose(places: Sequence[Place], universe: Mapping[str, Sequence[str]]) -> Chosen:
    """Patterns for files: the shortest that choose exactly these.

    Args:
        places: the files, of one or several containers.
        universe: container ("" for the folder) -> paths of all files in it.
    """
    wanted: dict[str, set[str]] = defaultdict(set)
    for place in places:
        wanted[place.archive].add(place.path)
    for includes in _tries(places):
        pattern = Patterns(includes)
        found = {container: set(pattern.choose(universe[container])) for container in wanted}
        if found == wanted:
            return Chosen(includes)
        extra = sorted(
            {path for container in wanted for path in found[container] - wanted[container]}
        )
        if all(found[container] >= wanted[container] for container in wanted) and len(extra) <= 20:
            excludes = tuple(map(glob.escape, extra))
            pattern = Patterns(includes, excludes)
            if all(set(pattern.choose(universe[each])) == wanted[each] for each in wanted):
                return Chosen(includes, excludes)
    return Chosen(tuple(sorted({glob.escape(place.path) for place in places})))


def _tries(places: Sequence[Place]) -> Iterator[tuple[str, ...]]:
    """Patterns to be tried: the common folder, then each folder, with the files' endings."""
    common = posixpath.commonpath([posixpath.dirname(place.path) for place in places])
    start = f"{glob.escape(common)}/" if common else ""
    yield tuple(sorted({f"{start}*{glob.escape(place.ending)}" for place in places}))
    names = {place.name[: len(place.name) - len(place.ending)] for place in places}
    shared = posixpath.commonprefix(sorted(names))
    if shared and len(names) > 1:
        start += glob.escape(shared)
        yield tuple(sorted({f"{start}*{glob.escape(place.ending)}" for place in places}))
    folders = {(posixpath.dirname(place.path), place.ending) for place in places}
    if len(folders) <= 100:
        yield tuple(
            f"{glob.escape(folder)}/*{glob.escape(ending)}" if folder else f"*{glob.escape(ending)}"
            for folder, ending in sorted(folders)
        )
