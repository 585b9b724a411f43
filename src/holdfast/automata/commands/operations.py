"""`holdfast fst compose`, `determinize`, `minimize` and `rmepsilon`: machines made of machines."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from holdfast.automata.commands.streams import (
    STREAM,
    MachineArgument,
    OutOption,
    SemiringOption,
    about,
    read_machine,
    read_two,
    write_machine,
)
from holdfast.console import JsonOption, QuietOption, emit

if TYPE_CHECKING:
    from holdfast.automata.fst import Fst

MANY_ARCS = 100_000
"""From so many on, the time of an arc tells of the work and not of what it takes to begin."""


@dataclass(frozen=True)
class Made:
    """A machine that an operation made, and what that took."""

    machine: Fst
    seconds: float
    """Of the operation alone, files left out."""
    wrote: str

    def to_dict(self) -> dict[str, Any]:
        """States, arcs, time, and where it went."""
        arcs = self.machine.num_arcs
        return {
            "states": self.machine.num_states,
            "arcs": arcs,
            "semiring": self.machine.semiring.name,
            "seconds": self.seconds,
            "ns_per_arc": 1e9 * self.seconds / arcs if arcs else None,
            "bytes": self.machine.nbytes,
            "wrote": self.wrote or None,
        }


def compose(
    first: Annotated[
        str,
        typer.Argument(metavar="A", help="Its output labels are matched; - reads standard input."),
    ],
    second: Annotated[
        str, typer.Argument(metavar="B", help="Its input labels are; - reads standard input.")
    ],
    out: OutOption = None,
    threads: Annotated[
        int, typer.Option("--threads", "-t", min=1, help="The result is the same for any number.")
    ] = 1,
    filter_name: Annotated[
        Literal["auto", "sequence", "alt_sequence", "match", "trivial", "null"],
        typer.Option("--filter", help="Which of several equal paths through epsilons is kept."),
    ] = "auto",
    connect: Annotated[
        bool, typer.Option(help="Leave out states on no path from the start to a final state.")
    ] = True,
    max_states: Annotated[
        int | None, typer.Option("--max-states", min=1, help="Stop when there are more states.")
    ] = None,
    memory: Annotated[
        int | None,
        typer.Option(
            "--memory",
            metavar="SIZE",
            parser=lambda text: size(text),
            help="Stop before it takes more: 2G, 500M, or bytes; else what the machine has.",
        ),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option("--device", help="Compose in torch on this device, such as cuda."),
    ] = None,
    semiring: SemiringOption = "tropical",
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """A, and then B: two machines composed."""
    from holdfast.automata.composition.composing import compose as run

    a, b = read_two(first, second, semiring)
    begin = time.perf_counter()
    with about(first, second):
        made = run(
            a,
            b,
            connect,
            threads,
            filter=filter_name,
            max_states=max_states,
            memory_bytes=memory,
            device=device,
        )
    _finish(made, time.perf_counter() - begin, out, as_json, quiet)


def determinize(
    machine: MachineArgument = STREAM,
    out: OutOption = None,
    max_states: Annotated[
        int, typer.Option("--max-states", min=1, help="Stop when there are more states.")
    ] = 1_000_000,
    encode_labels: Annotated[
        bool,
        typer.Option("--encode-labels", help="Take pairs of labels as labels: any transducer."),
    ] = False,
    encode_weights: Annotated[
        bool,
        typer.Option("--encode-weights", help="Take weights as part of labels: always finite."),
    ] = False,
    semiring: SemiringOption = "tropical",
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """An equivalent machine with one arc a label.

    No two arcs of a state have the same input label. Some weighted machines have no such machine of finite
    size: then the command stops at --max-states, and the input stays as it is.
    """
    from holdfast.automata import determinize as run

    f = read_machine(machine, semiring)
    begin = time.perf_counter()
    with about(machine):
        made = run(f, max_states, encode_labels, encode_weights=encode_weights)
    _finish(made, time.perf_counter() - begin, out, as_json, quiet)


def minimize(
    machine: MachineArgument = STREAM,
    out: OutOption = None,
    semiring: SemiringOption = "tropical",
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """The smallest equivalent of a deterministic machine."""
    from holdfast.automata import minimize as run

    f = read_machine(machine, semiring)
    begin = time.perf_counter()
    with about(machine):
        made = run(f)
    _finish(made, time.perf_counter() - begin, out, as_json, quiet)


def rmepsilon(
    machine: MachineArgument = STREAM,
    out: OutOption = None,
    semiring: SemiringOption = "tropical",
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """An equivalent machine without epsilon arcs.

    Arcs with epsilon on both sides are left out.
    """
    from holdfast.automata import rmepsilon as run

    f = read_machine(machine, semiring)
    begin = time.perf_counter()
    with about(machine):
        made = run(f)
    _finish(made, time.perf_counter() - begin, out, as_json, quiet)


def size(text: str | int) -> int:
    """Bytes in a size such as `2G`, `500M`, `1.5GiB` or `1000000`; units are powers of 1024.

    Raises:
        typer.BadParameter: if the text is no size.
    """
    if isinstance(text, int):
        return text
    bare = text.strip().upper().removesuffix("B").removesuffix("I")
    power = "KMGT".find(bare[-1:]) + 1 if bare else 0
    try:
        return int(float(bare[:-1] if power else bare) * 1024**power)
    except (ValueError, OverflowError):
        raise typer.BadParameter(
            f"{text!r} is no size; write for example 2G, 500M or 1000000 (bytes)"
        ) from None


def _finish(made: Fst, seconds: float, out: str | None, as_json: bool, quiet: bool) -> None:
    from holdfast.numbers import duration, number

    facts = f", in {duration(seconds)}"
    if made.num_arcs >= MANY_ARCS:
        facts += f" ({number(1e9 * seconds / made.num_arcs, 0)} ns an arc)"
    wrote = write_machine(made, out, as_json, quiet, facts)
    if as_json:
        emit(Made(made, seconds, wrote), as_json, str)
