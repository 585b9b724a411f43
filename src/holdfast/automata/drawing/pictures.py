"""Writing pictures of machines to files."""

from __future__ import annotations

from pathlib import Path

from holdfast.automata.drawing.dot import to_dot
from holdfast.automata.drawing.svg import to_svg
from holdfast.automata.fst import Fst
from holdfast.errors import InputError
from holdfast.files import write_whole

FORMATS = {".svg": to_svg, ".dot": to_dot, ".gv": to_dot}


def draw(machine: Fst, path: str | Path) -> None:
    """Write a picture of a machine: SVG or Graphviz's dot, as the name of the file ends.

    Raises:
        InputError: if the name ends in neither.
        LimitError: if the machine is too large for a picture that anybody could read (SVG only).
        HoldfastError: if the file cannot be written.
    """
    target = Path(path)
    if target.suffix not in FORMATS:
        raise InputError(
            "unknown picture format",
            code="unknown-format",
            path=target,
            found=repr(target.suffix),
            expected=f"a name that ends in {', '.join(FORMATS)}",
        )
    write_whole(target, FORMATS[target.suffix](machine).encode())
