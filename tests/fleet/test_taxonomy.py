from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.errors import InputError
from holdfast.fleet import taxonomy as taxonomy_module
from holdfast.fleet.taxonomy import DOMAINS, UNKNOWN, load

# Labelled by hand from the checks' documentation.
CHECKS = [
    ("pcie aer errors", "pcie"),
    ("check pci", "pcie"),
    ("check dcgmi nvlink error", "nvlink"),
    ("check dcgmi diag", "gpu_driver"),
    ("check iblink", "ib_link"),
    ("check ibstat", "ib_link"),
    ("check ib interfaces", "ib_link"),
    ("hca count", "ib_link"),
    ("link flaps", "ib_link"),
    ("check ethlink", "ethernet_link"),
    ("check blockdev", "block_device"),
    ("io errors", "block_device"),
    ("disk usage", "disk_space"),
    ("mce errors", "main_memory"),
    ("check memory size", "main_memory"),
    ("check dstate", "filesystem_mount"),
    ("check mountpoint", "filesystem_mount"),
    ("mounted directory", "filesystem_mount"),
    ("nvidia smi row_remap_pending", "gpu_memory"),
    ("nvidia smi row_remap_failed", "gpu_memory"),
    ("nvidia smi ecc_corrected", "gpu_memory"),
    ("nvidia smi ecc_uncorrected", "gpu_memory"),
    ("nvidia smi retired_pages", "gpu_memory"),
    ("cuda memtest", "gpu_memory"),
    ("nvidia smi gpu_num", "gpu_unavailable"),
    ("nvidia smi gpu_temp", "gpu_clock"),
    ("nvidia smi clock_freq", "gpu_clock"),
    ("nvidia smi mem_usage", "gpu_occupied"),
    ("nvidia smi running_procs", "gpu_occupied"),
    ("nvidia smi bios version mismatch", "gpu_driver"),
    ("xid errors", "gpu_exception"),
    ("processor frequency", "cpu"),
    ("frequency governor", "cpu"),
    ("check clocksource", "cpu"),
    ("check buddyinfo", "out_of_memory"),
    ("ipmitool sel", "chassis"),
    ("check sensors", "chassis"),
    ("nccl-tests", "nccl_timeout"),
    ("check zombie", "system_service"),
    ("running process", "system_service"),
    ("service status", "system_service"),
    ("slurm state", "system_service"),
    ("check ssh certs", "system_service"),
    ("package version", "system_service"),
    ("check dnf repos", "system_service"),
    ("ticket", "ticket"),
    # Reasons that Slurm keeps of a node.
    ("Not responding", "node_unreachable"),
    ("Node unexpectedly rebooted", "node_unreachable"),
    ("hc: check iblink", "ib_link"),
    ("hc: under investigation", UNKNOWN),
    ("firmware upgrade", "maintenance"),
    ("user report: slow", "ticket"),
    # Causes of failure logs.
    ("nvlink", "nvlink"),
    ("gpu_pcie", "pcie"),
    ("block_device", "block_device"),
    ("main_memory", "main_memory"),
    ("ib_link", "ib_link"),
    ("filesystem_mount", "filesystem_mount"),
    ("gpu_memory", "gpu_memory"),
    ("unknown", UNKNOWN),
    ("", UNKNOWN),
]

XIDS = [
    (13, "gpu_exception", "LOW", DOMAINS),
    (31, "gpu_exception", "LOW", DOMAINS),
    (48, "gpu_memory", "HIGH", ("hardware",)),
    (63, "gpu_memory", "LOW", ("hardware",)),
    (64, "gpu_memory", "HIGH", ("hardware",)),
    (74, "nvlink", "HIGH", ("hardware",)),
    (79, "pcie", "HIGH", ("system", "hardware")),
    (94, "gpu_memory", "HIGH", ("hardware",)),
    (95, "gpu_memory", "HIGH", ("hardware",)),
    (119, "gpu_driver", "HIGH", ("system", "hardware")),
    (9999, "gpu_exception", "LOW", DOMAINS),
]


@pytest.mark.parametrize(("check", "symptom"), CHECKS)
def test_symptom_of_check(check: str, symptom: str) -> None:
    assert load().symptom(check) == symptom


@pytest.mark.parametrize(("xid", "symptom", "severity", "domains"), XIDS)
def test_xid(xid: int, symptom: str, severity: str, domains: tuple[str, ...]) -> None:
    table = load().classify(["xid errors"], [xid]).to_pylist()[0]
    assert (table["symptom"], table["severity"], tuple(table["domains"])) == (
        symptom,
        severity,
        domains,
    )
    assert load().symptom(f"xid {xid}") == symptom


@pytest.mark.parametrize(
    ("symptom", "domains"),
    [
        ("out_of_memory", {"user", "system"}),
        ("gpu_unavailable", {"system", "hardware"}),
        ("gpu_memory", {"hardware"}),
        ("gpu_driver", {"system", "hardware"}),
        ("nvlink", {"hardware"}),
        ("ib_link", {"hardware"}),
        ("ethernet_link", {"system", "hardware"}),
        ("filesystem_mount", {"system", "hardware"}),
        ("main_memory", {"hardware"}),
        ("pcie", {"hardware"}),
        ("nccl_timeout", {"user", "system", "hardware"}),
        ("system_service", {"system", "user"}),
    ],
)
def test_domains_of_the_paper(symptom: str, domains: set[str]) -> None:
    assert set(load().symptoms[symptom].domains) == domains


@pytest.mark.parametrize(
    ("check", "severity"),
    [
        ("gpu inaccessible", "HIGH"),
        ("check dcgmi nvlink error", "HIGH"),
        ("nvidia smi ecc_uncorrected", "HIGH"),
        ("nvidia smi row_remap_failed", "HIGH"),
        ("pcie aer errors", "HIGH"),
        ("check iblink", "HIGH"),
        ("check blockdev", "HIGH"),
        ("check mountpoint", "HIGH"),
        ("Not responding", "HIGH"),
        ("link flaps", "LOW"),
        ("check dstate", "LOW"),
        ("nvidia smi row_remap_pending", "LOW"),
        ("processor frequency", "LOW"),
        ("never heard of it", "LOW"),
    ],
)
def test_default_severity(check: str, severity: str) -> None:
    assert load().classify([check])["severity"].to_pylist() == [severity]


def test_every_check_of_the_testbed_is_known(testbed: Path) -> None:
    lines = (testbed / "health_events.jsonl").read_text().splitlines()
    checks = sorted({json.loads(line)["check"] for line in lines})
    table = load().classify(checks)
    assert table.schema.equals(taxonomy_module.CLASSIFICATION)
    assert table.column("check").to_pylist() == checks
    assert UNKNOWN not in table.column("symptom").to_pylist()


def test_a_users_file_is_laid_over_the_shipped_one(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        """
        [symptoms.coolant]
        label = "Coolant loop"
        domains = ["hardware"]
        permanent = true
        [checks]
        rules = [{ pattern = 'leak|check iblink', symptom = "coolant", severity = "HIGH" }]
        [xids]
        79 = { name = "bus", symptom = "coolant", severity = "LOW", domains = ["hardware"] }
        """
    )
    mine = load(path)
    assert mine.symptom("check iblink") == "coolant"
    assert mine.symptom("rack leak sensor") == "coolant"
    assert mine.symptom("pcie aer errors") == "pcie"
    assert mine.symptom("xid errors", 79) == "coolant"
    assert mine.symptoms["coolant"].permanent is True
    assert mine.symptoms["coolant"].label == "Coolant loop"
    assert load().symptom("check iblink") == "ib_link"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("version = 2", "version"),
        ("oops = 1", "oops"),
        ("extends = 'no'", "extends"),
        ("extends = false", "symptoms.unknown check"),
        ("[symptoms.x]\nlabel = 'X'\ndomains = ['weather']", "symptoms.x.domains[0]"),
        ("[symptoms.x]\nlabel = 'X'\ndomains = []", "symptoms.x.domains"),
        ("[symptoms.x]\ndomains = ['user']", "symptoms.x.label"),
        ("[checks]\nrules = 3", "checks.rules"),
        (
            "[checks]\nrules = [{pattern = '(', symptom = 'pcie', severity = 'LOW'}]",
            "checks.rules[0].pattern",
        ),
        (
            "[checks]\nrules = [{pattern = 'a', symptom = 'pci', severity = 'LOW'}]",
            "checks.rules[0].symptom",
        ),
        (
            "[checks]\nrules = [{pattern = 'a', symptom = 'pcie', severity = 'CRIT'}]",
            "checks.rules[0].severity",
        ),
        ("[xids]\nabc = {}", "xids.abc"),
        ("not toml", None),
    ],
)
def test_what_a_users_file_may_not_say(tmp_path: Path, text: str, place: str | None) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        load(path)
    assert (caught.value.path, caught.value.place) == (str(path), place)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        load(tmp_path / "none.toml")


@pytest.mark.parametrize("pattern", ["gpu burn", "gpu-burn", "gpu_burn|gpu-burn", "^gpu.burn"])
def test_a_users_rule_may_spell_a_check_as_the_log_does(tmp_path: Path, pattern: str) -> None:
    path = tmp_path / "own.toml"
    path.write_text(
        '[symptoms.burn]\nlabel = "Burn-in"\ndomains = ["hardware"]\n'
        f"[[checks.rules]]\npattern = '{pattern}'\nsymptom = 'burn'\nseverity = 'HIGH'\n"
    )
    assert load(path).symptom("GPU-Burn-custom") == "burn"
    assert load(path).symptom("gpu-memory") != "burn"
