"""Text in other encodings than UTF-8: read as declared or refused, never as other letters."""

from __future__ import annotations

import gzip
import json
import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest
from made_datasets import about, column, described, field, file_object, file_set, record_set

from command_line import invoke
from holdfast.data.cli import app
from holdfast.data.croissant.describing.folders import describe
from holdfast.data.croissant.loading.dataset import Dataset
from holdfast.errors import InputError

WORDS = ["Ærø", "Žižek", "日本語", "it’s", "plain"]
TABLE = "id,word\n" + "".join(f"{number},{word}\n" for number, word in enumerate(WORDS))
RECORDS = [{"id": str(number), "word": word} for number, word in enumerate(WORDS)]
LINES = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in RECORDS)
WHOLE = json.dumps(RECORDS, ensure_ascii=False)
BAD_BYTE = b"id,word\n1,x\n2,caf\xe9\n"


def opened(folder: Path, name: str, data: bytes, declared: str = "", **arguments: Any) -> Dataset:
    """A dataset of one file with the fields id and word, or of its lines."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(data)
    resource = file_object(name.removesuffix(".gz"))
    resource |= {"@id": "t.csv", "contentUrl": name}
    resource["encodingFormat"] += declared
    if name.endswith(".txt"):
        fields = [field("line", "sc:Text", about("t.csv", "lines"))]
    else:
        fields = [field(part, "sc:Text", column("t.csv", part)) for part in ("id", "word")]
    return described(folder, [resource], [record_set("r", *fields)], **arguments)


def values(dataset: Dataset) -> list[str]:
    """The last column."""
    return list(dataset.records("r").to_arrow().columns[-1].to_pylist())


@pytest.mark.parametrize("codec", ["utf-16", "utf-16-be", "utf-8-sig", "utf-32", "gb18030"])
@pytest.mark.parametrize(
    ("name", "text"), [("t.csv", TABLE), ("t.jsonl", LINES), ("t.json", WHOLE), ("t.txt", TABLE)]
)
def test_declared_encodings_are_read(tmp_path: Path, name: str, text: str, codec: str) -> None:
    found = values(opened(tmp_path, name, text.encode(codec), f"; charset={codec}"))
    assert found == (TABLE.splitlines() if name == "t.txt" else WORDS)


@pytest.mark.parametrize(
    ("declared", "codec"),
    [
        ("; charset=latin-1", "latin-1"),
        ('; header=present; CharSet="ISO-8859-1"', "latin-1"),
        ("; charset=windows-1252", "cp1252"),
    ],
)
def test_ways_to_declare(tmp_path: Path, declared: str, codec: str) -> None:
    text = "id,word\n1,Ærø\n2,it’s\n" if codec == "cp1252" else "id,word\n1,Ærø\n"
    for name, data in (
        ("t.csv", text.encode(codec)),
        ("t.csv.gz", gzip.compress(text.encode(codec))),
    ):
        assert values(opened(tmp_path, name, data, declared))[0] == "Ærø"


def test_properties_that_name_an_encoding(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(BAD_BYTE)
    records = record_set("r", field("word", "sc:Text", column("t.csv", "word")))
    for more in ({"encoding": "latin-1"}, {"charset": "ISO-8859-1"}):
        made = described(tmp_path, [file_object("t.csv", **more)], [records])
        assert values(made) == ["x", "café"]
    # It also names packings; then the text is UTF-8 as ever, or refused.
    made = described(tmp_path, [file_object("t.csv", encoding="gzip")], [records])
    with pytest.raises(InputError) as caught:
        values(made)
    assert caught.value.code == "invalid-encoding"


def test_the_users_encoding_wins(tmp_path: Path) -> None:
    for given in ("latin-1", {"t.csv": "latin-1"}):
        made = opened(tmp_path, "t.csv", BAD_BYTE, "; charset=utf-8", encoding=given)
        assert values(made) == ["x", "café"]
        assert values(pickle.loads(pickle.dumps(made))) == ["x", "café"]


@pytest.mark.parametrize(
    ("name", "data", "declared", "code", "place"),
    [
        ("t.csv", BAD_BYTE, "", "invalid-encoding", "line 3"),
        ("t.csv", BAD_BYTE, "; charset=utf-8", "invalid-encoding", "line 3"),
        ("t.csv", BAD_BYTE, "; charset=us-ascii", "invalid-encoding", "line 3"),
        ("t.csv", b"id,word\r1,x\r2,caf\xe9\r", "; charset=ascii", "invalid-encoding", "line 3"),
        # Beyond the first block of a file, in each of the readers.
        ("t.csv", b"id,word\n" + b"1,x\n" * 400_000 + b"1,\xe9\n", "", "invalid-encoding", "line 400002"),
        ("t.jsonl", b'{"id":"1","word":"caf\xe9"}\n', "", "invalid-encoding", "line 1"),
        ("t.json", b'[{"id":"1",\n"word":"caf\xe9"}]', "", "invalid-encoding", "line 2"),
        ("t.txt", b"one\ncaf\xe9\n", "", "invalid-encoding", "line 2"),
        # No letters in ISO 8859: written by a program that means Windows-1252.
        ("t.csv", b"id,word\n1,it\x92s\n", "; charset=latin-1", "invalid-encoding", "line 2"),
        # Valid UTF-8, but with a zero byte beside each letter.
        ("t.csv", "id,word\n1,x\n".encode("utf-16-le"), "", "invalid-encoding", "line 1"),
        ("t.txt", "id,word\n1,x\n".encode("utf-16-be"), "", "invalid-encoding", "line 1"),
        # Which byte comes first?
        ("t.csv", "id,word\n1,x\n".encode("utf-16-le"), "; charset=utf-16", "invalid-encoding", "byte 0"),
        ("t.csv", TABLE.encode("utf-16")[:-1], "; charset=utf-16", "invalid-encoding", "line 6"),
        ("t.csv", TABLE.encode("utf-8-sig"), "; charset=latin-1", "conflict", "byte 0"),
        ("t.csv", TABLE.encode("utf-16"), "; charset=cp1252", "conflict", "byte 0"),
        ("t.csv", BAD_BYTE, "; charset=latin1x", "unknown-name", "resource 't.csv'"),
        ("t.csv", BAD_BYTE, "; charset=base64", "unknown-name", "resource 't.csv'"),
    ],
)  # fmt: skip
def test_what_is_not_of_its_encoding_is_refused(
    tmp_path: Path, name: str, data: bytes, declared: str, code: str, place: str
) -> None:
    with pytest.raises(InputError) as caught:
        values(opened(tmp_path, name, data, declared))
    assert (caught.value.code, caught.value.place) == (code, place)
    assert "--encoding" in (caught.value.remedy or "")


@pytest.mark.parametrize("given", ["latin1x", {"t.csv": "latin1x"}, {"u.csv": "latin-1"}])
def test_names_that_nothing_has(tmp_path: Path, given: str | dict[str, str]) -> None:
    with pytest.raises(InputError) as caught:
        opened(tmp_path, "t.csv", BAD_BYTE, encoding=given)
    assert caught.value.code == "unknown-name"


@pytest.mark.parametrize("transform", [{}, {"regex": "(caf.)"}])
def test_whole_files_of_an_archive(tmp_path: Path, transform: dict[str, str]) -> None:
    """Their text after the query, and where the query computes with it; images stay as they are."""
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("one.txt", b"caf\xe9")
        archive.writestr("one.bin", b"\x89PNG\xe9")
    pack = file_object("t.bin", contentUrl="a.zip", encodingFormat="application/zip")
    texts = file_set("texts", "*.txt", containedIn={"@id": "t.bin"})
    images = file_set("images", "*.bin", containedIn={"@id": "t.bin"})
    source = (
        about("texts", "content", transform=transform) if transform else about("texts", "content")
    )
    made = described(
        tmp_path,
        [pack, texts, images],
        [
            record_set("r", field("text", "sc:Text", source)),
            record_set("i", field("image", "sc:ImageObject", about("images", "content"))),
        ],
        encoding="latin-1",
    )
    assert values(made) == ["café"]
    assert made.records("i").to_arrow().column(0).to_pylist() == [b"\x89PNG\xe9"]


@pytest.mark.parametrize("codec", ["windows-1252", "utf-16-le", "shift_jis"])
def test_a_described_encoding_is_the_one_that_loads(tmp_path: Path, codec: str) -> None:
    """Of two tables of one shape and one in a zip; what is UTF-8 stays so."""
    words = ["日本", "plain"] if codec == "shift_jis" else ["Ærø", "it’s"]
    table = "id,word\n" + "".join(f"{place},{word}\n" for place, word in enumerate(words))
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    (tmp_path / "one" / "one.csv").write_bytes(table.encode(codec))
    (tmp_path / "two" / "two.csv.gz").write_bytes(gzip.compress(table.encode(codec)))
    (tmp_path / "eight.tsv").write_text("n\tname\n1\tÆrø\n2\tZoë\n")
    with zipfile.ZipFile(tmp_path / "texts.zip", "w") as archive:
        archive.writestr("three/three.csv", table.replace("word", "noun").encode(codec))
    done = invoke(app, ["croissant", "describe", str(tmp_path), "--encoding", codec])
    assert done.exit_code == 0, done.output
    dataset = Dataset(tmp_path / "croissant.json")
    loaded = {
        name: dataset.records(name).to_arrow().to_pylist()
        for name in ("one", "two", "eight", "three")
    }
    assert [row["one/word"] for row in loaded["one"]] == words
    assert [row["two/word"] for row in loaded["two"]] == words
    assert [row["eight/name"] for row in loaded["eight"]] == ["Ærø", "Zoë"]
    assert [row["three/noun"] for row in loaded["three"]] == words


def test_an_unknown_encoding_is_not_described(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(BAD_BYTE)
    with pytest.raises(InputError) as caught:
        describe(tmp_path, encoding="no-such")
    assert (caught.value.code, caught.value.place) == ("unknown-name", "encoding")


def test_the_commands(tmp_path: Path) -> None:
    opened(tmp_path, "t.csv", BAD_BYTE, "; charset=latin1x")

    def run(*arguments: str) -> tuple[int, str]:
        command, *more = arguments
        done = invoke(app, ["croissant", command, str(tmp_path), *more])
        return done.exit_code, done.stdout

    code, told = run("validate", "--json")
    found = [one["code"] for one in json.loads(told)["errors"]]
    assert (code, found) == (1, ["CR205"])
    opened(tmp_path, "t.csv", BAD_BYTE)
    code, told = run("validate", "--data", "sample", "--json")
    assert (code, len(json.loads(told)["errors"])) == (1, 1)
    encoding = ("--encoding", "latin-1")
    assert run("validate", "--data", "full", *encoding)[0] == 0
    for option in ("latin-1", "t.csv=latin-1"):
        _, told = run("load", "--record-set", "r", "--json", "--encoding", option)
        assert json.loads(told.splitlines()[-1])["word"] == "café"
    assert "café" in run("sql", "SELECT word FROM r", "--json", *encoding)[1]
    new = tmp_path / "new.csv"
    assert run("load", "--record-set", "r", "--out", str(new), *encoding)[0] == 0
    assert "café" in new.read_text(encoding="utf-8")
    code, _ = run("load", "--record-set", "r", *encoding, "--encoding", "t.csv=utf-8")
    assert code != 0
