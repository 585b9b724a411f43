"""A comparison is the same whatever kernels of linear algebra it runs on, and with however many threads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from holdfast.carbon import plan, read_load, read_signal
from holdfast.carbon.comparing import TIE, first_best

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "carbon"
NEEDS = {
    "Prescott": "sse3",
    "Nehalem": "sse4_2",
    "Haswell": "avx2",
    "Zen": "avx2",
    "SkylakeX": "avx512f",
}
"""Kernels of OpenBLAS, and what a processor must have to run them."""
THREADS = ("1", "2")
QUICK = {("Prescott", "1"), ("Haswell", "2")}
CASES = [
    pytest.param(*case, marks=[] if case in QUICK else [pytest.mark.full])
    for case in product(NEEDS, THREADS)
]


CODE = """
import json, sys
from holdfast.carbon import compare, read_load, read_signal
load = read_load(sys.argv[1], penalties=sys.argv[3])
made = compare(load, read_signal(sys.argv[2]), window_s=4 * 3600.0, levels=(0.75,))
print(json.dumps(made.rows))
"""


def rows(**environment: str) -> list[dict[str, Any]]:
    """The rows of a comparison on hours whose plans jump at a strength."""
    with TemporaryDirectory() as folder:
        load = Path(folder) / "load.csv"
        hours = (EXAMPLES / "load.csv").read_text().splitlines(keepends=True)[:5]
        load.write_text("".join(hours))
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                CODE,
                load,
                *map(EXAMPLES.joinpath, ("CISO_2022-05.csv", "penalties.toml")),
            ],
            env=os.environ | environment,
            stdout=subprocess.PIPE,
            check=True,
        )
    return json.loads(done.stdout)  # type: ignore[no-any-return]


default = cache(rows)


@pytest.mark.quick(1)
@pytest.mark.parametrize(("kernel", "threads"), CASES)
def test_a_comparison_under_every_kernel(kernel: str, threads: str) -> None:
    cpu = Path("/proc/cpuinfo")
    if not cpu.exists() or NEEDS[kernel] not in cpu.read_text().replace("pni", "sse3").split():
        pytest.skip(f"the processor cannot run the kernels of {kernel}")
    found = rows(OPENBLAS_CORETYPE=kernel, OPENBLAS_NUM_THREADS=threads)
    assert len(found) == len(default())
    for row, expected in zip(found, default(), strict=True):
        assert row.keys() == expected.keys()
        for name, value in row.items():
            number = isinstance(value, float)
            assert value == (pytest.approx(expected[name], rel=1e-6) if number else expected[name])


def test_a_policy_meets_its_aim_where_plans_jump() -> None:
    found = {row["policy"]: row for row in default()}
    load = read_load(EXAMPLES / "load.csv", penalties=EXAMPLES / "penalties.toml")
    first = [replace(each, power=each.power[:4]) for each in load.workloads]
    signal = read_signal(EXAMPLES / "CISO_2022-05.csv")
    load, hours = replace(load, workloads=tuple(first)), 4 * 3600.0
    most = plan(load, signal, window_s=hours, strength=1e9).saved_share  # whatever it costs
    efficient, fair = found["efficient"], found["fair"]
    free = efficient["saved_share"] - efficient["beyond_free"]
    assert efficient["saved_share"] == pytest.approx(free + 0.75 * (most - free), rel=1e-6)
    assert fair["penalty"] == pytest.approx(efficient["penalty"], rel=1e-9)


@pytest.mark.parametrize("noise", [-TIE / 2, 0.0, TIE / 2])
def test_the_last_digits_choose_nothing(noise: float) -> None:
    assert first_best([0.1, 0.2, 0.2 * (1 + noise), 0.15]) == 1
    assert first_best([-0.1, 0.2, 0.2 + 1e-3]) == 2
    assert first_best([0.0, 0.0]) == 0
    assert first_best([-2.0, -1.0, -1.0 * (1 + noise)]) == 1
