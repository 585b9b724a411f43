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

_COMMAND = "from holdfast.cli import main; main()"


@contextmanager
def console(*arguments: str | Path, **environment: str) -> Iterator[tuple[str, Any]]:
    """Start `serve` on a free port; it is killed in the end if it has not ended.

    Yields:
        its address and its process.
    """
    run = subprocess.Popen(
        [sys.executable, "-c", _COMMAND, "fleet", "serve", *map(str, arguments), "--port", "0"],
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
