"""A command of `holdfast fleet`, run in this process."""

from __future__ import annotations

import io
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

from holdfast import progress
from holdfast.command import run
from holdfast.errors import HoldfastError
from holdfast.fleet.cli import app


@dataclass(frozen=True)
class Done:
    """What a command printed, and how it ended."""

    exit_code: int
    stdout: str
    stderr: str
    exception: HoldfastError | None = None


def invoke(*arguments: str | Path) -> Done:
    """Run a command; an error that a user would see is kept, any other is raised."""
    out, err, error = io.StringIO(), io.StringIO(), None
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code = run(app, [str(each) for each in arguments])
        except HoldfastError as raised:
            code, error = raised.exit_code, raised
        finally:
            progress.set_quiet(False)
    return Done(code, out.getvalue(), err.getvalue(), error)
