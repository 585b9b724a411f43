"""Fewer attention heads: clusters of heads that attend alike share the scores of one of them (CHAI).

Offline, `calibrate_heads` chooses the number of clusters of every layer. For each request the first five
tokens are computed with all heads; then heads are clustered by their five rows of attention, and from there
on only the representative of a cluster computes queries, keys and scores. Every value is kept; the keys of
the other heads are dropped, those of the first five tokens included.

Source: Agarwal et al., CHAI: Clustered Head Attention, ICML 2024 (arXiv 2403.08058).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from holdfast.config import read_config
from holdfast.errors import InputError
from holdfast.lm.generate.architectures import Architecture
from holdfast.lm.generate.arena import Arena
from holdfast.lm.generate.decoder import Block, Decoder, Linear
from holdfast.lm.generate.heads_clusters import Assignment, head_sources

FIRST = 5
"""Tokens with all heads, by which the heads of a request are clustered."""
SCHEMA = "holdfast-chai/1"
_SCORES = 1 << 24  # elements of the attention matrix that are held at a time

Mode = Literal["auto", "static", "online"]


@dataclass(frozen=True)
class HeadPolicy:
    """The clusters of a model's heads, as calibrated: the content of ``chai.json``.

    Args:
        schema: `SCHEMA`.
        model: digest of the weights (`model_digest`).
        query_heads: number of query heads H.
        kv_heads: number of key/value heads G.
        level: "kv" clusters key/value heads, which drops keys; "query" clusters the query heads that share
            one key/value head, which saves scores but no memory. The same where H = G.
        elbow: clusters per layer by the elbow of the k-means error.
        auto: clusters per layer within the calibrated increase of perplexity.
        sources: per layer and query head, the head whose scores it uses, over all calibration samples and
            with the clusters of `auto`; used where a prompt is too short to cluster by.
        mode: "auto" clusters `auto` per request, and short prompts by `sources`; "static" always takes
            `sources`; "online" clusters `elbow` per request and refuses short prompts.
    """

    schema: str
    model: str
    query_heads: int
    kv_heads: int
    level: Literal["kv", "query"]
    elbow: list[int]
    auto: list[int]
    sources: list[list[int]]
    mode: Mode = "auto"

    @property
    def counts(self) -> list[int]:
        """Clusters per layer of the mode."""
        return self.elbow if self.mode == "online" else self.auto

    @property
    def shares_keys(self) -> bool:
        """Whether query heads are clustered that share their keys."""
        return self.level == "query" and self.query_heads > self.kv_heads

    @property
    def most(self) -> int:
        """Clusters of a layer whose heads all stay: G, or the H / G query heads of each group."""
        return self.query_heads // max(1, self.kv_heads) if self.shares_keys else self.kv_heads

    @property
    def saved_share(self) -> float:
        """Share of the key/value storage that is saved: (1 - sum k / (L G)) / 2, or 0."""
        if self.shares_keys:
            return 0.0
        return (1 - sum(self.counts) / (len(self.counts) * self.kv_heads)) / 2

    def check(self, arch: Architecture) -> None:
        """Refuse a model that was not calibrated.

        Raises:
            InputError: ``conflict``.
        """
        if self.model != (digest := model_digest(arch.model)):
            raise InputError(
                "the head clusters are of another model",
                code="conflict",
                place="model",
                found=self.model,
                expected=digest,
                remedy="holdfast lm calibrate-heads MODEL DATA -o chai.json",
            )

    def cache(self, decoder: Decoder, batch: int, capacity: int) -> ClusteredArena:
        """Keys and values of a batch of requests."""
        return ClusteredArena(self, decoder, batch, capacity)

    def fixed(self, layer: int) -> Assignment:
        """The assignment of a layer before any request has clustered it."""
        if self.mode != "online":
            return self.assignment(np.array(self.sources[layer]))
        # Refused prompts never get here: only the number of stored keys counts.
        group, head = np.divmod(np.arange(self.query_heads), self.query_heads // self.kv_heads)
        last = self.counts[layer] - 1
        first = (
            (group, np.minimum(head, last)) if self.shares_keys else (np.minimum(group, last), head)
        )
        return self.assignment(first[0] * (self.query_heads // self.kv_heads) + first[1])

    def assignment(self, sources: np.ndarray) -> Assignment:
        """Who computes, and for whom."""
        return Assignment.of_sources(sources, self.kv_heads, self.shares_keys)

    def cluster(self, features: np.ndarray, layer: int) -> Assignment:
        """Cluster the heads of a layer by a vector per query head, [H, F]."""
        count, place = self.counts[layer], f"layer {layer + 1}"
        sources = head_sources(features, count, self.kv_heads, self.shares_keys, place)
        return self.assignment(sources)


def read_heads(path: str | Path, mode: Mode = "auto") -> HeadPolicy:
    """The policy of a file of `calibrate_heads`.

    Raises:
        InputError: if it is not such a file.
    """
    policy = replace(read_config(path, HeadPolicy, "the head clusters"), mode=mode)
    layers = len(policy.auto)
    counts = [*policy.auto, *policy.elbow]
    for place, valid, expected in (
        ("schema", policy.schema == SCHEMA, SCHEMA),
        ("kv_heads", policy.kv_heads > 0, "1 or more"),
        (
            "query_heads",
            policy.query_heads > 0 == policy.query_heads % max(1, policy.kv_heads),
            "a multiple of kv_heads",
        ),
        ("elbow", len(policy.elbow) == layers > 0, f"{layers} layers"),
        ("auto", all(1 <= k <= policy.most for k in counts), f"1 to {policy.most} per layer"),
        ("sources", len(policy.sources) == layers and _consistent(policy), "one source per head"),
    ):
        if not valid:
            raise InputError(
                "the head clusters are not valid",
                code="invalid-value",
                path=path,
                place=place,
                found=str(getattr(policy, place))[:80],
                expected=expected,
            )
    return policy


def _consistent(policy: HeadPolicy) -> bool:
    """Whether every layer has as many representatives as clusters, which represent themselves."""
    heads, shared = policy.query_heads, max(1, policy.query_heads // max(1, policy.kv_heads))
    for count, sources in zip(policy.auto, map(np.array, policy.sources), strict=True):
        if sources.shape != (heads,) or not ((sources >= 0) & (sources < heads)).all():
            return False
        groups = sources // shared
        if policy.shares_keys:
            own = np.arange(heads) // shared
            right = (groups == own).all() and len(np.unique(sources)) == count * policy.kv_heads
        else:
            right = len(np.unique(groups)) == count
        if not right or (policy.shares_keys and (sources[sources] != sources).any()):
            return False
    return True


def model_digest(model: Any) -> str:
    """Hash of the names and shapes of the weights and of 64 elements of each, whatever their precision."""
    digest = hashlib.sha256()
    for name, weight in sorted(model.state_dict().items()):
        digest.update(f"{name} {tuple(weight.shape)} ".encode())
        flat = weight.detach().reshape(-1)
        sample = flat[:: max(1, len(flat) // 64)][:64].to(torch.bfloat16)
        digest.update(sample.cpu().view(torch.int16).numpy().tobytes())
    return digest.hexdigest()[:32]


class ClusteredArena(Arena):
    """Keys of the representatives of every request, values of all heads.

    Args:
        policy: number of clusters per layer, and how heads are clustered.
        decoder: whose layers write.
        batch: number of sequences B.
        capacity: positions S of each.

    Attributes:
        k: per layer [B, k, S, hd]; [B, G, S, hd] where all keys stay.
        assignments: per layer the `Assignment` of each sequence; None where all heads are computed.
    """

    joins = False

    def __init__(self, policy: HeadPolicy, decoder: Decoder, batch: int, capacity: int) -> None:
        super().__init__(decoder, 0, capacity)
        arch = decoder.arch
        self.policy, self.batch = policy, batch
        shape = (len(arch.layers), batch, arch.kv_heads, capacity, arch.head_size)
        self.v = torch.zeros(shape, dtype=decoder.dtype, device=decoder.device)
        self.assignments: list[list[Assignment] | None] = []
        keys: list[Tensor] = []
        for layer, count in enumerate(policy.counts):
            clustered = count < policy.most
            fixed = policy.fixed(layer) if clustered else None
            self.assignments.append(None if fixed is None else [fixed] * batch)
            stored = arch.kv_heads if fixed is None else len(fixed.keys)
            keys.append(self.v.new_zeros(batch, stored, capacity, arch.head_size))
        self.k: Any = keys
        self._online = policy.mode != "static" and any(self.assignments)
        self._by_request = [self._online] * batch
        self._first = False
        self._plans: dict[int, _Plan] = {}

    def expect(self, lengths: Sequence[int]) -> None:
        """Number of prompt tokens that the first pass stores, per sequence.

        Raises:
            InputError: ``out-of-range`` where they are too few to cluster by, in mode "online".
        """
        if not self._online:
            return
        self._by_request = [length >= FIRST for length in lengths]
        if self.policy.mode == "online" and not all(self._by_request):
            raise InputError(
                "the prompt is too short to cluster heads by",
                code="out-of-range",
                place=f"prompt {self._by_request.index(False) + 1}",
                found=f"{min(lengths) + 1} tokens",
                expected=f"at least {FIRST + 1}",
                remedy="mode auto takes the clusters of the calibration for short prompts",
            )

    def split(self, starts: Sequence[int], rows: int) -> int:
        """Rows of a pass that are computed before the others: the first tokens, with all heads."""
        return FIRST if self._online and rows >= FIRST and not any(starts) else rows

    def begin(self, starts: Sequence[int], rows: int, counts: Sequence[int] = ()) -> None:
        """Where the pass writes and what it sees."""
        super().begin(starts, rows)
        if self._online and rows < FIRST and not any(starts):
            self.expect([rows] * self.batch)  # no prompt was announced
        self._first = self._online and rows == FIRST and not any(starts) and any(self._by_request)

    def project(self, layer: int, block: Block, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries and keys of the representatives, all values."""
        assignments = self.assignments[layer]
        if assignments is None or self._first:
            return block.project(x)
        plan = self._plans.get(layer)
        if plan is None:
            plan = self._plans[layer] = _Plan(block, assignments)
        return plan.project(x)

    def append(self, layer: int, k: Tensor, v: Tensor) -> None:
        """Store keys of the representatives; those of the first tokens after they chose them."""
        if self._first and self.assignments[layer] is not None:
            self._all_keys = k
            self.v[layer][:, :, :FIRST] = v
            return
        super().append(layer, k, v)

    def attend(self, layer: int, q: Tensor) -> Tensor:
        """Attention of all heads by the scores of the representatives."""
        assignments = self.assignments[layer]
        if assignments is None:
            return super().attend(layer, q)
        if self._first:
            return self._cluster(layer, q, assignments)
        plan = self._plans[layer]
        k, v = (part[layer][: len(q), :, : self._end] for part in (self.k, self.v))
        batch, _, rows, _ = q.shape
        chunk = max(1, _SCORES // (batch * plan.heads * self._end))
        parts = [
            clustered_attention(
                q[:, :, first : first + chunk],
                k,
                v,
                plan.partner,
                self._scales[layer],
                self._visible(first, min(rows, first + chunk)),
            )
            for first in range(0, rows, chunk)
        ]
        return parts[0] if len(parts) == 1 else torch.cat(parts, 2)

    def _visible(self, first: int, last: int) -> Tensor | None:
        """Mask of the scores of some rows of the pass, added to them: [B or 1, 1, rows, T]."""
        if self._count == 1 and self._uniform:
            return None
        if self._mask is not None:
            return self._mask[:, :, first:last]
        hidden = self._columns[: self._end] > self._columns[first:last, None]
        return self.v.new_zeros(hidden.shape).masked_fill_(hidden, float("-inf"))[None, None]

    def _cluster(self, layer: int, q: Tensor, assignments: list[Assignment]) -> Tensor:
        """Full attention over the first tokens; assign the heads of every sequence by it."""
        batch, heads, rows, size = q.shape
        groups, scale = self.v.shape[2], self._scales[layer]
        k, v = self._all_keys, self.v[layer][:, :, :FIRST]
        scores = (q.reshape(batch, groups, -1, size) @ k.transpose(2, 3)).view(
            batch, heads, rows, -1
        )
        p = torch.softmax(scores * scale + self._visible(0, rows), -1)  # [B, H, 5, 5]
        lower = torch.tril_indices(rows, rows)
        features = p[:, :, lower[0], lower[1]].double().cpu().numpy()  # [B, H, 15]
        updated = []
        for sequence, by_request in enumerate(self._by_request):
            one = assignments[sequence]
            if by_request:
                one = self.policy.cluster(features[sequence], layer)
            else:
                p[sequence] = p[sequence, one.sources]
            updated.append(one)
            self.k[layer][sequence, :, :FIRST] = k[sequence, one.keys]
        self.assignments[layer] = updated
        self._plans.pop(layer, None)
        return (p.reshape(batch, groups, -1, rows) @ v).view(batch, heads, rows, size)

    def select(self, rows: Sequence[int]) -> None:
        """Copy what moves: the clusters of a sequence go with it."""
        for layer, assignments in enumerate(self.assignments):
            if assignments is not None:
                self.assignments[layer] = [assignments[row] for row in rows]
        super().select(rows)
        self._by_request = [self._by_request[row] for row in rows]
        self._plans.clear()
        self.batch = len(rows)

    def nbytes(self) -> int:
        """Allocated bytes."""
        return sum(part.untyped_storage().nbytes() for part in (*self.k, self.v))


class _Plan:
    """The joined weights of the heads that a layer computes for a batch, and who uses whose scores.

    A head is computed for all sequences of the batch as soon as it represents a cluster of one of them.
    """

    def __init__(self, block: Block, assignments: Sequence[Assignment]) -> None:
        queries = torch.tensor(np.stack([one.queries for one in assignments]))  # [B, R]
        keys = torch.tensor(np.stack([one.keys for one in assignments]))  # [B, k]
        self.heads, self.size = block.heads, block.size
        used_queries, self._query_places = queries.unique(return_inverse=True)
        used_keys, self._key_places = keys.unique(return_inverse=True)
        parts = [
            block.head_rows("query", used_queries.tolist()),
            block.head_rows("key", used_keys.tolist()),
            block.head_rows("value", range(block.kv_heads)),
        ]
        device = parts[0][0].device
        self._counts = [len(used_queries), len(used_keys), block.kv_heads]
        weight = torch.cat([part for part, _ in parts])
        biases = [bias for _, bias in parts if bias is not None]
        self._linear = Linear(weight, torch.cat(biases) if biases else None)
        self._rows = torch.arange(len(queries), device=device)[:, None]
        self._query_places = self._query_places.to(device)
        self._key_places = self._key_places.to(device)
        # Sequences with the same representatives need no gathering.
        self._same = all(len(one.unique(dim=0)) == 1 for one in (queries, keys))
        self.partner = torch.tensor(np.stack([one.partner for one in assignments]), device=device)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """X [B, M, D] -> q [B, R, M, hd], k [B, k, M, hd], v [B, G, M, hd]."""
        batch, rows, _ = x.shape
        joined = self._linear(x).view(batch, rows, -1, self.size)
        q, k, v = joined.transpose(1, 2).split(self._counts, 1)
        if not self._same or q.shape[1] != self._query_places.shape[1]:
            q = q[self._rows, self._query_places]
        if not self._same or k.shape[1] != self._key_places.shape[1]:
            k = k[self._rows, self._key_places]
        return q, k, v


def clustered_attention(
    q: Tensor, k: Tensor, v: Tensor, partner: Tensor, scale: float, mask: Tensor | None = None
) -> Tensor:
    """Attention of H heads by the scores of R of them.

    Args:
        q: queries of the representatives, [B, R, M, hd], those of one stored key head side by side.
        k: stored keys, [B, k, T, hd]; R is a multiple of k.
        v: values, [B, G, T, hd]; H is a multiple of G.
        partner: which representative's scores each head uses, [B, H].
        scale: factor of the scores.
        mask: added to the scores, [B or 1, 1, M, T].

    Returns:
        [B, H, M, hd].
    """
    batch, count, rows, size = q.shape
    scores = q.reshape(batch, k.shape[1], -1, size) @ k.transpose(2, 3)
    scores = scores.view(batch, count, rows, -1) * scale
    p = torch.softmax(scores if mask is None else scores + mask, -1)
    every = torch.arange(batch, device=q.device)[:, None]
    p = p[every, partner]  # [B, H, M, T]
    heads = p.shape[1]
    return (p.reshape(batch, v.shape[1], -1, p.shape[-1]) @ v).view(batch, heads, rows, size)
