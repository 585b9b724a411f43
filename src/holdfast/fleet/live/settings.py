"""ACTIONS.toml: what may be done to nodes and by whom, and who is told.

[limits]                      # all of them hold; the tightest decides
nodes = 2                     # out of service at once, for whatever reason, in one cluster
share = 0.1                   # of its nodes
cooldown = "1h"               # from one approval to the next

[clusters.alpha]              # [clusters.default]: one that the log does not name
kind = "slurm"                # "kubernetes": commands are only printed

[[people]]
name = "ada"
role = "operator"             # or "viewer"
cluster = "alpha"             # an operator acts on this one alone
token = "ADA_TOKEN"           # the environment variable that holds it

[notices]
urls = "HOLDFAST_NOTICES"     # the environment variable with addresses for apprise, apart by spaces
quiet = "22:00-07:00"
digest = "08:00"
timezone = "Europe/Berlin"
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from datetime import time
from pathlib import Path
from typing import Literal
from zoneinfo import ZoneInfo

from holdfast.config import Duration, invalid_value, read_config
from holdfast.errors import InputError
from holdfast.fleet.ingestion import zone_of

UNNAMED = "default"  # The cluster of a log that names none
Role = Literal["viewer", "operator"]
AN_HOUR, A_MINUTE = Duration(3600.0), Duration(60.0)


@dataclass(frozen=True)
class Limits:
    """What may be out of service at once."""

    nodes: int = 2
    share: float = 0.1
    cooldown: Duration = AN_HOUR


@dataclass(frozen=True)
class Cluster:
    """How a cluster is acted on: lists of a command and its arguments, run without a shell.

    `{node}` and `{reason}` are replaced in each argument. `nodes` prints a line NODE|PARTITION|STATE for
    each node and partition, with Slurm's words for the state.
    """

    kind: Literal["slurm", "kubernetes"] = "slurm"
    nodes: tuple[str, ...] = ("sinfo", "--noheader", "--Node", "--format=%N|%R|%T")
    drain: tuple[str, ...] = (
        *("scontrol", "update", "NodeName={node}", "State=DRAIN"),
        "Reason={reason}",
    )
    resume: tuple[str, ...] = ("scontrol", "update", "NodeName={node}", "State=RESUME")
    timeout: Duration = A_MINUTE


@dataclass(frozen=True)
class Person:
    """Who may open the console."""

    name: str
    role: Role
    token: str  # The environment variable that holds it
    cluster: str = UNNAMED

    def may_act_on(self, cluster: str) -> bool:
        """Whether an approval of theirs counts for a cluster; `""` is the one that nothing names."""
        return self.role == "operator" and self.cluster == (cluster or UNNAMED)


@dataclass(frozen=True)
class Notices:
    """Who is told of changes, and when not."""

    urls: str  # The environment variable with addresses for apprise
    quiet: str = ""  # "22:00-07:00": kept until it is over
    digest: str = ""  # "08:00": one message a day with the state of things
    timezone: str = "UTC"

    @property
    def zone(self) -> ZoneInfo:
        """The zone of `quiet` and `digest`."""
        return zone_of(self.timezone)

    @property
    def quiet_hours(self) -> tuple[time, time] | None:
        """From and until."""
        if not self.quiet:
            return None
        begin, _, end = self.quiet.partition("-")
        return time.fromisoformat(begin.strip()), time.fromisoformat(end.strip())

    @property
    def digest_at(self) -> time | None:
        """When the day's message is due."""
        return time.fromisoformat(self.digest) if self.digest else None


@dataclass(frozen=True)
class Settings:
    """The whole file."""

    limits: Limits = Limits()
    clusters: dict[str, Cluster] = field(default_factory=dict)
    people: tuple[Person, ...] = ()
    notices: Notices | None = None

    def cluster(self, name: str) -> Cluster:
        """How a cluster is acted on; one that the file does not name is Slurm's, by its own commands."""
        cluster = self.clusters.get(name or UNNAMED, Cluster())
        if not name or name in self.clusters:
            return cluster
        # The clients of Slurm ask another cluster of its federation by name.
        nodes, drain, resume = (
            (each[0], f"--cluster={name}", *each[1:])
            for each in (cluster.nodes, cluster.drain, cluster.resume)
        )
        return replace(cluster, nodes=nodes, drain=drain, resume=resume)


def read_settings(path: Path | None) -> Settings:
    """The settings of a file; without one, the defaults.

    Raises:
        InputError: with the place, if the file says what it cannot.
    """
    if path is None:
        return Settings()
    found = read_config(path, Settings, "the file of actions")
    if found.limits.nodes < 0 or not 0 <= found.limits.share <= 1 or found.limits.cooldown < 0:
        raise invalid_value(
            "a limit is out of range",
            path,
            "limits",
            vars(found.limits),
            "0 or more; share up to 1",
        )
    for name, cluster in found.clusters.items():
        for key in ("nodes", "drain", "resume"):
            if not getattr(cluster, key):
                place = f"clusters.{name}.{key}"
                raise invalid_value("a command is empty", path, place, "[]", "a list of texts")
    names = [person.name for person in found.people]
    for number, person in enumerate(found.people):
        if names.index(person.name) != number:
            place = f"people[{number}].name"
            raise invalid_value("two people have one name", path, place, person.name, "another")
    if found.notices is not None:
        _check_times(found.notices, path)
    return found


def _check_times(notices: Notices, path: Path) -> None:
    for key, reads in (("quiet", "quiet_hours"), ("digest", "digest_at"), ("timezone", "zone")):
        try:
            getattr(notices, reads)
        except (ValueError, InputError):
            found, expected = getattr(notices, key), "22:00-07:00, 08:00 or Europe/Berlin"
            raise invalid_value(
                "a time cannot be read", path, f"notices.{key}", found, expected
            ) from None


def secret(variable: str, purpose: str) -> str:
    """What an environment variable holds.

    Raises:
        InputError: if it is not set (``missing-key``).
    """
    found = os.environ.get(variable, "")
    if not found:
        raise InputError(
            f"the environment variable {variable} is not set",
            code="missing-key",
            expected=purpose,
            remedy=f"set {variable} where holdfast runs; a secret does not belong into the file",
        )
    return found
