"""Runs the tests of a plan side by side, and the rounds that follow from what they show."""

from __future__ import annotations

import resource
import signal
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from holdfast.answer import Answer, Finding
from holdfast.errors import InputError
from holdfast.files import Journal
from holdfast.numbers import counted
from holdfast.progress import Tracker, track
from holdfast.runs.pairing.commands import Template
from holdfast.runs.pairing.execution import GRACE_S, Execution, execute
from holdfast.runs.pairing.outcomes import command_unusable, outcome_of
from holdfast.runs.pairing.plan import plan_pairs
from holdfast.runs.pairing.records import PairResult, PairTest, Results, line_of, read_results
from holdfast.runs.pairing.solve import PairVerdict, solve_pairs

MOST_ROUNDS = 50
"""Safety limit on the rounds of `run_pairs(rounds=None)`."""
DEFAULT_JOBS = 32
DEFAULT_TIMEOUT_S = 300.0
_FILES_EACH = 4  # descriptors that one running test holds, at most


@dataclass(frozen=True)
class PairRun(Answer):
    """What was run, and what all results say now."""

    ran: int
    """Executions of this call."""
    known: int
    """Executions of its plan that were in the results already."""
    rounds: int
    """Rounds that this call went through."""
    verdict: PairVerdict
    path: Path | None = None
    """File of the results."""

    def written(self) -> Mapping[str, Path]:
        """The file of the results."""
        return {} if self.path is None else {"results": self.path}

    def to_dict(self) -> dict[str, Any]:
        """The JSON of the run."""
        return {
            "ran": self.ran,
            "known": self.known,
            "rounds_run": self.rounds,
            **self.verdict.to_dict(),
        }

    def findings(self) -> list[Finding]:
        """Those of the verdict, then what was run."""
        known = f", {self.known:,} known before" if self.known else ""
        done = f"{counted(self.ran, 'execution')} in {counted(self.rounds, 'round')}{known}."
        return [*self.verdict.findings(), Finding(done)]


def run_pairs(
    tests: Iterable[PairTest],
    command: str,
    results: str | Path | None = None,
    *,
    jobs: int = DEFAULT_JOBS,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    rounds: int | None = 1,
    passes: int = 1,
    not_run_codes: Collection[int] = (),
    output_dir: str | Path | None = None,
    on_result: Callable[[PairResult], None] | None = None,
    grace_s: float = GRACE_S,
) -> PairRun:
    """Run a command on the nodes of every test of a plan, and write down how it ended.

    Results that are there are not run again: a run that was interrupted is resumed by the same call. A node
    is in one running test at a time. On SIGINT and SIGTERM the running tests are stopped, and not recorded.

    Args:
        tests: a plan, of one round or several.
        command: for ``sh -c``, with placeholders: see `holdfast.runs.pairing.commands`.
        results: the file to which each result is appended (see `holdfast.runs.pairing.records`).
        jobs: tests that run side by side, at most.
        timeout_s: time limit of one test; one that reaches it is stopped and counts as failed.
        rounds: how many rounds: this plan, then those that `plan_pairs` finds next; None until nothing
            is left to be told.
        passes: of the following rounds: see `plan_pairs`.
        not_run_codes: exit codes by which the command says that it could not test (a node is down).
        output_dir: a folder for all that each test prints.
        on_result: called with each new result.
        grace_s: between SIGTERM and SIGKILL.

    Returns:
        Counts, and the verdict on all results.

    Raises:
        InputError: if a placeholder is unknown, the command cannot be run at all (exit codes 126 and 127
            before any test passed), the results were made by another command or are being written.
    """
    tests = list(tests)
    if jobs < 1 or timeout_s <= 0:
        raise InputError(
            "jobs and the time limit must be positive",
            code="invalid-value",
            found=f"{jobs}, {timeout_s}",
        )
    folder = None if output_dir is None else Path(output_dir)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    template = Template(command)
    nodes = list(dict.fromkeys(node for test in tests for node in test.nodes))
    limit = MOST_ROUNDS if rounds is None else rounds
    with ExitStack() as stack:
        journal = (
            None if results is None else stack.enter_context(Journal(Path(results), torn="end"))
        )
        before = Results(()) if results is None else read_results(results)
        found = list(before)
        known, ran, done = 0, 0, 0

        def keep(result: PairResult) -> None:
            if journal is not None:
                journal.append(line_of(result).encode("utf-8", "replace"))
            found.append(result)
            if on_result is not None:
                on_result(result)

        passed = any(result.outcome == "passed" for result in found)
        crew = _Crew(
            template, _possible(jobs), timeout_s, grace_s, not_run_codes, folder, keep, passed
        )
        while tests and done < limit:
            missing = list(_missing(tests, found, template))
            known += sum(test.repeats for test in _parts(tests, template)) - len(missing)
            had = len(found)
            if missing:
                with track(f"round {missing[0][0].round}", len(missing), "tests") as tracker:
                    crew.run(missing, tracker)
            ran += len(found) - had
            done += 1
            if done < limit:
                plan = plan_pairs(nodes, found, passes=passes)
                tests = list(plan.tests)
    verdict = solve_pairs(Results(tuple(found), before.set_aside), nodes=nodes)
    return PairRun(ran, known, done, verdict, None if results is None else Path(results))


def _possible(jobs: int) -> int:
    """As many tests side by side as the limit of open files allows."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return jobs
    return max(1, min(jobs, (soft - 64) // _FILES_EACH))


def _parts(tests: Iterable[PairTest], template: Template) -> Iterator[PairTest]:
    for test in tests:
        yield from template.parts(test)


def _missing(
    tests: Iterable[PairTest], found: Sequence[PairResult], template: Template
) -> Iterator[tuple[PairTest, int]]:
    """The executions, (test, attempt), that have no result yet.

    Raises:
        InputError: if there are results of a test with the same name but other nodes or another command.
    """
    known = {(result.test, result.attempt): result for result in found if result.test}
    for test in _parts(tests, template):
        for attempt in range(1, test.repeats + 1):
            result = known.get((test.test, attempt))
            if result is None:
                yield test, attempt
                continue
            if sorted(result.nodes) != sorted(test.nodes):
                raise InputError(
                    f"the results hold another test {test.test}, of other nodes",
                    code="conflict",
                    found="+".join(result.nodes),
                    expected="+".join(test.nodes),
                    remedy="write the results of another plan into another file",
                )
            if result.command and result.command != template.command(test):
                raise InputError(
                    f"the results of {test.test} were made by another command",
                    code="conflict",
                    found=result.command,
                    expected=template.command(test),
                    remedy="write the results of another command into another file",
                )


@dataclass
class _Crew:
    """Runs the executions of a round side by side, each once its nodes are free."""

    template: Template
    jobs: int
    timeout_s: float
    grace_s: float
    not_run_codes: Collection[int]
    output_dir: Path | None
    keep: Callable[[PairResult], None]
    passed: bool
    """Some test has passed: the command can be run."""
    stopped: threading.Event = field(default_factory=threading.Event)

    def run(self, executions: Sequence[tuple[PairTest, int]], tracker: Tracker) -> None:
        """Run them all, (test, attempt)."""
        waiting = list(executions)
        running: dict[Future[Execution], tuple[PairTest, int]] = {}
        in_use: set[str] = set()
        with _terminated_as_interrupted(), ThreadPoolExecutor(self.jobs) as pool:
            try:
                while waiting or running:
                    later: list[tuple[PairTest, int]] = []
                    for test, attempt in waiting:
                        if len(running) >= self.jobs or in_use & {*test.nodes}:
                            later.append((test, attempt))
                            continue
                        in_use.update(test.nodes)
                        running[pool.submit(self._execute, test, attempt)] = (test, attempt)
                    waiting = later
                    for done in wait(running, return_when=FIRST_COMPLETED).done:
                        test, attempt = running.pop(done)
                        in_use.difference_update(test.nodes)
                        self._record(test, attempt, done.result())
                        tracker.advance(1)
            except BaseException:
                self.stopped.set()
                raise

    def _execute(self, test: PairTest, attempt: int) -> Execution:
        output = None
        if self.output_dir is not None:
            output = self.output_dir / f"{_file_name(test.test)}.{attempt}.txt"
        command = self.template.command(test)
        return execute(command, self.timeout_s, output, self.grace_s, self.stopped)

    def _record(self, test: PairTest, attempt: int, done: Execution) -> None:
        command = self.template.command(test)
        if not self.passed and command_unusable(done):
            raise InputError(
                f"the command could not be run (exit code {done.exit_code}); no node is to blame",
                code="invalid-value",
                place=test.test,
                found=f"{command}: {done.output_tail.strip()[-300:]}",
                expected="a command that ends with 0 on good nodes, and else with 1 to 125",
                remedy="try it by hand on one pair; then run again, what is known is kept",
            )
        outcome = outcome_of(done, self.not_run_codes)
        self.passed |= outcome == "passed"
        self.keep(
            PairResult(
                nodes=test.nodes,
                outcome=outcome,
                round=test.round,
                test=test.test,
                attempt=attempt,
                exit_code=done.exit_code,
                seconds=done.seconds,
                started_at=done.started_at,
                command=command,
                template=self.template.text,
                output_tail=done.output_tail,
            )
        )


def _file_name(test: str) -> str:
    return "".join(sign if sign.isalnum() or sign in "-_." else "_" for sign in test)


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """Let SIGTERM stop the block in order, as an interruption does; only the main thread can."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    terminated: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        terminated.append(number)
        signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    except KeyboardInterrupt:
        if terminated:
            raise SystemExit(128 + signal.SIGTERM) from None
        raise
    finally:
        signal.signal(signal.SIGTERM, before)
