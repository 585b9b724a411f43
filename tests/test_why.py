"""`holdfast why`: what each room's examples are taken for, and what is not recognized."""

from __future__ import annotations

import bz2
import csv
import gzip
import json
import lzma
import os
import shlex
import struct
from pathlib import Path

import pyarrow as pa
import pytest

from holdfast import cli
from holdfast.errors import InputError
from holdfast.opening import unreadable
from holdfast.why import why

REPOSITORY = Path(__file__).resolve().parents[1]
EXAMPLES = REPOSITORY / "examples"


@pytest.mark.parametrize(
    ("place", "kinds"),
    [
        ("hang/never-enters", {"flight records"}),
        ("stragglers", {"step times", "traces"}),
        ("training-run/recorded", {"flight records", "events of a run", "logs of a training run"}),
        ("slurm-testbed", {"logs of a cluster"}),
        ("slurm-testbed/sacct_D.json.gz", {"logs of a cluster"}),
        ("planets-old", {"a Croissant description"}),
        ("planets-broken/metadata.json", {"a Croissant description"}),
        ("diagnose/full-disk", {"logs of a training run"}),
        ("canaries", {"a model"}),
        ("../tests/data/records/tiny.pcr", {"progressive records"}),
    ],
)
def test_examples(place: str, kinds: set[str]) -> None:
    found = why(EXAMPLES / place)
    rows = found.to_dict()["found"]
    assert {row["what"] for row in rows} == kinds
    assert all(row["headline"] for row in rows), found.problems
    assert all(Path(shlex.split(row["next"])[3].partition("=")[0]) for row in rows)


def test_the_next_command_works(capsys: pytest.CaptureFixture[str]) -> None:
    (row,) = why(EXAMPLES / "hang/never-enters").to_dict()["found"]
    with pytest.raises(SystemExit) as ended:
        cli.main([*shlex.split(row["next"])[1:], "--json"])
    assert ended.value.code == 0
    assert json.loads(capsys.readouterr().out)["sentence"] == row["headline"]


def test_a_transducer_and_names_with_spaces(tmp_path: Path) -> None:
    from holdfast.automata import Fst

    path = tmp_path / "my machine.fst"
    Fst.from_text("0 1 1 2 0.5\n1\n").write(path)
    (row,) = why(tmp_path).to_dict()["found"]
    assert (row["what"], row["headline"]) == ("a transducer", "2 states and 1 arc.")
    assert shlex.split(row["next"]) == ["holdfast", "fst", "info", str(path)]


def test_a_federated_run(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    import numpy as np
    from safetensors.numpy import save_file
    from torch import nn

    from holdfast import federated

    x, y = np.eye(4, dtype=np.float32), np.arange(4) % 2
    run = {"settings": federated.Settings(rounds=3), "folder": tmp_path / "run"}
    federated.run(nn.Linear(4, 2), {"a": (x, y)}, test={"phone": (x, y), "car": (x, y)}, **run)
    (row,) = why(tmp_path).to_dict()["found"]
    assert (row["what"], row["path"]) == ("a federated run", str(tmp_path / "run"))
    assert row["headline"].startswith("3 rounds, 0 updates not used")
    assert row["next"] == "holdfast federated run CONFIG.toml --resume"
    # The state of something else.
    save_file({"w": x}, tmp_path / "run" / "state.safetensors", {"run": "{}"})
    with pytest.raises(InputError):
        why(tmp_path)


def test_plain_data_leads_to_a_description_or_records(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow.parquet")
    image = pytest.importorskip("PIL.Image")
    (tmp_path / "csv").mkdir()
    (tmp_path / "csv" / "moons.csv").write_text("moon;radius\nPhobos;11\nTriton;1353\n")
    (tmp_path / "csv" / "moons.jsonl").write_text('{"moon": "Phobos"}\n{"moon": "Triton"}\n')
    pyarrow.write_table(pa.table({"n": [1]}), tmp_path / "csv" / "n.parquet")
    (tmp_path / "pictures" / "a").mkdir(parents=True)
    for name in ("a/1.png", "a/2.png"):
        image.new("RGB", (8, 8)).save(tmp_path / "pictures" / name)
    for folder, what, files, headline in (
        ("csv", "tables", 3, "3 record sets with 4 fields."),
        ("csv/moons.csv", "tables", 1, "1 record set with 2 fields."),
        ("pictures", "images", 2, "2 images."),
    ):
        (row,) = why(tmp_path / folder).to_dict()["found"]
        assert (row["what"], row["files"], row["headline"]) == (what, files, headline)
        out = ["-o", str(tmp_path / "records")] if what == "images" else []
        with pytest.raises(SystemExit) as ended:
            cli.main([*shlex.split(row["next"].partition(" -o ")[0])[1:], *out])
        assert ended.value.code == 0


def test_what_a_room_cannot_answer_is_said(tmp_path: Path) -> None:
    (tmp_path / "machine").write_bytes(b"\xd6\xfd\xb2\x7e cut")
    found = why(tmp_path / "machine")
    assert found.to_dict()["found"][0]["headline"] is None
    assert len(found.unknowns()) == 1


@pytest.mark.parametrize(
    "content", [b"# Notes\n\nNothing.\n", b"\x00\x01\x02" * 99, b"{}", b"0 1\n"]
)
def test_what_nobody_reads_is_an_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x").write_bytes(content)
    for path in (tmp_path / "x", tmp_path):
        with pytest.raises(InputError) as caught:
            why(path)
        assert caught.value.code == "unknown-format"


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("x", b"", "empty-input"),
        ("x", b" \n\t\n", "empty-input"),
        ("x.gz", gzip.compress(b"", mtime=0), "empty-input"),
        ("x.gz", gzip.compress(b"JobID|State\n" * 99, mtime=0)[:30], "damaged"),
        ("x.bz2", bz2.compress(bytes(range(256)) * 99)[:60], "damaged"),
        ("x.xz", lzma.compress(b"a,b\n1,2\n" * 99)[:30], "damaged"),
        ("x.zst", b"\x28\xb5\x2f\xfd\x00\x01", "damaged"),
        ("x.csv", b"\x00\x01\x02" * 99, "unknown-format"),
        ("x", None, "unreadable"),
    ],
)
def test_reasons_for_nothing(
    name: str, content: bytes | None, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / name
    path.write_bytes(b"a,b\n1,2\n" if content is None else content)
    if content is None:  # permissions do not hold for root

        def refuse(each: Path) -> bytes:
            error = PermissionError(13, "Permission denied")
            raise unreadable(each, error) from error

        monkeypatch.setattr("holdfast.why.first_bytes", refuse)
    for place in (path, tmp_path):
        with pytest.raises(InputError) as caught:
            why(place)
        assert (caught.value.code, caught.value.path) == (code, str(place))
        assert (code == "unknown-format") == (name not in (caught.value.found or ""))


def test_what_is_beside_something_known_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    (tmp_path / "b.csv").write_text("")
    (tmp_path / "c.csv.gz").write_bytes(gzip.compress(b"a,b\n" * 99)[:20])
    found = why(tmp_path)
    assert [row["files"] for row in found.to_dict()["found"]] == [1]
    assert [gap.code for gap in found.gaps][:2] == ["empty-input", "damaged"]
    assert found.to_dict()["unknown"][1].keys() == {"code", "text", "remedy", "doubt"}


@pytest.mark.parametrize("pipe", [False, True])
def test_a_folder_without_files(pipe: bool, tmp_path: Path) -> None:
    if pipe:
        os.mkfifo(tmp_path / "pipe.csv")  # nobody writes to it
    with pytest.raises(InputError) as caught:
        why(tmp_path)
    assert caught.value.code == "empty-input"


def test_a_name_that_no_file_can_have() -> None:
    with pytest.raises(InputError) as caught:
        why(Path("x" * 999))
    assert caught.value.code == "unreadable"


@pytest.mark.parametrize("known", [False, True])
def test_what_was_not_looked_at_is_said(
    known: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.why.MOST_FILES", 5)
    for number in range(9):
        (tmp_path / f"{number}.txt").write_text("nothing\n")
    if known:
        (tmp_path / "0.csv").write_text("a,b\n1,2\n")
        assert "limit-exceeded" in {gap.code for gap in why(tmp_path).gaps}
        return
    with pytest.raises(InputError) as caught:  # not: nothing that holdfast reads
        why(tmp_path)
    assert caught.value.code == "limit-exceeded"
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "0.txt").write_text("nothing\n")
    with pytest.raises(InputError) as caught:
        why(tmp_path / "sub")
    assert caught.value.code == "unknown-format"


@pytest.mark.parametrize("packed", [False, True])
def test_what_is_too_large_has_no_headline(
    packed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.why.MOST_BYTES", 100_000)
    content = b"a,b\n" + b"1,2\n" * 50_000
    path = tmp_path / ("x.csv.gz" if packed else "x.csv")
    path.write_bytes(gzip.compress(content) if packed else content)
    assert (path.stat().st_size < 100_000) == packed
    found = why(path)
    assert found.headlines == (None,)
    assert [gap.code for gap in found.gaps] == ["limit-exceeded"]


@pytest.mark.parametrize(
    "error", [KeyError("x"), struct.error("x"), MemoryError(), RecursionError("x"), csv.Error("x")]
)
def test_an_error_of_one_room_is_not_the_end(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> bool:
        raise error

    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    monkeypatch.setattr("holdfast.carbon.formats.recognize", fails)
    assert why(tmp_path).headlines == ("1 record set with 2 fields.",)
    monkeypatch.setattr("holdfast.data.croissant.describe", fails)
    found = why(tmp_path)
    assert found.headlines == (None,)
    assert [gap.code for gap in found.gaps] == ["failed"]
    assert found.gaps[0].remedy


def test_a_name_that_looks_like_an_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("-x.csv").write_text("a,b\n1,2\n")
    (row,) = why(Path("-x.csv")).to_dict()["found"]
    assert shlex.split(row["next"])[-1] == "./-x.csv"


def test_a_damaged_table_has_no_headline(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"a": 1}\n{"a": 2}\nnot json\n')
    answer = why(tmp_path / "x.jsonl")
    assert answer.headlines == (None,)
    [unknown] = answer.unknowns()
    assert "x.jsonl" in unknown.text


def test_no_such_path(tmp_path: Path) -> None:
    for path in (tmp_path / "x", Path("/dev/null")):
        with pytest.raises(InputError) as caught:
            why(path)
        assert caught.value.code == "not-found"


@pytest.mark.parametrize("beside", [False, True])
def test_a_log_whose_only_evidence_is_one_line(tmp_path: Path, beside: bool) -> None:
    text = (
        "step 5 loss 2.1\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    )
    (tmp_path / "train.log").write_text(text)
    if beside:
        (tmp_path / "loss.jsonl").write_text('{"loss": 2.1}\n{"loss": 2.0}\n')
    [match] = why(tmp_path if beside else tmp_path / "train.log").to_dict()["found"]
    assert match["what"] == "logs of a training run"
    assert match["headline"]
