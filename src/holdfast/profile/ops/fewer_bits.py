"""What quantization costs and gains a small language model: score, latency, tokens/s, memory per level.

The table of MobileAIBench (arXiv 2406.10290) for the levels that torch executes on CPUs. Without a model of
the caller's, a small Llama is trained for some seconds to reverse sequences: a score that means something.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from holdfast.answer import Answer, ColumnFormat, Section, Unknown, Value
from holdfast.command import Positive, option
from holdfast.numbers import brief, counted, percent
from holdfast.profile.ops import suite
from holdfast.profile.ops.hardware import fastest
from holdfast.profile.ops.running import Workload, count
from holdfast.profile.ops.sections import section
from holdfast.profile.ops.targets import choice, refused
from holdfast.stats import clopper_pearson_interval
from holdfast.targets import load

# Weights that share a scale and a zero point in int4.
GROUP = 32
_WORDS, _LENGTH = 32, 8  # of the sequences that the small model reverses


class Int4Linear(nn.Module):
    """A linear layer with 4-bit weights, unpacked by torch's kernel for CPUs; activations stay float32."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        w = linear.weight.detach().float().unflatten(1, (-1, GROUP))  # [out, groups, GROUP]
        low, high = w.amin(2), w.amax(2)
        scale = ((high - low) / 15).clamp_min(1e-8)
        codes = ((w - low[..., None]) / scale[..., None]).round().clamp(0, 15).int().flatten(1)
        pack = torch.ops.aten._convert_weight_to_int4pack_for_cpu
        self.register_buffer("packed", pack(codes, 2))
        # The kernel computes (code - 8) scale + zero.
        self.register_buffer(
            "scales", torch.stack([scale, low + 8 * scale], -1).transpose(0, 1).contiguous()
        )
        self.bias, self.count = linear.bias, linear.weight.numel()

    def forward(self, x: Tensor) -> Tensor:
        """[..., in] -> [..., out]."""
        multiply = torch.ops.aten._weight_int4pack_mm_for_cpu
        flat = multiply(x.flatten(0, -2), self.packed, GROUP, self.scales)
        y = flat.unflatten(0, x.shape[:-1])
        return y if self.bias is None else y + self.bias


def _int8(model: nn.Module) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch announces the move of its quantization to torchao
        return torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8)


def _int4(model: nn.Module) -> nn.Module:
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear) and not (
                child.in_features % GROUP or child.out_features % 16
            ):
                setattr(module, name, Int4Linear(child))
    return model


# Level -> what makes a model of it; int8 quantizes activations as they come, int4 weights only.
LEVELS: dict[str, Callable[[nn.Module], nn.Module]] = {
    "fp32": lambda model: model.float(),
    "bf16": lambda model: model.bfloat16(),
    "fp16": lambda model: model.half(),
    "int8-dynamic": _int8,
    "int4-weight": _int4,
}


@dataclass(frozen=True)
class Quantization(Answer):
    """One model at several levels of quantization.

    Attributes:
        sequences: Sequences that were scored.
        answer_tokens: Final tokens of each that are the answer; 0: no score.
        rows: One per level: changed (share of the weights that have another type than float32),
            weight_bytes, score with interval, agreement, prefill_s, tokens_per_s, peak_bytes.
    """

    name: str
    parameters: int
    sequences: int
    answer_tokens: int
    rows: list[dict[str, Any]]
    notes: list[str]

    title = "Quantization of a language model"

    def values(self) -> Sequence[Value]:
        """Bytes, score and agreement per level."""
        return [
            value
            for row in self.rows
            for value in (
                Value(f"weight_bytes_{row['level']}", row["weight_bytes"], "bytes", better="lower"),
                Value(f"score_{row['level']}", row["score"], better="higher"),
                Value(f"agreement_{row['level']}", row["agreement"], better="higher"),
            )
        ]

    def inputs(self) -> Sequence[tuple[str, str]]:
        """Model and task."""
        return [
            ("model", f"{self.name}, {self.parameters:,} parameters"),
            (
                "task",
                f"{self.sequences:,} sequences, the last {self.answer_tokens} tokens are the answer",
            ),
        ]

    def unknowns(self) -> Sequence[Unknown]:
        """What the figures do not say."""
        return [Unknown(note) for note in self.notes]

    def sections(self) -> Sequence[Section]:
        """The table."""
        base, small = self.rows[0], min(self.rows, key=lambda row: row["weight_bytes"])
        size = percent(small["weight_bytes"] / base["weight_bytes"])
        slower = brief(base["tokens_per_s"] / small["tokens_per_s"])
        sentence = (
            f"{small['level']} changes {percent(small['changed'])} of the weights, has {size} of the "
            f"bytes of fp32, takes {slower} times as long per token, and agrees with it on "
            f"{percent(small['agreement'])} of the tokens"
        )
        if small["score"] is not None:
            sentence += f"; score {percent(small['score'])} instead of {percent(base['score'])}"
        return [
            section(
                "levels",
                "What does quantization cost?",
                f"{sentence}.",
                self.rows,
                "level changed weight_bytes score agreement prefill_s tokens_per_s peak_bytes",
                forms={"score": ColumnFormat("Score", "%", digits=1, interval=("low", "high"))},
                formula=[
                    "score: share of sequences whose answer is right in every token",
                    "agreement: share of tokens with the same most likely successor as in fp32",
                    "peak memory: weights and the largest sum of live tensors in one pass",
                ],
                notes="Fastest of five passes over one sequence; decoding with the model's cache if it has "
                "one. Score: exact binomial 95 % interval.",
            )
        ]


def quantization(
    target: str = "",
    /,
    levels: Annotated[str, option(metavar="NAME,...")] = ",".join(LEVELS),
    *,
    new_tokens: Positive = 16,
    steps: Positive = 400,
) -> Quantization:
    """Score and time a language model at several levels of quantization on this machine's CPU.

    Args:
        target: package.module:factory that returns a model (ids [B, T] -> logits [B, T, V], or an
            object that has them), sequences [N, T] and the number of their final tokens that are the
            answer (0: no score); default: a small Llama, trained for some seconds to reverse sequences.
        levels: Levels to measure beside fp32: bf16, fp16, int8-dynamic, int4-weight.
        new_tokens: Tokens to decode for the speed.
        steps: Training steps of the small model.

    Raises:
        InputError: ``unknown-name``; ``invalid-value`` for a factory that returns something else.
    """
    names = levels.split(",")
    for level in names:
        choice(level, LEVELS, "level", "--levels")
    factory = load(target) if target else lambda: small_model(steps)
    result = factory if isinstance(factory, nn.Module) else factory()
    if not (isinstance(result, tuple) and len(result) == 3 and isinstance(result[0], nn.Module)):
        expected, kind = "a module, sequences [N, T], answer tokens", type(result).__name__
        raise refused("not a scored model", "invalid-value", "TARGET", kind, expected)
    model, ids, answer = result
    rows, reference = [], None
    with torch.no_grad():
        for level in dict.fromkeys(["fp32", *names]):
            changed = LEVELS[level](copy.deepcopy(model).eval())
            top = _logits(changed(ids)).argmax(-1)  # [N, T]
            reference = top if reference is None else reference
            score = low = high = None
            if answer:
                right = int((top[:, -answer - 1 : -1] == ids[:, -answer:]).all(1).sum())
                score = right / len(ids)
                low, high = clopper_pearson_interval(right, len(ids))
            weights, share = _weights(changed)
            active = count(Workload(changed, (ids,)), "cpu", "fused")[0].peak_bytes
            first = fastest(partial(changed, ids[:1]), 0)
            decoding = fastest(partial(_decode, changed, ids[:1], new_tokens), 0)
            rows.append(
                {
                    "level": level,
                    "changed": share,
                    "weight_bytes": weights,
                    "score": score,
                    "low": low,
                    "high": high,
                    "agreement": float((top == reference).float().mean()),
                    "prefill_s": first,
                    "tokens_per_s": new_tokens / decoding,
                    "peak_bytes": weights + active,
                }
            )
    notes = [
        "Times are of this machine and this size of model: a larger one gains more from fewer bytes."
    ]
    notes += [
        f"{row['level']} changes {percent(row['changed'])} of the weights: those of nn.Linear."
        for row in rows
        if row["level"] != "fp32" and row["changed"] < 0.5
    ]
    if not target:
        notes.append(f"The model was trained for {counted(steps, 'step')} on random sequences.")
    return Quantization(
        target or "a small Llama that reverses sequences",
        sum(each.numel() for each in model.parameters()),
        len(ids),
        answer,
        rows,
        notes,
    )


def _logits(out: Any) -> Tensor:
    return getattr(out, "logits", out)


def _decode(model: nn.Module, ids: Tensor, count: int) -> None:
    """Append the most likely token `count` times."""
    cached = hasattr(model, "generate")
    out = model(ids, use_cache=True) if cached else model(ids)
    for _ in range(count):
        token = _logits(out)[:, -1:].argmax(-1)
        if cached:
            out = model(token, past_key_values=out.past_key_values, use_cache=True)
        else:
            ids = torch.cat([ids, token], 1)
            out = model(ids)


def _weights(model: nn.Module) -> tuple[int, float]:
    """Bytes of all weights as they are stored, shared ones once, and the share that is not float32."""
    kept = list(model.parameters())
    total = sum(each.nbytes for each in (*kept, *model.buffers()))
    floats = sum(each.numel() for each in kept if each.dtype == torch.float32)
    others = sum(each.numel() for each in kept) - floats
    for module in model.modules():
        if isinstance(module, torch.ao.nn.quantized.dynamic.Linear):
            weight, bias = module._weight_bias()
            others += weight.numel()
            # One scale and zero point.
            total += weight.numel() + 8 + (0 if bias is None else bias.nbytes)
        elif isinstance(module, Int4Linear):
            others += module.count
    return total, others / ((others + floats) or 1)


def small_model(steps: int = 400) -> tuple[nn.Module, Tensor, int]:
    """A Llama with 0.1 M parameters that reverses sequences of 8 of 32 words, and 512 to score it with."""
    model = suite.build("small-llama", "float32", "cpu")
    generator = torch.Generator().manual_seed(1)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=steps)
    for _ in range(steps):
        ids = _sequences(128, generator)
        logits = model(ids[:, :-1]).logits[:, _LENGTH - 1 :]  # those of the answer
        loss = functional.cross_entropy(logits.flatten(0, 1), ids[:, _LENGTH:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return model.eval(), _sequences(512, torch.Generator().manual_seed(2)), _LENGTH


def _sequences(count: int, generator: torch.Generator) -> Tensor:
    """[count, 2 LENGTH]: words, and the same backwards."""
    words = torch.randint(0, _WORDS, (count, _LENGTH), generator=generator)
    return torch.cat([words, words.flip(1)], 1)
