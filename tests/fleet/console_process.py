"""A console as a process of its own, as the command starts it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_COMMAND = """
import sys, typer
from holdfast.errors import HoldfastError
from holdfast.fleet.console import cli
app = typer.Typer()
app.command()(cli.serve)
app.command()(cli.alerts)
try:
    app(standalone_mode=False)
except HoldfastError as error:
    print(f"error: {error}", file=sys.stderr)
    sys.exit(2)
"""


@contextmanager
def console(*arguments: str | Path, **environment: str) -> Iterator[tuple[str, Any]]:
    """Start `serve` on a free port; it is killed in the end if it has not ended.

    Yields:
        its address and its process.
    """
    run = subprocess.Popen(
        [sys.executable, "-c", _COMMAND, "serve", *map(str, arguments), "--port", "0"],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    try:
        assert run.stderr is not None
        said = ""
        for line in run.stderr:
            said += line
            if found := re.search(r"console: (http://\S+)", line):
                yield found[1], run
                return
        raise AssertionError(said)
    finally:
        run.kill()
        run.wait()
        if run.stderr is not None:
            run.stderr.close()
