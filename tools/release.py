"""Build the source distribution and the wheel into `dist/`, and check each in a fresh environment.

    python tools/release.py

Fails if the changelog does not have the version, or if an installed distribution does not do what
the README says first.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
DIST = REPOSITORY / "dist"
SETTINGS = {"UV_FIND_LINKS": "find-links", "UV_DEFAULT_INDEX": "index-url"}
"""Variable of uv -> pip's setting, which uv does not read."""


def version() -> str:
    """The version in `src/holdfast/__init__.py`, the one place that has it.

    Raises:
        SystemExit: if the changelog has no heading for it.
    """
    text = (REPOSITORY / "src" / "holdfast" / "__init__.py").read_text()
    found = re.search(r'__version__ = "([^"]+)"', text)
    assert found
    if f"## [{found[1]}]" not in (REPOSITORY / "CHANGELOG.md").read_text():
        sys.exit(f"CHANGELOG.md has no heading ## [{found[1]}]")
    return found[1]


def build(expected: str) -> list[Path]:
    """Both distributions."""
    shutil.rmtree(DIST, ignore_errors=True)
    environment = dict(os.environ)
    environment.pop("PYTHONPATH", None)
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    ).stdout
    for name, setting in SETTINGS.items():
        if found := re.search(rf"\.{setting}='([^']*)'", listed):
            environment.setdefault(name, found[1].replace(" ", ","))
    uv = Path(sys.executable).with_name("uv")
    subprocess.run([uv, "build", "--out-dir", DIST, REPOSITORY], env=environment, check=True)
    files = sorted([*DIST.glob("*.whl"), *DIST.glob("*.tar.gz")])
    names = [f"holdfast-{expected}-py3-none-any.whl", f"holdfast-{expected}.tar.gz"]
    assert [file.name for file in files] == names, files
    return files


def check(distribution: Path, expected: str) -> None:
    """Install a distribution beside nothing else, and use it."""
    with tempfile.TemporaryDirectory(prefix="holdfast-release-") as folder:
        place = Path(folder)
        venv.create(place / "env", with_pip=True)
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        install = REPOSITORY / "tools" / "install.sh"
        subprocess.run(
            [install, place / "env", distribution], cwd=REPOSITORY, env=environment, check=True
        )
        shutil.copytree(REPOSITORY / "examples", place / "examples")

        def holdfast(*words: str) -> str:
            command = [place / "env" / "bin" / "holdfast", *words]
            done = subprocess.run(
                command, cwd=place, env=environment, capture_output=True, text=True, check=False
            )
            if done.returncode:
                sys.exit(f"{distribution.name}: holdfast {' '.join(words)}\n{done.stderr}")
            return done.stdout

        assert holdfast("--version").strip() == f"holdfast {expected}"
        holdfast("fleet", "ingest", "examples/slurm-testbed", "-o", "store")
        report = json.loads(holdfast("fleet", "report", "store", "--html", "page.html", "--json"))
        assert report["mttf"]["failures"] > 0
        assert (place / "page.html").stat().st_size > 100_000
        for name in ("slurm-testbed", "hang", "planets", "canaries", "signs", "training-run"):
            assert json.loads(holdfast("why", f"examples/{name}", "--json"))["found"], name


def main() -> None:
    """Build and check."""
    expected = version()
    for distribution in build(expected):
        check(distribution, expected)
        print(
            f"{distribution.relative_to(REPOSITORY)}: {distribution.stat().st_size / 1e6:.1f} MB, checked"
        )


if __name__ == "__main__":
    main()
