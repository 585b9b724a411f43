"""Our players against GNU Go, in turns: games are added to those of earlier calls until there are enough.

    python benchmarks/go_strength.py [--part playouts|net] [--turn N]

Playout search has 3 s a move on 9x9 against level 10; the network of examples/go has 200 simulations a
move, each with eight playouts, on 7x7 against level 1. The turns are kept in
`benchmarks/results/go_strength.json`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from holdfast.go import elo_difference, match
from holdfast.go.elo import interval_text
from holdfast.stats import clopper_pearson_interval, wilson_interval
from measuring import limited, machine

HERE = Path(__file__).resolve().parent
RESULT = HERE / "results" / "go_strength.json"
HOLDFAST = Path(sys.executable).with_name("holdfast")
GNUGO = "gnugo --mode gtp --level {} --chinese-rules --positional-superko --seed {}"
PARTS: dict[str, dict[str, Any]] = {
    "playouts": {
        "what": "playout search, 3 s a move, against GNU Go level 10 on 9x9",
        "ours": f"{HOLDFAST} go gtp --time 3 --size 9x9 --seed {{}}",
        "level": 10,
        "size": (9, 9),
        "games": 20,
        "target": 0.5,
    },
    "net": {
        "what": "network with playouts, 200 simulations a move, against GNU Go level 1 on 7x7",
        "ours": f"{HERE.parent}/examples/go/net-7x7.safetensors:200",
        "level": 1,
        "size": (7, 7),
        "games": 200,
        "target": 0.6,
    },
}


def play_turn(part: dict[str, Any], number: int, games: int) -> dict[str, Any]:
    """Play some games; the players have black in turn."""
    found = match(
        part["ours"].format(number),
        GNUGO.format(part["level"], number),
        games,
        size=part["size"],
        seed=number,
    )
    return found.to_dict()


def main(arguments: Sequence[str] | None = None) -> None:
    """Play, and write the results of all turns."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--part", choices=PARTS, help="default: both")
    parser.add_argument("--turn", type=int, default=1_000, help="most games of this call and part")
    options = parser.parse_args(arguments)
    turns: dict[str, list[dict[str, Any]]] = {name: [] for name in PARTS}
    if RESULT.exists():
        turns |= json.loads(RESULT.read_text(encoding="utf-8"))["turns"]
    host = machine()
    for name in [options.part] if options.part else PARTS:
        part, before = PARTS[name], sum(each["games"] for each in turns[name])
        games = min(options.turn, part["games"] - before)
        if games > 0:
            turns[name].append(play_turn(part, len(turns[name]) + 1, games))
    limits, notes = [], []
    for name, part in PARTS.items():
        total = Counter[str]()
        for each in turns[name]:
            counted = ("wins", "losses", "draws", "games", "repeated_games", "core_seconds")
            total.update({key: each[key] for key in counted})
        if not total["games"]:
            notes.append(f"Not measured yet: {part['what']}.")
            continue
        points = total["wins"] + total["draws"] / 2
        exact = clopper_pearson_interval if not total["draws"] else wilson_interval
        low, high = exact(points, total["games"])
        row = limited(part["what"], points / total["games"], "of the points", part["target"])
        limits.append(row | {"least": True})
        _, interval = elo_difference(total["wins"], total["losses"], total["draws"])
        results = sum((Counter(each["results"]) for each in turns[name]), Counter())
        notes.append(
            f"{part['what'].capitalize()}: {total['wins']} won, {total['losses']} lost, {total['draws']} "
            f"drawn of {total['games']} different games ({total['repeated_games']} repeated), "
            f"95 % interval {low:.0%} to {high:.0%}, Elo {interval_text(interval)}; both colors, komi 7.5, "
            f"{total['core_seconds']:,.0f} core-seconds. Results: "
            + ", ".join(f"{text} ({times})" for text, times in results.most_common())
            + "."
        )
    result = {
        "title": "Go: strength",
        "script": "benchmarks/go_strength.py",
        "input": "Matches with GNU Go 3.8 under Chinese rules, a = holdfast",
        "comparisons": [],
        "limits": limits,
        "figures": {},
        "machine": host,
        "versions": {name: version(name) for name in ("holdfast", "numba", "numpy", "torch")},
        "notes": notes,
        "turns": turns,
    }
    RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
