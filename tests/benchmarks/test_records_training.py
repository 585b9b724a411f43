"""The benchmark's training on images whose classes are known to need a fidelity."""

import io

import numpy as np
import pytest
from PIL import Image

torch = pytest.importorskip("torch")

import records_training_steps as steps  # noqa: E402
from holdfast.data import records  # noqa: E402

SETTINGS = {
    "seed": 0, "epochs": 4, "side": 32, "batch_size": 8, "learning_rate": 3e-3,
    "probe_batches": 4, "every": 1, "warmup": 1,
}  # fmt: skip
COUNT = 60


def rows(kind):
    """32x32: the class is in the mean color, or only in the direction of fine stripes."""
    draw = np.random.default_rng(7)
    y, x = np.mgrid[:32, :32]
    for number in range(COUNT):
        label = int(number >= COUNT // 2)
        if kind == "color":
            pixels = np.full((32, 32, 3), 128.0)
            pixels[..., 0] += 70 * (2 * label - 1)
        else:
            along = x if label else y
            pixels = 128 + 100 * np.sin(np.pi * along * 0.9 + draw.uniform(0, 6))[..., None]
            pixels = np.repeat(pixels, 3, axis=2)
        pixels += draw.normal(0, 6, pixels.shape)
        file = io.BytesIO()
        Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(file, "JPEG", quality=92)
        yield {"id": f"{number:03d}.jpg", "image": file.getvalue(), "label": label}


@pytest.mark.parametrize(("kind", "lowest"), [("color", 1), ("stripes", 2)])
def test_the_tuner_reads_what_the_classes_need(tmp_path, monkeypatch, kind, lowest):
    monkeypatch.setattr(steps, "WIDTH", 4)
    place = str(tmp_path / "d")
    records.write(rows(kind), place, record_size=16, quality_images=0, threads=1)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    found = steps.train(place, None, **SETTINGS)
    torch.set_num_threads(threads)
    chosen = [row["fidelity"] for row in found["epochs"]]
    assert chosen[0] == chosen[-1] == 5
    assert (min(chosen) == 1) == (lowest == 1)
    # Bytes are those of the regions, to the byte.
    groups = records.info(place).groups
    assert [row["bytes"] for row in found["epochs"]] == [groups[g - 1].bytes for g in chosen]
    full = len(chosen) * groups[-1].bytes
    assert found["saving"] == full / (found["bytes_read"] + found["probe_bytes"])
    assert found["tested"] == 12
    if kind == "color":
        assert chosen == [5, 1, 1, 5]
        assert found["accuracy"] == 1.0
