"""The commands `holdfast runs pairtest plan|run|solve`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.console import (
    JsonOption,
    QuietOption,
    VerboseOption,
    duration,
    emit,
    remark,
)
from holdfast.errors import InputError
from holdfast.plain import plain

if TYPE_CHECKING:
    from holdfast.runs.pairing.records import PairResult

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

NODES_HELP = "Host lists (node[1-64,70]), files with one host per line, or - for standard input."
PassesOption = Annotated[
    int,
    typer.Option(
        "--passes",
        min=1,
        help="Passes required per node; raise it to catch intermittent faults.",
    ),
]
ConfirmOption = Annotated[
    bool,
    typer.Option(
        "--confirm",
        help="Retest a faulty node with another good node until it is 95 % certain.",
    ),
]


@app.command()
def plan(
    nodes: Annotated[
        list[str] | None, typer.Argument(metavar="[NODES]...", help=NODES_HELP)
    ] = None,
    results: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="RESULTS", help="Results file of earlier rounds; plans the next one."
        ),
    ] = None,
    passes: PassesOption = 1,
    confirm: ConfirmOption = False,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Output file (default: stdout)."),
    ] = None,
    quiet: QuietOption = False,
) -> None:
    """Plan the tests of the next round, printed as one JSON object per line.

    Round 1 pairs all nodes; later rounds pair suspects with good nodes. No node is in two tests.
    """
    from holdfast.runs.pairing.nodes import expand_nodes
    from holdfast.runs.pairing.plan import plan_pairs
    from holdfast.runs.pairing.records import line_of

    if not nodes and results is None:
        raise InputError(
            "no nodes given",
            code="not-found",
            expected="a host list (node[1-64]), or --from RESULTS",
        )
    made = plan_pairs(expand_nodes(nodes or []), results or (), passes=passes, confirm=confirm)
    lines = "".join(map(line_of, made.tests))
    if output is None:
        print(lines, end="")
        remark(_summary(len(made.tests), made.round), quiet)
        return
    from holdfast.runs.pairing.terminal import planned

    try:
        output.write_text(lines, encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"the plan cannot be written here: {error.strerror}", code="unwritable", path=output
        ) from None
    emit(made, False, planned)
    remark(f"plan: {output}", quiet)


def _summary(tests: int, round_: int) -> str:
    if not tests:
        return "nothing is left that a test could tell"
    return f"round {round_}: {tests:,} test{'s' if tests != 1 else ''}"


def rounds(text: str | int) -> int:
    """A number of rounds; 0 for "all"."""
    if isinstance(text, int):
        return text
    if text == "all":
        return 0
    if text.isdigit() and int(text) > 0:
        return int(text)
    raise typer.BadParameter(f"{text!r} is not a number of rounds; write for example 1, 3 or all")


@app.command()
def run(
    tests: Annotated[
        str, typer.Argument(metavar="PLAN", help="Plan file from `plan`, or - for stdin.")
    ],
    command: Annotated[
        str,
        typer.Option(
            "--command",
            metavar="COMMAND",
            help="Shell command for each pair; placeholders {a} and {b}, or {nodes}; {n}, {test}.",
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="RESULTS", help="Results file to append to (default: stdout)."
        ),
    ] = None,
    jobs: Annotated[
        int, typer.Option("--jobs", "-j", min=1, help="Maximum number of tests at a time.")
    ] = 32,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout",
            parser=duration,
            metavar="DURATION",
            help="Time limit per test; a test that exceeds it fails.",
        ),
    ] = 300.0,
    rounds: Annotated[
        int,
        typer.Option(
            "--rounds",
            parser=rounds,
            metavar="N|all",
            help="Number of rounds to run, or 'all' to continue until every node is classified.",
        ),
    ] = 1,
    passes: PassesOption = 1,
    confirm: ConfirmOption = False,
    not_run_codes: Annotated[
        list[int] | None,
        typer.Option(
            "--not-run-code",
            metavar="CODE",
            help="Exit code of the command for 'could not run the test'. Repeatable.",
        ),
    ] = None,
    output_dir: Annotated[
        Path | None,
        typer.Option("--output-dir", metavar="DIR", help="Folder for the output of each test."),
    ] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Run a command on the nodes of every test, and record how it ends.

    Run it again to resume: tests with a result are not run twice.
    """
    from holdfast.runs.pairing import terminal
    from holdfast.runs.pairing.records import line_of, read_plan
    from holdfast.runs.pairing.running import run_pairs

    def show(result: PairResult) -> None:
        print(line_of(result), end="", flush=True)

    done = run_pairs(
        read_plan(tests),
        command,
        output,
        jobs=jobs,
        timeout_s=timeout,
        rounds=rounds or None,
        passes=passes,
        confirm=confirm,
        not_run_codes=not_run_codes or (),
        output_dir=output_dir,
        on_result=show if output is None else None,
    )
    if output is None:
        for sentence in done.verdict.findings:
            remark(sentence, quiet)
        return
    emit(done, as_json, terminal.ran)
    remark(f"results: {output}", quiet or as_json)


@app.command()
def solve(
    results: Annotated[
        str, typer.Argument(metavar="RESULTS", help="Results file from `run`, or - for stdin.")
    ],
    nodes: Annotated[
        list[str] | None,
        typer.Option(
            "--nodes",
            metavar="NODES",
            help="All nodes, to report those without a test. Repeatable.",
        ),
    ] = None,
    passes: PassesOption = 1,
    confirm: ConfirmOption = False,
    check: Annotated[
        bool, typer.Option("--check", help="Exit with 1 unless every node is classified as good.")
    ] = False,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
) -> None:
    """Classify nodes as good, faulty or suspect, and print what to run next."""
    from holdfast.runs.pairing import terminal
    from holdfast.runs.pairing.nodes import expand_nodes
    from holdfast.runs.pairing.plan import plan_pairs
    from holdfast.runs.pairing.records import read_results
    from holdfast.runs.pairing.solve import solve_pairs

    known = read_results(results)
    if not known and not nodes:
        raise InputError("no results in this file", code="no-data", path=results)
    everyone = expand_nodes(nodes or [])
    verdict = solve_pairs(known, nodes=everyone)
    plan = plan_pairs(everyone, known, passes=passes, confirm=confirm)
    template = next((row.template for row in reversed(known) if row.template), "")
    options = ["--confirm"] if confirm else []
    options += [f"--passes {passes}"] if passes > 1 else []
    line = terminal.next_command("RESULTS" if results == "-" else results, template, options)
    found = terminal.Solved(verdict, plan, line if plan.tests else None)
    if as_json:
        print(
            json.dumps(plain(found.to_dict()), allow_nan=False)
        )  # one line, as plan and run print
    else:
        emit(found, False, lambda found: terminal.solved(found, verbose))
        if found.next_command is not None:
            print(terminal.next_round(found))
    if check and len(verdict.names("good")) < len(verdict.nodes):
        raise typer.Exit(1)
