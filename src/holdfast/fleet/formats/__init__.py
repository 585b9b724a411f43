"""The input formats of a fleet: what each looks like and which one a file is in."""

from __future__ import annotations

import csv
from pathlib import Path

from holdfast.errors import InputError
from holdfast.fleet.formats import (
    inventory,
    kubernetes,
    monitors,
    sacct_json,
    sacct_text,
    slurmctld,
    tabular,
    xid,
)
from holdfast.fleet.formats.batch import Format
from holdfast.opening import SNIFFED_BYTES, first_bytes, is_compressed, open_source, read_exactly

# Every format, the most particular first: `detect` takes the first one that recognises a file
FORMATS: list[Format] = [
    sacct_json.FORMAT,
    sacct_text.FORMAT,
    tabular.SLURM_EVENTS,
    tabular.SLURM_QOS,
    inventory.SCONTROL,
    inventory.SINFO,
    slurmctld.SLURMCTLD,
    kubernetes.KUBERNETES,
    monitors.NVSENTINEL,
    monitors.GCM,
    tabular.HEALTH_JSON,
    tabular.HEALTH_CSV,
    tabular.NODE_LOG,
    xid.XID,
    tabular.MAPPED,  # recognises nothing by itself
]


_CHECKED_PIECES = 512  # of an archive in no known format: 32 MiB


def by_name(name: str) -> Format:
    """The format that the user calls `name`.

    Raises:
        InputError: if there is none; the message lists them.
    """
    for known in FORMATS:
        if known.name == name:
            return known
    raise InputError(
        f"format not found: {name!r}",
        code="unknown-name",
        expected=", ".join(known.name for known in FORMATS),
        remedy="leave --format out to let the content decide",
    )


def recognise(path: Path) -> Format | None:
    """The format of a file, or None if none recognises it.

    Raises:
        InputError: if the file cannot be read.
    """
    head = first_bytes(path)
    if not head.strip():
        return None
    form = next((known for known in FORMATS if _fits(known, head, path)), None)
    if form is None and is_compressed(path):
        with open_source(path) as source:  # bzip2 gives rubbish first and finds the damage later
            for _ in range(_CHECKED_PIECES):
                if not read_exactly(source, SNIFFED_BYTES, path):
                    break
    return form


def _fits(known: Format, head: bytes, path: Path) -> bool:
    try:
        return known.sniff(head, path)
    except (ValueError, csv.Error, RecursionError):  # binary files hold anything
        return False


def detect(path: Path) -> Format:
    """The format of a file.

    Raises:
        InputError: if the file cannot be read, is empty, or is in no known format.
    """
    found = recognise(path)
    if found is not None:
        return found
    head = first_bytes(path)
    if not head.strip():
        raise InputError(
            "the file is empty",
            code="empty-input",
            path=path,
            expected="a log, for example the output of `sacct --parsable2`",
            remedy="check the command that wrote it",
        )
    known = "\n".join(f"    {each.name}: {each.describes}" for each in FORMATS)
    raise InputError(
        "unknown log format",
        code="unknown-format",
        path=path,
        found=repr(head[:80].decode(errors="replace")),
        expected=f"one of\n{known}",
        remedy="name the format with --format NAME if one of these should fit",
    )
