"""Logs with known causes: real ones, small ones that mislead, and lines from public threads."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from holdfast.runs.diagnosis.diagnosing import diagnose
from holdfast.runs.diagnosis.rules import compiled, load

HERE = Path(__file__).parent
LOGS = HERE / "logs"

# log -> cause, rank that shows it first, exception and innermost own frame where the cause is one.
REAL: dict[str, tuple[str, int | None, str]] = {
    "chained": ("python_exception", 2, "KeyError"),
    "cuda_assert": ("cuda_device_assert", 1, ""),
    "cuda_illegal": ("cuda_illegal_access", 1, "AcceleratorError"),
    "cuda_none": ("gpu_missing", None, "RuntimeError"),
    "cuda_ordinal": ("gpu_missing", 1, "AcceleratorError"),
    "cuda_out_of_memory": ("cuda_out_of_memory", 1, "OutOfMemoryError"),
    "cuda_shapes": ("shape_mismatch", 1, "RuntimeError"),
    "dataloader_exception": ("python_exception", 2, "ValueError"),
    "dataloader_killed": ("dataloader_worker_killed", 2, "RuntimeError"),
    "exits": ("rank_failed", 2, ""),
    "gloo_timeout": ("gloo_timeout", 0, "RuntimeError"),
    "host_memory": ("host_allocation", 2, "RuntimeError"),
    "hub": ("hub_connection", 0, "LocalEntryNotFoundError"),
    "import": ("import_error", None, "ModuleNotFoundError"),
    "killed": ("killed", 2, ""),
    "memory_error": ("host_allocation", 2, "MemoryError"),
    "missing_file": ("missing_file", 2, "FileNotFoundError"),
    "nan": ("nan_loss", 0, "AssertionError"),
    "nccl_exception": ("python_exception", 1, "KeyError"),
    "nccl_killed": ("killed", 1, ""),
    "nccl_one_gpu": ("nccl_invalid_usage", 0, ""),
    "nccl_out_of_memory": ("cuda_out_of_memory", 1, "OutOfMemoryError"),
    "nccl_timeout": ("nccl_timeout", 0, ""),
    "no_space": ("no_space", 2, "OSError"),
    "open_files": ("too_many_open_files", 2, "OSError"),
    "segfault": ("segfault", 2, ""),
    "shapes": ("shape_mismatch", 2, "RuntimeError"),
    "xid_dmesg": ("xid", None, ""),
}


def cases(name: str) -> list[Any]:
    found = tomllib.loads((HERE / name).read_text(encoding="utf-8"))["cases"]
    return [pytest.param(case, id=case["name"]) for case in found]


def written(case: dict[str, Any], folder: Path) -> list[Path]:
    paths = []
    for name, text in case.get("files", {"run.log": case.get("log", "")}).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.lstrip("\n"), encoding="utf-8")
        paths.append(path)
    return sorted(paths)


def test_every_real_log_has_a_label() -> None:
    assert {path.stem for path in LOGS.glob("*.log")} == set(REAL)


@pytest.mark.parametrize("name", REAL)
def test_real_logs(name: str) -> None:
    cause, rank, exception = REAL[name]
    found = diagnose(LOGS / f"{name}.log")
    assert (found.cause, found.first_rank) == (cause, rank)
    assert (found.traceback or {"exception": ""})["exception"] == exception
    shown = found.evidence[0]
    text = (LOGS / f"{name}.log").read_text(encoding="utf-8").split("\n")[shown.line - 1]
    assert shown.text in text or text.strip().endswith(shown.text)


@pytest.mark.parametrize("case", [*cases("cases.toml"), *cases("held_out.toml")])
def test_labelled_cases(case: dict[str, Any], tmp_path: Path) -> None:
    found = diagnose(written(case, tmp_path))
    assert found.cause == (case["cause"] or None), found.why
    if "rank" in case:
        assert found.first_rank == case["rank"]
    assert found.attempts == case.get("attempts", 1)


PUBLIC = HERE.parents[2] / "benchmarks" / "diagnose_public.toml"
SEEN = [
    pytest.param(case, id=case["source"].removeprefix("github.com/"))
    for case in tomllib.loads(PUBLIC.read_text(encoding="utf-8"))["cases"]
    if case["half"] == "development"
]


@pytest.mark.parametrize("case", SEEN)
def test_public_logs_from_which_rules_were_written(case: dict[str, Any], tmp_path: Path) -> None:
    """The other half is for measuring alone: `benchmarks/runs_diagnose_accuracy.py`."""
    log = tmp_path / "run.log"
    log.write_text(case["log"], encoding="utf-8")
    assert diagnose(log).cause in case["causes"]


HELD_OUT = tomllib.loads((HERE / "heldout" / "truth.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", HELD_OUT)
def test_held_out_logs(name: str) -> None:
    """Formats of containers, services, launchers and loggers; and runs that did not fail."""
    case = HELD_OUT[name]
    found = diagnose(HERE / "heldout" / f"{name}.log")
    assert (found.cause or "") == case["cause"], found.sentence
    if "rank" in case:
        assert found.first_rank == case["rank"]
    if "exception" in case and found.traceback is not None:
        assert found.traceback["exception"] == case["exception"]


def test_an_ignored_exception_is_no_cause(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    ignored = (
        "Exception ignored in: <function Pool.__del__ at 0x7f>\nTraceback (most recent call last):\n"
        '  File "/a/pool.py", line 268, in __del__\n    self._quit()\nValueError: closed\n'
    )
    log.write_text("step 1 loss 2\n" + ignored)
    assert diagnose(log).cause is None


def test_steps_of_the_next_attempt_do_not_excuse_an_error(tmp_path: Path) -> None:
    steps = [f"step {n} loss 2.0" for n in range(30)]
    again = "Worker group FAILED. 2/3 attempts left; will restart worker group"
    lines = [*steps[:5], "CUDA out of memory. Tried to allocate 2 GiB", again, *steps, "Killed"]
    log = tmp_path / "run.log"
    log.write_text("\n".join(lines))
    found = diagnose(log)
    assert (found.cause, found.attempts, found.earlier[0].cause) == (
        "killed",
        2,
        "cuda_out_of_memory",
    )


def test_weighing_beats_reading_from_either_end(tmp_path: Path) -> None:
    """The corpus is not solved by the first or the last line that any rule knows."""
    right = {"first": 0, "last": 0, "weighed": 0}
    labelled = [(name, cause, [LOGS / f"{name}.log"]) for name, (cause, _, _) in REAL.items()]
    for parameter in cases("cases.toml"):
        case = parameter.values[0]
        if case["cause"]:
            folder = tmp_path / case["name"]
            labelled.append((case["name"], case["cause"], written(case, folder)))
    rules = load()
    for _, cause, paths in labelled:
        known = []
        for path in paths:
            for line in path.read_bytes().splitlines():
                found = next(
                    (
                        rule.id
                        for rule in rules.rules
                        if rule.kind not in ("info", "restart")
                        and any(compiled(pattern).search(line) for pattern in rule.patterns)
                    ),
                    None,
                )
                known += [found] if found else []
        right["first"] += known[:1] == [cause]
        right["last"] += known[-1:] == [cause]
        right["weighed"] += diagnose(paths).cause == cause
    assert right["weighed"] == len(labelled)
    assert right["first"] < 0.8 * len(labelled)
    assert right["last"] < 0.4 * len(labelled)


def test_a_survived_error_is_not_the_cause(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    steps = "".join(f"step {step} loss 0.{step}\n" for step in range(3000))
    log.write_text(
        f"OSError: [Errno 28] No space left on device\n{steps}"
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 8.00 GiB.\n"
    )
    found = diagnose(log)
    assert found.cause == "cuda_out_of_memory"
    assert [(other.cause, other.survived) for other in found.cascade] == [("no_space", True)]


def test_domains_follow_the_xid() -> None:
    found = diagnose(LOGS / "xid_dmesg.log")
    assert found.symptom == "gpu_exception"
    assert found.domains == ("user", "system", "hardware")  # XID 31 in the fleet's taxonomy


def test_a_torchrun_summary_that_names_the_wrong_rank() -> None:
    """In this real log torchrun saw rank 0 end first, which had only lost rank 1."""
    found = diagnose(LOGS / "cuda_out_of_memory.log")
    assert found.first_rank == 1
    assert any("torchrun names rank 0 first" in reason for reason in found.why)
