"""Control groups of both versions, nested, decide how many cores and how much memory there are."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.data.pipeline.machine import resources


def machine(root: Path, groups: str, files: dict[str, str]) -> Path:
    for name, text in {
        "proc/self/cgroup": groups,
        "proc/meminfo": "MemTotal: 999 kB\nMemAvailable:   8388608 kB\n",
        **files,
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("groups", "files", "cores"),
    [
        ("0::/a/b\n", {"sys/fs/cgroup/a/b/cpu.max": "50000 100000\n"}, 0.5),
        # the group above is narrower
        (
            "0::/a/b\n",
            {
                "sys/fs/cgroup/a/b/cpu.max": "90000 100000\n",
                "sys/fs/cgroup/a/cpu.max": "25000 100000\n",
            },
            0.25,
        ),
        # inside a container the group's path is the host's
        ("0::/docker/1f\n", {"sys/fs/cgroup/cpu.max": "75000 100000\n"}, 0.75),
        (
            "4:cpu,cpuacct:/job\n",
            {
                "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us": "40000\n",
                "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us": "100000\n",
            },
            0.4,
        ),
        (
            "4:cpu:/\n",
            {
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            None,
        ),
        ("0::/\n", {"sys/fs/cgroup/cpu.max": "max 100000\n"}, None),
        ("", {}, None),
    ],
)
def test_quotas_bound_the_cores(
    tmp_path: Path, groups: str, files: dict[str, str], cores: float | None
) -> None:
    result = resources(machine(tmp_path, groups, files)).cores
    assert result == cores if cores else result >= 1


def test_memory_is_what_the_group_leaves(tmp_path: Path) -> None:
    assert resources(machine(tmp_path, "", {})).memory_bytes == 8 << 30
    files = {
        "sys/fs/cgroup/a/memory.max": f"{3 << 30}",
        "sys/fs/cgroup/a/memory.current": f"{1 << 30}",
    }
    assert resources(machine(tmp_path, "0::/a\n", files)).memory_bytes == 2 << 30
