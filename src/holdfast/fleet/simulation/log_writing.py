"""A simulated history as a fleet store: tables and `store.json` as of an ingest, and the truth beside them.

The same run gives the same bytes on every machine: no clock, no order of a set, one thread.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from holdfast.files import LockHeldError, atomic_folder
from holdfast.fleet.ingest_commit import Commit
from holdfast.fleet.schema import CONTROLLER_EVENTS, REJECTS, TABLES
from holdfast.fleet.simulation import log_tables
from holdfast.fleet.simulation.engine import Run
from holdfast.fleet.simulation.injected_truth import TRUTH, TRUTH_ATTEMPTS, write_truth
from holdfast.fleet.store import LOCK, MANIFEST, SIMULATION, Store, store_error, write_manifest


def write_log(run: Run, output: str | Path) -> Store:
    """Write a run as a store: whole, or not at all.

    Args:
        run: what was simulated.
        output: the folder of the store: new, empty, or a store that holds nothing but an earlier
            simulation, which is replaced.

    Returns:
        the store.

    Raises:
        StoreError: if something else stands there, another simulation writes to it, or the disk is full.
    """
    folder = Path(output).resolve()
    check_output(folder)
    try:
        with atomic_folder(folder, replace=True) as draft:
            _write_tables(run, draft)
            write_truth(run, draft)
    except LockHeldError as error:
        raise store_error(
            "in-use",
            f"{folder}: another simulation is writing to the same place\n  remedy: wait for it",
        ) from error
    except OSError as error:
        raise store_error(
            "unwritable",
            f"{folder}: the store could not be written; what was there is unchanged\n"
            f"  found: {error}\n"
            "  remedy: make room, or name another folder",
        ) from error
    return Store.open(folder)


def check_output(folder: Path) -> None:
    """Refuse a folder that holds something other than a simulation.

    Raises:
        StoreError: if it does.
    """
    if folder.exists() and not folder.is_dir():
        raise store_error("output-exists", f"{folder}: a file is in the place of the store")
    if not folder.is_dir() or not any(folder.iterdir()):
        return
    stored = (folder / MANIFEST).is_file()
    own = {*TABLES, MANIFEST, LOCK, *(Path(name).parts[0] for name in (TRUTH, TRUTH_ATTEMPTS))}
    only_own = all(entry.name in own for entry in folder.iterdir())
    if stored and only_own and Store.open(folder).is_simulated:
        return
    what = "a store of real logs" if stored and only_own else "other things than a simulation"
    raise store_error(
        "output-exists",
        f"{folder}: the folder holds {what}\n"
        "  expected: a new or an empty folder, or an earlier simulation, which is replaced\n"
        "  remedy: name another folder with -o",
    )


# --- Tables and facts ----------------------------------------------------------------------------


def _write_tables(run: Run, folder: Path) -> None:
    """The tables as a first commit writes them, and `store.json`."""
    commit = Commit(folder, None, [], 1)

    nodes = log_tables.node_table(run)
    health = log_tables.health_table(run)
    outages = log_tables.outage_table(run)
    qos = log_tables.qos_table(run)
    tables = {
        "attempts": log_tables.attempt_tables(run),
        "nodes": [nodes],
        "health": [health],
        "node_outages": [outages],
        "qos": [qos],
        "controller_events": [CONTROLLER_EVENTS.empty_table()],
        "rejects": [REJECTS.empty_table()],
    }
    a = run.attempts
    scenario = run.scenario
    title = f"{scenario.name}, {run.days:g} days, seed {run.seed}"
    played = repr((scenario.to_toml(), run.days, run.seed)).encode()
    source = {
        "path": title,
        "format": SIMULATION,
        "fingerprint": hashlib.blake2b(played, digest_size=16).hexdigest(),
        "rows": sum(map(len, (a.job, health, nodes, outages, qos))),
        "steps": 0,
        "rejected": 0,
        "facts": {"seed": run.seed, "days": run.days, "scenario": scenario.name},
    }
    write_manifest(
        folder,
        {
            "cluster": scenario.name,
            "clusters": [scenario.name],
            "node_total": None,
            "commits": 1,
            "until_s": 0,
            "counts": {
                "attempts": len(a.job),
                "attempts_recovered": 0,
                "jobs": int((np.bincount(a.job) > 0).sum()),
                "nodes": len(nodes),
                "health_events": len(health),
                "node_outages": 0,
                "rejected": 0,
            },
            "duplicates_flag": "present",
            "node_outages_merged": 0,
            "inferred": [f"No cluster wrote this log: it was simulated ({title})."],
            "sources": [source],
            "state_conflicts": 0,
            "tables": {name: [commit.write(name, rows)] for name, rows in tables.items()},
            "time_range": _time_range(run),
            "timezone": "UTC",
        },
    )


def _time_range(run: Run) -> list[int] | None:
    """First and last time of an attempt, seconds since 1970; of a submission where none started."""
    a = run.attempts
    times = np.concatenate([a.start_ms, a.end_ms])
    times = times[times >= 0] if (times >= 0).any() else run.jobs.submit_ms[a.job]
    ends = [times.min(), times.max()] if len(times) else []
    return [int(run.scenario.begin_s + each // 1000) for each in ends] or None
