"""Fixtures that every test may use."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers

# The same examples on every machine, and no clock that decides whether a test passes.
settings.register_profile("holdfast", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("holdfast")
# Hypothesis would also draw numbers that stand in the modules loaded so far, so that what a test sees would
# depend on the tests that its worker ran before. No setting says no; the pool of such numbers stays empty.
assert hasattr(providers, "_get_local_constants")
providers._get_local_constants = lambda: providers._local_constants

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
