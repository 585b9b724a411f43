"""The headline figures of `fleet report` in one DuckDB script: the rival of `fleet_ingest_report`.

What an engineer writes who needs these figures once: it reads only the columns that it needs, skips
the lines that names broke, expands node lists per distinct list, joins events by node and time
bucket, keeps nothing. Prints its answers as JSON.

    python benchmarks/fleet_duckdb.py DIR
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import duckdb
from scipy.special import chdtri

BEFORE_S, AFTER_S = 600, 300
CHECKPOINT_S = 3600
MIN_GPUS = 128
GPUS_PER_NODE = 8

ATTEMPTS = """CREATE TABLE attempt AS
    SELECT row_number() OVER () AS id, JobIDRaw AS job, Submit AS submit, NodeList AS list,
        split_part(State, ' ', 1) AS state, NNodes AS width, epoch("End")::BIGINT AS end_s,
        epoch("Start")::BIGINT AS start_s,
        coalesce(split_part(split_part(AllocTRES, 'gres/gpu=', 2), ',', 1)::INTEGER, 0) AS gpus,
        CASE WHEN "Start" IS NULL THEN 0 ELSE ElapsedRaw END AS runtime_s
    FROM read_csv({file}, delim='|', quote='', escape='', header=true, auto_detect=false,
        ignore_errors=true, nullstr=['Unknown', 'None assigned', ''], columns={columns})
    WHERE JobID NOT LIKE '%.%'"""

TYPES = {
    "JobIDRaw": "BIGINT",
    "Submit": "TIMESTAMP",
    "Start": "TIMESTAMP",
    "End": "TIMESTAMP",
    "ElapsedRaw": "BIGINT",
    "NNodes": "INTEGER",
}

EVENTS = """CREATE TABLE event AS
    SELECT epoch("time") AS time_s, node, "check", severity = 'HIGH' AS high
    FROM read_json({file}, format='newline_delimited', columns={{"time": 'TIMESTAMPTZ', node: 'VARCHAR',
        "check": 'VARCHAR', severity: 'VARCHAR', result: 'VARCHAR'}}) WHERE result = 'fail'"""

# node[0001-0003,0007] -> node0001, node0002, node0003, node0007; each distinct list once
HOSTS = """CREATE TABLE host AS
    WITH part AS (
        SELECT list, split_part(list, '[', 1) AS stem, unnest(string_split(
            rtrim(split_part(list, '[', 2), ']'), ',')) AS part
        FROM (SELECT DISTINCT list FROM attempt WHERE contains(list, '['))
    )
    SELECT list, stem || lpad(number::VARCHAR, width::INTEGER, '0') AS node FROM (
        SELECT list, stem, length(split_part(part, '-', 1)) AS width,
            unnest(range(split_part(part, '-', 1)::INTEGER,
                coalesce(nullif(split_part(part, '-', 2), ''), part)::INTEGER + 1)) AS number
        FROM part
    )"""

CAUSES = f"""CREATE TABLE cause AS
    WITH failed AS (
        SELECT id, coalesce(node, list) AS node, end_s, end_s - {BEFORE_S} AS low_s
        FROM (SELECT * FROM attempt WHERE state IN ('FAILED', 'NODE_FAIL') AND end_s IS NOT NULL)
        LEFT JOIN host USING (list)
    ), near AS (
        SELECT *, unnest([bucket, bucket - 1]) AS near
        FROM (SELECT *, floor(time_s / {BEFORE_S + AFTER_S})::BIGINT AS bucket FROM event)
    )
    SELECT id, bool_or(high) AS high, count(DISTINCT failed.node) FILTER (high) AS blamed,
        list(DISTINCT failed.node) FILTER (high) AS nodes
    FROM failed JOIN near ON failed.node = near.node AND low_s // {BEFORE_S + AFTER_S} = near
    WHERE time_s BETWEEN low_s AND end_s + {AFTER_S} GROUP BY id"""

FAILURES = f"""CREATE TABLE failure AS
    SELECT attempt.*, cause.id IS NULL AS unattributed, nodes,
        gpus * least(runtime_s, {CHECKPOINT_S} / 2) / 3600 AS lost
    FROM attempt LEFT JOIN cause USING (id)
    WHERE end_s IS NOT NULL AND (state = 'NODE_FAIL' OR (state = 'FAILED' AND high))"""


def answer(folder: Path) -> dict[str, Any]:
    """The answers about the log in a folder."""
    db = duckdb.connect(config={"preserve_insertion_order": "false"})
    header = (folder / "sacct.psv").open().readline().strip().split("|")
    columns = {name: TYPES.get(name, "VARCHAR") for name in header}
    db.execute(ATTEMPTS.format(file=repr(str(folder / "sacct.psv")), columns=columns))
    twice = db.sql("SELECT job, submit FROM attempt GROUP BY ALL HAVING count(*) > 1").fetchall()
    if twice:
        db.execute(
            "DELETE FROM attempt WHERE id NOT IN (SELECT max(id) FROM attempt GROUP BY job, submit)"
        )
    db.execute(EVENTS.format(file=repr(str(folder / "health.jsonl"))))
    for statement in (HOSTS, CAUSES, FAILURES):
        db.execute(statement)

    def rows(query: str) -> list[dict[str, Any]]:
        found = db.sql(query)
        return [dict(zip(found.columns, row, strict=True)) for row in found.fetchall()]

    [total] = rows(
        "SELECT count(*) AS attempts, count(DISTINCT job) AS jobs, "
        "sum(gpus * runtime_s) / 3600 AS gpu_hours, "
        f"sum(width * runtime_s) FILTER (gpus > {MIN_GPUS}) / 86400 AS node_days FROM attempt"
    )
    [lost] = rows(
        "SELECT count(*) AS failures, sum(lost) AS lost_first_order, "
        "count(*) FILTER (unattributed) AS unattributed, "
        f"count(*) FILTER (gpus > {MIN_GPUS}) AS large FROM failure"
    )
    failures, days = lost.pop("large"), total["node_days"]
    low = chdtri(2 * failures, 0.975) / 2 if failures else 0.0
    ci95 = [1000 * low / days, 1000 * chdtri(2 * failures + 2, 0.025) / 2 / days]
    size = (
        "CASE WHEN gpus <= 1 THEN gpus WHEN gpus <= 8 THEN 8 ELSE 2 ** ceil(log2(gpus)) END::BIGINT"
    )
    return {
        **total,
        **lost,
        "rate_per_1000_node_days": 1000 * failures / days,
        "ci95": ci95,
        "status": rows(
            "SELECT state, count(*) / sum(count(*)) OVER () AS by_count, sum(gpus * runtime_s) "
            "/ sum(sum(gpus * runtime_s)) OVER () AS by_gpu_time FROM attempt GROUP BY state ORDER BY state"
        ),
        "by_size": rows(
            f"""SELECT gpus_max, gpu_hours, coalesce(failures, 0) AS failures, coalesce(lost, 0) AS lost
            FROM (SELECT {size} AS gpus_max, sum(gpus * runtime_s) / 3600 AS gpu_hours
                FROM attempt WHERE start_s IS NOT NULL GROUP BY gpus_max)
            LEFT JOIN (SELECT {size} AS gpus_max, count(*) AS failures, sum(lost) AS lost
                FROM failure GROUP BY gpus_max) USING (gpus_max) ORDER BY gpus_max"""
        ),
        "by_month": rows(
            "SELECT strftime(to_timestamp(end_s), '%Y-%m') AS month, count(*) AS failures FROM failure "
            f"WHERE gpus > {MIN_GPUS} GROUP BY month ORDER BY month"
        ),
        # A node that several jobs share is in use once: the union of their times
        "nodes": rows(
            f"""WITH shared AS (
                SELECT coalesce(node, list) AS node, start_s, start_s + runtime_s AS stop_s
                FROM attempt LEFT JOIN host USING (list)
                WHERE runtime_s > 0 AND gpus < {GPUS_PER_NODE} * width
            ), own AS (
                SELECT node, greatest(stop_s - greatest(start_s, coalesce(max(stop_s) OVER (
                    PARTITION BY node ORDER BY start_s ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
                ), start_s)), 0) AS used_s FROM shared
                UNION ALL SELECT coalesce(node, list), used_s FROM (
                    SELECT list, sum(runtime_s) AS used_s FROM attempt
                    WHERE runtime_s > 0 AND gpus >= {GPUS_PER_NODE} * width GROUP BY list
                ) LEFT JOIN host USING (list)
            ), blamed AS (
                SELECT unnest(nodes) AS node, 1 / len(nodes) AS blame FROM failure WHERE nodes IS NOT NULL
                UNION ALL SELECT coalesce(node, list), 1 / width
                FROM failure LEFT JOIN host USING (list) WHERE nodes IS NULL
            )
            SELECT node, node_days, coalesce(failures, 0) AS failures FROM (
                SELECT node, sum(used_s) / 86400 AS node_days FROM own GROUP BY node
            ) LEFT JOIN (SELECT node, sum(blame) AS failures FROM blamed GROUP BY node) USING (node)
            ORDER BY node"""
        ),
    }


if __name__ == "__main__":
    json.dump(answer(Path(sys.argv[1])), sys.stdout)
