"""`holdfast fst shortestpath`, `shortestdistance` and `randgen`: paths of a machine and their sums."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from holdfast.automata.commands.streams import (
    STREAM,
    Facts,
    MachineArgument,
    SemiringOption,
    about,
    read_machine,
    write_machine,
)
from holdfast.console import JsonOption, QuietOption, emit, table

if TYPE_CHECKING:
    from rich.table import Table

    from holdfast.automata.fst import Fst
    from holdfast.automata.path_sums.path import Path

PathsOut = Annotated[
    str | None,
    typer.Option(
        "--out",
        "-o",
        metavar="FILE",
        help="Write the paths as a transducer too; - writes it to standard output, without a table.",
    ),
]


@dataclass(frozen=True)
class Listing:
    """Paths of one machine."""

    machine: Fst
    paths: list[Path]
    wrote: str | None

    def to_dict(self) -> dict[str, Any]:
        """Each path with its weight, strings and labels."""
        f = self.machine
        return {
            "paths": [
                {
                    "weight": path.weight,
                    "input": path.input(f),
                    "output": path.output(f),
                    "ilabels": path.ilabels,
                    "olabels": path.olabels,
                }
                for path in self.paths
            ],
            "semiring": f.semiring.name,
            "wrote": self.wrote,
        }


def shortestpath(
    machine: MachineArgument = STREAM,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="Number of paths.")] = 1,
    unique: Annotated[
        bool, typer.Option("--unique", help="Best path of each distinct input string.")
    ] = False,
    out: PathsOut = None,
    semiring: SemiringOption = "tropical",
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """List the n best paths with cost, input and output."""
    from holdfast.automata import paths, shortest_path

    f = read_machine(machine, semiring)
    with about(machine):
        best = shortest_path(f, count, unique)
    wrote = None if out is None else write_machine(best, out, as_json, quiet)
    if out != STREAM:
        emit(Listing(best, list(paths(best, limit=count)), wrote), as_json, _listed)


def shortestdistance(
    machine: MachineArgument = STREAM,
    reverse: Annotated[
        bool, typer.Option("--reverse", help="Distance from each state to the final states.")
    ] = False,
    semiring: SemiringOption = "tropical",
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Sum the paths from the start to each state.

    One line per state: its number and the least cost, or the log sum in the log semiring.
    """
    from holdfast.automata import state_distances

    f = read_machine(machine, semiring)
    with about(machine):
        sums = state_distances(f, reverse)
    if as_json:
        emit(Facts({"distances": sums.tolist(), "semiring": f.semiring.name}), as_json, str)
    else:
        sys.stdout.writelines(f"{state}\t{one:.9g}\n" for state, one in enumerate(sums.tolist()))


def randgen(
    machine: MachineArgument = STREAM,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="Number of paths.")] = 1,
    seed: Annotated[
        int, typer.Option("--seed", min=0, help="Random seed (same seed, same paths).")
    ] = 0,
    weighting: Annotated[
        Literal["uniform", "weight"],
        typer.Option(
            "--weighting",
            help="uniform: every path is equally likely; weight: by probability, exp(-cost).",
        ),
    ] = "uniform",
    max_length: Annotated[
        int | None, typer.Option("--max-length", min=0, help="Maximum number of arcs per path.")
    ] = None,
    out: PathsOut = None,
    semiring: SemiringOption = "tropical",
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Draw random paths."""
    from holdfast.automata import random_paths

    f = read_machine(machine, semiring)
    with about(machine):
        drawn = random_paths(f, count, weighting=weighting, seed=seed, max_length=max_length)
    wrote = None if out is None else write_machine(_machine(f, drawn), out, as_json, quiet)
    if out != STREAM:
        emit(Listing(f, drawn, wrote), as_json, _listed)


def _machine(f: Fst, drawn: list[Path]) -> Fst:
    """The paths as chains from one start, each with its labels and weights."""
    arcs, finals, states = [], {}, 1
    for path in drawn:
        at = 0
        for arc in path.arcs:
            arcs.append((at, f.ilabel[arc], f.olabel[arc], f.weight[arc], states))
            at, states = states, states + 1
        end = f.nextstate[path.arcs[-1]] if path.arcs else f.start
        finals[at] = float(f.final[end])
    return type(f).build(
        arcs,
        finals,
        states=states,
        semiring=f.semiring,
        isymbols=f.isymbols,
        osymbols=f.osymbols,
    )


def _listed(found: Listing) -> Table:
    from holdfast.numbers import number

    header = "cost" if found.machine.semiring.is_negative_log else "weight"
    return table(
        {header: "right", "input": "left", "output": "left"},
        [
            (number(path.weight), path.input(found.machine), path.output(found.machine))
            for path in found.paths
        ],
    )
