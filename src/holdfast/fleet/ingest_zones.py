"""The same jobs in two time zones: settled by the source that says when, or refused.

Most logs print local times without their zone. Read in a wrong one, the attempts of such a log are those of
another log, or of the store, hours earlier or later: every figure would count them twice. Two rows of a job
number from two sources are one attempt if their times of submission, start and end differ by what zones
differ by, and nothing else does; where both have a DBIndex, it alone decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zoneinfo import available_timezones

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import InputError
from holdfast.fleet.formats.columns import Column, flat
from holdfast.fleet.ingest_staging import Stage
from holdfast.fleet.store import Store
from holdfast.numbers import counted

ASSUMED, STATED, KNOWN = range(3)  # Nobody says the zone; the user does; the times themselves do
STORE = -1
_STEP_S = 900  # Zones differ by multiples of it ...
_MOST_S = 26 * 3600  # ... up to this ...
_CLOCKS_S = 3600  # ... and by as much more where one of them has put its clocks forward
_LEAST_SHARE = 0.5  # Of the jobs that two sources share and disagree on
_FIRST = ("UTC", "America/New_York", "America/Chicago", "America/Denver", "America/Los_Angeles",
          "Europe/London", "Europe/Berlin", "Europe/Helsinki", "Asia/Dubai", "Asia/Kolkata",
          "Asia/Shanghai", "Asia/Tokyo", "Australia/Sydney", "America/Sao_Paulo")  # fmt: skip

_JOB = "hash(job_id_raw, CASE WHEN job_id_raw IS NULL THEN job_id END)"
_READ = (
    'cluster, job, db_index, "user", name, state, runtime_s, node_count, submit_s, start_s, end_s'
)

_ONE_CLUSTER = "(one.cluster = two.cluster OR '' IN (one.cluster, two.cluster))"

# Rows of jobs that several sources have, but not all of them at the same time.
_ODD = """CREATE TABLE odd AS WITH every AS (SELECT DISTINCT source, job, submit_s FROM rows), shared AS (
        SELECT job, count(DISTINCT source) AS sources FROM every GROUP BY job HAVING sources > 1
    ), moment AS (
        SELECT job FROM every JOIN shared USING (job) GROUP BY job, submit_s, sources
        HAVING count(*) < sources
    ) FROM rows WHERE job IN (FROM moment)"""
# The shift of most jobs, if that is half of those that the two share and disagree on. Two values an hour
# apart are one zone with a change of clocks.
_BEST = f"""SELECT low.by_s, count(DISTINCT pair.job) AS jobs, shared
    FROM (SELECT DISTINCT by_s FROM pair WHERE a = $1 AND b = $2) AS low
    JOIN pair ON a = $1 AND b = $2 AND pair.by_s BETWEEN low.by_s AND low.by_s + {_CLOCKS_S},
        (SELECT count(DISTINCT job) AS shared FROM odd AS one JOIN odd AS two USING (job)
            WHERE one.source = $1 AND two.source = $2 AND {_ONE_CLUSTER})
    GROUP BY low.by_s, shared HAVING bool_or(strong) AND jobs >= {_LEAST_SHARE} * shared
    ORDER BY jobs DESC, count(*) FILTER (pair.by_s = low.by_s) DESC, abs(low.by_s) LIMIT 1"""
# Times of the wrong source, and when they were by the right one: a few of each quarter of a day.
_CLOCKS = """WITH matched AS (
        SELECT unnest([a1, a2, a3]) AS t, unnest([b1, b2, b3]) AS utc
        FROM pair WHERE a = $1 AND b = $2 AND by_s BETWEEN $3 AND $3 + 3600
        UNION ALL SELECT submit_s, submit_s FROM rows_{} SEMI JOIN rows_{} USING (job, submit_s)
    ) SELECT min(t)::BIGINT AS t, (min(t) + min(utc - t))::BIGINT AS utc FROM matched
    WHERE utc IS NOT NULL AND t IS NOT NULL GROUP BY t // 21600, utc - t"""
_HOURS = """SELECT DISTINCT t - t % 900 AS t FROM (
        SELECT unnest([submit_s, start_s, end_s]) AS t FROM rows_{}) WHERE t IS NOT NULL"""

# `by_s` is what is to be added to the times of the first; where clocks change between the three times of an
# attempt, they differ by an hour. Two times of an attempt that fit are `strong`, one may be chance.
_PAIRS = f"""CREATE TABLE pair AS SELECT *, coalesce(nullif(d2, 0), nullif(d3, 0),
            CASE WHEN coalesce(d2, d3) IS NULL THEN d1 END) AS by_s,
        same_index OR coalesce(d2 <> 0 AND a2 <> a1, false) OR coalesce(d3 <> 0 AND a3 <> a1, false)
            OR coalesce(d2 + d3 <> 0 AND a2 <> a3, false) AS strong
    FROM (
        SELECT job, one.source AS a, two.source AS b,
            one.submit_s AS a1, one.start_s AS a2, one.end_s AS a3,
            two.submit_s AS b1, two.start_s AS b2, two.end_s AS b3,
            b1 - a1 AS d1, b2 - a2 AS d2, b3 - a3 AS d3,
            coalesce(one.db_index = two.db_index, false) AS same_index
        FROM odd AS one JOIN odd AS two USING (job)
        WHERE one.source <> two.source AND one.submit_s IS DISTINCT FROM two.submit_s
            AND {_ONE_CLUSTER}
            AND coalesce(one.db_index = two.db_index, coalesce(one."user" = two."user", true)
                AND coalesce(one.name = two.name, true)
                AND (a3 IS NULL OR b3 IS NULL OR (one.state = two.state
                    AND coalesce(one.runtime_s = two.runtime_s, true)
                    AND coalesce(one.node_count = two.node_count, true))))
    ) WHERE by_s IS NOT NULL AND greatest(d1, d2, d3) - least(d1, d2, d3) <= {_CLOCKS_S}
        AND greatest(abs(d1), abs(d2), abs(d3)) <= {_MOST_S}
        AND coalesce(d1 % {_STEP_S} = 0, true) AND coalesce(d2 % {_STEP_S} = 0, true)
        AND coalesce(d3 % {_STEP_S} = 0, true)"""


@dataclass(frozen=True)
class Source:
    """Attempts of one file, or of a store."""

    path: str
    files: Sequence[Path]  # Parquet files of attempts
    facts: Sequence[Mapping[str, Any]]  # What `Stage.note_zone` noted of the files behind it
    place: int = STORE  # Among the sources of this ingest

    @property
    def trusts(self) -> set[int]:
        """Who says the zone: `ASSUMED`, `STATED`, `KNOWN`; a store may be of several kinds."""
        return {
            KNOWN if each["zone"] is None else STATED if each["zone_stated"] else ASSUMED
            for each in self.facts
        }

    @property
    def zone(self) -> str:
        """The zone that it was read in."""
        return next((each["zone"] for each in self.facts if each["zone"]), "UTC")


@dataclass(frozen=True)
class Shift:
    """Two sources have the same attempts at other times."""

    wrong: Source  # The one that is trusted less
    right: Source
    by_s: int  # What is to be added to the times of `wrong`
    jobs: int  # That are the same so
    shared: int  # That both have, at other times
    zones: tuple[str, ...]  # In which `wrong` is to be read; none: no zone explains it
    certain: bool  # Whether these zones agree on every time of the source

    @property
    def is_settled(self) -> bool:
        """Whether `wrong` may be read again, in the first of the zones, without asking."""
        is_guess = self.wrong.place != STORE and self.wrong.trusts == {ASSUMED}
        return is_guess and ASSUMED not in self.right.trusts and self.certain

    @property
    def note(self) -> str:
        """What the report says of a source that was read in another zone."""
        return (
            f"The times of {self.wrong.path} name no zone; they were read as {self.zones[0]}, which puts "
            f"{counted(self.jobs, 'job')} where {self.right.path} has them."
        )

    def refused(self) -> InputError:
        """The error that names both sources, the shift and the zone to set."""
        wrong, right, hours = self.wrong, self.right, self.by_s / 3600
        remedy = (
            f"set --timezone to that of {wrong.path} ({', '.join(self.zones[:3]) or 'unknown'})"
        )
        if wrong.trusts == right.trusts:
            remedy += f", if the times of {right.path} are right, in an ingest of its own"
        if STORE in (wrong.place, right.place):
            remedy += "; ingest all again into a new store"
        return InputError(
            "two sources have the same jobs in two time zones",
            code="conflict",
            path=wrong.path,
            found=f"{self.jobs:,} of {counted(self.shared, 'shared job')} {abs(hours):g} h "
            f"{'later' if hours > 0 else 'earlier'} in {right.path}",
            expected=f"one time for each attempt; {wrong.path} was read as {wrong.zone}",
            remedy=remedy,
        )


def zones_to_read_in(old: Store | None, read: Sequence[tuple[str, Stage]]) -> dict[int, Shift]:
    """Sources whose zone nobody states and another source tells: place in `read` -> the change.

    Args:
        old: the store as it is.
        read: path and rows of each source of this ingest.

    Raises:
        InputError: if two sources have the same jobs in two zones and nothing settles which is right, or
            a source was read in another zone before (``conflict``).
    """
    entries = [] if old is None else old.facts["sources"]
    before = [{**entry["facts"], "path": entry["path"]} for entry in entries]
    for path, stage in read:
        for known in before:
            _refuse_second_zone(path, stage.facts, known)
    sources = [
        Source(path, stage.files(), [stage.facts], place)
        for place, (path, stage) in enumerate(read)
        if stage.facts["attempts"]
    ]
    known = [each for each in before if each["attempts"]]
    if old is not None and known and sources:
        path = f"the store ({', '.join(each['path'] for each in known)})"
        sources.insert(0, Source(path, old.files("attempts"), known))
    shifts = list(_shifts(sources)) if len(sources) > 1 else []
    settled = {each.wrong.place: each for each in reversed(shifts) if each.is_settled}
    for shift in shifts:
        # What is read again is looked at again.
        if not shift.is_settled and settled.keys().isdisjoint(
            (shift.wrong.place, shift.right.place)
        ):
            raise shift.refused()
    return settled


def _refuse_second_zone(path: str, facts: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    """Refuse a file that the store has already, in another zone."""
    zones = facts["zone"], known["zone"]
    if facts["content"] != known["content"] or None in zones or zones[0] == zones[1]:
        return
    raise InputError(
        "the store has this file already, read in another time zone",
        code="conflict",
        path=path,
        found=f"--timezone {zones[0]}; {zones[1]} before",
        expected="one time for each attempt",
        remedy=f"ingest it into a new store with --timezone {zones[0]}",
    )


def _shifts(sources: Sequence[Source]) -> Iterator[Shift]:
    """Pairs of sources that have the same attempts at other times."""
    spill = sources[-1].files[0].parent / "spill"
    with closing(
        duckdb.connect(config={"memory_limit": "1GB", "temp_directory": str(spill)})
    ) as database:
        for place, source in enumerate(sources):
            files = [str(file) for file in source.files]
            rows = f"SELECT *, {_JOB} AS job FROM read_parquet({files}) WHERE NOT recovered"
            database.execute(f"CREATE VIEW rows_{place} AS {rows}")
        each = [
            f"SELECT {_READ}, {place} AS source FROM rows_{place}" for place in range(len(sources))
        ]
        database.execute(f"CREATE VIEW rows AS {' UNION ALL '.join(each)}")
        database.execute(_ODD)
        database.execute(_PAIRS)
        ways = database.sql("SELECT DISTINCT a, b FROM pair WHERE a > b ORDER BY b, a").fetchall()
        for later, earlier in ways:
            trust = min(sources[later].trusts)
            other = min(sources[earlier].trusts)
            if trust == other == KNOWN:
                continue  # both say when: these are other attempts
            # The one that is trusted less is wrong; of equals one that some zone would put right.
            both = [(later, earlier)] * (trust <= other) + [(earlier, later)] * (other <= trust)
            shifts = [each for way in both if (each := _shift(database, sources, *way))]
            yield from sorted(shifts, key=lambda each: not each.zones)[:1]


def _shift(
    database: duckdb.DuckDBPyConnection, sources: Sequence[Source], wrong: int, right: int
) -> Shift | None:
    """How the times of one source are to be changed to be those of another; None: they are others."""
    best = database.execute(_BEST, [wrong, right]).fetchall()
    if not best:
        return None
    by_s, jobs, shared = best[0]
    clocks = database.sql(
        _CLOCKS.format(wrong, right), params=[wrong, right, by_s]
    ).to_arrow_table()
    times = database.sql(_HOURS.format(wrong)).to_arrow_table()["t"]
    zone = sources[wrong].zone
    zones = zones_that_fit(_wall_clock(clocks["t"], zone), flat(clocks["utc"]))
    read = {tuple(_in_zone(_wall_clock(times, zone), name).to_pylist()) for name in zones}
    return Shift(sources[wrong], sources[right], by_s, jobs, shared, zones, len(read) == 1)


# --- Zones ---------------------------------------------------------------------------------------


def _wall_clock(times: Column, zone: str) -> pa.Array:
    """What a clock in the zone shows at times in seconds since 1970: a timestamp without a zone."""
    return pc.local_timestamp(flat(times).cast(pa.timestamp("s", zone)))


def _in_zone(clock: pa.Array, zone: str, ambiguous: str = "earliest") -> pa.Array:
    """Seconds since 1970 when a clock in the zone shows this."""
    zoned = pc.assume_timezone(clock, zone, ambiguous=ambiguous, nonexistent="latest")
    return zoned.cast(pa.int64())


def zones_that_fit(clock: pa.Array, utc: pa.Array) -> tuple[str, ...]:
    """The zones in which a clock shows what it shows at these times, common ones first."""
    rest = sorted(
        available_timezones(), key=lambda name: ("/" not in name, name[:4] == "Etc/", name)
    )
    fits = []
    for zone in dict.fromkeys([*_FIRST, *rest]):
        try:
            early, late = (_in_zone(clock, zone, which) for which in ("earliest", "latest"))
        except (pa.ArrowInvalid, OSError):  # Arrow's own tables lack it
            continue
        if pc.all(pc.or_(pc.equal(early, utc), pc.equal(late, utc))).as_py():
            fits.append(zone)
    return tuple(fits)
