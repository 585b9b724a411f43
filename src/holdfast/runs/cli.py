"""`holdfast runs`: each command calls the function of the same name and returns its result."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from holdfast.command import (
    Answer,
    Duration,
    Output,
    Positive,
    Share,
    common,
    option,
    room,
)
from holdfast.errors import InputError
from holdfast.plain import plain
from holdfast.progress import remark, track

if TYPE_CHECKING:
    from holdfast.runs.pairing.records import PairResult
    from holdfast.runs.watching.notices import Notice

app = room("runs", "What one training run did with its time, and what stopped it.")

RunId = Annotated[str | None, option("--run", metavar="ID")]


@app.command
def report(folder: Path, /, *, run_id: RunId = None) -> Answer:
    """Report where a run's wall time went, what interrupted it, and what its checkpoints cost.

    Args:
        folder: Folder that was passed to RunRecorder.
        run_id: Run id, if the folder contains several runs.
    """
    from holdfast.runs.goodput.report import report as run

    return run(folder, run_id)


@app.command
def hang(*places: Annotated[Path, option(metavar="DIR|FILE")]) -> Answer:
    """Find the ranks that caused a hang, from Flight Recorder dumps.

    Reads the dumps of PyTorch's Flight Recorder (NCCL or gloo): one file per rank, with the rank in its
    name. Pickles are read as data, never executed.

    Args:
        places: Flight Recorder dumps of all ranks (JSON or pickle), or folders with them.
    """
    from holdfast.runs.flight.verdict import hang as run

    return run(*places)


@app.command
def stragglers(
    *sources: Annotated[Path, option(metavar="SRC")],
    run_id: RunId = None,
    within: Annotated[str | None, option(metavar="LABEL")] = None,
    false_alarm_rate: Annotated[float, option(at_least=1e-6, at_most=0.2)] = 0.01,
    least_slowdown: Annotated[float, option(at_least=0.0)] = 0.01,
    max_reject_share: Share = 0.01,
) -> Answer:
    """Find slow ranks: since when they are slow, what they have in common, and what they cost.

    Args:
        sources: Folder of recorded events, CSV file (rank, step, seconds), or torch.profiler traces, one
            per rank, or their folder.
        run_id: Run id, if the folder contains several runs.
        within: Label, such as stage: compare only ranks with the same value.
        false_alarm_rate: Maximum share of runs without a slow rank in which one is reported.
        least_slowdown: Smallest delay to report, as a share of a step.
        max_reject_share: Maximum share of unusable rows in a CSV file.
    """
    from holdfast.runs.straggling.scores import stragglers as run

    return run(
        list(sources),
        run_id=run_id,
        within=within,
        false_alarm_rate=false_alarm_rate,
        least_slowdown=least_slowdown,
        max_reject_share=max_reject_share,
    )


# --- The pair test -------------------------------------------------------------------------------

pairtest = room("pairtest", "Find faulty nodes: test pairs of nodes in rounds.")
app.command(pairtest)


@pairtest.command(name="plan")
def pairtest_plan(
    *nodes: str,
    results: Annotated[str | None, option("--from", metavar="RESULTS")] = None,
    passes: Positive = 1,
    output: Output | None = None,
) -> Answer | None:
    """Plan the tests of the next round, printed as one JSON object per line.

    Round 1 pairs all nodes; later rounds pair suspects with good nodes. No node is in two tests.

    Args:
        nodes: Host lists (node[1-64,70]), files with one host per line, or - for standard input.
        results: Results file of earlier rounds; plans the next one.
        passes: Passes required per node; raise it to catch intermittent faults.
        output: Output file (default: stdout).
    """
    from holdfast.files import write_whole
    from holdfast.numbers import counted
    from holdfast.runs.pairing.nodes import expand_nodes
    from holdfast.runs.pairing.plan import plan_pairs
    from holdfast.runs.pairing.records import line_of

    if not nodes and results is None:
        raise InputError(
            "no nodes given",
            code="not-found",
            expected="a host list (node[1-64]), or --from RESULTS",
        )
    made = plan_pairs(expand_nodes(nodes), results or (), passes=passes)
    lines = "".join(map(line_of, made.tests))
    if output is not None:
        write_whole(output, lines.encode())
        return replace(made, path=output)
    print(lines, end="")
    tests = f"round {made.round}: {counted(len(made.tests), 'test')}"
    remark(tests if made.tests else "nothing is left that a test could tell")
    return None


@pairtest.command(name="run")
def pairtest_run(
    plan: str,
    /,
    *,
    command: Annotated[str, option(metavar="COMMAND")],
    output: Annotated[Output | None, option(metavar="RESULTS")] = None,
    jobs: Annotated[Positive, option("--jobs", "-j")] = 32,
    timeout: Duration = 300.0,
    rounds: Annotated[str, option(metavar="N|all")] = "1",
    passes: Positive = 1,
    not_run_code: Annotated[tuple[int, ...], option(metavar="CODE")] = (),
    output_dir: Annotated[Path | None, option(metavar="DIR")] = None,
) -> Answer | None:
    """Run a command on the nodes of every test, and record how it ends.

    Run it again to resume: tests with a result are not run twice.

    Args:
        plan: Plan file from `plan`, or - for stdin.
        command: Shell command for each pair; placeholders {a} and {b}, or {nodes}; {n}, {test}.
        output: Results file to append to (default: stdout).
        jobs: Maximum number of tests at a time.
        timeout: Time limit per test; a test that exceeds it fails.
        rounds: Number of rounds to run, or 'all' to continue until every node is classified.
        passes: Passes required per node; raise it to catch intermittent faults.
        not_run_code: Exit code of the command for 'could not run the test'. Repeatable.
        output_dir: Folder for the output of each test.
    """
    from holdfast.runs.pairing.records import line_of, read_plan
    from holdfast.runs.pairing.running import run_pairs

    if rounds != "all" and not (rounds.isdigit() and int(rounds) > 0):
        raise InputError(
            "invalid number of rounds",
            code="invalid-value",
            place="--rounds",
            found=rounds,
            expected="a number from 1, or all",
        )

    def show(result: PairResult) -> None:
        print(line_of(result), end="", flush=True)

    done = run_pairs(
        read_plan(plan),
        command,
        output,
        jobs=jobs,
        timeout_s=timeout,
        rounds=None if rounds == "all" else int(rounds),
        passes=passes,
        not_run_codes=not_run_code,
        output_dir=output_dir,
        on_result=show if output is None else None,
    )
    if output is not None:
        return done
    for finding in done.findings():
        remark(finding.text)
    return None


@pairtest.command(name="solve")
def pairtest_solve(
    results: str,
    /,
    *,
    nodes: Annotated[tuple[str, ...], option(metavar="NODES")] = (),
    passes: Positive = 1,
    check: bool = False,
) -> Answer:
    """Classify nodes as good, faulty or suspect, and print what to run next.

    Args:
        results: Results file from `run`, or - for stdin.
        nodes: All nodes, to report those without a test. Repeatable.
        passes: Passes required per node; raise it to catch intermittent faults.
        check: Exit with 1 unless every node is classified as good.
    """
    from holdfast.runs.pairing.nodes import expand_nodes
    from holdfast.runs.pairing.plan import Solved, next_command, plan_pairs
    from holdfast.runs.pairing.records import read_results
    from holdfast.runs.pairing.solve import solve_pairs

    known = read_results(results)
    if not known and not nodes:
        raise InputError("no results in this file", code="no-data", path=results)
    everyone = expand_nodes(nodes)
    plan = plan_pairs(everyone, known, passes=passes)
    line = next_command(results, known, passes) if plan.tests else None
    return Solved(solve_pairs(known, nodes=everyone), plan, line, check)


# --- Running runs ---------------------------------------------------------------------------------


@app.command(name="exec")
def execute(
    *command: Annotated[str, option(metavar="COMMAND")],
    output: Annotated[Output, option(metavar="FOLDER")] = Path("holdfast-run"),
    run_id: Annotated[str, option("--run", metavar="ID")] = "run",
    watch: bool = False,
    stop_on_hang: bool = False,
    hang_after: Duration = 120.0,
) -> Answer | int:
    """Run a training, record its ranks without a change to its code, and say what to do at its end.

    Put it before the launch: holdfast runs exec -- torchrun --nproc-per-node=8 train.py. Signals, the
    terminal and the exit code are the command's own; the verdict is printed on stderr.

    Args:
        command: Program and arguments, after --.
        output: Folder of recorded runs, the same for all nodes and attempts.
        run_id: Run id, the same for all attempts of a job.
        watch: Print alarms while it runs, as `watch` does.
        stop_on_hang: End the command when it hangs, or waits for a rank that is gone.
        hang_after: Time without progress that is a hang; stacks and flight records are written then.
    """
    from holdfast.runs.execution.launching import execute as run

    if not command:
        raise InputError(
            "no command to run",
            code="no-data",
            expected="a program and its arguments after --",
            remedy="holdfast runs exec -- torchrun --nproc-per-node=2 train.py",
        )
    done = run(
        command,
        output,
        run_id,
        watched=watch,
        stop_on_hang=stop_on_hang,
        hang_after_s=hang_after,
    )
    asked = common()
    if asked.as_json or asked.html or asked.save:
        return done
    for finding in done.findings():
        remark(f"holdfast: {finding.lead} {finding.text}")
    return done.exit_code


@app.command
def watch(
    folder: Path,
    /,
    *,
    run_id: RunId = None,
    on_alarm: Annotated[str | None, option(metavar="CMD")] = None,
    act: bool = False,
    act_timeout: Duration = 300.0,
    metrics: Annotated[str | None, option(metavar="HOST:PORT")] = None,
    otlp: Annotated[str | None, option(metavar="URL")] = None,
    tensorboard: Annotated[Path | None, option(metavar="DIR")] = None,
    poll: Duration = 5.0,
    once: bool = False,
    replay: bool = False,
    keep: bool = False,
    changes: Annotated[tuple[str, ...], option("--set", metavar="NAME=VALUE")] = (),
    state: Annotated[Path | None, option(metavar="FILE")] = None,
) -> int:
    """Watch a run as it trains: raise alarms, run a command for each, serve Prometheus metrics.

    Exits when all ranks have finished cleanly. With --json, one object per line: alarms that open and
    close, and the status at the end.

    Args:
        folder: Folder that was passed to RunRecorder; waits until it exists.
        run_id: Run id, if the folder contains several runs.
        on_alarm: Shell command per alarm (only printed without --act). The alarm is in HOLDFAST_ALARM,
            HOLDFAST_RANKS, ... and as JSON on standard input.
        act: Run the --on-alarm command, once per alarm.
        act_timeout: Time limit for the command.
        metrics: Serve Prometheus metrics; PORT alone binds to localhost; 0 picks a free port.
        otlp: Push the same metrics to an OpenTelemetry collector, such as http://127.0.0.1:4318.
        tensorboard: Write steps and goodput as files for TensorBoard, with --replay of the whole history.
        poll: Polling interval.
        once: Check once and exit with 1 if an alarm is open.
        replay: Print the alarms that the recorded history would have raised.
        keep: Keep watching when the run has finished, for a run that is resumed later.
        changes: Set a threshold, such as hang_s=5m or slow_factor=2. Repeatable.
        state: File that stores open alarms (default: watch.json in the run's folder).
    """
    _refuse_conflicts(act, on_alarm, replay, once, metrics or otlp, poll)
    from holdfast.runs.watching import watcher
    from holdfast.runs.watching.notices import printable
    from holdfast.runs.watching.thresholds import DEFAULTS

    limits, as_json, new = DEFAULTS.changed(changes), common().as_json, set()

    def tell(told: Notice) -> None:
        new.add(told.change.alarm.id)
        text = json.dumps(plain(told.to_dict()), allow_nan=False) if as_json else told.line()
        print(text, flush=True)

    if replay:
        result = watcher.replay(
            folder, run_id, limits=limits, poll_s=poll, tensorboard=tensorboard, on_notice=tell
        )
    else:
        clock = watcher.SystemClock()
        with clock.ended_by_sigterm():
            result = watcher.watch(
                folder,
                run_id,
                limits=limits,
                poll_s=poll,
                once=once,
                keep=keep,
                command=on_alarm,
                act=act,
                timeout_s=act_timeout,
                metrics=metrics,
                otlp=otlp,
                tensorboard=tensorboard,
                state=state,
                on_notice=tell,
                remark=remark,
                clock=clock,
            )
    if once and not as_json:
        for alarm in result.open:
            if alarm.id not in new:  # told by an earlier look
                print(printable(f"{alarm.id} still open, {alarm.severity}: {alarm.sentence}"))
    print(json.dumps(plain(result.to_dict()), allow_nan=False) if as_json else result.line())
    return int(once and bool(result.open))


def _refuse_conflicts(
    act: bool, on_alarm: str | None, replay: bool, once: bool, metrics: str | None, poll: float
) -> None:
    if act and on_alarm is None:
        raise InputError(
            "--act has nothing to run", code="missing-key", remedy="name a command with --on-alarm"
        )
    if replay and (act or once or metrics is not None):
        raise InputError(
            "a replay looks at what is over: it acts on nothing and serves nothing",
            code="conflict",
            remedy="leave out --act, --once, --metrics and --otlp, or --replay",
        )
    if poll <= 0:
        raise InputError(
            "the time between two looks must be above zero",
            code="out-of-range",
            found=f"--poll {poll:g}",
        )


# --- What a run leaves ---------------------------------------------------------------------------


@app.command
def checkpoints(folder: Path, /, *, verify: bool = False) -> Answer:
    """List checkpoints, complete or damaged, by file size or (--verify) checksum.

    Exits with 1 if no checkpoint is complete, or --verify finds damage.

    Args:
        folder: Folder of checkpoints.
        verify: Read every file and verify its checksum.
    """
    from holdfast.runs.checkpointing.folder import look, verify_all

    found = look(folder)
    if verify:
        total = sum(each.manifest.size_bytes for each in found.checkpoints if each.manifest)
        with track("comparing checksums", total) as bar:
            found = verify_all(found, bar.advance)
    return found


@app.command
def diagnose(
    *logs: Annotated[Path, option(metavar="LOG")],
    good: Annotated[tuple[Path, ...], option(metavar="LOG")] = (),
    rules: Annotated[Path | None, option(metavar="FILE")] = None,
    taxonomy: Annotated[Path | None, option(metavar="FILE")] = None,
    print_rules: bool = False,
    processes: Positive | None = None,
) -> Answer | None:
    """Find the cause of a failure in its logs, with the lines that show it.

    Reads any text: output of torchrun and Slurm, one file or one per rank, kernel logs beside them.

    Args:
        logs: Logs of the failed run: files (plain or compressed) or folders.
        good: Logs of a successful run, to rank unknown messages. Repeatable.
        rules: TOML file with your own rules, tried before the built-in ones.
        taxonomy: TOML file with your own symptoms and XIDs, as in the fleet room.
        print_rules: Print the built-in rules as TOML and exit.
        processes: Number of files read at a time (default: all cores).
    """
    from holdfast.runs.diagnosis.diagnosing import diagnose as run
    from holdfast.runs.diagnosis.rules import shipped_text

    if print_rules:
        print(shipped_text(), end="")
        return None
    if not logs:
        raise InputError(
            "no log to read",
            code="no-data",
            expected="one log or more",
            remedy="holdfast runs diagnose LOG...",
        )
    return run(logs, good, rules=rules, taxonomy=taxonomy, processes=processes)
