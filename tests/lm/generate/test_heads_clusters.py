"""Clusters of heads by trying all partitions, and clustered attention head by head."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import tiny

from holdfast.lm.generate.heads import clustered_attention, model_digest
from holdfast.lm.generate.heads_clusters import (
    FLAT,
    Assignment,
    clustered_sets,
    elbow,
    error_curve,
    head_sources,
    k_means,
)


def partitions(n: int, count: int) -> Iterator[list[int]]:
    """Labels of all partitions of n things into `count` sets, none of them empty."""

    def grown(labels: list[int]) -> Iterator[list[int]]:
        if len(labels) == n:
            if max(labels) + 1 == count:
                yield labels
            return
        for label in range(min(max(labels, default=-1) + 2, count)):
            yield from grown([*labels, label])

    return grown([])


def error(vectors: np.ndarray, labels: list[int]) -> float:
    """Squared distance to the means of the clusters."""
    parts = [vectors[np.array(labels) == label] for label in set(labels)]
    return float(sum(((part - part.mean(0)) ** 2).sum() for part in parts))


GROUPS = st.integers(1, 3)


@given(st.integers(0, 10**6), st.integers(3, 6), st.integers(1, 4), GROUPS)
@pytest.mark.examples(8)
def test_errors_are_not_below_the_best_partition(
    seed: int, n: int, width: int, planted: int
) -> None:
    """And reach it where clusters are far apart."""
    random = np.random.default_rng(seed)
    labels = [place % planted for place in range(n)]
    centers = 50 * np.eye(planted, width + planted)
    vectors = centers[labels] + random.normal(size=(n, width + planted))
    curve = error_curve(vectors)
    whole = error(vectors, [0] * n)
    for count in range(1, n + 1):
        best = min(error(vectors, part) for part in partitions(n, count))
        found, squared = k_means(vectors, count)
        assert len(set(found.tolist())) == count
        assert squared == pytest.approx(error(vectors, found.tolist()), abs=1e-9)
        assert squared >= best - 1e-9
        assert curve[count - 1] * whole >= best - 1e-6
        if count == planted:
            assert squared == pytest.approx(best)
            assert curve[count - 1] * whole == pytest.approx(best, rel=1e-6, abs=1e-9)
    assert curve[0] == 1
    assert curve[-1] == pytest.approx(0, abs=1e-9)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=7), st.sampled_from([1.0, 0.2, 0.05]))
@pytest.mark.examples(60)
def test_the_elbow_is_the_point_farthest_from_the_chord(falls: list[float], bend: float) -> None:
    """By the distance of a point to the line through the first and the last one."""
    curve = np.array([1.0, *sorted(falls, reverse=True)[1:], 0.0])
    n = len(curve)
    curve = bend * curve + (1 - bend) * np.linspace(1, 0, n)  # nearly straight, too
    first, last = np.array([0.0, 1.0]), np.array([n - 1.0, 0.0])
    along = (last - first) / np.linalg.norm(last - first)
    offsets = np.stack([np.arange(n), curve], 1) - first
    distances = offsets[:, 0] * along[1] - offsets[:, 1] * along[0]  # positive below the chord
    depth = distances.max() * np.hypot(n - 1, 1) / (n - 1)  # measured along the axis of errors
    if abs(depth - FLAT) < 1e-9:
        return
    if depth < FLAT:
        assert elbow(curve) == n
    else:
        assert distances[elbow(curve) - 1] == pytest.approx(distances.max(), abs=1e-12)
    assert elbow(np.zeros(n)) == 1


@given(st.integers(0, 10**6), GROUPS, st.integers(1, 3), st.booleans(), st.data())
@pytest.mark.examples(25)
def test_who_computes_for_whom(
    seed: int, kv_heads: int, shared: int, shares_keys: bool, data: st.DataObject
) -> None:
    """Representatives, as many as clusters, use their own scores; the others those of theirs."""
    heads = kv_heads * shared
    features = np.random.default_rng(seed).normal(size=(heads, 5))
    sets = clustered_sets(features, kv_heads, shares_keys)
    assert [len(part) for part in sets] == ([shared] * kv_heads if shares_keys else [kv_heads])
    count = data.draw(st.integers(1, len(sets[0])))
    sources = head_sources(features, count, kv_heads, shares_keys)
    found = Assignment.of_sources(sources, kv_heads, shares_keys)
    assert (found.queries[found.partner] == sources).all()
    groups = np.arange(heads) // shared
    if shares_keys:
        assert (sources // shared == groups).all()
        assert len(set(sources.tolist())) == count * kv_heads
        assert (sources[sources] == sources).all()
        assert found.keys.tolist() == list(range(kv_heads))
    else:
        assert len(found.keys) == count == len(set((sources // shared).tolist()))
        assert set(found.queries.tolist()) == {n for n in range(heads) if groups[n] in found.keys}
        own = np.isin(groups, found.keys)
        assert (sources[own] == np.arange(heads)[own]).all()
    if count == len(sets[0]):
        assert (sources == np.arange(heads)).all()


@given(st.integers(0, 10**6), GROUPS, st.integers(1, 3), st.integers(1, 2), st.booleans())
@pytest.mark.examples(20)
def test_clustered_attention_head_by_head(
    seed: int, stored: int, per_key: int, groups: int, masked: bool
) -> None:
    batch, rows, keys, size = 2, 3, 4, 5
    random = torch.Generator().manual_seed(seed)
    q = torch.randn(batch, stored * per_key, rows, size, generator=random)
    k = torch.randn(batch, stored, keys, size, generator=random)
    v = torch.randn(batch, groups, keys, size, generator=random)
    heads = groups * 2
    partner = torch.randint(stored * per_key, (batch, heads), generator=random)
    mask = torch.zeros(1, 1, rows, keys)
    if masked:
        mask[..., 1:] = torch.where(
            torch.rand(rows, keys - 1, generator=random) < 0.5, 0, -torch.inf
        )
    out = clustered_attention(q, k, v, partner, 0.3, mask if masked else None)
    for b in range(batch):
        for h in range(heads):
            source = int(partner[b, h])
            scores = 0.3 * q[b, source] @ k[b, source // per_key].T + mask[0, 0]
            expected = scores.softmax(-1) @ v[b, h // 2]
            torch.testing.assert_close(out[b, h], expected, atol=1e-5, rtol=1e-5)


def changed(model: Any, name: str) -> Any:
    with torch.no_grad():
        dict(model.named_parameters())[name].view(-1)[0] += 1
    return model


def test_a_digest_is_of_the_weights_alone() -> None:
    model = tiny("llama")
    digest = model_digest(model)
    assert digest == model_digest(tiny("llama")) == model_digest(model.to(torch.bfloat16).float())
    others = [tiny("llama", seed=1), tiny("llama-grouped"), tiny("llama", layers=3)]
    others += [changed(tiny("llama"), name) for name in ("lm_head.weight", "model.norm.weight")]
    assert len({digest, *map(model_digest, others)}) == 6
