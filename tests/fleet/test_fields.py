"""Times, states, GPUs, host lists and keys: cases from the Slurm manual and the IANA time zones."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.fleet.formats.batch import ReadOptions
from holdfast.fleet.formats.columns import row_key
from holdfast.fleet.formats.fields import (
    duration_s,
    gpus_of,
    is_blank,
    parse_exit_code,
    parse_instant,
    parse_integer,
    parse_time,
    state_of,
)
from holdfast.fleet.formats.hosts import excluded_hosts, hosts_of, parse_hosts
from holdfast.fleet.formats.sacct_text import FORMAT as SACCT

UTC_ZONE = ZoneInfo("UTC")
BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2026-11-20T10:49:15", 1795171755),
        ("2026-11-20 10:49:15", 1795171755),
        ("2026-11-20T10:49:15Z", 1795171755),
        ("2026-11-20T11:49:15+01:00", 1795171755),
        ("2026-11-20T11:49:15+0100", 1795171755),
        ("2026-11-20T10:49:15.75", 1795171755),
        ("1795171755", 1795171755),
        ("Unknown", None),
        ("None", None),
        ("N/A", None),
        ("", None),
        ("0", None),
        ("1970-01-01T01:00:00", None),
        ("1969-12-31T16:00:00", None),
        ("2026-02-30T00:00:00", None),
        ("2026-13-01T00:00:00", None),
        ("tomorrow", None),
    ],
)
def test_time_by_itself_and_among_others(text: str, seconds: int | None) -> None:
    assert parse_time(pa.array([text]), UTC_ZONE).to_pylist() == [seconds]
    mixed = pa.array(["2026-11-20T10:49:15", text, None, "Unknown", "1795171755"])
    assert parse_time(mixed, UTC_ZONE)[1].as_py() == seconds


@given(st.datetimes(datetime(1971, 1, 2), datetime(2037, 1, 1)), st.sampled_from([0, 1]))
def test_local_time_agrees_with_zoneinfo(moment: datetime, fold: int) -> None:
    local = moment.replace(microsecond=0)
    ours = parse_time(
        pa.array([local.isoformat()]), BERLIN, ambiguous=("earliest", "latest")[fold]
    )[0].as_py()
    aware = local.replace(tzinfo=BERLIN, fold=fold)
    exists = aware.astimezone(UTC).astimezone(BERLIN).replace(tzinfo=None) == local
    if exists:
        assert ours == int(aware.timestamp())
    else:  # the hour that the clocks skip: the first moment after the gap
        assert datetime.fromtimestamp(ours, BERLIN).replace(tzinfo=None) >= local


def test_instants_keep_fractions() -> None:
    assert parse_instant(pa.array(["2026-11-20T10:49:15.250"]), UTC_ZONE).to_pylist() == [
        1795171755.25
    ]
    fine = ["2026-11-20T10:49:15.250000999", "2026-11-20 11:49:15.25000012+01:00", "1795171755.25"]
    assert parse_instant(pa.array(fine), UTC_ZONE).to_pylist() == [1795171755.25] * 3


@given(st.integers(0, 10**7))
def test_durations_as_slurm_prints_them(seconds: int) -> None:
    days, rest = divmod(seconds, 86400)
    clock = f"{rest // 3600:02}:{rest % 3600 // 60:02}:{rest % 60:02}"
    assert duration_s(f"{days}-{clock}" if days else clock) == seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("03:04.567", 184),
        ("1-02", 93600),
        ("1-02:03", 93780),
        ("UNLIMITED", None),
        ("Partition_Limit", None),
        ("", None),
        ("5", None),
    ],
)
def test_odd_durations(text: str, seconds: int | None) -> None:
    assert duration_s(text) == seconds


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("CANCELLED by 1001", "CANCELLED"),
        ("CANCELLED+", "CANCELLED"),
        ("OUT_OF_ME+", "OUT_OF_MEMORY"),
        ("NF", None),  # of squeue, not of sacct
        ("RES+", None),  # RESIZING or RESV_DEL_HOLD
        ("0:0", None),
        ("fake", None),
        ("FAILED --time=1 ./sweep.sh 6", None),
        ("", None),
    ],
)
def test_states(text: str, state: str | None) -> None:
    assert state_of(text) == state


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        ("billing=128,cpu=128,gres/gpu:h100=32,gres/gpu=32,mem=125G,node=4", 32),
        ("cpu=3,gres/gpu:a100=4,gres/gpu:v100=2", 6),
        ("gres/gpu=8", 8),
        ("gpu:8", 8),
        ("gpu", 1),
        ("gpu:a100:8(S:0-1)", 8),
        ("gpu:a100:2(IDX:0,3),gpu:v100:1(IDX:1)", 3),
        ("gres:gpu:4", 4),
        ("gres/gpumem=3,gres/gpuutil=99", 0),
        ("cpu=8,gres/gpu=1e3,node=1", -1),
        ("gres/gpu=-8", -1),
        ("gres/gpu:a100=x,gres/gpu=8", -1),
        ("cpu=1,mem=64G,node=1", 0),
        # Slices (MIG), in Slurm's TRES and Gres, beside whole GPUs and as a whole one.
        ("cpu=2,gres/gpu:1g.10gb=1,gres/gpu=1", 0),
        ("gpu:nvidia_h100_80gb_hbm3_1g.10gb:56(S:0-1)", 0),
        ("gres/gpu=6,gres/gpu:a100_2g.10gb=4,gres/gpu:a100=2", 2),
        ("gpu:a100:4,gpu:3g.20gb:8", 4),
        ("gres/gpu:7g.80gb=1,gres/gpu=1", 1),
        ("", None),
        ("(null)", None),
    ],
)
def test_gpus(text: str, gpus: int | None) -> None:
    assert gpus_of(text) == gpus


def test_a_damaged_number_of_gpus_is_a_reject(tmp_path: Path) -> None:
    rows = ["8", "1e3", "-8"]
    path = tmp_path / "sacct.psv"
    rest = "COMPLETED|2026-01-05T00:00:00|2026-01-05T01:00:00|1|a"
    lines = [f"{n}|{rest}|gres/gpu={text}" for n, text in enumerate(rows, 1)]
    path.write_text("\n".join(["JobID|State|Start|End|NNodes|NodeList|AllocTRES", *lines]))
    tables = [batch.tables for batch in SACCT.batches(path, ReadOptions())]
    assert tables[0]["attempts"]["gpus"].to_pylist() == [8]
    assert tables[0]["rejects"]["line"].to_pylist() == [3, 4]


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("node[01-04,7]", ["node01", "node02", "node03", "node04", "node7"]),
        ("a,b[1-2]", ["a", "b1", "b2"]),
        ("rack[1-2]n[1-2]", ["rack1n1", "rack1n2", "rack2n1", "rack2n2"]),
        ("node[3,1-2]-ib", ["node1-ib", "node2-ib", "node3-ib"]),
        ("nid[1-3],login1", ["login1", "nid1", "nid2", "nid3"]),
        (
            "cn[01,03].hpc,r[1-2]n[09-10]x",
            [
                "cn01.hpc",
                "cn03.hpc",
                "r1n09x",
                "r1n10x",
                "r2n09x",
                "r2n10x",
            ],
        ),
        ("fg-v020", ["fg-v020"]),
        ("None assigned", []),
        ("", []),
        ("node[01-", None),
        ("node[01-04", None),
        ("node[1-99999999999]", None),
        ("node[4-2]", None),
        ("a[1-1000]b[1-1000]c[1-1000]", None),
        ("node[1" + "0" * 5000 + "]", None),
        ("node[1-900000]" + "x" * 5000, None),
        ("node[1,,2]", None),
        ("node[01-3]", None),
        ("node]1[", None),
        ("a[1[2]]", None),
        ("a[]", None),
        ("a,,b", None),
        ("@all", None),
        ("two words", None),
        ("8*c01:8*c02:16*c03", ["c01", "c02", "c03"]),
        ("c1/0*8+c2/0-3+c2/4,5+c4/1", ["c1", "c2", "c4"]),
        ("c1.hpc c2.hpc", ["c1.hpc", "c2.hpc"]),
        ("c[1-2]; d7", ["c1", "c2", "d7"]),
        ("['c1', 'c2']", ["c1", "c2"]),
        ("17:18", ["17", "18"]),
        ("c1:8,c2:8", None),
        ("c1 8", None),
        ("c001,c00+", None),
        ("c[001,008,0+", None),
    ],
)
def test_hosts(text: str, hosts: list[str] | None) -> None:
    assert hosts_of(text) == hosts
    assert parse_hosts(pa.array([text, "x"])).to_pylist() == [hosts, ["x"]]


@given(st.sets(st.integers(0, 3000), min_size=1, max_size=60))
def test_hosts_agree_with_the_library_that_folds_them(numbers: set[int]) -> None:
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet

    names = sorted(f"node{number:04}" for number in numbers)
    folded = str(NodeSet.fromlist(names, resolver=RESOLVER_NOGROUP))
    assert hosts_of(folded) == names


_RANGE = st.tuples(st.integers(0, 120), st.integers(0, 9), st.integers(1, 4)).map(
    lambda r: f"{r[0]:0{r[2]}}-{r[0] + r[1]:0{r[2]}}" if r[1] else f"{r[0]:0{r[2]}}"
)
_BRACKET = st.lists(_RANGE, min_size=1, max_size=8).map(lambda each: f"[{','.join(each)}]")
_NAME = st.from_regex(r"[a-z][a-z0-9.-]{0,3}[a-z]", fullmatch=True)
_GROUP = st.tuples(_NAME, _BRACKET, _NAME, _BRACKET, st.sampled_from(["", "-ib", ".hpc", "7"])).map(
    lambda parts: "".join(parts)
)
_PLAIN_GROUP = st.tuples(_NAME, _BRACKET, st.sampled_from(["", "-ib", ".hpc", "7"])).map("".join)


@given(st.lists(_GROUP | _PLAIN_GROUP | _NAME, min_size=1, max_size=3).map(",".join))
def test_hosts_are_those_of_cluster_shell(text: str) -> None:
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

    try:
        expected = sorted(NodeSet(text, resolver=RESOLVER_NOGROUP))
    except NodeSetException:
        expected = None
    assert hosts_of(text) == expected


@pytest.mark.parametrize("behind", ["-ib", ".hpc", ",login1", "!", ""])
def test_a_long_list_takes_a_moment(behind: str) -> None:
    ranges = ",".join(f"{low:06}-{low + 1:06}" for low in range(1000, 3000, 4))
    hosts = hosts_of(f"nid[{ranges}]{behind}")
    assert hosts is None if behind == "!" else hosts and len(hosts) == 1000 + (behind == ",login1")
    assert excluded_hosts(pa.array(["sbatch -x" + " " * 50_000])).to_pylist() == [[]]


def test_excluded_hosts_of_submit_lines() -> None:
    lines = [
        "sbatch -N1 --exclude=node05,node16 ./a.sh",
        "sbatch -x node[1-2] b.sh",
        "srun --exclude node03 c.sh",
        "sbatch -xnode9 d.sh",
        "sbatch --exclusive e.sh",
        None,
    ]
    assert excluded_hosts(pa.array(lines)).to_pylist() == [
        ["node05", "node16"],
        ["node1", "node2"],
        ["node03"],
        ["node9"],
        [],
        [],
    ]


def test_exit_codes_and_integers() -> None:
    code, signal = parse_exit_code(pa.array(["1:15", "0:0", "", "junk"]))
    assert code.to_pylist() == [1, 0, None, None]
    assert signal.to_pylist() == [15, 0, None, None]
    assert parse_integer(pa.array(["12", "", None, "x", "-3"])).to_pylist() == [
        12,
        None,
        None,
        None,
        -3,
    ]
    assert is_blank(pa.array(["", None, "Unknown", "0"])).to_pylist() == [True, True, True, False]


def test_equal_rows_have_equal_keys_and_no_others() -> None:
    rows = [(c, r, s, b) for c in ("", "a", None) for r in range(-50, 50) for s in (0, 1, None)
            for b in (False, True)]  # fmt: skip
    columns = [pa.array(list(column)) for column in zip(*rows, strict=True)]
    keys = row_key(*columns).to_pylist()
    assert len(set(keys)) == len(rows)
    backwards = [pa.array(list(column)) for column in zip(*reversed(rows), strict=True)]
    assert row_key(*backwards).to_pylist() == keys[::-1]
