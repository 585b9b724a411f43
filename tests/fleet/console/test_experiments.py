"""What-if runs: one at a time, in a process that can be ended, through the form to the answer."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from time import monotonic

import pytest
from fastapi.testclient import TestClient
from standin_whatif import whatif

from holdfast.errors import InputError
from holdfast.fleet import Assumptions
from holdfast.fleet.console.experiments import MOST_CHANGES, Experiment, Experiments, Request

HANG = "nodes+1003"
PATIENCE_S = 120
_NEVER = Event()
FORM = {"changes": "lemons=off", "given": "", "replicas": "4", "days": "", "seed": "1"}


def until(true: Callable[[], bool]) -> None:
    """Wait for another process; how long it takes is not what is tested."""
    end = monotonic() + PATIENCE_S
    while not true():
        assert monotonic() < end, "it did not happen"
        _NEVER.wait(0.01)  # the processor is the other process's meanwhile


def finished(queue: Experiments, run: Experiment) -> Experiment:
    until(lambda: queue.get(run.number) is run and run.state != "running")
    return run


def asked(*changes: str) -> Request:
    return Request.from_form({**FORM, "changes": "\n".join(changes)})


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[Experiments]:
    made = Experiments(tmp_path, Assumptions(), whatif, processes=1)
    yield made
    made.close()


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def hung(folder: Path) -> list[int]:
    """The processes that told of themselves before they hung."""
    return [int(file.name.removeprefix("hung-")) for file in folder.glob("hung-*")]


def test_runs_and_what_is_wrong_with_them(queue: Experiments) -> None:
    for change in ("lemons=off", "nodes+1"):
        run = finished(queue, queue.submit(asked(change)))
        assert run.state == "done", run.error
        assert (run.done, run.total) == (4, 4)
        assert run.page is not None
        text = f"{change} raises it over 4 replicas of None days, given [], "
        text += "a checkpoint every 3600 s."
        assert run.page.findings[0].text == text
        assert run.sections[0]["id"] == "gain"
        assert run.seconds > 0
    refused = finished(queue, queue.submit(asked("nodes+1001")))
    assert refused.state == "failed"
    assert refused.error == "nodes: there is no room\n  remedy: ask for less"
    died = finished(queue, queue.submit(asked("nodes+1002")))
    assert died.state == "failed"
    assert "ended early (exit code 3)" in died.error
    assert [each.number for each in queue.latest()] == [4, 3, 2, 1]


def test_one_run_at_a_time_which_can_be_cancelled(queue: Experiments, tmp_path: Path) -> None:
    running = queue.submit(asked(HANG))
    until(lambda: bool(hung(tmp_path)))
    with pytest.raises(InputError) as caught:
        queue.submit(asked("nodes+1"))
    assert caught.value.code == "busy"
    queue.cancel(99)
    assert running.state == "running"
    queue.cancel(running.number)
    assert running.state == "cancelled"
    (process,) = hung(tmp_path)
    until(lambda: gone(process))
    again = queue.submit(asked(HANG + "4"))
    until(lambda: len(hung(tmp_path)) == 2)
    queue.close()
    assert again.state == "cancelled"
    until(lambda: all(map(gone, hung(tmp_path))))


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        ("changes", " \n ", "no-data"),
        ("changes", "\n".join(f"nodes+{k}" for k in range(MOST_CHANGES + 1)), "too-many-changes"),
        ("changes", "x" * 300, "invalid-syntax"),
        ("changes", "lemons=\x00off", "invalid-syntax"),
        ("changes", "no_such_key=1", "unknown-key"),
        ("changes", "nonsense", "invalid-syntax"),
        ("changes", "workload.log=/etc/passwd", "conflict"),
        ("changes", "lemons=off; workload.kind=replay", "conflict"),
        ("given", "workload.log=secret", "conflict"),
        ("replicas", "1", "invalid-value"),
        ("replicas", "2.5", "invalid-value"),
        ("replicas", "9999", "invalid-value"),
        ("days", "-1", "invalid-value"),
        ("days", "nan", "invalid-value"),
        ("seed", "", "invalid-value"),
    ],
)
def test_requests_that_make_no_sense(field: str, value: str, code: str) -> None:
    with pytest.raises(InputError) as caught:
        Request.from_form({**FORM, field: value})
    assert caught.value.code == code
    assert caught.value.place in (field, None)


def test_a_request() -> None:
    form = {**FORM, "changes": " nodes+1 \n\nlemons=off\nnodes+1", "days": "1.5"}
    assert Request.from_form(form) == Request(("nodes+1", "lemons=off"), (), 4, 1.5, 1)


def test_from_the_form_to_the_answer(console: TestClient) -> None:
    offered = re.findall(r'name="pick" id="[^"]*" value="([^"]*)"', console.get("/whatif").text)
    assert {"lemons=off", "replace=node05"} <= set(offered)
    form = {**FORM, "pick": ["replace=node05"], "given": "checkpoint.write=5m"}
    answer = console.post("/whatif", data=form, follow_redirects=False)
    assert answer.status_code == 303
    address = answer.headers["Location"]

    def state() -> str:
        return str(console.get(f"{address}/state").json()["state"])

    until(lambda: state() != "running")
    assert state() == "done"
    page = console.get(address).text
    assert "replace=node05 raises it over 4 replicas" in page
    assert "given [&#39;checkpoint.write=5m&#39;], a checkpoint every 60 s" in page
    assert "nothing was simulated &lt;b&gt;here" in page
    again = re.search(r'href="(/whatif\?[^"]*)"', page)
    assert again is not None
    form_again = console.get(again[1].replace("&amp;", "&")).text
    assert 'value="replace=node05" checked' in form_again
    assert ">checkpoint.write=5m</textarea>" in form_again


def test_a_form_that_makes_no_sense_keeps_what_was_typed(console: TestClient) -> None:
    answer = console.post("/whatif", data={**FORM, "changes": "nodes+<b>", "replicas": "1"})
    assert answer.status_code == 400
    assert ">nodes+&lt;b&gt;</textarea>" in answer.text
    assert 'role="alert"' in answer.text


def test_a_run_does_not_outlive_its_console(tmp_path: Path) -> None:
    """However the console ends."""
    program = f"""
import sys
from pathlib import Path
sys.path[:0] = {sys.path!r}
from standin_whatif import whatif
from holdfast.fleet import Assumptions
from holdfast.fleet.console.experiments import Experiments
from holdfast.fleet.console.experiments import Request
if __name__ == "__main__":
    queue = Experiments(Path({str(tmp_path)!r}), Assumptions(), whatif, processes=1)
    queue.submit(Request((sys.argv[1],), (), 2, None, 0))
    sys.stdin.read()
"""
    script = tmp_path / "console.py"
    script.write_text(program)
    command = [sys.executable, str(script), HANG]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as console:
        until(lambda: bool(hung(tmp_path)))
        console.kill()
    until(lambda: gone(hung(tmp_path)[0]))
