"""Generation: prefill, then rounds until every text has ended."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from holdfast.errors import InputError
from holdfast.lm.generate.architectures import architecture
from holdfast.lm.generate.arena import Arena, Cache
from holdfast.lm.generate.decoder import Decoder
from holdfast.lm.generate.exact import ROWS, ExactArena, ExactDecoder, check_exact
from holdfast.lm.generate.loading import end_ids, open_model
from holdfast.lm.generate.results import Generation, Text
from holdfast.lm.generate.sampling import GREEDY, TOLERANCE, Chooser, Sampling
from holdfast.lm.generate.speculation import Plan, Round, parse_plan, run_round
from holdfast.lm.generate.tuning import (
    LENGTHS,
    Acceptance,
    Controller,
    Profile,
    agreement,
    candidate_exits,
    lookup_agreement,
    measure_costs,
)

LONGEST_DRAFT = 32
LONGEST_SCORED = 512
"""Tokens of a prompt that its perplexity is computed from."""


@dataclass
class Sequences:
    """The texts of one batch while they grow."""

    texts: list[list[int]]
    """Tokens of prompt and continuation; keys and values of all but the last are stored."""
    prompts: list[int]
    """Length of each prompt."""
    limits: list[int]
    """Length at which each text ends."""
    ends: list[str] = field(default_factory=list)
    """Why each text ended; empty while it grows."""
    near_ties: list[list[int]] = field(default_factory=list)
    """Places in the continuation of tokens that were near-ties."""

    def __post_init__(self) -> None:
        self.ends = ["" for _ in self.texts]
        self.near_ties = [[] for _ in self.texts]


class Generator:
    """A model ready to generate: weights joined, costs measured once.

        generator = Generator("hf:models/small")
        generator.generate(["def area("], max_new=64).texts

    Args:
        model: ``hf:FOLDER`` or a folder; a `HuggingFaceModel`; or a causal model of transformers in
            memory.
        tokenizer: of transformers or `load_tokenizer`; None takes that of the folder. A model in memory
            works without one, on prompts of token ids.
        exact: pad every pass so that plain and speculative decoding agree bit by bit (slower).
        heads: policy for fewer heads, from `read_heads`; None computes every head.

    Raises:
        InputError: ``unsupported`` for a model that cannot be run layer by layer.
    """

    def __init__(
        self, model: Any, tokenizer: Any = None, *, exact: bool = False, heads: Any = None
    ) -> None:
        loaded, self.tokenizer, self.begin, release = open_model(model, tokenizer)
        arch = architecture(loaded)
        self.name = str(model) if isinstance(model, str | Path) else f"{arch.name} in memory"
        if heads is not None:
            if exact:
                raise InputError(
                    "exact decoding computes every head",
                    code="conflict",
                    place="exact",
                    remedy="leave out --exact or --heads",
                )
            heads.check(arch)
        self.decoder = (ExactDecoder if exact else Decoder)(arch, release=release)
        if isinstance(self.decoder, ExactDecoder):
            check_exact(self.decoder)
        self.exact, self.heads = exact, heads
        self.tolerance = TOLERANCE.get(str(self.decoder.dtype).removeprefix("torch."), 0.3)
        self._profiles: dict[bool, Profile] = {}
        self._end_ids = end_ids(loaded, self.tokenizer)

    def generate(
        self,
        prompts: Sequence[str | Sequence[int]],
        *,
        max_new: int = 128,
        speculate: str | Plan = "auto",
        sampling: Sampling = GREEDY,
        stop: Sequence[str] = (),
        batch: int = 1,
        check: bool = False,
        ignore_end: bool = False,
    ) -> Generation:
        """Continue every prompt.

        Args:
            prompts: texts, or token ids (used as they are, without a beginning token).
            max_new: most new tokens per prompt.
            speculate: ``auto``, ``off``, ``lookup``, ``lookup:D`` or ``early-exit:E,D``.
            sampling: greedy by default.
            stop: strings that end a text; the text is cut before the first.
            batch: number of prompts that are decoded together.
            check: decode again without drafts, and fail on a divergence that is not a near-tie.
            ignore_end: do not stop at the end of text (for measurements).

        Raises:
            InputError: for an empty or too long prompt, an exit layer outside the model, logits that are
                not numbers, or a divergence (``divergence``).
        """
        plan = self._plan(speculate)
        texts = [self._tokens(prompt, place) for place, prompt in enumerate(prompts)]
        if not texts:
            raise InputError("no prompts", code="empty-input", place="prompts")
        if max_new < 1 or batch < 1:
            raise InputError(
                "max_new and batch must be at least 1",
                code="out-of-range",
                place="max_new" if max_new < 1 else "batch",
                found=str(min(max_new, batch)),
            )
        if stop and self.tokenizer is None:
            raise InputError("stop strings need a tokenizer", code="conflict", place="stop")
        if check and not sampling.greedy:
            raise InputError("only greedy decoding can be checked", code="conflict", place="check")
        chooser = Chooser(sampling, self.tolerance, self.decoder.device)
        run = Run()
        rows = list(self.decoder.rows)
        ends = frozenset() if ignore_end else self._end_ids
        with torch.inference_mode():
            for first in range(0, len(texts), batch):
                part = texts[first : first + batch]
                state = self._start(part, max_new)
                self._decode(state, plan, chooser, ends, stop, run)
                run.texts += [self._text(state, place, stop) for place in range(len(part))]
        result = run.result(
            self, plan, [new - old for new, old in zip(self.decoder.rows, rows, strict=True)]
        )
        if check:
            plain = self.generate(
                [list(text) for text in texts],
                max_new=max_new,
                speculate="off",
                stop=stop,
                sampling=sampling,
                batch=batch,
                ignore_end=ignore_end,
            )
            result = result.check_against(plain)
        return result

    def perplexity(
        self,
        prompts: Sequence[str | Sequence[int]],
        exits: Sequence[int] = (),
        all_heads: bool = False,
    ) -> dict[int, float]:
        """Perplexity of texts by the first E layers and the head, for each exit E and for all layers.

        Args:
            prompts: texts or token ids; of each at most `LONGEST_SCORED` tokens.
            exits: further exit layers.
            all_heads: leave out the policy for fewer heads.
        """
        layers = sorted({*exits, len(self.decoder.blocks)})
        losses, count = dict.fromkeys(layers, 0.0), 0
        rows = list(self.decoder.rows)
        with torch.inference_mode():
            for place, prompt in enumerate(prompts):
                tokens = self._tokens(prompt, place)[:LONGEST_SCORED]
                targets = torch.tensor(tokens[1:], device=self.decoder.device)
                if not len(targets):
                    continue
                cache = (Arena if all_heads else self._cache)(self.decoder, 1, len(tokens) + ROWS)
                cache.expect([len(targets)])
                x, first = self.decoder.embed(targets.new_tensor([tokens[:-1]]), [0]), 0
                for layer in layers:
                    x = self.decoder.run(x, cache, [0], first, layer)
                    first = layer
                    logits = self.decoder.logits(x)[0].float()
                    losses[layer] += float(
                        torch.nn.functional.cross_entropy(logits, targets, reduction="sum")
                    )
                count += len(targets)
        self.decoder.rows[:] = rows
        return {layer: math.exp(loss / count) for layer, loss in losses.items()} if count else {}

    def _start(self, texts: list[list[int]], max_new: int) -> Sequences:
        context = self.decoder.arch.context
        return Sequences(
            [list(text) for text in texts],
            [len(text) for text in texts],
            [min(len(text) + max_new, context) for text in texts],
        )

    def _decode(
        self,
        state: Sequences,
        plan: Plan | None,
        chooser: Chooser,
        ends: frozenset[int],
        stop: Sequence[str],
        run: Run,
    ) -> None:
        """Prefill and rounds of one batch; `plan` None chooses for every round."""
        decoder, texts = self.decoder, state.texts
        drafts = plan.length if plan else max(LENGTHS)
        # Exact passes are padded to ROWS; with equal capacities, products read equal strides.
        cache = self._cache(
            decoder, len(texts), max(state.limits) + (ROWS if self.exact else drafts + 1)
        )
        begin = time.perf_counter()
        self._prefill(cache, texts)
        now = time.perf_counter()
        run.prefill_s += now - begin
        control = None
        if (
            plan is None
            and max(limit - n for limit, n in zip(state.limits, state.prompts, strict=True)) > 1
        ):
            control = self._controller(cache, texts)
            run.tuning_s += time.perf_counter() - now
            now = time.perf_counter()
        while not all(state.ends):
            round_plan = plan or (control.plan(texts) if control else Plan())
            done = run_round(decoder, cache, texts, round_plan, chooser)
            before, now = now, time.perf_counter()
            seconds = now - before
            if control:
                control.observe(done, seconds)
            growing = [not end for end in state.ends]
            lengths = self._accept(state, done, ends, stop)
            run.count(done, growing, lengths, seconds)
            cache.crop([len(text) - 1 for text in texts])
        run.decode_s += time.perf_counter() - begin
        run.kv_bytes = max(run.kv_bytes, cache.nbytes())

    def _cache(self, decoder: Decoder, batch: int, capacity: int) -> Cache:
        if self.heads is not None:
            cache: Cache = self.heads.cache(decoder, batch, capacity)
            return cache
        return (ExactArena if self.exact else Arena)(decoder, batch, capacity)

    def _prefill(self, cache: Cache, texts: Sequence[Sequence[int]]) -> None:
        """Store keys and values of all but the last token of every prompt, padded on the right."""
        longest = max(map(len, texts)) - 1
        cache.expect([len(text) - 1 for text in texts])
        if longest:
            rows = [[*text[:-1], *[0] * (longest + 1 - len(text))] for text in texts]
            starts = [0] * len(texts)
            x = self.decoder.embed(torch.tensor(rows, device=self.decoder.device), starts)
            self.decoder.run(x, cache, starts)
        cache.crop([len(text) - 1 for text in texts])

    def _controller(self, cache: Cache, texts: list[list[int]]) -> Controller:
        """Costs of this batch size, measured once; acceptance from these prompts, if none is known."""
        profile = self._profiles.setdefault(self.heads is not None, Profile())
        lengths = [length for length in LENGTHS if not self.exact or length < ROWS]
        size = (len(texts), self.exact)
        if size not in profile.costs:
            starts = [len(text) - 1 for text in texts]
            profile.costs[size] = measure_costs(self.decoder, cache, starts, lengths)
        if not profile.exits:
            exits = candidate_exits(len(self.decoder.blocks))
            hits = agreement(self.decoder, cache, texts, exits)
            for exit_layer in exits:
                same, judged = hits.get(exit_layer, (0, 0))
                estimate = Acceptance()
                estimate.add(same, judged)
                profile.exits[exit_layer] = estimate.limited()
            if self.exact:  # the comparison wrote the same keys with other last bits
                self._prefill(cache, texts)
        copied = Acceptance()
        copied.add(*lookup_agreement(texts))
        return Controller(
            profile.costs[size], profile.exits, copied.limited(), profile.overheads, lengths
        )

    def _accept(
        self, state: Sequences, done: Round, ends: frozenset[int], stop: Sequence[str]
    ) -> list[int]:
        """Append what a round yielded, cut at the first end; returns the number of tokens per text."""
        lengths = []
        for place, (tokens, near) in enumerate(
            zip(done.verdict.tokens, done.verdict.near_ties, strict=True)
        ):
            text = state.texts[place]
            before = len(text)
            if state.ends[place]:
                lengths.append(0)
                continue
            for token, tie in zip(tokens, near, strict=True):
                text.append(token)
                if tie:
                    state.near_ties[place].append(len(text) - 1 - state.prompts[place])
                if token in ends:
                    state.ends[place] = "end"
                elif stop and self._stopped(text[state.prompts[place] :], stop):
                    state.ends[place] = "stop"
                elif len(text) >= state.limits[place]:
                    full = state.limits[place] == self.decoder.arch.context
                    state.ends[place] = "context" if full else "length"
                if state.ends[place]:
                    break
            lengths.append(len(text) - before)
        return lengths

    def _stopped(self, tokens: Sequence[int], stop: Sequence[str]) -> bool:
        """Whether the last token completes a stop string: an earlier one has ended the text already."""
        longest = max(len(text.encode()) for text in stop)
        tail = self._spelled(tokens[-longest - 8 :])
        return any(text.encode() in tail for text in stop)

    def _spelled(self, tokens: Sequence[int]) -> bytes:
        pieces = self.tokenizer.pieces
        return b"".join(pieces[token] or b"" for token in tokens if token < len(pieces))

    def _text(self, state: Sequences, place: int, stop: Sequence[str]) -> Text:
        tokens = state.texts[place][state.prompts[place] :]
        text = ""
        if self.tokenizer is not None:
            text = self._spelled(tokens).decode("utf-8", "replace")
            if state.ends[place] == "stop":
                text = text[: min(at for at in (text.find(word) for word in stop) if at >= 0)]
        return Text(text, tokens, state.prompts[place], state.ends[place], state.near_ties[place])

    def _tokens(self, prompt: str | Sequence[int], place: int) -> list[int]:
        """The ids of a prompt, checked."""
        where = f"prompt {place + 1}"
        if isinstance(prompt, str):
            if self.tokenizer is None:
                raise InputError(
                    "a text needs a tokenizer", code="conflict", place=where, expected="token ids"
                )
            tokens = self.tokenizer.encode(prompt.encode())
            if tokens and tokens[: len(self.begin)] != self.begin:
                tokens = [*self.begin, *tokens]
        else:
            tokens = [int(token) for token in prompt]
        if not tokens:
            raise InputError(
                "empty prompt",
                code="empty-input",
                place=where,
                expected="a text, or at least one token id",
            )
        arch = self.decoder.arch
        if bad := [token for token in tokens if not 0 <= token < arch.embedding.weight.shape[0]]:
            raise InputError(
                "token without an embedding",
                code="out-of-range",
                place=where,
                found=str(bad[0]),
                expected=f"0 to {arch.embedding.weight.shape[0] - 1:,}",
            )
        if len(tokens) >= arch.context:
            raise InputError(
                "the prompt is longer than the model's positions",
                code="out-of-range",
                place=where,
                found=f"{len(tokens):,} tokens",
                expected=f"at most {arch.context - 1:,}",
                remedy="shorten the prompt",
            )
        return tokens

    def _plan(self, speculate: str | Plan) -> Plan | None:
        """The plan of every round; None chooses."""
        plan = speculate if isinstance(speculate, Plan) else parse_plan(speculate)
        if plan is None:
            return None
        layers = len(self.decoder.blocks)
        longest = ROWS - 1 if self.exact else LONGEST_DRAFT
        if plan.drafter == "early-exit" and not 1 <= plan.exit_layer < layers:
            raise InputError(
                "exit layer outside the model",
                code="out-of-range",
                place="speculate",
                found=str(plan.exit_layer),
                expected=f"1 to {layers - 1}",
            )
        if plan.drafter != "none" and not 1 <= plan.length <= longest:
            raise InputError(
                "invalid draft length",
                code="out-of-range",
                place="speculate",
                found=str(plan.length),
                expected=f"1 to {longest}",
            )
        return plan


@dataclass
class Run:
    """Totals of one call, over its batches."""

    texts: list[Text] = field(default_factory=list)
    prefill_s: float = 0.0
    decode_s: float = 0.0
    kv_bytes: int = 0
    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    tuning_s: float = 0.0
    plans: dict[str, dict[str, float]] = field(default_factory=dict)

    def count(
        self, done: Round, growing: Sequence[bool], lengths: Sequence[int], seconds: float
    ) -> None:
        """Add a round; drafts behind an end of text were not needed, and are not counted."""
        self.rounds += 1
        plan = self.plans.setdefault(str(done.plan), {"rounds": 0, "tokens": 0, "seconds": 0.0})
        plan["rounds"] += 1
        plan["tokens"] += sum(lengths)
        plan["seconds"] += seconds
        for open_, row, drafted, length in zip(
            growing, done.verdict.tokens, done.drafted, lengths, strict=True
        ):
            if open_:
                accepted = min(len(row) - 1, length)
                self.accepted += accepted
                self.drafted += drafted if length == len(row) else accepted

    def result(self, generator: Generator, plan: Plan | None, rows: list[int]) -> Generation:
        """The answer."""
        return Generation(
            texts=tuple(text.text for text in self.texts),
            details=tuple(self.texts),
            seconds=self.decode_s,
            prefill_seconds=self.prefill_s,
            tuning_seconds=self.tuning_s,
            acceptance=self.accepted / self.drafted if self.drafted else None,
            drafted=self.drafted,
            accepted=self.accepted,
            rounds=self.rounds,
            plans=[
                {"plan": name, **totals}
                for name, totals in sorted(self.plans.items(), key=lambda item: -item[1]["rounds"])
            ],
            requested="auto" if plan is None else str(plan),
            kv_bytes=self.kv_bytes,
            rows_per_layer=tuple(rows),
            tolerance=generator.tolerance,
            exact=generator.exact,
            model=generator.name,
            layers=len(rows),
        )


def generate(model: Any, prompts: Sequence[str | Sequence[int]], **options: Any) -> Generation:
    """Continue prompts with a model: `Generator` for one call.

    Args:
        model: as of `Generator`.
        prompts: as of `Generator.generate`.
        options: tokenizer, exact, heads of `Generator`; the others of `Generator.generate`.
    """
    own = {key: options.pop(key) for key in ("tokenizer", "exact", "heads") if key in options}
    return Generator(model, **own).generate(prompts, **options)
