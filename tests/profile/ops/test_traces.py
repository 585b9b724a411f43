"""Traces of real runs joined with counts: a CPU run, kernels of a GPU, and files that are no traces."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from holdfast import report
from holdfast.errors import InputError
from holdfast.profile.ops.profiling import profile


class Model(nn.Module):
    """A product without a formula for its bias on every device, attention, and an activation."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x).unflatten(-1, (2, 8)).transpose(1, 2)
        return F.gelu(F.scaled_dot_product_attention(y, y, y))


X = torch.zeros(2, 6, 16)


def made(path: Path, **named: Any) -> Any:
    return profile(Model(), X, machine="h100-sxm", trace=path, **named)


def test_a_run_on_the_cpu(tmp_path: Path) -> None:
    model = Model()
    path = tmp_path / "trace.json"
    activities = [torch.profiler.ProfilerActivity.CPU]
    with (
        torch.no_grad(),
        torch.profiler.profile(activities=activities, record_shapes=True) as found,
    ):
        for _ in range(3):
            model(X)
        torch.linalg.norm(X)  # no part of the model
    found.export_chrome_trace(str(path))
    result = made(path)
    rows = {row["op"]: row for row in result.roofline().by("op")}
    for op in ("aten.addmm", "aten.scaled_dot_product_attention", "aten.gelu"):
        assert rows[op]["seconds"] > 0
        assert rows[op]["efficiency"] == rows[op]["bound_s"] / rows[op]["seconds"]
    join = result.trace
    assert (join.device, join.passes, join.missing) == ("cpu", 3, [])
    assert join.seconds == pytest.approx(
        join.joined_s + sum(row["seconds"] for row in join.unknown)
    )
    assert result.seconds == pytest.approx(join.joined_s / 3)
    assert any("norm" in row["name"] for row in join.unknown)
    assert "aten::linalg_vector_norm" not in rows
    json.dumps(result.document())
    assert "<svg" in report.render(result.page())


def test_a_training_step(tmp_path: Path) -> None:
    model, path, steps = Model(), tmp_path / "trace.json", 2
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, record_shapes=True) as found:
        for _ in range(steps):
            optimizer.zero_grad()
            model(X).sum().backward()
            optimizer.step()
    found.export_chrome_trace(str(path))
    result = made(path, training=True)
    spans = json.loads(path.read_text())["traceEvents"]
    for counted, name in (
        ("aten.scaled_dot_product_attention_backward", "attention_for_cpu_backward"),
        ("aten._fused_adamw_", "_fused_adamw_"),  # two parameters, one call of the trace
    ):
        seconds = sum(op.seconds or 0 for op in result.ops if op.op == counted)
        # The outermost events: those inside them have names of their own.
        spent = sum(row["dur"] for row in spans if str(row.get("name")).endswith(name)) / 1e6
        assert seconds == pytest.approx(spent / steps)
        assert spent > 0


def event(name: str, start: float, dur: float, number: int, dims: list[Any]) -> dict[str, Any]:
    args = {"External id": number, "Input Dims": dims}
    return {
        "ph": "X",
        "cat": "cpu_op",
        "name": name,
        "pid": 1,
        "tid": 1,
        "ts": start,
        "dur": dur,
    } | {"args": args}


def kernel(name: str, dur: float, **args: int) -> dict[str, Any]:
    return {"ph": "X", "cat": "kernel", "name": name, "ts": 500, "dur": dur, "args": args}


def test_kernels_of_a_gpu(tmp_path: Path) -> None:
    q = [2, 2, 6, 8]
    events = [
        event("aten::linear", 0, 10, 1, [[2, 6, 16], [16, 16], [16]]),
        event("aten::addmm", 2, 6, 2, [[16], [12, 16], [16, 16], [], []]),
        event("aten::scaled_dot_product_attention", 20, 10, 3, [q, q, q, [], [], []]),
        event("aten::_scaled_dot_product_flash_attention", 22, 6, 4, [q, q, q]),
        event("aten::sort", 40, 5, 5, [[7]]),
        kernel("gemm", 30, **{"External id": 2}),
        kernel("flash_fwd", 7, correlation=9),
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 23, "dur": 1}
        | {"args": {"External id": 4, "correlation": 9}},
        kernel("radix_sort", 11, **{"External id": 5}),
        kernel("triton_poi_fused_3", 13, **{"External id": 77}),
        {"ph": "M", "name": "process_name"},
    ]
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": events}).encode()))
    result = made(path)
    seconds = {op.op: op.seconds for op in result.ops}
    assert seconds["aten.addmm"] == pytest.approx(30e-6)
    assert seconds["aten.scaled_dot_product_attention"] == pytest.approx(7e-6)
    assert seconds["aten.view"] == 0
    assert seconds["aten.gelu"] is None
    join = result.trace
    assert (join.device, join.passes) == ("gpu", 1)
    assert join.seconds == pytest.approx(61e-6)
    assert [(row["name"], row["launched_by"]) for row in join.unknown] == [
        ("triton_poi_fused_3", "unknown"),
        ("radix_sort", "aten.sort"),
    ]
    assert join.missing == [{"op": "aten.gelu", "calls": 1}]
    assert result.attention_kinds()[0]["seconds"] == pytest.approx(7e-6)
    assert len(result.unknowns()) == 1


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ("", "invalid-syntax"),
        ("[1]", "invalid-syntax"),
        ('{"events": []}', "invalid-syntax"),
        ('{"traceEvents": [{"ph": "X", "cat": "cpu_op"}]}', "invalid-syntax"),
        ('{"traceEvents": []}', "no-data"),
        ("[" * 100_000, "invalid-syntax"),
    ],
)
def test_what_is_no_trace(tmp_path: Path, content: str, code: str) -> None:
    path = tmp_path / "trace.json"
    path.write_text(content)
    with pytest.raises(InputError) as error:
        made(path)
    assert (error.value.code, error.value.path) == (code, str(path))
