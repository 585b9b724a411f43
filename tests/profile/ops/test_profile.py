"""Totals, modules, fallbacks, ceilings, time and comparison of profiles."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional

from holdfast import report
from holdfast.errors import InputError
from holdfast.profile.ops import hardware as hardware_module
from holdfast.profile.ops.hardware import HARDWARE, Hardware, hardware
from holdfast.profile.ops.profiling import combine, profile

DATA = torch.randn(4, 8)


def made(module: nn.Module, *args: Any, **named: Any) -> Any:
    return profile(module, *args, **{"machine": "h100-sxm", "runs": 1, **named})


class Residual(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, 8))

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) + x


MODEL = nn.Sequential(Residual(), Residual(), nn.LayerNorm(8))


def test_classes_and_modules_sum_to_the_total() -> None:
    result = made(MODEL, DATA)
    rows = result.by_module()
    for name in ("flops", "vector_flops", "bytes"):
        total = getattr(result, name)
        assert total == sum(row[name] for row in result.by_class().values())
        assert total == sum(row[name] for row in rows)
    paths = {row["module"]: row for row in rows}
    linear = 2 * 4 * 8 * 8
    assert paths["0"]["flops"] == 0
    assert paths["0"]["total_flops"] == paths["0.inner"]["total_flops"] == 2 * linear
    assert paths[""]["total_flops"] == result.flops == 4 * linear
    assert paths["0"]["bytes"] == 3 * 128  # the addition alone
    assert result.parameters == 4 * 72 + 16
    assert len(result.to_frame()) == len(result.ops)


def test_live_memory() -> None:
    # At the addition the residual, the result of the branch and the sum are alive.
    result = made(Residual(8), DATA)
    assert result.peak_bytes == result.parameter_bytes + 3 * DATA.nbytes
    wide = made(Residual(800), DATA)
    assert wide.peak_bytes == wide.parameter_bytes + DATA.nbytes + 2 * 4 * 800 * 4


def test_shared_weights_count_once() -> None:
    first = nn.Linear(8, 8)
    result = made(nn.Sequential(first, first), DATA)
    assert result.parameters == 72
    assert result.flops == 2 * 512


@pytest.mark.parametrize("device", ["meta", "fake", "cpu"])
def test_modules_that_are_there_twice_keep_their_weights(device: str) -> None:
    first, norm = nn.Linear(8, 8), nn.BatchNorm1d(8)
    model = nn.Sequential(first, nn.Sequential(norm, first), nn.Linear(8, 8))
    model[2].weight, model.other = first.weight, model[1]
    kept = {name: each.clone() for name, each in model.state_dict(keep_vars=True).items()}
    made(model, DATA, device=device)
    found = model.state_dict(keep_vars=True)
    # Running means are those before the pass, too.
    assert all(torch.equal(found[name], each) for name, each in kept.items())
    assert model[2].weight is first.weight


@pytest.mark.parametrize("outside", [False, True])
def test_autocast_counts_what_it_casts(outside: bool) -> None:
    class Cast(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            with torch.autocast("cpu", torch.bfloat16, enabled=not outside):
                return self.linear(x)

    with torch.autocast("cpu", torch.bfloat16, enabled=outside):
        model = nn.Linear(8, 8) if outside else Cast()
        found = {device: made(model, DATA, device=device) for device in ("meta", "fake", "cpu")}
    [call] = [each for each in found["meta"].ops if each.flops]
    assert call.dtype == "bfloat16"
    assert found["meta"].notes
    assert len({result.bytes for result in found.values()}) == 1


@pytest.mark.parametrize("device", ["meta", "fake", "cpu"])
@pytest.mark.parametrize("attention", [False, True])
def test_autocast_of_another_device_casts_nothing_and_is_said(device: str, attention: bool) -> None:
    model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True) if attention else nn.Linear(8, 8)
    data = DATA[None] if attention else DATA
    expected = made(model, data)
    # What torch.autocast("cuda") does on a machine with a GPU, whatever device the model is on.
    torch.set_autocast_enabled("cuda", True)
    try:
        found = made(model, data, device=device)
    finally:
        torch.set_autocast_enabled("cuda", False)
    assert {op.dtype for op in found.ops if op.flops} == {"float32"}
    assert (found.flops, found.bytes) == (expected.flops, expected.bytes)
    assert any("their autocast" in note for note in found.notes)
    assert not expected.notes


@pytest.mark.parametrize("device", ["meta", "fake"])
@pytest.mark.parametrize("inputs", ["cuda", "meta"])
def test_autocast_of_the_models_own_device_is_followed(device: str, inputs: str) -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).requires_grad_(False)
    with torch.autocast("cpu", torch.float16):
        expected = made(model, DATA, device="fake")
    with FakeTensorMode():  # a model on a GPU, without one
        for part in (model[0], model[2]):
            for name, each in part.named_parameters():
                setattr(part, name, nn.Parameter(torch.empty(each.shape, device="cuda"), False))
        data = torch.empty(DATA.shape, device=inputs)
    torch.set_autocast_enabled("cuda", True)
    try:
        found = made(model, data, device=device)
    finally:
        torch.set_autocast_enabled("cuda", False)
    assert {op.dtype for op in found.ops if op.flops} == {"float16"}
    assert (found.flops, found.bytes) == (expected.flops, expected.bytes)
    assert not any("their autocast" in note for note in found.notes)


@pytest.mark.parametrize("device", ["meta", "cpu"])
@pytest.mark.parametrize(
    ("call", "moved"),
    [
        # The whole tensor is read and written, and the indices; in place the elements alone.
        (lambda x, i: x.index_add(0, i, x[:2]), 2 * 400 + 80 + 16),
        (lambda x, i: x.index_copy(0, i, x[:2]), 2 * 400 + 80 + 16),
        (lambda x, i: x.index_fill(0, i, 1.0), 2 * 400 + 16),
        (lambda x, i: x.scatter_add(0, i[:, None].expand(2, 10), x[:2]), 2 * 400 + 80 + 16),
        (lambda x, i: x.index_copy_(0, i, x.new_zeros(2, 10)), 80 + 2 * 80 + 16),
    ],
)
def test_bytes_of_scattered_values(call: Any, moved: int, device: str) -> None:
    class Scattering(nn.Module):
        def forward(self, x: Tensor, i: Tensor) -> Tensor:
            return call(x, i)

    result = profile(Scattering(), torch.randn(10, 10), torch.tensor([0, 3]), device=device)
    assert result.bytes == moved


def test_the_model_is_left_as_it_was() -> None:
    class Cached(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.table = nn.Linear(8, 8), None
            self.register_buffer("count", torch.zeros(()))

        def forward(self, x: Tensor) -> Tensor:
            if self.table is None:
                self.table = torch.arange(8, device=x.device, dtype=x.dtype)
            self.count += 1
            return self.linear(x) + self.table

    model, state = Cached(), torch.random.get_rng_state()
    before = model.linear.weight
    assert made(model, DATA).device == "meta"
    assert model.table is None
    assert model.linear.weight is before
    assert model.count == 0
    assert not model(DATA).is_meta
    assert torch.equal(state, torch.random.get_rng_state())


class Branch(nn.Module):
    """Looks at a value."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) if self.linear(x).sum().item() != 0 else x


def test_data_dependent_models_run_and_say_so() -> None:
    result = made(Branch(), DATA)
    assert result.device == "cpu"
    assert result.flops == 2 * 512
    assert [note for note in result.notes if "meta" in note]
    assert [note for note in result.notes if "CPU" in note]
    assert result.unknowns()
    with torch.device("meta"):
        huge = nn.Sequential(Branch(), nn.Linear(50_000, 50_000))
    with pytest.raises(InputError) as error:
        made(huge, DATA)
    assert error.value.code == "data-dependent"


def test_fake_tensors_where_meta_is_not_enough() -> None:
    class Kernel(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            if x.device.type != "cpu":
                raise NotImplementedError("no kernel for this device")
            return x @ x.t()

    result = made(Kernel(), DATA)
    assert (result.device, result.flops) == ("fake", 2 * 4 * 4 * 8)


@pytest.mark.parametrize(
    "model",
    [nn.Linear(7, 8), nn.Conv2d(3, 4, 3), nn.Bilinear(8, 8, 2), nn.Identity(unused=1).forward],
)
def test_wrong_inputs(model: Any) -> None:
    class Call(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return model(x, x, x)

    target = model if isinstance(model, nn.Module) else Call()
    with pytest.raises(InputError) as error:
        made(target, DATA)
    assert error.value.code == "invalid-value"
    assert "(4, 8) float32" in str(error.value)


@pytest.mark.full  # Dynamo's imports
@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_compiled_and_scripted_modules() -> None:
    plain = made(MODEL, DATA)
    compiled = made(torch.compile(MODEL), DATA)
    assert (compiled.flops, compiled.bytes) == (plain.flops, plain.bytes)
    assert [row["module"] for row in compiled.by_module()] == [
        row["module"] for row in plain.by_module()
    ]
    assert compiled.notes
    assert made(torch.jit.script(nn.Linear(8, 8)), DATA).flops == 512


def test_roofline_is_the_largest_of_three_ceilings() -> None:
    machine = Hardware({"float32": 100.0}, 1000.0, 0, 10.0, "toy", "test")
    result = made(nn.Sequential(nn.Linear(8, 8, bias=False), nn.GELU()), DATA, machine=machine)
    product, gelu = (row for row in result.roofline().ops if row["bytes"])
    assert product["bound_s"] == 512 / 100.0
    assert product["limit"] == "compute"
    assert gelu["bound_s"] == 5 * 32 / 10.0
    assert gelu["limit"] == "vector"
    assert "does not fit" in result.findings()[1].text  # into no memory at all
    slow = result.roofline(replace(machine, bandwidth=1.0))
    assert slow.bound_s == 128 + 256 + 128 + 2 * 128
    assert slow.share("memory") == 1
    assert sum(row["bound_s"] for row in slow.by("op_class")) == slow.bound_s


@pytest.mark.parametrize("bandwidth", [1.0, 6.0, 1000.0])
def test_no_limit_and_no_phase_without_its_number(bandwidth: float) -> None:
    """The same model reads as prefill or as decoding, by the machine: shares stand there, no name."""
    machine = Hardware({"float32": 100.0}, bandwidth, 10**9, 10.0, "toy", "test")

    class Attends(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            rows = functional.gelu(super().forward(x))[:, None]
            return functional.scaled_dot_product_attention(rows, rows, rows)

    model = Attends(8, 8)
    result = made(model, DATA, machine=machine, training=True)
    limited = [
        table for each in result.sections() for table in each.tables if "limit" in table.columns
    ]
    assert len(limited) == 3  # by class, by phase of training, by kind of attention
    for table in limited:
        assert table.columns["limit_share"].unit == "%"
        assert [bool(share) for share in table.data["limit_share"].to_pylist()] == [
            limit is not None for limit in table.data["limit"].to_pylist()
        ]
    ops = [row for row in result.roofline().ops if row["bound_s"]]
    for row in result.roofline().by("phase"):
        own = [each for each in ops if each["phase"] == row["phase"]]
        parts = {
            limit: sum(each["bound_s"] for each in own if each["limit"] == limit)
            for limit in ("compute", "vector", "memory")
        }
        assert parts[row["limit"]] == max(parts.values())
        assert row["limit_share"] == pytest.approx(parts[row["limit"]] / sum(parts.values()))
    told = "".join([each.text for each in result.findings()] + [str(result.document())]).lower()
    assert not re.search("prefill|decod", told)
    for share in ("compute_share", "memory_share", "products_compute_share"):
        assert 0 <= result.to_dict()["roofline"][share] <= 1
    views = made(nn.Flatten(), DATA, machine=machine).roofline().by("op_class")
    assert [(row["limit"], row["limit_share"]) for row in views] in ([], [(None, 0.0)])


def test_caches_have_their_own_bandwidth() -> None:
    levels = [(1000, 50.0), (10_000, 20.0), (100_000, 5.0)]
    machine = Hardware({"float32": 1.0}, 5.0, 0, 1.0, "toy", "test", levels)
    assert [machine.bandwidth_of(size) for size in (1, 5000, 20_000, 500_000)] == [
        50.0,
        50.0,
        20.0,
        5.0,
    ]


def test_hardware_table() -> None:
    for name, each in HARDWARE.items():
        assert each.name == name
        assert each.source
        assert each.peaks["bfloat16"] > each.peaks.get("float32", 0)
        assert ("float32" not in each.peaks) == math.isinf(each.vector_peak)
        assert each.peak("float32") >= min(each.vector_peak, each.peaks["bfloat16"])
        assert 1e11 < each.bandwidth < 1e13
    with pytest.raises(InputError) as error:
        hardware("h100")
    assert (error.value.code, error.value.found) == ("unknown-name", "h100")


def test_hardware_files(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("bandwidth = 1e3\nmemory_bytes = 5\n[peaks]\nfloat32 = 100\n")
    found = hardware(str(path))
    assert (found.name, found.peak("bfloat16"), found.bandwidth) == ("mine", 100, 1000)
    result = made(nn.Linear(8, 8, bias=False), DATA, machine=str(path))
    assert [row["bound_s"] for row in result.roofline().ops if row["flops"]] == [512 / 100]
    assert "unknown" in result.sections()[1].how.parameters["Vector peak"]
    for text, code in (
        ("memory_bytes = 5\nbandwidth = 1\n[peaks]\n", "missing-key"),
        ("memory_bytes = 5\nbandwidth = 0\n[peaks]\nfloat32 = 1\n", "out-of-range"),
        ("memory_bytes = 5\nbandwidth = 1\n[peaks]\nfp32 = 1\n", "unknown-name"),
        ("memory_bytes = 5\n[peaks]\nfloat32 = 1\n", "missing-key"),
    ):
        path.write_text(text)
        with pytest.raises(InputError) as error:
            hardware(str(path))
        assert error.value.code == code


def test_measured_time_is_attributed_to_operators() -> None:
    side = torch.randn(256, 256)
    result = made(
        nn.Sequential(*(nn.Linear(256, 256) for _ in range(6))), side, device="cpu", runs=2
    )
    timing = result.timing
    assert result.seconds == pytest.approx(
        sum(row["seconds"] for row in result.by_class().values())
    )
    assert 0 < timing.attributed <= 1
    assert timing.residual_s == pytest.approx(timing.wall_s * (1 - timing.attributed))
    assert timing.runs == 2
    assert all(op.seconds is not None and op.seconds > 0 for op in result.ops)


def test_diff_is_a_gate() -> None:
    small, large = (made(Residual(width), DATA, name="m") for width in (8, 16))
    assert small.diff(small).exit_code == 0
    worse = small.diff(large)
    assert worse.exit_code == 1
    assert "flops_linear" in worse.to_dict()["worse"]
    assert small.diff(large, tolerance=5.0).exit_code == 0
    assert large.diff(small).exit_code == 0


def test_pipelines_add_up() -> None:
    first, second = made(Residual(), DATA), made(nn.Linear(8, 8), DATA)
    whole = combine([("a", first, 1), ("b", second, 50)], "pipeline")
    assert whole.flops == first.flops + 50 * second.flops
    assert whole.bytes == first.bytes + 50 * second.bytes
    assert {row["module"] for row in whole.by_module()} >= {"a.inner.0", "b"}
    assert sum(row["flops"] for row in whole.by_module()) == whole.flops


def test_page_and_json() -> None:
    for result in (made(MODEL, DATA, device="cpu"), made(nn.Identity(), DATA)):
        json.dumps(result.document())
        assert "<svg" in report.render(result.page()) or not result.ops


@pytest.mark.parametrize(("name", "value"), [("device", "gpu"), ("attention", "triton")])
def test_unknown_choices(name: str, value: str) -> None:
    with pytest.raises(InputError) as error:
        made(MODEL, DATA, **{name: value})
    assert (error.value.code, error.value.place, error.value.found) == ("unknown-name", name, value)


def test_the_peak_is_that_of_the_fastest_product(monkeypatch: pytest.MonkeyPatch) -> None:
    # Products of sides 256, 512, 1024 and convolutions of half as many channels, in turn.
    seconds = iter([1.0, 1.0, 1.0, 1.0, 0.01, 1.0])
    monkeypatch.setattr(hardware_module, "fastest", lambda call: next(seconds))
    assert hardware_module._product_rate(torch.float32) == 2 * 1024**3 / 0.01
    seconds = iter([1.0, 0.01, 1.0, 1.0, 1.0, 1.0])
    assert hardware_module._product_rate(torch.float32) == 2 * 32**2 * 128**2 * 9 / 0.01
    monkeypatch.setattr(hardware_module, "fastest", lambda call: 1.0)
    assert hardware_module._product_rate(torch.float16) == 2 * 256**3  # slow types: the first alone
    # A slow product of 16 bits is no ceiling: other operators convert to float32.
    machine = hardware_module.this_machine.__wrapped__(1)
    assert machine.peaks["float16"] == machine.peaks["float32"] > 2 * 256**3
