"""What the user names -> the matrix: a recorded run, a CSV file, or traces."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from holdfast.errors import InputError
from holdfast.runs.recording.events import RecordedRun
from holdfast.runs.straggling.matrix import StepMatrix
from holdfast.runs.straggling.step_table import MAX_REJECT_SHARE

Source = str | Path | Sequence[str | Path] | RecordedRun | StepMatrix

TRACE_ENDS = (".json", ".json.gz")
TABLE_ENDS = (".csv", ".csv.gz")


def read_matrix(
    source: Source, *, run_id: str | None = None, max_reject_share: float = MAX_REJECT_SHARE
) -> StepMatrix:
    """The own times of the ranks in a source.

    Args:
        source: a folder of recorded events; a CSV file; traces of torch.profiler, or the folder that
            holds them; a `RecordedRun`; a matrix.
        run_id: which run of a folder of events.
        max_reject_share: share of the rows of a CSV file above which it is refused.

    Raises:
        InputError: if the source is none of these, or cannot be used.
    """
    if isinstance(source, StepMatrix):
        return source
    if isinstance(source, RecordedRun):
        from holdfast.runs.straggling.recorded import matrix_of_run

        return matrix_of_run(source)
    paths = [Path(source)] if isinstance(source, (str, Path)) else [Path(each) for each in source]
    _check(paths)
    if len(paths) == 1 and paths[0].is_dir():
        return _matrix_of_folder(paths[0], run_id)
    if len(paths) == 1 and paths[0].name.endswith(TABLE_ENDS):
        from holdfast.runs.straggling.step_table import matrix_of_table

        return matrix_of_table(paths[0], max_reject_share)
    return _matrix_of_files(paths)


def _check(paths: Sequence[Path]) -> None:
    if not paths:
        raise InputError(
            "no source", code="empty-input", expected="a folder of events, a CSV file, or traces"
        )
    for path in paths:
        if not path.exists():
            raise InputError("file or folder not found", code="not-found", path=path)


def _matrix_of_folder(folder: Path, run_id: str | None) -> StepMatrix:
    traces = _traces(folder)
    if traces and not any(folder.glob("**/rank-*.jsonl")):
        return _matrix_of_files(traces)
    from holdfast.runs.recording.reading import read_run
    from holdfast.runs.straggling.recorded import matrix_of_run

    return matrix_of_run(read_run(folder, run_id))


def _traces(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.name.endswith(TRACE_ENDS))


def _matrix_of_files(paths: Sequence[Path]) -> StepMatrix:
    from holdfast.runs.straggling.traces import matrix_of_traces

    files = [file for path in paths for file in (_traces(path) if path.is_dir() else [path])]
    for file in files:
        if not file.name.endswith(TRACE_ENDS):
            raise InputError(
                f"cannot read step times from a {file.suffix or 'file without a suffix'} file",
                code="unknown-format",
                path=file,
                expected="a folder of recorded events, a .csv file with columns rank, step, seconds, "
                "or torch.profiler traces (.json, .json.gz) of all ranks",
            )
    if not files:
        raise InputError(
            "no traces found", code="no-data", path=paths[0], expected="files *.json or *.json.gz"
        )
    return matrix_of_traces(files)
