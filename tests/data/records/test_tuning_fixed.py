"""Fixed batches: the images that a dataset gives at each fidelity, read once."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from listed_source import of_pictures  # noqa: E402
from made import dataset  # noqa: E402

from holdfast.data.records.loading.dataset import Dataset  # noqa: E402
from holdfast.data.records.reading.prefixes import Damaged  # noqa: E402
from holdfast.data.records.reading.records import open_records  # noqa: E402
from holdfast.data.records.sources import Example  # noqa: E402
from holdfast.data.records.tuning.fixed import FixedBatches  # noqa: E402
from holdfast.data.records.writing.writer import write  # noqa: E402
from holdfast.errors import InputError  # noqa: E402


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("fixed")
    dataset(made, images=10, record_size=4)
    return str(made)


@pytest.mark.parametrize("fidelity", [1, 3, 5])
def test_items_are_those_of_the_dataset_at_the_same_fidelity(folder, fidelity):
    expected = {item["id"]: item for item in Dataset(folder, fidelity=fidelity, threads=0)}
    fixed = FixedBatches.drawn(folder, batch_size=4, batches=2)
    batches = list(fixed(fidelity))
    assert [len(batch["id"]) for batch in batches] == [4, 4]
    for batch in batches:
        for name, label, image in zip(batch["id"], batch["label"], batch["image"], strict=True):
            assert torch.equal(image, expected[name]["image"])
            assert label == expected[name]["label"]


def test_each_image_is_read_once_and_no_other(folder):
    records = open_records(folder)
    fixed = FixedBatches.drawn(records, batch_size=3, batches=2, seed=1)
    names = [name for batch in fixed(1) for name in batch["id"]]
    read = records.store.bytes_read
    assert [name for batch in fixed(5) for name in batch["id"]] == names
    assert records.store.bytes_read == read
    sizes = {
        name: int(size)
        for record in range(len(records))
        for name, size in zip(
            records.contents(record).ids, records.contents(record).lengths.sum(1), strict=True
        )
    }
    assert fixed.nbytes == sum(sizes[name] for name in names)
    assert len(set(names)) == 6


def test_transform_and_collate_make_the_batch(folder):
    fixed = FixedBatches.drawn(
        folder,
        batch_size=8,
        batches=2,
        columns=["label"],
        transform=lambda item: (item["image"].float().mean(), item["label"]),
        collate=lambda items: tuple(map(np.array, zip(*items, strict=True))),
    )
    means, labels = (np.concatenate(parts) for parts in zip(*fixed(2), strict=True))
    assert means.shape == labels.shape == (10,)  # no more than there are
    assert sorted(labels) == [0] * 5 + [1] * 5


def test_what_cannot_be_drawn_is_refused(folder):
    with pytest.raises(InputError):
        FixedBatches.drawn(folder, batch_size=0)
    with pytest.raises(InputError):
        FixedBatches.drawn(folder, batch_size=1, columns=["colour"])


def test_a_damaged_image_is_an_error_that_names_it(tmp_path):
    pictures = of_pictures(range(4))
    one = pictures.examples[2]
    pictures.examples[2] = Example(one.id, one.data[: len(one.data) // 2], one.columns)
    write(pictures, tmp_path / "d", quality_images=0, threads=1)
    with pytest.raises(Damaged) as caught:
        list(FixedBatches.drawn(tmp_path / "d", batch_size=4)(1))
    assert [fault.image for fault in caught.value.faults] == [one.id]
