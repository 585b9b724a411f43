"""Measured energy of jobs: sacct's ConsumedEnergyRaw, codecarbon, or a table of job and kWh."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from holdfast.carbon.formats import read_records
from holdfast.carbon.signals import FloatArray, refused

Whole = Callable[[int, int], bool]
"""(rows of a job, its attempts) -> whether all rows together are the energy of all attempts."""
# Column of the job, column of its energy, kWh per unit, and which id of a job the first one holds: its own,
# which each task of an array has too, or "12_3" for such a task. Then how many rows, beside its attempts, a
# job has whose rows together are the energy of all its attempts; None: a row is an attempt, of those that
# sacct shows. codecarbon writes nothing of an attempt that was killed, but a row per tracker.
FORMS = (
    ("JobIDRaw", "ConsumedEnergyRaw", 1 / 3.6e6, "raw", None),
    ("JobID", "ConsumedEnergyRaw", 1 / 3.6e6, "job", None),
    ("job", "energy_kwh", 1.0, "job", operator.ne),
    ("experiment_id", "energy_consumed", 1.0, "raw", operator.gt),
    ("project_name", "energy_consumed", 1.0, "raw", operator.gt),
)
# Slurm's "no value", in joules: of 32 bits, and all from here on.
NO_VALUE_J = (2**32 - 2, 2**32 - 1)
MOST_KWH = 1e9


def read_energies(path: str | Path) -> tuple[dict[str, list[float]], str, Whole | None]:
    """Job -> kWh of each of its rows, in the file's order; which id that is; when rows are added up.

    sacct prints a job's steps after it, and each measures whole nodes over its own time: the largest
    of them is that of the job. So is the largest of a run of codecarbon, whose energy only grows. An
    energy of zero is one that nothing measured. The file has commas or bars.

    Raises:
        InputError: ``missing-column``, ``invalid-value`` and more, with the line.
    """
    records = read_records(Path(path))
    found = next((form for form in FORMS if {*form[:2]} <= {*records.columns}), None)
    if found is None:
        expected = " or ".join(f"{job}, {energy}" for job, energy, *_ in FORMS)
        columns = ", ".join(records.columns)[:200]
        raise refused("not energies of jobs", "missing-column", path, "line 1", columns, expected)
    job_column, energy_column, factor, key, whole = found
    energies: dict[str, dict[str, float]] = {}
    for (place, cells), value in zip(records.rows, records.numbers(energy_column), strict=True):
        none = np.isnan(value) or value * factor > MOST_KWH or (factor < 1 and value in NO_VALUE_J)
        kwh = 0.0 if none else value * factor
        if kwh < 0:
            raise refused("not an energy", "invalid-value", path, place, f"{value:g}", "at least 0")
        job, _, step = cells[job_column].partition(".")
        rows = energies.setdefault(job, {})
        name = cells.get("run_id") or (next(reversed(rows), place) if step else place)
        rows[name] = max(rows.get(name, 0.0), kwh)
    return {job: [*rows.values()] for job, rows in energies.items()}, key, whole


def matched(
    energies: dict[str, list[float]],
    jobs: Sequence[str],
    start: FloatArray,
    stop: FloatArray,
    whole: Whole | None = None,
) -> FloatArray:
    """[N] kWh of attempts, NaN where nothing measured them.

    Args:
        energies: as of `read_energies`.
        jobs: [N] ids.
        start: [N] seconds.
        stop: [N] seconds.
        whole: where it is true, a job's attempts share the sum of its rows by their time; else a job's last
            row is its last attempt's, and so on.
    """
    kwh = np.full(len(jobs), np.nan)
    attempts: dict[str, list[int]] = {}
    for n in np.argsort(start, kind="stable").tolist():
        attempts.setdefault(jobs[n], []).append(n)
    for job, places in attempts.items():
        rows = energies.get(job, [])
        if whole and whole(len(rows), len(places)):
            lasted = (stop - start)[places]
            rows = (sum(rows) * lasted / max(lasted.sum(), 1e-9)).tolist()
        for n, value in zip(reversed(places), reversed(rows), strict=False):
            kwh[n] = value or np.nan
    return kwh
