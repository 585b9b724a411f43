"""Targets, inputs and settings as the command line gives them; sweeps; quantization."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from holdfast import cli
from holdfast.errors import InputError
from holdfast.profile.ops.fewer_bits import Int4Linear, quantization
from holdfast.profile.ops.inputs import read_inputs, read_settings, read_values
from holdfast.profile.ops.sweeps import sweep
from holdfast.profile.ops.workloads import ops, resolve

MODULE = """
import torch
from torch import nn
from torch.nn import functional as F

def net(width=16): return nn.Sequential(nn.Conv2d(3, width, 3, padding=1), nn.ReLU())
def with_inputs(width=4): return nn.Linear(width, 5), (torch.ones(2, width),)
class Attend(nn.Module):
    def forward(self, x): return F.scaled_dot_product_attention(x, x, x)
class Looks(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.scale = float(self.linear.weight.detach().sum())
    def forward(self, x): return self.linear(x)
module = nn.Linear(4, 5)
def broken(): raise KeyError("weights")
def number(): return 7
class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(48, 64), nn.Linear(64, 48)
    def forward(self, ids): return self.head(self.embedding(ids))
def words():
    return Words(), torch.randint(0, 48, (3, 6)), 0
"""


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "models_under_test.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return "models_under_test"


def counted(target: str, *specs: str, **settings: Any) -> Any:
    given = [f"{name}={value}" for name, value in settings.items()]
    return ops(target, input=specs, set=given, hw="h100-sxm", runs=1)


def test_targets(target: str) -> None:
    conv = 2 * 3 * 9 * 32 * 32
    assert counted(f"{target}:net", "1x3x32x32").flops == 16 * conv
    assert counted(f"{target}:net", "1x3xSxS", width=8, S=16).flops == 8 * conv // 4
    assert counted(f"{target}:with_inputs").flops == 2 * 2 * 4 * 5
    assert counted(f"{target}:with_inputs", "7x4").flops == 2 * 7 * 4 * 5
    assert counted(f"{target}:module", "input=3x4:float64").flops == 120
    looks = counted(f"{target}:Looks", "2x4")
    assert looks.flops == 64
    assert looks.notes  # built with real weights


@pytest.mark.parametrize(
    ("name", "specs", "settings", "code", "place"),
    [
        ("net", [], {}, "missing-key", "--input"),
        ("net", ["1x3xSxS"], {}, "invalid-value", "--input"),
        ("net", ["1x3x8x8:float31"], {}, "unknown-name", "--input"),
        ("net", ["1,3,8,8"], {}, "invalid-syntax", "--input"),
        ("net", ["99999999999x99999999"], {}, "out-of-range", "--input"),
        ("net", ["9" * 30], {}, "invalid-value", "--input"),
        ("net", ["1x3x8x8"], {"depth": 3}, "unknown-key", "--set"),
        ("broken", ["1x3"], {}, "invalid-value", "models_under_test:broken"),
        ("number", ["1x3"], {}, "invalid-value", "TARGET"),
        ("absent", [], {}, "not-found", "TARGET"),
        ("net", ["absent.json"], {}, "not-found", None),
    ],
)
def test_what_cannot_be_used(
    target: str, name: str, specs: list[str], settings: dict[str, Any], code: str, place: str | None
) -> None:
    with pytest.raises(InputError) as error:
        resolve(f"{target}:{name}", specs, settings)
    assert (error.value.code, error.value.place) == (code, place)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("net", "invalid-syntax"),
        ("no_such_module_here:net", "not-found"),
        ("suite:x", "unknown-name"),
    ],
)
def test_unknown_targets(text: str, code: str) -> None:
    with pytest.raises(InputError) as error:
        resolve(text, [], {})
    assert error.value.code == code


def test_inputs_from_files(tmp_path: Path) -> None:
    content = {
        "args": [[1, 3, "S", 8]],
        "kwargs": {"step": 5, "text": "2:int64"},
    }
    (tmp_path / "a.json").write_text(json.dumps(content))
    (tmp_path / "c.toml").write_text('args = ["1x3xSx8"]\n[kwargs]\nstep = 5\ntext = "2:int64"\n')
    for name in ("a.json", "c.toml"):
        args, kwargs = read_inputs([str(tmp_path / name)], {"S": 4})
        assert [tuple(each.shape) for each in args] == [(1, 3, 4, 8)]
        assert kwargs["step"] == 5
        assert (kwargs["text"].dtype, kwargs["text"].device.type) == (torch.int64, "meta")
    (tmp_path / "bad.json").write_text('{"args": [1')
    with pytest.raises(InputError) as error:
        read_inputs([str(tmp_path / "bad.json")], {})
    assert error.value.code == "invalid-syntax"


def test_settings() -> None:
    found = read_settings(["a=3", "b=0.5", "c=true", "d=text"])
    assert found == {"a": 3, "b": 0.5, "c": True, "d": "text"}
    assert read_values("S=1,2.5") == ("S", [1, 2.5])
    for read, text in ((read_settings, ["a"]), (read_values, "S=1,x")):
        with pytest.raises(InputError) as error:
            read(text)  # type: ignore[operator]
        assert error.value.code == "invalid-syntax"


def test_sweep_finds_the_exponent(target: str) -> None:
    made = sweep(
        lambda n: resolve(f"{target}:Attend", ["2x4xNx16"], {"N": n}),
        "N",
        [64, 256, 128],
        attention=("fused", "math"),
    )
    slopes = {(r["attention_implementation"], r["figure"]): r["exponent"] for r in made.exponents}
    assert slopes["fused", "flops"] == pytest.approx(2, abs=1e-12)
    assert slopes["fused", "bytes"] == pytest.approx(1, abs=1e-12)
    assert 1 < slopes["math", "bytes"] < 2
    assert [row["value"] for row in made.points] == [64, 64, 128, 128, 256, 256]
    fused, separate = made.points[-2:]
    assert separate["peak_bytes"] > fused["peak_bytes"] + 4 * 2 * 4 * 256 * 256
    assert len(made.sections()) == 2
    json.dumps(made.document())
    with pytest.raises(InputError) as error:
        sweep(lambda n: resolve(f"{target}:Attend", [], {}), "N", [64])
    assert error.value.code == "invalid-value"


def test_int4_is_the_nearest_of_16_levels_per_group() -> None:
    torch.manual_seed(0)
    linear, x = torch.nn.Linear(64, 16), torch.randn(3, 5, 64)
    w = linear.weight.detach().unflatten(1, (2, 32))
    low, high = w.amin(2, keepdim=True), w.amax(2, keepdim=True)
    levels = low[..., None] + (high - low)[..., None] / 15 * torch.arange(16)
    levels = levels.expand(*w.shape, 16)
    place = (w[..., None] - levels).abs().argmin(3, keepdim=True)
    nearest = levels.gather(3, place)[..., 0].flatten(1)
    expected = torch.nn.functional.linear(x, nearest, linear.bias)
    torch.testing.assert_close(
        Int4Linear(linear)(x).detach(), expected.detach(), rtol=1e-4, atol=1e-5
    )


def test_quantization_of_an_own_model(target: str) -> None:
    made = quantization(f"{target}:words", "int8-dynamic,int4-weight,bf16", new_tokens=2)
    rows = {row["level"]: row for row in made.rows}
    weights = 48 * 64
    assert rows["fp32"]["weight_bytes"] == 4 * (2 * weights + 48)
    assert rows["bf16"]["weight_bytes"] == 2 * (2 * weights + 48)
    assert rows["int8-dynamic"]["weight_bytes"] == 4 * weights + weights + 8 + 192
    assert rows["int4-weight"]["weight_bytes"] == 4 * weights + weights // 2 + 2 * 48 * 2 * 4 + 192
    assert rows["fp32"]["agreement"] == 1
    # The embedding is as large as the head, which alone is a linear layer.
    shares = {"fp32": 0, "bf16": 1, "int8-dynamic": weights, "int4-weight": weights}
    for level, share in shares.items():
        whole = 1 if share < 2 else 2 * weights + 48 * (level == "int4-weight")
        assert rows[level]["changed"] == pytest.approx(share / whole)
    assert len(made.unknowns()) == 2
    assert {row["score"] for row in made.rows} == {None}
    assert all(row["tokens_per_s"] > 0 and math.isfinite(row["prefill_s"]) for row in made.rows)
    json.dumps(made.document())
    for name, levels, code in (
        ("words", "int3", "unknown-name"),
        ("module", "bf16", "invalid-value"),
    ):
        with pytest.raises(InputError) as error:
            quantization(f"{target}:{name}", levels)
        assert error.value.code == code


def test_commands(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    def run(*words: str) -> tuple[int, Any]:
        code = cli._run(["profile", *words, "--json"])
        return code, json.loads(capsys.readouterr().out or "null")

    code, answer = run("ops", f"{target}:net", "--input", "1x3xSxS", "--set", "S=8", "--strict")
    assert code == 0
    contract = {"parameters", "flops", "bytes", "by_class", "by_module", "attention", "unknown_ops"}
    assert contract <= answer.keys()
    assert answer["flops"] == 2 * 16 * 27 * 64
    code, answer = run("sweep", f"{target}:Attend", "--input", "1x2xNx8", "--over", "N=8,16,32")
    assert code == 0
    assert {"module", "kind", "query_length", "key_length", "heads", "flops"} <= {
        *run("ops", f"{target}:Attend", "--input", "1x2x8x8")[1]["attention"][0]
    }


def test_strict_fails_on_unknown_operators(target: str, tmp_path: Path) -> None:
    library = torch.library.Library("holdfast_strict", "DEF")
    library.define("f(Tensor x) -> Tensor")
    library.impl("f", lambda x: x * 2, "CompositeExplicitAutograd")
    code = "import torch\nclass F(torch.nn.Module):\n    def forward(self, x):\n"
    code += "        return torch.ops.holdfast_strict.f(x)\n"
    (tmp_path / "strict_models.py").write_text(code)
    words = ["profile", "ops", "strict_models:F", "--input", "2x2", "--quiet"]
    assert cli._run(words) == 0
    assert cli._run([*words, "--strict"]) == 1
