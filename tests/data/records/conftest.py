"""What tests of records share."""

from __future__ import annotations

import shutil
from collections.abc import Generator

import pytest

from holdfast.data.records.jpeg import turbojpeg


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call() -> Generator[None, object, object]:
    """Skip a test that met one of the samplings that only jpegtran knows, where that is not installed."""
    try:
        return (yield)
    except turbojpeg._UnknownSampling:
        if shutil.which("jpegtran") is None:
            pytest.skip("no jpegtran (Debian: libjpeg-turbo-progs)")
        raise
