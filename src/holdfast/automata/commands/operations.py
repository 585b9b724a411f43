"""The commands of `holdfast fst` that make a machine of one or two: one table, and what runs its rows."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from inspect import Parameter, Signature
from typing import Annotated, Any, Literal

import typer

from holdfast import automata as fa
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

MANY_ARCS = 100_000
"""From so many arcs on the time per arc measures the work, not what it takes to begin."""


@dataclass(frozen=True)
class Made:
    """A machine that an operation made, and what that took."""

    machine: fa.Fst
    seconds: float
    """Of the operation alone, without files."""
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


def size(text: str | int) -> int:
    """Bytes in a size such as `2G`, `500M`, `1.5GiB` or `1000000`; units are powers of 1024.

    Raises:
        typer.BadParameter: if the text is not a size.
    """
    if isinstance(text, int):
        return text
    bare = text.strip().upper().removesuffix("B").removesuffix("I")
    power = "KMGT".find(bare[-1:]) + 1 if bare else 0
    try:
        return int(float(bare[:-1] if power else bare) * 1024**power)
    except (ValueError, OverflowError):
        raise typer.BadParameter(
            f"invalid size {text!r}; write for example 2G, 500M or 1000000 (bytes)"
        ) from None


def _option(flag: str, kind: Any, default: Any, help: str, **more: Any) -> Parameter:
    """An option of a command; its function takes it under the name of the flag."""
    name = flag.partition("/")[0].removeprefix("--").replace("-", "_")
    flags = (flag, *more.pop("short", ()))
    annotation = Annotated[kind, typer.Option(*flags, help=help, **more)]
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _delta(default: float) -> Parameter:
    return _option("--delta", float, default, "Costs that differ by less are equal.")


_CONNECT = _option(
    "--connect/--no-connect", bool, True, "Leave out states on no path from start to final."
)
_MEMORY = _option(
    "--memory",
    int | None,
    None,
    "Memory limit: 2G, 500M, or bytes (default: the memory available).",
    metavar="SIZE",
    parser=size,
)
_FILTER = _option(
    "--filter",
    Literal["auto", "sequence", "alt_sequence", "match", "trivial", "null"],
    "auto",
    "Composition filter for epsilon paths.",
)
_MAX_STATES = _option("--max-states", int | None, None, "Maximum number of states.", min=1)

# name: (help, number of machines, function, options named as those of OpenFST's command where it has them)
OPERATIONS: dict[str, tuple[str, int, Callable[..., fa.Fst], tuple[Parameter, ...]]] = {
    "compose": (
        "Compose A with B: outputs of A are inputs of B.",
        2,
        lambda a, b, memory, **options: fa.compose(a, b, memory_bytes=memory, **options),
        (
            _option(
                "--threads",
                int,
                1,
                "Number of threads; same result for any. Two are often slower than one.",
                min=1,
                short=("-t",),
            ),
            _FILTER,
            _CONNECT,
            _MAX_STATES,
            _MEMORY,
            _option("--device", str | None, None, "PyTorch device to compose on, such as cuda."),
        ),
    ),
    "intersect": (
        "Intersect two acceptors; weights are multiplied.",
        2,
        lambda a, b, **options: fa.intersect(a, b, **options),
        (_FILTER, _CONNECT, _MAX_STATES),
    ),
    "difference": (
        "Subtract an unweighted acceptor B from an acceptor A.",
        2,
        lambda a, b, connect: fa.difference(a, b, connect),
        (_CONNECT,),
    ),
    "union": (
        "Unite two transducers: the paths of A and of B.",
        2,
        lambda a, b: fa.union(a, b),
        (),
    ),
    "concat": (
        "Concatenate two transducers: paths of A, then of B.",
        2,
        lambda a, b: fa.concat(a, b),
        (),
    ),
    "closure": (
        "Kleene closure: repeat the paths any number of times.",
        1,
        lambda f, closure_type: fa.closure(f, plus=closure_type == "plus"),
        (
            _option(
                "--closure-type",
                Literal["star", "plus"],
                "star",
                "star: zero or more times; plus: one or more.",
            ),
        ),
    ),
    "reverse": ("Reverse every path of a transducer.", 1, lambda f: fa.reverse(f), ()),
    "invert": ("Exchange input and output.", 1, lambda f: fa.invert(f), ()),
    "project": (
        "Keep one side of a transducer, as an acceptor.",
        1,
        lambda f, project_type: fa.project(f, project_type),
        (_option("--project-type", Literal["input", "output"], "input", "Side to keep."),),
    ),
    "push": (
        "Push weights towards the start or the final states.",
        1,
        lambda f, reweight_type, remove_total_weight: fa.push(
            f, reweight_type.removeprefix("to_"), remove_total=remove_total_weight
        ),
        (
            _option(
                "--reweight-type",
                Literal["to_initial", "to_final"],
                "to_initial",
                "Where the weights go.",
            ),
            _option(
                "--remove-total-weight",
                bool,
                False,
                "Divide by the sum of all paths.",
            ),
        ),
    ),
    "prune": (
        "Remove paths worse than the best by a threshold.",
        1,
        lambda f, weight, nstate: fa.prune(f, weight, nstate),
        (
            _option(
                "--weight", float, float("inf"), "How much more than the best path a path may cost."
            ),
            _option("--nstate", int | None, None, "Number of states to keep at most.", min=1),
        ),
    ),
    "connect": (
        "Remove states on no path from start to final.",
        1,
        lambda f: fa.connect(f),
        (),
    ),
    "arcsort": (
        "Sort the arcs of each state by label.",
        1,
        lambda f, sort_type: fa.arcsort(f, sort_type),
        (_option("--sort-type", Literal["ilabel", "olabel"], "ilabel", "Label to sort by."),),
    ),
    "topsort": (
        "Sort the states of an acyclic transducer topologically.",
        1,
        lambda f: fa.topsort(f),
        (),
    ),
    "determinize": (
        "Determinize: one arc per state and input label.\n\n"
        "Some weighted transducers have no finite deterministic form: the command then stops at "
        "--max-states.",
        1,
        lambda f, memory, **options: fa.determinize(f, memory_bytes=memory, **options),
        (
            _option(
                "--max-states",
                int | None,
                None,
                "Maximum number of states (default: a million, or four times the input's if more).",
                min=1,
            ),
            _option(
                "--encode-labels",
                bool,
                False,
                "Determinize pairs of labels: works for any transducer.",
            ),
            _delta(1e-6),
            _MEMORY,
        ),
    ),
    "minimize": (
        "Minimize a deterministic transducer.",
        1,
        lambda f, delta: fa.minimize(f, delta=delta),
        (_delta(1e-4),),
    ),
    "rmepsilon": (
        "Remove the arcs that have epsilon on both sides.",
        1,
        lambda f, memory: fa.rmepsilon(f, memory_bytes=memory),
        (_MEMORY,),
    ),
}


def commands() -> dict[str, Callable[..., None]]:
    """The command of each row, by its name."""
    return {name: _command(name, *row) for name, row in OPERATIONS.items()}


def _command(
    name: str, help: str, machines: int, function: Callable[..., fa.Fst], options: tuple[Any, ...]
) -> Callable[..., None]:
    def command(out: str | None, semiring: str, as_json: bool, quiet: bool, **given: Any) -> None:
        sources = [
            given.pop(source) for source in ("machine", "first", "second") if source in given
        ]
        if machines == 2:
            read: tuple[fa.Fst, ...] = read_two(*sources, semiring)
        else:
            read = (read_machine(*sources, semiring),)
        begin = time.perf_counter()
        with about(*sources):
            made = function(*read, **given)
        _finish(made, time.perf_counter() - begin, out, as_json, quiet)

    kind = Parameter.KEYWORD_ONLY
    parameters = [Parameter("machine", kind, default=STREAM, annotation=MachineArgument)]
    if machines == 2:
        parameters = [
            Parameter(
                side, kind, annotation=Annotated[str, typer.Argument(metavar=metavar, help=text)]
            )
            for side, metavar, text in (
                ("first", "A", "First transducer; - reads standard input."),
                ("second", "B", "Second transducer; - reads standard input."),
            )
        ]
    parameters += [
        Parameter("out", kind, default=None, annotation=OutOption),
        *options,
        Parameter("semiring", kind, default="tropical", annotation=SemiringOption),
        Parameter("as_json", kind, default=False, annotation=JsonOption),
        Parameter("quiet", kind, default=False, annotation=QuietOption),
    ]
    command.__name__, command.__doc__ = name, help
    command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    return command


def _finish(made: fa.Fst, seconds: float, out: str | None, as_json: bool, quiet: bool) -> None:
    from holdfast.numbers import duration, number

    facts = f", in {duration(seconds)}"
    if made.num_arcs >= MANY_ARCS:
        facts += f" ({number(1e9 * seconds / made.num_arcs, 0)} ns per arc)"
    wrote = write_machine(made, out, as_json, quiet, facts)
    if as_json:
        emit(Made(made, seconds, wrote), as_json, str)
