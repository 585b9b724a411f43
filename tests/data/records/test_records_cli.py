"""The commands: what programs read, and exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import made
import pytest
from PIL import Image as Pillow

from command_line import invoke
from holdfast import objects
from holdfast.data.records.cli import app
from holdfast.data.records.format.manifest import NAME
from holdfast.data.records.reading.records import open_records
from holdfast.data.records.reading.stores import open_store
from holdfast.data.records.writing import writer
from holdfast.errors import InputError


def run(*words: object, code: int = 0) -> Any:
    done = invoke(app, [*map(str, words)])
    assert done.exit_code == code, done.output
    return done.stdout


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("cli")
    for number in range(12):
        path = root / "source" / "ab"[number % 2] / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(made.picture(number))
    run("write", root / "source", "-o", root / "d", "--record-size", 5, "--json")
    return root


def test_write_tells_programs_what_it_wrote(place: Path) -> None:
    told = json.loads(
        run("write", place / "source", "-o", place / "d", "--record-size", 5, "--json")
    )
    assert (told["images"], told["records"], told["opaque"], told["reused"]) == (12, 3, 0, 3)
    assert told["bytes_in"] == sum(path.stat().st_size for path in place.glob("source/*/*.jpg"))
    files = [*place.glob("d/*/*.pcr"), place / "d" / "manifest.parquet"]
    assert told["bytes_out"] == sum(path.stat().st_size for path in files)
    assert [group["scans_end"] for group in told["groups"]] == [1, 2, 5, 6, 10]
    shares = [group["cumulative_fraction"] for group in told["groups"]]
    assert shares == sorted(shares)
    assert shares[-1] == 1
    assert told["groups"][-1]["msssim"] == pytest.approx(1)


def test_verify_and_repair_by_exit_code(place: Path) -> None:
    assert json.loads(run("verify", place / "d", "--json"))["errors"] == []
    record = sorted(place.glob("d/*/*.pcr"))[1]
    whole = record.read_bytes()
    record.write_bytes(whole[:3000] + bytes([whole[3000] ^ 1]) + whole[3001:])
    told = json.loads(run("verify", place / "d", "--json", code=1))
    assert not told["ok"]
    assert {*told["errors"][0]} == {"record", "image", "group", "reason"}
    run("repair", place / "d", code=1)
    run("repair", place / "d", "--source", place / "source")
    assert record.read_bytes() == whole


def test_extract_writes_a_jpeg_an_image(place: Path) -> None:
    run("extract", place / "d", "--fidelity", 3, "-o", place / "out")
    names = {path.relative_to(place / "source") for path in place.glob("source/*/*.jpg")}
    found = {path.relative_to(place / "out") for path in place.glob("out/*/*.jpg")}
    assert found == names
    assert all((place / "out" / name).read_bytes()[-2:] == b"\xff\xd9" for name in found)


def test_bench_answers(place: Path) -> None:
    pytest.importorskip("torch")
    told = json.loads(run("bench", place / "d", "--fidelities", "1,5", "--threads", 1, "--json"))
    assert [(speed["fidelity"], speed["images"]) for speed in told["speeds"]] == [(1, 12), (5, 12)]


@pytest.mark.parametrize(
    "words", [("info", "nowhere"), ("extract", "nowhere", "-o", "x", "--fidelity", "high")]
)
def test_bad_use_is_no_traceback(words: tuple[str, ...]) -> None:
    from holdfast.errors import InputError

    done = invoke(app, words)
    assert isinstance(done.exception, InputError)


def test_cat_gives_a_pipe_every_image(place: Path) -> None:
    assert len(run("cat", place / "d").splitlines()) == 12
    assert len(run("cat", place / "d", "--limit", 3).splitlines()) == 3


def test_a_dataset_inside_its_own_source_is_refused(place: Path) -> None:
    for out in ("sub", "a/sub"):
        run("write", place / "source", "-o", place / "source" / out, code=1)
        with pytest.raises(InputError) as raised:
            writer.write(place / "source", place / "source" / out)
        assert raised.value.code == "conflict"
    assert sorted(path.name for path in (place / "source").iterdir()) == ["a", "b"]


def test_records_of_other_datasets_below_a_folder_are_not_its_own(place: Path) -> None:
    """Neither counted nor looked for: the folder could be a whole disk."""
    run("info", place, code=1)
    run("verify", place, code=1)
    with pytest.raises(InputError) as raised:
        open_records(place)
    assert raised.value.found == f"no {NAME}"
    assert open_store(place).records() == []
    assert len(open_store(place / "d").records()) == 3


def test_quality_of_images_stored_unchanged_measures_nothing(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number, kind in enumerate(("png", "bmp", "gif")):
        Pillow.new("RGB", (30, 20)).save(tmp_path / "in" / f"{number}.{kind}")
    run("write", tmp_path / "in", "-o", tmp_path / "d")
    told = json.loads(run("quality", tmp_path / "d", "--json"))
    assert (told["measured"], told["opaque"], told["suggested"]) == (0, 3, None)
    assert "3 of 3" in run("quality", tmp_path / "d")
    rows = [json.loads(line) for line in run("cat", tmp_path / "d").splitlines()]
    assert {(row["width"], row["height"]) for row in rows} == {(30, 20)}


def test_missing_credentials_have_a_remedy() -> None:
    asked = "Error performing PUT http://169.254.169.254/latest/api/token in 1s - 403"
    assert "AWS_ACCESS_KEY_ID" in (objects._remedy(asked) or "")
