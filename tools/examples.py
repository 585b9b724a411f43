"""The examples of the README and of docs/: how they are run, and how what they print is kept fresh.

    python tools/examples.py

runs every `holdfast` command of every console block and writes what it printed below it, except where
the output shown holds an ellipsis (`...`), which stands for anything. The tests compare.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
DOCS = REPOSITORY / "docs"
PAGES = [REPOSITORY / "README.md", *sorted(DOCS.glob("*.md")), *sorted(DOCS.glob("*/*.md"))]
FENCE = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# Commands of an example that need a cluster, the network or minutes; all others must be holdfast's.
NOT_RUN = ("sacct ", "scontrol ", "sacctmgr ", "git ", "make ", "pip ", "cd ")
TERMINAL = {"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"}


def commands(block: str) -> list[tuple[str, str]]:
    """(command, what it prints) of a console block; a command may go on after a backslash."""
    found: list[tuple[str, str]] = []
    for part in re.split(r"^\$ ", block.replace("\\\n", ""), flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        found.append((" ".join(command.split()), shown))
    return found


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command as a reader would, in a terminal of 100 columns without colour."""
    environment = {
        **os.environ,
        **TERMINAL,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    return subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def workplace(folder: Path) -> Path:
    """The folder, with the examples in it, as a reader has after a clone."""
    shutil.copytree(REPOSITORY / "examples", folder / "examples")
    return folder


def _refreshed(block: str, folder: Path) -> str:
    """A console block with what its commands print now."""
    parts = re.split(r"^(?=\$ )", block, flags=re.MULTILINE)
    for index, part in enumerate(parts):
        found = commands(part)
        if not found or found[0][0].startswith(NOT_RUN):
            continue
        printed = run(found[0][0], folder).stdout
        if "..." not in found[0][1]:
            written = re.match(r"\$ (?:[^\n]*\\\n)*[^\n]*\n", part)
            lines = [line.rstrip() for line in printed.strip("\n").splitlines()]
            shown = "".join(f"{line}\n" for line in lines if line)
            parts[index] = (written[0] if written else "") + shown
    return "".join(parts)


def main() -> None:
    """Refresh the outputs on all pages."""
    for page in PAGES:
        with tempfile.TemporaryDirectory() as name:
            folder = workplace(Path(name))

            def refresh(match: re.Match[str], folder: Path = folder) -> str:
                if match[1] != "console":
                    return match[0]
                return match[0].replace(match[2], _refreshed(match[2], folder))

            text = page.read_text(encoding="utf-8")
            page.write_text(FENCE.sub(refresh, text), encoding="utf-8")


if __name__ == "__main__":
    main()
