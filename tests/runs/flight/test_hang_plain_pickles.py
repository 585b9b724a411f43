"""The compiled reader against the ordinary one: the same columns, or it leaves the file to the other."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_hangs import dump_of, random_job, run

from flight_records import Pickler, write_job
from holdfast.runs.flight import dumps
from holdfast.runs.flight.compact import NoDumpError, compact
from holdfast.runs.flight.plain_pickles import PlainReader
from holdfast.runs.flight.record import Dump
from holdfast.runs.flight.restricted_unpickling import RefusedPickleError, load_plain
from holdfast.runs.flight.verdict import hang

DUMPS = Path(__file__).parent / "dumps"
PICKLES = sorted(DUMPS.glob("*/*/pickle/*"))
READER = PlainReader()


def facts(dump: Dump) -> dict[str, Any]:
    """What a dump says, whatever the order of its tables."""
    told = {name: getattr(dump, name) for name in dump.__dataclass_fields__}
    rows = told.pop("entries")
    return told | {
        "groups": [dump.groups[each] for each in rows["group"]],
        "operations": [dump.operations[each] for each in rows["operation"]],
        "rows": {
            name: rows[name].tolist()
            for name in rows.dtype.names
            if name not in ("group", "operation")
        },
    }


@pytest.mark.parametrize("file", PICKLES, ids=lambda file: "-".join(file.parts[-4:]))
def test_pytorchs_own_pickles(file: Path) -> None:
    content = file.read_bytes()
    found = READER.read(content, "x")
    assert found is not None
    assert facts(found) == facts(compact(load_plain(content), "x"))


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10**9), st.integers(2, 6), st.integers(0, 60))
def test_pickles_as_pytorch_would_write_them(seed: int, ranks: int, calls: int) -> None:
    import random

    job = random_job(random.Random(seed), ranks, calls)
    run(job)
    for rank in range(ranks):
        content = Pickler().dumps(dump_of(job, rank))
        found = READER.read(content, "x")
        assert found is not None
        assert facts(found) == facts(compact(load_plain(content), "x"))


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_damage_is_left_to_the_other_or_read_alike(data: st.DataObject) -> None:
    content = bytearray(data.draw(st.sampled_from(PICKLES)).read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place] = data.draw(st.integers(0, 255))
    found = READER.read(bytes(content), "x")
    if found is None:
        return
    try:
        other = compact(load_plain(bytes(content)), "x")
    except (RefusedPickleError, NoDumpError):
        return  # it looks at texts that the compiled reader never needs
    if other.rows_set_aside == 0:
        assert facts(found) == facts(other)


@pytest.mark.parametrize(
    ("written", "damaged"),
    [
        (b"framesq", b"fr\0mesq"),  # an entry without its stack
        (b"versionq\0X\x04\0\0\0", b"versionq\0G\x04\0\0\0"),  # a number for a text
    ],
)
def test_damage_that_leaves_a_sound_pickle_is_read_alike(written: bytes, damaged: bytes) -> None:
    told = 0
    for file in PICKLES:
        content = file.read_bytes().replace(written, damaged, 1)
        found = READER.read(content, "x")
        if found is not None:
            assert facts(found) == facts(compact(load_plain(content), "x"))
            told += damaged in content
    assert told


@given(st.binary(max_size=400))
def test_any_bytes_are_survived(content: bytes) -> None:
    READER.read(b"\x80\x02" + content, "x")


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x02",
        b"\x80\x02(" * 100,
        b"\x80\x02}(" + b"h\x00" * 10 + b"u.",
        b"\x80\x02]e.",
        b"\x80\x02}(K\x01u.",
        b"\x80\x02\x85.",
        b"\x80\x02q\x00.",
        b"\x80\x02]q\x00(K\x01e.",
        b"\x80\x02X\xff\xff\xff\xffa.",
        b"\x80\x02\x8a\xff.",
        b"\x80\x02K",
        b"\x80\x02]r\xff\xff\xff\xff.",
        b"\x80\x02cos\nsystem\n.",
    ],
)
def test_what_is_not_pytorchs_is_left_alone(content: bytes) -> None:
    assert READER.read(content, "x") is None


@pytest.mark.parametrize("protocol", [2, 4])
def test_pickles_of_other_programs_are_read_in_the_ordinary_way(protocol: int) -> None:
    document = load_plain(PICKLES[0].read_bytes())
    assert READER.read(pickle.dumps(document, protocol), "x") is None


def test_many_dumps_go_through_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With few bytes the ordinary reader is quicker; here the border is moved."""
    culprit = write_job(tmp_path, world=16, entries=50)
    (tmp_path / "nccl_trace_rank_3").write_bytes(b"\x80\x02cos\nsystem\n.")
    usual = hang(tmp_path).to_dict()
    monkeypatch.setattr(dumps, "MANY_BYTES", 0)
    assert hang(tmp_path).to_dict() == usual
    assert usual["missing_ranks"] == [culprit]
    assert [Path(each["file"]).name for each in usual["evidence"]["set_aside"]] == [
        "nccl_trace_rank_3"
    ]
