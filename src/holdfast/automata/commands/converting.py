"""`holdfast fst compile` and `print`: text to binary, and back."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

import typer

from holdfast.automata.commands.streams import (
    STREAM,
    Facts,
    MachineArgument,
    OutOption,
    SemiringOption,
    about,
    read_bytes,
    read_machine,
    read_table,
    write_machine,
)
from holdfast.console import JsonOption, QuietOption, emit, remark

InputSymbols = Annotated[
    str | None,
    typer.Option(
        "--isymbols", metavar="FILE", help="Symbol table of the input labels, text or binary."
    ),
]
OutputSymbols = Annotated[
    str | None,
    typer.Option(
        "--osymbols", metavar="FILE", help="Symbol table of the output labels, text or binary."
    ),
]
Acceptor = Annotated[bool, typer.Option("--acceptor", help="Text with one label per arc.")]
Form = Annotated[
    Literal["openfst", "k2"], typer.Option("--form", help="Text format: openfst or k2.")
]


def compile_text(
    text: Annotated[
        str, typer.Argument(metavar="TEXT", help="Text file; - reads standard input.")
    ] = STREAM,
    out: OutOption = None,
    isymbols: InputSymbols = None,
    osymbols: OutputSymbols = None,
    acceptor: Acceptor = False,
    semiring: SemiringOption = "tropical",
    renumber: Annotated[
        bool,
        typer.Option(
            "--renumber",
            help="Number states by first appearance, as fstcompile does by default.",
        ),
    ] = False,
    keep_symbols: Annotated[
        bool, typer.Option(help="Store the symbol tables in the transducer.")
    ] = True,
    form: Form = "openfst",
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Compile text to a transducer, as fstcompile does.

    A line is an arc, `source destination ilabel olabel [weight]`, or a final state, `state [weight]`. The
    first line's source is the start state. States keep their numbers.
    """
    from holdfast.automata.formats.k2_text import parse_k2
    from holdfast.automata.formats.openfst_text import parse
    from holdfast.automata.formats.tokens import as_text

    data, name = read_bytes(text, "the text of a transducer")
    lines = as_text(data, name, "transducer")
    tables = read_table(isymbols), read_table(osymbols)
    if form == "k2":
        made = parse_k2(lines, semiring, aux_labels=False if acceptor else None, path=name)
        made = made.with_(isymbols=tables[0], osymbols=tables[1])
    else:
        made = parse(
            lines,
            semiring,
            isymbols=tables[0],
            osymbols=tables[1],
            acceptor=acceptor,
            renumber=renumber,
            path=name,
        )
    if not keep_symbols:
        made = made.with_(isymbols=None, osymbols=None)
    wrote = write_machine(made, out, as_json, quiet)
    if as_json:
        facts = {
            "states": made.num_states,
            "arcs": made.num_arcs,
            "semiring": made.semiring.name,
            "wrote": wrote or None,
        }
        emit(Facts(facts), as_json, str)


def print_text(
    machine: MachineArgument = STREAM,
    out: Annotated[
        str | None,
        typer.Option("--out", "-o", metavar="FILE", help="Output file (default: standard output)."),
    ] = None,
    isymbols: InputSymbols = None,
    osymbols: OutputSymbols = None,
    acceptor: Acceptor = False,
    numeric: Annotated[
        bool, typer.Option("--numeric", help="Print labels as numbers, even if they have symbols.")
    ] = False,
    semiring: SemiringOption = "tropical",
    form: Form = "openfst",
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Print a transducer as text, as fstprint does.

    Labels are symbols where the machine has tables or the options name some.
    """
    from holdfast.automata.formats.k2_text import render_k2
    from holdfast.automata.formats.openfst_text import render
    from holdfast.files import write_whole

    f = read_machine(machine, semiring)
    if as_json:
        facts = {
            "start": f.start,
            "states": f.num_states,
            "semiring": f.semiring.name,
            "arcs": [arc._asdict() for arc in f.arcs()],
            "finals": f.finals,
        }
        emit(Facts(facts), as_json, str)
        return
    if form == "k2":
        with about(machine):
            text = render_k2(f, False if acceptor else None)
    else:
        given = (
            (None, None)
            if numeric
            else (read_table(isymbols) or f.isymbols, read_table(osymbols) or f.osymbols)
        )
        with about(machine):
            text = render(f.with_(isymbols=given[0], osymbols=given[1]), acceptor)
    if out is None or out == STREAM:
        sys.stdout.write(text)
    else:
        write_whole(out, text.encode())
        remark(f"wrote {out}", quiet)
