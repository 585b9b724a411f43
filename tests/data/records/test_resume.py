"""Runs that stop in mid-epoch and go on: by the same workers batch for batch, by others exactly once."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections import Counter
from itertools import islice
from pathlib import Path

import made
import pytest
from refusals import refused

torch = pytest.importorskip("torch")

from range_server import RangeServer  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

from holdfast.data.records.loading.dataset import Dataset  # noqa: E402
from holdfast.data.records.loading.loader import Loader  # noqa: E402
from holdfast.data.records.loading.ordering import Deal, Leg  # noqa: E402
from holdfast.data.records.loading.resuming import merge_states  # noqa: E402
from holdfast.errors import InputError  # noqa: E402

IMAGES = 61
OPTIONS = {"decode": False, "window": 16, "seed": 9, "columns": []}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("resume") / "data"
    made.dataset(folder, IMAGES, record_size=5)
    return folder


def ids(items: list) -> list[int]:
    return [int(item["id"][:4]) for item in items]


def loader_of(folder, *, rank=0, ranks=1, workers=0, batch=4, drop_last=False, **options) -> Loader:
    data = Dataset(folder, rank=rank, ranks=ranks, **(OPTIONS | options))
    more = {"multiprocessing_context": "fork"} if workers else {}
    return Loader(data, batch, workers, drop_last=drop_last, collate_fn=ids, **more)


def flat(batches) -> list[int]:
    return [image for batch in batches for image in batch]


def through_json(state: dict) -> dict:
    return json.loads(json.dumps(state))


# --- the same again --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ranks", "workers"),
    [(1, 0), *(pytest.param(*each, marks=pytest.mark.full) for each in ((1, 2), (2, 0))), (2, 2)],
)
def test_the_same_loader_goes_on_batch_for_batch(folder, workers, ranks):
    for rank in range(ranks):
        whole = list(loader_of(folder, rank=rank, ranks=ranks, workers=workers))
        assert len(whole) == len(loader_of(folder, rank=rank, ranks=ranks, workers=workers))
        # Each loader with workers starts processes: of the stops, each kind of loader makes two then.
        stops = (0, 1, 4, len(whole))
        for stop in stops[ranks - 1 :: 2] if workers else stops:
            stopped = loader_of(folder, rank=rank, ranks=ranks, workers=workers)
            before = list(islice(stopped, stop))
            state = through_json(stopped.state_dict())
            resumed = loader_of(folder, rank=rank, ranks=ranks, workers=workers)
            resumed.load_state_dict(state)
            assert before + list(resumed) == whole
            assert resumed.dataset.epoch == 1


def test_a_loader_may_stop_and_go_on_many_times(folder):
    whole = list(loader_of(folder, workers=2))
    state, found = None, []
    for _ in range(20):
        loader = loader_of(folder, workers=2)
        if state:
            loader.load_state_dict(state)
        found += islice(loader, 3)
        state = loader.state_dict()
        if state["epoch"]:
            break
        assert len(state["legs"]) == 1, "a leg that goes on is one leg"
        if len(found) == len(whole):
            break
    assert found == whole


def test_the_state_counts_what_was_delivered_not_what_workers_have_ready(folder):
    loader = loader_of(folder, workers=2)
    batches = iter(loader)
    for delivered in range(1, 6):
        next(batches)
        assert loader.state_dict()["legs"][0]["delivered"] == [delivered]
    batches.close()


def test_epochs_follow_one_another_and_a_resumed_one_too(folder):
    loader = loader_of(folder)
    epochs = [list(loader) for _ in range(3)]
    assert len({str(epoch) for epoch in epochs}) == 3
    assert all(sorted(flat(epoch)) == list(range(IMAGES)) for epoch in epochs)
    second = loader_of(folder)
    second.set_epoch(1)
    head = list(islice(second, 5))
    resumed = loader_of(folder)
    resumed.load_state_dict(second.state_dict())
    resumed.set_epoch(1)  # as a training loop does for each epoch: it is the epoch of the state
    assert head + list(resumed) == epochs[1]
    assert list(resumed) == epochs[2]


def test_workers_that_persist_resume_and_forget(folder):
    def persistent():
        data = Dataset(folder, **OPTIONS)
        return Loader(
            data, 4, 2, collate_fn=ids, persistent_workers=True, multiprocessing_context="fork"
        )

    whole = persistent()
    epochs = [list(whole) for _ in range(2)]
    loader = persistent()
    list(islice(loader, 3))
    state = loader.state_dict()
    loader.load_state_dict(state)  # while its workers live
    assert list(loader) == epochs[0][3:]
    loader.set_epoch(0)
    assert list(loader) == epochs[0], "no worker goes on with the legs a second time"
    assert list(loader) == epochs[1]
    loader.set_epoch(0)
    assert list(loader) == epochs[0], "the legs belong to the run that was resumed"


def test_a_break_begins_the_epoch_anew(folder):
    loader = loader_of(folder)
    first = list(islice(loader, 3))
    assert list(islice(loader, 3)) == first


# --- others go on ----------------------------------------------------------------------------------


def run(folder, layouts: list[tuple[int, int, int, int]], **options) -> tuple[Counter, list[dict]]:
    """Legs of (ranks, workers, batch, batches each rank delivers): what was seen, and the states after."""
    seen, state, states = Counter(), None, []
    for ranks, workers, batch, stop in layouts:
        after = []
        for rank in range(ranks):
            loader = loader_of(
                folder, rank=rank, ranks=ranks, workers=workers, batch=batch, **options
            )
            if state:
                loader.load_state_dict(state)
            for one in islice(loader, stop):
                seen.update(one)
            after.append(loader.state_dict())
        assert len({str(one | {"rank": 0}) for one in after}) == 1, "any rank's state will do"
        state = through_json(after[-1])
        states.append(state)
    return seen, states


LAYOUTS = {
    "more ranks": [(1, 0, 4, 5), (3, 0, 4, 99)],
    "fewer ranks": [(4, 0, 3, 2), (2, 0, 3, 99)],
    "workers come": [(2, 0, 4, 3), (2, 2, 4, 99)],
    "workers go": [(2, 2, 4, 3), (2, 0, 4, 99)],
    "two by two to three by one": [(2, 2, 4, 3), (3, 1, 4, 99)],
    "another batch": [(2, 2, 4, 2), (2, 2, 7, 99)],
    "four legs": [(2, 2, 4, 1), (3, 0, 2, 2), (1, 2, 5, 3), (4, 0, 3, 99)],
    "nothing was delivered": [(2, 0, 4, 0), (3, 0, 4, 99)],
    "all was delivered": [(2, 0, 4, 8), (3, 0, 4, 99)],
}


@pytest.mark.quick(3)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_whoever_goes_on_each_image_is_seen_once(folder, layout):
    seen, _ = run(folder, LAYOUTS[layout])
    assert seen == Counter(range(IMAGES))


def test_padding_repeats_fewer_images_than_there_are_ranks_in_each_leg(folder):
    seen, _ = run(folder, LAYOUTS["two by two to three by one"], uneven="pad")
    assert set(seen) == set(range(IMAGES))
    assert sum(seen.values()) - IMAGES <= 1 + 2


def test_dropping_leaves_out_fewer_images_than_there_are_ranks(folder):
    seen, _ = run(folder, LAYOUTS["fewer ranks"], uneven="drop")
    assert set(seen.values()) == {1}
    assert IMAGES - len(seen) < 2


def test_ranks_get_equally_many_batches_though_no_image_is_repeated(folder):
    # 61 images on 3 ranks are 21 + 20 + 20: in batches of 20 two ranks would have one batch less.
    loaders = [loader_of(folder, rank=rank, ranks=3, batch=20) for rank in range(3)]
    batches = [list(loader) for loader in loaders]
    assert [len(one) for one in batches] == [2, 2, 2] == [len(loader) for loader in loaders]
    assert sorted(flat(map(flat, batches))) == list(range(IMAGES))


def test_the_last_batch_may_be_left_out(folder):
    loader = loader_of(folder, batch=8, drop_last=True, workers=2)
    assert [len(batch) for batch in loader] == [8] * 7 == [8] * len(loader)


def test_ranks_out_of_step_merge_their_states(folder):
    delivered, states, seen = (2, 5, 1), [], Counter()
    for rank, stop in enumerate(delivered):
        loader = loader_of(folder, rank=rank, ranks=3)
        for batch in islice(loader, stop):
            seen.update(batch)
        states.append(loader.state_dict())
    merged = merge_states([states[2], states[0], states[1]])
    assert merged["legs"][-1]["delivered"] == list(delivered)
    for rank in range(2):
        loader = loader_of(folder, rank=rank, ranks=2)
        loader.load_state_dict(merged)
        seen.update(flat(loader))
    assert seen == Counter(range(IMAGES))


def test_a_rank_that_has_not_begun_merges_too(folder):
    states = []
    for rank, stop in enumerate((3, 0)):
        loader = loader_of(folder, rank=rank, ranks=2)
        list(islice(loader, stop))
        states.append(loader.state_dict())
    assert merge_states(states)["legs"][-1]["delivered"] == [3, 0]
    untouched = [loader_of(folder, rank=rank, ranks=2).state_dict() for rank in range(2)]
    assert merge_states(untouched)["legs"] == []


@pytest.mark.parametrize(
    "change",
    [
        lambda states: states[:1],
        lambda states: [states[0], states[0]],
        lambda states: [states[0], states[1] | {"epoch": 3}],
        lambda states: [states[0], states[1] | {"legs": [states[1]["legs"][0] | {"batch": 5}]}],
    ],
)
def test_states_that_do_not_belong_together_are_not_merged(folder, change):
    states = []
    for rank in range(2):
        loader = loader_of(folder, rank=rank, ranks=2)
        list(islice(loader, 2))
        states.append(loader.state_dict())
    assert merge_states(states)["legs"][-1]["delivered"] == [2, 2]
    with refused("conflict"):
        merge_states(change(states))


# --- without a loader ------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [0, 2])
def test_a_dataset_iterated_over_has_a_state_too(folder, threads):
    whole = [item["id"] for item in Dataset(folder, **OPTIONS)]
    for stop in (0, 1, 7, 60, 61):
        data = Dataset(folder, threads=threads, **OPTIONS)
        head = [item["id"] for item in islice(data, stop)]
        resumed = Dataset(folder, threads=threads, **OPTIONS)
        resumed.load_state_dict(through_json(data.state_dict()))
        assert head + [item["id"] for item in resumed] == whole
        assert resumed.epoch == 1
        assert resumed.state_dict()["legs"] == []


def test_what_damage_left_out_counts_as_seen(tmp_path):
    folder = tmp_path / "data"
    made.dataset(folder, 12, record_size=3)
    sorted(folder.glob("records-*/*.pcr"))[1].write_bytes(b"")  # images 3, 4, 5
    options = {**OPTIONS, "on_fault": "skip", "max_damaged": 0.5}
    data = Dataset(folder, **options)
    whole = [item["id"] for item in data]
    assert len(whole) == 9
    for stop in range(10):
        data = Dataset(folder, **options)
        head = [item["id"] for item in islice(data, stop)]
        resumed = Dataset(folder, **options)
        resumed.load_state_dict(data.state_dict())
        assert head + [item["id"] for item in resumed] == whole
    batches = list(loader_of(folder, batch=3, on_fault="skip", max_damaged=1, shuffle=False))
    assert batches == [[0, 1, 2], [6, 7, 8], [9, 10, 11]], "an empty batch is passed over"


def test_a_plain_dataloader_resumes_from_a_dataset(folder):
    data = Dataset(folder, **OPTIONS)
    head = ids(list(islice(data, 20)))
    resumed = Dataset(folder, **OPTIONS)
    resumed.load_state_dict(data.state_dict())
    tail = DataLoader(resumed, batch_size=None, num_workers=2, multiprocessing_context="fork")
    assert Counter(head + ids(list(tail))) == Counter(range(IMAGES))


def test_a_plain_dataloader_deals_an_epoch_to_its_workers(folder):
    data = Dataset(folder, **OPTIONS)
    loader = DataLoader(
        data, batch_size=4, num_workers=2, collate_fn=ids, multiprocessing_context="fork"
    )
    assert Counter(flat(loader)) == Counter(range(IMAGES))
    assert data.epoch == 0, "workers cannot know when the consumer is done"


# --- ranks of torch.distributed --------------------------------------------------------------------


def test_a_dataset_knows_its_rank_in_spawned_workers_too(folder, monkeypatch):
    place = "holdfast.data.records.loading.place.distributed"
    monkeypatch.setattr(f"{place}.is_initialized", lambda: True)
    monkeypatch.setattr(f"{place}.get_rank", lambda: 2)
    monkeypatch.setattr(f"{place}.get_world_size", lambda: 3)
    data = Dataset(folder, **OPTIONS)
    assert data.place == (2, 3)
    sent = pickle.dumps(data)
    monkeypatch.undo()
    assert data.place == (0, 1)
    there = pickle.loads(sent)
    assert there.place == (2, 3)
    assert ids(list(there)) == ids(list(Dataset(folder, rank=2, ranks=3, **OPTIONS)))


@pytest.mark.full
def test_ranks_are_those_of_torch_distributed(folder, tmp_path):
    """Two processes that know of one another by gloo stop in mid-epoch; three others go on."""
    script = Path(__file__).with_name("loading_rank.py")

    def start(ranks: int, meeting: Path, state: str) -> list[dict]:
        running = [
            subprocess.Popen(
                [sys.executable, "-W", "error", script, str(rank), str(ranks), meeting, folder],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
            )
            for rank in range(ranks)
        ]
        for one in running:
            one.stdin.write(state)
            one.stdin.close()
        told = [json.loads(one.stdout.read()) for one in running]
        for one in running:
            one.stdout.close()
        assert [one.wait() for one in running] == [0] * ranks
        return told

    first = start(2, tmp_path / "first", "")
    assert first[0]["states"] == first[1]["states"] is not None
    second = start(3, tmp_path / "second", json.dumps(first[1]["state"]))
    seen = Counter(image for one in first + second for image in one["seen"])
    assert seen == Counter(range(IMAGES))


# --- other starts of workers -----------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize("start", ["spawn", "forkserver"])
def test_workers_may_be_started_anew(folder, start):
    data = Dataset(folder, rank=1, ranks=2, **OPTIONS)
    expected = list(loader_of(folder, rank=1, ranks=2, workers=2))
    loader = Loader(data, 4, 2, collate_fn=ids, multiprocessing_context=start)
    assert list(loader) == expected
    assert data.traffic.images == sum(map(len, expected))


@pytest.mark.full
def test_workers_read_a_web_server_by_default(folder):
    """A forked worker could not: the loader starts them another way by itself."""
    with RangeServer(folder) as server:
        data = Dataset(server.url, **OPTIONS)
        loader = Loader(data, 4, 2, collate_fn=ids)
        assert loader.multiprocessing_context.get_start_method() == "forkserver"
        assert Counter(flat(loader)) == Counter(range(IMAGES))
        assert data.traffic.requests >= 13
        data.records.close()


# --- what is refused -------------------------------------------------------------------------------


def test_a_state_of_another_order_is_refused(folder, tmp_path):
    state = Dataset(folder, **OPTIONS).state_dict()
    made.dataset(tmp_path / "other", 20, record_size=5)
    for other in (
        Dataset(tmp_path / "other", **OPTIONS),
        Dataset(folder, **(OPTIONS | {"window": 32})),
        Dataset(folder, **OPTIONS, shuffle=False),
    ):
        with refused("conflict"):
            other.load_state_dict(state)


@pytest.mark.parametrize(
    "change", [{"version": 2}, {"legs": 3}, {"legs": [{}]}, {"epoch": "x"}, {"seed": None}]
)
def test_a_state_that_is_none_is_refused(folder, change):
    data = Dataset(folder, **OPTIONS)
    with pytest.raises(InputError):
        data.load_state_dict(data.state_dict() | change)
    with pytest.raises(InputError):
        data.load_state_dict({})


def test_the_seed_is_that_of_the_state(folder):
    data = Dataset(folder, **OPTIONS)
    head = ids(list(islice(data, 30)))
    other = Dataset(folder, **(OPTIONS | {"seed": 1}))
    other.load_state_dict(data.state_dict())
    assert head + ids(list(other)) == ids(list(Dataset(folder, **OPTIONS)))


@pytest.mark.parametrize("option", ["shuffle", "sampler", "batch_sampler"])
def test_the_order_is_not_for_the_loader_to_change(folder, option):
    with refused("unsupported"):
        Loader(Dataset(folder, **OPTIONS), 4, **{option: [1]})


def test_a_state_is_small(folder):
    leg = Leg(Deal(ranks=512, workers=8, batch=64), (1234,) * 512)
    assert len(json.dumps(leg.to_dict())) < 5000


def test_ranks_that_resumed_and_delivered_nothing_merge(folder):
    first = Loader(Dataset(folder, rank=0, ranks=3), 2)
    next(iter(first))
    (again,) = [Loader(Dataset(folder, rank=0, ranks=1), 2)]
    again.load_state_dict(first.state_dict())
    state = again.state_dict()
    assert merge_states([state]) == state
    with refused("conflict"):
        merge_states([first.state_dict()])
