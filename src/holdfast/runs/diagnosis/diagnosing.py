"""Logs -> the cause of a failure: its sentence, who may be at fault, and the lines that show it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from holdfast.errors import InputError
from holdfast.runs.diagnosis import rules as rule_files
from holdfast.runs.diagnosis.reading import CHUNK_BYTES, LogFile, SetAside, find_logs
from holdfast.runs.diagnosis.results import Diagnosis
from holdfast.runs.diagnosis.rules import RuleSet
from holdfast.runs.diagnosis.scanning import Scan, scan_all
from holdfast.runs.diagnosis.templates import unknown_templates
from holdfast.runs.diagnosis.verdict import judged
from holdfast.runs.goodput.accounting import breakdown_around

MOST_PLACES = 64
"""Logs whose folders are searched for events of the run."""


def diagnose(
    logs: str | Path | Sequence[str | Path],
    good: str | Path | Sequence[str | Path] = (),
    *,
    rules: str | Path | RuleSet | None = None,
    taxonomy: str | Path | None = None,
    processes: int | None = None,
    chunk_bytes: int = CHUNK_BYTES,
) -> Diagnosis:
    """Find the cause of a failure in a run's logs.

    Lines are grouped by shape in one pass, and only shapes that a rule may match are matched. Among the
    matches, the first error of the first rank has more weight than errors that follow from it (the log
    diagnosis of Acme, arXiv 2403.07648 section 6.1, with rules that can be read and edited).

    Args:
        logs: log files, plain or gzip, or folders of them, of the failed run.
        good: logs of successful runs: unknown templates are then ranked by how well they separate the
            two.
        rules: a rule file that extends the built-in rules, or loaded rules.
        taxonomy: a taxonomy that extends the fleet's.
        processes: number of worker processes, each of which reads one file at a time; None: all cores.
        chunk_bytes: bytes per read; does not affect the result.

    Returns:
        The diagnosis; ``cause`` is None if no rule matches.

    Raises:
        InputError: if a file is missing, all files are unreadable, or a rule file is invalid.
    """
    loaded = rules if isinstance(rules, RuleSet) else rule_files.load(rules, taxonomy)
    failed, aside = find_logs([logs] if isinstance(logs, (str, Path)) else list(logs))
    fine, aside_good = find_logs([good] if isinstance(good, (str, Path)) else list(good), good=True)
    aside += aside_good
    if not failed:
        raise InputError(
            "no log to read",
            code="no-data",
            found="; ".join(f"{each.file}: {each.reason}" for each in aside) or "no file",
            expected="at least one log: text, plain or packed with gzip",
        )
    known = {log.path.resolve() for log in failed}
    every = [*failed, *(log for log in fine if log.path.resolve() not in known)]
    scan = scan_all(loaded, every, processes=processes, chunk=chunk_bytes)
    return _beside_the_end(_diagnosis(scan, loaded, every, aside), failed)


def _beside_the_end(diagnosis: Diagnosis, logs: Sequence[LogFile]) -> Diagnosis:
    """The diagnosis, with what the run's own events say of its end, where they lie around the logs.

    Where no line names a cause of its own, and the events say who was first, that is the answer.
    """
    recorded = breakdown_around(*(log.path for log in logs[:MOST_PLACES]))
    ended = None if recorded is None else recorded.attempts[-1]
    known = ended is not None and ended.interrupted and ended.first_rank_gone is not None
    if ended is None or not known or diagnosis.kind in ("root", "vague"):
        return replace(diagnosis, ended=ended)
    return replace(
        diagnosis, ended=ended, sentence=ended.sentence, first_rank=ended.first_rank_gone
    )


def _diagnosis(
    scan: Scan, rules: RuleSet, logs: Sequence[LogFile], aside: Sequence[SetAside]
) -> Diagnosis:
    files = [file for file in scan.files if not file.log.good]
    unknown, ranking = unknown_templates(scan)
    facts: dict[str, Any] = {
        "unknown_templates": tuple(unknown),
        "unknown_rule": ranking,
        "files": len(files),
        "good_files": len(scan.files) - len(files),
        "lines": sum(file.feeds for file in scan.files),
        "size_bytes": sum(file.bytes_read for file in scan.files),
        "cut_lines": sum(file.cut for file in scan.files),
        "unshaped_lines": sum(file.unshaped for file in scan.files),
        "set_aside": (
            *aside,
            *(SetAside(file.log.name, file.broken) for file in scan.files if file.broken),
        ),
    }
    return judged(files, rules, facts)
