"""The command `holdfast runs diagnose`."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path

import pytest

from holdfast.command import run
from holdfast.errors import InputError
from holdfast.runs.cli import app
from holdfast.runs.diagnosis.rules import load

LOGS = Path(__file__).parent / "logs"


def called(*arguments: str | Path) -> str:
    """What the command prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert run(app, ["diagnose", *map(str, arguments)]) == 0
    return out.getvalue()


def test_json_has_the_contract() -> None:
    done = called(LOGS / "no_space.log", "--json")
    found = json.loads(done)
    assert found["cause"] == "no_space"
    assert found["domains"] == ["user", "system"]
    assert {"file", "line", "text"} <= found["evidence"][0].keys()
    assert isinstance(found["unknown_templates"], list)
    assert (found["symptom"], found["first_rank"], found["confidence"]) == ("disk_space", 2, "high")


def test_no_cause_is_no_failure(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text("step 1\n")
    done = called(log, "--json")
    found = json.loads(done)
    assert (found["cause"], found["domains"], found["evidence"]) == (None, [], [])
    assert found["sentence"].startswith("No rule knows an error in these 1 lines")


def test_the_terminal_shows_cause_evidence_and_what_to_do() -> None:
    done = called(LOGS / "nccl_killed.log")
    for words in ("killed with SIGKILL", "Confidence medium", "What to do:", "nccl_killed.log:107"):
        assert words in done
    more = called(LOGS / "nccl_killed.log", "--verbose")
    assert "Also found" in more


def test_markup_in_a_log_is_shown_as_it_stands(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text("[bold]No space left on device[/bold] [/nothing]\n")
    assert "[bold]No space left on device[/bold] [/nothing]" in called(log)


def test_the_rules_are_printed() -> None:
    done = called("--print-rules")
    assert all(f'id = "{rule.id}"' in done for rule in load().rules)


def test_nothing_given() -> None:
    with pytest.raises(InputError, match="no log to read"):
        called()
