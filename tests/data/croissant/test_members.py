"""Members of local resources: listed and read as `zipfile`, `tarfile` and `pathlib` do it by hand."""

from __future__ import annotations

import base64
import bz2
import gzip
import hashlib
import io
import lzma
import os
import random
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from described_files import container, file, files, refused, resources, sha256, tree
from hypothesis import given
from hypothesis import strategies as st

from holdfast.data.croissant.files.members import Member
from holdfast.data.croissant.files.resources import Resources
from holdfast.errors import InputError

DATASETS = "croissant/datasets/1.0"


def read(opened: Resources, identity: str) -> dict[str, bytes]:
    members = opened.members(identity)
    assert all(member.resource == identity for member in members)
    found = dict(zip([member.fullpath for member in members], opened.read(members), strict=True))
    assert len(found) == len(members)
    for member, data in zip(members, found.values(), strict=True):
        assert member.size in (None, len(data))
    assert [path.read_bytes() for path in opened.paths(members)] == list(found.values())
    return found


def unpacked_zip(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist() if name[-1] != "/"}


def unpacked_tar(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as archive:
        return {
            info.name: taken.read()
            for info in archive
            if info.isreg() and (taken := archive.extractfile(info))
        }


# -- the suite -------------------------------------------------------------------------------------


def test_two_tars(shared_data: Path, tmp_path: Path) -> None:
    folder = shared_data / DATASETS / "pass-mini"
    expected = []
    for number in (0, 1):
        expected += sorted(unpacked_tar(folder / f"data/PASS.{number}.tar").items())
    with resources(
        folder,
        file("pass0", "data/PASS.0.tar", "application/x-tar"),
        file("pass1", "data/PASS.1.tar", "application/x-tar"),
        files("images", "*.jpg", inside=["pass0", "pass1"]),
        cache=tmp_path,
    ) as opened:
        assert list(read(opened, "images").items()) == expected
        assert {member.owner for member in opened.members("images")} == {"pass0", "pass1"}


@pytest.mark.parametrize(
    ("archive", "pattern"),
    [
        ("compressed_archive.zip", "*.jpeg"),
        ("zip_with_csv.zip", "*.csv"),
        ("read_from_tar.tar.gz", "*"),
    ],
)
def test_archives_of_the_recipes(
    archive: str, pattern: str, shared_data: Path, tmp_path: Path
) -> None:
    path = shared_data / DATASETS / "recipes" / "data" / archive
    expected = (unpacked_zip if archive.endswith("zip") else unpacked_tar)(path)
    with resources(
        path.parent.parent,
        file("archive", f"data/{archive}", "application/zip"),
        files("all", pattern, inside=["archive"]),
        cache=tmp_path,
    ) as opened:
        assert list(read(opened, "all").items()) == sorted(expected.items())


def test_names_that_all_climb_alike_mean_what_is_below(shared_data: Path, tmp_path: Path) -> None:
    folder = shared_data / DATASETS / "recipes" / "data" / "read_binary_file_by_line"
    with resources(
        folder,
        file("zip", "files.zip", "application/zip"),
        files("texts", "*.txt", inside=["zip"]),
        cache=tmp_path,
    ) as opened:
        found = read(opened, "texts")
    below = "datasets/recipes/data/read_binary_file_by_line/"
    assert found == {
        below + name: (folder / name).read_bytes() for name in ("file1.txt", "file2.txt")
    }


def test_folder(shared_data: Path, tmp_path: Path) -> None:
    folder = shared_data / DATASETS / "recipes"
    with resources(
        folder, files("files", "data/file*.txt"), files("all"), cache=tmp_path
    ) as opened:
        assert read(opened, "files") == {"data/file1.txt": b"foo\n", "data/file2.txt": b"bar\n"}
        expected = sorted(
            path.relative_to(folder).as_posix()
            for path in folder.rglob("*")
            if path.is_file() and not (path.parent == folder and path.suffix == ".json")
        )
        assert [member.fullpath for member in opened.members("all")] == expected
    assert not list(tmp_path.rglob("*"))


# -- archives of every kind ------------------------------------------------------------------------


def pack_zip(members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return out.getvalue()


def pack_tar(members: dict[str, bytes], layout: int = tarfile.PAX_FORMAT) -> bytes:
    out = io.BytesIO()
    with tarfile.TarFile(fileobj=out, mode="w", format=layout) as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


PACKERS: dict[str, Callable[[dict[str, bytes]], bytes]] = {
    "x.zip": pack_zip,
    "stored.zip": lambda members: pack_zip(members, zipfile.ZIP_STORED),
    "x.tar": pack_tar,
    "gnu.tar": lambda members: pack_tar(members, tarfile.GNU_FORMAT),
    "x.tar.gz": lambda members: gzip.compress(pack_tar(members)),
    "x.tgz": lambda members: gzip.compress(pack_tar(members)),
    "x.tar.bz2": lambda members: bz2.compress(pack_tar(members)),
    "x.tar.xz": lambda members: lzma.compress(pack_tar(members)),
    "x.tar.zst": lambda members: pa.compress(pack_tar(members), "zstd", asbytes=True),
    "wrong ending.csv": pack_zip,
}
NAMES = st.lists(st.text("aé.-_ x", min_size=1, max_size=6), min_size=1, max_size=3).map(
    lambda parts: "/".join(part if part.strip(".") else "d" for part in parts)
)
MEMBERS = st.dictionaries(NAMES, st.binary(max_size=2000), max_size=6)


@given(
    MEMBERS, st.sampled_from(sorted(PACKERS)), st.randoms(use_true_random=False), st.integers(0, 2)
)
def test_any_archive_in_any_order(
    tmp_path_factory: pytest.TempPathFactory,
    members: dict[str, bytes],
    name: str,
    rng: random.Random,
    copies: int,
) -> None:
    folder = tmp_path_factory.mktemp("any") / "data"
    folder.mkdir()
    (folder / name).write_bytes(PACKERS[name](members))
    with resources(
        folder,
        file("archive", name, "application/octet-stream"),
        files("all", "*", ".*", "*/.*", inside=["archive"]),
    ) as opened:
        found = opened.members("all")
        assert [member.fullpath for member in found] == sorted(members)
        wanted = found + [rng.choice(found) for _ in range(copies) if found]
        rng.shuffle(wanted)
        expected = [members[member.fullpath] for member in wanted]
        assert list(opened.read(wanted)) == expected
        assert [opened.path(member).read_bytes() for member in wanted] == expected
        assert list(opened.read(wanted)) == expected
        scratch = opened.path(found[0]).parent if found else None
    assert scratch is None or not scratch.exists()


@pytest.mark.parametrize(
    ("name", "pack"),
    [
        ("a.csv.gz", gzip.compress),
        ("a.csv.bz2", bz2.compress),
        ("a.csv.xz", lzma.compress),
        ("a.csv.zst", lambda data: pa.compress(data, "zstd", asbytes=True)),
    ],
)
def test_one_compressed_file(name: str, pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    data = b"x,y\n" * 1000
    (folder / name).write_bytes(pack(data))
    packed = (folder / name).read_bytes()
    with resources(
        folder,
        file("packed", name, "application/gzip"),
        file("table", name, "text/csv"),
        file("inside", "a.csv", inside=["packed"]),
        file("unnamed", None, inside=["packed"]),
        files("looked-into", inside=["packed"]),
        files("as-it-is", inside=["table"]),
        files("asked", inside=[container("table", un_archive=True)]),
    ) as opened:
        assert read(opened, "packed") == read(opened, "table") == {name: packed}
        for identity in ("inside", "unnamed", "looked-into", "asked"):
            assert read(opened, identity) == {"a.csv": data}
        assert read(opened, "as-it-is") == {name: packed}


def test_a_compressed_tar_is_gone_through_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    members = {f"{number:03d}": random.Random(number).randbytes(3000) for number in range(300)}
    (folder / "x.tar.gz").write_bytes(gzip.compress(pack_tar(members), 1))
    with resources(
        folder, file("tar", "x.tar.gz", "application/x-tar"), files("all", inside=["tar"])
    ) as opened:
        found = opened.members("all")
        starts = []
        path_open = Path.open

        def counted(self: Path, *args: str, **how: str) -> object:
            starts.append(self.name)
            return path_open(self, *args, **how)

        monkeypatch.setattr(Path, "open", counted)
        assert list(opened.read(found)) == list(members.values())
        backwards = found[::-1]
        assert list(opened.read(backwards)) == list(members.values())[::-1]
        # In pieces, in the tar's order: each goes on where the last one ended.
        for at in range(0, 300, 10):
            assert b"".join(opened.read(found[at : at + 10])) == b"".join(
                list(members.values())[at : at + 10]
            )
        assert starts.count("x.tar.gz") <= 3
        starts.clear()
        opened.paths(backwards)
        assert starts.count("x.tar.gz") <= 1


def test_a_reader_may_stop_and_another_start(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    members = {str(number): bytes([number]) * 700 for number in range(9)}
    (folder / "x.tar.gz").write_bytes(gzip.compress(pack_tar(members)))
    with resources(
        folder, file("tar", "x.tar.gz", "application/x-tar"), files("all", inside=["tar"])
    ) as opened:
        found = opened.members("all")
        first, second = opened.read(found), opened.read(found[::-1])
        next(first)
        assert next(second) == members["8"]
        assert list(first) == list(members.values())[1:]
        assert list(second) == list(members.values())[-2::-1]


# -- what a FileSet can be contained in ------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    (folder / "sub" / ".hidden").mkdir(parents=True)
    (folder / "train.csv").write_bytes(b"train")
    (folder / "test.csv").write_bytes(b"test")
    (folder / "sub" / "more data.csv").write_bytes(b"more")
    (folder / "sub" / ".hidden" / "secret.csv").write_bytes(b"secret")
    (folder / "a.zip").write_bytes(pack_zip({"1.csv": b"a1", "2.txt": b"a2", "x/y.csv": b"ay"}))
    (folder / "b.tar").write_bytes(pack_tar({"./1.csv": b"b1", "3.csv": b"b3"}))
    (folder / "metadata.json").write_text('{"@context": {"cr": "http://mlcommons.org/croissant/"}}')
    (folder / "other.json").write_text('{"rows": []}')
    return folder


def test_unions(folder: Path) -> None:
    parts = [
        file("train", "train.csv"),
        file("test", "test.csv"),
        file("a", "a.zip", "application/zip"),
        file("b", "b.tar", "application/x-tar"),
        files("tables", "*.csv", inside=["train", "test"]),
        files("named", "train.csv", inside=["train", "test"]),
        files("archives", "?.zip", "?.tar", encoding="application/zip"),
        files("of-set", "*.csv", inside=["archives"], excludes=["x/*"]),
        files("mixed", "*.csv", inside=["b", "train", "a", "b"]),
        files("of-tables", "test*", inside=["tables"]),
    ]
    with resources(folder, *parts) as opened:
        assert read(opened, "tables") == {"train.csv": b"train", "test.csv": b"test"}
        assert read(opened, "named") == {"train.csv": b"train"}
        assert read(opened, "of-tables") == {"test.csv": b"test"}
        members = opened.members("of-set")
        assert [m.fullpath for m in members] == ["1.csv", "1.csv", "3.csv"]
        assert list(opened.read(members)) == [b"a1", b"b1", b"b3"]
        assert [member.owner for member in members] == ["a", "b", "b"]
        mixed = opened.members("mixed")
        assert list(opened.read(mixed)) == [b"b1", b"b3", b"train", b"a1", b"ay"]
        assert [member.resource for member in mixed] == ["mixed"] * 5


def test_folders(folder: Path) -> None:
    cases = {
        ("*.csv",): ["sub/more data.csv", "test.csv", "train.csv"],
        ("sub/.hidden/*",): ["sub/.hidden/secret.csv"],
        ("*.json",): ["other.json"],
        ("metadata.json",): ["metadata.json"],
        ("nothing*",): [],
    }
    for number, (includes, expected) in enumerate(cases.items()):
        with resources(folder, files(f"s{number}", *includes)) as opened:
            assert [member.fullpath for member in opened.members(f"s{number}")] == expected


def test_file_objects(folder: Path) -> None:
    with resources(
        folder,
        file("spaced", "sub/more%20data.csv"),
        file("dotted", "./train.csv"),
        file("a", "a.zip", "application/zip"),
        file("y", "x/y.csv", inside=["a"]),
        file("slash", "/1.csv", inside=["a"]),
        file("sum", "1.csv", inside=["a"], sha256=sha256(b"a1")),
        file("wrong", "1.csv", inside=["a"], sha256=sha256(b"other")),
        file("missing", "z/y.csv", inside=["a"]),
        file("no", "trian.csv"),
        file("folder", "sub"),
        file("plain", "1.csv", inside=["dotted"]),
        file("unsaid", None),
        file("loop", "x", inside=["pool"]),
        file("pool", "x", inside=["loop"]),
        file("nowhere", "x", inside=["?"]),
    ) as opened:
        assert read(opened, "spaced") == {"sub/more data.csv": b"more"}
        assert read(opened, "dotted") == {"train.csv": b"train"}
        assert read(opened, "y") == {"x/y.csv": b"ay"}
        assert read(opened, "slash") == read(opened, "sum") == {"1.csv": b"a1"}
        for identity, said in {
            "missing": "did you mean 'x/y.csv'?",
            "no": "did you mean 'train.csv'?",
            "folder": "is a folder",
            "plain": "not found in it",
            "unsaid": "no contentUrl",
            "loop": "'loop' in 'pool' in 'loop'",
            "nowhere": "unknown id",
            "unknown": "expected: one of 'spaced'",
        }.items():
            with pytest.raises(InputError, match=r"(?s)^.+$") as caught:
                opened.members(identity)
            assert said in str(caught.value)
        (wrong,) = opened.members("wrong")
        for attempt in (lambda: opened.path(wrong), lambda: list(opened.read([wrong]))):
            with pytest.raises(InputError) as caught:
                attempt()
            assert f"found: sha256 {sha256(b'a1')}" in str(caught.value)
            assert f"expected: sha256 {sha256(b'other')}" in str(caught.value)
            assert "a.zip > 1.csv" in str(caught.value)


@pytest.mark.parametrize(
    "url",
    ["../secret.txt", "sub/../../secret.txt", "%2e%2e/secret.txt", "/etc/passwd", "link.txt",
     "linked/secret.txt", "file:///etc/passwd", "..\\secret.txt", "~/x"],
)  # fmt: skip
def test_nothing_leads_out_of_the_folder(url: str, folder: Path) -> None:
    (folder.parent / "secret.txt").write_text("secret")
    (folder / "link.txt").symlink_to("../secret.txt")
    (folder / "linked").symlink_to("..")
    with (
        resources(folder, file("x", url), files("texts", "*.txt")) as opened,
        refused("unsafe-path"),
    ):
        opened.members("x")
    with (
        resources(folder, files("texts", "link*", url)) as opened,
        refused("unsafe-path"),
    ):
        opened.members("texts")


def test_links_inside_the_folder(folder: Path) -> None:
    (folder / "link.csv").symlink_to("train.csv")
    (folder / "round").symlink_to(".")
    with resources(
        folder, file("x", "link.csv"), files("all", "*.csv", excludes=["sub/*"])
    ) as opened:
        assert read(opened, "x") == {"link.csv": b"train"}
        assert list(read(opened, "all")) == ["link.csv", "test.csv", "train.csv"]


def test_a_link_made_after_listing_is_refused(folder: Path) -> None:
    with resources(folder, file("x", "train.csv")) as opened:
        members = opened.members("x")
        (folder / "train.csv").unlink()
        (folder / "train.csv").symlink_to("/etc/passwd")
        with refused("unsafe-path"):
            list(opened.read(members))


def test_mapping(folder: Path, tmp_path: Path) -> None:
    repository = tmp_path / "hub" / "snapshots" / "main"
    (repository / "default" / "train").mkdir(parents=True)
    (tmp_path / "hub" / "blobs").mkdir()
    (tmp_path / "hub" / "blobs" / "abc").write_bytes(b"parquet")
    (repository / "default" / "train" / "0.parquet").symlink_to("../../../../blobs/abc")
    (repository / "escape.parquet").symlink_to("/etc/passwd")
    other = tmp_path / "elsewhere.csv"
    other.write_bytes(b"elsewhere")
    unpacked = tmp_path / "unpacked"
    (unpacked / "x").mkdir(parents=True)
    (unpacked / "x" / "y.csv").write_bytes(b"by hand")
    parts = [
        file("repo", "https://huggingface.co/datasets/x", "git+https", sha256="https://x"),
        file("table", "https://example.org/data/table.csv", sha256=sha256(b"elsewhere")),
        file("zip", "https://example.org/a.zip", "application/zip"),
        file("y", "x/y.csv", inside=["zip"]),
        file("0", "default/train/0.parquet", inside=["repo"]),
        files("parquet", "default/*/*.parquet", inside=["repo"]),
        files("escaping", "*.parquet", inside=["repo"]),
        files("in-zip", "*.csv", inside=["zip"]),
    ]
    mapping = {"repo": repository, "table": other, "zip": unpacked}
    with resources(folder, *parts, mapping=mapping, offline=True) as opened:
        assert read(opened, "parquet") == {"default/train/0.parquet": b"parquet"}
        assert read(opened, "0") == {"default/train/0.parquet": b"parquet"}
        assert read(opened, "in-zip") == read(opened, "y") == {"x/y.csv": b"by hand"}
        assert read(opened, "table") == {"table.csv": b"elsewhere"}
        with refused("unsafe-path"):
            opened.members("escaping")
        with refused("invalid-value"):
            opened.members("repo")
        other.write_bytes(b"changed")
        with refused("checksum"):
            opened.path(opened.members("table")[0])
    with refused("unknown-name"):
        resources(folder, *parts, mapping={"parquet": other})
    with refused("not-found"):
        resources(folder, *parts, mapping={"zip": tmp_path / "none"})


# -- manifests -------------------------------------------------------------------------------------


def test_local_manifests(folder: Path) -> None:
    (folder / "lists").mkdir()
    (folder / "lists" / "near.csv").write_bytes(b"near")
    text = "near.csv\r\n\n./near.csv\nhttps://example.org/a/far%20away.csv?x=1\n"
    (folder / "lists" / "all.txt").write_text(text)
    (folder / "lists" / "all.txt.gz").write_bytes(gzip.compress(text.encode()))
    (folder / "all.zip").write_bytes(pack_zip({"1.txt": b"train.csv\n", "2.txt": b"test.csv"}))
    (folder / "bad.txt").write_text("train.csv\n../secret\n")
    lines = {"read_lines": True}
    with resources(
        folder,
        file("plain", "lists/all.txt", "text/plain"),
        file("packed", "lists/all.txt.gz", "application/gzip"),
        file("zip", "all.zip", "application/zip"),
        file("bad", "bad.txt", "text/plain"),
        file("binary", "a.zip", "text/plain"),
        files("of-plain", "*.csv", inside=[container("plain", **lines)]),
        files("of-packed", "*.csv", inside=[container("packed", un_archive=True, **lines)]),
        files("of-zip", "*.csv", inside=[container("zip", **lines)], excludes=["test*"]),
        files("of-regex", inside=[container("plain", read_lines=True, regex="(.*)")]),
        files("of-bad", inside=[container("bad", **lines)]),
        files("of-binary", inside=[container("packed", un_archive=False, **lines)]),
    ) as opened:
        for identity in ("of-plain", "of-packed"):
            far, near = opened.members(identity)
            assert (near.fullpath, near.location) == ("near.csv", folder / "lists" / "near.csv")
            assert (far.fullpath, far.filename) == ("a/far away.csv", "far away.csv")
            assert far.location == "https://example.org/a/far%20away.csv?x=1"
            assert list(opened.read([near])) == [b"near"]
        assert read(opened, "of-zip") == {"train.csv": b"train"}
        with refused("unsupported"):
            opened.members("of-regex")
        with refused("unsafe-path"):
            opened.members("of-bad")


def test_a_manifest_of_common_crawl(tmp_path: Path) -> None:
    """Its lines start at the server's root, as its own URL does."""
    folder = tmp_path / "data"
    folder.mkdir()
    name = "crawl-data/CC-MAIN-2025-43/segments/1759648357851.76/warc/CC-MAIN-{:06d}.warc.gz"
    lines = [name.format(number) for number in range(50_000)]
    manifest = tmp_path / "warc.paths.gz"
    manifest.write_bytes(gzip.compress("\n".join(lines).encode(), 1))
    with resources(
        folder,
        file(
            "warc.paths.gz",
            "https://data.example.org/crawl-data/CC-MAIN-2025-43/warc.paths.gz",
            "application/gzip",
        ),
        files(
            "warc-files",
            "*.warc.gz",
            inside=[container("warc.paths.gz", un_archive=True, read_lines=True)],
        ),
        mapping={"warc.paths.gz": manifest},
        offline=True,
    ) as opened:
        members = opened.members("warc-files")
    assert [member.fullpath for member in members] == lines
    assert [member.location for member in members] == [
        f"https://data.example.org/{line}" for line in lines
    ]
    assert members[0] == Member("warc-files", lines[0], f"https://data.example.org/{lines[0]}")


# -- checksums -------------------------------------------------------------------------------------

CONTENT = b"train"
DIGEST = hashlib.sha256(CONTENT)


@pytest.mark.parametrize(
    ("sha", "md5", "version", "accepted"),
    [
        (DIGEST.hexdigest(), None, "1.0", True),
        (DIGEST.hexdigest().upper(), None, "1.1", True),
        (base64.b64encode(DIGEST.digest()).decode(), None, "1.1", True),
        (hashlib.md5(CONTENT).hexdigest(), None, "1.1", True),
        (None, base64.b64encode(hashlib.md5(CONTENT).digest()).decode(), "1.1", True),
        ("sha256", None, "1.1", True),
        ("https://github.com/mlcommons/croissant/issues/80", None, "1.1", True),
        (sha256(b"x"), None, "1.0", False),
        (sha256(b"x"), None, "0.8", True),
        (None, hashlib.md5(b"x").hexdigest(), "1.1", False),
    ],
)
def test_checksums_of_local_files(
    sha: str | None, md5: str | None, version: str, accepted: bool, folder: Path
) -> None:
    parts = (file("x", "train.csv", sha256=sha, md5=md5), files("set", "*.csv"))
    for identity in ("x", "set"):
        for use in (Resources.paths, Resources.fetch, lambda opened, m: list(opened.read(m))):
            with resources(folder, *parts, version=version) as opened:
                members = opened.members(identity)
                if accepted:
                    use(opened, members)
                    continue
                with refused("checksum") as caught:
                    use(opened, members)
                assert "train.csv" in str(caught.value)


@pytest.mark.parametrize(("suffix", "pack"), [("bz2", bz2.compress), ("xz", lzma.compress)])
def test_a_packed_table_is_unpacked_for_its_reader(
    folder: Path, tmp_path: Path, suffix: str, pack: Callable[[bytes], bytes]
) -> None:
    data = b"a,b\n" + b"1,x\n" * 1000
    (folder / f"t.csv.{suffix}").write_bytes(pack(data[:2000]) + pack(data[2000:]))
    with resources(folder, file("t", f"t.csv.{suffix}"), file("plain", "a.zip")) as opened:
        [member, plain] = [*opened.members("t"), *opened.members("plain")]
        path = opened.inflated(opened.path(member), member.fullpath)
        assert path.read_bytes() == data
        assert opened.inflated(opened.path(member), member.fullpath) == path
        assert opened.inflated(opened.path(plain), "a.zip") == folder / "a.zip"
    assert not path.exists()
    (folder / f"t.csv.{suffix}").write_bytes(pack(data)[:-10])
    with (
        resources(folder, file("t", f"t.csv.{suffix}")) as opened,
        refused("damaged"),
    ):
        opened.inflated(opened.path(member), member.fullpath)


def test_a_file_is_hashed_once_unless_it_changes(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from holdfast.data.croissant.files import origins

    hashed = []
    original = origins.file_checksum
    monkeypatch.setattr(
        origins, "file_checksum", lambda path, kind: hashed.append(path) or original(path, kind)
    )
    data = (folder / "a.zip").read_bytes()
    with resources(
        folder,
        file("a", "a.zip", "application/zip", sha256=sha256(data)),
        files("all", inside=["a"]),
    ) as opened:
        members = opened.members("all")
        assert not hashed
        for _ in range(3):
            list(opened.read(members))
            opened.paths(members)
            opened.fetch(members)
        assert len(hashed) == 1
        os.utime(folder / "a.zip", ns=(1, 1))
        list(opened.fetch(members) or ())
        assert len(hashed) == 2


# -- what is unpacked ------------------------------------------------------------------------------


def test_unpacked_files_are_removed_and_names_are_harmless(folder: Path, tmp_path: Path) -> None:
    name = "x/" + "ü $(rm -rf *);\n" * 10 + ".csv"
    (folder / "odd.zip").write_bytes(pack_zip({name: b"odd"}))
    cache = tmp_path / "cache"
    before = tree(folder)
    opened = resources(
        folder, file("zip", "odd.zip", "application/zip"), files("all", inside=["zip"])
    )
    (member,) = opened.members("all")
    assert not cache.exists()
    path = opened.path(member)
    assert path.read_bytes() == b"odd"
    assert path.is_relative_to(cache / "unpacked")
    assert path.suffix == ".csv"
    assert path.name.isascii()
    assert opened.path(member) == path
    opened.close()
    assert list(tree(cache)) == ["unpacked"]
    assert tree(folder) == before
    assert opened.path(member).read_bytes() == b"odd"  # it can be used again
    del opened
    assert list(tree(cache)) == ["unpacked"]


KILLED = """
import os, signal, sys
from pathlib import Path
from holdfast.data.croissant.archives.unpacking import Scratch
scratch = Scratch(Path(sys.argv[1]))
scratch.keep("a", [b"left"])
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_left_is_removed_by_the_next(folder: Path, tmp_path: Path) -> None:
    unpacked = tmp_path / "cache" / "unpacked"
    with resources(
        folder, file("a", "a.zip", "application/zip"), files("x", inside=["a"])
    ) as opened:
        ours = opened.paths(opened.members("x"))
        subprocess.run([sys.executable, "-c", KILLED, str(unpacked)], check=False)
        assert len(list(unpacked.iterdir())) == 2
        with resources(
            folder, file("a", "a.zip", "application/zip"), files("x", inside=["a"])
        ) as other:
            other.paths(other.members("x"))
            assert len(list(unpacked.iterdir())) == 2
            assert not list(unpacked.glob("*/*-a"))
        assert all(path.exists() for path in ours)


def test_what_cannot_be_unpacked_to_the_end_leaves_nothing(folder: Path, tmp_path: Path) -> None:
    data = bytearray(pack_zip({"x": b"abc" * 9}, zipfile.ZIP_STORED))
    data[40] ^= 1
    (folder / "bad.zip").write_bytes(data)
    with resources(
        folder, file("zip", "bad.zip", "application/zip"), files("all", inside=["zip"])
    ) as opened:
        with refused("damaged"):
            opened.paths(opened.members("all"))
        assert not [path for path in (tmp_path / "cache").rglob("*-x*") if path.is_file()]


def test_many_archives_at_once(tmp_path: Path) -> None:
    """More archives than are kept open, read in turns."""
    folder = tmp_path / "data"
    folder.mkdir()
    for number in range(80):
        pack = pack_zip if number % 2 else lambda members: gzip.compress(pack_tar(members))
        (folder / f"{number:02d}.pack").write_bytes(
            pack({f"{name}": f"{number} {name}".encode() for name in range(3)})
        )
    with resources(
        folder,
        files("packs", "*.pack", encoding="application/zip"),
        files("all", inside=["packs"]),
    ) as opened:
        members = sorted(opened.members("all"), key=lambda member: member.fullpath)

        def expected() -> Iterator[bytes]:
            for member in members:
                number = int(Path(member.location).stem)
                yield f"{number} {member.fullpath}".encode()

        assert list(opened.read(members)) == list(expected())
        assert len(members) == 240


FORKED = """
import os, sys
sys.path.insert(0, {here!r})
from pathlib import Path
from described_files import file, files, resources
opened = resources(
    Path(sys.argv[1]),
    file("z", "x.zip", "application/zip"),
    file("t", "x.tar", "application/x-tar"),
    files("all", inside=["z", "t"]),
)
members = opened.members("all")
first = list(opened.read(members))
child = os.fork()
for _ in range(20):
    mine = members[:: -1 if child else 1]
    expected = first[:: -1 if child else 1]
    assert list(opened.read(mine)) == expected
assert [path.read_bytes() for path in opened.paths(mine)] == expected
assert not child or os.waitpid(child, 0)[1] == 0
assert [path.read_bytes() for path in opened.paths(mine)] == expected
"""


def test_forks_read_side_by_side(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    members = {str(number): random.Random(number).randbytes(9000) for number in range(40)}
    (folder / "x.zip").write_bytes(pack_zip(members, zipfile.ZIP_STORED))
    (folder / "x.tar").write_bytes(pack_tar(members))
    script = FORKED.format(here=str(Path(__file__).parent))
    subprocess.run([sys.executable, "-c", script, str(folder)], check=True)
