"""Counts beside torch's profiler (calls, shapes, FLOPs, memory) and beside published figures."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from holdfast.errors import InputError
from holdfast.profile.ops.profiling import profile


class Call(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Tensor) -> Tensor:
        return self.function(*args)


def made(module: Any, *args: Tensor, **named: Any) -> Any:
    return profile(module, *args, **{"machine": "h100-sxm", "runs": 1, **named})


# --- Published figures ---------------------------------------------------------------------------

# torchvision, `IMAGENET1K` weights: GFLOPS of one image (multiply-adds) and parameters, as in its
# table of models (pytorch.org/vision/stable/models.html). The same architectures, from transformers.
PUBLISHED: dict[str, tuple[str, dict[str, Any], str, int]] = {
    "resnet18": (
        "ResNet",
        {"hidden_sizes": [64, 128, 256, 512], "depths": [2, 2, 2, 2], "layer_type": "basic"},
        "1.814",
        11_689_512,
    ),
    "resnet50": ("ResNet", {}, "4.089", 25_557_032),
    "vit_b_16": ("ViT", {}, "17.564", 86_567_656),
    "swin_t": ("Swin", {}, "4.491", 28_288_354),
    "convnext_tiny": ("ConvNext", {}, "4.456", 28_589_128),
    "mobilenet_v2": ("MobileNetV2", {}, "0.301", 3_504_872),
    "efficientnet_b0": (
        "EfficientNet",
        {
            "image_size": 224,
            "width_coefficient": 1.0,
            "depth_coefficient": 1.0,
            "hidden_dim": 1280,
        },
        "0.386",
        5_288_548,
    ),
    "regnet_y_400mf": (
        "RegNet",
        {
            "embedding_size": 32,
            "hidden_sizes": [48, 104, 208, 440],
            "depths": [1, 3, 6, 6],
            "groups_width": 8,
        },
        "0.402",
        4_344_144,
    ),
}


@pytest.mark.quick(3)
@pytest.mark.parametrize("name", PUBLISHED)
def test_networks_for_images_have_their_published_flops(name: str) -> None:
    kind, settings, gflops, parameters = PUBLISHED[name]
    config = getattr(transformers, f"{kind}Config")(num_labels=1000, **settings)
    with torch.device("meta"):
        model = getattr(transformers, f"{kind}ForImageClassification")(config).eval()
    result = made(model, torch.empty(1, 3, 224, 224, device="meta"))
    assert f"{result.flops / 2e9:.3f}" == gflops
    assert (result.parameters, result.unknown_ops, result.device) == (parameters, [], "meta")


# Small models of families that the suite does not have: an encoder, experts, state spaces, speech.
SMALL: dict[str, tuple[str, dict[str, Any], dict[str, tuple[int, ...]]]] = {
    "bert": (
        "BertModel",
        {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4},
        {"input_ids": (2, 9)},
    ),
    "t5": (
        "T5Model",
        {"d_model": 32, "num_layers": 2, "num_heads": 4, "d_kv": 8, "d_ff": 64},
        {"input_ids": (2, 9), "decoder_input_ids": (2, 5)},
    ),
    "mixtral": (
        "MixtralModel",
        {
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "intermediate_size": 48,
            "num_local_experts": 4,
        },
        {"input_ids": (2, 9)},
    ),
    "mamba": (
        "MambaModel",
        {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 4},
        {"input_ids": (2, 9)},
    ),
    "whisper": (
        "WhisperModel",
        {
            "d_model": 32,
            "encoder_layers": 1,
            "decoder_layers": 1,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "max_source_positions": 12,
        },
        {"input_features": (2, 80, 24), "decoder_input_ids": (2, 5)},
    ),
    "wav2vec2": (
        "Wav2Vec2Model",
        {
            "hidden_size": 32,
            "num_hidden_layers": 1,
            "num_attention_heads": 4,
            "num_conv_pos_embeddings": 16,
            "num_conv_pos_embedding_groups": 4,
        },
        {"input_values": (2, 4000)},
    ),
}


@pytest.mark.quick(3)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SMALL)
def test_small_models_of_other_families_have_the_flops_of_torchs_counter(name: str) -> None:
    kind, settings, shapes = SMALL[name]
    settings = settings | {"attn_implementation": "eager", "experts_implementation": "eager"}
    config = getattr(transformers, kind.removesuffix("Model") + "Config")(**settings)
    model = getattr(transformers, kind)(config).eval()
    inputs = {
        key: torch.ones(shape, dtype=torch.int64) if key.endswith("ids") else torch.ones(shape)
        for key, shape in shapes.items()
    }
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(**inputs)
    result = made(model, kwargs=inputs)
    assert result.flops == counter.get_total_flops()
    assert result.unknown_ops == []


# --- Torch's profiler ----------------------------------------------------------------------------

CPU = [torch.profiler.ProfilerActivity.CPU]


def attends(x: Tensor) -> Tensor:
    return (x @ x.transpose(-1, -2)).softmax(-1) @ x


def branches(x: Tensor) -> Tensor:
    return torch.stack([part.exp() for part in x.split(16, 1)]).sum(0)


X = torch.randn(4, 64, 64, generator=torch.Generator().manual_seed(0))
MLP = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64), nn.LayerNorm(64))
LIVE: dict[str, Any] = {
    "mlp": MLP,
    "attention": Call(attends),
    "branches": Call(branches),
    "in place": Call(lambda x: (x + x).mul_(x).add_(x).relu_()),
    "put together": Call(lambda x: torch.cat([x, x * x])[:2].clone()),
    "freed before": Call(lambda x: (x.repeat(8, 1, 1) * x.repeat(8, 1, 1)).sum((0, 1))),
    "views": Call(lambda x: (x.view(2, -1) + x.view(2, -1)).t()[:9].contiguous()),
    "normed": nn.Sequential(nn.LayerNorm(64), nn.Softmax(-1), nn.SiLU()),
    "encoder": nn.TransformerEncoderLayer(64, 4, 128, 0.0, batch_first=True),  # no fast path
}


@pytest.mark.parametrize("name", LIVE)
def test_live_memory_is_that_of_torchs_allocator(name: str) -> None:
    """The largest sum of what the CPU's allocator gave and took back, without weights and inputs."""
    model = LIVE[name]
    with torch.no_grad(), torch.profiler.profile(activities=CPU, profile_memory=True) as run:
        out = model(X)
    live, peak = 0, 0
    for change in _allocations(run):
        live += change
        peak = max(peak, live)
    del out
    for device in ("meta", "cpu"):
        result = made(model, X, device=device)
        # Numbers of Python are tensors of some bytes there.
        assert 0 <= peak - (result.peak_bytes - result.parameter_bytes - X.nbytes) < 128


def _allocations(run: Any) -> list[int]:
    """Bytes of each allocation, negative where they are freed, in the order of their times."""
    events = [event for event in run.profiler.kineto_results.events() if event.name() == "[memory]"]
    return [event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())]


PROFILED: dict[str, Any] = {
    "mlp": MLP,
    "attention": Call(attends),
    "convolutions": nn.Sequential(
        nn.Conv1d(64, 32, 3), nn.BatchNorm1d(32), nn.ReLU(), nn.Conv1d(32, 8, 3, groups=4)
    ),
    "recurrent": nn.GRU(64, 16),
    "sorted": Call(lambda x: x.sort().values.gather(1, x.argsort(1)).cumsum(0)),
}


@pytest.mark.parametrize("name", PROFILED)
def test_operators_are_those_of_torchs_profiler(name: str, tmp_path: Path) -> None:
    """Names, calls and shapes of a real run; and the FLOPs of those that the profiler knows."""
    model = PROFILED[name]
    options: dict[str, Any] = {"record_shapes": True, "with_flops": True}
    with torch.no_grad(), torch.profiler.profile(activities=CPU, **options) as run:
        model(X)
    path = tmp_path / "trace.json"
    run.export_chrome_trace(str(path))
    spans = json.loads(path.read_text())["traceEvents"]
    spans = [row for row in spans if row.get("cat") == "cpu_op"]
    theirs = Counter(row["name"] for row in spans)
    result = made(model, X, device="cpu")
    ours = Counter(op.op.replace(".", "::") for op in result.ops if op.bytes)
    products = {"aten::mm", "aten::bmm", "aten::addmm"}
    kernels = {"aten::_softmax", "aten::gelu", "aten::gather", "aten::cumsum", *products}
    assert ours.keys() <= theirs.keys()
    assert {op: ours[op] for op in kernels} == {op: theirs[op] for op in kernels}
    shapes = {
        (row["name"], tuple(map(tuple, filter(None, row["args"].get("Input Dims", [])))))
        for row in spans
        if row["name"] in kernels
    }
    own = {(op.op.replace(".", "::"), op.inputs) for op in result.ops}
    assert {one for one in own if one[0] in kernels} == shapes
    flops = sum(event.flops for event in run.key_averages() if event.key in products)
    assert flops == sum(op.flops for op in result.ops if op.op.replace(".", "::") in products)
    if name in ("mlp", "attention"):
        assert result.flops == flops > 0


# --- Traces --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Of two passes of a network on the CPU."""
    with torch.no_grad(), torch.profiler.profile(activities=CPU, record_shapes=True) as run:
        for _ in range(2):
            MLP(X)
    path = tmp_path_factory.mktemp("trace") / "trace.json"
    run.export_chrome_trace(str(path))
    content: dict[str, Any] = json.loads(path.read_text())
    return content


def joined(trace: dict[str, Any], path: Path) -> Any:
    path.write_text(json.dumps(trace))
    return made(MLP, X, trace=path)


def test_the_order_and_the_scale_of_a_trace(trace: dict[str, Any], tmp_path: Path) -> None:
    """Events in any order are the same trace; of times that are twice as long the seconds are twice."""
    path = tmp_path / "trace.json"
    first = joined(trace, path)
    assert (first.trace.passes, first.trace.missing) == (2, [])
    seconds = [op.seconds for op in first.ops]
    spans = [row for row in trace["traceEvents"] if row.get("cat") == "cpu_op"]
    total = sum(
        row["dur"] for row in spans if row["name"] in ("aten::linear", "aten::layer_norm")
    ) + sum(row["dur"] for row in spans if row["name"] == "aten::gelu")
    assert first.trace.seconds == pytest.approx(total / 1e6)  # the outermost operators
    backwards = {**trace, "traceEvents": trace["traceEvents"][::-1]}
    assert [op.seconds for op in joined(backwards, path).ops] == pytest.approx(seconds)
    slow = [
        row | {"ts": 2 * row["ts"], "dur": 2 * row["dur"]} if row.get("ph") == "X" else row
        for row in trace["traceEvents"]
    ]
    twice = joined({"traceEvents": slow}, path)
    assert twice.seconds == pytest.approx(2 * first.seconds)
    later = [row | {"ts": row["ts"] + 1e9} for row in spans]
    four = joined({"traceEvents": [*spans, *later]}, path)
    assert four.trace.passes == 4
    assert four.seconds == pytest.approx(first.seconds)
    other = [row | {"tid": 99} for row in spans]  # the same moment on another thread
    assert joined({"traceEvents": [*spans, *other]}, path).trace.passes == 4


def test_a_trace_of_another_model_is_refused(trace: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(trace))
    with pytest.raises(InputError) as refused:
        made(nn.Conv2d(3, 4, 3), torch.empty(1, 3, 9, 9), trace=path)
    assert (refused.value.code, refused.value.path) == ("no-data", str(path))
    # Of other shapes it is another run.
    with pytest.raises(InputError) as refused:
        made(nn.Linear(5, 5), torch.empty(2, 5), trace=path)
    assert refused.value.code == "no-data"
    partly = made(Call(lambda x: F.gelu(MLP(x)[:, :2])), X, trace=path)
    assert {row["op"] for row in partly.trace.missing} == {"aten.gelu"}
