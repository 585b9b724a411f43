"""Bounds, groups, exponents and inputs, by definitions in NumPy, SciPy and Arrow."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, t
from torch import Tensor, nn

from holdfast import cli
from holdfast.errors import InputError
from holdfast.profile.ops.fewer_bits import GROUP, Int4Linear, quantization
from holdfast.profile.ops.hardware import HARDWARE, TYPES, Hardware, hardware
from holdfast.profile.ops.inputs import read_settings, read_tensor, read_values
from holdfast.profile.ops.profiling import combine, profile
from holdfast.profile.ops.roofline import LIMITS, Roofline, grouped, roofline
from holdfast.profile.ops.running import Workload
from holdfast.profile.ops.sweeps import sweep

# --- Bounds --------------------------------------------------------------------------------------

COUNT = st.integers(0, 10**12)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "op_class": st.sampled_from(["linear", "attention", "memory"]),
            "flops": COUNT,
            "vector_flops": COUNT,
            "bytes": COUNT,
            "calls": st.integers(1, 9),
            "dtype": st.sampled_from(["float32", "bfloat16", "int64", ""]),
            "seconds": st.one_of(st.none(), st.floats(1e-6, 1.0)),
        }
    ),
    max_size=8,
)
RATE = st.floats(1e3, 1e15)
MACHINES = st.builds(
    Hardware,
    st.fixed_dictionaries({"float32": RATE}, optional={"bfloat16": RATE}),
    RATE,
    RATE,
    st.one_of(RATE, st.just(math.inf)),
)


@given(ROWS, MACHINES)
@pytest.mark.examples(40)
def test_bounds_by_definition(rows: list[dict[str, Any]], machine: Hardware) -> None:
    """Williams et al. 2009, with a ceiling for vectors: the largest of three quotients."""
    roof = roofline(rows, machine)
    for row, found in zip(rows, roof.ops, strict=True):
        peak = machine.peaks.get(row["dtype"], machine.peaks["float32"])
        times = (
            row["flops"] / peak,
            row["vector_flops"] / machine.vector_peak,
            row["bytes"] / machine.bandwidth,
        )
        assert found["bound_s"] == max(times)
        assert times[LIMITS.index(found["limit"])] == max(times)
    assert roof.bound_s == pytest.approx(sum(row["bound_s"] for row in roof.ops))
    shares = [roof.share(limit) for limit in LIMITS]
    assert sum(shares) == pytest.approx(1 if roof.bound_s else 0)
    classes = roof.by("op_class")
    assert sum(row["bound_s"] for row in classes) == pytest.approx(roof.bound_s)
    assert [row["bound_s"] for row in classes] == sorted(row["bound_s"] for row in classes)[::-1]
    for row in classes:
        own = [each for each in roof.ops if each["op_class"] == row["op_class"]]
        work = sum(each["flops"] + each["vector_flops"] for each in own)
        moved = sum(each["bytes"] for each in own)
        assert row["intensity"] == (work / moved if moved else None)
        parts = {
            limit: sum(each["bound_s"] for each in own if each["limit"] == limit)
            for limit in LIMITS
        }
        assert row["limit_share"] == pytest.approx(max(parts.values()) / (row["bound_s"] or 1))
        seconds = [each["seconds"] for each in own]
        assert ("efficiency" in row) == (None not in seconds and sum(seconds) > 0)
        if "efficiency" in row:
            assert row["efficiency"] == pytest.approx(row["bound_s"] / sum(seconds))


@given(ROWS, MACHINES, st.sampled_from([2.0, 0.25]))
@pytest.mark.examples(20)
def test_a_machine_that_is_faster_throughout(
    rows: list[dict[str, Any]], machine: Hardware, factor: float
) -> None:
    peaks = {name: peak * factor for name, peak in machine.peaks.items()}
    rates = machine.bandwidth * factor, machine.memory_bytes, machine.vector_peak * factor
    faster, slower = roofline(rows, Hardware(peaks, *rates)), roofline(rows, machine)
    assert faster.bound_s == slower.bound_s / factor  # factors are powers of 2
    assert [row["limit"] for row in faster.ops] == [row["limit"] for row in slower.ops]
    assert roofline(rows[::-1], machine).bound_s == pytest.approx(slower.bound_s)


@given(ROWS)
@pytest.mark.examples(30)
def test_groups_are_those_of_arrow(rows: list[dict[str, Any]]) -> None:
    by, add = ("op_class", "dtype"), ("flops", "bytes", "calls")
    found = grouped(rows, by, (*add, "absent"))
    if not rows:
        assert found == []
        return
    table = pa.Table.from_pylist(rows)
    sums = table.group_by(by, use_threads=False).aggregate([(name, "sum") for name in add])
    expected = {(row.pop("op_class"), row.pop("dtype")): row for row in sums.to_pylist()}
    assert [tuple(row[name] for name in by) for row in found] == list(
        dict.fromkeys(tuple(row[name] for name in by) for row in rows)
    )
    for row in found:
        own = expected.pop((row["op_class"], row["dtype"]))
        assert {f"{name}_sum": row[name] for name in add} == own
    assert not expected


def test_published_balances() -> None:
    """FLOP per byte at which 16-bit products become limited by compute: NVIDIA's own quotients.

    312 TFLOP/s and 2,039 GB/s of an A100; 989 and 3.35 of an H100; 989 and 4.8 of an H200; 121 and 300
    of an L4; Google's 197 TFLOP/s and 819 GB/s of a TPU v5e, 459 and 2,765 of a v5p.
    """
    for name, balance in {
        "a100-sxm-80gb": 153,
        "h100-sxm": 295,
        "h200-sxm": 206,
        "l4": 403,
        "tpu-v5e": 241,
        "tpu-v5p": 166,
    }.items():
        machine = HARDWARE[name]
        assert round(machine.peak("bfloat16") / machine.bandwidth) == balance
        for sides, limit in ((balance // 6, "memory"), (balance * 6, "compute")):
            work = {"flops": 2 * sides**3, "vector_flops": 0, "bytes": 3 * 2 * sides**2}
            product = work | {"calls": 1, "dtype": "bfloat16", "op_class": "linear"}
            (row,) = roofline([product], machine).by("op_class")
            assert row["limit"] == limit
            # Of a square product n^3 FLOPs meet 3 n^2 elements of 2 bytes: n / 3 FLOP per byte.
            assert row["intensity"] == pytest.approx(sides / 3)


@given(
    st.lists(st.tuples(st.integers(1, 10**6), RATE), max_size=5, unique_by=lambda level: level[0]),
    st.integers(0, 10**7),
)
@pytest.mark.examples(40)
def test_bandwidth_of_a_working_set_by_a_search(
    levels: list[tuple[int, float]], working_set: int
) -> None:
    levels.sort()
    machine = Hardware({"float32": 1.0}, 7.0, 1.0, levels=levels)
    fitting = [rate for size, rate in levels if 2 * size <= working_set] or [
        rate for _, rate in levels[:1]
    ]
    assert machine.bandwidth_of(working_set) == (fitting[-1] if fitting else 7.0)


@given(st.dictionaries(st.sampled_from(TYPES), RATE, min_size=1), st.sampled_from(TYPES))
@pytest.mark.examples(30)
def test_peak_of_a_type(peaks: dict[str, float], dtype: str) -> None:
    peak = Hardware(peaks, 1.0, 1.0).peak(dtype)
    assert peak == peaks.get(dtype, peaks.get("float32", min(peaks.values())))


@pytest.mark.parametrize("form", ["toml", "json"])
def test_a_file_of_ceilings_is_the_machine(tmp_path: Path, form: str) -> None:
    path = tmp_path / f"mine.{form}"
    content = {"bandwidth": 5e11, "memory_bytes": 8e9, "vector_peak": 3e12}
    content |= {"peaks": {"float16": 9e12}, "name": "mine too"}
    lines = [f"{key} = {value!r}" for key, value in content.items() if key not in ("peaks", "name")]
    toml = "\n".join([*lines, 'name = "mine too"', "[peaks]", "float16 = 9e12"])
    path.write_text(json.dumps(content) if form == "json" else toml)
    found = hardware(str(path))
    assert found == Hardware({"float16": 9e12}, 5e11, 8e9, 3e12, "mine too", str(path))


def test_parts_of_a_pipeline_are_called_as_often_as_they_say() -> None:
    one = profile(nn.Linear(4, 4), torch.empty(2, 4))
    other = profile(nn.LayerNorm(4), torch.empty(2, 4))
    parts = [("a", one, 3), ("b", other, 2), ("c", one, 1)]
    whole = combine(parts, "all")
    for name in ("flops", "vector_flops", "bytes"):
        assert getattr(whole, name) == sum(n * getattr(part, name) for _, part, n in parts)
    assert whole.roofline().bound_s == pytest.approx(
        sum(n * part.roofline().bound_s for _, part, n in parts)
    )
    assert whole.parameters == 20 + 8  # `one` is there twice, and held once
    twice = combine([("x", whole, 5)], "again")
    assert twice.flops == 5 * whole.flops
    assert isinstance(twice.roofline(), Roofline)


OPTIONS: dict[str, dict[str, Any]] = {
    "": {},
    "--training": {"training": True},
    "--attention math": {"attention": "math"},
    "--hw l4 --device fake": {"machine": "l4", "device": "fake"},
}


@pytest.mark.parametrize("words", OPTIONS)
def test_the_command_is_the_function(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--set", "d_model=16", "--set", "nhead=2", "--set", "dim_feedforward=8"]
    target = ["torch.nn:TransformerEncoderLayer", *sizes, "--input", "5x2x16", "--json"]
    assert cli._run(["profile", "ops", *target, *words.split()]) == 0
    answer = json.loads(capsys.readouterr().out)
    layer = nn.TransformerEncoderLayer(16, 2, 8).eval()
    made = profile(layer, torch.empty(5, 2, 16), **OPTIONS[words])
    expected = json.loads(json.dumps(made.to_dict()))
    for name in expected.keys() - {"target"}:
        assert answer[name] == expected[name]


# --- Growth --------------------------------------------------------------------------------------


class Attends(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.scaled_dot_product_attention(x, x, x) + 1


@pytest.mark.parametrize("values", [[16, 64], [8, 16, 32, 64], [7, 9, 30]])
def test_exponents_are_those_of_least_squares(values: list[int]) -> None:
    """By NumPy's polyfit, with the interval of the slope written out; FLOPs of attention exactly N^2."""
    found = sweep(lambda n: Workload(Attends(), (torch.empty(1, 2, n, 8),)), "n", values)
    points = {name: [row[name] for row in found.points] for name in found.points[0]}
    rows = {row["figure"]: row for row in found.exponents}
    assert rows["flops"]["exponent"] == pytest.approx(2, abs=1e-12)
    assert rows["attention_spatial_self"]["exponent"] == pytest.approx(2, abs=1e-12)
    assert rows["peak_bytes"]["exponent"] == pytest.approx(1, abs=1e-12)
    assert "parameters" not in rows  # it does not change
    x = np.log(values)
    for name in ("flops", "vector_flops", "bytes", "bound_s"):
        y = np.log(points[name])
        slope, offset = np.polyfit(x, y, 1)
        assert rows[name]["exponent"] == pytest.approx(slope, abs=1e-9)
        if len(values) == 2:
            assert rows[name]["low"] is None
            continue
        residual = ((y - slope * x - offset) ** 2).sum() / (len(x) - 2)
        reach = t.ppf(0.975, len(x) - 2) * math.sqrt(residual / ((x - x.mean()) ** 2).sum())
        assert rows[name]["high"] - rows[name]["low"] == pytest.approx(2 * reach, abs=1e-6)


@pytest.mark.parametrize("values", [[], [4], [4, 4], [0, 4], [-1, 4]])
def test_values_without_an_exponent_are_refused(values: list[int]) -> None:
    with pytest.raises(InputError) as refused:
        sweep(lambda n: Workload(Attends(), (torch.empty(1, 2, n, 8),)), "n", values)
    assert (refused.value.code, refused.value.place) == ("invalid-value", "--over")


# --- Inputs --------------------------------------------------------------------------------------

NAMED = ("float32", "float64", "bfloat16", "float16", "int64", "int8", "bool", "complex64")


@given(st.lists(st.integers(0, 99), min_size=1, max_size=5), st.sampled_from(["", *NAMED]))
@pytest.mark.examples(30)
def test_a_tensor_is_what_its_text_says(sides: list[int], dtype: str) -> None:
    text = "x".join(map(str, sides)) + (f":{dtype}" if dtype else "")
    expected = (tuple(sides), getattr(torch, dtype or "float32"))
    for spec in (text, *([] if dtype else [sides])):
        tensor = read_tensor(spec, {}, "here")
        assert ((*tensor.shape,), tensor.dtype) == expected
        assert tensor.is_meta
    sizes = {f"S{n}": side for n, side in enumerate(sides)}
    by_name = read_tensor("x".join(sizes) + (f":{dtype}" if dtype else ""), sizes, "here")
    assert ((*by_name.shape,), by_name.dtype) == expected


@pytest.mark.parametrize("value", [None, True, 7, 0.5, -3])
def test_what_is_not_a_tensor_is_passed_on(value: Any) -> None:
    assert read_tensor(value, {}, "here") is value


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "invalid-syntax"),
        ("3x-4", "invalid-syntax"),
        ("3x4:", "invalid-syntax"),
        ("3x4:int64:int8", "invalid-syntax"),
        ("3x", "invalid-value"),
        ("x3", "invalid-value"),
        ("3xx4", "invalid-value"),
        ("3x٣", "invalid-value"),
        ("NxN", "invalid-value"),
        ("3:Tensor", "unknown-name"),
        ("3:nn", "unknown-name"),
        ("9999999999x9999999999", "out-of-range"),
    ],
)
def test_texts_that_are_not_tensors(text: str, code: str) -> None:
    with pytest.raises(InputError) as refused:
        read_tensor(text, {}, "here")
    assert (refused.value.code, refused.value.place) == (code, "here")


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text("abc ", max_size=4)),
    lambda part: st.lists(part, max_size=2),
    max_leaves=3,
)


@given(st.dictionaries(st.text("aZ_9é", min_size=1, max_size=4), JSON, max_size=4))
@pytest.mark.examples(30)
def test_settings_are_json(values: dict[str, Any]) -> None:
    values = {name: value for name, value in values.items() if name.isidentifier()}
    texts = [f"{name}={json.dumps(value)}" for name, value in values.items()]
    assert read_settings(texts) == values


@pytest.mark.parametrize("text", ["", "=1,2", "a", "a=", "a=1,", "a=1;2", "a b=1", "a=true,2"])
def test_values_of_a_sweep_are_numbers(text: str) -> None:
    with pytest.raises(InputError) as refused:
        read_values(text)
    assert (refused.value.code, refused.value.place) == ("invalid-syntax", "--over")


# --- Fewer bits ----------------------------------------------------------------------------------


class Reverses(nn.Module):
    """Answers some sequences rightly: logits of the successor that a table says."""

    def __init__(self, successors: Tensor) -> None:
        super().__init__()
        self.table = nn.Embedding.from_pretrained(10.0 * nn.functional.one_hot(successors).float())
        self.head = nn.Linear(successors.numel(), successors.numel(), bias=False)
        nn.init.eye_(self.head.weight)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.table(ids))


@pytest.mark.parametrize("right", [0, 3, 7])
def test_scores_of_a_model_that_is_right_on_some_sequences(
    right: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Token n is followed by n + 1; sequences that do so are answered rightly, whatever the level."""
    ids = torch.arange(5) + torch.arange(7)[:, None]  # [7, 5]
    ids[right:, -1] = 31  # not what follows
    target = Reverses((torch.arange(32) + 1) % 32), ids, 2
    monkeypatch.setattr("holdfast.profile.ops.fewer_bits.load", lambda name: lambda: target)
    monkeypatch.setattr("holdfast.profile.ops.fewer_bits.fastest", lambda call, budget: 0.5)
    result = quantization("a:b", "bf16,int8-dynamic,int4-weight", new_tokens=2)
    interval = binomtest(right, 7).proportion_ci(0.95, method="exact")
    for row in result.rows:
        assert row["score"] == right / 7
        assert (row["low"], row["high"]) == pytest.approx((interval.low, interval.high), abs=1e-9)
        assert row["agreement"] == 1
        assert (row["prefill_s"], row["tokens_per_s"]) == (0.5, 4.0)


@given(st.integers(1, 3), st.integers(1, 3), st.sampled_from(["normal", "constant", "zero", "far"]))
@pytest.mark.examples(12)
def test_four_bits_lose_at_most_half_a_step(outputs: int, groups: int, kind: str) -> None:
    linear = nn.Linear(GROUP * groups, 16 * outputs)
    random = torch.Generator().manual_seed(outputs + 7 * groups)
    with torch.no_grad():
        linear.weight.normal_(generator=random)
        linear.weight *= {"normal": 1, "constant": 0, "zero": 0, "far": 1e3}[kind]
        linear.weight += {"constant": 0.3}.get(kind, 0.0)
        kept = Int4Linear(linear)(torch.eye(GROUP * groups)) - linear.bias  # the weights, [in, out]
    w = linear.weight.detach().unflatten(1, (-1, GROUP))
    step = (w.amax(2) - w.amin(2)) / 15
    lost = (kept.T.unflatten(1, (-1, GROUP)) - w).abs().amax(2)
    assert bool((lost <= step / 2 + 1e-5 * w.abs().amax()).all())
