"""The commands of `holdfast fst` that make a machine of one or two: one table, and what runs its rows."""

from __future__ import annotations

import time
from collections.abc import Callable
from inspect import Parameter, Signature
from typing import Annotated, Any, Literal

import typer

from holdfast import automata as fa
from holdfast.automata.commands.streams import (
    STREAM,
    Facts,
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


def _option(flag: str, name: str, kind: Any, default: Any, help: str, **more: Any) -> Parameter:
    """An option of a command, and the keyword by which the function takes it."""
    annotation = Annotated[kind, typer.Option(*flag.split(), help=help, **more)]
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


_Filter = Literal["auto", "sequence", "alt_sequence", "match", "trivial", "null"]
_DELTA = ("--delta", "delta", float)
_DELTA_HELP = (
    "Costs that differ by less are equal; a string of n labels changes by up to n + 1 times it."
)
_TO_MEMORY = "Memory limit: 2G, 500M, or bytes (default: the memory available)."
_TO_STATES = "Maximum number of states (default: a million, or four times the input's if more)."
_CONNECT_HELP = "Leave out states on no path from start to final."
_CONNECT = _option("--connect/--no-connect", "connect", bool, True, _CONNECT_HELP)
_MEMORY = _option(
    "--memory", "memory_bytes", int | None, None, _TO_MEMORY, metavar="SIZE", parser=size
)
_FILTER = _option("--filter", "filter", _Filter, "auto", "Composition filter for epsilon paths.")
_MAX_STATES = _option("--max-states", "max_states", int | None, None, _TO_STATES, min=1)
_COMPOSE_STATES = _option(
    "--max-states", "max_states", int | None, None, "Maximum number of states.", min=1
)
_THREADS = "Number of threads; same result for any. Two are often slower than one."
_DEVICE = "PyTorch device to compose on, such as cuda."
_SIDES, _LABELS = Literal["input", "output"], Literal["ilabel", "olabel"]
_ENDS = Literal["initial", "final"]
_WITHIN = "How much more than the best path a path may cost."
_PAIRS = "Determinize pairs of labels: works for any transducer."
_NO_FORM = (
    "Some weighted transducers have no finite deterministic form: --max-states ends the attempt."
)

OPERATIONS: dict[str, tuple[int, str, tuple[Parameter, ...]]] = {
    # name, of the command and of the function: number of machines, help, options (named as OpenFST's)
    "compose": (
        2,
        "Compose A with B: outputs of A are inputs of B.",
        (
            _option("--threads -t", "threads", int, 1, _THREADS, min=1),
            _FILTER,
            _CONNECT,
            _COMPOSE_STATES,
            _MEMORY,
            _option("--device", "device", str | None, None, _DEVICE),
        ),
    ),
    "intersect": (
        2,
        "Intersect two acceptors; weights are multiplied.",
        (_FILTER, _CONNECT, _COMPOSE_STATES),
    ),
    "difference": (2, "Subtract an unweighted acceptor B from an acceptor A.", (_CONNECT,)),
    "union": (2, "Unite two transducers: the paths of A and of B.", ()),
    "concat": (2, "Concatenate two transducers: paths of A, then of B.", ()),
    "closure": (
        1,
        "Kleene closure: repeat the paths any number of times.",
        (_option("--closure-plus", "plus", bool, False, "At least once."),),
    ),
    "reverse": (1, "Reverse every path of a transducer.", ()),
    "invert": (1, "Exchange input and output.", ()),
    "project": (
        1,
        "Keep one side of a transducer, as an acceptor.",
        (_option("--project-type", "side", _SIDES, "input", "Side to keep."),),
    ),
    "push": (
        1,
        "Push weights towards the start or the final states.",
        (
            _option("--reweight-type", "to", _ENDS, "initial", "Where the weights go."),
            _option(
                "--remove-total-weight",
                "remove_total",
                bool,
                False,
                "Divide by the sum of all paths.",
            ),
        ),
    ),
    "prune": (
        1,
        "Remove paths worse than the best by a threshold.",
        (
            _option("--weight", "threshold", float, float("inf"), _WITHIN),
            _option("--nstate", "max_states", int | None, None, "States to keep at most.", min=1),
        ),
    ),
    "connect": (1, "Remove states on no path from start to final.", ()),
    "arcsort": (
        1,
        "Sort the arcs of each state by label.",
        (_option("--sort-type", "by", _LABELS, "ilabel", "Label to sort by."),),
    ),
    "topsort": (1, "Sort the states of an acyclic transducer topologically.", ()),
    "determinize": (
        1,
        f"Determinize: one arc per state and input label.\n\n{_NO_FORM}",
        (
            _MAX_STATES,
            _option("--encode-labels", "encode_labels", bool, False, _PAIRS),
            _option(*_DELTA, 1e-6, _DELTA_HELP),
            _MEMORY,
        ),
    ),
    "minimize": (1, "Minimize a deterministic transducer.", (_option(*_DELTA, 1e-4, _DELTA_HELP),)),
    "rmepsilon": (1, "Remove the arcs that have epsilon on both sides.", (_MEMORY,)),
}


def commands() -> dict[str, Callable[..., None]]:
    """The command of each row, by its name."""
    return {name: _command(name, *row) for name, row in OPERATIONS.items()}


def _command(
    name: str, machines: int, help: str, options: tuple[Parameter, ...]
) -> Callable[..., None]:
    def command(out: str | None, semiring: str, as_json: bool, quiet: bool, **given: Any) -> None:
        sources = [given.pop(side) for side in sides]
        read: tuple[fa.Fst, ...]
        if machines == 2:
            read = read_two(sources[0], sources[1], semiring)
        else:
            read = (read_machine(sources[0], semiring),)
        begin = time.perf_counter()
        with about(*sources):
            made = getattr(fa, name)(*read, **given)
        _finish(made, time.perf_counter() - begin, out, as_json, quiet)

    kind = Parameter.KEYWORD_ONLY
    sides = {"machine": Parameter("machine", kind, default=STREAM, annotation=MachineArgument)}
    if machines == 2:
        sides = {
            side: Parameter(
                side, kind, annotation=Annotated[str, typer.Argument(metavar=at, help=text)]
            )
            for side, at, text in (
                ("first", "A", "First transducer; - reads standard input."),
                ("second", "B", "Second transducer; - reads standard input."),
            )
        }
    parameters = [
        *sides.values(),
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
        facts_of = {
            "states": made.num_states,
            "arcs": made.num_arcs,
            "semiring": made.semiring.name,
            "seconds": seconds,
            "ns_per_arc": 1e9 * seconds / made.num_arcs if made.num_arcs else None,
            "bytes": made.nbytes,
            "wrote": wrote or None,
        }
        emit(Facts(facts_of), as_json, str)
