"""Loss spikes: a corpus with known onsets, what becomes of each, exported curves, bad files."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from holdfast.errors import InputError
from holdfast.profile.numerics import SpikeDetector, spikes
from holdfast.report import render

TRENDS = {
    "flat": lambda t: 3.0 + 0 * t,
    "power": lambda t: 2 + 8 * (t + 10) ** -0.3,
    "exponential": lambda t: 2.5 + 7 * np.exp(-t / 800),
    "fast": lambda t: 0.5 + 10 * np.exp(-t / 60),
}


def curve(trend: str, noise: float, steps: int, seed: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    return TRENDS[trend](np.arange(steps)) + noise * generator.standard_normal(steps)


def with_spikes(x: np.ndarray, noise: float, seed: int) -> tuple[np.ndarray, list[int]]:
    """Spikes of 9 to 30 times the noise: single batches, plateaus, decays, ramps; and their onsets."""
    generator = np.random.default_rng(seed)
    y, onsets = x.copy(), []
    for first in range(200, len(x) - 200, 300):
        at, length = first + int(generator.integers(80)), int(generator.choice([1, 6, 25, 60]))
        t = np.arange(length)
        shapes = (
            np.ones(length),
            np.exp(-3 * t / length),
            np.minimum(1, (t + 1) / max(1, length / 5)) * np.exp(-2 * t / length),
        )
        shape = shapes[generator.integers(3)]
        y[at : at + length] += noise * generator.uniform(9, 30) * shape / shape.max()
        onsets.append(at)
    return y, onsets


def detect(losses: np.ndarray, **options: int) -> SpikeDetector:
    detector = SpikeDetector(**options)
    for step, loss in enumerate(losses):
        detector.update(step, float(loss))
    return detector


@pytest.mark.parametrize(
    ("trends", "noises"),
    [(["power"], [0.1]), pytest.param(list(TRENDS), [0.01, 0.1], marks=pytest.mark.full)],
)
def test_the_corpus_of_known_onsets(trends: list[str], noises: list[float]) -> None:
    found = injected = false = steps = 0
    for n, trend in enumerate(trends):
        for noise in noises:
            clean = curve(trend, noise, 2500, n)
            false += len(detect(clean).events)
            losses, onsets = with_spikes(clean, noise, n)
            starts = [event.step for event in detect(losses).events]
            # A ramp rises out of the noise some steps after it began.
            hits = [any(at - 1 <= start <= at + 15 for start in starts) for at in onsets]
            found, injected, steps = found + sum(hits), injected + len(hits), steps + len(clean)
    assert found / injected >= 0.95
    assert false <= steps / 10_000


@pytest.mark.full
@pytest.mark.parametrize("trend", TRENDS)
def test_long_clean_curves_have_at_most_one_false_alarm_in_ten_thousand_steps(trend: str) -> None:
    assert sum(len(detect(curve(trend, 0.05, 10_000, seed)).events) for seed in range(5)) <= 5


def test_a_spike_is_told_as_it_begins_and_as_it_ends() -> None:
    losses = curve("flat", 0.01, 400, 0)
    losses[200:210] += 1
    detector = SpikeDetector()
    said = []
    for step, loss in enumerate(losses):
        layers = {"a": 0.01, "b": 0.5 if step == 200 else 0.02, "c": math.nan}
        event = detector.update(step, float(loss), batch=step * 2, update_ratios=layers)
        said += [(step, event.state)] if event else []
    assert said == [(200, "spike"), (211, "recovered")]
    (event,) = detector.events
    assert (event.step, event.batch, event.layer, event.update_ratio) == (200, 400, "b", 0.5)
    assert (event.end_step, event.signal, event.peak_step in range(200, 210)) == (210, "loss", True)
    assert detector.spike_steps == 10


def test_divergence_nan_and_what_follows() -> None:
    losses = curve("flat", 0.01, 900, 0)
    losses[200:] += 2
    losses[600:605] = math.nan
    losses[700] = math.inf
    losses[800] += 1
    events = detect(losses).events
    assert [(e.step, e.state, e.end_step) for e in events] == [
        (200, "diverged", 328),
        (600, "nan", 605),
        (700, "nan", 701),
        (800, "recovered", 801),
    ]
    assert events[1].z is None


LATE = np.maximum(0, np.arange(2400) - 1200)
RESTART = 0.8 * (1 - np.arange(300) / 300)
# Name -> what a power-law curve is multiplied by and raised by, the distance of its steps, its events.
COURSES = {
    "exponential": (np.exp(LATE / 400), 0, 1, ["diverged"]),
    "steep": (np.exp(np.minimum(LATE / 20, 600)), 0, 10, ["diverged"]),
    "slow": (1, np.minimum(LATE / 500, 2), 1, ["diverged"]),
    "warm restarts": (1, np.tile(np.pad(RESTART, (300, 200)), 3), 10, ["recovered"] * 3),
    "returns late": (1, np.pad(np.full(400, 2.0), (1000, 1000)), 1, ["recovered"]),
}


@pytest.mark.parametrize("name", COURSES)
def test_slow_divergence_and_warm_restarts(name: str) -> None:
    factor, rise, every, states = COURSES[name]
    losses = curve("power", 0.03, 2400, 0) * factor + rise
    detector = SpikeDetector()
    for n, loss in enumerate(losses):
        detector.update(n * every, float(loss))
    assert [event.state for event in detector.events] == states
    if states == ["diverged"]:
        assert 1100 <= detector.events[0].step / every <= 1220
        assert detector.level > 1.5 * detector.lowest


@pytest.mark.parametrize(("plateau", "slope"), [(0, 1 / 2000), (1500, 1 / 500), (1500, 1 / 2000)])
def test_a_slow_rise_is_dated_by_its_start_however_long_the_plateau_before(
    plateau: int, slope: float
) -> None:
    steps, start = np.arange(plateau + 2000), 400 + plateau
    noise = 0.05 * np.random.default_rng(0).standard_normal(len(steps))
    fall, rise = np.maximum(400 - steps, 0) / 200, np.maximum(steps - start, 0) * slope
    (event,) = detect(3 + fall + rise + noise).events
    assert event.state == "diverged"
    assert abs(event.step - start) <= 96  # less than a window of 128


@pytest.mark.parametrize(
    ("halved", "slope", "seed"), [(100, 1 / 250, 2), (160, 1 / 250, 0), (300, 1 / 150, 1)]
)
def test_a_slow_rise_after_a_descent_is_found(halved: float, slope: float, seed: int) -> None:
    steps = np.arange(700)
    noise = 0.04 * np.random.default_rng(seed).standard_normal(len(steps))
    curve = 1.5 + 3 * 0.5 ** (steps / halved) + noise
    assert not detect(curve).events
    (event,) = detect(curve + np.maximum(steps - 350, 0) * slope).events
    assert event.state == "diverged"
    assert abs(event.step - 350) <= 96


@pytest.mark.parametrize("stretch", [slice(500, None), slice(500, 900, 3)])
def test_a_stretch_of_nan_is_one_event(stretch: slice) -> None:
    losses = curve("power", 0.03, 1200, 0)
    losses[stretch] = math.nan
    assert [(e.step, e.state) for e in detect(losses).events] == [(500, "nan")]


def test_a_run_that_only_becomes_nan_before_there_is_history() -> None:
    (event,) = detect(np.array([2.0, 1.9, math.nan, math.nan])).events
    assert (event.step, event.state, event.end_step) == (2, "nan", None)


def test_the_gradient_norm_shows_spikes_that_the_loss_does_not() -> None:
    generator = np.random.default_rng(0)
    norms = np.exp(0.3 * generator.standard_normal(400))
    norms[250] = 50
    detector = SpikeDetector()
    for step, (loss, norm) in enumerate(zip(curve("flat", 0.1, 400, 0), norms, strict=True)):
        detector.update(step, float(loss), float(norm))
    (event,) = detector.events
    assert (event.signal, event.step, event.value) == ("grad_norm", 250, 50)
    assert 0.5 < event.expected < 2


def test_a_rise_is_dated_from_where_it_left_the_noise() -> None:
    losses = curve("flat", 0.01, 300, 1)
    losses[200:203] = [3.045, 3.045, 4]
    (event,) = detect(losses).events
    assert (event.step, event.detected_step) == (200, 202)


def exported(path: Path, header: str, rows: list[str]) -> Path:
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def test_curves_of_tensorboard_and_wandb(tmp_path: Path) -> None:
    losses = curve("flat", 0.01, 300, 0)
    losses[200] += 1
    board = [f"{1e9 + n},{10 * n},{x}" for n, x in enumerate(losses)]
    found = spikes(exported(tmp_path / "tb.csv", "Wall time,Step,Value", board))
    assert found.curve.columns == {"step": "Step", "loss": "Value"}
    assert [event["step"] for event in found.events] == [2000]
    header = '"Step","a - b - train/loss","a - b - train/loss__MIN","a - b - train/loss__MAX"'
    wandb = [f'{n},"{x}","{x}","{x}"' for n, x in enumerate(losses)]
    wandb.insert(50, '"50","","",""')
    found = spikes(exported(tmp_path / "wb.csv", header, wandb))
    assert (found.steps, found.curve.without_loss, len(found.events)) == (300, 1, 1)
    assert "step 200: recovered" in render(found.page())
    assert "drawn" not in found.to_dict()


def test_a_resumed_run_replaces_the_steps_that_were_lost(tmp_path: Path) -> None:
    rows = [f"{n},1.0" for n in (*range(100), *range(60, 120))]
    found = spikes(exported(tmp_path / "c.csv", "step,loss", rows))
    assert (found.steps, found.curve.replayed, found.events) == (120, 40, [])
    assert len(found.unknowns()) == 1


@pytest.mark.parametrize("resumed", [False, True])
def test_files_with_the_newest_row_first_are_read_from_the_end(
    resumed: bool, tmp_path: Path
) -> None:
    losses = curve("flat", 0.01, 300, 0)
    losses[200] += 1
    steps = [*range(250), *range(120, 300)] if resumed else [*range(300)]
    rows = [f"{n},{losses[n]}" for n in steps]
    ascending, descending = (
        spikes(exported(tmp_path / name, "step,loss", order))
        for name, order in (("a.csv", rows), ("d.csv", rows[::-1]))
    )
    assert descending.events == ascending.events
    assert [event["step"] for event in descending.events] == [200]
    assert descending.curve.replayed == ascending.curve.replayed == 130 * resumed


def test_rows_in_no_order_are_sorted_by_step(tmp_path: Path) -> None:
    losses = curve("flat", 0.01, 301, 0)
    losses[200] += 1
    rows = [f"{n},{losses[n]}" for n in np.random.default_rng(0).permutation(301)]
    found = spikes(exported(tmp_path / "c.csv", "step,loss", rows))
    assert [event["step"] for event in found.events] == [200]
    assert (found.steps, found.curve.replayed) == (301, 0)


@pytest.mark.full
def test_noise_with_heavy_tails_gives_few_false_alarms() -> None:
    false = 0
    for seed in range(5):
        noise = np.random.default_rng(seed).standard_t(5, 10_000)
        false += len(detect(3 + 0.05 * noise).events)
    assert false <= 7  # about one in 10,000 steps


def test_few_values_are_said_to_be_too_few(tmp_path: Path) -> None:
    found = spikes(exported(tmp_path / "c.csv", "loss", ["1", "2", "nan"]))
    assert (found.steps, found.events[0]["state"]) == (3, "nan")
    # Too few, and steps that are counted.
    stepped = spikes(exported(tmp_path / "c.csv", "step,loss", ["5,1", "6,2", "7,nan"]))
    assert (len(found.unknowns()), len(stepped.unknowns())) == (2, 1)


@pytest.mark.parametrize(
    ("header", "rows", "options", "code"),
    [
        ("step,accuracy", ["1,2"], {}, "missing-column"),
        ("step,loss", ["1,2"], {"loss": "train"}, "missing-column"),
        ("Step,a - loss,b - loss", ["1,2,3"], {}, "conflict"),
        ("step,loss", ["1,", "2,"], {}, "no-data"),
        ("step,loss", ["1,x", "2,3"], {}, "too-many-rejects"),
        ("", [], {}, "missing-column"),
        ("step,loss", ["1,2\r3,4", "5,6\x00,\r"], {}, "too-many-rejects"),
        ("step,loss", ["1," + "2" * 200_000], {}, "invalid-syntax"),
    ],
)
def test_bad_curves(
    tmp_path: Path, header: str, rows: list[str], options: dict[str, str], code: str
) -> None:
    with pytest.raises(InputError) as caught:
        spikes(exported(tmp_path / "c.csv", header, rows), **options)
    assert caught.value.code == code
    assert caught.value.path == str(tmp_path / "c.csv")


def test_tensors_of_a_training_loop_are_taken_as_numbers() -> None:
    torch = pytest.importorskip("torch")
    loss = np.random.default_rng(0).normal(2, 0.02, 300)
    loss[200:210] = 4
    plain, training = SpikeDetector(), SpikeDetector()
    for step, value in enumerate(loss.tolist()):
        wanted = plain.update(step, value, value)
        given = torch.tensor(value, dtype=torch.float64, requires_grad=True)
        assert training.update(step, given, given.detach()) == wanted
    assert plain.spike_steps == training.spike_steps > 0
