"""Measured energy of jobs: sacct's ConsumedEnergyRaw, codecarbon, or a table of job and kWh."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from holdfast.carbon.formats import read_records
from holdfast.carbon.signals import FloatArray, refused

# Column of the job, column of its energy, kWh per unit, and which id of a job the first one holds: its own,
# which each task of an array has too, or "12_3" for such a task. Whether a job that is there once is whole:
# else it is its last attempt, as sacct shows it without -D.
FORMS = (
    ("JobIDRaw", "ConsumedEnergyRaw", 1 / 3.6e6, "raw", False),
    ("JobID", "ConsumedEnergyRaw", 1 / 3.6e6, "job", False),
    ("job", "energy_kwh", 1.0, "job", True),
    ("experiment_id", "energy_consumed", 1.0, "raw", False),
    ("project_name", "energy_consumed", 1.0, "raw", False),
)
# Slurm's "no value", in joules: of 32 bits, and all from here on.
NO_VALUE_J = (2**32 - 2, 2**32 - 1)
MOST_KWH = 1e9


def read_energies(path: str | Path) -> tuple[dict[str, list[float]], str, bool]:
    """Job -> kWh of each of its attempts, in the file's order; which id that is; whether one row is all.

    sacct prints a job's steps after it, and each measures whole nodes over its own time: the largest
    of a job's rows is that of the job. An energy of zero is one that nothing measured. The file has
    commas or bars.

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
    energies: dict[str, list[float]] = {}
    jobs, values = records.column(job_column), records.numbers(energy_column)
    for place, text, value in zip(records.places, jobs, values, strict=True):
        none = np.isnan(value) or value * factor > MOST_KWH or (factor < 1 and value in NO_VALUE_J)
        kwh = 0.0 if none else value * factor
        if kwh < 0:
            raise refused("not an energy", "invalid-value", path, place, f"{value:g}", "at least 0")
        job, _, step = text.partition(".")
        attempts = energies.setdefault(job, [])
        if step and attempts:
            attempts[-1] = max(attempts[-1], kwh)
        else:
            attempts.append(kwh)
    return energies, key, whole


def matched(
    energies: dict[str, list[float]],
    jobs: Sequence[str],
    start: FloatArray,
    stop: FloatArray,
    whole: bool = False,
) -> FloatArray:
    """[N] kWh of attempts, NaN where nothing measured them.

    Args:
        energies: as of `read_energies`.
        jobs: [N] ids.
        start: [N] seconds.
        stop: [N] seconds.
        whole: all attempts of a job that the file has once share it by their time; else it is the last's.
    """
    kwh = np.full(len(jobs), np.nan)
    attempts: dict[str, list[int]] = {}
    for n in np.argsort(start, kind="stable").tolist():
        attempts.setdefault(jobs[n], []).append(n)
    for job, places in attempts.items():
        found = energies.get(job, [])
        if whole and len(found) == 1:
            lasted = (stop - start)[places]
            found = (found[0] * lasted / max(lasted.sum(), 1e-9)).tolist()
        for n, value in zip(reversed(places), reversed(found), strict=False):
            kwh[n] = value or np.nan
    return kwh
