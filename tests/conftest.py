"""Fixtures that every test may use."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers

# The same examples on every machine, and no clock that decides whether a test passes.
settings.register_profile("house", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("house")
# Hypothesis would also draw numbers that stand in the modules loaded so far, so that what a test sees would
# depend on the tests that its worker ran before. No setting says no; the pool of such numbers stays empty.
assert hasattr(providers, "_get_local_constants")
providers._get_local_constants = lambda: providers._local_constants

# A background job of a shell ignores Ctrl-C, and so would every process that the tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

REPOSITORY = Path(__file__).resolve().parents[1]


EXAMPLES = 10
"""Of each property in the quick run, where it has no mark `examples`."""

# Files with single tests of many seconds: begun first, none is left over for one worker at the end.
LONG = ("test_documents.py", "test_fleet_simulate.py", "test_equality.py", "test_beams.py")


# Else each of the hundreds of processes that the tests start compiles the package again, and each run
# of the tests their assertions.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Two workers share two cores: threads of torch's and of Arrow's would only wait for each other, and
# torch's burn the core meanwhile.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# What the machine has must not show: a login node has Slurm, a job and a shell of it have their variables.
FOREIGN = ("sacct", "sacctmgr", "scontrol", "sinfo", "squeue", "srun", "kubectl", "nvidia-smi")
"""Programs that fail in every test that brings none of its own."""
_RANKS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_KEYS = ("OPENAI_API_KEY", "HF_TOKEN", "HF_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3")
for _name in [*os.environ]:
    prefixes = ("SLURM_", "SACCT_", "SQUEUE_", "TORCHELASTIC_", "HOLDFAST_")
    if _name.startswith(prefixes) or _name in (*_RANKS, *_KEYS):
        del os.environ[_name]

# Millions of small objects come and go with every test, and hardly any of them in
# cycles: at its own thresholds the collector takes 5 to 8 % of the suite's time.
gc.set_threshold(50_000, 10, 20)


def pytest_collection_finish() -> None:
    """What the imports and the collection made stays to the end: the collector leaves it out."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Else libraries that count their objects at the end report them as leaked."""
    gc.unfreeze()


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run long tests first; where the slow proofs do not run, leave the rest of `quick` tests out too."""
    items.sort(key=lambda item: item.path.name not in LONG)
    if config.getoption("markexpr") != "not full":
        return
    cases: Counter[str] = Counter()
    for item in items:
        if quick := item.get_closest_marker("quick"):
            test = item.nodeid.partition("[")[0]
            cases[test] += 1
            if cases[test] > quick.args[0]:
                item.add_marker(pytest.mark.full)
        if getattr(item.obj, "is_hypothesis_test", False):  # type: ignore[attr-defined]
            few = item.get_closest_marker("examples")
            _try(item.obj, few.args[0] if few else EXAMPLES)  # type: ignore[attr-defined]


def _try(test: Any, most: int) -> None:
    """Let Hypothesis try a number of examples at most."""
    own = test._hypothesis_internal_use_settings  # where it keeps what `@settings` said
    fewer = settings(own, max_examples=min(own.max_examples, most))
    test._hypothesis_internal_use_settings = fewer


@pytest.fixture(scope="session", autouse=True)
def _no_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder, before = tmp_path_factory.mktemp("foreign"), os.environ["PATH"]
    for name in FOREIGN:
        program = folder / name
        program.write_text(
            "#!/bin/sh\necho 'a test reaches for a program of this machine' >&2\nexit 97\n"
        )
        program.chmod(0o755)
    os.environ["PATH"] = f"{folder}{os.pathsep}{before}"
    yield
    os.environ["PATH"] = before


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
