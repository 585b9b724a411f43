"""Kernel messages of the NVIDIA driver: ``NVRM: Xid (PCI:0000:3b:00): 79, ... fallen off the bus``.

Out of `dmesg -T` (also `--time-format iso`), `journalctl -k` (short, short-iso, short-full) and
syslog files; every other line is passed over. A line that names no host takes it from the file's name
(``dmesg-node05.log``) or its folder; a time without a year gets the last year in which it does not lie
after the file's modification time. Both are noted as inferred.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.fleet.formats.batch import Batch, Format, ReadOptions
from holdfast.fleet.formats.source import Rejects, blocks
from holdfast.fleet.schema import HEALTH

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


@dataclass
class _Lines:
    """What is read of one file, and what had to be guessed."""

    path: Path
    zone: tzinfo
    rows: list[dict[str, object]] = field(default_factory=list)
    hosts_guessed: bool = False
    years_guessed: bool = False

    def add(self, line: str) -> str | None:
        """Read one line that contains an XID; the reason if it cannot be used."""
        said = _XID.search(line)
        if said is None:
            return "not a whole XID message"
        for pattern in _PREFIXES:
            if prefix := pattern.match(line):
                return self._keep(self._time(prefix.groupdict()), prefix["host"], said)
        if _UPTIME.match(line):
            return "time since boot only (print it with `dmesg -T`)"
        return "no time that can be read"

    def _keep(self, time_s: float | None, host: str | None, said: re.Match[str]) -> str | None:
        if time_s is None:
            return "no time that can be read"
        if not host:
            host = host_of_file(self.path)
            self.hosts_guessed = True
        if not host:
            return "no host in the line or the file's name"
        xid = int(said["xid"])
        self.rows.append(
            {
                "time_s": time_s,
                "node": host,
                "check": f"xid {xid}",
                "severity": "",
                "result": "fail",
                "message": said["said"],
                "xid": xid,
            }
        )
        return None

    def _time(self, parts: dict[str, str | None]) -> float | None:
        try:
            if iso := parts.get("iso"):
                zone = (parts.get("zone") or "").strip().replace("UTC", "Z")
                stamp = datetime.fromisoformat(re.sub(r"[.,](\d{1,6})\d*$", r".\1", iso) + zone)
            else:
                month = _MONTHS.index(parts["month"] or "") + 1
                rest = f"-{month:02}-{int(parts['day'] or 0):02}T{parts['clock']}"
                stamp = self._in_some_year(rest, parts.get("year"))
        except ValueError:
            return None
        return (stamp if stamp.tzinfo else stamp.replace(tzinfo=self.zone)).timestamp()

    def _in_some_year(self, rest: str, year: str | None) -> datetime:
        if year is not None:
            return datetime.fromisoformat(year + rest)
        self.years_guessed = True
        latest = datetime.fromtimestamp(self.path.stat().st_mtime, UTC) + timedelta(days=1)
        for candidate in range(latest.year, latest.year - 9, -1):  # 29 February: up to 8 years back
            try:
                stamp = datetime.fromisoformat(f"{candidate}{rest}").replace(tzinfo=self.zone)
            except ValueError:
                continue
            if stamp <= latest:
                return stamp
        raise ValueError("no such day")

    def facts(self) -> dict[str, object]:
        notes = []
        if self.hosts_guessed:
            notes.append(f"{self.path.name}: the node of its XIDs is taken from the file's name")
        if self.years_guessed:
            notes.append(
                f"{self.path.name}: its times carry no year; taken as the last year that does not "
                "lie after the file's modification time"
            )
        return {"inferred": notes} if notes else {}


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
    lines = _Lines(path, options.timezone)
    for block in blocks(path):
        texts = block.lines()
        said = pc.match_substring(texts, "NVRM: Xid")
        numbers = pc.indices_nonzero(said).to_pylist()
        for number, text in zip(numbers, texts.filter(said).to_pylist(), strict=True):
            if reason := lines.add(text):
                rejects.add(block.first_line + number, reason, text)
        table = pa.Table.from_pylist(lines.rows, schema=HEALTH)
        lines.rows.clear()
        yield Batch({"health": table, "rejects": rejects.table()}, block.end, facts=lines.facts())


XID = Format(
    "xid",
    "kernel logs with NVIDIA XIDs (dmesg -T, journalctl, syslog)",
    _sniff,
    _read,
)
