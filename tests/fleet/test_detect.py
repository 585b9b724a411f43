from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.errors import InputError
from holdfast.fleet.formats import detect, recognise

EXPECTED = {
    "gcm/sample-sacctmgr-qos.txt": "slurm-qos",
    "gcm/sample-sinfo-output.txt": "sinfo",
    "gcm/sample-scontrol-output.txt": None,
    "gcm/sample-scontrol-show-config-output.txt": None,
    "gcm/sinfo-output-for-structured.txt": None,
    "gcm/LICENSE": None,
    "sarc/LICENSE": None,
    "SOURCE.txt": None,
    "slurm_testbed/README.md": None,
    "slurm_testbed/health_events.jsonl": "health-jsonl",
    "slurm_testbed/sacctmgr_events.txt": "slurm-events",
    "slurm_testbed/sacctmgr_qos.txt": "slurm-qos",
    "slurm_testbed/sacctmgr_assoc.txt": None,
    "slurm_testbed/scontrol_nodes.txt": "scontrol-nodes",
    "slurm_testbed/scontrol_config.txt": None,
    "slurm_testbed/scontrol_jobs.txt.gz": None,
    "slurm_testbed/scontrol_partition.txt": None,
    "slurm_testbed/sinfo.txt": "sinfo",
    "slurm_testbed/squeue.txt": None,
    "slurm_testbed/slurmctld.log.gz": "slurmctld",
}


def expected(name: str) -> str | None:
    if name in EXPECTED:
        return EXPECTED[name]
    if "sacct" in name and name.endswith((".txt", ".psv.gz")):
        return "sacct"
    return None if "truth_" in name else "sacct-json"


def test_every_real_file_is_told_apart(shared_data: Path) -> None:
    folder = shared_data / "fleet"
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    found = {
        str(path.relative_to(folder)): known.name if (known := recognise(path)) else None
        for path in files
    }
    assert found == {name: expected(name) for name in found}
    assert EXPECTED.keys() <= found.keys()


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("time,node,check,severity,message\n", "health-csv"),
        ("opened;host;check;message\n", "health-csv"),
        ("node,start,end,cause\n", "node-log"),
        ("NodeName|TimeStart|TimeEnd|State\n", "slurm-events"),
        ('{"time": 1, "node": "a", "check": "ticket"}\n', "health-jsonl"),
        ('{"node": "a", "health_check": "x", "result": 0, "end_time": 1.0}\n', "gcm"),
        ("[Fri Nov 20 10:49:15 2026] NVRM: Xid (PCI:0000:3b:00): 79, x\n", "xid"),
        ("NodeName=a1 Arch=x86_64\n   State=IDLE\n", "scontrol-nodes"),
        ("hello\n", None),
        ('{"a": 1}\n', None),
        ("a,b\n1,2\n", None),
        ("\x00\x01\x02", None),
    ],
)
def test_first_lines(tmp_path: Path, text: str, name: str | None) -> None:
    path = tmp_path / "input"
    path.write_text(text)
    known = recognise(path)
    assert (known.name if known else None) == name


def test_no_log_at_all(tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_text("hello\n")
    with pytest.raises(InputError) as caught:
        detect(path)
    assert caught.value.code == "unknown-format"
