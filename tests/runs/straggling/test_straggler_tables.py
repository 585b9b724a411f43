"""CSV files of own times: what is read, what is set aside, what is refused."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import InputError
from holdfast.runs.straggling.scores import stragglers
from holdfast.runs.straggling.step_table import matrix_of_table


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_columns_become_a_matrix(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.csv",
        "Rank, step,seconds,sync_s,data_wait_s,node,gpus",
        "1,5,3.0,1.0,0.5,n1,4",
        "0,5,3.0,2.0,0.25,n0,4",
        "1,6,2.0,0.0,0.5,n1,4",
        "0,6,2.0,0.5,0.125,n0,4",
        "0,7,9.0,1.0,0.5,n0,4",
    )
    found = matrix_of_table(path)
    assert found.ranks.tolist() == [0, 1]
    assert found.steps.tolist() == [5, 6]
    assert found.own_s.tolist() == [[1.0, 1.5], [2.0, 2.0]]
    assert found.data_wait_s is not None
    assert found.data_wait_s.tolist() == [[0.25, 0.125], [0.5, 0.5]]
    assert found.steps_not_shared == 1
    assert found.gpus.tolist() == [4, 4]
    assert found.labels == ({"node": "n0"}, {"node": "n1"})


def test_steps_of_attempts_are_apart(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.csv",
        "rank,step,seconds,attempt",
        *(f"{rank},{step},{1 + attempt},{attempt}" for rank in (0, 1) for attempt, step in
          [(0, 1), (0, 2), (1, 2), (1, 3)]),
    )  # fmt: skip
    found = matrix_of_table(path)
    assert found.steps.tolist() == [1, 2, 2, 3]
    assert found.attempts.tolist() == [0, 0, 1, 1]
    assert found.own_s[0].tolist() == [1, 1, 2, 2]


@given(
    st.dictionaries(
        st.tuples(st.integers(0, 5), st.integers(0, 9)), st.integers(0, 999), min_size=1
    ),
    st.randoms(use_true_random=False),
)
@settings(max_examples=100, deadline=None)
def test_the_shared_steps_are_those_of_counting(
    tmp_path_factory: pytest.TempPathFactory, cells: dict[tuple[int, int], int], random: object
) -> None:
    rows = list(cells.items())
    random.shuffle(rows)  # type: ignore[attr-defined]
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    write(path, "rank,step,seconds", *(f"{r},{s},{value / 8}" for (r, s), value in rows))
    ranks = sorted({rank for rank, _ in cells})
    counts = {rank: sum(r == rank for r, _ in cells) for rank in ranks}
    kept = [rank for rank in ranks if counts[rank] >= 0.5 * np.median(list(counts.values()))]
    steps = [step for step in range(10) if all((rank, step) in cells for rank in kept)]
    if len(kept) < 2 or not steps:
        with pytest.raises(InputError, match="no step is shared by two ranks"):
            matrix_of_table(path)
        return
    found = matrix_of_table(path)
    assert found.ranks.tolist() == kept
    assert found.steps.tolist() == steps
    assert found.own_s.tolist() == [[cells[r, s] / 8 for s in steps] for r in kept]
    assert found.steps_not_shared == len({s for r, s in cells if r in kept}) - len(steps)
    assert found.ranks_set_aside == tuple(sorted(set(ranks) - set(kept)))


def test_ranks_and_steps_may_lie_far_apart(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.csv",
        "rank,step,seconds",
        *(f"{rank},{step},1" for rank in (3, 10**12) for step in (0, 10**15)),
    )
    found = matrix_of_table(path)
    assert found.ranks.tolist() == [3, 10**12]
    assert found.steps.tolist() == [0, 10**15]


BAD_ROWS = {
    "0,100,fast": "seconds is not a number",
    "0,100,": "seconds is not a number",
    "0,100,nan": "seconds is not a number",
    "0,100,inf": "seconds is not a number",
    "0,100,-1": "seconds is negative",
    "zero,100,1": "rank is not a number",
    "-1,100,1": "rank is negative",
    "0.5,100,1": "rank is not a whole number",
    "0,1e+300,1": "step is too large",
    "0,0,2": "duplicate rank and step",
    "0,100,1,2": "4 cells instead of 3",
}


@pytest.mark.parametrize("row", BAD_ROWS)
def test_unusable_rows_are_set_aside_and_told(tmp_path: Path, row: str) -> None:
    good = [f"{rank},{step},{1 + rank}" for step in range(100) for rank in (0, 1)]
    path = write(tmp_path / "a.csv", "rank,step,seconds", *good[:50], row, *good[50:])
    found = matrix_of_table(path)
    assert found.rejected == 1
    assert (found.rejects[0].line, found.rejects[0].reason) == (52, BAD_ROWS[row])
    assert found.rejects[0].text.split(",")[1] == row.split(",")[1]
    assert found.own_s.tolist() == [[1.0] * 100, [2.0] * 100]


def test_several_kinds_of_bad_rows_keep_their_lines(tmp_path: Path) -> None:
    good = [f"{rank},{step},1" for step in range(200) for rank in (0, 1)]
    lines = [*good[:10], "0,1,2,3", *good[10:20], "0,x,1", *good[20:]]
    found = matrix_of_table(write(tmp_path / "a.csv", "rank,step,seconds", *lines))
    assert [(each.line, each.reason) for each in found.rejects] == [
        (12, "4 cells instead of 3"),
        (23, "step is not a number"),
    ]


def test_too_many_unusable_rows_are_refused(tmp_path: Path) -> None:
    good = [f"{rank},{step},1" for step in range(20) for rank in (0, 1)]
    path = write(tmp_path / "a.csv", "rank,step,seconds", *good, "0,99,slow")
    with pytest.raises(InputError, match=r"line 42: 1 of 41 records"):
        stragglers(path)
    assert stragglers(path, max_reject_share=0.05).matrix.rejected == 1


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (["rank,step", "0,1"], "no column 'seconds'"),
        (["rank,step,seconds,Rank", "0,1,1,1"], "duplicate column"),
        (["rank,step,seconds"], "no rows"),
        ([], "CSV"),
        (["rank,step,seconds", "a,b,c"], "1 of 1 records"),
        (["rank,step,seconds", "0,1,1", "0,2,1"], "no step is shared by two ranks"),
        (["rank,step,seconds", "0,1,1", "1,2,1"], "no step is shared by two ranks"),
    ],
)
def test_what_cannot_be_used_is_refused(tmp_path: Path, lines: list[str], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        stragglers(write(tmp_path / "a.csv", *lines))


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_binary_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(bytes(range(256)) * 20)
    with pytest.raises(InputError):
        stragglers(path)


def test_packed_tables_are_read_and_damaged_text_is_set_aside(tmp_path: Path) -> None:
    rows = [f"{rank},{step},{1 + rank}" for step in range(200) for rank in (0, 1)]
    text = "\n".join(["rank,step,seconds", *rows[:7], "0,\udcff\udcfe,1,2", *rows[7:]])
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(text.encode("utf-8", errors="surrogateescape")))
    found = matrix_of_table(path)
    assert found.own_s.shape == (2, 200)
    assert [each.line for each in found.rejects] == [9]
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InputError, match="CSV"):
        matrix_of_table(path)


def test_a_column_that_changes_is_no_label(tmp_path: Path) -> None:
    rows = [f"{rank},{step},1,{step},r{rank}" for step in range(9) for rank in (0, 1)]
    found = matrix_of_table(write(tmp_path / "a.csv", "rank,step,seconds,loss,rack", *rows))
    assert found.labels == ({"rack": "r0"}, {"rack": "r1"})
    assert found.remarks == ("column loss is not a label: it changes within a rank",)


def test_waiting_longer_than_the_step_is_refused(tmp_path: Path) -> None:
    rows = [f"{rank},{step},1,0.5" for step in range(200) for rank in (0, 1)]
    path = write(tmp_path / "a.csv", "rank,step,seconds,sync_s", *rows, "0,200,1,2")
    assert matrix_of_table(path).rejects[0].reason == "sync_s is longer than the step"


def test_a_table_of_ranks_that_share_nothing_is_refused_at_once(tmp_path: Path) -> None:
    # As many steps as rows: the matrix would have 4e8 cells.
    rows = [f"{row},{row},1" for row in range(20_000)]
    with pytest.raises(InputError, match="no step is shared by two ranks"):
        matrix_of_table(write(tmp_path / "a.csv", "rank,step,seconds", *rows))


def test_sources_that_do_not_exist_or_mix_are_refused(tmp_path: Path) -> None:
    table = write(tmp_path / "a.csv", "rank,step,seconds", "0,0,1", "1,0,1")
    for source, problem in (
        (tmp_path / "none", "file or folder not found"),
        ([], "no source"),
        ([table, table], "cannot read step times"),
        (write(tmp_path / "notes.txt", "hello"), "cannot read step times"),
    ):
        with pytest.raises(InputError, match=problem):
            stragglers(source)
