"""The torch dataset: what it delivers and in which order, what it reads, and what comes of damage."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import made
import numpy as np
import pytest
from refusals import refused

torch = pytest.importorskip("torch")

from range_server import RangeServer  # noqa: E402
from torch.utils.data import DataLoader, SequentialSampler  # noqa: E402

from holdfast.data.records.format.manifest import NAME, Manifest  # noqa: E402
from holdfast.data.records.jpeg.decoding import decode  # noqa: E402
from holdfast.data.records.jpeg.parsing import parse  # noqa: E402
from holdfast.data.records.jpeg.scans import DEFAULT_GROUPS, pieces  # noqa: E402
from holdfast.data.records.loading import streaming  # noqa: E402
from holdfast.data.records.loading.dataset import Dataset  # noqa: E402
from holdfast.data.records.loading.loader import Loader  # noqa: E402
from holdfast.data.records.loading.ordering import epoch_order  # noqa: E402
from holdfast.data.records.loading.traffic import Traffic  # noqa: E402
from holdfast.data.records.reading.caching import Cache  # noqa: E402
from holdfast.data.records.reading.prefixes import Damaged, TooManyDamaged  # noqa: E402
from holdfast.data.records.reading.records import open_records  # noqa: E402
from holdfast.data.records.reading.stores import LocalStore, MissingFile  # noqa: E402
from holdfast.data.records.tuning.mixture import Mixture  # noqa: E402
from holdfast.errors import InputError, StoreError  # noqa: E402

IMAGES, RECORD_SIZE, GROUPS = 37, 4, 5


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """The folder of a dataset, and its images at full fidelity."""
    folder = tmp_path_factory.mktemp("photos") / "data"
    return folder, made.dataset(folder, IMAGES, RECORD_SIZE)


@pytest.fixture
def folder(photos) -> Path:
    return photos[0]


@pytest.fixture
def own(tmp_path, photos) -> Path:
    """A copy of the dataset that a test may damage."""
    folder = tmp_path / "own"
    for file in photos[0].rglob("*"):
        if file.is_file():
            to = folder / file.relative_to(photos[0])
            to.parent.mkdir(parents=True, exist_ok=True)
            to.write_bytes(file.read_bytes())
    return folder


def manifest_of(folder: Path) -> Manifest:
    return Manifest.from_bytes((folder / NAME).read_bytes())


def at_fidelity(image: bytes, fidelity: int) -> bytes:
    """An image cut after some groups of its scans: by the JPEG's own markers, not by any record."""
    return b"".join(pieces(image, parse(image), DEFAULT_GROUPS)[:fidelity]) + b"\xff\xd9"


def numbers(items) -> list[int]:
    return [int(item["id"][:4]) for item in items]


def order(seed: int = 0, epoch: int = 0, window: int = 1024) -> list[int]:
    counts = [RECORD_SIZE] * (IMAGES // RECORD_SIZE) + [IMAGES % RECORD_SIZE]
    return epoch_order(counts, seed=seed, epoch=epoch, window=window).numbers().tolist()


def threads_of_ours() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("records-")]


# --- what is delivered -----------------------------------------------------------------------------


@pytest.mark.parametrize("fidelity", [1, 2, 3, 4, 5, "full"])
def test_without_decoding_an_image_is_cut_at_its_fidelity(photos, fidelity):
    folder, images = photos
    groups = GROUPS if fidelity == "full" else fidelity
    for item in Dataset(folder, fidelity=fidelity, decode=False):
        assert item["image"] == at_fidelity(images[int(item["id"][:4])], groups)


def test_pixels_are_those_of_the_decoder_and_share_their_memory(photos):
    folder, images = photos
    for item in Dataset(folder, fidelity=3):
        pixels = decode(at_fidelity(images[int(item["id"][:4])], 3))
        assert item["image"].dtype == torch.uint8
        assert item["image"].shape == (3, 40, 48)
        assert np.array_equal(item["image"].permute(1, 2, 0).numpy(), pixels)
        assert item["image"].permute(1, 2, 0).is_contiguous(), "no copy was made"


def test_images_are_decoded_small(folder):
    assert {tuple(x["image"].shape) for x in Dataset(folder, at_least=20)} == {(3, 20, 24)}


@pytest.mark.parametrize(
    ("columns", "keys"),
    [
        (None, {"id", "label", "image"}),
        (["label"], {"id", "label", "image"}),
        ([], {"id", "image"}),
    ],
)
def test_items_have_the_columns_that_are_asked_for(folder, columns, keys):
    for item in Dataset(folder, columns=columns, decode=False):
        assert set(item) == keys
        assert item.get("label", int(item["id"][:4]) % 2) == int(item["id"][:4]) % 2


def test_a_transform_is_called_on_the_threads_that_decode(folder):
    seen = set()

    def transform(item):
        seen.add(threading.current_thread().name[:12])
        return item["id"], item["image"].float().mean()

    found = list(Dataset(folder, transform=transform, threads=2))
    assert [name for name, _ in found] == [f"{number:04d}.jpg" for number in order()]
    assert seen == {"records-make"}


def test_an_error_of_a_transform_is_the_users_to_see(folder):
    def transform(item):
        if item["id"] == "0007.jpg":
            raise KeyError("no such crop")
        return item

    for threads in (0, 2):
        data = Dataset(folder, transform=transform, threads=threads, on_fault="skip")
        with pytest.raises(KeyError, match="no such crop"):
            list(data)
        assert not data.faults
    assert not threads_of_ours()


# --- the order -------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [0, 1, 3])
@pytest.mark.parametrize("connections", [1, 8])
@pytest.mark.parametrize("prefetch", [0, 1 << 30])
def test_the_order_is_the_same_for_any_number_of_threads(folder, threads, connections, prefetch):
    data = Dataset(
        folder, seed=3, window=8, threads=threads, connections=connections, prefetch=prefetch
    )
    assert numbers(data) == order(seed=3, window=8)
    assert numbers(data) == order(seed=3, epoch=1, window=8), "the next epoch follows by itself"
    data.set_epoch(0)
    assert numbers(data) == order(seed=3, window=8)


def test_without_shuffling_images_come_as_they_are_stored(folder):
    assert numbers(Dataset(folder, shuffle=False, decode=False)) == list(range(IMAGES))


@pytest.mark.parametrize("uneven", ["keep", "pad", "drop"])
def test_ranks_share_an_epoch(folder, uneven):
    shares = [
        numbers(Dataset(folder, decode=False, rank=rank, ranks=3, uneven=uneven))
        for rank in range(3)
    ]
    lengths = [
        len(Dataset(folder, decode=False, rank=rank, ranks=3, uneven=uneven)) for rank in range(3)
    ]
    assert [len(share) for share in shares] == lengths
    assert sorted(lengths) == {"keep": [12, 12, 13], "pad": [13] * 3, "drop": [12] * 3}[uneven]
    every = order()
    assert all(share == every[every.index(share[0]) :][: len(share)] for share in shares)
    if uneven != "drop":
        assert {number for share in shares for number in share} == set(range(IMAGES))


@pytest.mark.parametrize("prefetch", [0, 12_000])
def test_what_is_read_ahead_is_bounded(folder, prefetch):
    """With windows of one record: that one, and of the next what fits, but always one."""
    ends = manifest_of(folder).ends[:, GROUPS]
    assert 2 * ends.max() < 12_000 < 3 * ends[:-1].min(), "two records fit"
    data = Dataset(
        folder, window=4, shuffle=False, decode=False, prefetch=prefetch, threads=0, columns=[]
    )
    before = data.records.store.bytes_read
    stream = iter(data)
    for image in range(20):
        next(stream)
        read = data.records.store.bytes_read - before
        assert read <= ends[: image // RECORD_SIZE + (3 if prefetch else 2)].sum()
    stream.close()


# --- what is read ----------------------------------------------------------------------------------


@pytest.mark.parametrize("fidelity", [1, 3, 5])
def test_bytes_read_are_the_sum_of_the_prefixes(folder, fidelity):
    """Counted by the server, not by us."""
    manifest = manifest_of(folder)
    with RangeServer(folder) as server:
        data = Dataset(server.url, fidelity=fidelity, decode=False, window=8)
        server.reset()
        assert sorted(numbers(data)) == list(range(IMAGES))
        assert server.bytes == manifest.bytes_at(fidelity) == data.traffic.bytes
        assert server.requests == len(manifest.paths) == data.traffic.requests
        data.records.close()


def test_shards_read_what_they_need_and_windows_across_their_edges_twice(folder):
    manifest, window = manifest_of(folder), 8
    every = order(window=window)
    for ranks in (2, 3):
        for rank in range(ranks):
            data = Dataset(folder, rank=rank, ranks=ranks, window=window, decode=False, fidelity=2)
            share = numbers(data)
            assert share == every[rank * IMAGES // ranks : (rank + 1) * IMAGES // ranks]
            needed = {number // RECORD_SIZE for number in share}
            assert data.traffic.bytes == manifest.ends[sorted(needed), 2].sum()
            assert data.traffic.requests == len(needed)


@pytest.mark.parametrize("by", ["record", "image"])
def test_a_mixture_is_served_and_read_as_it_is_drawn(photos, by):
    folder, images = photos
    mixture = Mixture({1: 2, 2: 1, "full": 1}, by)
    manifest = manifest_of(folder)
    data = Dataset(folder, fidelity=mixture, decode=False, seed=5)
    before = 0.0
    for epoch in range(2):
        homes = np.arange(IMAGES) // RECORD_SIZE
        drawn = mixture.draw(
            homes if by == "record" else np.arange(IMAGES), seed=5, epoch=epoch, groups=GROUPS
        )
        for item in data:
            number = int(item["id"][:4])
            assert item["image"] == at_fidelity(images[number], int(drawn[number]))
        read = sum(
            manifest.ends[record, drawn[homes == record].max()]
            for record in range(len(manifest.paths))
        )
        assert data.traffic.bytes - before == read
        before = data.traffic.bytes
    assert isinstance(data.fidelity, Mixture)


def test_a_fidelity_takes_effect_with_the_next_window(photos):
    folder, images = photos
    data = Dataset(folder, decode=False, shuffle=False, window=4, prefetch=0, fidelity=1)
    found = []
    for item in data:
        found.append(item["image"])
        if len(found) == 10:
            data.set_fidelity(4)
    served = [
        next(g for g in range(1, GROUPS + 1) if at_fidelity(images[n], g) == image)
        for n, image in enumerate(found)
    ]
    assert served[:10] == [1] * 10
    # The present window, and the record that is read ahead of it, had been planned.
    change = served.index(4)
    assert change in (12, 16)
    assert served[change:] == [4] * (IMAGES - change)


def test_workers_that_persist_see_a_fidelity_and_an_epoch(photos):
    folder, images = photos
    data = Dataset(folder, decode=False, fidelity=1, seed=2)
    loader = DataLoader(
        data,
        batch_size=None,
        num_workers=2,
        persistent_workers=True,
        multiprocessing_context="fork",
    )
    for epoch, fidelity in enumerate((1, 3, Mixture({2: 1}))):
        data.set_epoch(epoch)
        data.set_fidelity(fidelity)
        groups = 2 if isinstance(fidelity, Mixture) else fidelity
        items = list(loader)
        for item in items:
            assert item["image"] == at_fidelity(images[int(item["id"][:4])], groups)
        every = order(seed=2, epoch=epoch)
        halves = [every[:18], every[18:]]  # in turns: of each worker's half in its order
        assert [n for n in numbers(items) if n in halves[0]] == halves[0]
        assert [n for n in numbers(items) if n in halves[1]] == halves[1]
    assert data.traffic.images == 3 * IMAGES
    manifest = manifest_of(folder)
    straddled = 2  # one window: the whole dataset, of which each worker needs nearly all records
    assert data.traffic.bytes <= straddled * sum(manifest.bytes_at(g) for g in (1, 3, 2))
    del loader


def test_a_cache_is_read_instead_and_only_what_it_lacks_is_fetched(folder, tmp_path):
    manifest = manifest_of(folder)
    data = Dataset(folder, fidelity=2, decode=False, cache=tmp_path / "cache")
    list(data)
    assert data.traffic.bytes == manifest.bytes_at(2)
    list(data)
    assert data.traffic.bytes == manifest.bytes_at(2)
    data.set_fidelity("full")
    assert all(item["image"].endswith(b"\xff\xd9") for item in data)
    assert data.traffic.bytes == manifest.bytes_at(5)
    again = Dataset(folder, decode=False, cache=Cache(tmp_path / "cache"))
    assert len(list(again)) == IMAGES
    assert again.traffic.bytes == 0


# --- waiting ---------------------------------------------------------------------------------------


class Clock:
    """Time that passes only where a test says so."""

    def __init__(self) -> None:
        self.now = 1.0

    def __call__(self) -> float:
        return self.now


class SlowStore(LocalStore):
    """A store that takes ten seconds for each request, on a clock that the test holds."""

    clock: Clock

    def _read(self, path, start, end):
        if path != NAME:
            self.clock.now += 10
        return super()._read(path, start, end)


def test_waiting_for_storage_is_told_from_waiting_for_pixels(folder, monkeypatch):
    clock = Clock()
    for module in ("streaming", "dataset"):
        monkeypatch.setattr(f"holdfast.data.records.loading.{module}.perf_counter", clock)
    store = SlowStore(str(folder), {})
    store.clock = clock

    def slow(item):
        clock.now += 1
        return item

    options = {"threads": 0, "window": 4, "connections": 1, "decode": False, "prefetch": 0}
    waits_for_bytes = Dataset(open_records(folder, store), **options)
    list(waits_for_bytes)
    assert waits_for_bytes.traffic.storage_s >= 10
    assert waits_for_bytes.traffic.storage_share > 0.5
    assert waits_for_bytes.storage_bound()
    assert waits_for_bytes.storage_bound() is None, "nothing happened since it was asked"

    waits_for_pixels = Dataset(folder, transform=slow, **options)
    list(waits_for_pixels)
    assert waits_for_pixels.traffic.decode_s == IMAGES
    assert waits_for_pixels.traffic.storage_share < 0.1
    assert waits_for_pixels.storage_bound() is False


def test_on_threads_too_the_wait_is_storages_until_the_bytes_are_there(folder):
    """The reader holds the bytes back until the consumer waits, then lets two hours pass."""
    clock = Clock()
    began = threading.Event()

    def fetch(record, fidelity):
        began.wait()
        while not stream._ready._waiters:
            pass
        clock.now += 7200
        return record

    def make(read, image, fidelity):
        clock.now += 60
        return read.data

    plan = streaming.Plan(*(np.array([one]) for one in (3, 0, 1)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streaming, "perf_counter", clock)
        stream = streaming.Stream(
            iter([plan]),
            size=lambda record, fidelity: 1,
            fetch=fetch,
            make=make,
            pace=streaming.Pace(threads=1, connections=1, prefetch=0, chunk=4, ahead=2),
        )
        began.set()
        assert list(stream) == [[3]]
    assert stream.storage_s == 7200
    assert stream.decode_s == 60


@pytest.mark.parametrize(
    ("traffic", "share"),
    [
        (Traffic(), 0.0),
        (Traffic(storage_s=3, decode_s=1, reading_s=10), 0.3),
        (Traffic(storage_s=3, decode_s=1, reading_s=10, waited_s=4, consuming_s=8), 0.375),
        (Traffic(reading_s=10, waited_s=4, consuming_s=8), 0.0),
    ],
)
def test_the_share_of_storage(traffic, share):
    assert traffic.storage_share == share


# --- ending ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [0, 2])
def test_a_break_ends_all_threads(folder, threads):
    data = Dataset(folder, threads=threads, window=4, prefetch=0)
    for number, _ in enumerate(data):
        assert threads_of_ours()
        if number == 5:
            break
    assert not threads_of_ours()
    assert data.epoch == 0, "the epoch was not finished"


class StuckStore(LocalStore):
    """A store that does not answer until it is let go."""

    def __init__(self, url: str) -> None:
        super().__init__(url, {})
        self.asked, self.go = threading.Event(), threading.Event()

    def _read(self, path, start, end):
        if path.endswith("2.pcr"):
            self.asked.set()
            self.go.wait()
        return super()._read(path, start, end)


def test_a_break_does_not_wait_for_a_request_that_hangs(folder, monkeypatch):
    monkeypatch.setattr(streaming, "_PATIENCE_S", 0.01)
    store = StuckStore(str(folder))
    data = Dataset(open_records(folder, store), window=4, shuffle=False, connections=3, threads=1)
    for _ in data:
        store.asked.wait()
        break
    stuck = [t for t in threading.enumerate() if t.name.startswith("records-")]
    assert len(stuck) == 1, "only the one that waits for the store"
    store.go.set()
    stuck[0].join()


def test_a_dataset_without_images_ends_at_once(tmp_path):
    empty = Manifest((), (), DEFAULT_GROUPS, made.LABELLED)
    (tmp_path / NAME).write_bytes(empty.to_bytes())
    data = Dataset(tmp_path, columns=[])
    assert len(data) == 0
    assert list(data) == []
    assert list(Loader(data, 4)) == []
    with pytest.raises(IndexError):
        data[0]


SCRIPT = """
import os, sys
from holdfast.data.records.loading.loader import Dataset, Loader
def keep(how):
    data = Dataset(sys.argv[1], window=4, threads=2)
    if how == "whole":
        return data, list(data), data[3], data.indexed()[4]
    options = {"num_workers": 1, "multiprocessing_context": "fork", "persistent_workers": True}
    batches = iter(data) if how == "cut" else iter(Loader(data, 4, **options))
    return data, batches, next(batches)
whole, cut = keep("whole"), keep("cut")
if not os.fork():
    sys.exit()  # with another process's threads and generators
os.wait()
workers = keep("workers")
cut[0].cycle = cut  # garbage that is found only when modules are torn down
del cut
print("done")
"""


@pytest.mark.full
def test_a_script_that_keeps_its_dataset_to_the_end_says_nothing(folder):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(folder)], capture_output=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"done\n", b"")


# --- damage ----------------------------------------------------------------------------------------


def flip(folder: Path, record: int, image: int, group: int) -> None:
    """Change one byte of one piece."""
    with open_records(folder) as records:
        contents, index = records.contents(record), records.indexes[record]
    at = index.region(group)[0] + int(contents.starts[image, group - 1])
    path = folder / manifest_of(folder).paths[record]
    data = bytearray(path.read_bytes())
    data[at + 3] ^= 0x10
    path.write_bytes(data)


def cut(folder: Path, record: int, group: int) -> None:
    """End the file of a record in the middle of a group."""
    path = folder / manifest_of(folder).paths[record]
    start, end = open_records(folder).indexes[record].region(group)
    path.write_bytes(path.read_bytes()[: (start + end) // 2])


def not_an_image(folder: Path, record: int) -> None:
    """A record whose third image is stored opaque and decodes to nothing."""
    sources = [made.image(4 * record + n, made.picture(4 * record + n)) for n in range(4)]
    sources[2] = sources[2]._replace(pieces=[b"no image", b"", b"", b"", b""], reason="no JPEG")
    manifest = manifest_of(folder)
    parts, index = made.layout.encode(
        sources, made.LABELLED, groups=GROUPS, settings={"scans_end": "1,2,5,6,10"}
    )
    (folder / manifest.paths[record]).write_bytes(b"".join(parts))
    indexes = [*manifest.records[:record], index, *manifest.records[record + 1 :]]
    changed = Manifest(manifest.paths, tuple(indexes), manifest.scans_end, manifest.schema)
    (folder / NAME).write_bytes(changed.to_bytes())


# damage, fidelity -> {image: its fidelity if degraded}, [(image or None, group)] that are named
CASES = {
    "group 3 flipped, read": (lambda f: flip(f, 2, 1, 3), 5, {9: 2}, [("0009.jpg", 3)]),
    "group 3 flipped, not read": (lambda f: flip(f, 2, 1, 3), 2, {}, []),
    "group 1 flipped": (lambda f: flip(f, 2, 1, 1), 5, {9: 0}, [("0009.jpg", 1)]),
    "two images": (
        lambda f: (flip(f, 0, 3, 2), flip(f, 4, 0, 5)),
        5,
        {3: 1, 16: 4},
        [("0003.jpg", 2), ("0016.jpg", 5)],
    ),
    "cut in group 1": (lambda f: cut(f, 1, 1), 2, None, None),
    "cut in group 4": (lambda f: cut(f, 1, 4), 5, None, None),
    "metadata": (lambda f: cut(f, 3, 0), 1, dict.fromkeys(range(12, 16), 0), [(None, 0)]),
    "undecodable": (lambda f: not_an_image(f, 5), 5, {22: 0}, [("0022.jpg", None)]),
}


def intact_by_hand(folder: Path, record: int, fidelity: int) -> dict[int, int]:
    """Of a cut file: each image's highest fidelity whose pieces all lie before its end."""
    with open_records(folder) as records:
        contents, index = records.contents(record), records.indexes[record]
    size = (folder / manifest_of(folder).paths[record]).stat().st_size
    found = {}
    for image in range(len(contents.ids)):
        whole = [
            index.region(g)[0] + contents.starts[image + 1, g - 1] <= size
            or contents.lengths[image, g - 1] == 0
            for g in range(1, fidelity + 1)
        ]
        if not all(whole):
            found[record * RECORD_SIZE + image] = whole.index(False)
    return found


@pytest.mark.quick(16)
@pytest.mark.parametrize("policy", ["raise", "skip", "degrade"])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("threads", [0, 2])
def test_what_comes_of_damage(own, photos, case, policy, threads):
    damage, fidelity, hit, named = CASES[case]
    damage(own)
    if hit is None:
        record = int(case == "cut in group 1" or case == "cut in group 4")
        hit = intact_by_hand(own, record, fidelity)
        assert hit, "the cut hits something"
    decoding = case == "undecodable"
    data = Dataset(
        own,
        fidelity=fidelity,
        decode=decoding,
        on_fault=policy,
        max_damaged=0.2,
        window=8,
        threads=threads,
    )
    every = order(window=8)
    if policy == "raise" and hit:
        delivered: list[int] = []
        with pytest.raises(Damaged) as raised:
            delivered.extend(int(item["id"][:4]) for item in data)
        assert delivered == every[: len(delivered)]
        assert set(raised.value.faults) <= set(data.faults)
        paths = manifest_of(own).paths
        assert raised.value.faults[0].record in {paths[number // RECORD_SIZE] for number in hit}
        assert not threads_of_ours()
        return
    items = list(data)
    served = {n: g for n, g in hit.items() if policy == "degrade" and g}
    left_out = set(hit) - set(served)
    assert numbers(items) == [n for n in every if n not in left_out]
    for item in items if not decoding else []:
        number = int(item["id"][:4])
        assert item["image"] == at_fidelity(photos[1][number], served.get(number, fidelity))
    traffic = data.traffic
    assert (traffic.skipped, traffic.degraded) == (len(left_out), len(served))
    assert traffic.images == IMAGES - len(left_out)
    if named is not None:
        assert sorted((f.image, f.group) for f in data.faults) == sorted(named)
    assert {fault.image for fault in data.faults} <= {None, *(f"{n:04d}.jpg" for n in hit)}


@pytest.mark.parametrize("policy", ["raise", "skip", "degrade"])
@pytest.mark.parametrize("remote", [False, True])
def test_a_dataset_whose_files_are_gone_is_never_an_empty_epoch(own, policy, remote):
    with RangeServer(own) as server:
        url = server.url if remote else own
        data = Dataset(url, decode=False, on_fault=policy, max_damaged=1)
        for record in own.rglob("*.pcr"):
            record.unlink()
        indexed = data.indexed()
        for read in (
            lambda: list(data),
            lambda: list(Loader(data, 4)),
            lambda: data[3],
            lambda: indexed[3],
            lambda: indexed.__getitems__([3, 4]),
        ):
            with pytest.raises(MissingFile) as raised:
                read()
            assert raised.value.code == "not-found"
            assert raised.value.path.endswith(".pcr")
        assert (data.traffic.images, data.traffic.skipped) == (0, 0)
        data.records.close()
    assert not threads_of_ours()


def test_one_missing_record_is_an_error_and_so_is_a_missing_manifest(own):
    data = Dataset(own, decode=False, on_fault="skip", max_damaged=1, shuffle=False, window=4)
    missing = own / manifest_of(own).paths[3]
    missing.unlink()
    found = []
    with pytest.raises(MissingFile) as raised:
        found.extend(numbers([item])[0] for item in data)
    assert raised.value.path == str(missing)
    assert found == list(range(12))
    loader = Loader(data, 4, num_workers=2, multiprocessing_context="fork")
    with pytest.raises(MissingFile) as raised:
        list(loader)
    assert raised.value.code == "not-found"
    (own / NAME).unlink()
    with pytest.raises(InputError):
        Dataset(own, on_fault="skip")


# share allowed, images damaged, images delivered before the error (None: there is none)
SHARES = [(0.05, 2, None), (0.05, 3, 37), (0.0, 1, 37), (1.0, 37, None), (0.999, 37, 37)]


@pytest.mark.parametrize(("share", "damaged", "fails"), SHARES)
def test_more_damage_than_a_share_of_the_epoch_is_an_error(own, share, damaged, fails):
    """A share of 37 images is rounded up: 5 % are 2."""
    for number in range(damaged):
        flip(own, *divmod(number, RECORD_SIZE), 1)
    data = Dataset(own, decode=False, on_fault="skip", max_damaged=share, threads=0)
    if not fails:
        assert len(list(data)) == IMAGES - damaged
        return
    with pytest.raises(TooManyDamaged) as raised:
        list(data)
    assert raised.value.code == "too-many-rejects"
    assert {fault.group for fault in raised.value.faults} == {1}
    traffic = data.traffic
    assert traffic.skipped == min(damaged, int(-(-share * IMAGES // 1)) + 1 if share < 0.5 else 37)
    assert len({fault.image for fault in data.faults}) == traffic.skipped


def test_workers_ranks_and_samplers_each_judge_their_part(own):
    for number in range(4):  # 11 % of the images, all in one record
        flip(own, 1, number, 1)
    options = {"decode": False, "on_fault": "skip", "shuffle": False}
    for max_damaged, fails in ((0.15, True), (0.25, False)):  # the first half has 4 of 18
        data = Dataset(own, max_damaged=max_damaged, **options)
        loader = Loader(data, 3, num_workers=2, multiprocessing_context="fork")
        rank = Dataset(own, max_damaged=max_damaged, rank=0, ranks=2, **options)
        sampled = DataLoader(rank.indexed(), batch_size=3, sampler=range(18))
        rank._ranks = 2
        for read in (loader, rank, sampled):
            if fails:
                with pytest.raises(TooManyDamaged) as raised:
                    list(read)
                assert raised.value.code == "too-many-rejects"
            else:
                list(read)
    other = Dataset(own, max_damaged=0, rank=1, ranks=2, **options)
    assert len(list(other)) == 19, "the other rank meets no damage"


def test_a_sampler_may_go_on_for_many_epochs(own):
    flip(own, 2, 1, 1)
    indexed = Dataset(own, decode=False, on_fault="skip").indexed()
    for _ in range(3):
        assert len(indexed.__getitems__(range(IMAGES))) == IMAGES - 1
    for number in range(3):
        flip(own, 1, number, 1)
    fresh = Dataset(own, decode=False, on_fault="skip").indexed()
    with pytest.raises(TooManyDamaged):
        fresh.__getitems__(range(IMAGES))


def test_faults_met_by_workers_are_known_to_their_maker(own):
    flip(own, 2, 1, 3)
    flip(own, 7, 2, 1)
    data = Dataset(own, decode=False, on_fault="degrade")
    batches = list(Loader(data, 4, num_workers=2, multiprocessing_context="fork"))
    assert sum(len(batch["id"]) for batch in batches) == IMAGES - 1
    assert {(f.image, f.group) for f in data.faults} == {("0009.jpg", 3), ("0030.jpg", 1)}
    assert (data.traffic.skipped, data.traffic.degraded) == (1, 1)


def test_an_error_in_a_worker_names_the_record(own):
    flip(own, 2, 1, 3)
    loader = Loader(Dataset(own, decode=False), 4, num_workers=1, multiprocessing_context="fork")
    with pytest.raises(Damaged, match=r"000002\.pcr, image 0009\.jpg, group 3"):
        list(loader)


def test_a_store_that_fails_is_an_error_whatever_the_policy(folder):
    class Failing(LocalStore):
        def _read(self, path, start, end):
            raise StoreError("no route to host")

    store = Failing(str(folder), {})
    store.read_all = LocalStore(str(folder), {}).read_all
    data = Dataset(open_records(folder, store), on_fault="skip")
    with pytest.raises(StoreError, match="no route"):
        list(data)
    assert not data.faults


# --- quarantine ------------------------------------------------------------------------------------


def test_the_quarantine_lists_what_was_left_out_and_is_passed_over(own, tmp_path):
    listed = tmp_path / "bad.jsonl"
    flip(own, 2, 1, 3)
    flip(own, 7, 2, 1)
    options = {"decode": False, "quarantine": listed}
    with pytest.raises(Damaged):
        list(Dataset(own, **options))
    assert len(listed.read_text().splitlines()) == 1, "the one that was met first"
    data = Dataset(own, on_fault="skip", **options)
    assert set(range(IMAGES)) - set(numbers(data)) == {9, 30}
    lines = [json.loads(line) for line in listed.read_text().splitlines()]
    assert {(line["image"], line["group"]) for line in lines} == {("0009.jpg", 3), ("0030.jpg", 1)}
    assert {line["record"] for line in lines} == {manifest_of(own).paths[n] for n in (2, 7)}
    again = Dataset(own, **options)  # would raise, were they not passed over
    assert set(range(IMAGES)) - set(numbers(again)) == {9, 30}
    assert again.traffic.skipped == 2
    assert len(listed.read_text().splitlines()) == 2


def test_an_image_that_is_served_degraded_is_not_quarantined(own, tmp_path):
    flip(own, 2, 1, 3)
    data = Dataset(own, decode=False, on_fault="degrade", quarantine=tmp_path / "bad.jsonl")
    for _ in range(2):
        assert len(list(data)) == IMAGES
    assert not (tmp_path / "bad.jsonl").exists()
    assert [fault.image for fault in data.faults] == ["0009.jpg"]


@pytest.mark.parametrize("line", ["{", "[]", '{"record": 3}', '{"record": "a", "image": 3}'])
def test_a_quarantine_that_cannot_be_read_is_refused(folder, tmp_path, line):
    listed = tmp_path / "bad.jsonl"
    listed.write_text('{"record": "a.pcr", "image": "b"}\n' + line + "\n")
    with pytest.raises(InputError, match=r"bad\.jsonl, line 2"):
        list(Dataset(folder, quarantine=listed))
    listed.write_text('{"record": "a.pcr", "image": "b"}\n' + line)  # still being written
    assert len(list(Dataset(folder, quarantine=listed))) == IMAGES


def test_the_log_of_faults_is_removed_with_its_maker(own):
    flip(own, 2, 1, 3)
    data = Dataset(own, decode=False, on_fault="skip")
    list(data)
    log = data._log._file
    assert log.exists()
    copied = pickle.loads(pickle.dumps(data._log))
    del copied
    assert log.exists()
    del data
    assert not log.exists()


# --- single images ---------------------------------------------------------------------------------


def test_an_image_by_number_is_read_by_its_pieces_alone(photos):
    folder, images = photos
    data = Dataset(folder, decode=False, fidelity=3)
    manifest = manifest_of(folder)
    for number in (0, 17, 36, -1, -37, np.int64(5)):
        assert data[number]["image"] == at_fidelity(images[int(number) % IMAGES], 3)
        assert data[number]["label"] == int(number) % IMAGES % 2
    before = data.traffic.bytes
    assert data[18]["id"] == "0018.jpg"  # a record whose metadata were read for 17
    assert data.traffic.bytes - before == len(at_fidelity(images[18], 3)) - 2
    assert data.traffic.bytes < manifest.bytes_at(3)
    for number in (IMAGES, -IMAGES - 1):
        with pytest.raises(IndexError):
            data[number]
    with pytest.raises(TypeError):
        data["0001.jpg"]


@pytest.mark.parametrize(("policy", "served"), [("raise", 0), ("skip", 0), ("degrade", 2)])
def test_a_damaged_image_by_number(own, photos, policy, served):
    flip(own, 2, 1, 3)
    data = Dataset(own, decode=False, on_fault=policy)
    if served:
        assert data[9]["image"] == at_fidelity(photos[1][9], served)
    else:
        with pytest.raises(Damaged, match=r"0009\.jpg, group 3"):
            data[9]
    assert [(fault.image, fault.group) for fault in data.faults] == [("0009.jpg", 3)]


def test_a_sampler_reads_each_record_once(photos):
    folder, images = photos
    data = Dataset(folder, fidelity=2, decode=False)
    indexed = data.indexed()
    loader = DataLoader(indexed, batch_size=3, sampler=SequentialSampler(indexed))
    found = [image for batch in loader for image in batch["image"]]
    assert found == [at_fidelity(image, 2) for image in images]
    assert data.traffic.bytes == manifest_of(folder).bytes_at(2)
    data.set_fidelity(4)
    assert indexed[-1]["image"] == at_fidelity(images[-1], 4)
    ends = manifest_of(folder).ends[-1]
    assert data.traffic.bytes == manifest_of(folder).bytes_at(2) + ends[4] - ends[2]
    with pytest.raises(IndexError):
        indexed[IMAGES]


def test_a_sampler_holds_as_much_as_it_may(folder):
    data = Dataset(folder, decode=False)
    indexed = data.indexed(cache_bytes=1)
    for number in (0, 1, 4, 0):
        indexed[number]
    ends = manifest_of(folder).ends[:, GROUPS]
    assert data.traffic.bytes == ends[0] + ends[1] + ends[0]


@pytest.mark.parametrize(("policy", "delivered"), [("skip", 3), ("degrade", 4)])
def test_a_sampler_meets_damage(own, policy, delivered):
    flip(own, 2, 1, 3)
    indexed = Dataset(own, decode=False, on_fault=policy).indexed()
    assert len(indexed.__getitems__([8, 9, 10, 11])) == delivered
    if policy == "skip":
        with pytest.raises(Damaged):
            indexed[9]


# --- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fidelity": 0}, "fidelity"),
        ({"fidelity": 6}, "1 to 5"),
        ({"fidelity": True}, "fidelity"),
        ({"fidelity": "half"}, "fidelity"),
        ({"fidelity": Mixture({6: 1})}, "1 to 5"),
        ({"columns": ["colour"]}, "colour"),
        ({"window": 0}, "window"),
        ({"threads": -1}, "threads"),
        ({"connections": 0}, "connections"),
        ({"rank": 0}, "rank"),
        ({"rank": 2, "ranks": 2}, "rank"),
        ({"uneven": "share"}, "uneven"),
        ({"on_fault": "ignore"}, "on_fault"),
        ({"max_damaged": -0.1}, "max_damaged"),
        ({"max_damaged": 5}, "max_damaged"),
        ({"quarantine": "/no/such/folder/bad.jsonl"}, "quarantine"),
    ],
)
def test_settings_that_cannot_be(folder, options, message):
    with pytest.raises(InputError, match=message):
        Dataset(folder, **options)


def test_a_folder_without_a_dataset(tmp_path):
    with refused("not-found"):
        Dataset(tmp_path)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"fidelty": 1}, "fidelty"),
        ({"at_least": 0}, "at_least"),
        ({"threads": -1}, "threads"),
        ({"columns": ["lable"]}, "lable"),
    ],
)
def test_slips_are_named(folder, options, named):
    with pytest.raises(InputError, match=named):
        Dataset(folder, **options)


def test_one_column_may_be_named_alone(folder):
    assert set(Dataset(folder, columns="label")[0]) == {"id", "image", "label"}
    with pytest.raises(TypeError):
        Dataset(folder).indexed()[1.5]
