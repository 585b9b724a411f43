"""Distances and sketches of weights: scipy's W1, shifts, tied and resumed models, damaged files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from safetensors.torch import save_file
from scipy.stats import wasserstein_distance
from torch import nn

from holdfast.errors import InputError
from holdfast.profile.numerics import WeightTracker, distances, track_diff
from holdfast.profile.numerics.distances import distance, positions
from holdfast.profile.numerics.tracker import load, sketch_files
from holdfast.report import render

SEED = np.random.default_rng(0)


class Model(nn.Module):
    """Tied weights, a small tensor and one larger than a sketch."""

    def __init__(self, width: int = 40) -> None:
        super().__init__()
        self.embedding = nn.Embedding(60, width)
        self.norm = nn.LayerNorm(width)
        self.decoder = nn.Linear(width, 60)
        self.decoder.weight = self.embedding.weight
        self.register_buffer("steps", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.decoder(self.norm(self.embedding(x)))


def train(folder: Path | None, rate: float = 0.1, steps: int = 6, every: int = 2) -> Model:
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    if folder:
        WeightTracker(model, every=every, dir=folder).attach(optimizer)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.arange(60)).square().mean().backward()
        optimizer.step()
    return model


@given(arrays(np.float32, 300, elements=st.floats(-100, 100, width=32)), st.integers(0, 9))
def test_w1_is_scipys_and_at_most_the_paired_distance(a: np.ndarray, seed: int) -> None:
    b = np.random.default_rng(seed).permutation(a) + np.float32(0.5) * (seed % 2)
    found = distance(a, b)
    assert found.w1 == pytest.approx(wasserstein_distance(a, b), rel=1e-12, abs=1e-12)
    assert found.w1 <= found.paired_mean + 1e-12
    assert found.paired_mean <= found.paired_max


@pytest.mark.parametrize("kind", [np.float32, pytest.param(np.float64, marks=pytest.mark.full)])
def test_w1_of_large_samples_is_exact(kind: type) -> None:
    a, b = (SEED.standard_normal(20_001).astype(kind) for _ in range(2))
    assert abs(distance(a, b).w1 - wasserstein_distance(a, b)) < 1e-12
    assert distance(a, a[::-1]).w1 == 0 < distance(a, a[::-1]).paired_mean


def test_the_compiled_sort_is_numpys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distances, "LARGE", 1)
    x = SEED.standard_normal(5000).astype(np.float32)
    x[:6] = [0.0, -0.0, 1e-45, -1e-45, 3e38, -3e38]
    assert np.array_equal(distances.ascending(x), np.sort(x))


def test_mid_quantiles() -> None:
    assert list(positions(3)) == [0, 1, 2]
    assert list(positions(2048)[:3]) == [1, 3, 5]
    assert positions(10**10)[-1] == 10**10 - 10**10 // 2048 - 1


def test_a_shift_gives_its_size_from_sketches(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Linear(64, 64).double()
    WeightTracker(model, every=1, dir=tmp_path / "a").step()
    with torch.no_grad():
        model.weight += 1e-9
    WeightTracker(model, every=1, dir=tmp_path / "b").step()
    rows = {row["tensor"]: row for row in track_diff(tmp_path / "a", tmp_path / "b").rows}
    assert rows["weight"]["w1"] == pytest.approx(1e-9, rel=1e-6)
    assert rows["weight"]["paired_max"] == pytest.approx(1e-9, rel=1e-6)
    assert (rows["weight"]["exact"], rows["bias"]["exact"], rows["bias"]["w1"]) == (False, True, 0)


def test_sketches_are_within_a_percent_of_exact(tmp_path: Path) -> None:
    torch.manual_seed(0)
    a, b = nn.Linear(400, 500), nn.Linear(400, 500)
    with torch.no_grad():
        a.weight.normal_(0, 1)
        b.weight.normal_(0.02, 1.1)
    for name, model in (("a", a), ("b", b)):
        WeightTracker(model, every=1, dir=tmp_path / name).step()
    row = track_diff(tmp_path / "a", tmp_path / "b").rows[0]
    exact = wasserstein_distance(a.weight.detach().flatten(), b.weight.detach().flatten())
    assert row["w1"] == pytest.approx(exact, rel=0.01)
    rms = a.weight.detach().square().mean().sqrt().item()
    assert row["rms"] == pytest.approx(rms, rel=1e-5)


def test_runs_are_compared_step_by_step_with_a_reference(tmp_path: Path) -> None:
    for name, rate in (("a", 0.1), ("b", 0.11), ("c", 0.2)):
        train(tmp_path / name, rate)
    found = track_diff(tmp_path / "a", tmp_path / "b", reference=tmp_path / "c")
    assert found.steps == [2, 4, 6]
    assert {row["tensor"] for row in found.rows} == {
        "embedding.weight", "norm.weight", "norm.bias", "decoder.bias",
    }  # fmt: skip
    assert 0 < found.totals[-1]["of_reference"] < 0.5
    assert "embedding.weight" in render(found.page())
    sketch = load(sketch_files(tmp_path / "a")[6])
    assert "decoder.weight" not in sketch.names  # tied to the embedding
    assert (sketch.statistics[:, 1] > 0).any()


def test_update_ratios_are_those_of_the_last_step(tmp_path: Path) -> None:
    model = nn.Linear(4, 4, bias=False)
    tracker = WeightTracker(model, every=10, dir=tmp_path)
    with torch.no_grad():
        model.weight *= 1.5
    tracker.step()
    assert tracker.update_ratios["weight"] == pytest.approx(1 / 3)
    tracker.step()
    assert tracker.update_ratios["weight"] == 0


def test_a_resumed_run_replaces_the_steps_that_come_again(tmp_path: Path) -> None:
    model = train(tmp_path)
    assert list(sketch_files(tmp_path)) == [2, 4, 6]
    with pytest.raises(InputError) as caught:
        WeightTracker(model, every=2, dir=tmp_path)
    assert caught.value.code == "output-exists"
    tracker = WeightTracker(model, every=2, dir=tmp_path, resume_from=4)
    assert list(sketch_files(tmp_path)) == [2, 4]
    tracker.step()
    tracker.step()
    assert list(sketch_files(tmp_path)) == [2, 4, 6]


@pytest.mark.parametrize("change", ["cut", "other"])
def test_damaged_sketches_are_refused(tmp_path: Path, change: str) -> None:
    train(tmp_path)
    path = sketch_files(tmp_path)[4]
    data = path.read_bytes()
    if change == "cut":
        path.write_bytes(data[:-100])
    else:
        save_file({"a": torch.ones(2)}, path)
    with pytest.raises(InputError) as caught:
        track_diff(tmp_path, tmp_path)
    assert caught.value.code == ("unknown-format" if change == "other" else "damaged")
    assert caught.value.path == str(path)


def test_weights_that_are_not_finite_are_counted(tmp_path: Path) -> None:
    model = nn.Linear(50, 50)
    WeightTracker(model, every=1, dir=tmp_path / "a").step()
    with torch.no_grad():
        model.weight[0, 0] = torch.nan
        model.bias[3] = torch.inf
    WeightTracker(model, every=1, dir=tmp_path / "b").step()
    found = track_diff(tmp_path / "a", tmp_path / "b")
    assert [row["non_finite"] for row in found.rows] == [1, 1]
    assert [row["w1"] for row in found.rows] == [None, None]
    assert found.rows[0]["paired_mean"] == 0
    assert len(found.unknowns()) == 1
    assert render(found.page())


def test_checkpoints_are_compared_exactly(tmp_path: Path) -> None:
    a, b = train(None), train(None, 0.2)
    torch.save({"epoch": 3, "state_dict": a.state_dict()}, tmp_path / "a.pt")
    save_file({k: v.clone() for k, v in b.state_dict().items() if k != "norm.bias"}, tmp_path / "b")
    found = track_diff(tmp_path / "a.pt", tmp_path / "b")
    row = next(row for row in found.rows if row["tensor"] == "embedding.weight")
    x, y = (m.embedding.weight.detach().flatten().double().numpy() for m in (a, b))
    assert row["w1"] == pytest.approx(wasserstein_distance(x, y), abs=1e-12)
    assert (row["exact"], row["paired_max"]) == (True, np.abs(x - y).max())
    assert found.unmatched == ["norm.bias"]


@pytest.mark.parametrize(
    ("second", "code"),
    [
        ({"other": torch.ones(3)}, "name-mismatch"),
        ({"a": torch.ones(4)}, "shape-mismatch"),
        (b"PK\x03\x04 half a zip", "damaged"),
        (b"text", "unknown-format"),
        (None, "not-found"),
        ("folder", "conflict"),
    ],
)
def test_what_cannot_be_compared_is_refused(tmp_path: Path, second: object, code: str) -> None:
    save_file({"a": torch.ones(3)}, tmp_path / "a")
    path = tmp_path / "b"
    if isinstance(second, dict):
        save_file(second, path)
    elif isinstance(second, bytes):
        path.write_bytes(second)
    elif second == "folder":
        path.mkdir()
    with pytest.raises(InputError) as caught:
        track_diff(tmp_path / "a", path)
    assert caught.value.code == code


def test_runs_without_a_common_step_are_refused(tmp_path: Path) -> None:
    train(tmp_path / "a", every=2, steps=2)
    train(tmp_path / "b", every=3, steps=3)
    with pytest.raises(InputError) as caught:
        track_diff(tmp_path / "a", tmp_path / "b")
    assert (caught.value.code, caught.value.found, caught.value.expected) == ("no-match", "3", "2")
