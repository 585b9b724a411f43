"""The weight of each room beside its budget in `weight.toml`; docs/contributing/weight.md explains it.

python tools/weigh.py            a row per room
python tools/weigh.py PLACE      a row per folder below PLACE, heaviest first
python tools/weigh.py --over     only the rooms over their budget
python tools/weigh.py --strict   exit 1 if a room is over its budget
"""

from __future__ import annotations

import ast
import sys
import tomllib
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src" / "holdfast"
BUDGETS: dict[str, int] = tomllib.loads(Path(__file__).with_name("weight.toml").read_text())[
    "weight"
]
FLOOR = "ground floor"
LAYOUT = (ast.Load, ast.Store, ast.Del, ast.Module)
NODES_PER_LINE = 6.4


def weight(text: str) -> float:
    """Nodes of the syntax tree of a module, without its docstrings, in lines."""
    tree = ast.parse(text)
    nodes = list(ast.walk(tree))
    count = sum(not isinstance(node, LAYOUT) for node in nodes)
    # A string that stands alone is the docstring of a module, function, class or field: two nodes.
    count -= 2 * sum(
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for node in nodes
    )
    return count / NODES_PER_LINE


def room_of(path: Path) -> str:
    """The longest name among the budgets that a file is below."""
    inside = path.relative_to(SOURCE).as_posix()
    names = [name for name in BUDGETS if inside.startswith((f"{name}/", f"{name}.py"))]
    return max(names, key=len, default=FLOOR)


def weights(root: Path) -> dict[str, tuple[int, float]]:
    """Room, or folder below the root -> files and weight."""
    found: dict[str, tuple[int, float]] = {}
    for path in sorted(root.rglob("*.py")):
        name = (
            room_of(path)
            if root == SOURCE
            else "/".join(path.relative_to(root).parts[:-1][:1]) or "."
        )
        files, total = found.get(name, (0, 0.0))
        found[name] = files + 1, total + weight(path.read_text(encoding="utf-8"))
    return found


def main(words: list[str]) -> int:
    """Print the table."""
    places = [word for word in words if not word.startswith("-")]
    root = Path(places[0]).resolve() if places else SOURCE
    rows = weights(root)
    over = 0
    for name, (files, total) in sorted(rows.items(), key=lambda row: -row[1][1] if places else 0):
        budget = None if places else BUDGETS.get(name)
        excess = round(total) - budget if budget is not None else 0
        over += excess > 0
        if excess <= 0 and "--over" in words:
            continue
        line = f"{total:8,.0f} {files:4} files  {name:20}"
        line += "" if budget is None else f" budget {budget:6,}"
        print(line + (f"  over by {excess:,}" if excess > 0 else ""))
    if "--over" not in words:
        print(
            f"{sum(w for _, w in rows.values()):8,.0f} {sum(n for n, _ in rows.values()):4} files  in all"
        )
    return int("--strict" in words and over > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
