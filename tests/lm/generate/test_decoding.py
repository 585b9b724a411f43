"""Generation against Hugging Face's greedy decoding, and the exactness of speculation."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import torch
from tiny_models import FAMILIES, VOCABULARY, tiny

from holdfast.errors import InputError
from holdfast.lm.generate import Arena, Decoder, Generator, Plan, Sampling, architecture
from holdfast.lm.generate.exact import ROWS, ExactArena, ExactDecoder
from holdfast.lm.generate.results import first_difference

PLANS = ("early-exit:1,4", "early-exit:3,2", "lookup:5", "auto")


def prompts(count: int, seed: int = 0, longest: int = 20) -> list[list[int]]:
    random = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, longest, (count,), generator=random).tolist()
    return [torch.randint(3, VOCABULARY, (n,), generator=random).tolist() for n in lengths]


def reference(model: Any, prompt: list[int], new: int) -> list[int]:
    """Greedy tokens of Hugging Face."""
    ids = torch.tensor([prompt])
    options = {"attention_mask": torch.ones_like(ids), "do_sample": False, "pad_token_id": 0}
    return model.generate(ids, max_new_tokens=new, **options)[0, len(prompt) :].tolist()


@pytest.fixture
def packed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Matrices are packed whatever their size."""
    monkeypatch.setattr("holdfast.lm.generate.decoder.PACKED_WEIGHTS", 0)


@pytest.mark.usefixtures("packed")
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_equal_those_of_transformers(family: str) -> None:
    model = tiny(family)
    decoder = Decoder(architecture(model))
    ids = torch.randint(3, VOCABULARY, (2, 20), generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        expected = model(ids).logits
        arena = Arena(decoder, 2, 24)
        # Prefill, one token, several, then rows at different positions.
        for first, last in ((0, 10), (10, 11), (11, 15)):
            starts = [first, first]
            x = decoder.run(decoder.embed(ids[:, first:last], starts), arena, starts)
            torch.testing.assert_close(
                decoder.logits(x), expected[:, first:last], atol=2e-5, rtol=1e-5
            )
        ragged = torch.stack((ids[0, 12:17], ids[1, 15:20]))
        x = decoder.run(decoder.embed(ragged, [12, 15]), arena, [12, 15])
        torch.testing.assert_close(
            decoder.logits(x),
            torch.stack((expected[0, 12:17], expected[1, 15:20])),
            atol=2e-5,
            rtol=1e-5,
        )


@pytest.mark.quick(4)
@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_tokens_equal_those_of_transformers(family: str) -> None:
    agree(family, count=3, new=10, batches=(2,))


@pytest.mark.full
@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_tokens_of_200_prompts(family: str) -> None:
    agree(family, count=200, new=16, batches=(8,))


VARIANTS = {
    "tied, two ends": ("llama-grouped", {"tie_word_embeddings": True, "eos_token_id": [7, 11, 30]}),
    "biases": ("llama-grouped", {"attention_bias": True, "mlp_bias": True, "hidden_act": "gelu"}),
    "wide heads": ("llama-grouped", {"head_dim": 20}),
    "scaled positions": (
        "llama",
        {
            "context": 256,
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 1e4,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 32,
            },
        },
    ),
    "window as wide as the context": ("mistral", {"sliding_window": 128}),
    "tied": ("qwen3", {"tie_word_embeddings": True}),
    "no biases": ("opt", {"enable_bias": False, "layer_norm_elementwise_affine": False}),
    "scaled by layer": ("gpt2", {"scale_attn_by_inverse_layer_idx": True}),
    "full context": ("gpt2", {"context": 40}),
}


@pytest.mark.full
@pytest.mark.parametrize("variant", VARIANTS)
def test_variants_of_families(variant: str) -> None:
    family, more = VARIANTS[variant]
    agree(family, count=6, new=24, batches=(1, 6), **more)


def test_a_text_ends_at_any_of_several_tokens() -> None:
    model = tiny("llama-grouped", tie_word_embeddings=True, eos_token_id=[7, 11, 30, 31, 32, 33])
    texts = prompts(6)
    result = Generator(model).generate(texts, max_new=32, batch=6)
    assert result.tokens == [reference(model, text, 32) for text in texts]
    assert {"end"} < {text.ended for text in result.details} | {"length"}


def agree(family: str, count: int, new: int, batches: tuple[int, ...], **more: Any) -> None:
    """Plain decoding equals Hugging Face's, speculation plain's, but for near-ties."""
    model = tiny(family, **more)
    texts = prompts(count)
    context = more.get("context", 128)
    expected = [reference(model, text, min(new, context - len(text))) for text in texts]
    for exact in (False, True):
        generator = Generator(model, exact=exact)
        for batch in batches:
            plain = generator.generate(texts, max_new=new, speculate="off", batch=batch)
            for ours, theirs, row in zip(plain.tokens, expected, plain.details, strict=True):
                first = first_difference(ours, theirs)
                assert first is None or first in row.near_ties
            for plan in PLANS:
                result = generator.generate(texts, max_new=new, speculate=plan, batch=batch)
                result.check_against(plain)
                if exact:
                    assert result.tokens == plain.tokens


@pytest.mark.usefixtures("packed")
@pytest.mark.parametrize("family", ["llama-grouped", "gpt2", "gpt_neox"])
def test_exact_logits_are_equal_bit_by_bit(family: str) -> None:
    decoder = ExactDecoder(architecture(tiny(family, context=256)))
    ids = torch.randint(3, VOCABULARY, (1, 140), generator=torch.Generator().manual_seed(2))

    def logits(steps: list[int]) -> Any:
        arena, rows, place = ExactArena(decoder, 1, 256), [], 100
        decoder.run(decoder.embed(ids[:, :place], [0]), arena, [0])
        for step in steps:
            x = decoder.embed(ids[:, place : place + step], [place])
            for first, last in ((0, 2), (2, None)):  # as a draft and its verification do
                x = decoder.run(x, arena, [place], first, last)
            rows.append(decoder.logits(x))
            place += step
        return torch.cat(rows, 1)

    with torch.inference_mode():
        single = logits([1] * 40)  # across the border of a block of keys
        for steps in ([ROWS] * 5, [3, 5] * 5, [7, 1] * 5):
            assert torch.equal(logits(steps), single)


def test_divergence_that_is_no_near_tie_is_an_error() -> None:
    generator = Generator(tiny("llama"))
    plain = generator.generate([[3, 4, 5]], max_new=8, speculate="off", ignore_end=True)
    other = generator.generate([[3, 4, 6]], max_new=8, speculate="off", ignore_end=True)
    assert plain.tokens != other.tokens
    with pytest.raises(InputError) as raised:
        other.check_against(plain)
    assert raised.value.code == "divergence"


def test_whether_a_text_is_that_of_plain_decoding_has_three_answers() -> None:
    generator = Generator(tiny("llama"))
    plain = generator.generate([[3, 4, 5]], max_new=8, speculate="off", ignore_end=True)
    yes = plain.check_against(plain)
    assert (yes.checked, yes.divergences, yes.unknowns()) == (True, 0, [])
    other = generator.generate([[3, 4, 6]], max_new=8, speculate="off", ignore_end=True)
    first = first_difference(other.tokens[0], plain.tokens[0])
    assert first is not None
    # Rounding could have decided where they part: nobody can tell which is right.
    tie = replace(other, details=[replace(other.details[0], near_ties=[first])])
    unclear = tie.check_against(plain)
    assert (unclear.checked, unclear.divergences, len(unclear.unknowns())) == (True, 1, 1)
    assert len(unclear.to_dict()["unknown"]) == 1


def test_each_layer_computes_only_what_it_must() -> None:
    generator = Generator(tiny("llama"))
    rows: Counter[int] = Counter()
    for block in generator.decoder.blocks:
        block.register_forward_hook(
            lambda block, inputs, _: rows.update(
                {block.number: inputs[0].shape[0] * inputs[0].shape[1]}
            )
        )
    exit_layer, drafts = 2, 3
    text = prompts(1, longest=12)[0]
    plan = Plan("early-exit", exit_layer, drafts)
    result = generator.generate([text], max_new=24, speculate=plan, ignore_end=True)
    assert [rows[layer] for layer in range(4)] == list(result.rows_per_layer)
    # One row per new position for early layers, never a second time in verification.
    assert set(result.rows_per_layer) == {len(text) - 1 + result.rounds * (drafts + 1)}
    early = sum(generator.decoder.rows[:exit_layer])
    plain = generator.generate([text], max_new=24, speculate="off", ignore_end=True)
    assert sum(generator.decoder.rows[:exit_layer]) - early == exit_layer * (len(text) - 1 + 24)
    assert plain.tokens == result.tokens


def damped(family: str = "llama", damping: float = 0.02) -> Any:
    """A model whose layers from 2 on hardly change the hidden state: exits nearly always agree."""
    model = tiny(family)
    with torch.no_grad():
        for layer in model.model.layers[2:]:
            layer.self_attn.o_proj.weight.mul_(damping)
            layer.mlp.down_proj.weight.mul_(damping)
    return model


def test_ends_inside_an_accepted_run() -> None:
    model = damped()
    generator = Generator(model)
    free = generator.generate([[3, 4, 5]], max_new=32, speculate="off", ignore_end=True).tokens[0]
    end = free[13]
    model.config.eos_token_id = end
    model.generation_config.eos_token_id = end
    generator = Generator(model)
    expected = free[: free.index(end) + 1]
    for plan in ("off", "early-exit:2,8", "lookup:6"):
        result = generator.generate([[3, 4, 5], [3, 4, 5, 6]], max_new=32, speculate=plan, batch=2)
        assert result.tokens[0] == expected
        assert result.details[0].ended == "end"
        for text in result.details:
            assert end not in text.tokens[:-1]
    assert generator.generate([[3, 4, 5]], max_new=32, speculate="early-exit:2,8").acceptance > 0.8


def test_the_context_ends_a_text() -> None:
    generator = Generator(tiny("gpt2", context=32))
    for plan in ("off", "early-exit:2,6"):
        result = generator.generate(
            [[5] * 20, [6] * 31], max_new=64, speculate=plan, batch=2, ignore_end=True
        )
        assert [len(tokens) for tokens in result.tokens] == [12, 1]
        assert [text.ended for text in result.details] == ["context", "context"]


def test_repetition_penalty_sees_the_drafts() -> None:
    model = damped()
    sampling = Sampling(repetition_penalty=1.7)
    generator = Generator(model)
    ids = torch.tensor([[3, 4, 5]])
    options = {"attention_mask": torch.ones_like(ids), "do_sample": False, "pad_token_id": 0}
    expected = model.generate(
        ids, max_new_tokens=24, repetition_penalty=1.7, eos_token_id=None, **options
    )
    for plan in ("off", "early-exit:2,6", "lookup:4"):
        result = generator.generate(
            [[3, 4, 5]], max_new=24, speculate=plan, sampling=sampling, ignore_end=True
        )
        assert result.tokens[0] == expected[0, 3:].tolist()


def test_speculation_is_off_where_no_draft_is_accepted() -> None:
    generator = Generator(tiny("llama", layers=8))
    texts = prompts(3, longest=30)
    result = generator.generate(texts, max_new=48, speculate="auto", ignore_end=True, batch=3)
    early = sum(plan["rounds"] for plan in result.plans if plan["plan"].startswith("early"))
    assert early <= result.rounds / 2


@pytest.mark.parametrize(
    ("options", "code", "place"),
    [
        ({"speculate": "early-exit:0,4"}, "out-of-range", "speculate"),
        ({"speculate": "early-exit:4,4"}, "out-of-range", "speculate"),
        ({"speculate": "early-exit:2,0"}, "out-of-range", "speculate"),
        ({"speculate": "early-exit:2"}, "invalid-syntax", "speculate"),
        ({"speculate": "fast"}, "invalid-syntax", "speculate"),
        ({"prompts": [[]]}, "empty-input", "prompt 1"),
        ({"prompts": []}, "empty-input", "prompts"),
        ({"prompts": [[3], [3] * 128]}, "out-of-range", "prompt 2"),
        ({"prompts": [[3, VOCABULARY]]}, "out-of-range", "prompt 1"),
        ({"prompts": ["text"]}, "conflict", "prompt 1"),
        ({"max_new": 0}, "out-of-range", "max_new"),
        ({"batch": 0}, "out-of-range", "batch"),
        ({"stop": ["x"]}, "conflict", "stop"),
        ({"stop": ["x", ""]}, "out-of-range", "stop"),
        ({"check": True, "sampling": Sampling(1.0)}, "conflict", "check"),
    ],
)
def test_bad_input(options: dict[str, Any], code: str, place: str) -> None:
    generator = Generator(tiny("llama"))
    texts = options.pop("prompts", [[3, 4]])
    with pytest.raises(InputError) as raised:
        generator.generate(texts, **options)
    assert (raised.value.code, raised.value.place) == (code, place)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_not_numbers(temperature: float) -> None:
    model = tiny("llama")
    with torch.no_grad():
        model.lm_head.weight[5] = float("nan")
    with pytest.raises(InputError) as raised:
        Generator(model).generate([[3, 4]], sampling=Sampling(temperature))
    assert raised.value.code == "invalid-value"


@pytest.mark.parametrize(
    "sampling", [{"temperature": -1.0}, {"top_p": 0.0}, {"top_k": -1}, {"repetition_penalty": 0.0}]
)
def test_invalid_sampling(sampling: dict[str, Any]) -> None:
    with pytest.raises(InputError) as raised:
        Sampling(**sampling)
    assert raised.value.code == "out-of-range"


def test_models_that_are_refused_by_name() -> None:
    import transformers

    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 32}
    refused = {
        "sliding window": transformers.MistralConfig(**small, sliding_window=64),
        "mixtral: a mixture of experts": transformers.MixtralConfig(**small),
        "t5: an encoder-decoder": transformers.T5Config(),
        "bloom": transformers.BloomConfig(),
        "opt-350m": transformers.OPTConfig(do_layer_norm_before=False),
        "dynamic": transformers.LlamaConfig(
            **small, rope_parameters={"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
        ),
    }
    from holdfast.lm.generate.architectures import check_config

    for reason, config in refused.items():
        with pytest.raises(InputError) as raised:
            check_config(config)
        assert raised.value.code == "unsupported"
        assert reason in str(raised.value.found)


def test_quantized_layers_are_refused() -> None:
    model = tiny("llama")

    class Packed(torch.nn.Linear):
        pass

    model.model.layers[0].self_attn.q_proj.__class__ = Packed
    with pytest.raises(InputError) as raised:
        Generator(model)
    assert raised.value.code == "unsupported"


@pytest.mark.parametrize("family", ["llama-grouped", "opt"])
def test_rows_of_texts_in_one_line_equal_those_of_a_padded_pass(family: str) -> None:
    decoder = Decoder(architecture(tiny(family)))
    ids = torch.randint(3, VOCABULARY, (3, 30), generator=torch.Generator().manual_seed(4))
    starts, counts = [9, 12, 10], [4, 1, 2]
    with torch.inference_mode():
        passes = []
        for joined in (False, True):
            arena = Arena(decoder, 3, 32)
            decoder.run(decoder.embed(ids[:, :12], [0] * 3), arena, [0] * 3)
            x = decoder.embed(
                torch.stack([ids[b, s : s + 4] for b, s in enumerate(starts)]), starts
            )
            if joined:
                line = torch.cat([x[b, :count] for b, count in enumerate(counts)])[None]
                passes.append(decoder.run(line, arena, starts, counts=counts)[0])
            else:
                full = decoder.run(x, arena, starts)
                passes.append(torch.cat([full[b, :count] for b, count in enumerate(counts)]))
        torch.testing.assert_close(*passes, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("plan", ["off", "lookup:4", "early-exit:2,3"])
def test_rows_of_ended_texts_are_not_computed(plan: str) -> None:
    generator = Generator(tiny("llama", context=40))
    texts = [[5, 6] * 18, [7] * 6, [8, 9] * 19, [10, 11, 12]]  # the first and the third soon end
    alone = [generator.generate([text], max_new=24, speculate="off").tokens[0] for text in texts]
    together = generator.generate(texts, max_new=24, speculate=plan, batch=4)
    assert together.tokens == alone
    if plan == "off":
        new = sum(map(len, alone))
        prefill = 4 * (max(map(len, texts)) - 1)
        assert set(together.rows_per_layer) == {prefill + new}
