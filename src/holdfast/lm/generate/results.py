"""What a generation yielded: texts, speed, acceptance, memory, and where rounding could have decided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

from holdfast.answer import Answer, How, Value
from holdfast.errors import InputError
from holdfast.numbers import number, percent
from holdfast.report.page import ColumnFormat, Section, Table, Unknown


@dataclass(frozen=True)
class Text:
    """One continuation."""

    text: str
    """Decoded, up to a stop string; empty without a tokenizer."""
    tokens: list[int]
    """Ids of the continuation, the end of text or the tokens of the stop string included."""
    prompt_tokens: int
    ended: str
    """``end`` (end of text), ``stop``, ``length`` (max-new) or ``context`` (all positions used)."""
    near_ties: list[int]
    """Places in `tokens` where the two largest logits are within the tolerance."""


@dataclass(frozen=True)
class Generation(Answer):
    """Continuations of prompts, and what they cost."""

    texts: tuple[str, ...]
    details: Sequence[Text]
    seconds: float
    """Prefill and decoding."""
    prefill_seconds: float
    acceptance: float | None
    """Accepted share of the drafted tokens; None without drafts."""
    drafted: int
    accepted: int
    rounds: int
    plans: Sequence[Mapping[str, Any]]
    """Per plan, the most frequent first: rounds, tokens, seconds of its rounds."""
    requested: str
    """``auto`` or a plan."""
    kv_bytes: int
    """Largest storage of keys and values of one batch."""
    rows_per_layer: tuple[int, ...]
    """Tokens that each layer computed."""
    tolerance: float
    """Top-2 margin below which a token is a near-tie."""
    exact: bool
    settings: Mapping[str, Any]
    """Temperature, top_k, top_p, repetition_penalty, seed, and the ids that end a text."""
    ignored_settings: Mapping[str, Any]
    """Settings of the checkpoint (generation_config.json) that have no effect here."""
    dtype: str
    """Of the weights and the computation."""
    model: str
    layers: int
    perplexity: float | None = None
    """Perplexity of the prompts by the whole model; None if it was not computed."""
    perplexity_by_exit: Mapping[int, float] | None = None
    """Perplexity of the prompts by the layers below each exit."""
    perplexity_all_heads: float | None = None
    """Perplexity of the prompts with all heads; None without a policy for fewer."""
    checked: bool = False
    """Compared with plain decoding: every divergence is a near-tie."""
    divergences: int = 0
    """Texts that differ from plain decoding after a near-tie."""

    @property
    def title(self) -> str:
        """The heading of the page."""
        return "Generation"

    @property
    def tokens(self) -> list[list[int]]:
        """Ids of every continuation."""
        return [text.tokens for text in self.details]

    @property
    def speculation(self) -> str:
        """``on`` if any round drafted, else ``off``."""
        return "on" if self.drafted else "off"

    @property
    def count(self) -> int:
        """Generated tokens."""
        return sum(len(text.tokens) for text in self.details)

    @property
    def tokens_per_second(self) -> float:
        """Generated tokens per second of prefill and decoding."""
        return self.count / self.seconds

    @property
    def near_ties(self) -> list[dict[str, int]]:
        """Every near-tie: text and place in its continuation."""
        return [
            {"text": number_, "place": place}
            for number_, text in enumerate(self.details)
            for place in text.near_ties
        ]

    def check_against(self, plain: Generation) -> Generation:
        """This generation, compared with plain decoding of the same prompts.

        Raises:
            InputError: ``divergence`` if the first difference of a text is not a near-tie.
        """
        differ = 0
        for place, (ours, theirs) in enumerate(zip(self.details, plain.details, strict=True)):
            first = first_difference(ours.tokens, theirs.tokens)
            if first is None:
                continue
            differ += 1
            if self.exact or first not in (*ours.near_ties, *theirs.near_ties):
                raise InputError(
                    "the text differs from plain decoding where the choice was clear",
                    code="divergence",
                    place=f"text {place + 1}, token {first + 1}",
                    expected=f"equal tokens, or logits within {self.tolerance:g}",
                    remedy="decode with --speculate off, and report the model",
                )
        return replace(self, checked=True, divergences=differ)

    def to_dict(self) -> dict[str, Any]:
        """The JSON of the command."""
        document: dict[str, Any] = super().to_dict()
        del document["details"]
        return document | {
            "tokens": self.tokens,
            "ends": [text.ended for text in self.details],
            "tokens_per_second": self.tokens_per_second,
            "speculation": self.speculation,
            "near_ties": self.near_ties,
            "unknown": [part.text for part in self.unknowns()],
        }

    def values(self) -> Sequence[Value]:
        """Speed, acceptance, memory, perplexity."""
        return [
            Value("tokens_per_second", self.tokens_per_second, "tokens/s", better="higher"),
            Value("acceptance", self.acceptance, better="higher", how="accepted / drafted tokens"),
            Value("kv_bytes", float(self.kv_bytes), "bytes", better="lower"),
            Value("perplexity", self.perplexity, better="lower", how="of the prompts"),
        ]

    def inputs(self) -> Sequence[tuple[str, str]]:
        """Model, prompts, settings."""
        prompts = sum(text.prompt_tokens for text in self.details)
        return [
            ("model", f"{self.model}, {self.layers} layers, {self.dtype}"),
            ("prompts", f"{len(self.details):,}, {prompts:,} tokens"),
            ("speculation", self.requested + " (exact)" * self.exact),
            ("settings", ", ".join(f"{key} {value}" for key, value in self.settings.items())),
        ]

    def sections(self) -> Sequence[Section]:
        """Texts, speed, layers, near-ties."""
        return [self._continuations(), self._speed(), self._layers(), self._ties()]

    def _speed(self) -> Section:
        sentence = (
            f"{self.count:,} tokens at {number(self.tokens_per_second)} tokens/s "
            f"in {number(self.seconds)} s, prefill included; {self.count / max(1, self.rounds):.2f} tokens "
            "per round."
        )
        if self.acceptance is not None:
            sentence += (
                f" {percent(self.acceptance)} of {self.drafted:,} drafted tokens were accepted."
            )
        rows = [{**plan, "speed": plan["tokens"] / plan["seconds"]} for plan in self.plans]
        columns = {
            "plan": ColumnFormat("Plan"),
            "rounds": ColumnFormat("Rounds"),
            "tokens": ColumnFormat("Tokens"),
            "speed": ColumnFormat("Speed", "tokens/s", digits=0),
        }
        caption = "One row per plan; early-exit:E,d drafts d tokens with the first E layers."
        how = How(
            (
                "round cost = (d + 1) c_early(1) + d head(1) + c_late(d + 1) + head(d + 1)",
                "tokens per round = (1 - a^(d+1)) / (1 - a)",
            ),
            {"d": "drafted tokens", "a": "acceptance of one draft"},
            "LayerSkip, arXiv 2404.16710; expected tokens: Leviathan et al. 2023, equation 1",
            "Costs and acceptance are learned from the rounds; the plan with the highest predicted speed "
            "is used, and plain decoding where none is 10 % faster.",
        )
        return Section(
            "speed",
            "How fast was it?",
            sentence,
            (),
            [_table(rows, columns, caption)],
            how,
        )

    def _layers(self) -> Section:
        rows = [
            {
                "layer": layer,
                "rows": count,
                "perplexity": (self.perplexity_by_exit or {}).get(layer + 1),
            }
            for layer, count in enumerate(self.rows_per_layer)
        ]
        columns = {
            "layer": ColumnFormat("Layer"),
            "rows": ColumnFormat("Rows computed"),
            "perplexity": ColumnFormat("Perplexity of an exit after it", digits=2),
        }
        sentence = (
            f"The first layer computed {self.rows_per_layer[0]:,} rows, the last "
            f"{self.rows_per_layer[-1]:,}, prompts included."
        )
        if self.perplexity is not None:
            sentence += f" The whole model's perplexity of the prompts is {number(self.perplexity)}"
            if self.perplexity_all_heads is not None:
                change = self.perplexity / self.perplexity_all_heads - 1
                sentence += f", {percent(change)} more than with all heads"
            sentence += "."
        table = _table(rows, columns)
        return Section("layers", "What did each layer compute?", sentence, (), [table])

    def _ties(self) -> Section:
        rows = [
            {"text": tie["text"] + 1, "token": tie["place"] + 1} for tie in self.near_ties[:20_000]
        ]
        if self.exact:
            sentence = "Exact decoding: plain and speculative decoding agree bit by bit."
        else:
            sentence = (
                f"{len(self.near_ties):,} of {self.count:,} tokens were near-ties: their two largest "
                f"logits are within {self.tolerance:g}, so that rounding could have decided."
            )
        if self.checked:
            sentence += (
                f" {self.divergences:,} of {len(self.details):,} texts differ from plain decoding, each "
                "from a near-tie on."
                if self.divergences
                else " Every text equals that of plain decoding."
            )
        columns = {"text": ColumnFormat("Text"), "token": ColumnFormat("Token")}
        table = Table(_arrow(rows, columns), columns, empty="No near-ties.", detail=True)
        return Section("near-ties", "Is this what plain decoding gives?", sentence, (), [table])

    def _continuations(self) -> Section:
        rows = [
            {
                "text": text.text or " ".join(map(str, text.tokens)),
                "tokens": len(text.tokens),
                "ended": text.ended,
            }
            for text in self.details[:20_000]
        ]
        columns = {
            "text": ColumnFormat("Continuation"),
            "tokens": ColumnFormat("Tokens"),
            "ended": ColumnFormat("Ended by"),
        }
        return Section("texts", "What was generated?", "", (), [_table(rows, columns)])

    def unknowns(self) -> Sequence[Unknown]:
        """Settings that were ignored, and whether speculation was worth it where it was switched off."""
        unknown = [
            Unknown(
                f"What the checkpoint's setting {key} = {value!r} would change: it has no effect here.",
                "end texts by --stop, or generate with transformers where it matters",
            )
            for key, value in self.ignored_settings.items()
        ]
        if self.divergences:
            unknown.append(
                Unknown(
                    f"Whether {self.divergences:,} texts are those of plain decoding: they differ from a "
                    "near-tie on, where rounding decides.",
                    "decode with --exact",
                )
            )
        if self.requested == "auto" and not self.drafted:
            unknown.append(
                Unknown(
                    "Acceptance of drafts: none was tried, as none was predicted to pay.",
                    "train the model for early exits, or name a plan: --speculate early-exit:E,d",
                )
            )
        return unknown


def first_difference(ours: Sequence[int], theirs: Sequence[int]) -> int | None:
    """Place of the first token that differs; None for equal texts."""
    pairs = enumerate(zip_longest(ours, theirs))
    return next((place for place, (one, other) in pairs if one != other), None)


def _table(
    rows: Sequence[Mapping[str, Any]], columns: Mapping[str, ColumnFormat], caption: str = ""
) -> Table:
    return Table(_arrow(rows, columns), columns, caption)


def _arrow(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, ColumnFormat]) -> Any:
    import pyarrow as pa

    return pa.table({name: [row[name] for row in rows] for name in columns})
