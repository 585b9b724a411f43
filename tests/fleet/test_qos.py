from __future__ import annotations

from pathlib import Path

from reading import read, rejected, rows

from holdfast.fleet.formats.tabular import SLURM_QOS

COLUMNS = ("qos", "priority", "grace_s", "preempts")


def test_the_testbed(testbed: Path) -> None:
    table = read(SLURM_QOS, testbed / "sacctmgr_qos.txt")["qos"]
    assert rows(table, *COLUMNS) == [
        ("normal", 10, 8, ["low"]),
        ("low", 1, 5, []),
        ("high", 100, 0, ["low", "normal"]),
    ]


def test_a_research_cluster(shared_data: Path) -> None:
    table = read(SLURM_QOS, shared_data / "fleet/gcm/sample-sacctmgr-qos.txt")["qos"]
    assert rows(table, *COLUMNS)[:3] == [
        ("normal1", 0, 0, []),
        ("normal2", 1, 0, []),
        ("normal3", 100, 0, ["lowest"]),
    ]


def test_bad_rows(tmp_path: Path) -> None:
    path = tmp_path / "qos.txt"
    path.write_text("Name|Priority|GraceTime\nlow|1|1-00:00:10\n|2|00:00:00\nhigh|9\n")
    tables = read(SLURM_QOS, path)
    assert rows(tables["qos"], *COLUMNS) == [("low", 1, 86410, [])]
    assert rejected(tables) == [(3, "no name"), (4, "another number of fields than the header")]
