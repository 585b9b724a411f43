"""Finding dumps and telling their ranks; the command and its page."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.cli import main
from holdfast.errors import InputError
from holdfast.runs.flight.dumps import rank_in_name, read_dumps
from holdfast.runs.flight.verdict import hang, hang_of
from holdfast.runs.ranks import ranges

DUMPS = Path(__file__).parent / "dumps"
SCENE = DUMPS / "gloo" / "never_enters"
EXAMPLES = Path(__file__).parents[3] / "examples" / "hang"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("rank_3", (3, True)),
        ("nccl_trace_rank_3", (3, True)),
        ("nccl_trace_rank_12.pkl.gz", (12, True)),
        ("host-a_rank3.json", (3, True)),
        ("node7-gpu1-nccl_trace_rank_12", (12, True)),
        ("RANK-0004.json", (4, True)),
        ("trace_7", (7, False)),
        ("00007.json", (7, False)),
        ("dump.3.pickle", (3, False)),
        ("node7", (7, False)),
        ("trace.json", None),
        ("7_trace", None),
    ],
)
def test_the_rank_in_a_name(name: str, expected: tuple[int, bool] | None) -> None:
    assert rank_in_name(name) == expected


def test_names_that_tell_the_same_rank_twice_are_refused(tmp_path: Path) -> None:
    for rank in (0, 1):
        content = (SCENE / "json" / f"rank_{rank}.json").read_bytes()
        (tmp_path / f"node{rank}-gpu0").write_bytes(content + b" ")
    document = json.loads((tmp_path / "node1-gpu0").read_text())
    document["entries"].pop()
    (tmp_path / "node1-gpu0").write_text(json.dumps(document))
    with pytest.raises(InputError, match="seem to be of rank 0") as raised:
        hang(tmp_path)
    assert "name each file after its rank" in str(raised.value)


def test_a_name_without_a_rank_is_refused(tmp_path: Path) -> None:
    shutil.copy(SCENE / "json" / "rank_0.json", tmp_path / "trace.json")
    with pytest.raises(InputError, match="tells its rank"):
        hang(tmp_path)


def test_the_content_knows_better_than_the_name(tmp_path: Path) -> None:
    for rank in range(4):
        shutil.copy(EXAMPLES / "never-enters" / f"rank_{rank}.json", tmp_path / f"x{9 - rank}.json")
    assert hang(tmp_path).missing_ranks == (2,)


def test_both_formats_beside_each_other_count_once(tmp_path: Path) -> None:
    for rank in range(4):
        shutil.copy(SCENE / "json" / f"rank_{rank}.json", tmp_path)
        shutil.copy(SCENE / "pickle" / f"nccl_trace_rank_{rank}", tmp_path)
    found = read_dumps([tmp_path])
    assert sorted(found.by_rank) == [0, 1, 2, 3]
    assert len(found.set_aside) == 4


def test_of_two_hangs_the_newer_one_is_judged(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES / "never-enters", tmp_path / "flight" / "first")
    shutil.copytree(EXAMPLES / "subgroups", tmp_path / "flight" / "second")
    newer = hang(EXAMPLES / "subgroups")
    found = hang(tmp_path)
    assert (found.group, found.missing_ranks) == (newer.group, newer.missing_ranks) == ("tp", (3,))
    assert found.evidence.set_aside == ()
    assert "first holds 4 older dumps" in " ".join(found.evidence.remarks)
    assert hang(tmp_path / "flight" / "first").missing_ranks == (2,)


def test_in_a_recorded_run_only_flight_records_are_dumps(tmp_path: Path) -> None:
    (tmp_path / "watch.json").write_text('{"events": []}')
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(InputError, match="no flight record found") as raised:
        hang(tmp_path)
    assert "hang_after_s" in str(raised.value)
    shutil.copytree(EXAMPLES / "never-enters", tmp_path / "flight" / "unnamed")
    found = hang(tmp_path)
    assert found.missing_ranks == (2,)
    assert found.evidence.set_aside == ()


def test_a_file_that_is_named_and_is_something_else_is_set_aside(tmp_path: Path) -> None:
    (tmp_path / "notes.json").write_text("{}")
    found = hang(EXAMPLES / "never-enters", tmp_path / "notes.json")
    assert [Path(each.file).name for each in found.evidence.set_aside] == ["notes.json"]


def test_one_folder_a_host_is_one_hang(tmp_path: Path) -> None:
    for rank in range(4):
        folder = tmp_path / f"host{rank // 2}"
        folder.mkdir(exist_ok=True)
        shutil.copy(SCENE / "json" / f"rank_{rank}.json", folder)
    assert hang(tmp_path).missing_ranks == (2,)


def test_no_dumps_says_how_to_get_some(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="TORCH_FR_BUFFER_SIZE"):
        hang(tmp_path)
    with pytest.raises(InputError, match="not found"):
        hang(tmp_path / "absent")


@given(st.sets(st.integers(0, 60)))
def test_ranges_name_every_rank(ranks: set[int]) -> None:
    text = ranges(sorted(ranks), most=100).replace(" and ", ", ")
    named: set[int] = set()
    for piece in text.split(", "):
        if piece != "none":
            first, _, last = piece.partition("-")
            named |= set(range(int(first), int(last or first) + 1))
    assert named == ranks


# --- The command and the page --------------------------------------------------------------------


def hang_command(*arguments: str | Path) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["runs", "hang", *map(str, arguments)])
    assert ended.value.code == 0


def test_the_command_prints_the_contract(capsys: pytest.CaptureFixture[str]) -> None:
    hang_command(EXAMPLES / "subgroups", "--json")
    told = json.loads(capsys.readouterr().out)
    assert list(told) == [
        "verdict",
        "group",
        "sequence",
        "collective",
        "missing_ranks",
        "unknown_ranks",
        "sentence",
        "evidence",
        "divergence",
        "ending",
    ]
    assert (told["verdict"], told["missing_ranks"]) == ("missing_ranks", [3])
    assert told["evidence"]["ranks"][0]["where"].startswith("load_batch (")


@pytest.mark.parametrize("example", ["never-enters", "subgroups", "mismatched-operation"])
def test_the_terminal_starts_with_the_verdict(
    example: str, capsys: pytest.CaptureFixture[str]
) -> None:
    hang_command(EXAMPLES / example, "--verbose")
    shown = capsys.readouterr().out
    assert shown.removeprefix("1. ").startswith(("Missing ranks:", "Mismatch:"))
    assert "Stack" in shown


def test_the_page_stands_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "hang.html"
    hang_command(EXAMPLES / "subgroups", "--html", target)
    text = target.read_text()
    assert "Rank 3 never entered all_reduce 3 of group tp" in text
    assert f"report: {target}" in capsys.readouterr().err


def test_every_verdict_makes_a_page() -> None:
    for scene in ("healthy", "no_root", "mismatched_dtype", "killed", "opposite_order"):
        found = hang(DUMPS / "gloo" / scene / "json")
        made = found.page()
        assert made.sections[0].sentence == found.sentence
        missing = any("without a dump" in each.text for each in made.unknowns)
        assert missing == (scene == "killed")


def test_the_section_of_a_run(tmp_path: Path) -> None:
    assert hang_of(tmp_path) is None
    records = tmp_path / "my-run" / "flight" / "unnamed"
    records.mkdir(parents=True)
    (records / "rank_0.json").write_text("{")
    assert hang_of(tmp_path) is None
    for file in (EXAMPLES / "never-enters").iterdir():
        shutil.copy(file, records)
    made = hang_of(tmp_path)
    assert made is not None
    assert made.sentence.startswith("Rank 2 never entered all_reduce 7")
