"""kill -9 at any moment leaves the old dataset or the new one, and the next run makes the same bytes."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import killed_writer
import pytest
from listed_source import files, on_disk

from holdfast.data.records.jpeg import turbojpeg
from holdfast.data.records.writing.generations import only_writer
from holdfast.errors import StoreError

SIZE = 9000
OLD, NEW = list(range(5)), list(range(100, 104))
SAME_SIZES = list(range(50, 55))


class Victims:
    """The process that starts writers, which die."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, killed_writer.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(killed_writer.__file__).parent,
        )

    def order(self, out: Path, seeds: list[int], **more: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        order = {"out": str(out), "seeds": seeds, "size": SIZE, **more}
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        assert isinstance(answer, dict)
        return answer

    def end(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        assert self.process.wait() == 0


@pytest.fixture(scope="module")
def victims() -> Iterator[Victims]:
    started = Victims()
    yield started
    started.end()


def expected(seeds: list[int]) -> dict[str, bytes]:
    """id -> image, straight from the transcoder."""
    source = killed_writer.source(tuple(seeds), SIZE)
    return {one.id: turbojpeg.transcode(one.data) for one in source.examples}


def written(folder: Path, *generations: list[int]) -> Path:
    for seeds in generations:
        killed_writer.write(folder, seeds, SIZE)
    return folder


def readable(folder: Path, *allowed: dict[str, bytes] | None) -> int:
    """Which of these datasets a reader finds (None: no manifest); anything else fails."""
    if not (folder / "manifest.parquet").exists():
        assert None in allowed
        return allowed.index(None)
    return allowed.index(on_disk(folder).images)


SCENARIOS: dict[str, tuple[list[list[int]], list[int]]] = {
    "into nothing": ([], NEW),
    "over another dataset": ([OLD], NEW),
    "over images of the same names and sizes": ([OLD], SAME_SIZES),
    "over such, a second time": ([OLD, SAME_SIZES], OLD),
    "one image of the same size changed": ([OLD], [*OLD[:4], 99]),
    "over itself": ([OLD], OLD),
}


QUICK = ("over images of the same names and sizes",)


@pytest.mark.parametrize(
    "name",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.full) for name in SCENARIOS],
)
def test_killed_before_every_call(tmp_path: Path, victims: Victims, name: str) -> None:
    killed_at_every_call(tmp_path, victims, name, "before")


@pytest.mark.full
@pytest.mark.parametrize("name", SCENARIOS)
def test_killed_after_every_call(tmp_path: Path, victims: Victims, name: str) -> None:
    killed_at_every_call(tmp_path, victims, name, "after")


def killed_at_every_call(tmp_path: Path, victims: Victims, name: str, side: str) -> None:
    before, new = SCENARIOS[name]
    start = tmp_path / "start"
    start.mkdir()
    written(start, *before)
    old_images = expected(before[-1]) if before else None
    new_images = expected(new)
    finished = tmp_path / "finished"
    shutil.copytree(start, finished)
    calls = victims.order(finished, new)["calls"]
    assert calls > 2
    final = files(finished)
    assert readable(finished, new_images) == 0
    assert not [path for path in final if ".part" in path or "lock" in path]
    out = tmp_path / "out"
    states = set()
    for call in range(1, calls + 1):
        shutil.copytree(start, out)
        answer = victims.order(out, new, call=call, side=side)
        assert answer["signal"] == signal.SIGKILL, answer
        states.add(readable(out, old_images, new_images))
        again = victims.order(out, new)
        assert again["code"] == 0, again["said"]
        assert files(out) == final, call
        shutil.rmtree(out)
    if before[-1:] != [new]:
        assert states == {0, 1}, "kills before and after the manifest's rename"


def test_killed_again_and_again_it_comes_to_an_end(tmp_path: Path, victims: Victims) -> None:
    out = written(tmp_path / "out", OLD)
    reference = tmp_path / "reference"
    shutil.copytree(out, reference)
    assert victims.order(reference, NEW)["code"] == 0
    draw = random.Random(0)
    answer = {"signal": signal.SIGKILL}
    kills = 0
    while answer["signal"]:
        answer = victims.order(out, NEW, call=draw.randrange(6, 10), side="after")
        readable(out, expected(OLD), expected(NEW))
        kills += 1
        assert kills < 50
    assert kills > 1
    assert files(out) == files(reference)


def test_a_file_that_does_not_fit_leaves_no_half(tmp_path: Path, victims: Victims) -> None:
    """A real limit of the kernel: the write of a record breaks off in its midst."""
    out = written(tmp_path / "out", OLD)
    answer = victims.order(out, NEW, limit=4096)
    assert answer["code"] == 1
    assert "File too large" in answer["said"]
    assert "as it was before" in answer["said"]
    assert readable(out, expected(OLD)) == 0
    assert not [path for path in files(out) if path.endswith(".part")]
    assert victims.order(out, NEW)["code"] == 0
    assert readable(out, expected(NEW)) == 0


def test_a_second_writer_is_told(tmp_path: Path, victims: Victims) -> None:
    out = tmp_path / "out"
    with only_writer(out):
        answer = victims.order(out, NEW)
        assert answer["code"] == 1
        assert "another process is writing this dataset" in answer["said"]
    assert victims.order(out, NEW)["code"] == 0


@pytest.mark.full
def test_the_lock_dies_with_its_holder(tmp_path: Path, victims: Victims) -> None:
    out = tmp_path / "out"
    assert victims.order(out, NEW, call=8)["signal"] == signal.SIGKILL
    assert (out / ".writing.lock").exists()
    with only_writer(out), pytest.raises(StoreError, match="another process"), only_writer(out):
        pass
    assert not (out / ".writing.lock").exists()


@pytest.mark.full
def test_killed_from_outside_at_moments_that_nobody_chose(tmp_path: Path) -> None:
    size = 20_000
    seeds, old = list(range(200, 320)), list(range(40))
    reference = tmp_path / "reference"
    killed_writer.write(reference, old, size)
    shutil.copytree(reference, tmp_path / "start")
    started = time.monotonic()
    killed_writer.write(reference, seeds, size)
    whole = time.monotonic() - started
    final, old_images = files(reference), on_disk(tmp_path / "start").images
    new_images = on_disk(reference).images
    script = (
        "import killed_writer, sys\n"
        "sys.stdout.write('ready\\n'); sys.stdout.flush()\n"
        f"killed_writer.write(sys.argv[1], {seeds}, {size})\n"
    )
    draw = random.Random(1)
    kills = 0
    for number in range(40):
        out = tmp_path / f"out-{number}"
        shutil.copytree(tmp_path / "start", out)
        with subprocess.Popen(
            [sys.executable, "-c", script, str(out)],
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(killed_writer.__file__).parent,
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            try:
                process.wait(draw.uniform(0, whole))
            except subprocess.TimeoutExpired:
                process.kill()
                kills += 1
        readable(out, old_images, new_images)
        killed_writer.write(out, seeds, size)
        assert files(out) == final
        shutil.rmtree(out)
    assert kills > 10
