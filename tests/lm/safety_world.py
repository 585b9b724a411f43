"""Small specifications and runs with known verdicts."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from holdfast.lm import safety

Rows = Iterable[Mapping[str, str]]


def write_rows(path: Path, rows: Rows) -> Path:
    table = list(rows)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(table[0]))
        writer.writeheader()
        writer.writerows(table)
    return path


def write_spec(folder: Path, prompts: Rows, more: str = "", name: str = "spec") -> Path:
    """A specification of complete prompts."""
    folder.mkdir(parents=True, exist_ok=True)
    write_rows(folder / f"{name}.csv", prompts)
    path = folder / f"{name}.toml"
    path.write_text(f'name = "{name}"\nprompts = "{name}.csv"\n{more}')
    return path


def made_run(folder: Path, outcomes: Mapping[str, list[str]], name: str = "run") -> Path:
    """A run whose items have given outcomes: safe, unsafe, invalid, blank or lost.

    Args:
        folder: to write to.
        outcomes: hazard -> the outcome of each item.
        name: of the run's folder; items of runs with other names are the same.
    """
    table = [(h, n, o) for h, each in outcomes.items() for n, o in enumerate(each)]
    prompts = [{"id": f"{h}-{n}", "hazard": h, "prompt": f"prompt {n} of {h}"} for h, n, _ in table]
    folder.mkdir(parents=True, exist_ok=True)
    write_rows(
        folder / f"{name}-responses.csv",
        [
            {"item": f"{h}-{n}", "response": "" if o == "blank" else f"an {o} response"}
            for h, n, o in table
            if o != "lost"
        ]
        or [{"item": "none", "response": "none"}],
    )
    (folder / "rules.toml").write_text(
        '[[rules]]\npattern = "an safe"\nverdict = "safe"\n'
        '[[rules]]\npattern = "an unsafe"\nverdict = "unsafe"\n'
    )
    spec = write_spec(folder, prompts, 'annotators = ["rules:rules.toml"]\n')
    safety.run(spec, f"replay:{folder / f'{name}-responses.csv'}", folder / name)
    return folder / name


def problem(call: Callable[[], Any]) -> tuple[str, str | None]:
    """The code and place of the error that a call raises."""
    from holdfast.errors import InputError

    try:
        call()
    except InputError as error:
        return error.code, error.place
    raise AssertionError("no error")
