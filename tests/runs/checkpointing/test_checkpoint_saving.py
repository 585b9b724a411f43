"""Saving and loading with torch in one process."""

from __future__ import annotations

import errno
import fcntl
import json
import pickle
import resource
import subprocess
import sys
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import InputError, MissingExtraError, StoreError
from holdfast.runs import Checkpoints, RunRecorder
from holdfast.runs.checkpointing import publication
from holdfast.runs.checkpointing.folder import look, name_of, verify_all
from holdfast.runs.checkpointing.manifest import MANIFEST

torch = pytest.importorskip("torch")


def trained(steps: int) -> tuple[Any, Any]:
    """A small model and its optimizer after some steps; the same every time."""
    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for _ in range(steps):
        step(model, optimizer)
    return model, optimizer


def step(model: Any, optimizer: Any) -> None:
    optimizer.zero_grad()
    model(torch.randn(4, 8)).square().mean().backward()
    optimizer.step()


def state_of(model: Any, optimizer: Any) -> dict[str, Any]:
    from torch.distributed.checkpoint.state_dict import get_state_dict

    model_state, optimizer_state = get_state_dict(model, optimizer)
    return {"model": model_state, "optimizer": optimizer_state, "rng": torch.get_rng_state()}


def resume(model: Any, optimizer: Any, state: dict[str, Any]) -> None:
    from torch.distributed.checkpoint.state_dict import set_state_dict

    set_state_dict(
        model,
        optimizer,
        model_state_dict=state["model"],
        optim_state_dict=state["optimizer"],
    )
    torch.set_rng_state(state["rng"])


def values(model: Any) -> bytes:
    return b"".join(part.numpy().tobytes() for part in model.state_dict().values())


@contextmanager
def held_back(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """The second stage of saves waits for the event."""
    from holdfast.runs.checkpointing import writing

    go = threading.Event()
    write_data = writing.PublishingWriter.write_data

    def waiting(self: Any, plan: Any, planner: Any) -> Any:
        assert go.wait(60)
        return write_data(self, plan, planner)

    monkeypatch.setattr(writing.PublishingWriter, "write_data", waiting)
    try:
        yield go
    finally:
        go.set()


# --- What is saved is what is loaded ---------------------------------------------------------------


def test_resumed_training_is_bit_identical(tmp_path: Path) -> None:
    straight, _ = trained(20)
    model, optimizer = trained(10)
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(10, state_of(model, optimizer))

    model, optimizer = trained(0)
    state = state_of(model, optimizer)
    with Checkpoints(tmp_path) as checkpoints:
        assert checkpoints.latest_complete() == 10
        assert checkpoints.load(state) == 10
    resume(model, optimizer, state)
    for _ in range(10):
        step(model, optimizer)
    assert values(model) == values(straight)


def test_every_kind_of_value_comes_back(tmp_path: Path) -> None:
    saved = {
        "tensors": {
            "float": torch.randn(3, 4),
            "bfloat16": torch.randn(5).bfloat16(),
            "scalar": torch.tensor(2.5),
            "empty": torch.empty(0, 3),
            "view": torch.arange(12).reshape(3, 4)[:, 1:3],
            "transposed": torch.arange(6.0).reshape(2, 3).T,
            "bool": torch.tensor([True, False]),
            "parameter": torch.nn.Parameter(torch.randn(2)),
        },
        "list of tensors": [torch.ones(2), {"inside": torch.zeros(1)}],
        "pair": (torch.ones(2), "text"),
        "numbers": {0: 1, 1: 2.5, "complex": 1 + 2j, "large": 1 << 80, "flag": True},
        "text": "ä",
        "bytes": b"\0\1",
        "nothing": None,
        "nested": [1, [2, (3, "x")], {"a": None}],
        "empty": {},
        "dtype": torch.bfloat16,
    }
    fresh = {
        "tensors": {key: torch.zeros_like(part) for key, part in saved["tensors"].items()},
        "list of tensors": [torch.zeros(2), {"inside": torch.ones(1)}],
        "pair": (torch.zeros(2), ""),
        "numbers": dict.fromkeys(saved["numbers"], 0),
        "text": "",
        "bytes": b"",
        "nothing": 1,
        "nested": [0, [], {"a": 0}],
        "empty": {},
        "dtype": None,
    }
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(0, saved)
        assert checkpoints.load(fresh) == 0
    assert_same(fresh, saved)


def assert_same(found: Any, expected: Any) -> None:
    assert type(found) is type(expected) or isinstance(expected, torch.nn.Parameter)
    if isinstance(expected, torch.Tensor):
        assert found.dtype == expected.dtype
        assert torch.equal(found, expected)
    elif isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key, value in expected.items():
            assert_same(found[key], value)
    elif isinstance(expected, (list, tuple)):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    else:
        assert found == expected


def test_changes_after_save_returns_are_not_in_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = {"w": torch.full((100,), 1.0), "n": 1, "list": [1]}
    with Checkpoints(tmp_path) as checkpoints:
        for number in (1, 2):  # the second save uses the memory of the first
            with held_back(monkeypatch) as go:
                state["w"].fill_(float(number))
                checkpoints.save(number, state)
                state["w"].fill_(-1.0)
                state["list"].append(0)
                assert checkpoints.latest_complete() == (number - 1 or None)
                go.set()
                checkpoints.wait()
            loaded = {"w": torch.zeros(100), "n": 0, "list": []}
            assert checkpoints.load(loaded) == number
            assert torch.equal(loaded["w"], torch.full((100,), float(number)))
            assert loaded["list"] == [1] + [0] * (number - 1)


def test_a_state_that_changes_its_shape_is_saved_right(tmp_path: Path) -> None:
    with Checkpoints(tmp_path, keep=None) as checkpoints:
        for number, tensor in enumerate(
            [torch.ones(3), torch.ones(4), torch.ones(4).double(), torch.ones(2, 2).T]
        ):
            checkpoints.save(number, {"w": tensor * number})
            loaded = {"w": torch.zeros_like(tensor)}
            checkpoints.load(loaded)
            assert torch.equal(loaded["w"], tensor * number)


def test_objects_with_a_state_dict_are_loaded_through_it(tmp_path: Path) -> None:
    model, _ = trained(3)
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(3, {"model": model})
        other = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
        checkpoints.load({"model": other})
    assert values(other) == values(model)


def test_torch_reads_a_checkpoint_without_holdfast(tmp_path: Path) -> None:
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

    model, _ = trained(1)
    with Checkpoints(tmp_path / "ours") as checkpoints:
        checkpoints.save(1, {"model": model.state_dict()})
    dcp_to_torch_save(tmp_path / "ours" / name_of(1), tmp_path / "plain.pt")
    plain = torch.load(tmp_path / "plain.pt", weights_only=True)
    assert torch.equal(plain["model"]["0.weight"], model[0].weight)


# --- Two stages ------------------------------------------------------------------------------------


class Noted:
    """A recorder that remembers what it was told."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []

    @contextmanager
    def checkpoint(self, number: int) -> Iterator[None]:
        self.events.append(("begin", number))
        yield
        self.events.append(("end", number))

    def published(self, number: int, *, background_s: float, size_bytes: int) -> None:
        assert background_s > 0
        self.events.append(("published", number, size_bytes))


def test_the_training_goes_on_while_a_save_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted = Noted()
    with Checkpoints(tmp_path, recorder=noted) as checkpoints, held_back(monkeypatch) as go:
        checkpoints.save(1, {"w": torch.ones(1000)})
        assert noted.events == [("begin", 1), ("end", 1)]
        assert not look(tmp_path).checkpoints
        assert len(look(tmp_path).unfinished) <= 1
        go.set()
        checkpoints.wait()
        size = look(tmp_path).complete[0].manifest.size_bytes  # type: ignore[union-attr]
        assert noted.events[2:] == [("published", 1, size)]


def test_a_second_save_waits_for_the_first_and_that_counts_as_blocking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted = Noted()
    with Checkpoints(tmp_path, recorder=noted) as checkpoints, held_back(monkeypatch) as go:
        checkpoints.save(1, {"w": torch.ones(10)})
        waits = threading.Event()
        wait = checkpoints.wait

        def waiting() -> None:
            waits.set()
            wait()

        monkeypatch.setattr(checkpoints, "wait", waiting)
        second = threading.Thread(target=checkpoints.save, args=(2, {"w": torch.ones(10)}))
        second.start()
        assert waits.wait(60)
        assert noted.events == [("begin", 1), ("end", 1), ("begin", 2)]
        go.set()
        second.join()
    kinds = [event[:2] for event in noted.events]
    assert kinds[:4] == [("begin", 1), ("end", 1), ("begin", 2), ("published", 1)]
    # The second is written by another thread, which may be done before the caller has noted its end.
    assert sorted(kinds[4:]) == [("end", 2), ("published", 2)]


def test_the_recorder_of_the_house_is_told(tmp_path: Path) -> None:
    with (
        RunRecorder(tmp_path / "events", "run", rank=0, world_size=1) as recorder,
        Checkpoints(tmp_path / "checkpoints", recorder=recorder) as checkpoints,
    ):
        recorder.ready()
        checkpoints.save(5, {"w": torch.ones(10)})
    (file,) = (tmp_path / "events" / "run").glob("*.jsonl")
    events = [json.loads(line) for line in file.read_text().splitlines()]
    by_kind = {event["event"]: event for event in events}
    assert by_kind["begin"]["what"] == "checkpoint"
    assert by_kind["checkpoint"]["step"] == by_kind["published"]["step"] == 5
    assert by_kind["published"]["background_s"] > 0
    size = look(tmp_path / "checkpoints").complete[0].manifest.size_bytes  # type: ignore[union-attr]
    assert by_kind["published"]["bytes"] == size


def test_a_program_that_ends_without_waiting_publishes_its_last_save(tmp_path: Path) -> None:
    code = (
        "import sys, warnings; warnings.simplefilter('error')\n"
        "import torch\n"
        "from holdfast.runs import Checkpoints\n"
        "Checkpoints(sys.argv[1]).save(3, {'w': torch.ones(1000)})\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert [each.step for each in verify_all(look(tmp_path)).complete] == [3]


# --- Failures of the second stage ------------------------------------------------------------------


def test_a_full_disk_stops_no_training_and_is_told_at_the_next_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from holdfast.runs.checkpointing import writing

    state = {"w": torch.ones(1000)}
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, state)
    checkpoints.wait()

    def full(self: Any, data: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device", str(self._path))

    with monkeypatch.context() as patched:
        patched.setattr(writing.SummedFile, "write", full)
        checkpoints.save(2, state)
        with pytest.raises(
            StoreError, match="the checkpoint of step 2 could not be written"
        ) as met:
            checkpoints.save(3, state)
    assert "No space left on device" in str(met.value)
    assert "free space on this file system" in str(met.value)
    assert "step 2 could not be written" in caplog.text, "in the log at once"
    assert [each.step for each in verify_all(look(tmp_path)).complete] == [1]
    assert look(tmp_path).unfinished == (), "the room that it took is free again"
    checkpoints.save(4, state)
    checkpoints.close()
    assert checkpoints.latest_complete() == 4


@pytest.mark.full
def test_a_real_limit_of_the_system(tmp_path: Path) -> None:
    """RLIMIT_FSIZE: write(2) itself refuses, in the middle of a file."""
    code = (
        "import resource, signal, sys, torch\n"
        "from holdfast.runs import Checkpoints\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "checkpoints = Checkpoints(sys.argv[1])\n"
        "checkpoints.save(1, {'w': torch.ones(100)})\n"
        "checkpoints.save(2, {'w': torch.ones(1 << 20)})\n"
        "checkpoints.close()\n"
    )

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        capture_output=True,
        text=True,
        preexec_fn=limit,
    )
    assert done.returncode == 1
    assert "step 2 could not be written" in done.stderr
    assert "File too large" in done.stderr
    assert "ulimit -f" in done.stderr
    assert [each.step for each in verify_all(look(tmp_path)).complete] == [1]
    assert not look(tmp_path).unfinished


def test_an_error_while_leaving_does_not_hide_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*given: Any) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(publication.Draft, "publish", refuse)

    def training() -> None:
        with Checkpoints(tmp_path) as checkpoints:
            checkpoints.save(1, {"w": torch.ones(1)})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        training()
    assert "Input/output error" in caplog.text
    with pytest.raises(StoreError, match="Input/output error"), Checkpoints(tmp_path) as again:
        again.save(1, {"w": torch.ones(1)})


def test_a_recorder_that_fails_loses_no_checkpoint(tmp_path: Path) -> None:
    class Broken(Noted):
        def published(self, number: int, *, background_s: float, size_bytes: int) -> None:
            raise RuntimeError("no room for events")

    checkpoints = Checkpoints(tmp_path, recorder=Broken())
    checkpoints.save(1, {"w": torch.ones(1)})
    with pytest.raises(StoreError, match="no room for events"):
        checkpoints.close()
    assert checkpoints.latest_complete() == 1


# --- Choosing, retention, removal ------------------------------------------------------------------


def test_the_last_ones_stay_and_every_so_manyth(tmp_path: Path) -> None:
    with Checkpoints(tmp_path, keep=2, keep_every=4) as checkpoints:
        for number in range(1, 10):
            checkpoints.save(number, {"w": torch.full((2,), float(number))})
    assert [each.step for each in look(tmp_path).complete] == [4, 8, 9]


def test_after_a_return_the_branch_published_last_counts(tmp_path: Path) -> None:
    state = {"w": torch.zeros(2)}
    with Checkpoints(tmp_path, keep=None) as checkpoints:
        for number in (10, 20, 30):
            checkpoints.save(number, {"w": torch.full((2,), float(number))})
        assert checkpoints.load(state, step=10) == 10
        assert state["w"][0] == 10
        checkpoints.save(20, {"w": torch.full((2,), -20.0)})
        checkpoints.wait()
        assert checkpoints.latest_complete() == 20
        assert checkpoints.load(state) == 20
        assert state["w"][0] == -20
        assert checkpoints.load(state, step=30) == 30


def test_removing(tmp_path: Path) -> None:
    with Checkpoints(tmp_path) as checkpoints:
        for number in (1, 2):
            checkpoints.save(number, {"w": torch.zeros(2)})
        checkpoints.wait()
        checkpoints.remove(2)
        assert checkpoints.latest_complete() == 1
        with pytest.raises(InputError, match="step 1 has the last complete"):
            checkpoints.remove(1)
        with pytest.raises(InputError, match="no checkpoint of step 2"):
            checkpoints.remove(2)
    assert not look(tmp_path).unfinished


def test_a_checkpoint_that_is_being_loaded_survives_retention(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from holdfast.runs.checkpointing import loading

    with Checkpoints(tmp_path) as first:
        first.save(1, {"w": torch.ones(2)})
    read = loading.Loading._read
    seen: list[list[int]] = []

    def meanwhile(self: Any, *given: Any, **named: Any) -> None:
        with Checkpoints(tmp_path, keep=1) as trainer:
            trainer.save(2, {"w": torch.ones(2)})
        seen.append([each.step for each in look(tmp_path).complete])
        read(self, *given, **named)

    monkeypatch.setattr(loading.Loading, "_read", meanwhile)
    state = {"w": torch.zeros(2)}
    assert Checkpoints(tmp_path).load(state) == 1
    assert seen == [[1, 2]]
    assert state["w"][0] == 1


# --- Damage and bad input --------------------------------------------------------------------------


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_a_damaged_checkpoint_is_passed_over_with_a_remark(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    state = {"w": torch.zeros(100)}
    with Checkpoints(tmp_path) as checkpoints:
        for number in (1, 2, 3):
            checkpoints.save(number, {"w": torch.full((100,), float(number))})
        checkpoints.wait()
        (tmp_path / name_of(3) / MANIFEST).unlink()
        damage(tmp_path / name_of(2) / "__0_0.distcp")
        assert checkpoints.load(state) == 1
        assert state["w"][0] == 1
        assert f"{name_of(3)} is damaged and passed over: {MANIFEST}: missing" in caplog.text
        assert f"{name_of(2)} is damaged and passed over: __0_0.distcp: checksum" in caplog.text
        assert str(*checkpoints.verify(2).damage).startswith("__0_0.distcp: checksum, expected")
        with pytest.raises(StoreError, match="every checkpoint of step 2 is damaged"):
            checkpoints.load(state, step=2)
        damage(tmp_path / name_of(1) / ".metadata")
        with pytest.raises(StoreError, match="every checkpoint is damaged"):
            checkpoints.load(state)


def test_nothing_there_is_no_error_and_no_step_is(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "later")
    assert checkpoints.load({"w": torch.ones(1)}) is None
    assert checkpoints.latest_complete() is None
    assert checkpoints.look().to_dict()["complete"] == 0
    with pytest.raises(InputError, match="no checkpoint of step 3"):
        checkpoints.load({"w": torch.ones(1)}, step=3)


def test_a_newer_checkpoint_is_refused_not_passed_over(tmp_path: Path) -> None:
    state = {"w": torch.ones(2)}
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, state)
        checkpoints.save(2, state)
        checkpoints.wait()
        manifest = tmp_path / name_of(2) / MANIFEST
        text = manifest.read_bytes().replace(b'"format_version": 1', b'"format_version": 9')
        at = text.index(b'": "') + 4
        zeros = text[:at] + b"00000000" + text[at + 8 :]
        manifest.write_bytes(text[:at] + f"{zlib.crc32(zeros):08x}".encode() + text[at + 8 :])
        with pytest.raises(InputError, match="a newer holdfast"):
            checkpoints.load(state)
        assert checkpoints.load(state, step=1) == 1


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"a": 1, "b": {"x": 1}}, "lacks what the state dict asks for(.|\n)*no b.x"),
        ({}, "does not ask for(.|\n)*found: a, b(.|\n)*get_state_dict"),
    ],
)
def test_a_state_dict_that_does_not_fit_is_refused(
    tmp_path: Path, asked: dict[str, Any], message: str
) -> None:
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, {"a": torch.ones(1), "b": 2})
        with pytest.raises(InputError, match=message):
            checkpoints.load(asked)


def test_a_fresh_optimizer_does_not_lose_its_state_silently(tmp_path: Path) -> None:
    _, optimizer = trained(2)
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(2, {"optimizer": optimizer.state_dict()})
        _, fresh = trained(0)
        with pytest.raises(InputError):
            checkpoints.load({"optimizer": fresh.state_dict()})


def test_part_of_a_checkpoint_can_be_asked_for(tmp_path: Path) -> None:
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, {"a": torch.ones(1), "b": 2})
        part = {"a": torch.zeros(1)}
        assert checkpoints.load(part, strict=False) == 1
        assert part["a"][0] == 1


def test_a_tensor_of_another_shape_is_refused(tmp_path: Path) -> None:
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, {"a": torch.ones(3)})
        with pytest.raises(StoreError, match=r"cannot be loaded\n.*found: .*a"):
            checkpoints.load({"a": torch.ones(4)})


class Custom:
    pass


@pytest.mark.parametrize("value", [Custom(), {1, 2}, object])
def test_what_only_code_of_the_file_could_load_is_refused_at_the_first_save(
    tmp_path: Path, value: Any
) -> None:
    checkpoints = Checkpoints(tmp_path)
    with pytest.raises(InputError, match="cannot hold this") as met:
        checkpoints.save(1, {"a": {"b": [1, value]}})
    assert met.value.place == "state_dict['a']['b'][1]"
    checkpoints.close()


def test_a_class_that_the_user_allows_is_saved_and_loaded(tmp_path: Path) -> None:
    state: dict[str, Any] = {"a": Custom()}
    with torch.serialization.safe_globals([Custom]), Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, state)
        state["a"] = None
        checkpoints.load(state)
        assert isinstance(state["a"], Custom)
    with pytest.raises(InputError, match="would run code"):
        checkpoints.load(state)


class Hostile:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.target,))


@pytest.mark.parametrize("where", ["table of contents", "value"])
def test_a_hostile_checkpoint_is_not_run(tmp_path: Path, where: str) -> None:
    """With checksums that agree: whoever can write the files can write the manifest."""
    target = tmp_path / "hacked"
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    draft = publication.Draft(folder, 1, "0" * 16)
    state: dict[str, Any] = {"a": Hostile(target) if where == "value" else 1}
    from torch.distributed.checkpoint import save

    with pytest.warns(UserWarning, match="single process"):
        save(state, checkpoint_id=draft.path)
    if where != "value":
        (draft.path / ".metadata").write_bytes(pickle.dumps(Hostile(target)))
    from holdfast.runs.checkpointing.manifest import WrittenFile, crc32_of_file

    files = [
        WrittenFile(file.name, file.stat().st_size, crc32_of_file(file))
        for file in draft.path.iterdir()
    ]
    draft.publish(files, 1, {})
    with pytest.raises(InputError, match="run"):
        Checkpoints(folder).load({"a": 1})
    assert not target.exists()


def test_two_writers_of_one_folder_are_refused(tmp_path: Path) -> None:
    with Checkpoints(tmp_path) as one:
        one.save(1, {"a": torch.ones(1)})
        two = Checkpoints(tmp_path)
        with pytest.raises(InputError, match="another living process"):
            two.save(2, {"a": torch.ones(1)})
        assert two.load({"a": torch.ones(1)}) in (None, 1), "reading is free"
    two.save(2, {"a": torch.ones(1)})
    two.close()
    assert two.latest_complete() == 2


def test_leftovers_of_the_dead_go_at_the_first_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = tmp_path / ".step-00000003-0123456789abcdef.unfinished"
    left.mkdir()
    (tmp_path / "mine").mkdir()
    with Checkpoints(tmp_path) as checkpoints:
        assert left.exists()
        checkpoints.save(1, {"a": torch.ones(1)})
        assert not left.exists()
    assert look(tmp_path).foreign == ("mine",)

    def no_locks(descriptor: int, kind: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    left.mkdir()
    monkeypatch.setattr(fcntl, "flock", no_locks)
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(2, {"a": torch.ones(1)})
    assert left.exists(), "without locks it may be alive"


@pytest.mark.parametrize("wrong", [{"keep": 0}, {"keep_every": 0}])
def test_impossible_settings_are_refused(tmp_path: Path, wrong: dict[str, int]) -> None:
    with pytest.raises(InputError, match="at least 1"):
        Checkpoints(tmp_path, **wrong)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="from 0 on"):
        Checkpoints(tmp_path).save(-1, {})


def test_without_torch_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.distributed", None)
    with pytest.raises(MissingExtraError, match=r"holdfast\[torch\]"):
        Checkpoints(tmp_path).save(1, {})
    assert Checkpoints(tmp_path).latest_complete() is None


def test_the_folder_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="FileExistsError"):
        Checkpoints(tmp_path / "file").save(1, {"a": torch.ones(1)})
