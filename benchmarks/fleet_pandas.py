"""The same answers in pandas, as a careful user would write them: the peer of `fleet_ingest_report`.

What repeats is kept as categories, so that host lists and resource strings are parsed once per distinct
value; events are joined to attempts by node and time bucket, never by product. It draws nothing, and
looks for nothing that hides in the log. Prints its answers and its times as JSON.

    python benchmarks/fleet_pandas.py DIR [STORE]

With STORE it reads every column and keeps the typed table there as Parquet, as `fleet ingest` does;
without, it reads only the columns that its answers need, and keeps nothing.
"""

from __future__ import annotations

import json
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from ClusterShell.NodeSet import NodeSet
from scipy import stats

STATES = {
    "COMPLETED",
    "FAILED",
    "PREEMPTED",
    "REQUEUED",
    "CANCELLED",
    "TIMEOUT",
    "OUT_OF_MEMORY",
    "NODE_FAIL",
    "RUNNING",
    "PENDING",
}
REPEATING = [
    "Account",
    "Partition",
    "ExitCode",
    "DerivedExitCode",
    "Timelimit",
    "Reason",
    "NNodes",
]
BEFORE_S, AFTER_S = 600, 300
GRACE_S = 300 + 300
CHECKPOINT_S = 3600
MIN_GPUS = 128
DAY_S = 86_400
SIZES = [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, np.inf]


def main() -> None:
    """Answer everything and say how long it took."""
    store = Path(sys.argv[2]) if len(sys.argv) > 2 else None
    json.dump(answer(Path(sys.argv[1]), store), sys.stdout, default=float)


def answer(folder: Path, store: Path | None = None) -> dict[str, Any]:
    """All answers about the log in a folder."""
    begin = time.perf_counter()
    attempts = read_accounting(folder / "sacct.psv", store)
    events = read_health(folder / "health.jsonl")
    read = time.perf_counter()
    placed = attempts[["nodes"]].explode("nodes").dropna()
    placed["nodes"] = placed.nodes.astype("category")
    causes = attribute(attempts, events, placed)
    attempts["infrastructure"] = (attempts.state == "NODE_FAIL") | (
        (attempts.state == "FAILED") & attempts.index.isin(causes.index[causes.severity == "HIGH"])
    )
    answers: dict[str, Any] = {
        "attempts": len(attempts),
        "jobs": int(attempts.job.nunique()),
        **status(attempts),
        **failure_rate(attempts),
        "goodput": goodput(attempts, placed, causes),
        "lemons": lemons(attempts, placed, causes),
        "ettr_measured": measured_ettr(attempts),
        "by_month": trend(attempts, causes),
    }
    answers["seconds"] = {
        "read": round(read - begin, 3),
        "analyse": round(time.perf_counter() - read, 3),
    }
    return answers


def read_accounting(path: Path, store: Path | None) -> pd.DataFrame:
    """Accounting text -> one row per attempt; lines that names broke are skipped."""
    categories = ["User", "QOS", "State", "NodeList", "AllocTRES"]
    columns = ["JobIDRaw", "Submit", "Eligible", "Start", "End", "Priority", *categories]
    repeating = [*categories, *REPEATING] if store else categories
    raw = pd.read_csv(
        path,
        sep="|",
        usecols=None if store else columns,
        dtype=defaultdict(lambda: str, dict.fromkeys(repeating, "category")),
        quoting=3,
        on_bad_lines="skip",
        encoding_errors="replace",
        keep_default_na=False,
    )
    state = raw.State.map({value: value.split(" ")[0] for value in raw.State.cat.categories})
    raw = raw[state.isin(STATES)]
    tres = {
        value: int(value.partition("gres/gpu=")[2].partition(",")[0] or 0)
        for value in raw.AllocTRES.cat.categories
    }
    hosts = {
        value: list(NodeSet(value)) if value and " " not in value else None
        for value in raw.NodeList.cat.categories
    }
    out = pd.DataFrame(
        {
            "job": raw.JobIDRaw.astype(np.int64),
            "state": state.loc[raw.index].astype("category"),
            "qos": raw.QOS,
            "user": raw.User,
            "priority": raw.Priority.astype(np.int64),
            "gpus": raw.AllocTRES.map(tres).astype(np.int64),
            "nodes": raw.NodeList.astype(object).map(hosts),
            "width": raw.NodeList.map({key: len(value or ()) for key, value in hosts.items()}),
        }
    )
    for column in ("Submit", "Eligible", "Start", "End"):
        times = pd.to_datetime(raw[column].where(raw[column] != "Unknown"), format="ISO8601")
        out[column.lower()] = (times - pd.Timestamp(0)) / pd.Timedelta(seconds=1)
    out["width"] = out.width.astype(np.int64)
    order = np.lexsort((out.submit, out.job))
    out, raw = out.iloc[order].reset_index(drop=True), raw.iloc[order]
    out["attempt"] = out.groupby("job").cumcount() + 1
    until = out.end.fillna(out.end.max())
    out["runtime"] = (until - out.start).clip(lower=0).fillna(0)
    out["gpu_hours"] = out.gpus * out.runtime / 3600
    out["node_days"] = out.width * out.runtime / DAY_S
    if store:
        keep(raw, out, store)
    return out


def keep(raw: pd.DataFrame, typed: pd.DataFrame, store: Path) -> None:
    """Write the whole table, typed, as Parquet."""
    rest = raw[[*REPEATING, "JobID", "JobName"]].reset_index(drop=True)
    code = raw.ExitCode.cat.categories.str.extract(r"(\d+):(\d+)").astype(float)
    rest["exit_code"] = code[0].to_numpy()[raw.ExitCode.cat.codes]
    rest["exit_signal"] = code[1].to_numpy()[raw.ExitCode.cat.codes]
    pd.concat([typed, rest], axis=1).to_parquet(store, index=False)


def read_health(path: Path) -> pd.DataFrame:
    """Failed checks with their time in seconds."""
    events = pd.read_json(path, lines=True, convert_dates=False, dtype=False, engine="pyarrow")
    events = events[events.result == "fail"]
    times = pd.to_datetime(events.time, utc=True)
    events["time"] = (times - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(seconds=1)
    return events[["time", "node", "check", "severity"]].reset_index(drop=True)


def attribute(attempts: pd.DataFrame, events: pd.DataFrame, placed: pd.DataFrame) -> pd.DataFrame:
    """Checks that explain the end of an attempt; the likeliest first. Index: the attempt's."""
    failed = attempts.state.isin(["FAILED", "NODE_FAIL"]) & attempts.end.notna()
    ends = placed[failed.loc[placed.index]].join(attempts.end).rename(columns={"nodes": "node"})
    ends["node"] = ends.node.astype(str)
    width = BEFORE_S + AFTER_S
    ends["bucket"] = ((ends.end - BEFORE_S) // width).astype(np.int64)
    keyed = events.assign(bucket=(events.time // width).astype(np.int64))
    keyed = pd.concat([keyed, keyed.assign(bucket=keyed.bucket - 1)])
    found = ends.reset_index().merge(keyed, on=["node", "bucket"]).set_index("index")
    found["offset"] = found.time - found.end
    found = found[found.offset.between(-BEFORE_S, AFTER_S)]
    found["low"] = found.severity != "HIGH"
    return found.assign(far=found.offset.abs()).sort_values(["low", "far"], kind="stable")


def status(attempts: pd.DataFrame) -> dict[str, Any]:
    """Share of each state by count and by GPU time."""
    hours = attempts.groupby("state", observed=True).gpu_hours.sum()
    return {
        "by_count": attempts.state.value_counts(normalize=True).to_dict(),
        "by_gpu_time": (hours / hours.sum()).to_dict(),
    }


def interval(failures: float, days: float) -> list[float]:
    """Exact 95 % interval of a Poisson rate, per 1,000 node-days."""
    low = stats.chi2.ppf(0.025, 2 * failures) / 2 if failures else 0.0
    return [1000 * low / days, 1000 * stats.chi2.ppf(0.975, 2 * failures + 2) / 2 / days]


def failure_rate(attempts: pd.DataFrame) -> dict[str, Any]:
    """Rate over large attempts, by size, with its dispersion."""
    ran = attempts[attempts.node_days > 0]
    large = ran[ran.gpus > MIN_GPUS]
    size = pd.cut(ran.gpus, SIZES)
    table = ran.groupby(size, observed=True).agg(
        failures=("infrastructure", "sum"), days=("node_days", "sum")
    )
    expected = table.failures.sum() * table.days / table.days.sum()
    statistic = ((table.failures - expected) ** 2 / expected).sum()
    failures, days = int(large.infrastructure.sum()), float(large.node_days.sum())
    return {
        "failures": failures,
        "node_days": days,
        "rate_per_1000_node_days": 1000 * failures / days,
        "ci95": interval(failures, days),
        "buckets": [
            {"gpus": str(name), "failures": f, "days": d, "ci95": interval(f, d)}
            for name, f, d in zip(table.index, table.failures, table.days, strict=True)
        ],
        "dispersion": [statistic, stats.chi2.sf(statistic, len(table) - 1)],
    }


def goodput(attempts: pd.DataFrame, placed: pd.DataFrame, causes: pd.DataFrame) -> dict[str, Any]:
    """GPU-hours lost to failures, and to the preemptions that their requeues caused."""
    lost = attempts.gpus * attempts.runtime.clip(upper=CHECKPOINT_S / 2) / 3600
    first = lost.where(attempts.infrastructure, 0)
    cause = causes.groupby(level=0).check.first().reindex(attempts.index).fillna("unattributed")
    failed = attempts[attempts.infrastructure]

    second = second_order(attempts, placed)
    size = pd.cut(attempts.gpus, SIZES)
    loops = failed.sort_values("end").groupby("job").end
    span = failed.sort_values("end").end - loops.shift(2)
    return {
        "total": float(attempts.gpu_hours.sum()),
        "lost_first_order": float(first.sum()),
        "lost_second_order": float(lost.loc[second].sum()),
        "by_job_size": first.groupby(size, observed=True).sum().to_list(),
        "by_cause": first[attempts.infrastructure].groupby(cause[failed.index]).sum().to_dict(),
        "crash_loops": failed.loc[span[span <= DAY_S].index, "job"].unique().tolist(),
    }


def second_order(attempts: pd.DataFrame, placed: pd.DataFrame) -> pd.Series:
    """Indices of the attempts that a job preempted which had failed before."""
    before = attempts.groupby("job").infrastructure.cumsum() - attempts.infrastructure
    outranks = attempts.qos == "high"
    starts = placed[outranks.loc[placed.index]].join(attempts[["start", "priority", "job"]])
    starts["bucket"] = (starts.start // GRACE_S).astype("Int64")
    preempted = (attempts.state == "PREEMPTED") & attempts.end.notna()
    ends = placed[preempted.loc[placed.index]].join(attempts[["end", "priority", "job"]])
    ends["bucket"] = (ends.end // GRACE_S).astype("Int64")
    ends = pd.concat([ends, ends.assign(bucket=ends.bucket + 1)])
    pairs = ends.reset_index().merge(
        starts.reset_index(), on=["nodes", "bucket"], suffixes=("", "_by")
    )
    wait = pairs.start - pairs.end
    pairs = pairs[
        (wait >= 0)
        & (wait <= GRACE_S)
        & (pairs.priority_by > pairs.priority)
        & (pairs.job != pairs.job_by)
    ]
    pairs = pairs.sort_values("start").drop_duplicates("index")
    return pairs[before.loc[pairs.index_by].to_numpy() > 0]["index"]


def lemons(attempts: pd.DataFrame, placed: pd.DataFrame, causes: pd.DataFrame) -> list[str]:
    """Nodes with more failures than their exposure explains, at a false discovery rate of 5 %."""
    days = placed.join(attempts.runtime).groupby("nodes", observed=True).runtime.sum() / DAY_S
    named = causes[causes.severity == "HIGH"].groupby(level=0).node.first()
    failed = attempts[attempts.infrastructure]
    known = named.reindex(failed.index).dropna()
    unknown = placed.loc[failed.index.difference(known.index)]
    share = 1 / attempts.width.loc[unknown.index]
    blame = known.value_counts().add(share.groupby(unknown.nodes.astype(str)).sum(), fill_value=0)
    blame = blame.reindex(days.index.astype(str)).fillna(0).to_numpy()
    expected = blame.sum() * days.to_numpy() / days.sum()
    p_values = stats.poisson.sf(np.ceil(blame) - 1, expected)
    q_values = stats.false_discovery_control(p_values)
    return sorted(days.index[q_values < 0.05].astype(str))


def measured_ettr(attempts: pd.DataFrame) -> list[float]:
    """Productive share of the time of the job runs of a day or more."""
    runs = attempts.assign(
        queue=attempts.start - attempts.eligible,
        idle=np.minimum(attempts.runtime, 300)
        + np.where(attempts.infrastructure, np.minimum(attempts.runtime, CHECKPOINT_S / 2), 0),
    )
    table = runs.groupby("job")[["queue", "runtime", "idle"]].sum()
    table = table[table.runtime >= DAY_S]
    ettr = (table.runtime - table.idle) / (table.queue + table.runtime)
    return ettr.quantile([0.1, 0.5, 0.9]).to_list()


def trend(attempts: pd.DataFrame, causes: pd.DataFrame) -> dict[str, Any]:
    """Failures by month and cause, and node-days by month."""
    month = pd.to_datetime(attempts.start, unit="s").dt.to_period("M").astype(str)
    failed = attempts.index[attempts.infrastructure]
    cause = causes.groupby(level=0).check.first().reindex(failed).fillna("unattributed")
    counts = pd.crosstab(month[failed], cause)
    return {
        "node_days": attempts.node_days.groupby(month).sum().to_dict(),
        "failures": counts.to_dict("index"),
    }


if __name__ == "__main__":
    main()
