"""Fixtures that every test may use."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

# The same examples on every machine, and no clock that decides whether a test passes.
settings.register_profile("holdfast", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("holdfast")

REPOSITORY = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real input beside the repository; tests that need it are skipped without it."""
    folder = REPOSITORY.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no shared data at {folder}")
    return folder


@pytest.fixture(scope="session")
def testbed() -> Path:
    """The log of a real Slurm cluster with injected failures that ships with the repository."""
    return REPOSITORY / "examples" / "slurm-testbed"
