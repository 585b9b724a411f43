"""Calibration of clustered heads: how many clusters each layer needs, and what they cost in perplexity."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor
from torch.nn import functional as F

from holdfast import progress
from holdfast.answer import Answer, ColumnFormat, How, Section, Table, Value
from holdfast.errors import InputError
from holdfast.files import write_whole
from holdfast.lm.generate.architectures import architecture
from holdfast.lm.generate.arena import Arena
from holdfast.lm.generate.decoder import Decoder
from holdfast.lm.generate.heads import FIRST, SCHEMA, HeadPolicy, model_digest
from holdfast.lm.generate.heads_clusters import (
    clustered_sets,
    elbow,
    error_curve,
    head_sources,
)
from holdfast.lm.generate.training_text import Texts, windows
from holdfast.numbers import number, percent
from holdfast.report.figures import lines

PAPER = "Agarwal et al.: CHAI: Clustered Head Attention, ICML 2024 (arXiv 2403.08058)"
_BATCH = 8


@dataclass(frozen=True)
class HeadCalibration(Answer):
    """The clusters of every layer, and their perplexity on text that did not choose them.

    Args:
        policy: content of the file.
        path: the file.
        layers: one row per layer: layer, elbow, auto (clusters), perplexity_change (of this layer alone).
        perplexity: mode -> perplexity on held-out windows; "all" is the model with all heads.
        tolerance: largest increase of perplexity allowed to mode auto.
        samples: windows of text that the clusters were tokens by, and as many that perplexity is of.
    """

    policy: HeadPolicy
    path: Path
    layers: list[dict[str, Any]]
    perplexity: dict[str, float]
    tolerance: float
    samples: int

    @property
    def title(self) -> str:
        """The heading of the page."""
        return "Clustered attention heads"

    def to_dict(self) -> dict[str, Any]:
        """The JSON of ``holdfast lm calibrate-heads``."""
        saved = {
            mode: replace(self.policy, mode=mode).saved_share
            for mode in ("auto", "static", "online")
        }
        document: dict[str, Any] = super().to_dict()
        del document["policy"]
        policy = {"model": self.policy.model, "level": self.policy.level, "heads": self.policy.most}
        return document | policy | {"kv_bytes_saved_share": saved}

    def written(self) -> Mapping[str, Path]:
        """The clusters."""
        return {"head clusters": self.path}

    def values(self) -> Sequence[Value]:
        """Perplexity and savings of mode auto."""
        return [
            Value("perplexity", self.perplexity["auto"], better="lower"),
            Value("kv_bytes_saved_share", self.policy.saved_share, better="higher"),
        ]

    def sections(self) -> Sequence[Section]:
        """Clusters per layer."""
        change = self.perplexity["auto"] / self.perplexity["all"] - 1
        online = self.perplexity["online"] / self.perplexity["all"] - 1
        saved = f"saves {percent(self.policy.saved_share, 1)} of the key/value storage"
        if self.policy.shares_keys:
            saved = "saves no storage (query heads of one group share their keys)"
        computed = sum(self.policy.auto) / (self.policy.most * len(self.policy.auto))
        sentence = (
            f"Mode auto computes {percent(computed, 1)} of the scores, {saved} and changes perplexity by "
            f"{percent(change, 2)} ({number(self.perplexity['all'], 3)} with all heads); mode online, with "
            f"the clusters of the elbow, by {percent(online, 2)}."
        )
        columns = {
            "layer": ColumnFormat("Layer"),
            "elbow": ColumnFormat("Clusters at the elbow"),
            "auto": ColumnFormat("Clusters of mode auto"),
            "perplexity_change": ColumnFormat(
                "Perplexity change by this layer alone", "%", digits=2
            ),
        }
        how = How(
            [
                "vector of a head = its causal attention probabilities over a window",
                "elbow: the k whose k-means error lies farthest below the line from k = 1 to all heads",
                "storage saved = (1 - sum of clusters / (layers x key/value heads)) / 2",
            ],
            parameters={"heads": self.policy.most, "samples": self.samples},
            source=PAPER,
            notes="Mode auto adds layers in the order of their own perplexity change, up to the tolerance.",
        )
        figure = lines(self.layers, "layer", "auto", "Layer", "Clusters of mode auto", points=True)
        table = Table(pa.Table.from_pylist(self.layers), columns, "One row per layer.")
        question = "How many heads does each layer need?"
        return [Section("clusters", question, sentence, [figure], [table], how)]


def calibrate_heads(
    model: Path,
    data: Path,
    output: Path,
    *,
    level: Literal["kv", "query"] = "kv",
    samples: int = 16,
    length: int = 128,
    tolerance: float = 0.01,
) -> HeadCalibration:
    """Cluster the heads of a model by their attention over sample text.

    Args:
        model: folder of a model of transformers and its tokenizer.
        data: file or folder of text.
        output: JSON file to write.
        level: cluster key/value heads ("kv"), or the query heads that share one ("query").
        samples: windows to cluster by; as many more measure perplexity.
        length: tokens per window.
        tolerance: largest relative increase of perplexity in mode auto.

    Raises:
        InputError: for a model or data that cannot be used; ``invalid-value`` for attention with NaN.
    """
    from holdfast.lm.generate.loading import open_model

    opened, tokenizer, _ = open_model(model)
    opened = opened.float()  # clusters are those of the weights, whatever they are stored in
    corpus = Texts(data).encoded(tokenizer)
    pieces = windows(np.concatenate((corpus.train, corpus.held_out)), length)
    context = opened.config.max_position_embeddings
    if not FIRST + 1 < length <= context:
        raise InputError(
            "invalid window length",
            code="out-of-range",
            place="length",
            found=str(length),
            expected=f"{FIRST + 2} to {context}, the positions of the model",
        )
    if len(pieces) < 2 * samples:
        raise InputError(
            "too little text for the samples",
            code="no-data",
            path=data,
            found=f"{len(pieces)} windows of {length} tokens",
            expected=f"{2 * samples} windows",
            remedy="more text, fewer samples or shorter windows",
        )
    spread = np.linspace(0, len(pieces) - 1, 2 * samples).astype(int)
    tokens = torch.from_numpy(pieces[spread]).long()
    answer = calibrate(opened, tokens[::2], tokens[1::2], level=level, tolerance=tolerance)
    answer = replace(answer, path=output)
    document = {key: value for key, value in asdict(answer.policy).items() if key != "mode"}
    write_whole(output, json.dumps(document).encode() + b"\n")
    return answer


def calibrate(
    model: Any,
    samples: Tensor,
    held_out: Tensor,
    *,
    level: Literal["kv", "query"] = "kv",
    tolerance: float = 0.01,
) -> HeadCalibration:
    """The clusters of a model in memory.

    Args:
        model: causal model of transformers.
        samples: windows of tokens to cluster by, [N, T].
        held_out: windows whose perplexity decides which layers mode auto clusters.
        level: as of `calibrate_heads`.
        tolerance: as of `calibrate_heads`.
    """
    arch = architecture(model)
    decoder = Decoder(arch)
    with (
        progress.track("clustering heads", len(arch.layers), "layers") as bar,
        torch.inference_mode(),
    ):
        sizes = arch.query_heads, arch.kv_heads
        everything = [list(range(arch.query_heads))] * len(arch.layers)
        policy = HeadPolicy(SCHEMA, model_digest(model), *sizes, level, [], [], everything)
        elbows, sources = [], []
        for layer, vectors in enumerate(_observe(decoder, samples)):  # vectors [N, H, F]
            place = f"layer {layer + 1}"
            sets = [
                part
                for one in vectors
                for part in clustered_sets(one, arch.kv_heads, policy.shares_keys)
            ]
            elbows.append(elbow(np.mean([error_curve(part, place) for part in sets], 0)))
            # Windows side by side: heads of a cluster attend alike in all of them.
            joined = vectors.transpose(1, 0, 2).reshape(arch.query_heads, -1)
            one = head_sources(joined, elbows[-1], arch.kv_heads, policy.shares_keys, place)
            sources.append(one.tolist())
            bar.advance(1)
        policy = replace(policy, elbow=elbows, auto=elbows, sources=sources)
        policy, perplexity, changes = _within(decoder, policy, held_out, tolerance)
    rows = [
        {"layer": place + 1, "elbow": k, "auto": auto, "perplexity_change": change}
        for place, (k, auto, change) in enumerate(zip(elbows, policy.auto, changes, strict=True))
    ]
    return HeadCalibration(policy, Path(), rows, perplexity, tolerance, len(samples))


def _within(
    decoder: Decoder, policy: HeadPolicy, held_out: Tensor, tolerance: float
) -> tuple[HeadPolicy, dict[str, float], list[float]]:
    """The layers that mode auto clusters: those that cost least alone, as many as the tolerance allows."""
    most, layers = policy.most, len(policy.elbow)
    all_heads = perplexity(decoder, held_out)

    def measured(clustered: Sequence[int]) -> tuple[HeadPolicy, float]:
        counts = [k if layer in clustered else most for layer, k in enumerate(policy.elbow)]
        sources = [
            part if layer in clustered else list(range(policy.query_heads))
            for layer, part in enumerate(policy.sources)
        ]
        one = replace(policy, auto=counts, sources=sources)
        return one, perplexity(decoder, held_out, one)

    able = [layer for layer in range(layers) if policy.elbow[layer] < most]
    changes = [
        measured([layer])[1] / all_heads - 1 if layer in able else 0.0 for layer in range(layers)
    ]
    order = sorted(able, key=lambda layer: changes[layer])
    low, high = 0, len(order)  # the first `low` layers are within the tolerance
    while low < high:
        middle = (low + high + 1) // 2
        if measured(order[:middle])[1] <= all_heads * (1 + tolerance):
            low = middle
        else:
            high = middle - 1
    best, value = measured(order[:low])
    online = perplexity(decoder, held_out, replace(policy, mode="online"))
    static = perplexity(decoder, held_out, replace(best, mode="static"))
    return best, {"all": all_heads, "auto": value, "static": static, "online": online}, changes


@torch.inference_mode()
def perplexity(decoder: Decoder, pieces: Tensor, policy: HeadPolicy | None = None) -> float:
    """Perplexity of windows of tokens, [N, T], of the tokens behind the first five."""
    total = 0.0
    for first in range(0, len(pieces), _BATCH):
        ids = pieces[first : first + _BATCH].to(decoder.device)
        batch, rows = ids.shape
        size = (decoder, batch, rows)
        cache = Arena(*size) if policy is None else policy.cache(*size)
        logits = decoder.logits(decoder.run(decoder.embed(ids, [0] * batch), cache, [0] * batch))
        total += float(
            F.cross_entropy(
                logits[:, FIRST:-1].flatten(0, 1).float(),
                ids[:, FIRST + 1 :].flatten(),
                reduction="sum",
            )
        )
    return math.exp(min(700.0, total / (len(pieces) * (pieces.shape[1] - FIRST - 1))))


class _Observer(Arena):
    """Keeps the causal attention probabilities of every layer, [B, H, T (T + 1) / 2]."""

    def attend(self, layer: int, q: Tensor) -> Tensor:
        """Attention that also stores its probabilities."""
        k = self.k[layer][:, :, : self._end]
        batch, heads, rows, size = q.shape
        scores = (q.reshape(batch, k.shape[1], -1, size) @ k.transpose(2, 3)) * self._scales[layer]
        scores = scores.view(batch, heads, rows, rows)
        hidden = torch.ones(rows, rows, dtype=torch.bool, device=q.device).triu(1)
        p = torch.softmax(scores.masked_fill(hidden, float("-inf")), -1)
        self.seen = [*getattr(self, "seen", []), p[:, :, ~hidden].float().cpu().numpy()]
        return super().attend(layer, q)


def _observe(decoder: Decoder, samples: Tensor) -> list[np.ndarray]:
    """Attention vectors per layer: [N, H, F]."""
    parts = []
    for first in range(0, len(samples), _BATCH):
        ids = samples[first : first + _BATCH].to(decoder.device)
        observer = _Observer(decoder, *ids.shape)
        decoder.run(decoder.embed(ids, [0] * len(ids)), observer, [0] * len(ids))
        parts.append(observer.seen)
    return [np.concatenate(layer).astype(np.float64) for layer in zip(*parts, strict=True)]
