"""`holdfast fst`: each command calls the function of the same name and prints its result."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from holdfast.answer import Finding, Section, Table, Value
from holdfast.automata.operations_cli import OPERATIONS
from holdfast.automata.streams import (
    STREAM,
    Files,
    First,
    Machine,
    Out,
    Second,
    Semiring,
    about,
    read_bytes,
    read_machine,
    read_machines,
    write_machine,
)
from holdfast.automata.symbols import EPSILON
from holdfast.command import (
    Answer,
    Count,
    Facts,
    Options,
    Positive,
    Stream,
    common,
    option,
    room,
)
from holdfast.numbers import counted
from holdfast.progress import remark

if TYPE_CHECKING:
    from holdfast.automata.fst import Fst
    from holdfast.automata.path_sums.path import Path
    from holdfast.automata.symbols import SymbolTable

app = room("fst", "Weighted finite-state transducers: OpenFST's operations and files.")

Form = Annotated[Literal["openfst", "k2"], option(help="Text format: openfst or k2.")]


@Options
@dataclass(frozen=True)
class Symbols:
    """How labels are written in text."""

    isymbols: Annotated[str | None, option(metavar="FILE")] = None
    """Symbol table of the input labels, text or binary."""
    osymbols: Annotated[str | None, option(metavar="FILE")] = None
    """Symbol table of the output labels, text or binary."""
    acceptor: bool = False
    """Text with one label per arc."""
    form: Form = "openfst"

    def tables(self) -> tuple[SymbolTable | None, SymbolTable | None]:
        """The tables of input and of output labels, None where no file is named."""
        from holdfast.automata.formats.symbol_tables import read_symbols

        first, second = (
            None if path is None else read_symbols(path) for path in (self.isymbols, self.osymbols)
        )
        for table in filter(None, (first, second)):
            name = table.symbols.get(0, EPSILON)
            if "eps" not in name.lower():  # such as a vocabulary that is numbered from 0
                remark(
                    f"{table.name}: label 0 is epsilon: arcs with {name!r} read or write nothing"
                )
        return first, second


@app.command(name="compile")
def compile_text(
    text: Annotated[Stream, option(metavar="TEXT")] = STREAM,
    /,
    *,
    symbols: Symbols = Symbols(),
    renumber: bool = False,
    keep_symbols: Annotated[bool, option(negative="--no-keep-symbols")] = True,
    files: Files = Files(),
) -> Answer:
    """Compile text to a transducer, as fstcompile does.

    A line is an arc, `source destination ilabel olabel [weight]`, or a final state, `state [weight]`. The
    first line's source is the start state. States keep their numbers.

    Args:
        text: Text file; - reads standard input.
        renumber: Number states by first appearance, as fstcompile does by default.
        keep_symbols: Store the symbol tables in the transducer.
    """
    from holdfast.automata.formats.k2_text import parse_k2
    from holdfast.automata.formats.openfst_text import parse
    from holdfast.automata.formats.tokens import as_text

    data, name = read_bytes(text, "the text of a transducer")
    lines = as_text(data, name, "transducer")
    isymbols, osymbols = symbols.tables()
    if symbols.form == "k2":
        f = parse_k2(
            lines, files.semiring, aux_labels=False if symbols.acceptor else None, path=name
        ).with_(isymbols=isymbols, osymbols=osymbols)
    else:
        f = parse(
            lines,
            files.semiring,
            isymbols=isymbols,
            osymbols=osymbols,
            acceptor=symbols.acceptor,
            renumber=renumber,
            path=name,
        )
    if not keep_symbols:
        f = f.with_(isymbols=None, osymbols=None)
    wrote = files.write(f)
    return Facts(
        {
            "states": f.num_states,
            "arcs": f.num_arcs,
            "semiring": f.semiring.name,
            "wrote": wrote,
        }
    )


@app.command(name="print")
def print_text(
    machine: Machine = STREAM,
    /,
    *,
    out: Out = None,
    symbols: Symbols = Symbols(),
    numeric: bool = False,
    semiring: Semiring = "tropical",
) -> Answer:
    """Print a transducer as text, as fstprint does.

    Labels are symbols where the machine has tables or the options name some.

    Args:
        out: Output file (default: standard output).
        numeric: Print labels as numbers, even if they have symbols.
    """
    from holdfast.automata.formats.k2_text import render_k2
    from holdfast.automata.formats.openfst_text import render
    from holdfast.files import write_whole

    f = read_machine(machine, semiring)
    if common().as_json:
        return Facts(
            {
                "start": f.start,
                "states": f.num_states,
                "semiring": f.semiring.name,
                "arcs": [arc._asdict() for arc in f.arcs()],
                "finals": f.finals,
            }
        )
    isymbols, osymbols = symbols.tables()
    f = f.with_(isymbols=isymbols or f.isymbols, osymbols=osymbols or f.osymbols)
    if numeric:
        f = f.with_(isymbols=None, osymbols=None)
    with about(machine):
        if symbols.form == "k2":
            text = render_k2(f, False if symbols.acceptor else None)
        else:
            text = render(f, symbols.acceptor)
    if out is None or out == STREAM:
        sys.stdout.write(text)
    else:
        write_whole(out, text.encode())
        remark(f"wrote {out}")
    return Facts({"wrote": out})


@app.command
def info(machine: Machine = STREAM, /, *, semiring: Semiring = "tropical") -> Answer:
    """Describe a transducer: states, arcs, labels, properties."""
    from holdfast.automata.describing import describe

    return describe(read_machine(machine, semiring))


@app.command
def draw(
    machine: Machine = STREAM, /, *, out: Out = None, semiring: Semiring = "tropical"
) -> Answer:
    """Draw a transducer as SVG or Graphviz dot.

    Args:
        out: Output file: .svg, .dot or .gv (default: dot to standard output).
    """
    from holdfast.automata.drawing.pictures import draw as run
    from holdfast.automata.drawing.pictures import to_dot

    f = read_machine(machine, semiring)
    if out is not None and out != STREAM:
        run(f, out)
        remark(f"wrote {out}")
        return Facts({"wrote": out})
    dot = to_dot(f)
    if not common().as_json:
        sys.stdout.write(dot)
    return Facts({"dot": dot})


for operation in OPERATIONS:
    app.command(operation)


@dataclass(frozen=True)
class Listing(Answer):
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

    def values(self) -> Sequence[Value]:
        """How many paths, and the weight of the first."""
        first = self.paths[0].weight if self.paths else None
        return [Value("paths", len(self.paths)), Value("first_weight", first)]

    def sections(self) -> Sequence[Section]:
        """Cost, input and output of each path."""
        import pyarrow as pa

        f = self.machine
        rows = [
            {
                "cost" if f.semiring.is_negative_log else "weight": path.weight,
                "input": path.input(f),
                "output": path.output(f),
            }
            for path in self.paths
        ]
        sentence = f"{counted(len(rows), 'path')}."
        table = Table(pa.Table.from_pylist(rows), empty="No path.")
        return [Section("paths", "Which paths?", sentence, tables=[table])]


def _listed(f: Fst, paths: list[Path], as_machine: Fst, out: str | None) -> Answer | None:
    """Paths of `f`, printed unless standard output holds them as a machine."""
    wrote = None if out is None else write_machine(as_machine, out)
    return None if out == STREAM else Listing(f, paths, wrote)


PathsOut = Annotated[
    Out,
    option(
        help="Write the paths as a transducer too; - writes it to standard output, without a table."
    ),
]
PathCount = Annotated[Positive, option("--count", "-n", help="Number of paths.")]


@app.command
def shortestpath(
    machine: Machine = STREAM,
    /,
    *,
    count: PathCount = 1,
    unique: bool = False,
    out: PathsOut = None,
    semiring: Semiring = "tropical",
) -> Answer | None:
    """List the n best paths with cost, input and output.

    Args:
        unique: Best path of each distinct input string.
    """
    from holdfast.automata import paths, shortest_path

    f = read_machine(machine, semiring)
    with about(machine):
        best = shortest_path(f, count, unique)
    return _listed(best, list(paths(best, limit=count)), best, out)


@app.command
def shortestdistance(
    machine: Machine = STREAM, /, *, reverse: bool = False, semiring: Semiring = "tropical"
) -> Answer:
    """Sum the paths from the start to each state.

    One line per state: its number and the least cost, or the log sum in the log semiring.

    Args:
        reverse: Distance from each state to the final states.
    """
    from holdfast.automata import state_distances

    f = read_machine(machine, semiring)
    with about(machine):
        sums = state_distances(f, reverse).tolist()
    if not common().as_json:
        sys.stdout.writelines(f"{state}\t{total:.9g}\n" for state, total in enumerate(sums))
    return Facts({"distances": sums, "semiring": f.semiring.name})


@app.command
def randgen(
    machine: Machine = STREAM,
    /,
    *,
    count: PathCount = 1,
    seed: Count = 0,
    weighting: Literal["uniform", "weight"] = "uniform",
    max_length: Count | None = None,
    out: PathsOut = None,
    semiring: Semiring = "tropical",
) -> Answer | None:
    """Draw random paths.

    Args:
        seed: Random seed (same seed, same paths).
        weighting: uniform: every path is equally likely; weight: by probability, exp(-cost).
        max_length: Maximum number of arcs per path.
    """
    import numpy as np

    from holdfast.automata import random_paths
    from holdfast.automata.path_sums.path import chains

    f = read_machine(machine, semiring)
    with about(machine):
        drawn = random_paths(f, count, weighting=weighting, seed=seed, max_length=max_length)
    bounds = np.cumsum([0, *(len(path.arcs) for path in drawn)])
    arcs = np.array([arc for path in drawn for arc in path.arcs], np.int64)
    return _listed(f, drawn, chains(f, bounds, arcs), out)


@dataclass(frozen=True)
class Comparison(Answer):
    """Whether two machines are the same, in the sense asked for."""

    equal: bool
    sense: str
    difference: str | None
    """What differs first, where that can be said."""

    @property
    def exit_code(self) -> int:
        """0 if they are the same."""
        return int(not self.equal)

    def findings(self) -> Sequence[Finding]:
        """The verdict in a line."""
        if self.equal:
            return [Finding("equal" if self.sense == "exact" else self.sense)]
        verdict = f"different: {self.difference}" if self.difference else f"not {self.sense}"
        return [Finding(verdict)]


@app.command
def equal(
    a: First,
    b: Second,
    /,
    *,
    sense: Literal["exact", "isomorphic", "equivalent"] = "exact",
    delta: Annotated[float, option(at_least=0)] = 1 / 1024,
    symbols: bool = False,
    semiring: Semiring = "tropical",
) -> Answer:
    """Compare two transducers.

    Exit code 0: equal; 1: different; 2: cannot be decided (equivalence of non-functional transducers).

    Args:
        sense: exact: same state numbers and order of arcs; isomorphic: up to renumbering; equivalent: same
            strings with the same weights.
        delta: Tolerance for weights.
        symbols: Compare symbol tables too.
    """
    from holdfast.automata import equivalent, first_difference, isomorphic

    first, second = read_machines(a, b, semiring=semiring)
    difference = None
    if sense == "exact":
        difference = first_difference(first, second, delta, symbols=symbols)
        same = difference is None
    else:
        compare = isomorphic if sense == "isomorphic" else equivalent
        with about(a, b):
            same = bool(compare(first, second, delta=delta))
    return Comparison(same, sense, difference)
