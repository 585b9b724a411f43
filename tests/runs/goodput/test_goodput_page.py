"""The report of a run: from files to the page, the terminal and the command's JSON."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from goodput.building import ORIGIN_S, Script, recorded, written

from holdfast.cli import main
from holdfast.errors import InputError
from holdfast.report import terminal
from holdfast.runs.goodput.accounting import breakdown
from holdfast.runs.goodput.report import RunReport, report

NOW_S = ORIGIN_S + 1e7
HOSTILE = "</script><script>alert(1)</script>"
SECTIONS = {
    "where": "Where did the time go?",
    "attempts": "What happened when?",
    "steps": "Are the steps even?",
}
FIGURES = {
    "where-figure-1": ("GPU-minutes", "wall time", "replayed steps", "productive steps"),
    "attempts-figure-1": ("Attempt", "1 killed", "2 hung", "3 ended well"),
    "steps-figure-1": ("Time of a step (ms)",),
}


def life(node: str = "node") -> list[Script]:
    """Two ranks; killed in step 41, hung after step 61, done with step 100."""
    scripts = []
    plan = [(0, 0.0, 1, 40, "none"), (1, 40.0, 31, 60, "signal"), (2, 90.0, 61, 100, "clean")]
    for attempt, start, first, last, end in plan:
        for rank in range(2):
            script = Script(
                rank=rank,
                attempt=attempt,
                start_s=start,
                lived_s=1.0,
                world_size=2,
                node=f"{node}{rank}",
                ready=1.0,
                resumed_from=first - 1 if attempt else None,
                submitted_s=-3.0 if not attempt else None,
                end=end,
            )
            at = 1.0
            for number in range(first, last + 1):
                script.span("data_wait", at, at + 0.1)
                script.span("step", at + 0.1, at + 0.6, step=number, tokens=512.0)
                at += 0.6
                if number % 30 == 0:
                    script.at("begin", at, what="checkpoint")
                    script.span("checkpoint", at, at + 0.4, step=number)
                    script.at("published", at + 0.7, step=number)
                    at += 0.4
            script.last = at + (20 if attempt == 1 else 1)
            scripts.append(script)
    return scripts


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(life(), tmp_path_factory.mktemp("life") / "events")


@pytest.fixture(scope="module")
def made(folder: Path) -> tuple[RunReport, str]:
    result = report(folder, html=folder.parent / "report.html", now_s=NOW_S)
    assert result.html is not None
    return result, result.html.read_text(encoding="utf-8")


def body(html: str) -> str:
    """The text that a reader sees, without styles, scripts and drawings."""
    for tag in ("style", "script", "svg"):
        html = re.sub(rf"<{tag}\b.*?</{tag}>", " ", html, flags=re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", html))


def test_files_give_what_the_run_was(folder: Path) -> None:
    from_files = breakdown(folder, now_s=NOW_S).to_dict()
    by_hand = breakdown(recorded(life()), now_s=NOW_S).to_dict()
    assert from_files["parts"] == pytest.approx(by_hand["parts"], abs=1e-4)
    for name in ("attempts", "steps", "replayed_steps", "interruptions", "nodes"):
        if name != "replayed_steps":
            assert from_files[name] == by_hand[name]
    assert from_files["replayed_steps"]["by_attempt"][0]["count"] == 10
    assert [each["ended"] for each in from_files["attempt_table"]] == ["killed", "signal", "clean"]
    assert [each["hung"] for each in from_files["attempt_table"]] == [False, True, False]


def test_line_that_a_kill_cut_in_half(folder: Path, tmp_path: Path) -> None:
    copy = written(life(), tmp_path / "events")
    last = max((copy / "run").glob("rank-00000-*"), key=lambda path: path.name)
    with last.open("a") as file:
        file.write('{"event":"step","t":26.9,"sec')
    whole, cut = breakdown(folder, now_s=NOW_S), breakdown(copy, now_s=NOW_S)
    assert cut.parts == pytest.approx(whole.parts, abs=1e-9)
    assert any("cut" in remark for remark in cut.remarks)


def test_every_section_and_figure(made: tuple[RunReport, str]) -> None:
    _, html = made
    shown = re.findall(r'<section id="([a-z]+)" aria', html)
    assert [name for name in shown if name in SECTIONS] == list(SECTIONS)
    text = body(html)
    for question in SECTIONS.values():
        assert question.replace("'", "&#39;") in text
    for name, texts in FIGURES.items():
        drawing = re.search(rf'id="{name}" role="img".*?</svg>', html, re.DOTALL)
        assert drawing is not None, name
        for each in texts:
            assert f">{each}<" in drawing[0], (name, each)
    assert "Run report: run</title>" in html


def test_findings_hold_the_numbers(made: tuple[RunReport, str]) -> None:
    result, _ = made
    told = " ".join(f"{each.lead} {each.text}" for each in result.findings())
    assert 3 <= len(result.findings()) <= 7
    assert f"ETTR {round(100 * result.breakdown.ettr)} %:" in told
    assert "2 interruptions in 3 attempts (killed once and hung once)" in told
    assert "stalls 20 s" in told


@pytest.mark.parametrize("lived", [5, 30])
def test_costs_of_interruptions_are_parts_of_the_wall_time(lived: float) -> None:
    """A start that never became ready is initialisation, not a stall as well."""
    scripts = [
        Script(attempt=k, start_s=k * (lived + 1), ready=None).at("alive", lived) for k in (0, 1)
    ]
    made = report(recorded(scripts), now_s=NOW_S)
    (cost,) = (each.text for each in made.findings() if "They cost" in each.text)
    share = float(re.search(r"([\d.]+) % of the wall time", cost)[1])  # type: ignore[index]
    assert share <= 100
    assert "stalls" not in cost


def test_page_of_a_poor_run_says_what_it_can(tmp_path: Path) -> None:
    for number, scripts in enumerate(
        (
            [Script(ready=None)],
            [Script(ready=None, last=5).at("alive", 5)],
            [Script(end="clean").steps(1, 1, 0, 1.0)],
            [Script(attempt=k, start_s=2.0 * k).steps(1, 1, 0, 1.0) for k in range(60)],
        )
    ):
        result = report(recorded(scripts), html=tmp_path / f"{number}.html", now_s=NOW_S)
        assert result.html is not None
        assert result.findings()
        text = body(result.html.read_text(encoding="utf-8"))
        assert "nan" not in text.lower().split()
        assert terminal.text(result, verbose=True)


def test_a_run_that_goes_on_says_so(tmp_path: Path) -> None:
    run = recorded([Script().steps(1, 30, 0, 1.0)])
    result = report(run, html=tmp_path / "report.html", now_s=ORIGIN_S + 40)
    assert "so far" in result.findings()[0].text
    assert "still running" in body((tmp_path / "report.html").read_text(encoding="utf-8"))


def test_names_are_escaped(tmp_path: Path) -> None:
    scripts = life(node=HOSTILE)
    scripts[0].events.append({"event": "pause", "t": 2.0, "seconds": 0.0, "what": HOSTILE})
    run = recorded(scripts, remarks=(HOSTILE,))
    report(run, html=tmp_path / "report.html", now_s=NOW_S)
    assert "<script>alert" not in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_the_terminal_has_the_findings_and_in_detail_the_parts(
    made: tuple[RunReport, str],
) -> None:
    assert len(terminal.text(made[0], width=100).splitlines()) <= 30
    text = terminal.text(made[0], verbose=True)
    for part in ("productive steps", "replayed steps", "idle or hung", "wall time", "ended well"):
        assert part in text.lower()


def run(*arguments: str | Path | float) -> int:
    """The exit code of the command."""
    with pytest.raises(SystemExit) as ended:
        main(["runs", "report", *map(str, arguments)])
    return int(ended.value.code or 0)


def test_command_prints_the_contract(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(folder, "--json", "--html", tmp_path / "r.html") == 0
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert told["run_id"] == "run"
    assert sum(told["parts"].values()) == pytest.approx(told["wall_s"], abs=1e-9)
    assert (tmp_path / "r.html").is_file()
    assert run(folder, "--quiet") == 0
    assert "ETTR 42 %" in capsys.readouterr().out


def test_command_with_bad_input(folder: Path, tmp_path: Path) -> None:
    assert run(tmp_path / "nothing") == 2
    assert run(folder, "--run", "other") == 2


def test_several_runs_need_a_choice(folder: Path, tmp_path: Path) -> None:
    both = written(life(), tmp_path / "events", "one")
    written(life(), both, "two")
    with pytest.raises(InputError, match="run"):
        breakdown(both)
    assert breakdown(both, "two", now_s=NOW_S).run_id == "two"
