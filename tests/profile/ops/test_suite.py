"""Published models at their true shapes: exact FLOPs, parameters, kinds of attention."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from holdfast import cli
from holdfast.errors import InputError
from holdfast.profile.ops import suite
from holdfast.profile.ops.profiling import profile
from holdfast.profile.ops.workloads import ops

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


def counted(name: str, **settings: Any) -> Any:
    return profile(suite.workload(name, settings), machine="h100-sxm")


def classes(made: Any) -> dict[str, int]:
    """FLOPs of convolutions, linear layers and attention."""
    found: Counter[str] = Counter()
    for name, row in made.by_class().items():
        found["conv" if name.startswith("conv") else name] += row["flops"]
    return {name: flops for name, flops in found.items() if flops}


def transformer(width: int, hidden: int, gates: int, layers: int, tokens: int) -> int:
    """FLOPs of the linear layers: four projections and a feed-forward network of 1 + gates inputs."""
    return 2 * tokens * layers * (4 * width**2 + (1 + gates) * width * hidden)


def test_llama() -> None:
    made = counted("llama-7b")
    tokens, width = 1024, 4096
    linear = transformer(width, 11008, 2, 32, tokens) + 2 * tokens * width * 32000
    assert linear == 13_531_294_466_048
    full = 32 * 4 * tokens**2 * width
    triangle = 32 * 4 * (tokens * (tokens + 1) // 2) * width
    assert classes(made) == {"linear": linear, "attention": triangle}
    assert made.flops_with_full_attention == linear + full == 14_081_050_279_936
    assert Counter(call.kind for call in made.attention) == {"causal": 32}
    assert (made.parameters, made.device) == (6_738_415_616, "meta")
    assert made.roofline().share("compute", products=True) > 0.9


@pytest.mark.full
def test_llama_decoding() -> None:
    decode = counted("llama-7b-decode", length=1024)
    linear = transformer(4096, 11008, 2, 32, 1) + 2 * 4096 * 32000
    assert classes(decode) == {"linear": linear, "attention": 32 * 4 * 1025 * 4096}
    assert decode.roofline().share("memory") > 0.99


# image size: convolutions, linear layers, attention
UNET = {
    256: (110_986_526_720, 60_574_597_120, 8_545_320_960),
    512: (443_946_106_880, 233_275_064_320, 126_052_270_080),
    1024: (1_775_784_427_520, 924_076_933_120, 1_974_144_860_160),
}


@pytest.mark.full
def test_stable_diffusion_unet() -> None:
    made = counted("stable-diffusion-unet")
    assert tuple(classes(made)[name] for name in ("conv", "linear", "attention")) == UNET[512]
    assert made.flops == 803_273_441_280
    trace = [call.query_length for call in made.attention if call.kind == "spatial-self"]
    assert trace == [4096] * 2 + [1024] * 2 + [256] * 2 + [64] + [256] * 3 + [1024] * 3 + [4096] * 3
    cross = [call for call in made.attention if call.kind == "cross"]
    assert {call.key_length for call in cross} == {77}
    # Attention from its shapes: self N^2 and cross 77 N, per head width and block of each level.
    widths = {4096: 320, 1024: 640, 256: 1280, 64: 1280}
    assert sum(4 * n * (n + 77) * widths[n] for n in trace) == UNET[512][2]
    assert not made.unknown_ops


@pytest.mark.full
@pytest.mark.parametrize("size", [256, 1024])
def test_stable_diffusion_unet_sizes(size: int) -> None:
    found = classes(counted("stable-diffusion-unet", image_size=size))
    assert tuple(found[name] for name in ("conv", "linear", "attention")) == UNET[size]


@pytest.mark.full
def test_text_encoders() -> None:
    clip = counted("clip-text")
    linear = transformer(768, 3072, 1, 12, 77)
    assert classes(clip) == {"linear": linear, "attention": 12 * 4 * (77 * 78 // 2) * 768}
    assert clip.flops_with_full_attention == linear + 12 * 4 * 77**2 * 768 == 13_298_503_680
    t5 = counted("t5-xxl")
    assert classes(t5) == {
        "linear": transformer(4096, 10240, 2, 24, 77),
        "attention": 24 * 4 * 77**2 * 4096,
    }
    assert t5.flops == 715_430_166_528


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "flops", "kinds"),
    [
        ("stable-diffusion-vae", 2_514_518_933_504, {"spatial-self": 1}),
        ("unet3d", 4_887_105_142_784, {"temporal": 34, "spatial-self": 16, "cross": 16}),
        ("amused", 213_547_483_136, {"self": 22, "cross": 34}),
        ("imagen", 1_534_205_100_032, {"spatial-self": 22}),
        ("phenaki", 5_681_167_990_784, {"self": 28, "cross": 28}),
        ("parti", 33_536_178_388_992, {"self": 16, "causal": 64, "cross": 64}),
        ("make-a-video", 44_271_901_777_920, {"temporal": 34, "spatial-self": 16, "cross": 16}),
    ],
)
def test_other_models(name: str, flops: int, kinds: dict[str, int]) -> None:
    made = counted(name)
    assert made.flops == flops
    assert Counter(call.kind for call in made.attention) == kinds
    assert not made.unknown_ops
    assert made.by_class().keys() >= {"linear", "attention", "elementwise"}


@pytest.mark.full
@pytest.mark.parametrize("name", [name for name in suite.entries() if name != "small-llama"])
def test_published_parameters(name: str) -> None:
    published = suite.entries()[name]["published_parameters"]
    parameters = sum(each.numel() for each in suite.build(name).parameters())
    assert parameters == pytest.approx(published, rel=0.05)


@pytest.mark.full
def test_pipeline() -> None:
    made = ops("suite:stable-diffusion", steps=50)
    parts = {
        "text_encoder": 2 * counted("clip-text").flops,
        "unet": 50 * 2 * 803_273_441_280,
        "vae": 2_514_518_933_504,
    }
    assert made.flops == sum(parts.values())
    totals = {row["module"]: row["total_flops"] for row in made.by_module()}
    assert {name: totals[name] for name in parts} == parts
    assert made.parameters == 859_520_964 + 83_653_863 + 123_060_480


def test_shapes_that_a_model_does_not_have() -> None:
    cases = [
        ({"frames": 3}, "unknown-key", "--set"),
        ({"image_size": -1}, "out-of-range", "image_size"),
        ({"image_size": 0}, "out-of-range", "image_size"),
        ({"image_size": 100}, "out-of-range", "image_size"),
        ({"batch": 0}, "out-of-range", "batch"),
        ({"dtype": "int8"}, "unknown-name", "dtype"),
        ({"image_size": "large"}, "invalid-value", "image_size"),
    ]
    for settings, code, place in cases:
        with pytest.raises(InputError) as error:
            suite.workload("stable-diffusion-unet", settings)
        assert (error.value.code, error.value.place) == (code, place)


@pytest.mark.full
def test_the_page_shows_what_the_suite_gives(capsys: pytest.CaptureFixture[str]) -> None:
    """Lines of docs/profile.md that ordinary runs of its examples leave out, for their size."""
    page = Path(__file__).parents[3] / "docs" / "profile.md"
    blocks = re.findall(r"```text\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    runs = [
        block for block in blocks if "suite:" in block
    ]  # the others are of a reader's own files
    shown = [line for block in runs for line in block.splitlines() if line != "..."]
    assert sum(line.startswith("$ holdfast profile") for line in shown) == 4
    for line in shown:
        if line.startswith("$"):
            assert cli._run(line.split()[2:]) == 0
            printed = " ".join(capsys.readouterr().out.split())
        else:
            assert line.removesuffix("...").strip() in printed
