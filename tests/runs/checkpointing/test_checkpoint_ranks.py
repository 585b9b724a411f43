"""Several ranks over gloo: sharded state, one reader, errors that all ranks hear."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

import checkpoint_ranks as ranks

from holdfast.runs.checkpointing.folder import look, name_of, verify_all


@pytest.mark.full
def test_sharded_state_is_loaded_on_two_ranks_and_on_one(tmp_path: Path) -> None:
    """FSDP2 with an optimizer; parameters changed right after `save` returned are not in it."""
    folder = str(tmp_path / "checkpoints")
    saved = ranks.together(ranks.save_sharded, tmp_path, checkpoints=folder)
    assert saved[0] == saved[1]
    assert ranks.together(ranks.load_sharded, tmp_path, 2, checkpoints=folder) == saved
    assert ranks.together(ranks.load_sharded, tmp_path, 1, checkpoints=folder) == saved[:1]
    (latest, *_) = verify_all(look(folder)).complete[::-1]
    assert latest.manifest is not None
    assert latest.manifest.world_size == 2
    assert [file.name for file in latest.manifest.files] == [
        ".metadata",
        "__0_0.distcp",
        "__1_0.distcp",
    ]


@pytest.mark.full
def test_one_reader_reads_for_all(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    saved = ranks.together(ranks.save_replicated, tmp_path, checkpoints=str(folder))
    size = sum(file.stat().st_size for file in (folder / name_of(2)).glob("*.distcp"))

    every = ranks.together(
        ranks.load_replicated, tmp_path, checkpoints=str(folder), one_reader=False
    )
    one = ranks.together(ranks.load_replicated, tmp_path, checkpoints=str(folder), one_reader=True)
    for answer in (*every, *one):
        assert (answer["step"], answer["digest"]) == (2, saved[0])
    for answer in every:
        assert answer["bytes_opened"] > size
    reader, other = one
    assert "__0_0.distcp" in reader["opened"]
    assert "__1_0.distcp" in reader["opened"]
    assert other["opened"] == []
    assert other["bytes_opened"] == 0
    assert other["bytes_read"] < reader["bytes_read"]


@pytest.mark.full
def test_a_damaged_file_makes_all_ranks_take_the_checkpoint_before(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    ranks.together(ranks.save_replicated, tmp_path, checkpoints=str(folder))
    path = folder / name_of(2) / "__1_0.distcp"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    for one_reader in (False, True):
        answers = ranks.together(
            ranks.load_replicated, tmp_path, checkpoints=str(folder), one_reader=one_reader
        )
        assert [answer["step"] for answer in answers] == [1, 1]
        assert answers[0]["digest"] == answers[1]["digest"]


@pytest.mark.full
def test_all_ranks_hear_of_one_that_does_not_fit(tmp_path: Path) -> None:
    folder = str(tmp_path / "checkpoints")
    ranks.together(ranks.save_replicated, tmp_path, checkpoints=folder)
    told = ranks.together(ranks.load_misfit, tmp_path, checkpoints=folder)
    assert told[0] == told[1]
    assert "no model.unknown" in told[0]


def test_all_ranks_hear_of_one_whose_disk_is_full(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    told = ranks.together(ranks.save_with_a_full_disk, tmp_path, checkpoints=str(folder))
    assert told[0] == told[1]
    (message,) = told[0]
    assert "the checkpoint of step 2 could not be written" in message
    assert "rank 1: OSError: [Errno 28] No space left on device" in message
    assert "free space" in message
    assert [each.step for each in verify_all(look(folder)).complete] == [1, 4]
    assert not look(folder).unfinished


@pytest.mark.full
def test_groups_of_a_job_save_on_their_own(tmp_path: Path) -> None:
    folder = str(tmp_path / "checkpoints")
    answers = ranks.together(ranks.save_on_half_of_the_job, tmp_path, 4, checkpoints=folder)
    assert answers == [[1, [0.0] * 4]] * 2 + [[1, [1.0] * 4]] * 2


@pytest.mark.full
def test_a_dead_rank_publishes_nothing(tmp_path: Path) -> None:
    """Rank 1 dies in the middle of writing: rank 0 lives on, fails the save and keeps what was there."""
    folder = tmp_path / "checkpoints"
    ranks.together(ranks.train, tmp_path, checkpoints=str(folder), steps=3)
    with ranks.running(
        ranks.train, tmp_path, checkpoints=str(folder), steps=9, killed_at=3, killed_rank=1
    ) as pair:
        assert pair.codes() == [1, -9]
        assert "ranks.py" in pair.said() or "gloo" in pair.said()
    found = verify_all(look(folder))
    assert [each.step for each in found.complete] == [2, 3]
    assert not found.damaged


def test_resumed_training_of_two_ranks_is_bit_identical(tmp_path: Path) -> None:
    expected = ranks.together(ranks.straight, tmp_path, steps=20)[0]
    folder = str(tmp_path / "checkpoints")
    half = ranks.together(ranks.train, tmp_path, checkpoints=folder, steps=10, every=10)
    assert half[0]["digest"] == half[1]["digest"] == expected[10]
    note = tmp_path / "note"
    whole = ranks.together(
        ranks.train, tmp_path, checkpoints=folder, steps=20, every=5, note=str(note)
    )
    assert json.loads(note.read_text()) == {"step": 10, "digest": expected[10]}
    assert whole[0]["digest"] == whole[1]["digest"] == expected[20]
