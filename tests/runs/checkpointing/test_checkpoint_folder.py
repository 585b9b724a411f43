"""Folders of checkpoints without torch: manifests, publication, damage, retention, the command."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.cli import main
from holdfast.errors import InputError, StoreError
from holdfast.files import Lock
from holdfast.runs.checkpointing import publication
from holdfast.runs.checkpointing.folder import (
    Checkpoint,
    CheckpointFolder,
    examine,
    look,
    name_of,
    verify,
    verify_all,
)
from holdfast.runs.checkpointing.manifest import (
    MANIFEST,
    Manifest,
    NewerManifestError,
    WrittenFile,
    crc32_of_file,
    read_manifest,
)

TOKEN = "0123456789abcdef"
VERSIONS = {"holdfast": "0", "torch": "0"}


def written(path: Path, content: bytes) -> WrittenFile:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return WrittenFile(path.name, len(content), f"{zlib.crc32(content):08x}")


def published(folder: Path, step: int, contents: Sequence[bytes] = (b"one", b"two")) -> Checkpoint:
    """A checkpoint of small files, by the same steps as a save."""
    draft = publication.Draft(folder, step, TOKEN)
    files = [written(draft.path / f"__{i}_0.distcp", part) for i, part in enumerate(contents)]
    return draft.publish(files, len(files), VERSIONS)


def status(folder: Path) -> list[tuple[str, str]]:
    return [(each.path.name, each.status) for each in look(folder).checkpoints]


# --- Manifests -----------------------------------------------------------------------------------


@given(
    step=st.integers(0, 10**12),
    published_s=st.floats(0, 4e9),
    files=st.lists(
        st.builds(
            WrittenFile,
            st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1),
            st.integers(0, 2**60),
            st.integers(0, 2**32 - 1).map(lambda n: f"{n:08x}"),
        )
    ),
)
@settings(max_examples=50, deadline=None)
def test_a_manifest_is_read_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory,
    step: int,
    published_s: float,
    files: list[WrittenFile],
) -> None:
    path = tmp_path_factory.mktemp("manifest") / MANIFEST
    made = Manifest(step, 3, published_s, 2, tuple(files), VERSIONS)
    path.write_bytes(made.to_bytes())
    assert read_manifest(path) == made
    assert json.loads(path.read_bytes())["format_version"] == 1


def test_every_changed_byte_of_a_manifest_is_found(tmp_path: Path) -> None:
    path = tmp_path / MANIFEST
    whole = Manifest(5, 1, 1e9, 1, (WrittenFile("a", 1, "00000000"),), VERSIONS).to_bytes()
    for place in range(len(whole)):
        changed = bytearray(whole)
        changed[place] ^= 1
        path.write_bytes(changed)
        with pytest.raises(InputError, match="damaged"):
            read_manifest(path)
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(InputError, match="damaged"):
            read_manifest(path)


def newer(path: Path) -> None:
    """Rewrite a manifest as a later version would, with the right checksum of itself."""
    text = path.read_bytes().replace(b'"format_version": 1', b'"format_version": 2')
    at = text.index(b'": "') + 4
    zeros = text[:at] + b"00000000" + text[at + 8 :]
    path.write_bytes(text[:at] + f"{zlib.crc32(zeros):08x}".encode() + text[at + 8 :])


def test_a_pipe_in_the_place_of_a_manifest_blocks_nothing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / MANIFEST)
    with pytest.raises(InputError) as raised:
        read_manifest(tmp_path / MANIFEST)
    assert raised.value.code == "unreadable"


def test_a_newer_manifest_is_refused_and_shown(tmp_path: Path) -> None:
    made = published(tmp_path, 7)
    newer(made.path / MANIFEST)
    with pytest.raises(NewerManifestError, match="format version 2"):
        read_manifest(made.path / MANIFEST)
    assert status(tmp_path) == [("step-00000007", "newer")]
    assert not look(tmp_path).complete


def test_checksums_are_those_of_zip(tmp_path: Path) -> None:
    content = random.Random(1).randbytes(20_000_003)
    (tmp_path / "a").write_bytes(content)
    assert crc32_of_file(tmp_path / "a") == f"{zlib.crc32(content):08x}"
    (tmp_path / "b").write_bytes(b"")
    assert crc32_of_file(tmp_path / "b") == "00000000"
    (tmp_path / "c").write_bytes(b"123456789")
    assert crc32_of_file(tmp_path / "c") == "cbf43926"  # the check value of CRC-32


# --- Publication ---------------------------------------------------------------------------------


def test_a_checkpoint_appears_whole(tmp_path: Path) -> None:
    made = published(tmp_path, 20)
    assert made.path == tmp_path / "step-00000020"
    assert sorted(path.name for path in made.path.iterdir()) == [
        "__0_0.distcp",
        "__1_0.distcp",
        MANIFEST,
    ]
    found = look(tmp_path)
    assert found.complete == found.checkpoints == (made,)
    assert verify(made).checked == "checksums"
    assert verify(made).status == "complete"


@pytest.mark.quick(3)
@pytest.mark.parametrize("calls_before", range(7))
def test_death_in_publication_leaves_nothing_or_all(tmp_path: Path, calls_before: int) -> None:
    """Killed at each call by which a publication reaches the disk, one after the other."""
    published(tmp_path, 10)
    script = (
        "import os, pathlib, signal, sys\n"
        "sys.path.insert(0, sys.argv[3])\n"
        "from test_checkpoint_folder import published\n"
        "left = int(sys.argv[2])\n"
        "def counted(act):\n"
        "    def call(*given, **named):\n"
        "        global left\n"
        "        if left == 0: os.kill(os.getpid(), signal.SIGKILL)\n"
        "        left -= 1\n"
        "        return act(*given, **named)\n"
        "    return call\n"
        "os.fsync = counted(os.fsync)\n"
        "pathlib.Path.rename = counted(pathlib.Path.rename)\n"
        "pathlib.Path.exists = counted(pathlib.Path.exists)\n"
        "published(pathlib.Path(sys.argv[1]), 20)\n"
    )
    command = [sys.executable, "-c", script, tmp_path, str(calls_before), Path(__file__).parent]
    done = subprocess.run(list(map(str, command)), check=False, capture_output=True, text=True)
    assert done.returncode in (-9, 0), done.stderr
    found = verify_all(look(tmp_path))
    steps = [each.step for each in found.complete]
    # is there a manifest, sync of it, sync of the draft, is the name free, rename, sync of the folder
    assert steps == ([10] if calls_before < 5 else [10, 20])
    assert not found.damaged
    assert len(found.unfinished) == (calls_before < 5)
    assert (done.returncode == 0) == (calls_before == 6)


def test_a_step_saved_again_leaves_the_first_one_alone(tmp_path: Path) -> None:
    published(tmp_path, 20)
    published(tmp_path, 30)
    again = published(tmp_path, 20, [b"other"])
    assert again.path.name == "step-00000020-2"
    found = look(tmp_path)
    assert [each.path.name for each in found.complete] == [
        "step-00000020",
        "step-00000030",
        "step-00000020-2",
    ]
    assert found.complete[-1] == again, "the one published last, not the highest step"


def test_files_that_are_not_there_are_not_published(tmp_path: Path) -> None:
    draft = publication.Draft(tmp_path, 1, TOKEN)
    file = written(draft.path / "__0_0.distcp", b"abc")
    elsewhere = WrittenFile("__1_0.distcp", 3, "00000000")
    with pytest.raises(StoreError, match=r"__1_0\.distcp: missing(.|\n)*all ranks share"):
        draft.publish([file, elsewhere], 2, VERSIONS)
    assert not look(tmp_path).checkpoints


def test_what_dead_saves_left_goes_and_nothing_else(tmp_path: Path) -> None:
    published(tmp_path, 10)
    draft = publication.Draft(tmp_path, 20, TOKEN)
    written(draft.path / "__0_0.distcp", b"half")
    (tmp_path / f".step-00000005-{TOKEN}.removed").mkdir()
    (tmp_path / "step-notes").mkdir()
    (tmp_path / "README").write_text("mine")
    (tmp_path / ".step-00000020-mine.unfinished").mkdir()
    found = look(tmp_path)
    assert len(found.unfinished) == 2
    assert found.foreign == (".step-00000020-mine.unfinished", "README", "step-notes")
    publication.sweep(tmp_path)
    assert look(tmp_path).unfinished == ()
    assert look(tmp_path).foreign == found.foreign
    assert look(tmp_path).complete == found.complete


def test_one_writer_a_folder(tmp_path: Path) -> None:
    lock = publication.claim(tmp_path / "deep" / "folder")
    assert lock is not None
    with pytest.raises(InputError, match=f"process {os.getpid()} on "):
        publication.claim(tmp_path / "deep" / "folder")
    lock.close()
    again = publication.claim(tmp_path / "deep" / "folder")
    assert again is not None
    again.close()


def test_a_forked_worker_does_not_keep_the_lock_of_its_parent(tmp_path: Path) -> None:
    script = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from holdfast.runs.checkpointing import publication\n"
        "lock = publication.claim(Path(sys.argv[1]))\n"
        "if os.fork() == 0:\n"
        "    print('forked', flush=True)\n"
        "    sys.stdin.read()\n"  # lives until the test lets it go
        "    os._exit(0)\n"
        "sys.stdin.read()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stdout.readline() == b"forked\n"
    process.kill()
    process.wait()
    lock = publication.claim(tmp_path)  # the worker still lives
    lock.close()
    process.stdin.close()
    process.stdout.close()


# --- Removal and retention ------------------------------------------------------------------------


def test_a_checkpoint_that_is_being_loaded_stays(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        published(tmp_path, step)
    said: list[str] = []
    with Lock(tmp_path / name_of(1) / MANIFEST, shared=True):
        publication.retain(tmp_path, 1, None, TOKEN, said.append)
        assert [each.step for each in look(tmp_path).complete] == [1, 3]
        with pytest.raises(InputError, match="being loaded"):
            publication.remove(look(tmp_path).complete[0], TOKEN)
    publication.retain(tmp_path, 1, None, TOKEN, said.append)
    assert [each.step for each in look(tmp_path).complete] == [3]
    assert not said


def test_what_cannot_be_removed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in (1, 2):
        published(tmp_path, step)

    def refuse(*given: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "rename", refuse)
    said: list[str] = []
    publication.retain(tmp_path, 1, None, TOKEN, said.append)
    assert said == [f"{tmp_path / name_of(1)}: cannot be removed: Permission denied"]


@given(
    steps=st.lists(st.integers(0, 12), max_size=12),
    damaged=st.sets(st.integers(0, 11)),
    keep=st.none() | st.integers(1, 5),
    keep_every=st.none() | st.integers(1, 5),
)
def test_retention(
    steps: list[int], damaged: set[int], keep: int | None, keep_every: int | None
) -> None:
    checkpoints = tuple(
        Checkpoint(Path(str(i)), step, "damaged" if i in damaged else "complete", "sizes", None)
        for i, step in enumerate(steps)
    )
    listed = CheckpointFolder(Path(), 0.0, checkpoints, (), ())
    gone = publication.expendable(listed, keep, keep_every)
    left = [each for each in listed.complete if each not in gone]
    assert not [each for each in gone if each.status != "complete"], "damaged ones are left"
    assert left[-1:] == list(listed.complete[-1:]), "the last complete one always stays"
    if keep is None:
        assert not gone
    else:
        assert left[-keep:] == list(listed.complete[-keep:])
        kept_for_ever = left[:-keep]
        assert all(keep_every and each.step % keep_every == 0 for each in kept_for_ever)
        if keep_every:
            due = {each.step for each in listed.complete if each.step % keep_every == 0}
            assert due <= {each.step for each in left}
            assert len({each.step for each in kept_for_ever}) == len(kept_for_ever)


# --- Damage --------------------------------------------------------------------------------------


def test_every_kind_of_damage_names_file_expected_and_found(tmp_path: Path) -> None:
    for step in range(1, 6):
        published(tmp_path, step, [b"x" * 1000, b"y" * 1000])
    flipped, short, lost, no_manifest = (tmp_path / name_of(step) for step in range(1, 5))
    content = bytearray((flipped / "__1_0.distcp").read_bytes())
    content[500] ^= 4
    (flipped / "__1_0.distcp").write_bytes(content)
    os.truncate(short / "__0_0.distcp", 999)
    (lost / "__1_0.distcp").unlink()
    (no_manifest / MANIFEST).unlink()

    by_size = {each.step: each for each in look(tmp_path).checkpoints}
    assert [each.status for _, each in sorted(by_size.items())] == [
        "complete",
        "damaged",
        "damaged",
        "damaged",
        "complete",
    ]
    found = {each.step: each.damage for each in verify_all(look(tmp_path)).checkpoints}
    good, bad = zlib.crc32(b"y" * 1000), zlib.crc32(content)
    assert (
        str(*found[1])
        == f"__1_0.distcp: checksum, expected crc32 {good:08x}, found crc32 {bad:08x}"
    )
    assert str(*found[2]) == "__0_0.distcp: size, expected 1000 bytes, found 999 bytes"
    missing = "__1_0.distcp: missing, expected 1000 bytes, found No such file or directory"
    assert str(*found[3]) == missing
    assert str(*found[4]).startswith(f"{MANIFEST}: missing")
    assert found[5] == ()


@given(place=st.integers(0), bit=st.integers(0, 7))
@settings(max_examples=60, deadline=None)
def test_any_flipped_bit_anywhere_is_found(
    tmp_path_factory: pytest.TempPathFactory, place: int, bit: int
) -> None:
    folder = tmp_path_factory.mktemp("bits")
    made = published(folder, 1, [bytes(range(200)), b"z" * 50])
    files = sorted(made.path.iterdir())
    total = sum(file.stat().st_size for file in files)
    place %= total
    for file in files:
        if place < file.stat().st_size:
            break
        place -= file.stat().st_size
    content = bytearray(file.read_bytes())
    content[place] ^= 1 << bit
    file.write_bytes(content)
    (checked,) = verify_all(look(folder)).checkpoints
    assert checked.status == "damaged"
    assert checked.damage[0].file == file.name


def test_a_lost_manifest_stands_where_it_was_written(tmp_path: Path) -> None:
    times = {10: 1e9, 20: 1e9 + 100, 30: 1e9 + 200}
    for step, when in times.items():
        path = published(tmp_path, step).path
        manifest = read_manifest(path / MANIFEST)
        facts = {**manifest.__dict__, "published_s": when}
        (path / MANIFEST).write_bytes(Manifest(**facts).to_bytes())
        os.utime(path, (when, when))
    (tmp_path / name_of(20) / MANIFEST).write_bytes(b"{}")
    os.utime(tmp_path / name_of(20), (times[20], times[20]))
    assert [each.step for each in look(tmp_path).checkpoints] == [10, 20, 30]


def test_a_manifest_of_another_step_is_damage(tmp_path: Path) -> None:
    path = published(tmp_path, 10).path.rename(tmp_path / name_of(11))
    assert str(*examine(path, 11).damage).endswith("expected step 11, found step 10")
    assert verify(examine(path, 11)).status == "damaged"


# --- The command ---------------------------------------------------------------------------------


def command(*arguments: str | Path) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["runs", "checkpoints", *map(str, arguments)])
    return int(ended.value.code or 0)


def test_the_command_lists(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    published(tmp_path, 10)
    (tmp_path / "notes").touch()
    assert command(tmp_path) == 0
    said = capsys.readouterr().out
    assert "Latest complete: step 10" in said
    assert "6 B" in said
    assert "Not ours, left alone: notes" in said


def test_the_command_in_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    published(tmp_path, 10)
    published(tmp_path, 20)
    (tmp_path / name_of(20) / "__0_0.distcp").write_bytes(b"onE")
    assert command(tmp_path, "--json") == 0, "by sizes all is well"
    facts = json.loads(capsys.readouterr().out)
    assert facts["latest_complete_step"] == 20
    assert command(tmp_path, "--json", "--verify") == 1
    facts = json.loads(capsys.readouterr().out)
    assert (facts["latest_complete_step"], facts["complete"], facts["damaged"]) == (10, 1, 1)
    assert facts["checkpoints"][1] == {
        "name": "step-00000020",
        "step": 20,
        "status": "damaged",
        "checked": "checksums",
        "size_bytes": 6,
        "files": 2,
        "world_size": 2,
        "published_s": facts["checkpoints"][1]["published_s"],
        "age_s": facts["checkpoints"][1]["age_s"],
        "damage": [
            {
                "file": "__0_0.distcp",
                "problem": "checksum",
                "expected": f"crc32 {zlib.crc32(b'one'):08x}",
                "found": f"crc32 {zlib.crc32(b'onE'):08x}",
            }
        ],
    }
    assert command(tmp_path, "--verify") == 1
    assert "step-00000020/__0_0.distcp: checksum, expected" in capsys.readouterr().out


def test_the_command_fails_without_a_complete_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(tmp_path) == 1
    assert "No complete checkpoint" in capsys.readouterr().out
    assert command(tmp_path / "absent") == 2
    assert "cannot be read" in capsys.readouterr().err


def test_listing_and_verifying_need_no_torch(tmp_path: Path) -> None:
    published(tmp_path, 10)
    code = (
        "import sys\nsys.modules['torch'] = None\n"
        "from holdfast.cli import main\nmain(['runs', 'checkpoints', sys.argv[1], '--verify'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "checksums agree" in done.stdout
