"""Node inventories: `scontrol show node` (blocks or ``-o``) and `sinfo` in any column layout.

A node that is listed twice (once per partition) is one row. `sinfo` needs its header; `sinfo -R` gives
reasons alone, for what another inventory says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from holdfast.fleet.formats.batch import Batch, Format, ReadOptions
from holdfast.fleet.formats.columns import rows_table
from holdfast.fleet.formats.fields import BLANKS, gpus_of
from holdfast.fleet.formats.hosts import hosts_of
from holdfast.fleet.formats.source import Rejects, read_text
from holdfast.fleet.schema import NODES, Row


def _read(
    nodes: Callable[[str, Rejects], Iterator[Row]], path: Path, options: ReadOptions
) -> Iterator[Batch]:
    rejects = Rejects(str(path))
    rows = {}
    for each in nodes(read_text(path), rejects):
        known = rows.setdefault(each["node"], {"inferred": False})
        known |= {name: value for name, value in each.items() if known.get(name) in (None, "")}
    table = rows_table(NODES, list(rows.values()))
    yield Batch({"nodes": table, "rejects": rejects.table()})


def _known(text: str | None) -> str | None:
    value = (text or "").strip()
    return None if value in BLANKS else value


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.strip().isdecimal() else None


# --- scontrol show node --------------------------------------------------------------------------

_PAIR = re.compile(r"(?:^|\s)([A-Za-z][A-Za-z_]*)=(\S*)")
_REASON = re.compile(
    r"(?:^|\s)Reason=(.*?)(?=\s(?:Comment|Extra|InstanceId|InstanceType)=|$)", re.M
)
_SET_BY = re.compile(r"(?<!\s)\s*+\[[^\s@\[]++@[\dT:\-]++\]$")


def _sniff_scontrol(head: bytes, path: Path) -> bool:
    return head.lstrip().startswith(b"NodeName=") and b"State=" in head


def _scontrol_nodes(text: str, rejects: Rejects) -> Iterator[Row]:
    line = 1
    for block in re.split(r"(?m)^(?=NodeName=)", text):
        first, line = line, line + block.count("\n")
        if not block.strip():
            continue
        pairs = dict(_PAIR.findall(block))
        hosts = hosts_of(pairs.get("NodeName", ""))
        if not hosts or "State" not in pairs:
            rejects.add(first, "not a whole node (NodeName, State)", block)
            continue
        reason = _REASON.search(block)
        for host in hosts:
            yield {
                "node": host,
                "gpus": _scontrol_gpus(pairs),
                "cpus": _number(pairs.get("CPUTot")),
                "state": pairs["State"],
                "reason": _known(_SET_BY.sub("", reason[1])) if reason else None,
            }


def _scontrol_gpus(pairs: Mapping[str, str]) -> int | None:
    """Gres is what the node has; CfgTRES lists GPUs only where accounting tracks them."""
    if "Gres" not in pairs and "CfgTRES" not in pairs:
        return None
    gpus = gpus_of(pairs.get("Gres", ""))
    return (gpus_of(pairs.get("CfgTRES", "")) or 0) if gpus is None else gpus


# --- sinfo ---------------------------------------------------------------------------------------

_NODE_COLUMNS = ("NODELIST", "HOSTNAMES", "NODEHOST")
_OTHER_COLUMNS = {"STATE", "GRES", "CPUS", "PARTITION", "REASON", "CPUS(A/I/O/T)", "STATECOMPLETE"}


def _sniff_sinfo(head: bytes, path: Path) -> bool:
    names, _, _ = _header(head.decode(errors="replace").splitlines())
    return bool(_OTHER_COLUMNS & set(names))


def _header(lines: list[str]) -> tuple[list[str], str | None, int]:
    """The names of the columns, what is between them, and how many lines there are to the header."""
    for number, line in enumerate(lines[:4], 1):  # `sinfo -l` prints the time above it
        delimiter = "|" if "|" in line else None
        names = [name.strip() for name in line.split(delimiter)]
        if {*_NODE_COLUMNS} & {*names} and "JOBID" not in names:
            return names, delimiter, number
    return [], None, 0


def _sinfo_nodes(text: str, rejects: Rejects) -> Iterator[Row]:
    lines = text.splitlines()
    names, delimiter, above = _header(lines)
    for number, line in enumerate(lines[above:], above + 1):
        if not line.strip() or line in lines[:above]:
            continue
        row = _row(line, names, delimiter)
        if row is None:
            rejects.add(number, "another number of fields than the header", line)
            continue
        hosts = hosts_of(next((row[name] for name in _NODE_COLUMNS if row.get(name)), ""))
        if not hosts:
            rejects.add(number, "no node list that can be read", line)
            continue
        for host in hosts:
            yield {
                "node": host,
                "gpus": (gpus_of(row["GRES"]) or 0) if "GRES" in row else None,
                "cpus": _number(row.get("CPUS") or row.get("CPUS(A/I/O/T)", "").rpartition("/")[2]),
                "state": _known(row.get("STATECOMPLETE") or row.get("STATE")),
                "reason": _known(row.get("REASON")),
            }


def _row(line: str, names: list[str], delimiter: str | None) -> dict[str, str] | None:
    fields = line.split(delimiter)
    if len(fields) == len(names) + 1 and not fields[-1].strip():
        fields.pop()  # a format that ends with the delimiter
    surplus = len(fields) - len(names)
    if surplus > 0 and "REASON" in names:
        # A reason may have several words, or a delimiter among them.
        at = names.index("REASON")
        fields[at : at + surplus + 1] = [(delimiter or " ").join(fields[at : at + surplus + 1])]
    if len(fields) != len(names):
        return None
    row: dict[str, str] = {}
    for name, field in zip(names, fields, strict=True):
        row[name] = row.get(name) or field.strip()
    return row


SCONTROL = Format(
    "scontrol-nodes",
    "node inventory of `scontrol show node` (also -o)",
    _sniff_scontrol,
    partial(_read, _scontrol_nodes),
)
SINFO = Format(
    "sinfo", "node inventory of `sinfo` with a header", _sniff_sinfo, partial(_read, _sinfo_nodes)
)
