"""Pickles of strangers: nothing is executed, everything plain is read, whatever is broken is refused."""

from __future__ import annotations

import os
import pickle
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import InputError
from holdfast.runs.flight.compact import NoDumpError, compact
from holdfast.runs.flight.dumps import read_dumps
from holdfast.runs.flight.restricted_unpickling import RefusedPickleError, load_plain
from holdfast.runs.flight.verdict import hang

DUMPS = Path(__file__).parent / "dumps"
GOOD = DUMPS / "gloo" / "never_enters" / "pickle"


class Touch:
    """Its pickle creates a file when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
    max_leaves=20,
)


@given(PLAIN, st.integers(2, 5))
def test_plain_data_comes_back(value: Any, protocol: int) -> None:
    assert load_plain(pickle.dumps(value, protocol)) == value


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_give_data_or_a_refusal(content: bytes) -> None:
    with suppress(RefusedPickleError):
        load_plain(b"\x80\x02" + content)


@given(st.data())
def test_a_cut_pickle_is_refused(data: st.DataObject) -> None:
    content = (GOOD / "nccl_trace_rank_0").read_bytes()
    cut = data.draw(st.integers(1, len(content) - 1))
    with pytest.raises(RefusedPickleError):
        load_plain(content[:cut])


@pytest.mark.parametrize("protocol", range(2, 6))
def test_a_pickle_that_would_create_a_folder_creates_nothing(tmp_path: Path, protocol: int) -> None:
    target = tmp_path / "created"
    content = pickle.dumps({"version": "2.10", "entries": [Touch(target)]}, protocol)
    pickle.loads(content)  # the pickle works: an ordinary reader falls for it
    target.rmdir()
    with pytest.raises(RefusedPickleError, match="mkdir"):
        load_plain(content)
    hostile = tmp_path / "dumps" / "rank_0"
    hostile.parent.mkdir()
    hostile.write_bytes(content)
    with pytest.raises(InputError, match="none of 1 files"):
        hang(hostile.parent)
    assert not target.exists()


OPCODES = {
    "global": b"\x80\x02cos\nsystem\nX\x02\x00\x00\x00ls\x85R.",
    "stack global": b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x02ls\x85R.",
    "instance": b"\x80\x02(X\x02\x00\x00\x00lsios\nsystem\n.",
    "object": b"\x80\x02(cos\nsystem\nX\x02\x00\x00\x00lso.",
    "new object": b"\x80\x02cbuiltins\nlist\n)\x81.",
    "extension": b"\x80\x02\x82\x01.",
    "extension of four bytes": b"\x80\x02\x84\x01\x00\x00\x00.",
    "persistent": b"\x80\x02K\x01Q.",
    "persistent text": b"\x80\x02Pname\n.",
    "call of data": b"\x80\x02K\x01)R.",
    "state of a list": b"\x80\x02]}X\x01\x00\x00\x00aK\x01sb.",
    "out of band": b"\x80\x05\x97.",
    "unknown opcode": b"\x80\x02\xff.",
    "nothing": b"\x80\x02.",
    "no end": b"\x80\x02}",
}


@pytest.mark.parametrize("content", OPCODES.values(), ids=OPCODES.keys())
def test_every_way_to_code_is_refused(content: bytes) -> None:
    with pytest.raises(RefusedPickleError):
        load_plain(content)


def _self_containing() -> dict[str, Any]:
    entries: list[Any] = []
    entries.append(entries)
    document: dict[str, Any] = {"version": "2.10", "entries": entries}
    document["pg_config"] = document
    return document


def _laughing(times: int) -> list[Any]:
    """Few bytes that would be 2**times lists when written out."""
    value: list[Any] = ["ha"]
    for _ in range(times):
        value = [value, value]
    return value


def test_recursive_containers_are_rows_set_aside() -> None:
    dump = compact(load_plain(pickle.dumps(_self_containing())), "x")
    assert dump.rows_set_aside == 1
    assert len(dump.entries) == 0


@pytest.mark.parametrize("field", ["process_group", "state", "record_id", "time_created_ns"])
def test_containers_that_unfold_without_end_do_not_take_the_reader_along(field: str) -> None:
    entry = {
        "profiling_name": "nccl:all_reduce",
        "process_group": ("0", "default_pg"),
        "collective_seq_id": 1,
        "state": "completed",
        field: _laughing(60),
    }
    dump = compact({"version": "2.10", "entries": [entry]}, "x")
    assert dump.rows_set_aside == 1


@pytest.mark.parametrize("document", [[], 3, None, {}, {"version": "2.10"}, {"entries": []}])
def test_other_documents_are_no_dumps(document: Any) -> None:
    with pytest.raises(NoDumpError):
        compact(document, "x")


MEMORY_BOMBS = {
    "memo": b"\x80\x02]r\xff\xff\xff\xff.",
    "byte array": b"\x80\x05\x96" + struct.pack("<Q", 1 << 45) + b"x.",
    "bytes": b"\x80\x05\x8e" + struct.pack("<Q", 1 << 45) + b"x.",
    "frame": b"\x80\x04\x95" + struct.pack("<Q", 1 << 45) + b"N.",
}


def test_bad_files_are_set_aside_and_the_good_ones_judged(tmp_path: Path) -> None:
    for rank in (0, 1, 3):
        content = (GOOD / f"nccl_trace_rank_{rank}").read_bytes()
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(content)
    bad = {
        "rank_2": b"",
        "rank_20": (GOOD / "nccl_trace_rank_2").read_bytes()[:-200],
        "rank_21": b"\x80\x02cos\nsystem\nX\x02\x00\x00\x00ls\x85R.",
        "rank_22": b'{"version": "2.10", "entries": [',
        "rank_23": b"[" * 100_000,
        "rank_24": b'{"a":' * 100_000,
        "rank_25": b"\x1f\x8bnot gzip",
        "rank_27": b"hello",
        "rank_28": b'{"mine": 1}',
        "rank_26": b'{"version": "2.10", "entries": 3}',
        **{f"rank_{30 + n}": bomb for n, bomb in enumerate(MEMORY_BOMBS.values())},
    }
    for name, content in bad.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "notes").write_text("something else")
    (tmp_path / "watch.json").write_text('{"mine": 1}')
    found = hang(tmp_path, processes=1)
    assert found.verdict == "missing_ranks"
    assert found.missing_ranks == ()
    assert found.unknown_ranks == (2,)
    assert {Path(each.file).name for each in found.evidence.set_aside} == set(bad)
    assert all(each.reason for each in found.evidence.set_aside)


def test_a_file_that_ends_its_reader_is_blamed_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The processor time limit ends the process; the other files go to a new one."""
    for rank in (0, 1, 2, 3):
        content = (GOOD / f"nccl_trace_rank_{rank}").read_bytes()
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(content)
    # A stand-in for a reader: it dies at rank 1.
    stand_in = tmp_path / "code" / "holdfast_stand_in.py"
    stand_in.parent.mkdir()
    stand_in.write_text(
        "import os, sys\n"
        "from holdfast.runs.flight import reading_process as real\n"
        "answer = real._answer\n"
        "def dying(path, *rest):\n"
        "    if path.name.endswith('rank_1'):\n"
        "        os.kill(os.getpid(), 9)\n"
        "    answer(path, *rest)\n"
        "real._answer = dying\n"
        "real.main()\n"
    )
    monkeypatch.setattr("holdfast.runs.flight.dumps.READER", [str(stand_in)])
    found = read_dumps(sorted(tmp_path.glob("nccl*")), processes=1)
    assert sorted(found.by_rank) == [0, 2, 3]
    assert [Path(each.file).name for each in found.set_aside] == ["nccl_trace_rank_1"]
    assert "memory or time" in found.set_aside[0].reason
