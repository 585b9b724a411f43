"""What no source can be made of: each case says what is wrong, where, and what to do."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
import source_files as made
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from holdfast.data.records.sources import open_source
from holdfast.data.records.sources.shards import expand
from holdfast.errors import HoldfastError, InputError, LimitError

GOLDEN = Path(__file__).parent / "golden"

Make = Callable[[Path], object]


def one_tar(*members: tuple[str, bytes], **options: bool) -> Make:
    return lambda root: made.tar(root / "s.tar", members, **options)


def samples(*labels: object) -> Make:
    """A tar of samples with JSON columns."""
    members: list[tuple[str, bytes]] = []
    for number, columns in enumerate(labels):
        members += [(f"{number}.jpg", made.JPEG), (f"{number}.json", json.dumps(columns).encode())]
    return one_tar(*members)


def cut(make: Make, at: int) -> Make:
    """A file without what follows byte `at` (from its end, if negative)."""

    def made_and_cut(root: Path) -> object:
        path = make(root)
        assert isinstance(path, Path)
        path.write_bytes(path.read_bytes()[:at])
        return path

    return made_and_cut


def changed(make: Make, at: int, byte: int = 0xFF) -> Make:
    """A file with one byte changed."""

    def made_and_changed(root: Path) -> object:
        path = make(root)
        assert isinstance(path, Path)
        data = bytearray(path.read_bytes())
        assert data[at] != byte
        data[at] = byte
        path.write_bytes(data)
        return path

    return made_and_changed


def two_tars(root: Path) -> object:
    made.tar(root / "a.tar", [("0.jpg", made.JPEG), ("0.cls", b"1")])
    return made.tar(root / "b.tar", [("1.jpg", made.JPEG), ("1.cls", b"swan")]).parent


def zipped_tar(root: Path) -> object:
    path = root / "s.tar.gz"
    path.write_bytes(gzip.compress(made.tar(root / "s.tar", [("0.jpg", made.JPEG)]).read_bytes()))
    return path


IMAGE = ("0.jpg", made.JPEG)
CASES: dict[str, tuple[Make, str]] = {
    "nothing there": (lambda root: root / "absent", "no such file or folder"),
    "a store": (lambda root: "s3://bucket/images", "copy it to this machine"),
    "an empty folder": (lambda root: root, "no images found"),
    "a folder without images": (lambda root: made.files(root, {"a.txt": b"x"}), "a.txt (no image)"),
    "no format": (
        lambda root: made.files(root, {"a.bin": b"x"}) / "a.bin",
        "format of this source",
    ),
    "a pattern of nothing": (lambda root: f"{root}/*.tar", "no file matches"),
    "a shard missing": (lambda root: f"{root}/{{0..1}}.tar", "0.tar: no such file"),
    "a pattern twice": (lambda root: f"{two_tars(root)}/{{a,a}}.tar", "names a file twice"),
    "braces": (lambda root: f"{root}/{{0..1.tar", "braces of this pattern do not match"),
    "a range backwards": (lambda root: f"{root}/{{9..1}}.tar", "runs backwards"),
    "tars beside images": (
        lambda root: made.files(root, {"a.tar": b"x", "b.jpg": made.JPEG}),
        "found: a.tar beside b.jpg",
    ),
    # WebDataset
    "an empty tar": (lambda root: made.files(root, {"s.tar": b""}) / "s.tar", "this tar is empty"),
    "no tar": (lambda root: made.files(root, {"s.tar": b"x" * 600}) / "s.tar", "damaged or cut"),
    "a tar without files": (one_tar(), "no images found"),
    "a tar without images": (one_tar(("0.cls", b"1")), "s.tar: 0 (a sample without an image)"),
    "a compressed tar": (zipped_tar, "gunzip --keep s.tar.gz"),
    "a tar cut in a file": (cut(one_tar(IMAGE), 520), "damaged or cut short"),
    "a tar cut in a header": (cut(one_tar(IMAGE, ("1.jpg", b"x")), 1024 + 100), "damaged or cut"),
    "a tar cut between files": (one_tar(IMAGE, end=False), "this tar has no end"),
    "a damaged first header": (changed(one_tar(IMAGE), 150), "damaged or cut short"),
    "a damaged header": (changed(one_tar(IMAGE, ("1.jpg", b"x")), 1030), "byte 1,024"),
    "an escape": (one_tar(IMAGE, ("../1.jpg", made.JPEG)), "names a file outside itself"),
    "an escape inside": (one_tar(("a/../../1.jpg", made.JPEG)), "names a file outside itself"),
    "an absolute name": (one_tar(("/etc/1.jpg", made.JPEG)), "names a file outside itself"),
    "two images": (one_tar(IMAGE, ("0.png", made.PNG)), "remedy: choose one by its suffix"),
    "a file twice": (one_tar(IMAGE, IMAGE), "two files of the same suffix"),
    "a sample apart": (one_tar(IMAGE, ("1.jpg", made.JPEG), ("0.cls", b"1")), "not adjacent"),
    "no JSON": (one_tar(IMAGE, ("0.json", b"{")), "sample 0, .json: this is not JSON"),
    "deep JSON": (one_tar(IMAGE, ("0.json", b'{"a":' * 99999)), "this is not JSON"),
    "a JSON list": (one_tar(IMAGE, ("0.json", b"[1]")), "found: a list"),
    "an empty label": (one_tar(IMAGE, ("0.cls", b"\n")), "this label is empty"),
    "a text of other bytes": (one_tar(IMAGE, ("0.txt", b"\xff")), "this text is not UTF-8"),
    "labels of two types": (two_tars, "expected: whole numbers, as in a.tar, sample 0"),
    "columns of two types": (samples({"n": 1}, {"n": "x"}), "drop=['n']"),
    "true and a number": (samples({"n": True}, {"n": 1}), "found: whole numbers"),
    "parts and a text": (samples({"n": [1]}, {"n": "x"}), "expected: values with parts (JSON)"),
    "a number too large": (samples({"n": 2**63}), "does not fit into 64 bits"),
    "fraction after large": (samples({"n": 2**60}, {"n": 0.5}), "such as 1152921504606846976"),
    "large after fraction": (samples({"n": 0.5}, {"n": 2**60}), "not of one type"),
    "half a character": (samples({"n": "\ud800"}), "not valid Unicode"),
    "a reserved name": (samples({"pcr.width": 1}), "must not be called 'pcr.width'"),
    "an id twice": (samples({"id": "x"}, {"id": "x"}), "two images have the same id"),
    "an id of parts": (samples({"id": ["x"]}), "neither a text nor an integer"),
    "an id missing": (samples({"id": "x"}, {}), "a sample has no id"),
    "an id too late": (samples({}, {"id": "x"}), "those before have none"),
    "two values": (one_tar(IMAGE, ("0.json", b'{"label": 2}'), ("0.cls", b"1")), "drop=['cls']"),
}


@pytest.mark.parametrize("case", CASES)
def test_what_cannot_be_read_is_refused(case: str, tmp_path: Path) -> None:
    make, message = CASES[case]
    where = make(tmp_path)
    assert isinstance(where, (str, Path))
    with pytest.raises(InputError) as caught:
        open_source(where)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("x\n1\n", "missing-column"),
        ("id,id\n0,1\n", "duplicate"),
        ("id,n\n0,1\n0,2\n", "duplicate"),
        ("id,n\n9,1\n", "no-match"),
        ("id,n\n0,1,2\n", "unreadable"),
        ("id,n\n,1\n", "duplicate"),
    ],
)
def test_tables_that_do_not_fit_are_refused(tmp_path: Path, text: str, code: str) -> None:
    tar = made.tar(tmp_path / "s.tar", [IMAGE])
    (tmp_path / "t.csv").write_text(text)
    with refused(code):
        open_source(tar, columns=tmp_path / "t.csv")


def test_options_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    tar = samples({"n": 1})(tmp_path)
    assert isinstance(tar, Path)
    for options in ({"label": "absent"}, {"format": "zip"}, {"columns": tmp_path / "t.xls"}):
        with pytest.raises(InputError):
            open_source(tar, **options)  # type: ignore[arg-type]
    with refused("unknown-name"):
        open_source(made.files(tmp_path / "in", {"a.jpg": made.JPEG}), label="x")


def test_a_column_that_is_dropped_does_not_matter(tmp_path: Path) -> None:
    tar = samples({"n": 1, "m": 1}, {"n": "x", "m": 2})(tmp_path)
    assert isinstance(tar, Path)
    assert open_source(tar, drop=["n"]).schema.names == ["m"]
    assert open_source(tar, drop=["n"], label="m").schema.names == ["label"]


def test_a_source_that_shrinks_while_it_is_read_is_refused(tmp_path: Path) -> None:
    tar = made.tar(tmp_path / "s.tar", [IMAGE])
    source = open_source(tar)
    tar.write_bytes(tar.read_bytes()[:530])
    with refused("damaged"):
        list(source.read(0, 1))
    folder = made.files(tmp_path / "in", {"a.jpg": made.JPEG})
    source = open_source(folder)
    (folder / "a.jpg").unlink()
    with refused("source-changed"):
        list(source.read(0, 1))


def test_any_damage_is_an_input_error_or_harmless(tmp_path: Path) -> None:
    whole = (GOLDEN / "webdataset" / "shard-000.tar").read_bytes()
    path = tmp_path / "shard-000.tar"
    rng = random.Random(0)
    for _ in range(150):
        data = bytearray(whole)
        for _ in range(rng.randint(1, 3)):
            data[rng.randrange(min(len(data), 3000))] = rng.randrange(256)
        path.write_bytes(data[: rng.choice([len(data), rng.randrange(len(data))])])
        try:
            source = open_source(tmp_path)
            assert sum(1 for _ in source.read(0, len(source))) == len(source)
        except HoldfastError:
            pass


def test_patterns() -> None:
    assert expand("a-{008..011}-{x,y}.tar") == [
        f"a-{number:03d}-{letter}.tar" for number in range(8, 12) for letter in "xy"
    ]
    assert expand("plain.tar") == ["plain.tar"]
    assert expand("{7..7}") == ["7"]
    with pytest.raises(LimitError, match="stands for too many files"):
        expand("{0..1000000}.tar")
    with pytest.raises(LimitError):
        expand("{0..999}{0..999}{0..1}.tar")


@given(st.text(alphabet="{}.,0123a", max_size=12))
def test_any_pattern_gives_names_or_an_error(pattern: str) -> None:
    try:
        names = expand(pattern)
    except HoldfastError:
        return
    assert names
    assert not any(brace in name for name in names for brace in "{}")
