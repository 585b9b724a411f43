"""A folder of events -> `RecordedRun`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import InputError
from holdfast.lines import Reject
from holdfast.runs.recording.events import RecordedRun
from holdfast.runs.recording.identity import checked_run_id
from holdfast.runs.recording.placing import place
from holdfast.runs.recording.rankfile import EVENTS, RankFile, read_file

RANK_FILES = "rank-*.jsonl"


def read_run(folder: Path | str, run_id: str | None = None) -> RecordedRun:
    """Read all events of one run.

    Invalid lines are listed in ``rejects``; the truncated last line of a killed process, clock steps and
    ranks that never wrote are listed in ``remarks``.

    Args:
        folder: the folder given to `RunRecorder`, or the run's own folder inside it.
        run_id: the run, if the folder contains several.

    Raises:
        InputError: no run found, several without `run_id`, no usable events, or two recorders that wrote
            the same rank of the same run at the same time.
    """
    own = run_folder(Path(folder), run_id)
    files = [_read(path) for path in sorted(own.glob(RANK_FILES))]
    run_id = run_id or _run_id_of(own, files)
    usable = [file for file in files if file.process is not None and file.process.run_id == run_id]
    rejects = [reject for file in files for reject in file.rejects]
    rejects += _foreign(files, run_id)
    if not usable:
        raise InputError(
            "no usable file in this run",
            code="no-data",
            path=own,
            found=rejects[0].reason if rejects else f"{len(files)} files without a whole line",
            expected="files that a RunRecorder wrote",
        )
    placed = place(
        [file.process for file in usable if file.process is not None],
        {file.path: _step_ends(file.events) for file in usable},
    )
    tables = {file.path: file.events for file in usable}
    return RecordedRun(
        run_id=run_id,
        folder=own,
        processes=placed.processes,
        events=_joined([tables[process.file] for process in placed.processes]),
        start_s=placed.start_s,
        origin_s=placed.origin_s,
        clocks_s=placed.clocks_s,
        rejects=tuple(rejects),
        remarks=(*(remark for file in files for remark in file.remarks), *placed.remarks),
        doubts=placed.doubts,
    )


def run_folder(folder: Path, run_id: str | None = None) -> Path:
    """The own folder of a run, in or at `folder`.

    Raises:
        InputError: there is none, or there are several and none is chosen.
    """
    if run_id is not None:
        checked_run_id(run_id)
    if not folder.is_dir():
        raise InputError(
            "a file, not a folder of events" if folder.exists() else "folder of events not found",
            code="unknown-format" if folder.exists() else "not-found",
            path=folder,
            expected=f"the folder given to RunRecorder, which contains {RANK_FILES} or folders with them",
            remedy="record the run with holdfast.runs.RunRecorder and pass its folder",
        )
    if _has_events(folder) and (run_id is None or not _has_events(folder / run_id)):
        return folder
    runs = sorted(inner for inner in _folders(folder) if _has_events(inner))
    names = [inner.name for inner in runs]
    if run_id is not None:
        if run_id not in names:
            raise InputError(
                f"run {run_id} not found",
                code="not-found",
                path=folder,
                found=", ".join(names) or "no run",
            )
        return folder / run_id
    if not runs:
        raise InputError(
            "no events found",
            code="no-data",
            path=folder,
            expected=f"{RANK_FILES}, or folders with such files",
            remedy="give the folder that RunRecorder was given",
        )
    if len(runs) > 1:
        raise _several(folder, names)
    return runs[0]


def _several(folder: Path, names: Sequence[str]) -> InputError:
    return InputError(
        "several runs found",
        code="conflict",
        path=folder,
        found=", ".join(names),
        remedy="choose one with its run id (--run)",
    )


def _folders(folder: Path) -> Iterable[Path]:
    return (inner for inner in folder.iterdir() if inner.is_dir())


def _has_events(folder: Path) -> bool:
    return next(folder.glob(RANK_FILES), None) is not None


def _read(path: Path) -> RankFile:
    try:
        return read_file(path)
    except OSError as error:
        reason = f"the whole file is set aside: {error.strerror}"
        return RankFile(path, None, EVENTS.empty_table(), (Reject(path, 0, reason, ""),))


def _run_id_of(own: Path, files: Iterable[RankFile]) -> str:
    """The run that a folder is of: the one it is named after, else the only one in it."""
    found = Counter(file.process.run_id for file in files if file.process is not None)
    if own.name in found or not found:
        return own.name
    if len(found) > 1:
        raise _several(own, sorted(found))
    return next(iter(found))


def _foreign(files: Iterable[RankFile], run_id: str) -> list[Reject]:
    return [
        Reject(file.path, 1, f"the whole file is set aside: it is of run {file.process.run_id}", "")
        for file in files
        if file.process is not None and file.process.run_id != run_id
    ]


def _step_ends(events: pa.Table) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Numbers of the steps of a process, each once, and when they ended."""
    kinds = events["event"].cast(pa.string())
    steps = events.filter(pc.and_(pc.equal(kinds, "step"), pc.is_valid(events["step"])))
    numbers, first = np.unique(steps["step"].to_numpy(), return_index=True)
    return numbers, steps["t"].to_numpy()[first]


def _joined(tables: Sequence[pa.Table]) -> pa.Table:
    """Tables of processes as one, each row with the index of its process."""
    position = EVENTS.get_field_index("process")
    numbered = [
        table.set_column(
            position, EVENTS.field(position), pa.array(np.full(table.num_rows, index, np.int32))
        )
        for index, table in enumerate(tables)
    ]
    return pa.concat_tables(numbered)
