"""How plans, runs and verdicts of the pair test read in a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from shlex import quote
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from holdfast.numbers import counted, percent
from holdfast.report.terminal import table
from holdfast.runs.pairing.plan import PairPlan
from holdfast.runs.pairing.running import PairRun
from holdfast.runs.pairing.solve import NodeVerdict, PairVerdict

MOST_ROWS = 20
MOST_EVIDENCE = 3
_ORDER = ("faulty", "intermittent", "doubtful", "suspect", "untested", "good")


@dataclass(frozen=True)
class Solved:
    """A verdict, and what to run next."""

    verdict: PairVerdict
    plan: PairPlan
    next_command: str | None

    def to_dict(self) -> dict[str, Any]:
        """The JSON that `solve` prints."""
        return {
            **self.verdict.to_dict(),
            "next": None
            if self.next_command is None
            else {
                "round": self.plan.round,
                "tests": len(self.plan.tests),
                "command": self.next_command,
            },
        }


def planned(plan: PairPlan) -> RenderableType:
    """What a plan holds, by purpose."""
    if not plan.tests:
        return Text("Nothing is left that a test could tell.")
    reasons = list(dict.fromkeys(test.why for test in plan.tests))
    rows = [
        (
            why,
            f"{len(tests):,}",
            f"{sum(test.repeats for test in tests):,}",
            ", ".join("+".join(test.nodes) for test in tests[:MOST_EVIDENCE])
            + (" ..." if len(tests) > MOST_EVIDENCE else ""),
        )
        for why in reasons
        for tests in [[test for test in plan.tests if test.why == why]]
    ]
    return table(
        {"why": "left", "tests": "right", "executions": "right", "nodes": "left"},
        rows,
        title=f"Round {plan.round}",
    )


def ran(run: PairRun) -> RenderableType:
    """What was run, then the verdict in sentences."""
    known = f", {run.known:,} known before" if run.known else ""
    first = Text(
        f"{run.ran:,} executions in {run.rounds:,} round{'s' if run.rounds != 1 else ''}{known}"
    )
    return Group(first, *(Text(sentence) for sentence in run.verdict.findings))


def solved(found: Solved, verbose: bool) -> list[RenderableType]:
    """The verdict: sentences, the nodes that are not good, what to run next."""
    verdict = found.verdict
    parts: list[RenderableType] = [Text(sentence) for sentence in verdict.findings]
    rows = sorted(
        (node for node in verdict.nodes if verbose or node.state != "good"),
        key=lambda node: (_ORDER.index(node.state), -node.rank),
    )
    if rows:
        parts.append(_nodes(rows if verbose else rows[:MOST_ROWS]))
    hidden = 0 if verbose else len(rows) - MOST_ROWS
    if hidden > 0:
        parts.append(Text(f"({hidden:,} more with --verbose)"))
    if verdict.set_aside:
        parts.append(Text(f"{verdict.set_aside:,} unreadable lines were set aside"))
    if found.next_command is None and not verdict.complete:
        parts.append(Text("No further test of these nodes can tell more."))
    if found.next_command is not None:
        tests = counted(len(found.plan.tests), "test")
        parts.append(f"Next, round {found.plan.round} ({tests}):\n  {found.next_command}")
    return parts


def next_command(results: str, template: str, options: Sequence[str]) -> str:
    """The line that plans, with these options, and runs the next round."""
    return (
        f"{' '.join(['holdfast runs pairtest plan --from', quote(results), *options])} | "
        f"holdfast runs pairtest run - --command {quote(template) if template else 'COMMAND'} "
        f"-o {quote(results)}"
    )


def _nodes(rows: Sequence[NodeVerdict]) -> RenderableType:
    return table(
        {
            "node": "left",
            "verdict": "left",
            "probably bad": "right",
            "passed": "right",
            "failed": "right",
            "hung": "right",
            "failed tests": "left",
        },
        [
            (
                node.node,
                node.state,
                percent(node.probability),
                f"{node.passed:,}",
                f"{node.failed:,}",
                f"{node.timed_out:,}",
                ", ".join(node.evidence[:MOST_EVIDENCE])
                + (" ..." if len(node.evidence) > MOST_EVIDENCE else ""),
            )
            for node in rows
        ],
    )
