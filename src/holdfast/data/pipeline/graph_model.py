"""The model of a stage graph: what workers and executors its settings mean, and the rate that they give.

The settings of a graph are workers by the name of the group (for a `Pipeline`, of the stage); a stage that
changes its executor has a second one, ``"NAME executor"``: 1 for processes, 0 for threads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast.data.pipeline.model import groups, rate_limits, solve
from holdfast.data.pipeline.stages import Executor, Plan, Stage, Trace

EXECUTOR = " executor"


def is_graph(trace: Trace) -> bool:
    """Whether it is the trace of a graph rather than of a `DataLoader`."""
    return "num_workers" not in trace.settings


def graph_rate(trace: Trace, settings: Mapping[str, int], stages: Sequence[Stage]) -> float:
    """Batches per second by the model of `solve`, for these workers and executors.

    Args:
        trace: for its resources.
        settings: workers by group, and ``"NAME executor"``.
        stages: with their costs.
    """
    parts = groups(stages)
    parallelism = {part.name: settings.get(part.name, part.parallelism) for part in parts}
    executors = {part.name: executor_of(part.name, part.executor, settings) for part in parts}
    return min(rate_limits(parts, trace.resources, parallelism, executors).values())


def graph_plan(trace: Trace, executors: Mapping[str, Sequence[Executor]] | None = None) -> Plan:
    """The workers, and where allowed the executors, of the highest rate.

    Args:
        trace: of the graph.
        executors: what a stage may run on; by default where it runs.
    """
    return solve(trace.stages, trace.resources, executors=executors, batch_bytes=trace.batch_bytes)


def plan_settings(trace: Trace, plan: Plan) -> dict[str, int]:
    """A plan as settings of a graph."""
    settings = {name: plan.parallelism.get(name, count) for name, count in trace.settings.items()}
    for part in groups(trace.stages):
        if part.name in settings and plan.executors.get(part.name, part.executor) != part.executor:
            settings[part.name + EXECUTOR] = int(plan.executors[part.name] == "process")
    return settings


def executor_of(name: str, present: Executor, settings: Mapping[str, int]) -> Executor:
    """The executor of a group under these settings."""
    chosen = settings.get(name + EXECUTOR)
    return present if chosen is None else "process" if chosen else "thread"
