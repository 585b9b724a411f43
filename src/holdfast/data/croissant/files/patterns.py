"""The patterns of a FileSet: which paths it includes, which of them it excludes.

A pattern is matched against the whole path as by `fnmatch`, case-sensitively: ``*`` and ``?`` also match
``/``, so that ``*.jpg`` finds ``a/b.jpg``. Beyond that, ``**/`` also stands for no folder at all,
``{a,b}`` and ``(a|b)`` for one of several texts, and a leading ``/`` or ``./`` for nothing. Whatever
`fnmatch` matches is matched.

Hidden files (``.name``, or in a folder ``.name``) and the resource forks that a Mac puts into archives
(``__MACOSX``) are chosen only by a pattern that names such a part.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache

from holdfast.errors import InputError

_MOST_ALTERNATIVES = 1000
_GROUP = re.compile(r"\{([^{},]*+,[^{}]*+)\}|\(([^()|]*+\|[^()]*+)\)")
_ANY_FOLDERS = re.compile(r"(?:(?<=/)|^)\*\*/")
_HIDDEN = re.compile(r"(?:^|/)(?:\.(?!\.?/)[^/]|__MACOSX(?:/|$))")


class Patterns:
    """Chooses paths.

    Args:
        includes: patterns of which one must match; everything that is not hidden is included without any.
        excludes: patterns none of which may match.

    Raises:
        InputError: if a pattern stands for more than 1,000 alternatives.
    """

    def __init__(self, includes: Sequence[str], excludes: Sequence[str] = ()) -> None:
        self.includes, self.excludes = tuple(includes), tuple(excludes)
        seeing = tuple(text for text in self.includes if _HIDDEN.search(text))
        self._included = _matcher(self.includes or ("*",))
        self._seen = _matcher(seeing)
        self._excluded = _matcher(self.excludes)

    def __call__(self, path: str) -> bool:
        """Whether a path is chosen."""
        if not self._included(path) or (self.excludes and self._excluded(path)):
            return False
        if not path.startswith(".") and "/." not in path and "__MACOSX" not in path:
            return True  # a quarter of the time of the expression
        return not _HIDDEN.search(path) or bool(self._seen(path))

    def choose(self, paths: Iterable[str]) -> Iterator[str]:
        """The paths that are chosen, in their order."""
        return filter(self, paths)

    @property
    def shows_hidden(self) -> bool:
        """Whether hidden folders need to be looked into."""
        return any(_HIDDEN.search(text) for text in self.includes)

    def names(self, path: str) -> bool:
        """Whether a path is written out among the includes."""
        return path in self.includes


@lru_cache(maxsize=1024)
def _matcher(patterns: tuple[str, ...]) -> Callable[[str], object]:
    if not patterns:
        return lambda path: False
    alternatives = dict.fromkeys(each for pattern in patterns for each in alternatives_of(pattern))
    return re.compile("|".join(map(fnmatch.translate, alternatives))).match


def alternatives_of(pattern: str) -> list[str]:
    """The `fnmatch` patterns that a pattern stands for, itself among them.

    Raises:
        InputError: if there are more than 1,000.
    """
    found = {pattern: None}
    todo = [pattern]
    while todo:
        for each in _one_step(todo.pop()):
            if each not in found:
                found[each] = None
                todo.append(each)
        if len(found) > _MOST_ALTERNATIVES:
            raise InputError(
                "too many alternatives in a pattern",
                code="out-of-range",
                found=repr(pattern[:200]),
                expected=f"at most {_MOST_ALTERNATIVES:,}",
                remedy="write several patterns, or one with * where the alternatives differ",
            )
    return list(found)


def _one_step(pattern: str) -> list[str]:
    """A pattern with one of the signs that `fnmatch` lacks resolved; nothing if it has none."""
    for start in ("./", "/"):
        if pattern.startswith(start):
            return [pattern.removeprefix(start)]
    if group := _GROUP.search(pattern):
        before, after = pattern[: group.start()], pattern[group.end() :]
        texts = group[1].split(",") if group[1] is not None else group[2].split("|")
        return [before + text + after for text in texts]
    if folders := _ANY_FOLDERS.search(pattern):
        before, after = pattern[: folders.start()], pattern[folders.end() :]
        return [before + after, before + "*/" + after]
    return []
