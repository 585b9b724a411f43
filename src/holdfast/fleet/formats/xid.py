"""Kernel messages of the NVIDIA driver: ``NVRM: Xid (PCI:0000:3b:00): 79, ... fallen off the bus``.

Out of `dmesg -T` (also `--time-format iso`), `journalctl -k` (short, short-iso, short-full) and
syslog files; every other line is passed over. A line that names no host takes it from the file's name
(``dmesg-node05.log``) or its folder; a time without a year gets the last year in which it lies neither
after the file's modification time (that of a copy is late) nor half a year after the last job. Both are
noted as inferred.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, tzinfo
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.fleet.formats.batch import Batch, Format, ReadOptions
from holdfast.fleet.formats.source import Rejects, blocks
from holdfast.fleet.schema import HEALTH, Row

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_XID = re.compile(r"NVRM: (?P<said>Xid \((?:PCI:)?[0-9a-fA-F:.]+\): (?P<xid>\d{1,5})\b.*)")
_DATE = r"(?P<month>[A-Z][a-z]{2}) +(?P<day>\d{1,2}) (?P<clock>\d\d:\d\d:\d\d)"
_ISO = (
    r"(?P<iso>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?)"
    r"(?P<zone> ?(?:Z|UTC|[+-]\d\d:?\d\d)(?= ))?"
)
_PREFIXES = (
    # node05: [Fri Nov 20 10:49:15 2026] ...   (`dmesg -T`, through clush or pdsh with the host)
    re.compile(rf"(?:(?P<host>[\w.\-]+): )?\[(?:[A-Z][a-z]{{2}} ){_DATE} (?P<year>\d{{4}})\] "),
    # 2026-11-20T10:49:15+0000 node05 kernel:  (journal short-iso, syslog with ISO times)
    re.compile(rf"(?:[A-Z][a-z]{{2}} )?{_ISO} (?P<host>[\w.\-]+) [\w.\-/]+(?:\[\d+\])?: "),
    # 2026-11-20T10:49:15,123456+00:00 NVRM:   (`dmesg --time-format iso`)
    re.compile(rf"(?:(?P<host>[\w.\-]+): )?{_ISO} "),
    # Nov 20 10:49:15 node05 kernel:           (syslog, journal short): no year
    re.compile(rf"(?:<\d+>)?{_DATE}(?:\.\d+)? (?P<host>[\w.\-]+) [\w.\-/]+(?:\[\d+\])?: "),
)
_FILE_WORDS = re.compile(
    r"^(?:dmesg|kern|kernel|journal|journalctl|messages|syslog|xid|nvrm|log|txt|json|gz|xz|bz2|zst|\d*)$",
    re.IGNORECASE,
)
_UPTIME = re.compile(r"\[ *\d+\.\d+\] ")


_LOCAL = "its times carry no zone"
_HOST_GUESSED = "the node of its XIDs is taken from the file's name"
_YEAR_GUESSED = (
    "its times carry no year; {} is the last that fits the jobs of the store and the file's time of "
    "modification"
)
HALF_A_YEAR_S = 183 * 86_400


def _event(line: str, path: Path, zone: tzinfo, latest: datetime, guessed: set[str]) -> Row:
    """The event of one line with an XID; what had to be guessed goes to `guessed`.

    Raises:
        ValueError: saying why the line cannot be used.
    """
    said = _XID.search(line)
    if said is None:
        raise ValueError("not a whole XID message")
    prefix = next((match for each in _PREFIXES if (match := each.match(line))), None)
    if prefix is None and _UPTIME.match(line):
        raise ValueError("time since boot only (print it with `dmesg -T`)")
    parts = prefix.groupdict() if prefix else {}
    time_s = _time(parts, zone, latest, guessed)
    if time_s is None:
        raise ValueError("no time that can be read")
    host = parts["host"]
    if not host:
        host = host_of_file(path)
        guessed.add(_HOST_GUESSED)
    if not host:
        raise ValueError("no host in the line or the file's name")
    xid = int(said["xid"])
    return {
        "time_s": time_s,
        "node": host,
        "check": f"xid {xid}",
        "severity": "",
        "result": "fail",
        "message": said["said"],
        "xid": xid,
    }


def _time(
    parts: dict[str, str | None], zone: tzinfo, latest: datetime, guessed: set[str]
) -> float | None:
    """Seconds since 1970; None if the parts are no time. Without a year it is at most `latest`."""
    if iso := parts.get("iso"):
        fine = re.sub(r"[.,](\d{1,6})\d*$", r".\1", iso)
        texts = [fine + (parts["zone"] or "").strip().replace("UTC", "Z")]
    elif (month := parts.get("month")) in _MONTHS:
        day = f"-{_MONTHS.index(month) + 1:02}-{int(parts['day'] or 0):02}T{parts['clock']}"
        every = range(latest.year, latest.year - 9, -1)  # 29 February
        texts = [f"{year}{day}" for year in ([parts["year"]] if parts.get("year") else every)]
    else:
        return None
    for text in texts:
        try:
            stamp = datetime.fromisoformat(text)
        except ValueError:
            continue
        if stamp.tzinfo is None:
            guessed.add(_LOCAL)
            stamp = stamp.replace(tzinfo=zone)
        if len(texts) == 1:
            return stamp.timestamp()
        if stamp <= latest:
            guessed.add(_YEAR_GUESSED.format(stamp.year))
            return stamp.timestamp()
    return None


def host_of_file(path: Path) -> str | None:
    """The host that a file's name or else its folder's speaks of: ``dmesg-node05.log`` -> node05."""
    hosts = []
    for word in re.split(r"[._]", path.name):
        parts = word.split("-")
        while len(parts) > 1 and _FILE_WORDS.match(parts[0]):
            parts.pop(0)
        while len(parts) > 1 and _FILE_WORDS.match(parts[-1]) and not parts[-1].isdecimal():
            parts.pop()
        host = "-".join(parts)
        if host and not _FILE_WORDS.match(host):
            hosts.append(host)
    if len(hosts) == 1:
        return hosts[0]
    folder = path.resolve().parent.name
    return folder if not hosts and re.search(r"\d", folder) else None


def _sniff(head: bytes, path: Path) -> bool:
    if b"kernel" not in head and b"NVRM: Xid" not in head:
        return False
    lines = [line for line in head.decode(errors="replace").splitlines() if line.strip()][:50]
    shaped = sum(
        any(pattern.match(line) for pattern in _PREFIXES) or bool(_UPTIME.match(line))
        for line in lines
    )
    return 2 * shaped > len(lines)


def _read(path: Path, options: ReadOptions) -> Iterator[Batch]:
    rejects = Rejects(str(path))
    guessed = set()
    last_s = path.stat().st_mtime + 86_400
    if options.last_job_s:
        last_s = min(last_s, options.last_job_s + HALF_A_YEAR_S)
    latest = datetime.fromtimestamp(last_s, UTC)
    for block in blocks(path):
        rows = []
        texts = block.lines()
        said = pc.match_substring(texts, "NVRM: Xid")
        numbers = pc.indices_nonzero(said).to_pylist()
        for number, text in zip(numbers, texts.filter(said).to_pylist(), strict=True):
            try:
                rows.append(_event(text, path, options.timezone, latest, guessed))
            except ValueError as error:
                rejects.add(block.first_line + number, str(error), text)
        notes = [f"{path.name}: {what}" for what in sorted(guessed - {_LOCAL}, reverse=True)]
        facts = {"local_times": int(_LOCAL in guessed)}
        facts |= {"inferred": notes} if notes else {}
        table = pa.Table.from_pylist(rows, schema=HEALTH)
        yield Batch({"health": table, "rejects": rejects.table()}, block.end, facts=facts)


XID = Format("xid", "kernel logs with NVIDIA XIDs (dmesg -T, journalctl, syslog)", _sniff, _read)
