"""`holdfast fst bench`: how fast this machine composes, on the user's own transducers."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.automata.commands.streams import SemiringOption, read_two
from holdfast.console import JsonOption, QuietOption, emit, remark, table
from holdfast.errors import InputError

if TYPE_CHECKING:
    from rich.console import Group

    from holdfast.automata.measuring import Measurement


def bench(
    machines: Annotated[
        list[str] | None,
        typer.Argument(metavar="[A B]", help="The machines; without them a random pair."),
    ] = None,
    threads: Annotated[
        int | None, typer.Option("--threads", "-t", min=1, help="From 1 to this; else the cores.")
    ] = None,
    repeats: Annotated[int, typer.Option("--repeats", min=1, help="Rounds; medians count.")] = 5,
    states: Annotated[int, typer.Option("--states", min=1, help="Of a random machine.")] = 1000,
    degree: Annotated[int, typer.Option("--degree", min=1, help="Arcs a state.")] = 10,
    labels: Annotated[int, typer.Option("--labels", min=1, help="Different labels.")] = 20,
    seed: Annotated[int, typer.Option("--seed", help="Of the random pair.")] = 0,
    semiring: SemiringOption = "tropical",
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """What composing takes here: time an arc, speed-up with threads.

    The last column says how close it comes to copying memory, the fastest way to write so many bytes.
    """
    from holdfast.automata.measuring import measure_compose, random_graph

    if machines and len(machines) != 2:
        raise InputError(
            "two machines are composed",
            found=f"{len(machines)} named",
            expected="A and B, or none for a random pair",
        )
    if machines:
        a, b = read_two(machines[0], machines[1], semiring)
    else:
        a, b = (random_graph(states, degree, labels, seed + k, semiring) for k in (0, 1))
    most = threads or len(os.sched_getaffinity(0))
    remark(f"composing {repeats + 1} times with up to {most} threads", quiet)
    emit(measure_compose(a, b, range(1, most + 1), repeats), as_json, _measured)


def _measured(found: Measurement) -> Group:
    from rich.console import Group
    from rich.text import Text

    from holdfast.numbers import brief, counted, duration, percent

    size = f"{counted(found.states, 'state')}, {counted(found.arcs, 'arc')}"
    if found.bytes_per_arc:
        size += f", {brief(found.bytes_per_arc)} bytes an arc"
    runs = table(
        {
            "threads": "right",
            "time": "right",
            "ns an arc": "right",
            "speed-up": "right",
            "of copy bandwidth": "right",
        },
        [
            (
                run.threads,
                duration(run.seconds),
                brief(run.ns_per_arc),
                brief(run.speedup),
                percent(run.bandwidth_share),
            )
            for run in found.runs
        ],
    )
    copied = f"a copy writes {found.copy_bytes_per_s / 1e9:.1f} GB/s; medians of {found.repeats}"
    return Group(Text(f"Composition: {size}"), runs, Text(copied))
