"""Fixtures for all tests of the room."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="session")
def interruptible() -> Iterator[None]:
    """A shell starts background jobs with SIGINT ignored, which the processes of tests would inherit."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
