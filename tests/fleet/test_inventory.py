from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reading import read, rejected, rows

from holdfast.fleet import ingest
from holdfast.fleet.formats.inventory import SCONTROL, SINFO
from holdfast.fleet.log import open_log

COLUMNS = ("node", "gpus", "cpus", "state", "reason")


def test_scontrol_of_the_testbed(testbed: Path) -> None:
    nodes = read(SCONTROL, testbed / "scontrol_nodes.txt")["nodes"]
    assert nodes.num_rows == 16
    assert rows(nodes, *COLUMNS)[0] == ("node01", 8, 96, "IDLE+PLANNED", None)
    assert set(nodes.column("gpus").to_pylist()) == {8}
    assert set(nodes.column("inferred").to_pylist()) == {False}


def test_sinfo_of_the_testbed(testbed: Path) -> None:
    nodes = read(SINFO, testbed / "sinfo.txt")["nodes"]
    assert rows(nodes, *COLUMNS)[13:] == [
        ("node14", 8, 96, "mixed", None),
        ("node15", 8, 96, "planned", None),
        ("node16", 8, 96, "mixed", None),
    ]


def test_a_node_in_two_partitions_is_one_row(shared_data: Path) -> None:
    nodes = read(SINFO, shared_data / "fleet/gcm/sample-sinfo-output.txt")["nodes"]
    assert rows(nodes, *COLUMNS) == [
        ("node0201", 8, 80, "drain*", "replace"),
        ("node1537", 8, 80, "alloc", None),
        ("node4180", 2, 80, "alloc", None),
    ]


def test_plain_sinfo_with_host_lists(tmp_path: Path) -> None:
    path = tmp_path / "sinfo.txt"
    path.write_text(
        "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\n"
        "main*        up   infinite      2  down* n[1-2]\n"
        "main*        up   infinite      1   idle n7\n"
        "spare        up   infinite      1   idle n7\n"
        "spare        up   infinite      1   idle n[8-\n"
        "spare up\n"
    )
    tables = read(SINFO, path)
    assert rows(tables["nodes"], *COLUMNS) == [
        ("n1", None, None, "down*", None),
        ("n2", None, None, "down*", None),
        ("n7", None, None, "idle", None),
    ]
    assert rejected(tables) == [
        (5, "no node list that can be read"),
        (6, "another number of fields than the header"),
    ]


def test_scontrol_in_one_line_and_reasons(tmp_path: Path) -> None:
    path = tmp_path / "nodes.txt"
    path.write_text(
        "NodeName=a1 Arch=x86_64 CPUTot=64 Gres=gpu:h100:4(S:0-1),nic:2 OS=Linux 6.1 #1 State=DOWN+DRAIN "
        "CfgTRES=cpu=64,gres/gpu=4 Reason=hc: pcie aer errors [root@2026-11-20T10:00:00] Comment=x\n"
        "NodeName=a2 CPUTot=64 Gres=(null) State=IDLE CfgTRES=cpu=64\n"
        "NodeName=a3 CPUTot=64\n"
    )
    tables = read(SCONTROL, path)
    assert rows(tables["nodes"], *COLUMNS) == [
        ("a1", 4, 64, "DOWN+DRAIN", "hc: pcie aer errors"),
        ("a2", 0, 64, "IDLE", None),
    ]
    assert rejected(tables) == [(3, "not a whole node (NodeName, State)")]


NODE = st.tuples(
    st.integers(0, 16),
    st.integers(1, 512),
    st.sampled_from(["IDLE", "MIXED+DRAIN", "DOWN*+DRAIN", "ALLOCATED"]),
    st.none() | st.from_regex(r"[a-zA-Z:.]{2,10}( [a-z0-9]{1,8}){0,4}", fullmatch=True),
)


@pytest.mark.examples(10)
@settings(max_examples=40)
@given(st.lists(NODE, min_size=1, max_size=6), st.booleans())
def test_scontrol_round_trip(
    tmp_path_factory: pytest.TempPathFactory,
    nodes: list[tuple[int, int, str, str | None]],
    one_line: bool,
) -> None:
    blocks, expected = [], []
    for number, (gpus, cpus, state, reason) in enumerate(nodes):
        lines = [
            f"NodeName=n{number} Arch=x86_64 CoresPerSocket=8",
            f"CPUAlloc=0 CPUEfctv={cpus} CPUTot={cpus} CPULoad=0.11",
            f"Gres={f'gpu:h100:{gpus}' if gpus else '(null)'}",
            f"State={state} ThreadsPerCore=1",
        ]
        if reason:
            lines.append(f"Reason={reason} [root@2026-11-20T10:49:13]")
        blocks.append((" " if one_line else "\n   ").join(lines) + ("\n" if one_line else "\n\n"))
        expected.append((f"n{number}", gpus, cpus, state, reason))
    path = tmp_path_factory.mktemp("nodes") / "nodes.txt"
    path.write_text("".join(blocks))
    reasons = ("none", "n/a", "null", "None", "NONE", "Unknown", "unknown", "UNKNOWN")
    found = rows(read(SCONTROL, path)["nodes"], *COLUMNS)
    assert found == [(*row[:4], None if row[4] in reasons else row[4]) for row in expected]


def test_sinfo_with_a_delimiter_in_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "sinfo.txt"
    path.write_text(
        "NODELIST|STATE|GRES|REASON|USER\n"
        "n1|drained|gpu:h100:8|cable reseat | ticket 4711|root\n"
        "n2|idle|gpu:h100:8|none|Unknown\n"
    )
    assert rows(read(SINFO, path)["nodes"], "node", "gpus", "reason") == [
        ("n1", 8, "cable reseat | ticket 4711"),
        ("n2", 8, None),
    ]


def test_sinfo_as_it_prints_by_default(tmp_path: Path) -> None:
    """`sinfo -N -l`, with the time above, and `sinfo -R`: reasons of several words, last and first."""
    listed, reasons = tmp_path / "nodes.txt", tmp_path / "reasons.txt"
    listed.write_text(
        "Sat Nov 28 17:00:00 2026\n"
        "NODELIST   NODES PARTITION       STATE CPUS    S:C:T MEMORY TMP_DISK WEIGHT AVAIL_FE REASON\n"
        "node08         1     main*       down*   96  2:24:2 500000       0      1 (null) Not responding\n"
        "node09         1     main*        idle   96   2:24:2 500000        0      1   (null) none\n"
    )
    reasons.write_text(
        "REASON               USER      TIMESTAMP           NODELIST\n"
        "NHC: GPU 3 is lost   root      2025-03-01T14:31:07 node[08,10]\n"
        "maintenance          slurm     2025-03-01T14:31:07 node11\n"
    )
    found = read(SINFO, listed)
    assert (len(found["rejects"]), rows(found["nodes"], *COLUMNS)) == (
        0,
        [("node08", None, 96, "down*", "Not responding"), ("node09", None, 96, "idle", None)],
    )
    found = read(SINFO, reasons)
    assert (len(found["rejects"]), rows(found["nodes"], "node", "reason")) == (
        0,
        [*((f"node{n}", "NHC: GPU 3 is lost") for n in ("08", "10")), ("node11", "maintenance")],
    )
    # Reasons that come later change what they say alone.
    whole = tmp_path / "whole.txt"
    whole.write_text("NodeName=node08 CPUTot=96 Gres=gpu:8 State=DOWN Reason=old\n")
    ingest([whole], tmp_path / "store")
    ingest([reasons], tmp_path / "store")
    log = open_log(tmp_path / "store")
    assert log.rows(f"SELECT gpus, cpus, state, reason FROM {log.table('nodes')} ORDER BY node")[
        0
    ] == {"gpus": 8, "cpus": 96, "state": "DOWN", "reason": "NHC: GPU 3 is lost"}


def test_slices_are_no_gpus(tmp_path: Path) -> None:
    """Whatever CfgTRES sums of them."""
    node = "NodeName={} CPUTot=96\n   Gres={}\n   State=IDLE CfgTRES=cpu=96,gres/gpu={}\n\n"
    path = tmp_path / "nodes.txt"
    path.write_text(node.format("n1", "gpu:1g.10gb:56", 56) + node.format("n2", "gpu:h100:8", 8))
    assert rows(read(SCONTROL, path)["nodes"], "node", "gpus") == [("n1", 0), ("n2", 8)]
