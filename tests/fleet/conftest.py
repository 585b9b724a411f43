"""Stores that several tests of the fleet room read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from logs import Log, random_log

import holdfast.fleet as fleet
from holdfast.fleet import Assumptions, FleetLog

TESTBED_WINDOWS = Assumptions(check_before_s=45, check_after_s=10, preemption_slack_s=30)
"""What the testbed's README states: its time is compressed."""

TESTBED_SOURCES = (
    "health_events.jsonl",
    "sacctmgr_events.txt",
    "sacctmgr_qos.txt",
    "scontrol_nodes.txt",
)


@dataclass(frozen=True)
class RandomFleet:
    """A random log as rows and as an open store."""

    rows: Log
    log: FleetLog


@pytest.fixture(scope="session", params=[1, 2, 3])
def random_fleet(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> RandomFleet:
    rows = random_log(request.param)
    return RandomFleet(rows, rows.open(tmp_path_factory.mktemp("random")))


@pytest.fixture(scope="session")
def testbed_store(testbed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The testbed without its controller log: what most users have."""
    store = tmp_path_factory.mktemp("testbed") / "store"
    fleet.ingest([testbed / "sacct_D_all.psv.gz", *(testbed / n for n in TESTBED_SOURCES)], store)
    return store


@pytest.fixture(scope="session")
def testbed_store_told(testbed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The testbed with its controller log."""
    store = tmp_path_factory.mktemp("told") / "store"
    names = ("sacct_D_all.psv.gz", *TESTBED_SOURCES, "slurmctld.log.gz")
    fleet.ingest([testbed / name for name in names], store)
    return store


@pytest.fixture(scope="session")
def testbed_log(testbed_store: Path) -> FleetLog:
    return fleet.open(testbed_store, assumptions=TESTBED_WINDOWS)


@pytest.fixture(scope="session")
def testbed_log_told(testbed_store_told: Path) -> FleetLog:
    return fleet.open(testbed_store_told, assumptions=TESTBED_WINDOWS)
