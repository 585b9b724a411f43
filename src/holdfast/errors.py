"""The exceptions that a user can meet, and how each reads.

The command line turns a `HoldfastError` into one readable message and its `exit_code`; every other
exception is a bug and keeps its traceback.
"""

from __future__ import annotations

import json
from pathlib import Path


class HoldfastError(Exception):
    """Base of every error whose message is written for the user."""

    exit_code = 2
    code = "error"
    """What kind of failure this is, in kebab-case: programs and tests match it, never the wording."""


class InputError(HoldfastError):
    """Input that cannot be understood: what was found, where, what was expected, what to do.

    Args:
        problem: one sentence that says what is wrong.
        code: the kind of mistake, in kebab-case and stable across releases. Shared by all rooms:
            ``not-found``, ``unreadable``, ``empty-input``, ``unknown-format``, ``damaged``,
            ``missing-column``, ``missing-key``, ``unknown-key``, ``unknown-name``,
            ``invalid-value``, ``out-of-range``, ``invalid-syntax``, ``duplicate``, ``conflict``,
            ``output-exists``, ``unsupported``, ``too-many-rejects``, ``no-data``, ``no-match``,
            ``network``, ``invalid-encoding``. A room adds one where a caller would act on it differently.
        path: the file (or directory) in which it was found.
        place: the line, key or column inside the file, for example ``"line 17"``.
        found: what stands there.
        expected: what should stand there.
        remedy: what the user can do about it.
    """

    def __init__(
        self,
        problem: str,
        *,
        code: str = "invalid-input",  # torch builds the error of a worker anew from its text alone
        path: str | Path | None = None,
        place: str | None = None,
        found: str | None = None,
        expected: str | None = None,
        remedy: str | None = None,
    ) -> None:
        self.problem = problem
        self.code = code
        self.path = None if path is None else str(path)
        self.place = place
        self.found = found
        self.expected = expected
        self.remedy = remedy
        super().__init__(self._render())

    def at(self, path: str | Path, place: str | None = None) -> InputError:
        """The same error with the file, and the line, that the check which raised it did not know."""
        return InputError(
            self.problem,
            code=self.code,
            path=path,
            place=": ".join(filter(None, (place, self.place))) or None,
            found=self.found,
            expected=self.expected,
            remedy=self.remedy,
        )

    def _render(self) -> str:
        where = ", ".join(part for part in (self.path, self.place) if part)
        lines = [f"{where}: {self.problem}" if where else self.problem]
        facts = ("found", "expected", "remedy")
        lines += [f"  {name}: {value}" for name in facts if (value := getattr(self, name))]
        return "\n".join(lines)


class MissingExtraError(HoldfastError):
    """An optional library is needed that is not installed.

    Args:
        library: the name it is imported by.
        extra: the extra of holdfast that installs it.
    """

    code = "missing-extra"

    def __init__(self, library: str, extra: str) -> None:
        self.extra = extra
        self.problem = f"this needs {library}, which is not installed"
        self.remedy = f"pip install 'holdfast[{extra}]{_origin()}'"
        super().__init__(f"{self.problem}\n  remedy: {self.remedy}")


def _origin() -> str:
    """Where pip finds this holdfast, such as a clone's folder; nothing where it came from an index."""
    from importlib.metadata import PackageNotFoundError, distribution

    try:  # PEP 610
        noted = json.loads(distribution("holdfast").read_text("direct_url.json") or "{}")
    except PackageNotFoundError:
        noted = {}
    version = noted.get("vcs_info", {}).get("vcs")
    return f" @ {version}+{noted['url']}" if version else f" @ {noted['url']}" if noted else ""


class LimitError(HoldfastError):
    """Work that would pass a limit: of memory, of states; nothing was lost, the input is untouched.

    Args:
        problem: one sentence that says what would become too large.
        needed: what the work needs, or had reached when it was stopped, with its unit.
        allowed: the limit, with its unit.
        remedy: what the user can do about it.
    """

    code = "limit-exceeded"

    def __init__(self, problem: str, *, needed: str, allowed: str, remedy: str) -> None:
        self.problem = problem
        self.needed = needed
        self.allowed = allowed
        self.remedy = remedy
        super().__init__(f"{problem}\n  needed: {needed}\n  allowed: {allowed}\n  remedy: {remedy}")


class StoreError(HoldfastError):
    """A store that cannot be opened or written: missing, of a newer version, or on a full disk."""

    code = "store"
