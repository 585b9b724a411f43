"""NVSentinel's events as its exporter writes them, and what it and others set on nodes."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from reading import read, rejected, rows

import holdfast.fleet as fleet
from holdfast.fleet.formats.kubernetes import KUBERNETES
from holdfast.fleet.formats.monitors import NVSENTINEL
from holdfast.fleet.taxonomy import load

COLUMNS = ("time_s", "node", "check", "severity", "result", "xid", "cluster")
TIME_S = datetime(2025, 11, 18, 10, 30, tzinfo=UTC).timestamp()


def cloud_event(node: str = "gpu-node-42", **event: Any) -> dict[str, Any]:
    """As `ToCloudEvent` of the event exporter builds it."""
    return {
        "specversion": "1.0",
        "type": "com.nvidia.nvsentinel.health.v1",
        "source": "nvsentinel://prod-1/healthevents",
        "id": "fe5302cf-1887-48a9-8e6e-117d366a7344",
        "time": "2025-11-18T10:30:00.25Z",
        "data": {
            "metadata": {"cluster": "prod-1", "environment": "production"},
            "healthEvent": {
                "version": 1,
                "agent": "syslog-health-monitor",
                "componentClass": "GPU",
                "checkName": "SysLogsXIDError",
                "isFatal": True,
                "isHealthy": False,
                "message": "GPU 3 has fallen off the bus",
                "recommendedAction": 15,
                "errorCode": ["79"],
                "entitiesImpacted": [{"entityType": "PCI", "entityValue": "0000:17:00.0"}],
                "metadata": {"providerID": "aws:///us-west-2a/i-1234567890abcdef0"},
                "generatedTimestamp": "2025-11-18T10:30:00.25Z",
                "nodeName": node,
                **event,
            },
        },
    }


def write(path: Path, *values: object) -> Path:
    path.write_text("".join(json.dumps(value) + "\n" for value in values))
    return path


def test_events_of_the_exporter(tmp_path: Path) -> None:
    path = write(
        tmp_path / "events.jsonl",
        cloud_event(),
        cloud_event(isFatal=False, errorCode=["XID_13"]),
        cloud_event(isFatal=False, checkName="GpuThermalWatch", errorCode=[]),
        cloud_event(isHealthy=True, isFatal=False, errorCode=[]),
        cloud_event(checkName="SysLogsSXIDError", errorCode=["12028"]),
        {"specversion": "1.0", "type": "com.nvidia.nvsentinel.health.v1", "data": {}},
        cloud_event(node=""),
    )
    tables = read(NVSENTINEL, path)
    when, where = TIME_S + 0.25, ("gpu-node-42",)
    assert rows(tables["health"], *COLUMNS) == [
        (when, *where, "SysLogsXIDError", "HIGH", "fail", 79, "prod-1"),
        (when, *where, "SysLogsXIDError", "LOW", "fail", 13, "prod-1"),
        (when, *where, "GpuThermalWatch", "LOW", "warn", None, "prod-1"),
        (when, *where, "SysLogsXIDError", "", "ok", None, "prod-1"),
        (when, *where, "SysLogsSXIDError", "HIGH", "fail", None, "prod-1"),
    ]
    assert rejected(tables) == [(6, "not a JSON object"), (7, "no node")]


def node(name: str, *conditions: tuple[str, str, str]) -> dict[str, Any]:
    """As `kubectl get nodes -o json` prints it."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "creationTimestamp": "2025-01-01T00:00:00Z"},
        "spec": {"providerID": f"aws:///{name}"},
        "status": {
            "capacity": {"cpu": "192", "memory": "2113494Mi", "nvidia.com/gpu": "8", "pods": "110"},
            "conditions": [
                {
                    "type": kind,
                    "status": status,
                    "lastHeartbeatTime": "2025-11-18T11:00:00Z",
                    "lastTransitionTime": "2025-11-18T10:30:00Z",
                    "reason": f"{kind}Reason",
                    "message": message,
                }
                for kind, status, message in conditions
            ],
        },
    }


def test_conditions_of_nodes(tmp_path: Path) -> None:
    fine = (
        ("MemoryPressure", "False", "kubelet has sufficient memory available"),
        ("KernelDeadlock", "False", "kernel has no deadlock"),
        ("GpuMemWatch", "False", "No Health Failures"),
        ("Ready", "True", "kubelet is posting ready status"),
    )
    xid = "ErrorCode:79 GPU:0 PCI:0000:17:00.0 fallen off the bus Recommended Action=RESTART_BM;"
    lost = [(kind, "Unknown", "Kubelet stopped posting node status.") for kind, _, _ in fine]
    listing = {
        "apiVersion": "v1",
        "kind": "List",
        "items": [
            node("a", *fine),
            node(
                "b", ("ReadonlyFilesystem", "True", "remounted"), ("SysLogsXIDError", "True", xid)
            ),
            node("c", *lost),
            node("d", ("DiskPressure", "True", ""), ("GPUHealthy", "False", "nvidia-smi hangs")),
        ],
    }
    path = tmp_path / "nodes.json"
    path.write_text(json.dumps(listing, indent=4))
    tables = read(KUBERNETES, path)
    assert rows(tables["nodes"], "node", "gpus", "cpus") == [(name, 8, 192) for name in "abcd"]
    assert rows(tables["health"], "time_s", "node", "check", "result", "xid") == [
        (TIME_S, "b", "ReadonlyFilesystem", "fail", None),
        (TIME_S, "b", "SysLogsXIDError", "fail", 79),
        (TIME_S, "c", "NodeNotReady", "fail", None),
        (TIME_S, "d", "DiskPressure", "fail", None),
        (TIME_S, "d", "GPUHealthy", "fail", None),
    ]
    # `kubectl get nodes -w -o json` repeats a node at each heartbeat.
    watched = write(tmp_path / "watch.jsonl", *(listing["items"] * 3))
    assert read(KUBERNETES, watched)["health"].equals(tables["health"])
    # So does one that prints each over many lines, or as a change, and a list that is kept every hour.
    changes = [{"type": "MODIFIED", "object": each} for each in listing["items"]]
    for name, kept in {
        "watch": listing["items"],
        "changes": changes,
        "hourly": [listing] * 3,
        "both": [listing, *listing["items"]],
    }.items():
        long = tmp_path / f"{name}.json"
        long.write_text("\n".join(json.dumps(each, indent=4) for each in kept))
        assert read(KUBERNETES, long)["health"].equals(tables["health"])
    result = fleet.ingest([path], tmp_path / "store")
    assert (result.nodes, result.health_events, result.inferred) == (4, 5, [])


def test_events_of_nvsentinel_about_a_node(tmp_path: Path) -> None:
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "gpu-node-01.17a3b2c4d5e6f7", "namespace": "default"},
        "involvedObject": {"kind": "Node", "name": "gpu-node-01"},
        "reason": "GpuThermalWatchIsNotHealthy",
        "message": "ErrorCode:DCGM_FR_CLOCK_THROTTLE_THERMAL GPU:0 Recommended Action=NONE;",
        "type": "GpuThermalWatch",
        "source": {"component": "gpu-health-monitor", "host": "gpu-node-01"},
        "firstTimestamp": "2025-11-18T10:30:00Z",
        "lastTimestamp": "2025-11-18T10:30:00Z",
        "count": 1,
    }
    tables = read(KUBERNETES, write(tmp_path / "events.jsonl", event))
    assert rows(tables["health"], "time_s", "node", "check", "result") == [
        (TIME_S, "gpu-node-01", "GpuThermalWatch", "warn")
    ]


@pytest.mark.parametrize(
    ("check", "symptom"),
    [
        ("GpuMemWatch", "gpu_memory"),
        ("GpuThermalWatch", "gpu_clock"),
        ("GpuNvlinkWatch", "nvlink"),
        ("SysLogsSXIDError", "nvlink"),
        ("GpuPcieWatch", "pcie"),
        ("ReadonlyFilesystem", "filesystem_mount"),
        ("DiskPressure", "disk_space"),
        ("MemoryPressure", "out_of_memory"),
        ("NodeNotReady", "node_unreachable"),
    ],
)
def test_what_the_checks_mean(check: str, symptom: str) -> None:
    assert load().symptom(check) == symptom
