"""`holdfast fst info`, `draw` and `equal`: what a machine is, how it looks, whether two are the same."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from holdfast.automata.commands.streams import (
    STREAM,
    Facts,
    MachineArgument,
    SemiringOption,
    about,
    read_machine,
    read_two,
)
from holdfast.console import JsonOption, QuietOption, emit, remark, table

if TYPE_CHECKING:
    from rich.table import Table

    from holdfast.automata.describing import Description

NOT_THE_SAME = 1


def info(
    machine: MachineArgument = STREAM,
    semiring: SemiringOption = "tropical",
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Describe a transducer: states, arcs, labels, properties."""
    from holdfast.automata.describing import describe

    found = describe(read_machine(machine, semiring))
    name = "standard input" if machine == STREAM else machine
    emit(found, as_json, lambda found: _described(found, name))


def _described(found: Description, name: str) -> Table:
    from holdfast.numbers import number

    def cell(value: Any) -> str:
        if isinstance(value, dict):
            return f"{value['name']}, {number(value['symbols'])} symbols"
        if isinstance(value, bool) or value is None:
            return {True: "yes", False: "no", None: "–"}[value]
        return value if isinstance(value, str) else number(value)

    return table(
        {"": "left", name: "right"},
        [(name.replace("_", " "), cell(value)) for name, value in found.to_dict().items()],
    )


def draw(
    machine: MachineArgument = STREAM,
    out: Annotated[
        str | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="Output file: .svg, .dot or .gv (default: dot to standard output).",
        ),
    ] = None,
    semiring: SemiringOption = "tropical",
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Draw a transducer as SVG or Graphviz dot."""
    from holdfast.automata.drawing.dot import to_dot
    from holdfast.automata.drawing.pictures import draw as run

    f = read_machine(machine, semiring)
    if out is None or out == STREAM:
        if as_json:
            emit(Facts({"dot": to_dot(f)}), as_json, str)
        else:
            sys.stdout.write(to_dot(f))
        return
    run(f, out)
    if as_json:
        emit(Facts({"wrote": out}), as_json, str)
    remark(f"wrote {out}", quiet)


@dataclass(frozen=True)
class Comparison:
    """Whether two machines are the same, in the sense asked for."""

    equal: bool
    sense: str
    difference: str | None
    """What differs first, where that can be said."""

    def to_dict(self) -> dict[str, Any]:
        """The fields by name."""
        return asdict(self)


def equal(
    first: Annotated[
        str, typer.Argument(metavar="A", help="First transducer; - reads standard input.")
    ],
    second: Annotated[
        str, typer.Argument(metavar="B", help="Second transducer; - reads standard input.")
    ],
    sense: Annotated[
        Literal["exact", "isomorphic", "equivalent"],
        typer.Option(
            "--sense",
            help="exact: same state numbers and order of arcs; isomorphic: up to renumbering; "
            "equivalent: same strings with the same weights.",
        ),
    ] = "exact",
    delta: Annotated[float, typer.Option("--delta", min=0, help="Tolerance for weights.")] = 1
    / 1024,
    symbols: Annotated[bool, typer.Option("--symbols", help="Compare symbol tables too.")] = False,
    semiring: SemiringOption = "tropical",
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Compare two transducers.

    Exit code 0: equal; 1: different; 2: cannot be decided (equivalence of non-functional transducers).
    """
    from holdfast.automata.comparing import first_difference

    a, b = read_two(first, second, semiring)
    if sense == "exact":
        difference = first_difference(a, b, delta, symbols=symbols)
        found = Comparison(difference is None, sense, difference)
    else:
        from holdfast.automata import equivalent, isomorphic

        same = isomorphic if sense == "isomorphic" else equivalent
        with about(first, second):
            found = Comparison(bool(same(a, b, delta=delta)), sense, None)
    emit(found, as_json, _compared)
    if not found.equal:
        raise typer.Exit(NOT_THE_SAME)


def _compared(found: Comparison) -> str:
    if found.equal:
        return "equal" if found.sense == "exact" else found.sense
    return f"different: {found.difference}" if found.difference else f"not {found.sense}"
