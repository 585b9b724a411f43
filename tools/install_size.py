"""What an installation takes on disk: the core, and what each extra adds to it.

    python tools/install_size.py

prints megabytes of the versions in this environment, `.pyc` files left out, of packages that the
core does not have already. The README has these numbers.
"""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

PROJECT = tomllib.loads((Path(__file__).resolve().parents[1] / "pyproject.toml").read_text())[
    "project"
]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]


def closure(lines: list[str], extra: str = "") -> set[str]:
    """The distributions that requirements bring, whatever brings them.

    Raises:
        PackageNotFoundError: if one of them is not installed here.
    """
    from packaging.requirements import Requirement

    found: set[str] = set()
    for line in lines:
        wanted = Requirement(line)
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": extra}):
            continue
        name = re.sub(r"[-_.]+", "-", wanted.name).lower()
        if name == "holdfast":
            found |= {each for part in wanted.extras for each in closure(EXTRAS[part])}
        elif name not in found:
            found.add(name)
            needs = distribution(name).requires or []
            for part in ("", *sorted(wanted.extras)):
                found |= closure(needs, part)
    return found


def megabytes(names: set[str]) -> float:
    """Size of the files of distributions."""
    paths = {Path(file.locate()) for name in names for file in distribution(name).files or ()}
    sizes = [path.stat().st_size for path in paths if path.suffix != ".pyc" and path.is_file()]
    return sum(sizes) / 1e6


def main() -> None:
    """Print the core and each extra."""
    core = closure(PROJECT["dependencies"])
    print(f"{'core':12} {megabytes(core):8,.0f} MB, {len(core)} packages")
    for extra, lines in EXTRAS.items():
        try:
            added = closure(lines) - core
        except PackageNotFoundError as error:
            print(f"{extra:12} {error.name} is not installed here")
        else:
            print(f"{extra:12} {megabytes(added):8,.0f} MB, {len(added)} packages")


if __name__ == "__main__":
    main()
