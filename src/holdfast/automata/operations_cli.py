"""The commands of `holdfast fst` that build a transducer from one or two others, named as OpenFST's."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

from holdfast import automata as fa
from holdfast.automata.streams import STREAM, Files, First, Machine, Second, about
from holdfast.command import Answer, Facts, Positive, option

MANY_ARCS = 100_000
"""From this number of arcs on, the time per arc measures the work and not the start."""


def size(_: Any, tokens: Sequence[Any]) -> int:
    """Bytes in a size such as `2G`, `500M`, `1.5GiB` or `1000000`; units are powers of 1024."""
    text = tokens[0].value
    bare = text.strip().upper().removesuffix("B").removesuffix("I")
    power = "KMGT".find(bare[-1:]) + 1 if bare else 0
    try:
        return int(float(bare[:-1] if power else bare) * 1024**power)
    except (ValueError, OverflowError):
        raise ValueError(
            f"invalid size {text!r}; write for example 2G, 500M or 1000000 (bytes)"
        ) from None


Filter = Annotated[
    Literal["auto", "sequence", "alt_sequence", "match", "trivial", "null"],
    option(help="Composition filter for epsilon paths."),
]
Connect = Annotated[
    bool, option(negative="--no-connect", help="Leave out states on no path from start to final.")
]
MaxStates = Annotated[Positive | None, option(help="Maximum number of states.")]
Delta = Annotated[
    float,
    option(
        help="Costs that differ by less are equal; a string of n labels changes by up to n + 1 times it."
    ),
]
Memory = Annotated[
    int | None,
    option(
        metavar="SIZE",
        converter=size,
        help="Memory limit: 2G, 500M, or bytes (default: the memory available).",
    ),
]


def _apply(
    operation: Callable[..., fa.Fst], sources: Sequence[str], files: Files, **options: Any
) -> Answer:
    """Run an operation on machines, write its result, and report size and time."""
    from holdfast.numbers import duration, number

    machines = files.read(*sources)
    begin = time.perf_counter()
    with about(*sources):
        f = operation(*machines, **options)
    seconds = time.perf_counter() - begin
    remarks = f", in {duration(seconds)}"
    if f.num_arcs >= MANY_ARCS:
        remarks += f" ({number(1e9 * seconds / f.num_arcs, 0)} ns per arc)"
    wrote = files.write(f, remarks)
    return Facts(
        {
            "states": f.num_states,
            "arcs": f.num_arcs,
            "semiring": f.semiring.name,
            "seconds": seconds,
            "ns_per_arc": 1e9 * seconds / f.num_arcs if f.num_arcs else None,
            "bytes": f.nbytes,
            "wrote": wrote,
        }
    )


def compose(
    a: First,
    b: Second,
    /,
    *,
    filter: Filter = "auto",
    connect: Connect = True,
    max_states: MaxStates = None,
    memory: Memory = None,
    files: Files = Files(),
) -> Answer:
    """Compose A with B: outputs of A are inputs of B."""
    return _apply(
        fa.compose,
        (a, b),
        files,
        filter=filter,
        connect=connect,
        max_states=max_states,
        memory_bytes=memory,
    )


def intersect(
    a: First,
    b: Second,
    /,
    *,
    filter: Filter = "auto",
    connect: Connect = True,
    max_states: MaxStates = None,
    files: Files = Files(),
) -> Answer:
    """Intersect two acceptors; weights are multiplied."""
    return _apply(
        fa.intersect, (a, b), files, filter=filter, connect=connect, max_states=max_states
    )


def difference(
    a: First, b: Second, /, *, connect: Connect = True, files: Files = Files()
) -> Answer:
    """Subtract an unweighted acceptor B from an acceptor A."""
    return _apply(fa.difference, (a, b), files, connect=connect)


def union(a: First, b: Second, /, *, files: Files = Files()) -> Answer:
    """Unite two transducers: the paths of A and of B."""
    return _apply(fa.union, (a, b), files)


def concat(a: First, b: Second, /, *, files: Files = Files()) -> Answer:
    """Concatenate two transducers: paths of A, then of B."""
    return _apply(fa.concat, (a, b), files)


def closure(
    machine: Machine = STREAM, /, *, closure_plus: bool = False, files: Files = Files()
) -> Answer:
    """Kleene closure: repeat the paths any number of times.

    Args:
        closure_plus: At least once.
    """
    return _apply(fa.closure, (machine,), files, plus=closure_plus)


def reverse(machine: Machine = STREAM, /, *, files: Files = Files()) -> Answer:
    """Reverse every path of a transducer."""
    return _apply(fa.reverse, (machine,), files)


def invert(machine: Machine = STREAM, /, *, files: Files = Files()) -> Answer:
    """Exchange input and output."""
    return _apply(fa.invert, (machine,), files)


def project(
    machine: Machine = STREAM,
    /,
    *,
    project_type: Literal["input", "output"] = "input",
    files: Files = Files(),
) -> Answer:
    """Keep one side of a transducer, as an acceptor.

    Args:
        project_type: Side to keep.
    """
    return _apply(fa.project, (machine,), files, side=project_type)


def push(
    machine: Machine = STREAM,
    /,
    *,
    reweight_type: Literal["initial", "final"] = "initial",
    remove_total_weight: bool = False,
    files: Files = Files(),
) -> Answer:
    """Push weights towards the start or the final states.

    Args:
        reweight_type: Where the weights go.
        remove_total_weight: Divide by the sum of all paths.
    """
    return _apply(fa.push, (machine,), files, to=reweight_type, remove_total=remove_total_weight)


def prune(
    machine: Machine = STREAM,
    /,
    *,
    weight: float = float("inf"),
    nstate: Positive | None = None,
    files: Files = Files(),
) -> Answer:
    """Remove paths worse than the best by a threshold.

    Args:
        weight: How much more than the best path a path may cost.
        nstate: Maximum number of states to keep.
    """
    return _apply(fa.prune, (machine,), files, threshold=weight, max_states=nstate)


def connect(machine: Machine = STREAM, /, *, files: Files = Files()) -> Answer:
    """Remove states on no path from start to final."""
    return _apply(fa.connect, (machine,), files)


def arcsort(
    machine: Machine = STREAM,
    /,
    *,
    sort_type: Literal["ilabel", "olabel"] = "ilabel",
    files: Files = Files(),
) -> Answer:
    """Sort the arcs of each state by label.

    Args:
        sort_type: Label to sort by.
    """
    return _apply(fa.arcsort, (machine,), files, by=sort_type)


def topsort(machine: Machine = STREAM, /, *, files: Files = Files()) -> Answer:
    """Sort the states of an acyclic transducer topologically."""
    return _apply(fa.topsort, (machine,), files)


def determinize(
    machine: Machine = STREAM,
    /,
    *,
    max_states: Positive | None = None,
    encode_labels: bool = False,
    delta: Delta = 1e-6,
    memory: Memory = None,
    files: Files = Files(),
) -> Answer:
    """Determinize: one arc per state and input label.

    Some weighted transducers have no finite deterministic form: --max-states ends the attempt.

    Args:
        max_states: Maximum number of states (default: a million, or four times the input's if more).
        encode_labels: Determinize pairs of labels: works for any transducer.
    """
    return _apply(
        fa.determinize,
        (machine,),
        files,
        max_states=max_states,
        encode_labels=encode_labels,
        delta=delta,
        memory_bytes=memory,
    )


def minimize(
    machine: Machine = STREAM, /, *, delta: Delta = 1e-4, files: Files = Files()
) -> Answer:
    """Minimize a deterministic transducer."""
    return _apply(fa.minimize, (machine,), files, delta=delta)


def rmepsilon(
    machine: Machine = STREAM, /, *, memory: Memory = None, files: Files = Files()
) -> Answer:
    """Remove the arcs that have epsilon on both sides."""
    return _apply(fa.rmepsilon, (machine,), files, memory_bytes=memory)


OPERATIONS: tuple[Callable[..., Answer], ...] = (
    compose,
    intersect,
    difference,
    union,
    concat,
    closure,
    reverse,
    invert,
    project,
    push,
    prune,
    connect,
    arcsort,
    topsort,
    determinize,
    minimize,
    rmepsilon,
)
