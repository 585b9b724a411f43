"""`holdfast why`: what each room's examples are taken for, and what is not recognized."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pyarrow as pa
import pytest

from holdfast import cli
from holdfast.errors import InputError
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
    "content", [b"", b"# Notes\n\nNothing.\n", b"\x00\x01\x02" * 99, b"{}", b"0 1\n"]
)
def test_what_nobody_reads_is_an_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x").write_bytes(content)
    for path in (tmp_path / "x", tmp_path):
        with pytest.raises(InputError) as caught:
            why(path)
        assert caught.value.code == "unknown-format"


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
