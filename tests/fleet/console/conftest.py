"""A console over the bundled testbed log, for the tests of its pages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

import holdfast.fleet as fleet
from holdfast.fleet import Assumptions
from holdfast.fleet.analysis import Analysis
from holdfast.fleet.console.app import create_app

HERE = "http://127.0.0.1:8000"
DEMO = Assumptions(
    check_before_s=45,
    check_after_s=10,
    preemption_slack_s=30,
    checkpoint_interval_s=60,
    init_s=1,
    long_run_s=60,
)
"""As `make demo`: the time of the testbed is compressed."""


@pytest.fixture(scope="session")
def assumptions() -> Assumptions:
    return DEMO


@pytest.fixture(scope="session")
def testbed_analysis(testbed_store_told: Path) -> Analysis:
    return Analysis(fleet.open(testbed_store_told, assumptions=DEMO))


@pytest.fixture(scope="session")
def console(testbed_store_told: Path) -> Iterator[TestClient]:
    """A client of a console without a token."""
    app = create_app(testbed_store_told, assumptions=DEMO)
    with TestClient(app, base_url=HERE) as client:
        yield client
