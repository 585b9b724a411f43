"""From staged batches to a store, in one step that either happens or does not.

New Parquet files are written beside the old ones; replacing `store.json` is the commit. Files in
which nothing changes are listed again as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from holdfast.files import sync
from holdfast.fleet.formats.columns import flat, row_key, with_cluster
from holdfast.fleet.ingest_attempts import Attempts, cluster_names
from holdfast.fleet.ingest_recovery import explain, lost_attempts
from holdfast.fleet.ingest_small import (
    IDENTITY,
    cluster_nodes,
    last_of_each,
    merge_nodes,
    small_table,
)
from holdfast.fleet.ingest_staging import Stage
from holdfast.fleet.ingest_writing import Commit
from holdfast.fleet.schema import ATTEMPTS, STEPS
from holdfast.fleet.store import STAGING, Store, write_manifest


def commit(
    folder: Path,
    old: Store | None,
    stages: Sequence[Stage],
    facts: Mapping[str, Any],
    read_again: Set[str] = frozenset(),
) -> Store:
    """Bring staged rows into the store.

    Args:
        folder: the store.
        old: the store as it is; None: there is none yet.
        stages: the sources, read to their ends.
        facts: what `store.json` says of this ingest: "sources", "timezone" ...
        read_again: sources of which earlier rejects are replaced.

    Returns:
        the new store.

    Raises:
        OSError: if a file cannot be written; the store is then as it was.
    """
    number = 1 + (int(old.facts.get("commits", 0)) if old else 0)
    work = Commit(folder, old, stages, number, read_again)
    work.owners.update(cluster_nodes(work, cluster_names([*_stored(work), *_staged(work)])))
    small = {name: small_table(work, name) for name in IDENTITY}
    tables = {name: files for name, (files, _) in small.items()}
    attempts = _attempts(work, small["node_outages"][1](), small["controller_events"][1]())
    tables["attempts"] = attempts.pop("files")
    tables["nodes"], nodes, inferred = merge_nodes(work)
    counts = {
        **attempts["counts"],
        "nodes": nodes,
        "health_events": _count(folder, tables["health"]),
        "node_outages": _count(folder, tables["node_outages"]),
        "rejected": _count(folder, tables["rejects"]),
    }
    write_manifest(
        folder,
        {
            **facts,
            **attempts,
            "node_total": facts.get("node_total") or (old and old.facts.get("node_total")),
            "commits": number,
            "tables": tables,
            "counts": counts,
            "node_outages_merged": work.merged.get("node_outages", 0),
            "time_range": attempts["time_range"] or _event_range(small),
            "clusters": sorted(work.owners),
            "inferred": [*inferred, *attempts["inferred"]],
        },
    )
    return Store.open(folder)


def _count(folder: Path, files: Sequence[str]) -> int:
    return sum(pq.read_metadata(folder / file).num_rows for file in files)


# --- Attempts ------------------------------------------------------------------------------------


def _attempts(work: Commit, outages: pa.Table, events: pa.Table) -> dict[str, Any]:
    """Deduplicate, recover, number and write the attempts; gives what `store.json` says of them."""
    cluster = next(iter(work.owners)) if len(work.owners) == 1 else ""
    scratch = work.folder / STAGING / "commit"
    with closing(Attempts(_stored(work), _staged(work), cluster, scratch)) as attempts:
        before = attempts.drop_recovered()
        attempts.merge_duplicates()
        recovered = _recover(work, attempts, before, outages, events)
        inferred = []
        if len(recovered):
            attempts.add_rows(recovered)
            inferred.append(
                f"{len(recovered)} attempts that accounting lost were recovered from steps that "
                "began before their job."
            )
        folder = work.folder / "attempts"
        folder.mkdir(exist_ok=True)
        files = attempts.write(folder, f"{work.number:04d}")
        for file in files:
            sync(file)
        return {
            "files": [file.relative_to(work.folder).as_posix() for file in files]
            or [work.write("attempts", ATTEMPTS.empty_table())],
            "counts": attempts.counts(),
            "duplicates_flag": attempts.duplicates_flag(),
            "time_range": attempts.time_range(),
            "cluster": cluster,
            "inferred": inferred,
        }


def _stored(work: Commit) -> list[Path]:
    return work.old.files("attempts") if work.old else []


def _staged(work: Commit) -> list[Path]:
    return [file for stage in work.stages for file, _ in stage.files.get("attempts", ())]


def _recover(
    work: Commit, attempts: Attempts, before: pa.Table, outages: pa.Table, events: pa.Table
) -> pa.Table:
    """The attempts that accounting lost: those found now and those found by earlier ingests."""
    steps = pa.concat_tables([STEPS.empty_table(), *(each.read("steps") for each in work.stages)])
    steps = with_cluster(steps, attempts.cluster)
    found = pa.concat_tables([lost_attempts(steps, _owners(attempts, steps)), before])
    if not len(found):
        return found
    found = found.take(pa.array(last_of_each(found.drop_columns("end_s"), found["key"])))
    owners = _owners(attempts, found)
    start_of = dict(zip(_job_keys(owners), owners["start_s"].to_pylist(), strict=True))
    starts = {
        key: start_of[job]
        for key, job in zip(found["key"].to_pylist(), _job_keys(found), strict=True)
        if start_of.get(job) is not None
    }
    return explain(found, starts, outages, events)


def _job_keys(rows: pa.Table) -> list[int]:
    """The keys of the rows of the same job and submission that accounting has."""
    plain = pa.array(np.zeros(len(rows), bool))
    keys: list[int] = row_key(
        flat(rows["cluster"]), flat(rows["job_id_raw"]), flat(rows["submit_s"]), plain
    ).to_pylist()
    return keys


def _owners(attempts: Attempts, rows: pa.Table) -> pa.Table:
    """The attempts, whole, of the same job and submission as `rows`."""
    if not len(rows):
        return ATTEMPTS.empty_table()
    keys = ", ".join(map(str, _job_keys(rows)))
    return attempts.rows(f"keep AND key IN ({keys})")


def _event_range(small: Mapping[str, tuple[list[str], Callable[[], pa.Table]]]) -> list[int] | None:
    """First and last time of a log without attempts."""
    outages, health = small["node_outages"][1](), small["health"][1]()
    spans = [
        pc.min_max(each).as_py()
        for each in (outages["start_s"], outages["end_s"], health["time_s"])
    ]
    times = [value for span in spans for value in span.values() if value is not None]
    return [int(min(times)), int(max(times))] if times else None
