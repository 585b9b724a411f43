"""What people and programs get: the command, the page, the section of a run report."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from straggling.simulated_events import times, train
from straggling.simulated_steps import matrix_of, noise

from holdfast.cli import main
from holdfast.errors import InputError
from holdfast.report import render
from holdfast.report.parts import MAX_ROWS
from holdfast.runs.goodput.report import report
from holdfast.runs.straggling import figures
from holdfast.runs.straggling.scores import stragglers

EXAMPLES = Path(__file__).parents[3] / "examples" / "stragglers"


def table(path: Path, own: np.ndarray, **labels: Callable[[int], str]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["rank", "step", "seconds", *labels])
        for rank, row in enumerate(own):
            for step, seconds in enumerate(row):
                writer.writerow([rank, step, seconds, *(of(rank) for of in labels.values())])
    return path


def run(*arguments: object) -> int:
    """The exit code of `holdfast runs stragglers`."""
    with pytest.raises(SystemExit) as ended:
        main(["runs", "stragglers", *map(str, arguments)])
    return int(ended.value.code or 0)


def test_the_command_names_the_slow_rank(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(EXAMPLES / "traces") == 0
    out = capsys.readouterr().out
    assert "Rank 2 on vm is persistently slow" in " ".join(out.split())


def test_the_command_prints_json_and_writes_a_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    html = tmp_path / "report.html"
    source = EXAMPLES / "steps.csv.gz"
    assert run(source, "--json", "--html", html) == 0
    told = json.loads(capsys.readouterr().out)
    assert [row["rank"] for row in told["ranks"] if row["persistent"]] == [10, 11, 8, 9]
    (spell,) = told["transient"]
    assert (spell["rank"], spell["first_step"], spell["last_step"]) == (6, 121, 160)
    assert "the ranks with node-c" in told["sentence"]
    assert "Which ranks are slow?" in html.read_text(encoding="utf-8")


def test_traces_can_be_named_one_by_one(capsys: pytest.CaptureFixture[str]) -> None:
    traces = [str(path) for path in sorted((EXAMPLES / "traces").iterdir())]
    assert run("--json", *traces) == 0
    assert json.loads(capsys.readouterr().out)["ranks"][0]["rank"] == 2


def test_bad_input_is_said_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path / "none") == 2
    assert "not found" in capsys.readouterr().err
    source = EXAMPLES / "steps.csv.gz"
    assert run(source, "--html", tmp_path / "none" / "a.html") == 2
    assert run(source, "--within", "colour") == 2
    assert "no label colour" in capsys.readouterr().err


def test_peers_are_compared_with_peers(tmp_path: Path) -> None:
    own = noise(16, 200, seed=1, spread=0.02)
    own[8:] += 0.3  # the second stage has more to do
    own[3] += 0.1  # and a rank of the first is slow, yet faster than any of the second
    path = table(tmp_path / "a.csv", own, stage=lambda rank: str(rank // 8))
    assert not {row["rank"] for row in stragglers(path).persistent} & {3}
    found = stragglers(path, within="stage")
    assert [row["rank"] for row in found.persistent] == [3]
    assert found.persistent[0]["delay_s"] == pytest.approx(0.1, abs=0.01)
    assert found.groups is None
    assert found.to_dict()["within"] == "stage"
    each = found.matrix.own_s.reshape(2, 8, 200)
    assert np.median(each, axis=1) == pytest.approx(np.median(own, axis=0)[None].repeat(2, 0))


def test_peers_need_company(tmp_path: Path) -> None:
    path = table(tmp_path / "a.csv", noise(4, 40, seed=1), stage=str)
    with pytest.raises(InputError, match="no two ranks have the same stage"):
        stragglers(path, within="stage")


def test_every_kind_of_answer_makes_a_page(tmp_path: Path) -> None:
    slow = noise(12, 200, seed=1)
    slow[8:] += 0.3
    slow[7, 20:60] += 0.5
    labels = [{"node": f"<n{rank // 4}>", "stage": str(rank % 2)} for rank in range(12)]
    work, data = times(1)
    for name, sync, wait in (("own", True, 1), ("data", False, 1), ("nothing", False, 0)):
        train(tmp_path / name, work, data * wait, sync=sync)
    answers = [
        stragglers(matrix_of(slow, labels)),
        stragglers(matrix_of(noise(3, 40, seed=2))),
        stragglers(matrix_of(np.ones((2, 1)))),
        stragglers(EXAMPLES / "traces"),
        *(stragglers(tmp_path / name) for name in ("own", "data", "nothing")),
    ]
    for found in answers:
        made = found.page()
        text = render(made)
        assert "<n2>" not in text
        assert 1 <= len(made.findings) <= 7
    assert [each.id for each in answers[0].sections()] == [
        "stragglers", "spells",
    ]  # fmt: skip
    assert "cannot be told" in answers[-1].headline
    assert any("so a rank that computes slowly" in each.text for each in answers[-2].unknowns())


def test_where_only_data_waits_are_known_the_headline_gives_no_all_clear(tmp_path: Path) -> None:
    """DDP without step.sync(): a slow rank lets the others wait, and all steps are equally long."""
    work, data = times(1)
    train(tmp_path, work, data, sync=False)
    found = stragglers(tmp_path)
    assert (found.matrix.base, found.persistent) == ("data_wait", [])
    assert found.headline.startswith("Who computes slowly cannot be told")


def test_the_heat_map_shows_the_mean_of_many_steps_and_the_latest_of_many_ranks() -> None:
    own = np.ones((200, 1000))
    own[150] += 0.5
    own[151, :500] += 2.0
    found = stragglers(matrix_of(own))
    width, height = figures._cell_size(found)
    assert (200 / height) * (1000 / width) <= min(MAX_ROWS, figures.MOST_CELLS)
    late = {(cell["ranks"], cell["begin"]): cell["late"] for cell in figures._cells(found)}
    row = f"{150 // height * height}–{150 // height * height + height - 1}"
    assert late[row, 0] == pytest.approx(2.0)
    assert late[row, 500 // width * width + width] == pytest.approx(0.5)
    assert sum(value > 0 for value in late.values()) == sum(name == row for name, _ in late)


def test_a_large_run_has_a_heat_map_that_a_page_takes() -> None:
    own = 1 + 0.2 * np.random.default_rng(1).random((700, 1000), dtype=np.float32)
    assert len(figures._cells(stragglers(matrix_of(own)))) <= figures.MOST_CELLS


def test_the_section_of_a_run_report(tmp_path: Path) -> None:
    work, data = times(1)
    work[2] += 0.2
    train(tmp_path / "slow", work, data)
    made = {each.id: each for each in report(tmp_path / "slow").sections()}
    assert made["stragglers"].sentence.startswith("Rank 2 on n1 is persistently slow")
    assert len(made["stragglers"].figures) == 1
    train(tmp_path / "alone", work[:1], data[:1])
    assert "stragglers" not in {each.id for each in report(tmp_path / "alone").sections()}
    train(tmp_path / "mute", work, data * 0, sync=False)
    told = {each.id: each for each in report(tmp_path / "mute").sections()}["stragglers"]
    assert "cannot be told" in told.sentence
    assert not told.figures
