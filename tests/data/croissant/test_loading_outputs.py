"""What record sets turn into: Arrow, batches, Polars, torch, `datasets`, decoded images and sound."""

from __future__ import annotations

import copy
import io
import json
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from made_datasets import (
    about,
    column,
    described,
    field,
    file_object,
    file_set,
    record_set,
    write_rows,
)

from holdfast.data.croissant.loading import late
from holdfast.data.croissant.loading.dataset import Dataset
from holdfast.errors import InputError


@pytest.fixture
def numbers(tmp_path: Path) -> Dataset:
    rows = [
        {
            "id": i,
            "half": "" if i % 5 == 4 else i / 2,
            "word": f"w{i}",
            "even": i % 2 == 0,
            "box": f"[{i}, 1]",
        }
        for i in range(1000)
    ]
    write_rows(tmp_path / "t.csv", list(rows[0]), rows)
    kinds = {"id": "sc:Integer", "half": "cr:Float32", "word": "sc:Text", "even": "sc:Boolean"}
    fields = [field(f"t/{name}", kind, column("t.csv", name)) for name, kind in kinds.items()]
    fields.append(field("t/box", "sc:Float", column("t.csv", "box"), isArray=True, arrayShape="2"))
    return described(tmp_path, [file_object("t.csv")], [record_set("t", *fields)])


SCHEMA = pa.schema(
    [
        ("t/id", pa.int64()),
        ("t/half", pa.float32()),
        ("t/word", pa.string()),
        ("t/even", pa.bool_()),
        ("t/box", pa.list_(pa.float64(), 2)),
    ]
)


def test_the_schema_of_text_is_known_without_opening_a_file(numbers: Dataset) -> None:
    (numbers.path.parent / "t.csv").unlink()
    assert numbers.records("t").schema == SCHEMA


def test_arrow_batches_and_dicts_hold_the_same(numbers: Dataset) -> None:
    lazy = numbers.records("t")
    table = lazy.to_arrow()
    assert table.schema == SCHEMA
    batches = list(lazy.batches(300))
    assert max(batch.num_rows for batch in batches) <= 300
    assert pa.Table.from_batches(batches).equals(table)
    assert list(lazy) == table.to_pylist()
    assert list(lazy.head(3)) == table.to_pylist()[:3]
    assert lazy.head(7).head(9).count() == 7
    assert lazy.count() == len(table) == 1000
    with pytest.raises(InputError, match="at least one row"):
        next(lazy.batches(0))


def test_lists_below_records_of_json(tmp_path: Path) -> None:
    """As many records, whichever columns are asked for; objects in a list are a list of structs."""
    items = [
        {"id": n, "boxes": [{"at": [n, 0, 1, k], "label": "ab"[k]} for k in range(n)]}
        for n in range(3)
    ]
    (tmp_path / "t.json").write_text(json.dumps({"meta": {}, "items": items}))

    def path(rest: str) -> dict[str, Any]:
        return {"fileObject": {"@id": "t.json"}, "extract": {"jsonPath": f"$.items[*].{rest}"}}

    boxes = field(
        "t/boxes",
        None,
        path("boxes[*]"),
        isArray=True,
        arrayShape="-1",
        subField=[
            field("t/boxes/at", "cr:BoundingBox", path("boxes[*].at")),
            field("t/boxes/label", "sc:Text", path("boxes[*].label")),
        ],
    )
    labels = field("t/labels", "sc:Text", path("boxes[*].label"), isArray=True, arrayShape="-1")
    fields = [field("t/id", "sc:Integer", path("id")), boxes, labels]
    dataset = described(tmp_path, [file_object("t.json")], [record_set("t", *fields)])
    expected = [
        {
            "t/id": item["id"],
            "t/boxes": [
                {"t/boxes/at": box["at"], "t/boxes/label": box["label"]} for box in item["boxes"]
            ],
            "t/labels": [box["label"] for box in item["boxes"]],
        }
        for item in items
    ]
    assert list(dataset.records("t")) == expected
    for name in ("id", "boxes", "labels"):
        chosen = [{f"t/{name}": record[f"t/{name}"]} for record in expected]
        assert list(dataset.records("t", columns=[name])) == chosen


def test_polars_frames_hold_the_same(numbers: Dataset) -> None:
    polars = pytest.importorskip("polars")
    lazy = numbers.records("t")
    assert lazy.to_polars().equals(polars.from_arrow(lazy.to_arrow()))


def test_readers_in_threads_do_not_disturb_one_another(numbers: Dataset) -> None:
    lazy = numbers.records("t")
    expected, seen = list(lazy), []

    def read() -> None:
        seen.append(list(lazy))

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [expected] * 4


def test_an_iterator_that_is_dropped_leaves_the_dataset_usable(numbers: Dataset) -> None:
    iterator = iter(numbers.records("t"))
    first = next(iterator)
    del iterator
    assert next(iter(numbers.records("t"))) == first
    again = copy.deepcopy(numbers.records("t", filters={"id": 3}, columns=["word"]))
    assert list(again) == [{"t/word": "w3"}]


def test_tensors_have_the_values_and_readers_share_them_out(numbers: Dataset) -> None:
    torch = pytest.importorskip("torch")
    lazy = numbers.records("t")
    batches = list(lazy.to_torch(batch_size=300))
    assert [len(batch["t/id"]) for batch in batches] == [300, 300, 300, 100]
    joined = {
        name: torch.cat([batch[name] for batch in batches]) for name in ("t/id", "t/box", "t/even")
    }
    assert joined["t/id"].tolist() == list(range(1000))
    assert joined["t/box"].shape == (1000, 2)
    assert joined["t/even"].dtype == torch.bool
    assert torch.isnan(batches[0]["t/half"][4])
    assert batches[0]["t/word"][:2] == ["w0", "w1"]
    shares = [[batch["t/id"].tolist() for batch in shared(lazy, i)] for i in range(3)]
    assert [part[0] for part in shares[1]] == [64, 256, 448, 640, 832]
    assert sorted(n for share in shares for part in share for n in part) == list(range(1000))
    with pytest.raises(InputError, match="query"):
        numbers.sql("SELECT * FROM t").in_order()


def shared(lazy: Any, index: int) -> Any:
    """What reader `index` of three gets."""
    names = lazy.columns
    for batch in lazy.shared(64, index, 3):
        yield dict(zip(names, batch.columns, strict=True)) | {"t/id": batch.column(0).to_numpy()}


@pytest.mark.full
@pytest.mark.parametrize("start", ["spawn", "fork"])
def test_workers_read_each_batch_once(numbers: Dataset, start: str) -> None:
    torch = pytest.importorskip("torch")
    lazy = numbers.records("t")
    lazy.count()  # the parent's engine is open when its workers start
    loader = torch.utils.data.DataLoader(
        lazy.to_torch(batch_size=64),
        batch_size=None,
        num_workers=2,
        multiprocessing_context=start,
    )
    parts = [batch["t/id"].tolist() for batch in loader]
    assert sorted(number for part in parts for number in part) == list(range(1000))
    assert [part[0] for part in parts[:4]] == [0, 64, 128, 192]


def test_missing_integers_are_no_tensor(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    write_rows(tmp_path / "t.csv", ["n", "m"], [{"n": 1, "m": 1}, {"n": "", "m": 2}])
    records = record_set("t", *(field(f"t/{x}", "sc:Integer", column("t.csv", x)) for x in "nm"))
    dataset = described(tmp_path, [file_object("t.csv")], [records])
    with pytest.raises(InputError, match='"t/n" IS NOT NULL'):
        next(iter(dataset.records("t").to_torch()))
    [batch] = dataset.records("t", filters='"t/n" IS NOT NULL').to_torch()
    assert batch["t/n"].tolist() == [1]


@pytest.fixture
def pictures(tmp_path: Path) -> Dataset:
    image = pytest.importorskip("PIL.Image")
    for index in range(3):
        data = io.BytesIO()
        image.new("RGB", (index + 1, 2), (index, 0, 0)).save(data, "PNG")
        (tmp_path / f"{index}.bin").write_bytes(data.getvalue())
    records = record_set(
        "p",
        field("p/image", "sc:ImageObject", about("files", "content")),
        field(
            "p/nested",
            None,
            subField=[field("p/nested/image", "sc:ImageObject", about("files", "content"))],
        ),
        field("p/name", "sc:Text", about("files", "filename")),
    )
    return described(tmp_path, [file_set("files", "*.bin")], [records])


def test_images_are_decoded_if_asked_for(pictures: Dataset) -> None:
    lazy = pictures.records("p")
    assert lazy.schema.field("p/image").type == pa.binary()
    plain, decoded = list(lazy), list(lazy.rows(decode=True))
    assert [row["p/image"][:4] for row in plain] == [b"\x89PNG"] * 3
    assert [row["p/image"].size for row in decoded] == [(1, 2), (2, 2), (3, 2)]
    assert decoded[2]["p/nested"]["p/nested/image"].getpixel((0, 0)) == (2, 0, 0)
    (pictures.path.parent / "1.bin").write_bytes(b"no picture")
    with pytest.raises(InputError, match="'p/image' cannot be decoded as image"):
        list(lazy.rows(decode=True))


def test_batches_of_bytes_stay_small(pictures: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(late, "BATCH_BYTES", 100)
    lazy = pictures.records("p")
    assert [batch.num_rows for batch in lazy.batches()] == [1, 1, 1]
    assert [row["p/name"] for row in lazy] == ["0.bin", "1.bin", "2.bin"]
    assert len(lazy.to_arrow()) == 3


def test_datasets_have_image_features(pictures: Dataset, numbers: Dataset, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    made = pictures.records("p").to_hf()
    assert isinstance(made.features["p/image"], datasets.Image)
    assert [row["p/image"].size for row in made] == [(1, 2), (2, 2), (3, 2)]
    assert made[1]["p/nested"]["p/nested/image"].size == (2, 2)
    streamed = pictures.records("p").to_hf(streaming=True)
    assert [row["p/image"].size for row in streamed] == [(1, 2), (2, 2), (3, 2)]
    plain = numbers.records("t").to_hf()
    assert plain.features["t/id"].dtype == "int64"
    assert plain[3] == list(numbers.records("t"))[3]


def test_sound_is_decoded_at_its_own_rate_or_the_one_declared(tmp_path: Path) -> None:
    soundfile = pytest.importorskip("soundfile")
    import numpy as np

    wave = np.sin(np.arange(8000) / 20).astype(np.float32)
    soundfile.write(tmp_path / "a.wav", wave, 8000)
    (tmp_path / "a.bin").write_bytes((tmp_path / "a.wav").read_bytes())

    def sound(**more: Any) -> Any:
        source = about("files", "content") | more
        records = record_set("s", field("s/sound", "sc:AudioObject", source))
        [row] = (
            described(tmp_path, [file_set("files", "*.bin")], [records])
            .records("s")
            .rows(decode=True)
        )
        return row["s/sound"]

    samples, rate = sound()
    assert rate == 8000
    assert np.allclose(samples, wave, atol=1e-4)
    samples, rate = sound(samplingRate=4000)
    assert rate == 4000
    assert len(samples) == 4000
    assert np.allclose(samples[100:-100], wave[200:-200:2], atol=1e-2)


def test_text_files_that_are_none_are_told(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"ok\xff")
    records = record_set("t", field("t/text", "sc:Text", about("files", "content")))
    dataset = described(tmp_path, [file_set("files", "*.bin")], [records])
    with pytest.raises(InputError) as caught:
        list(dataset.records("t"))
    assert (caught.value.code, caught.value.place) == ("invalid-encoding", "line 1")


def test_a_record_set_without_columns_is_told(numbers: Dataset, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no field of the record set 't' is asked for"):
        numbers.records("t", columns=[]).to_arrow()
    empty = described(tmp_path / "empty", [], [record_set("nothing")])
    with pytest.raises(InputError, match="the record set 'nothing' has no fields"):
        list(empty.records())
