"""Archives that lie, climb, link, share, swell or are cut short are refused, and leave nothing behind."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import random
import shutil
import struct
import subprocess
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from described_files import file, files, refused, resources, tree
from hypothesis import given
from hypothesis import strategies as st

from holdfast.data.croissant.archives import unpacking
from holdfast.data.croissant.archives.archive import Limits
from holdfast.errors import InputError, LimitError

ZEROS = bytes(1 << 20)


def zip_of(*members: tuple[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return out.getvalue()


def renamed(data: bytes, old: bytes, new: bytes) -> bytes:
    assert len(old) == len(new)
    return data.replace(old, new)


def zip_with(name: str) -> bytes:
    return zip_of(("good.txt", b"good"), (name, b"evil"))


def zip_mode(mode: int) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("good.txt", "good")
        info = zipfile.ZipInfo("odd")
        info.create_system, info.external_attr = 3, mode << 16
        archive.writestr(info, "/etc/passwd")
    return out.getvalue()


def tar_of(*members: tarfile.TarInfo | tuple[str, bytes], end: bool = True) -> bytes:
    out = io.BytesIO()
    for member in members:
        if isinstance(member, tarfile.TarInfo):
            info, data = member, b""
        else:
            info, data = tarfile.TarInfo(member[0]), member[1]
            info.size = len(data)
        out.write(info.tobuf(tarfile.PAX_FORMAT) + data + bytes(-len(data) % 512))
    return out.getvalue() + (bytes(1024) if end else b"")


def tar_with(kind: bytes, name: str = "odd", link: str = "/etc/passwd") -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return tar_of(("good.txt", b"good"), info)


def duplicate_zip() -> bytes:
    return renamed(zip_of(("one.txt", b"1"), ("two.txt", b"2")), b"two.txt", b"one.txt")


def encrypted_zip() -> bytes:
    data = bytearray(zip_of(("good.txt", b"good")))
    data[data.index(b"PK\1\2") + 8] |= 1
    data[6] |= 1
    return bytes(data)


def directory_field(data: bytes, offset: int, layout: str, value: int) -> bytes:
    """A zip whose first directory entry says something else."""
    at = data.index(b"PK\1\2") + offset
    return data[:at] + struct.pack(layout, value) + data[at + struct.calcsize(layout) :]


def overlapping_zip() -> bytes:
    """Ten members that are one: the directory names it ten times."""
    data = zip_of(("00", ZEROS[:10_000]))
    at, end = data.index(b"PK\1\2"), data.index(b"PK\5\6")
    entry = data[at:end]
    entries = [entry.replace(b"00", f"{number:02d}".encode()) for number in range(10)]
    directory = b"".join(entries)
    tail = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 10, 10, len(directory), at, 0)
    return data[:at] + directory + tail


def gnu_size(size: int) -> bytes:
    """A tar whose member says that it has a size as only base 256 can."""
    info = tarfile.TarInfo("odd")
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    header[124:136] = size.to_bytes(12, "big", signed=True)
    header[124] |= 0x80
    header[148:156] = b" " * 8
    header[148:156] = f"{sum(header):06o}\0 ".encode()
    return bytes(header) + bytes(1024)


def extended(text: bytes, count: int = 1) -> bytes:
    """A tar with an extended header of a text, and a member."""
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.XHDTYPE, len(text)
    return (info.tobuf(tarfile.USTAR_FORMAT) + text + bytes(-len(text) % 512)) * count + tar_of(
        ("odd", b"")
    )


def sparse_tar() -> bytes:
    info = tarfile.TarInfo("odd")
    info.type = tarfile.GNUTYPE_SPARSE
    return tar_of(("good.txt", b"good"), info)


RANDOM = random.Random(5).randbytes(4000)
HOSTILE: dict[str, tuple[Callable[[], bytes], str, str]] = {
    # name: bytes, what the message says, which member it names
    "climbs.zip": (lambda: zip_with("../evil.txt"), "leads out", "../evil.txt"),
    "climbs_alone.zip": (lambda: zip_of(("../evil.txt", b"")), "leads out", "../evil.txt"),
    "climbs_inside.zip": (lambda: zip_with("a/../../evil.txt"), "leads out", "a/../../evil.txt"),
    "climbs_twice.zip": (
        lambda: zip_of(("../a/../../b", b""), ("../c", b"")),
        "leads out",
        "a/../../b",
    ),
    "absolute.zip": (lambda: zip_with("/etc/evil"), "absolute", "/etc/evil"),
    "drive.zip": (lambda: zip_with("C:/evil.txt"), "drive", "C:/evil.txt"),
    "unc.zip": (lambda: zip_with("//host/share/evil"), "absolute", "//host/share/evil"),
    "backslash.zip": (lambda: zip_with("..\\evil.txt"), "backslash", "evil.txt"),
    "nul.zip": (lambda: renamed(zip_with("a.txt_b"), b"a.txt_b", b"a.txt\0b"), "NUL", "a.txt"),
    "link.zip": (lambda: zip_mode(0o120777), "symbolic link", "odd"),
    "device.zip": (lambda: zip_mode(0o020666), "not a regular file", "odd"),
    "pipe.zip": (lambda: zip_mode(0o010666), "not a regular file", "odd"),
    "duplicate.zip": (duplicate_zip, "same name", "one.txt"),
    "duplicate_spelling.zip": (
        lambda: zip_of(("a/b", b"1"), ("a//./b", b"2")),
        "same name",
        "a/b",
    ),
    "encrypted.zip": (encrypted_zip, "encrypted", "good.txt"),
    "overlapping.zip": (overlapping_zip, "overlaps", "00"),
    "ratio.zip": (lambda: zip_of(("odd", ZEROS * 3)), "bomb", "bytes out of"),
    "many_small.zip": (
        lambda: zip_of(*((f"{number}", ZEROS) for number in range(4))),
        "bomb",
        "bytes out of",
    ),
    "says_more.zip": (
        lambda: directory_field(zip_of(("odd", b"abc")), 24, "<L", 9),
        "damaged",
        "odd",
    ),
    "says_less.zip": (
        lambda: directory_field(zip_of(("odd", ZEROS)), 24, "<L", 9),
        "damaged",
        "odd",
    ),
    "packed_more.zip": (
        lambda: directory_field(zip_of(("odd", b"abc")), 20, "<L", 1 << 30),
        "overlaps",
        "odd",
    ),
    "elsewhere.zip": (
        lambda: directory_field(zip_of(("odd", b"abc")), 42, "<L", 1 << 30),
        "overlaps",
        "odd",
    ),
    "bzip2.zip": (
        lambda: zip_of(("odd", b"abc"), method=zipfile.ZIP_BZIP2),
        "not supported",
        "odd",
    ),
    "wrong_crc.zip": (
        lambda: directory_field(zip_of(("odd", b"abc")), 16, "<L", 7),
        "damaged",
        "odd",
    ),
    "other_name.zip": (
        lambda: zip_of(("odd", b"abc")).replace(b"odd", b"xyz", 1),
        "damaged",
        "odd",
    ),
    "unknown_method.zip": (
        lambda: directory_field(zip_of(("odd", b"abc")), 10, "<H", 97),
        "not supported",
        "odd",
    ),
    "no_directory.zip": (lambda: zip_of(("odd", RANDOM))[:-40], "damaged", ""),
    "only_start.zip": (lambda: b"PK\3\4" + bytes(40), "damaged", ""),
    "climbs.tar": (lambda: tar_of(("../evil.txt", b"")), "leads out", "../evil.txt"),
    "climbs_alike.tar": (
        lambda: tar_of(("../a", b""), ("../b", b"")),
        "leads out",
        "../a",
    ),
    "absolute.tar": (lambda: tar_of(("/etc/evil", b"")), "absolute", "/etc/evil"),
    "link.tar": (lambda: tar_with(tarfile.SYMTYPE), "symbolic link to '/etc/passwd'", "odd"),
    "hard_link.tar": (lambda: tar_with(tarfile.LNKTYPE), "hard link to '/etc/passwd'", "odd"),
    "device.tar": (lambda: tar_with(tarfile.BLKTYPE), "device", "odd"),
    "character.tar": (lambda: tar_with(tarfile.CHRTYPE), "device", "odd"),
    "pipe.tar": (lambda: tar_with(tarfile.FIFOTYPE), "pipe", "odd"),
    "volume.tar": (lambda: tar_with(b"V"), "special file", "odd"),
    "folder_climbs.tar": (lambda: tar_with(tarfile.DIRTYPE, "../x"), "leads out", "../x"),
    "sparse.tar": (sparse_tar, "sparse", "odd"),
    "duplicate.tar": (lambda: tar_of(("a", b"1"), ("./a", b"2")), "two members", "a"),
    "negative.tar": (lambda: gnu_size(-1024), "damaged", ""),
    "negative_extended.tar": (lambda: extended(b"14 size=-1024\n"), "damaged", ""),
    "huge.tar": (lambda: gnu_size(1 << 60), "damaged", ""),
    "no_end.tar": (lambda: tar_of(("a", b"1"), end=False), "damaged", ""),
    "cut.tar": (lambda: tar_of(("a", RANDOM))[:1500], "damaged", ""),
    "cut_header.tar": (lambda: tar_of(("a", b""), ("b", b""))[:700], "damaged", ""),
    "no_header.tar": (lambda: tar_of(("a", b"1"), end=False) + RANDOM[:1024], "damaged", ""),
    "headers.tar": (lambda: extended(b"12 a=bcdefg\n", 5000), "damaged", ""),
    "digits.tar": (lambda: extended(b"1" * 100_000), "damaged", ""),
    "large_header.tar": (lambda: extended(bytes(3 << 20)), "bomb", "header"),
    "ratio.tar.gz": (lambda: gzip.compress(tar_of(("odd", ZEROS * 3))), "bomb", "bytes out of"),
    "ratio.tar.bz2": (lambda: bz2.compress(tar_of(("odd", ZEROS * 3))), "bomb", "bytes out of"),
    "ratio.tar.xz": (lambda: lzma.compress(tar_of(("odd", ZEROS * 3))), "bomb", "bytes out of"),
    "ratio.tar.zst": (
        lambda: pa.compress(tar_of(("odd", ZEROS * 3)), "zstd", asbytes=True),
        "bomb",
        "bytes out of",
    ),
    "ratio.gz": (lambda: gzip.compress(ZEROS * 3), "bomb", "bytes out of"),
    "behind_the_end.tar.gz": (
        lambda: gzip.compress(tar_of(("odd", b"x")) + ZEROS * 3),
        "bomb",
        "bytes out of",
    ),
    "cut.tar.gz": (lambda: gzip.compress(tar_of(("odd", RANDOM)))[:-9], "damaged", ""),
    "cut_early.tar.gz": (lambda: gzip.compress(tar_of(("odd", RANDOM)))[:900], "damaged", ""),
    "cut.tar.xz": (lambda: lzma.compress(tar_of(("odd", RANDOM)))[:-30], "damaged", ""),
    "cut.tar.bz2": (lambda: bz2.compress(tar_of(("odd", RANDOM)))[:-9], "damaged", ""),
    "cut.tar.zst": (
        lambda: pa.compress(tar_of(("odd", RANDOM)), "zstd", asbytes=True)[:-9],
        "damaged",
        "",
    ),
    "wrong_sum.gz": (lambda: gzip.compress(RANDOM)[:-8] + bytes(8), "damaged", ""),
    "page.zip": (lambda: b"<!doctype html><title>Sign in</title>" * 20, "not an archive", ""),
    "empty.tar.gz": (lambda: b"", "not an archive", ""),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_refused(name: str, tmp_path: Path) -> None:
    make, problem, member = HOSTILE[name]
    folder = tmp_path / "deep" / "data"
    folder.mkdir(parents=True)
    (folder / name).write_bytes(make())
    (folder.parent / "outside.txt").write_text("not ours")
    before = tree(folder.parent)
    opened = resources(
        folder,
        file("archive", name, "application/zip" if "zip" in name else "application/x-tar"),
        files("all", inside=["archive"]),
        cache=tmp_path / "cache",
    )
    with opened as all_of_it:
        all_of_it.limits = Limits(free=1 << 21, ratio=100, header=1 << 20)
        with pytest.raises(InputError) as caught:
            for _ in all_of_it.read(all_of_it.members("all")):
                pass
        with pytest.raises(InputError):
            all_of_it.paths(all_of_it.members("all"))
        assert tree(folder.parent) == before
    message = str(caught.value)
    assert problem in message
    assert member in message
    assert name in message
    assert "remedy: " in message
    assert tree(folder.parent) == before
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


def test_the_limits_can_be_raised(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "large.zip").write_bytes(zip_of(("a", ZEROS), ("b", ZEROS)))
    parts = (file("archive", "large.zip", "application/zip"), files("all", inside=["archive"]))
    cases = [
        (Limits(members=1), "Limits(members=...)"),
        (Limits(total=1 << 20), "Limits(total=...)"),
        (Limits(free=1000, ratio=10), "Limits(ratio=...)"),
        (Limits(depth=0), "Limits(depth=...)"),
    ]
    for limits, remedy in cases:
        with resources(folder, *parts) as strict:
            strict.limits = limits
            with pytest.raises(InputError) as caught:
                strict.members("all")
            assert remedy in str(caught.value)
    with resources(folder, *parts) as usual:
        assert list(usual.read(usual.members("all"))) == [ZEROS, ZEROS]


def nested(depth: int, data: bytes) -> bytes:
    for number in range(depth):
        data = zip_of((f"{number}.zip" if number else "data.txt", data))
    return data


def test_archives_in_archives(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "outer.zip").write_bytes(nested(4, b"deep"))
    parts = [file("z3", "outer.zip", "application/zip")]
    for number in (3, 2, 1):
        inside = [f"z{number}"]
        parts.append(file(f"z{number - 1}", f"{number}.zip", "application/zip", inside=inside))
    with resources(
        folder,
        *parts,
        files("z2-all", inside=["z2"]),
        files("z1-all", inside=["z1"]),
        files("all", inside=["z0"]),
    ) as opened:
        assert [m.inside for m in opened.members("z2-all")] == [("3.zip", "2.zip")]
        (member,) = opened.members("z1-all")
        assert member.inside == ("3.zip", "2.zip", "1.zip")
        with refused("unsafe-archive") as caught:
            opened.members("all")
        assert "outer.zip > 3.zip > 2.zip > 1.zip" in str(caught.value)
        opened.limits = Limits(depth=4)
        (member,) = opened.members("all")
        assert list(opened.read([member])) == [b"deep"]
        assert opened.path(member).read_bytes() == b"deep"


def test_a_nested_bomb_is_measured_by_what_it_took(tmp_path: Path) -> None:
    """Each level alone unpacks to less than 1,000 times its size; together they do not."""
    folder = tmp_path / "data"
    folder.mkdir()
    inner = zip_of(*((f"{number}.txt", ZEROS * 8) for number in range(5)))
    (folder / "outer.zip").write_bytes(zip_of(("inner.zip", inner)))
    assert 5 * len(ZEROS * 8) < 1050 * len(inner)
    assert len(zlib.compress(inner)) < len(inner) / 2
    with resources(
        folder,
        file("outer", "outer.zip", "application/zip"),
        file("inner", "inner.zip", "application/zip", inside=["outer"]),
        files("all", inside=["inner"]),
    ) as opened:
        opened.limits = Limits(ratio=1050, free=1 << 20)
        with refused("unsafe-archive") as caught:
            opened.members("all")
        assert "outer.zip > inner.zip" in str(caught.value)


def changes(data: bytes) -> Iterator[bytes]:
    rng = random.Random(1)
    for _ in range(150):
        changed = bytearray(data)
        for _ in range(rng.choice((1, 1, 2, 5))):
            changed[rng.randrange(len(data))] = rng.choice((0, 0xFF, rng.randrange(256)))
        yield bytes(changed)
        yield data[: rng.randrange(len(data))]


@pytest.mark.quick(2)
@pytest.mark.parametrize("ending", ["zip", "tar", "tar.gz", "tar.xz", "tar.zst"])
def test_damage_is_an_input_error_or_harmless(ending: str, tmp_path: Path) -> None:
    """Whatever bytes change or go missing: an InputError, or members below the root; no other exception."""
    members = (("a/b.txt", b"some text " * 30), ("c.bin", RANDOM[:300]))
    plain = tar_of(*members)
    data = {
        "zip": zip_of(*members),
        "tar": plain,
        "tar.gz": gzip.compress(plain),
        "tar.xz": lzma.compress(plain),
        "tar.zst": pa.compress(plain, "zstd", asbytes=True),
    }[ending]
    folder = tmp_path / "data"
    folder.mkdir()
    path = folder / f"archive.{ending}"
    parts = (file("archive", path.name, "application/zip"), files("all", inside=["archive"]))
    refused = 0
    for changed in changes(data):
        path.write_bytes(changed)
        with resources(folder, *parts) as opened:
            try:
                found = opened.members("all")
                assert all(".." not in m.fullpath.split("/") for m in found)
                for _ in opened.read(found):
                    pass
            except InputError:
                refused += 1
    assert refused > 100


@given(
    st.binary(max_size=2000), st.sampled_from([b"", b"PK\3\4", b"PK\5\6", b"\x1f\x8b\x08", b"BZh9"])
)
def test_any_bytes(rest: bytes, start: bytes) -> None:
    from holdfast.data.croissant.archives.opening import open_archive

    data = start + rest
    try:
        archive = open_archive(lambda: io.BytesIO(data), "x.zip", "x.zip", Limits(), len(data))
        if archive is not None:
            for name in archive.sizes:
                b"".join(archive.chunks(name))
            archive.close()
    except InputError as error:
        assert error.path == "x.zip"  # noqa: PT017


LYING = """
import resource, sys
sys.path.insert(0, {here!r})
from pathlib import Path
from described_files import file, files, resources
from holdfast.errors import InputError
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
with resources(
    Path(sys.argv[1]), file("a", "x.zip", "application/zip"), files("all", inside=["a"])
) as opened:
    members = opened.members("all")
    try:
        list(opened.read(members))
    except InputError:
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_a_zip_that_lies_about_its_size_takes_no_memory(tmp_path: Path) -> None:
    """70 MiB that the directory calls 100 bytes."""
    folder = tmp_path / "data"
    folder.mkdir()
    out = io.BytesIO()
    with (
        zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("x", "w") as member,
    ):
        for _ in range(70):
            member.write(ZEROS)
    (folder / "x.zip").write_bytes(directory_field(out.getvalue(), 24, "<L", 100))
    script = LYING.format(here=str(Path(__file__).parent))
    done = subprocess.run(
        [sys.executable, "-c", script, str(folder)], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 40_000  # KiB


def test_the_usual_limits() -> None:
    usual = Limits()
    usual.unpacked(50 * (10 << 30), 10 << 30, "tables.zip")
    usual.unpacked(1 << 28, 1000, "mask.zip")
    for size, packed in ((400 << 20, 1_360_000), (2 << 40, 1 << 40)):
        with refused("unsafe-archive"):
            usual.unpacked(size, packed, "bomb.zip")


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Known sizes are compared before anything is written, unknown ones on the way."""
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "a.zip").write_bytes(zip_of(("a", ZEROS)))
    (folder / "b.gz").write_bytes(gzip.compress(ZEROS))
    parts = [file("zip", "a.zip", "application/zip"), file("gz", "b.gz", "application/gzip")]
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=len(ZEROS)))
    monkeypatch.setattr(unpacking, "_ROOM_EVERY", 1 << 19)
    for holder in ("zip", "gz"):
        with resources(folder, *parts, files("all", inside=[holder])) as opened:
            with pytest.raises(LimitError):
                opened.paths(opened.members("all"))
            assert not [
                path
                for path in (tmp_path / "cache").rglob("*")
                if path.is_file() and path.stat().st_size
            ]
