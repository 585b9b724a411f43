"""A range query of Prometheus saved as JSON (``/api/v1/query_range``) -> health events.

Two kinds of series are understood, by their name:

- ``DCGM_FI_DEV_XID_ERRORS``: the value is the last XID of a GPU (0: none yet). The exporter repeats it
  until the next one, so an event is a sample whose value differs from the sample before; the same XID
  twice in a row cannot be told from one.
- ``up`` (of node_exporter, DCGM exporter ...): a sample of 0 after a sample of 1 is an event of the check
  ``up <job>``.

The node is the first of the labels Hostname, node, nodename, instance (without its port). The first
sample of a series is no event: what happened before it is not known.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from holdfast.errors import InputError
from holdfast.fleet.formats.batch import Batch, Format, ReadOptions
from holdfast.fleet.formats.columns import rows_table
from holdfast.fleet.formats.source import Rejects, read_text
from holdfast.fleet.schema import HEALTH

_XIDS = "DCGM_FI_DEV_XID_ERRORS"
_NODE_LABELS = ("Hostname", "hostname", "node", "nodename", "instance")


def _sniff(head: bytes, path: Path) -> bool:
    return (
        head.lstrip()[:1] == b"{"
        and b'"resultType"' in head[:4096]
        and b'"matrix"' in head[:4096]
        and b'"metric"' in head
    )


def _read(path: Path, options: ReadOptions) -> Iterator[Batch]:
    rejects = Rejects(str(path))
    events: list[dict[str, Any]] = []
    for number, series in enumerate(_series(path), start=1):
        found = _events(series)
        if isinstance(found, str):
            rejects.add(1, f"series {number}: {found}", json.dumps(series))
        else:
            events.extend(found)
    table = rows_table(HEALTH, events)
    yield Batch({"health": table, "rejects": rejects.table()})


def _series(path: Path) -> list[Any]:
    place = None
    try:
        data = json.loads(read_text(path))["data"]
        found = data["resultType"]
        if found == "matrix" and isinstance(data["result"], list):
            return list(data["result"])
        place = "data.resultType"
    except (ValueError, KeyError, TypeError) as error:
        found = error
    raise InputError(
        "this is not the answer to a range query of Prometheus",
        code="unknown-format",
        path=path,
        place=place,
        found=str(found),
        expected='{"status": "success", "data": {"resultType": "matrix", "result": [...]}}',
        remedy="save the answer of /api/v1/query_range (not of /api/v1/query) as it is",
    )


def _events(series: Any) -> list[dict[str, Any]] | str:
    """The events of one series, or why it cannot be used."""
    try:
        labels = {str(name): str(text) for name, text in series["metric"].items()}
        samples = [(float(time), float(value)) for time, value in series["values"]]
        samples = [(time, value) for time, value in samples if math.isfinite(value)]  # not "NaN"
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
        return "no labels or no samples that can be read"
    node = next((labels[name] for name in _NODE_LABELS if labels.get(name)), None)
    if node is None:
        return "no node among its labels"
    name = labels.get("__name__")
    if name not in (_XIDS, "up"):
        return f"nothing is known of the metric {name}"
    changes = [
        (time, value)
        for (_, before), (time, value) in itertools.pairwise(samples)
        if value != before and (value != 0) == (name == _XIDS)
    ]
    host = node.rsplit(":", 1)[0]
    return [
        {
            "time_s": time,
            "node": host,
            "check": f"xid {value:.0f}" if name == _XIDS else f"up {labels.get('job', '')}".strip(),
            "severity": "",
            "result": "fail",
            "message": f"gpu {labels.get('gpu', '?')}" if name == _XIDS else "scrape failed",
            "xid": int(value) if name == _XIDS else None,
        }
        for time, value in changes
    ]


PROMETHEUS = Format(
    "prometheus", "a saved range query of Prometheus (XIDs of DCGM, up)", _sniff, _read
)
