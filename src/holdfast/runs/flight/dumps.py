"""Finding the dumps of a run, and reading them: one `Dump` a rank, and what was set aside and why.

The files are opened by processes of their own (`reading_process`), two at a time by default: a hostile file
cannot reach this one, and the work is spread.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from holdfast import progress
from holdfast.errors import InputError
from holdfast.runs.flight.reading_process import Reply, read_reply
from holdfast.runs.flight.record import Dump

NOT_DUMPS = {
    ".jsonl",
    ".lock",
    ".log",
    ".txt",
    ".md",
    ".html",
    ".py",
    ".toml",
    ".csv",
    ".tmp",
    ".yaml",
}
"""Endings of files beside dumps that are passed over in a folder."""
RECORDS = "flight"
"""Folder of a recorded run in which the dumps of its launches lie."""
BYTES_A_PROCESS = 4 << 20
"""Less is not worth a second process."""
READER = ["-m", "holdfast.runs.flight.reading_process"]
_SUFFIXES = {".json", ".pkl", ".pickle", ".pt", ".bin", ".gz", ".dump", ".trace"}
HOW_TO_NAME = "name each file after its rank, for example rank_3.json or nccl_trace_rank_3"


@dataclass(frozen=True)
class SetAside:
    """A file that takes no part in the verdict."""

    file: str
    reason: str


@dataclass(frozen=True)
class Dumps:
    """The dumps of one moment of one run."""

    by_rank: Mapping[int, Dump]
    """Ordered by rank."""
    set_aside: tuple[SetAside, ...]
    remarks: tuple[str, ...] = ()


def find_dumps(places: Sequence[str | Path]) -> list[Path]:
    """The files that may be dumps: those named, and all below the folders named.

    Of a folder that holds folders named ``flight``, as a recorded run does, only what is in those.

    Raises:
        InputError: if a place does not exist, or none holds a file.
    """
    found: dict[Path, None] = {}
    for place in map(Path, places):
        if place.is_dir():
            for file in sorted(_below(place)):
                hidden = file.name.startswith(".") or file.suffix in NOT_DUMPS
                if file.is_file() and not hidden:
                    found[file] = None
        elif place.exists():
            found[place] = None
        else:
            raise InputError("file or folder not found", code="not-found", path=place)
    if not found:
        raise _nothing_there(places)
    return list(found)


def _below(folder: Path) -> Iterator[Path]:
    records = [each for each in folder.rglob(RECORDS) if each.is_dir()]
    for each in records or [folder]:
        yield from each.rglob("*")


def _nothing_there(places: Sequence[str | Path]) -> InputError:
    return InputError(
        "no flight record found",
        code="no-data",
        path=", ".join(map(str, places)),
        expected="dumps of PyTorch's flight recorder, one per rank, JSON or pickle",
        remedy="set TORCH_FR_BUFFER_SIZE=2000 and TORCH_NCCL_DUMP_ON_TIMEOUT=1 before the run, give the "
        "recorder hang_after_s, or call holdfast.runs.dump_flight_record in each process",
    )


def read_dumps(places: Sequence[str | Path], processes: int | None = None) -> Dumps:
    """Read every dump, and sort out which rank each one is of.

    Args:
        places: files and folders.
        processes: that read side by side; by default as many as there are processors.

    Raises:
        InputError: if none can be read, or it cannot be told which rank a dump is of.
    """
    files = find_dumps(places)
    named = {Path(place) for place in places}
    dumps: list[Dump] = []
    aside: list[SetAside] = []
    for file, told in _read_all(files, processes):
        if told.dump is not None:
            dumps.append(told.dump)
        elif not told.foreign or file in named or _is_called_a_rank(file):
            aside.append(SetAside(str(file), told.refused))
    if not dumps and not aside:
        raise _nothing_there(places)
    if not dumps:
        shown = "; ".join(f"{Path(each.file).name}: {each.reason}" for each in aside[:3])
        raise InputError(
            f"none of {len(aside):,} files is a flight record that can be read",
            code="unreadable",
            path=aside[0].file if len(aside) == 1 else Path(os.path.commonpath(files)),
            found=shown,
            expected="JSON or pickles as PyTorch's flight recorder writes them",
        )
    return _by_rank([_ranked(dump) for dump in dumps], aside)


def read_frames(entries: Mapping[str, Sequence[int]]) -> dict[str, dict[int, list[dict[str, Any]]]]:
    """The stacks of some entries, in a second reading of the few files that hold them.

    Args:
        entries: file -> `record` of its entries.

    Returns:
        File -> record -> frames, innermost first; without those that have no stack.
    """
    if not entries:
        return {}
    request = {
        "files": list(entries),
        "records": [list(map(int, each)) for each in entries.values()],
    }
    frames: dict[str, dict[int, list[dict[str, Any]]]] = {}
    for file, told in _ask(request):
        frames[str(file)] = told.frames
    return frames


# --- Which rank ----------------------------------------------------------------------------------


def rank_in_name(name: str) -> tuple[int, bool] | None:
    """The rank that a file name tells, and whether it says that it is one.

    ``node7-gpu1-nccl_trace_rank_12`` -> (12, True); ``trace.3.json`` -> (3, False).
    """
    named = re.findall(r"rank[-_. ]?(\d+)", name, re.IGNORECASE)
    if named:
        return int(named[-1]), True
    stem = name
    while (path := Path(stem)).suffix.lower() in _SUFFIXES:
        stem = path.stem
    last = re.search(r"(?<!\d)\d++$", stem)
    return (int(last[0]), False) if last else None


def _is_called_a_rank(file: Path) -> bool:
    told = rank_in_name(file.name)
    return told is not None and told[1]


def _ranked(dump: Dump) -> Dump:
    if dump.rank is not None:
        return dump
    told = rank_in_name(Path(dump.file).name)
    if told is None:
        raise InputError(
            "neither the name nor the content of this dump tells its rank",
            code="unknown-format",
            path=dump.file,
            remedy=HOW_TO_NAME,
        )
    return replace(dump, rank=told[0])


def _by_rank(dumps: Sequence[Dump], aside: list[SetAside]) -> Dumps:
    """One dump a rank. Of several moments (folders) the newest; of several formats the fullest."""
    remarks: list[str] = []
    folders: dict[Path, list[Dump]] = defaultdict(list)
    for dump in dumps:
        folders[Path(dump.file).parent].append(dump)
    chosen: dict[int, Dump] = {}
    for folder in sorted(folders, key=lambda each: _newest(folders[each]), reverse=True):
        ranks = {dump.rank for dump in folders[folder]}
        if chosen.keys() & ranks:  # the same ranks at another moment
            remarks.append(
                f"{folder} holds {len(ranks):,} older dumps of the same ranks; name it to judge them"
            )
            continue
        for dump in folders[folder]:
            _choose(dump, chosen, aside)
    return Dumps(dict(sorted(chosen.items())), tuple(aside), tuple(remarks))


def _choose(dump: Dump, chosen: dict[int, Dump], aside: list[SetAside]) -> None:
    assert dump.rank is not None
    other = chosen.setdefault(dump.rank, dump)
    if other is dump:
        return
    for each in (dump, other):
        told = rank_in_name(Path(each.file).name)
        if told is not None and not told[1] and _fingerprint(dump) != _fingerprint(other):
            raise InputError(
                f"two different dumps seem to be of rank {dump.rank}",
                code="conflict",
                found=f"{other.file} and {dump.file}",
                remedy=HOW_TO_NAME,
            )
    better, worse = sorted((dump, other), key=_fullness, reverse=True)
    chosen[dump.rank] = better
    aside.append(SetAside(worse.file, f"a second dump of rank {dump.rank}; {better.file} is newer"))


def _fullness(dump: Dump) -> tuple[int, int, bool]:
    return _newest([dump]), len(dump.entries), dump.dumped_ns is not None


def _newest(dumps: Sequence[Dump]) -> int:
    """The time of the newest entry, nanoseconds since 1970; 0 without entries."""
    return max((int(dump.entries["created_ns"].max(initial=0)) for dump in dumps), default=0)


def _fingerprint(dump: Dump) -> tuple[int, int]:
    return len(dump.entries), _newest([dump])


# --- The reading processes -----------------------------------------------------------------------


def _read_all(files: Sequence[Path], processes: int | None) -> list[tuple[Path, Reply]]:
    """Every file with its dump or the reason why it has none, in the order of the files."""
    sizes = [file.stat().st_size for file in files]
    useful = 1 + sum(sizes) // BYTES_A_PROCESS
    count = max(1, min(processes or os.cpu_count() or 1, len(files), useful))
    with (
        progress.track("reading dumps", sum(sizes)) as tracker,
        ThreadPoolExecutor(count) as pool,
    ):

        def read(part: Sequence[Path]) -> list[tuple[Path, Reply]]:
            answers = []
            for file, told in _ask({"files": [str(file) for file in part]}):
                tracker.advance(file.stat().st_size)
                answers.append((file, told))
            return answers

        parts = list(pool.map(read, [files[first::count] for first in range(count)]))
    answers = {file: told for part in parts for file, told in part}
    return [(file, answers[file]) for file in files]


def _ask(request: Mapping[str, Any]) -> Iterator[tuple[Path, Reply]]:
    """Each file of a request with its answer.

    A file that ends the reading process is blamed for it, and the others go to a fresh one.
    """
    files = [Path(file) for file in request["files"]]
    records = request.get("records")
    first = 0
    while first < len(files):
        rest: dict[str, Any] = {**request, "files": [str(file) for file in files[first:]]}
        if records is not None:
            rest["records"] = records[first:]
        for told in _one_process(rest):
            yield files[first], told
            first += 1
        if first < len(files):
            why = "it ended the process that read it: it needs too much memory or time"
            yield files[first], Reply(refused=why)
            first += 1


def _one_process(request: Mapping[str, Any]) -> Iterator[Reply]:
    command = [sys.executable, *READER]
    # The same code, wherever this process found it.
    paths = [str(Path(__file__).resolve().parents[3]), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(request).encode())
        process.stdin.close()
        while told := read_reply(process.stdout):
            yield told
