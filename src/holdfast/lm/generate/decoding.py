"""Generation: prefill, then rounds until every text has ended."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from holdfast.errors import InputError
from holdfast.lm.generate.architectures import architecture
from holdfast.lm.generate.arena import Arena, Cache
from holdfast.lm.generate.decoder import Decoder
from holdfast.lm.generate.exact import ROWS, ExactArena, ExactDecoder, check_exact
from holdfast.lm.generate.loading import open_model
from holdfast.lm.generate.prompts import Prompt, encode
from holdfast.lm.generate.results import Generation
from holdfast.lm.generate.sampling import TOLERANCE, Chooser
from holdfast.lm.generate.sequences import Ends, Sequences, Totals
from holdfast.lm.generate.settings import AS_THE_CHECKPOINT, Sampling, in_range, read_settings
from holdfast.lm.generate.speculation import Matches, Plan, parse_plan, run_round
from holdfast.lm.generate.tuning import LENGTHS, Controller, Profile

LONGEST_DRAFT = 32
LONGEST_SCORED = 512
"""Tokens of a prompt that its perplexity is computed from."""


class Generator:
    """A model ready to generate: weights joined, costs measured once.

        generator = Generator("hf:models/small")
        generator.generate(["def area("], max_new=64).texts

    Args:
        model: ``hf:FOLDER`` or a folder, computed in the dtype of its checkpoint or that of
            ``hf:FOLDER?dtype=float32&device=cpu``; or a causal model of transformers in memory.
        tokenizer: of transformers; None takes that of the folder. A model in memory works without one, on
            prompts of token ids.
        exact: pad every pass so that plain and speculative decoding agree bit by bit (slower).
        heads: policy for fewer heads, from `read_heads`; None computes every head.
        low_memory: hold the weights once: no copies in the order that products of several rows read
            fastest. The layers of a model in memory are taken over: it can no longer be used itself.

    Raises:
        InputError: ``unsupported`` for a model that cannot be run layer by layer.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any = None,
        *,
        exact: bool = False,
        heads: Any = None,
        low_memory: bool = False,
    ) -> None:
        loaded, self.tokenizer, release = open_model(model, tokenizer)
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
        kind = ExactDecoder if exact else Decoder
        self.decoder = kind(arch, release=release or low_memory, copies=not low_memory)
        if isinstance(self.decoder, ExactDecoder):
            check_exact(self.decoder)
        self.exact, self.heads = exact, heads
        plain = ExactArena if exact else Arena
        self._cache: Callable[[Decoder, int, int], Cache] = heads.cache if heads else plain
        self.tolerance = TOLERANCE.get(str(self.decoder.dtype).removeprefix("torch."), 0.3)
        lengths = [length for length in LENGTHS if not exact or length < ROWS]
        self._profile = Profile(len(arch.layers), self.decoder.head_share, lengths)
        self.settings = read_settings(loaded, self.tokenizer)
        """What the checkpoint says about generation."""

    def generate(
        self,
        prompts: Sequence[Prompt] = (),
        *,
        messages: Sequence[Any] = (),
        chat: bool = False,
        max_new: int = 128,
        speculate: str | Plan = "auto",
        sampling: Sampling = AS_THE_CHECKPOINT,
        stop: Sequence[str] = (),
        batch: int = 1,
        check: bool = False,
        ignore_end: bool = False,
    ) -> Generation:
        """Continue every prompt.

        Args:
            prompts: texts, encoded as by ``tokenizer(text)``; token ids as they are; or conversations.
            messages: a further conversation, or several: lists of ``{"role": ..., "content": ...}``.
            chat: texts are messages of a user, written by the chat template.
            max_new: most new tokens per prompt.
            speculate: ``auto``, ``off``, ``lookup``, ``lookup:D`` or ``early-exit:E,D``.
            sampling: as the checkpoint says where a setting is None.
            stop: strings that end a text; the text is cut before the first.
            batch: number of prompts that are decoded together.
            check: decode again without drafts, and fail on a divergence that is not a near-tie.
            ignore_end: do not stop at the end of text (for measurements).

        Raises:
            InputError: for an empty or too long prompt, an exit layer outside the model, logits that are
                not numbers, or a divergence (``divergence``).
        """
        plan = self._plan(speculate)
        if messages and isinstance(messages[0], Mapping):
            messages = [messages]
        texts = self.encode([*prompts, *messages], chat=chat)
        if not texts:
            raise InputError("no prompts", code="empty-input", place="prompts")
        _within("number of new tokens", "max_new", max_new)
        _within("number of prompts", "batch", batch)
        _within("length of a stop string", "stop", min(map(len, stop), default=1))
        if stop and self.tokenizer is None:
            raise InputError("stop strings need a tokenizer", code="conflict", place="stop")
        sampling = sampling.over(self.settings.sampling)
        if check and sampling.temperature:
            raise InputError(
                "only greedy decoding can be checked",
                code="conflict",
                place="check",
                found=f"temperature {sampling.temperature:g}",
                remedy="set the temperature to 0",
            )
        chooser = Chooser(sampling, self.tolerance, self.decoder.device)
        totals = Totals()
        before = list(self.decoder.rows)
        ends = Ends(
            frozenset() if ignore_end else self.settings.ends,
            tuple(stop),
            self.tokenizer,
            self.decoder.arch.context,
        )
        batches = [
            Sequences(texts[first : first + batch], max_new, ends)
            for first in range(0, len(texts), batch)
        ]
        self._profile.start()
        with torch.inference_mode():
            for state in batches:
                self._decode(state, plan, chooser, totals)
                totals.details += state.results()
        rows = [new - old for new, old in zip(self.decoder.rows, before, strict=True)]
        result = Generation(
            **totals.entries(),
            requested="auto" if plan is None else str(plan),
            rows_per_layer=tuple(rows),
            tolerance=self.tolerance,
            exact=self.exact,
            settings={**vars(sampling), "ends": sorted(ends.ids)},
            ignored_settings=self.settings.ignored,
            dtype=str(self.decoder.dtype).removeprefix("torch."),
            model=self.name,
            layers=len(rows),
        )
        if check:
            plain = self.generate(
                texts,
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
        prompts: Sequence[Prompt],
        exits: Sequence[int] = (),
        all_heads: bool = False,
    ) -> dict[int, float]:
        """Perplexity of texts by the first E layers and the head, for each exit E and for all layers.

        Args:
            prompts: texts or token ids; of each at most `LONGEST_SCORED` tokens.
            exits: further exit layers.
            all_heads: leave out the policy for fewer heads.

        Raises:
            InputError: ``out-of-range`` for an exit outside the model.
        """
        layers = sorted({*exits, len(self.decoder.blocks)})
        for layer in layers:
            _within("exit layer", "exits", layer, 1, len(self.decoder.blocks))
        losses, count = dict.fromkeys(layers, 0.0), 0
        with torch.inference_mode():
            for text in self.encode(prompts):
                tokens = text[:LONGEST_SCORED]
                targets = torch.tensor(tokens[1:], device=self.decoder.device)
                if not len(targets):
                    continue
                cache = (Arena if all_heads else self._cache)(self.decoder, 1, len(tokens) + ROWS)
                cache.expect([len(targets)])
                x, first = (
                    self.decoder.embed(targets.new_tensor([tokens[:-1]]), [0]),
                    0,
                )  # [1, T, D]
                for layer in layers:  # each exit goes on from the one before
                    x = self.decoder.run(x, cache, [0], first, layer)
                    first = layer
                    logits = self.decoder.logits(x)[0].float()  # [T, V], targets [T]
                    losses[layer] += float(
                        torch.nn.functional.cross_entropy(logits, targets, reduction="sum")
                    )
                count += len(targets)
        return {layer: math.exp(loss / count) for layer, loss in losses.items()} if count else {}

    def _decode(
        self,
        state: Sequences,
        plan: Plan | None,
        chooser: Chooser,
        totals: Totals,
    ) -> None:
        """Prefill and rounds of one batch; `plan` None chooses for every round.

        B texts begin; `texts` are those whose rows are still computed, in the order of the rows of the
        cache, as are `matches`. `state` keeps all B, and which text is in which row (`state.rows`).
        """
        decoder, texts = self.decoder, state.texts
        # 1. Storage: keys and values [L, B, G, S, hd], S = the longest limit and what a round may draft.
        # Exact passes are padded to ROWS; with equal capacities, products read equal strides.
        drafts = plan.length if plan else max(LENGTHS)
        further = ROWS if self.exact else drafts + 1
        cache = self._cache(decoder, len(texts), max(state.limits) + further)
        # 2. Who chooses the plans: nobody where one is named. Texts of equal length share cheaper passes
        # until drafts make their lengths differ, which would make all later rounds dearer: such a batch is
        # left as it is.
        ragged = cache.joins and len(set(map(len, texts))) > 1
        control = None
        if plan is None and (ragged or len(texts) == 1):
            control = Controller(self._profile, len(texts))
        # The lists of tokens are those of `state`: they grow there, and `matches` index them as they grow.
        texts, matches = list(texts), [Matches(text) for text in texts]
        # 3. Prefill: one pass over all but the last token of each prompt.
        begin = time.perf_counter()
        mark = decoder.clock()
        self._prefill(cache, texts)
        now = time.perf_counter()
        totals.prefill_seconds += now - begin
        if control:
            self._profile.spent += decoder.clock() - mark
        overhead = 0.0  # of choosing and learning: seconds that plain decoding would not spend
        # 4. Rounds. At the start of each, all but the last token of every text is in the cache.
        while not all(state.ended):
            # Exact passes keep rows of ended texts; nothing is drafted for them.
            growing = [not state.ended[place] for place in state.rows]
            open_matches: list[Matches | None] = [
                match if open_ else None for match, open_ in zip(matches, growing, strict=True)
            ]
            # 4a. Choose the drafts of the round, from what earlier rounds took and yielded.
            mark = decoder.clock()
            round_plan = plan or Plan()
            if control and control.begin():
                left = state.left
                rests = [left[place] for place in state.rows if left[place]]
                round_plan = control.plan([match for match in open_matches if match], rests)
            # 4b. Draft d tokens [B, d], verify them by one pass [B, d + 1, V]; append what was accepted and
            # one token more. Rejected drafts are cropped: the next pass overwrites their keys and values.
            chosen = decoder.clock()
            done = run_round(decoder, cache, texts, round_plan, chooser, open_matches)
            lengths, reach = state.accept(done)
            cache.crop([len(text) - 1 for text in texts])
            before, now = now, time.perf_counter()
            totals.count(done, growing, lengths, now - before)
            # 4c. Learn from it; the time that this takes belongs to the next choice.
            if control:
                end = decoder.clock()
                overhead += chosen - mark
                control.observe(done, overhead, end - chosen, open_matches, reach)
                overhead = decoder.clock() - end
            # 4d. Drop the rows of ended texts: the last rows take their places in cache, texts and matches.
            # Bits depend on the number of rows: exact passes keep them.
            if not self.exact and (rows := state.close_rows()):
                cache.select(rows)
                texts, matches = [texts[row] for row in rows], [matches[row] for row in rows]
                if control:
                    control.shrink(len(rows))
        totals.seconds += time.perf_counter() - begin
        totals.kv_bytes = max(totals.kv_bytes, cache.nbytes())

    def _prefill(self, cache: Cache, texts: Sequence[Sequence[int]]) -> None:
        """Store keys and values of all but the last token of every prompt, padded on the right."""
        longest = max(map(len, texts)) - 1
        cache.expect([len(text) - 1 for text in texts])
        if longest:
            # [B, T - 1]: what padding stores lies behind its text, and is overwritten before it is read.
            rows = [[*text[:-1], *[0] * (longest + 1 - len(text))] for text in texts]
            starts = [0] * len(texts)
            x = self.decoder.embed(torch.tensor(rows, device=self.decoder.device), starts)
            self.decoder.run(x, cache, starts)
        cache.crop([len(text) - 1 for text in texts])

    def encode(self, prompts: Sequence[Prompt], *, chat: bool = False) -> list[list[int]]:
        """The ids of prompts, checked; arguments as of `generate`."""
        return [self._tokens(prompt, chat, f"prompt {n}") for n, prompt in enumerate(prompts, 1)]

    def _tokens(self, prompt: Prompt, chat: bool, where: str) -> list[int]:
        """The ids of a prompt, checked."""
        tokens = encode(self.tokenizer, prompt, chat, where)
        if not tokens:
            raise InputError(
                "empty prompt",
                code="empty-input",
                place=where,
                expected="a text, or at least one token id",
            )
        last = self.decoder.arch.embedding.weight.shape[0] - 1
        for token in (min(tokens), max(tokens)):
            _within("token: it has no embedding", where, token, 0, last)
        _within("length of the prompt", where, len(tokens), 1, self.decoder.arch.context - 1)
        return tokens

    def _plan(self, speculate: str | Plan) -> Plan | None:
        """The plan of every round; None chooses."""
        plan = speculate if isinstance(speculate, Plan) else parse_plan(speculate)
        if plan is None:
            return None
        longest = ROWS - 1 if self.exact else LONGEST_DRAFT
        if plan.drafter == "early-exit":
            _within("exit layer", "speculate", plan.exit_layer, 1, len(self.decoder.blocks) - 1)
        if plan.drafter != "none":
            _within("draft length", "speculate", plan.length, 1, longest)
        return plan


def _within(what: str, place: str, number: int, least: int = 1, most: float = math.inf) -> None:
    """Refuse a number outside a range."""
    expected = f"{least} to {most:,}" if most < math.inf else f"{least} or more"
    in_range(place, number, least <= number <= most, expected, what)


def generate(model: Any, prompts: Sequence[Prompt] = (), **options: Any) -> Generation:
    """Continue prompts with a model: `Generator` for one call.

    Args:
        model: as of `Generator`.
        prompts: as of `Generator.generate`.
        options: tokenizer, exact, heads, low_memory of `Generator`; the others of `Generator.generate`.
    """
    names = "tokenizer", "exact", "heads", "low_memory"
    own = {key: options.pop(key) for key in names if key in options}
    return Generator(model, **own).generate(prompts, **options)
