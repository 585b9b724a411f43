"""Trials on datasets whose classes are known to need a fidelity; models by name; pages of trials."""

import io
import json
import math

import numpy as np
import pyarrow as pa
import pytest
from refusals import refused

torch = pytest.importorskip("torch")

from PIL import Image  # noqa: E402

from holdfast.data.records.reading.prefixes import Damaged  # noqa: E402
from holdfast.data.records.reading.records import open_records  # noqa: E402
from holdfast.data.records.sources.example import Example  # noqa: E402
from holdfast.data.records.tuning import models, tuned  # noqa: E402
from holdfast.data.records.tuning.feeding import RecordsFeed, split  # noqa: E402
from holdfast.data.records.tuning.fixed import FixedBatches  # noqa: E402
from holdfast.data.records.tuning.policies import Fixed  # noqa: E402
from holdfast.data.records.tuning.training import one_cycle, shifted_and_mirrored  # noqa: E402
from holdfast.data.records.tuning.tuned import tune  # noqa: E402
from holdfast.data.records.writing.writer import write  # noqa: E402
from holdfast.plain import plain  # noqa: E402
from holdfast.stats import wilson_interval  # noqa: E402

QUICK = {"side": 32, "every": 1, "warmup": 1, "batch_size": 8, "probe_batches": 4}
COUNT = 60


def tiny_cnn(classes):
    return models.small_cnn(classes, width=4)


def not_a_function():
    pass


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)


def picture(kind, label, draw):
    """32x32: the class stands in the mean colour, or only in the direction of fine stripes."""
    y, x = np.mgrid[:32, :32]
    if kind == "colour":
        pixels = np.full((32, 32, 3), 128.0)
        pixels[..., 0] += 70 * (2 * label - 1)
    else:
        along = x if label else y
        pixels = 128 + 100 * np.sin(np.pi * along * 0.9 + draw.uniform(0, 6))[..., None]
        pixels = np.repeat(pixels, 3, axis=2)
    pixels += draw.normal(0, 6, pixels.shape)
    file = io.BytesIO()
    Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(file, "JPEG", quality=92)
    return file.getvalue()


class Pictures:
    """A source of pictures, sorted by class as folders are."""

    ignored = ()

    def __init__(self, kind, label_type):
        draw = np.random.default_rng(7)
        names = {b"names": json.dumps(["no", "yes"]).encode()} if label_type == pa.int32() else None
        self.schema = pa.schema([pa.field("label", label_type, metadata=names)])
        self.examples = []
        for number in range(COUNT):
            label = int(number >= COUNT // 2)
            value = label if pa.types.is_integer(label_type) else ("no", "yes")[label]
            data = picture(kind, label, draw)
            self.examples.append(Example(f"{number:03d}.jpg", data, {"label": value}))

    def __len__(self):
        return len(self.examples)

    def ids_and_sizes(self):
        return ((one.id, len(one.data)) for one in self.examples)

    def read(self, start, stop):
        return iter(self.examples[start:stop])


@pytest.fixture(scope="module")
def datasets(tmp_path_factory):
    """Kind -> the dataset's folder."""
    folder = tmp_path_factory.mktemp("datasets")
    made = {}
    for kind, label_type in (("colour", pa.int32()), ("stripes", pa.string())):
        made[kind] = str(folder / kind)
        write(Pictures(kind, label_type), made[kind], record_size=16, quality_images=4, threads=1)
    return made


@pytest.fixture(scope="module")
def colours(datasets):
    """A trial where the first scan holds all that is to be learnt."""
    torch.set_num_threads(1)
    return tune(datasets["colour"], model=tiny_cnn, epochs=6, against_full=True, **QUICK)


def test_classes_in_the_mean_colour_need_the_first_scan_alone(datasets, colours):
    manifest = open_records(datasets["colour"]).manifest
    chosen = [row["fidelity"] for row in colours.epochs]
    assert chosen == [5, 1, 1, 1, 1, 5]
    assert colours.usual == 1
    assert colours.accuracy == 1.0 == colours.accuracy_full
    assert (colours.tested, colours.images) == (12, 48)
    # Bytes are those of the regions, to the byte: 2 epochs in full and 4 at fidelity 1.
    assert [row["bytes"] for row in colours.epochs] == [manifest.bytes_at(g) for g in chosen]
    assert colours.bytes_full == 6 * manifest.bytes_at(5)
    assert colours.bytes_read == 2 * manifest.bytes_at(5) + 4 * manifest.bytes_at(1)
    assert colours.saving == colours.bytes_full / (colours.bytes_read + colours.probe_bytes)


def test_truncated_images_are_left_out_and_named(tmp_path):
    pictures = Pictures("colour", pa.int32())
    test, train = split(COUNT, 0.2, seed=0)
    cut = [pictures.examples[number].id for number in (train[0], train[9], test[3])]
    pictures.examples = [
        Example(one.id, one.data[: len(one.data) // 2] if one.id in cut else one.data, one.columns)
        for one in pictures.examples
    ]
    written = write(pictures, tmp_path / "out", record_size=16, quality_images=0, threads=1)
    assert written.reasons == {"damaged JPEG": 3}
    quick = QUICK | {"probe_batches": COUNT}  # the probes meet all training images
    found = tune(str(tmp_path / "out"), model=tiny_cnn, epochs=3, **quick)
    assert sorted(found.skipped) == sorted(cut)
    assert (found.images, found.tested) == (len(train) - 2, len(test) - 1)
    fixed = FixedBatches.drawn(str(tmp_path / "out"), batch_size=COUNT)
    with pytest.raises(Damaged) as caught:
        list(fixed(1))
    assert {fault.image for fault in caught.value.faults} <= set(cut)


def test_classes_in_fine_stripes_need_more_than_the_first_scan(datasets):
    found = tune(datasets["stripes"], model=tiny_cnn, epochs=4, **QUICK)
    chosen = [row["fidelity"] for row in found.epochs]
    assert min(chosen[1:-1]) > 1
    scores = [row["score"] for row in found.scores if row["fidelity"] == 1]
    assert max(scores) < 0.8
    assert found.accuracy_full is None


def test_the_images_of_probes_are_read_once_and_count(datasets, colours):
    records = open_records(datasets["colour"])
    sizes = np.concatenate(
        [records.contents(record).lengths.sum(1) for record in range(len(records))]
    )
    _, train = split(COUNT, 0.2, 0)
    drawn = np.random.default_rng((0, 1)).permutation(train)[: 4 * 8]
    assert colours.probe_bytes == sizes[drawn].sum()


def test_the_same_seed_gives_the_same_trial_and_leaves_torch_alone(datasets):
    before = torch.get_rng_state()
    first, again = (
        tune(datasets["colour"], model=tiny_cnn, epochs=2, seed=3, **QUICK).to_dict()
        for _ in range(2)
    )
    assert json.dumps(plain(first)) == json.dumps(plain(again))
    assert torch.equal(torch.get_rng_state(), before)


def test_a_result_is_json_with_its_tables(colours):
    told = json.loads(json.dumps(plain(colours.to_dict()), allow_nan=False))
    assert [one["fidelity"] for one in told["epochs"]] == [5, 1, 1, 1, 1, 5]
    assert {"epoch", "fidelity", "score", "error", "low", "high"} <= told["scores"][0].keys()
    assert told["fidelities"][-1]["cumulative_fraction"] == 1.0
    assert told["accuracy_interval"] == list(wilson_interval(12, 12))


def test_training_and_held_out_images_are_apart_and_complete(datasets):
    feed = RecordsFeed(
        datasets["colour"], label="label", side=32, batch_size=7,
        hold_out=0.2, probe_batches=2, seed=5,
    )  # fmt: skip
    test, train = split(COUNT, 0.2, 5)
    assert sorted([*test, *train]) == list(range(COUNT))

    def bits(batches):
        return [image.numpy().tobytes() for images, _ in batches for image in images]

    seen, held, fixed = bits(feed.batches(0, 5)), bits(feed.held_out()), bits(feed.fixed(5))
    assert (len(set(seen)), len(set(held))) == (48, 12)
    assert not set(seen) & set(held)
    # Probes show images of the training part, the same each time, as training shows them.
    assert set(fixed) < set(seen)
    assert fixed == bits(feed.fixed(5))
    assert fixed != bits(feed.fixed(1))
    feed.close()


def test_other_policies_and_what_binds(datasets):
    by_quality = tune(
        datasets["colour"], model=tiny_cnn, epochs=3, policy="msssim", threshold=0.0, **QUICK
    )
    assert [row["fidelity"] for row in by_quality.epochs] == [5, 1, 5]
    assert len(by_quality.scores) == 0
    by_loss = tune(datasets["colour"], model=tiny_cnn, epochs=3, policy="loss", **QUICK)
    assert [row["fidelity"] for row in by_loss.epochs] == [5, 1, 5]
    fixed = tune(datasets["colour"], model=tiny_cnn, epochs=2, policy=Fixed(3), **QUICK)
    assert fixed.threshold is None


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"label": "class"}, "unknown-name"),
        ({"policy": "guess"}, "unknown-name"),
        ({"policy": "loss", "threshold": 0.5}, "conflict"),
        ({"hold_out": 0.0}, "out-of-range"),
        ({"hold_out": 0.001}, "out-of-range"),
        ({"model": "no_such_module:make"}, "not-found"),
        ({"model": "test_tuning_trial"}, "invalid-value"),
        ({"model": "json:no_such_name"}, "not-found"),
        ({"epochs": 0}, "out-of-range"),
        ({"side": 15}, "out-of-range"),
    ],
)
def test_what_cannot_be_done_is_refused(datasets, settings, code):
    with refused(code):
        tune(datasets["colour"], **(QUICK | settings))


def test_a_model_is_named_or_given():
    assert models.named_model("holdfast.data.records.tuning.models:small_cnn") is models.small_cnn
    assert models.named_model(tiny_cnn) is tiny_cnn
    assert models.small_cnn(7)(torch.zeros(2, 3, 100, 100)).shape == (2, 7)
    assert (
        models.small_cnn(2)(torch.zeros(1, 3, tuned.SMALLEST_SIDE, tuned.SMALLEST_SIDE))
        .isfinite()
        .all()
    )


def test_the_learning_rate_rises_and_falls_once():
    rates = [one_cycle(share / 100) for share in range(101)]
    assert max(rates) == pytest.approx(1.0, abs=0.02)
    assert rates[30] == pytest.approx(1.0)
    assert rates[:31] == sorted(rates[:31])
    assert rates[30:] == sorted(rates[30:], reverse=True)
    assert rates[-1] == pytest.approx(0, abs=1e-9)


def test_augmentation_moves_and_mirrors_and_nothing_else():
    images = torch.rand(64, 3, 32, 32)
    shown = shifted_and_mirrored(images, torch.Generator().manual_seed(0))
    inner = images[:, :, 8:24, 8:24]
    kinds = set()
    for one, whole in zip(inner, shown, strict=True):
        found = [
            (mirrored, top, left)
            for mirrored, turned in ((False, whole), (True, whole.flip(2)))
            for top in range(4, 13)
            for left in range(4, 13)
            if torch.equal(turned[:, top : top + 16, left : left + 16], one)
        ]
        assert len(found) == 1
        kinds.add(found[0][0])
    assert kinds == {True, False}


def test_intervals_are_wilsons():
    # As in Newcombe 1998, table I: 15 of 148.
    low, high = wilson_interval(15, 148)
    assert (low, high) == (pytest.approx(0.0624, abs=5e-5), pytest.approx(0.1605, abs=5e-5))
    assert not math.isnan(wilson_interval(0, 1)[1])
