"""Clustered heads: against full attention with copied probabilities, storage, calibration, bad files."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_models import VOCABULARY, tiny
from torch import Tensor

from holdfast.errors import InputError
from holdfast.lm.generate.architectures import architecture
from holdfast.lm.generate.arena import Arena
from holdfast.lm.generate.decoder import Decoder
from holdfast.lm.generate.decoding import Generator
from holdfast.lm.generate.heads import FIRST, SCHEMA, HeadPolicy, model_digest, read_heads
from holdfast.lm.generate.heads_calibration import calibrate, calibrate_heads, perplexity
from holdfast.lm.generate.heads_clusters import elbow, error_curve, head_sources, k_means

HEADS = 4


def ids(rows: int, length: int, seed: int = 0) -> Tensor:
    return torch.randint(VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(seed))


def paired(seed: int = 0) -> Any:
    """A model whose heads 2 and 3 attend as heads 0 and 1 do."""
    model = tiny("llama", seed)
    with torch.no_grad():
        for layer in model.model.layers:
            for part in (layer.self_attn.q_proj, layer.self_attn.k_proj):
                part.weight[16:] = part.weight[:16]
    return model


def policy_of(model: Any, counts: list[int], level: str = "kv", mode: str = "auto") -> HeadPolicy:
    """Given numbers of clusters; the file's clusters join each head with the last representative."""
    arch = architecture(model)
    one = HeadPolicy(
        SCHEMA,
        model_digest(model),
        arch.query_heads,
        arch.kv_heads,
        level,
        counts,
        counts,
        [],
        "online",
    )  # type: ignore[arg-type]
    sources = [one.fixed(layer).sources.tolist() for layer in range(len(counts))]
    return replace(one, sources=sources, mode=mode)  # type: ignore[arg-type]


class Copied(Arena):
    """All heads computed; after the first tokens a head's probabilities are copied from its source."""

    def __init__(self, decoder: Decoder, batch: int, sources: list[Tensor], first: int) -> None:
        super().__init__(decoder, batch, 64)
        self.sources, self.first = sources, first

    def attend(self, layer: int, q: Tensor) -> Tensor:
        groups = q.shape[1] // self.k.shape[2]
        k = self.k[layer][:, :, : self._end].repeat_interleave(groups, 1)
        v = self.v[layer][:, :, : self._end].repeat_interleave(groups, 1)
        at = torch.arange(self._start, self._end)
        hidden = torch.arange(self._end) > at[:, None]
        scores = q @ k.transpose(2, 3) * self._scales[layer]
        p = scores.masked_fill(hidden, float("-inf")).softmax(-1)
        copy = p[torch.arange(len(p))[:, None], self.sources[layer]]
        p = torch.where((at >= self.first)[:, None], copy, p)
        return p @ v


def decoded(decoder: Decoder, cache: Any, tokens: Tensor, prefill: int) -> Tensor:
    """Logits of a prefill and of single steps behind it."""
    batch = len(tokens)
    parts, place = [], 0
    with torch.inference_mode():
        for rows in (prefill, *[1] * (tokens.shape[1] - prefill - 3), 3):
            starts = [place] * batch
            x = decoder.embed(tokens[:, place : place + rows], starts)
            parts.append(decoder.logits(decoder.run(x, cache, starts)))
            place += rows
    return torch.cat(parts, 1)


CASES = [
    ("llama", "kv", [4, 2, 1, 3]),
    ("llama-grouped", "kv", [2, 1, 1, 2]),
    ("llama-grouped", "query", [1, 2, 1, 1]),
    ("qwen3", "kv", [1, 1, 2, 1]),
    ("opt", "kv", [3, 2, 2, 4]),
    ("gpt2", "kv", [1, 2, 3, 4]),
    ("gpt_neox", "kv", [2, 2, 2, 2]),
]


@pytest.mark.quick(6)
@pytest.mark.parametrize("mode", ["auto", "static"])
@pytest.mark.parametrize(("family", "level", "counts"), CASES)
def test_equals_full_attention_with_copied_probabilities(
    family: str, level: str, counts: list[int], mode: str
) -> None:
    model = tiny(family)
    decoder = Decoder(architecture(model))
    policy = policy_of(model, counts, level, mode)
    tokens = ids(2, 20)
    cache = policy.cache(decoder, 2, 32)
    logits = decoded(decoder, cache, tokens, 12)
    full = torch.arange(HEADS).expand(2, -1)
    sources = [
        full if part is None else torch.tensor(np.stack([one.sources for one in part]))
        for part in cache.assignments
    ]
    for part, count in zip(cache.assignments, counts, strict=True):
        if part is not None:
            scored = {len(one.queries) for one in part}
            assert scored == {count * (2 if policy.kv_heads == 2 else 1)}
    first = FIRST if mode == "auto" else 0
    expected = decoded(decoder, Copied(decoder, 2, sources, first), tokens, 12)
    torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-4)
    # Each request clusters by itself: alone it has the same clusters.
    alone = policy.cache(decoder, 1, 32)
    torch.testing.assert_close(
        decoded(decoder, alone, tokens[1:], 12), logits[1:], rtol=1e-4, atol=1e-4
    )
    if family == "opt" and mode == "auto":
        assert any(not torch.equal(part[0], part[1]) for part in sources), (
            "one set of clusters for all"
        )
    # Storage falls by the formula.
    everything = Arena(decoder, 2, 32).nbytes()
    assert cache.nbytes() == pytest.approx(everything * (1 - policy.saved_share))
    assert policy.saved_share == (
        0 if level == "query" else pytest.approx((1 - sum(counts) / (4 * policy.kv_heads)) / 2)
    )


def test_all_heads_are_bit_identical() -> None:
    for family, level, most in (
        ("llama", "kv", 4),
        ("llama-grouped", "kv", 2),
        ("llama-grouped", "query", 2),
    ):
        model = tiny(family)
        decoder = Decoder(architecture(model))
        cache = policy_of(model, [most] * 4, level).cache(decoder, 2, 32)
        tokens = ids(2, 20)
        whole = Arena(decoder, 2, 32)
        assert torch.equal(decoded(decoder, cache, tokens, 12), decoded(decoder, whole, tokens, 12))
        assert cache.nbytes() == whole.nbytes()


def test_representatives_alone_are_projected() -> None:
    model = paired()
    decoder = Decoder(architecture(model))
    cache = policy_of(model, [2] * 4).cache(decoder, 1, 32)
    decoded(decoder, cache, ids(1, 20), 12)
    for layer, plan in cache._plans.items():
        block = decoder.blocks[layer]
        assert plan._linear(torch.zeros(1, 1, 32)).shape[2] == (2 + 2 + 4) * block.size
        assert cache.k[layer].shape[1] == 2


@pytest.mark.quick(1)
@pytest.mark.parametrize("level", ["kv", "query"])
def test_speculation_with_clusters_equals_plain_decoding(level: str) -> None:
    model = tiny("llama-grouped" if level == "query" else "llama")
    policy = policy_of(model, [1, 2, 2, 1], level)
    generator = Generator(model, heads=policy)
    prompts = [row[:n].tolist() for row, n in zip(ids(4, 30), (30, 9, 3, 6), strict=True)]
    plain = generator.generate(prompts, max_new=12, speculate="off")
    for speculate in ("early-exit:2,3", "lookup", "auto"):
        drafted = generator.generate(prompts, max_new=12, speculate=speculate)
        assert drafted.tokens == plain.tokens
    together = generator.generate(prompts, max_new=12, speculate="early-exit:2,3", batch=4)
    assert together.tokens == plain.tokens
    everything = Generator(model).generate(prompts[:1], max_new=12, speculate="off")
    saved = generator.generate(prompts[:1], max_new=12, speculate="off").kv_bytes
    assert saved / everything.kv_bytes == pytest.approx(1 - policy.saved_share)


# --- Clusters ------------------------------------------------------------------------------------


def test_planted_clusters_and_their_elbow() -> None:
    centers = np.eye(3).repeat((3, 2, 3), 0) * 9
    vectors = centers + np.random.default_rng(0).normal(0, 0.1, centers.shape)
    assert elbow(error_curve(vectors)) == 3
    sources = head_sources(vectors, 3, 8, shares_keys=False)
    assert [len({*sources[part]}) for part in (slice(3), slice(3, 5), slice(5, 8))] == [1, 1, 1]
    assert (sources[sources] == sources).all()
    # A representative is the head nearest to the mean of its cluster.
    mean = vectors[:3].mean(0)
    assert sources[0] == ((vectors[:3] - mean) ** 2).sum(1).argmin()
    # Heads that are equally far apart have no elbow: all stay. Identical heads need one.
    assert elbow(error_curve(np.eye(8))) == 8
    assert elbow(error_curve(np.ones((8, 5)))) == 1
    # With 3 clusters of 8 identical heads, two others represent themselves.
    assert len({*head_sources(np.ones((8, 5)), 3, 8, shares_keys=False)}) == 3


def test_error_curve_is_that_of_the_vectors() -> None:
    vectors = np.random.default_rng(1).normal(size=(5, 300))
    curve = error_curve(vectors)
    total = ((vectors - vectors.mean(0)) ** 2).sum()
    np.testing.assert_allclose(curve[[0, 4]], [1, 0], atol=1e-12)
    assert curve[3] == pytest.approx(k_means(vectors, 4)[1] / total)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_vectors_that_are_not_finite(bad: float) -> None:
    vectors = np.ones((4, 3))
    vectors[2, 1] = bad
    for work in (error_curve, lambda v, place: head_sources(v, 2, 4, False, place)):
        with pytest.raises(InputError) as error:
            work(vectors, "layer 7")
        assert (error.value.code, error.value.place) == ("invalid-value", "layer 7")


# --- Calibration ---------------------------------------------------------------------------------


def test_calibration_of_paired_heads(tmp_path: Path) -> None:
    model = paired()
    answer = calibrate(model, ids(4, 24), ids(4, 24, 1))
    policy = answer.policy
    assert policy.elbow == policy.auto == [2] * 4
    assert all(part[0] % 2 != part[1] % 2 and part[:2] == part[2:] for part in policy.sources)
    assert policy.saved_share == 0.25
    for mode in ("auto", "static", "online"):
        assert answer.perplexity[mode] == pytest.approx(answer.perplexity["all"], rel=1e-5)
    loss = model(input_ids=ids(4, 24, 1)).logits[:, FIRST:-1].flatten(0, 1)
    reference = torch.nn.functional.cross_entropy(loss, ids(4, 24, 1)[:, FIRST + 1 :].flatten())
    assert answer.perplexity["all"] == pytest.approx(float(reference.detach().exp()), rel=1e-4)
    assert answer.to_dict()["kv_bytes_saved_share"]["auto"] == 0.25
    assert "25.0 %" in str(answer)


def test_auto_stays_within_the_tolerance() -> None:
    model = tiny("llama", spread=0.6)
    decoder = Decoder(architecture(model))
    tokens = ids(8, 24)
    answer = calibrate(model, tokens, tokens, tolerance=0.02)
    assert answer.perplexity["auto"] <= 1.02 * answer.perplexity["all"]
    forced = replace(answer.policy, elbow=[1] * 4, mode="online")
    assert perplexity(decoder, tokens, forced) != answer.perplexity["all"]


def test_calibration_refuses_models_with_nan() -> None:
    model = tiny("llama")
    with torch.no_grad():
        model.model.layers[1].self_attn.q_proj.weight[0, 0] = float("nan")
    with pytest.raises(InputError) as error:
        calibrate(model, ids(2, 24), ids(2, 24))
    assert (error.value.code, error.value.place) == ("invalid-value", "layer 2")


# --- Files and requests --------------------------------------------------------------------------


def written(path: Path, policy: HeadPolicy, **changes: Any) -> Path:
    document = {key: value for key, value in asdict(policy).items() if key != "mode"}
    path.write_text(json.dumps({**document, **changes}))
    return path


def test_short_prompts() -> None:
    model = tiny("llama")
    auto = policy_of(model, [2] * 4)
    fixed = Generator(model, heads=replace(auto, mode="static"))
    short = ids(1, FIRST)[0].tolist()
    clusters = Generator(model, heads=auto).generate([short], max_new=5, speculate="off")
    assert clusters.tokens[0] == fixed.generate([short], max_new=5, speculate="off").tokens[0]
    online = Generator(model, heads=replace(auto, mode="online"))
    with pytest.raises(InputError) as error:
        online.generate([[*short, 1], short], max_new=5, batch=2)
    assert (error.value.code, error.value.place) == ("out-of-range", "prompt 2")
    assert online.generate([[*short, 1]], max_new=5).tokens[0]


def test_files(tmp_path: Path) -> None:
    model = tiny("llama")
    policy = policy_of(model, [2, 1, 4, 3])
    good = written(tmp_path / "chai.json", policy)
    assert read_heads(good) == policy
    assert read_heads(good, "online").mode == "online"
    with pytest.raises(InputError) as error:
        read_heads(good).check(architecture(tiny("llama", seed=1)))
    assert (error.value.code, error.value.place) == ("conflict", "model")
    read_heads(good).check(architecture(tiny("llama").to(torch.bfloat16)))
    for changes, place in (
        ({"schema": "other"}, "schema"),
        ({"auto": [2, 1, 5, 3]}, "auto"),
        ({"auto": [0, 1, 4, 3]}, "auto"),
        ({"elbow": [2]}, "elbow"),
        ({"kv_heads": 0}, "kv_heads"),
        ({"query_heads": 6}, "query_heads"),
        ({"sources": [[0, 1, 0, 9], *policy.sources[1:]]}, "sources"),
        ({"sources": [[0, 0, 0, 0], *policy.sources[1:]]}, "sources"),
        ({"sources": policy.sources[1:]}, "sources"),
    ):
        with pytest.raises(InputError) as error:
            read_heads(written(tmp_path / "bad.json", policy, **changes))
        assert (error.value.code, error.value.place) == ("invalid-value", place)
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(InputError) as error:
        read_heads(tmp_path / "bad.json")
    assert error.value.code == "invalid-syntax"


def test_calibration_of_a_folder(tmp_path: Path) -> None:
    folder = Path(__file__).resolve().parents[3] / "examples" / "generate"
    text = tmp_path / "text.py"
    text.write_text((folder / "train.py").read_text())
    answer = calibrate_heads(
        folder, text, tmp_path / "chai.json", level="query", samples=2, length=16, tolerance=9.0
    )
    assert read_heads(tmp_path / "chai.json") == answer.policy
    assert answer.policy.saved_share == 0
    for data, changes, code in (
        (text, {"samples": 500}, "no-data"),
        (text, {"length": 6}, "out-of-range"),
        (text, {"length": 257}, "out-of-range"),
        (tmp_path / "none", {}, "not-found"),
    ):
        with pytest.raises(InputError) as error:
            calibrate_heads(folder, data, tmp_path / "bad.json", **{"length": 16, **changes})
        assert error.value.code == code
    with pytest.raises(InputError) as error:
        calibrate_heads(tmp_path, text, tmp_path / "bad.json")
    assert error.value.code == "not-found"
