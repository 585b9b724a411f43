"""Options that several commands of `holdfast fleet` have, and what they make: assumptions, an open log."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from holdfast.command import Count, Duration, Options, option
from holdfast.fleet.assumptions import Assumptions
from holdfast.tables import DEFAULT_ENGINE, without_pandas

if TYPE_CHECKING:
    from holdfast.fleet.log import FleetLog

Engine = Annotated[str, option(metavar="URL")]
File = Annotated[Path | None, option(metavar="FILE")]
Name = Annotated[str | None, option(metavar="NAME")]
Zone = Annotated[str | None, option(metavar="ZONE")]


@Options
@dataclass(frozen=True)
class Window:
    """The part of a store that is read, and by what.

    Args:
        since: Start of the analyzed window: 30d (before the end of the log) or an ISO time.
        engine: Where tables are computed: duckdb, spark://HOST:PORT, spark://local[N].
    """

    since: Annotated[str | None, option(metavar="WHEN")] = None
    engine: Engine = DEFAULT_ENGINE


# What a log does not contain; each field is one of `Assumptions`.
USUAL = Assumptions()


@Options
@dataclass(frozen=True)
class Checks:
    """How failures are attributed to checks.

    Args:
        check_before_s: Attribute a failure to a check that fired up to this long before it.
        check_after_s: Attribute a failure to a check that fired up to this long after it.
        taxonomy: Taxonomy of check names and symptoms (TOML; default: the built-in one).
    """

    check_before_s: Annotated[Duration, option("--check-before")] = Assumptions.check_before_s
    check_after_s: Annotated[Duration, option("--check-after")] = Assumptions.check_after_s
    taxonomy: File = None


@Options
@dataclass(frozen=True)
class Losses:
    """What a failure or a preemption loses.

    Args:
        preemption_grace_s: Preemption grace time of a QOS that is not in the store.
        preemption_slack_s: Maximum time beyond the grace from a victim's end to its preemptor's start.
        checkpoint_interval_s: Assumed checkpoint interval; a failure loses half of it.
        save_on_signal: Preempted jobs save their work in the grace period; else they lose as failed ones.
        chain_by_name: Chain attempts also across job ids, by user, name, directory and size.
    """

    preemption_grace_s: Annotated[Duration, option("--preempt-grace")] = USUAL.preemption_grace_s
    preemption_slack_s: Annotated[Duration, option("--preempt-slack")] = USUAL.preemption_slack_s
    checkpoint_interval_s: Annotated[Duration, option("--checkpoint")] = USUAL.checkpoint_interval_s
    save_on_signal: bool = False
    chain_by_name: bool = False


@Options
@dataclass(frozen=True)
class Size:
    """The attempts that the failure rate counts.

    Args:
        min_gpus: Only attempts with more GPUs than this count for the failure rate (0: all that have any).
    """

    min_gpus: Count = Assumptions.min_gpus


@Options
@dataclass(frozen=True)
class Pauses:
    """What does not train.

    Args:
        init_s: Assumed unproductive time after each start (default: 5m, or less where the log shows less).
        write_s: Assumed pause of the job per checkpoint write.
    """

    init_s: Annotated[Duration | None, option("--init")] = None
    write_s: Annotated[Duration, option("--write")] = Assumptions.write_s


@Options
@dataclass(frozen=True)
class Model(Size, Pauses, Losses, Checks):
    """All that a model of the fleet assumes."""


@Options
@dataclass(frozen=True)
class Measured(Model):
    """The same, and the runs whose ETTR is measured.

    Args:
        long_run_s: Minimum time on nodes of runs whose ETTR is measured.
    """

    long_run_s: Annotated[Duration, option("--long-run")] = Assumptions.long_run_s


def assumed(*options: Any, **stated: Any) -> Assumptions:
    """The assumptions that groups of options state, the rest at their defaults."""
    return Assumptions(**{k: v for group in options for k, v in vars(group).items()}, **stated)


def opened(store: Path, window: Window, *options: Any, **stated: Any) -> FleetLog:
    """The store under the assumptions of the command line."""
    from holdfast.fleet.log import open_log

    without_pandas()
    assumptions = assumed(*options, **stated)
    return open_log(store, assumptions=assumptions, since=window.since, engine=window.engine)
