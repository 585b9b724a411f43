"""Settings of checkpoints, prompts and ends of texts, against transformers on the same model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import VOCABULARY, tiny

from holdfast import cli
from holdfast.errors import InputError
from holdfast.lm.generate import Generator, Plan, Sampling
from holdfast.lm.generate.prompts import read_prompts, spell
from holdfast.lm.generate.sampling import Chooser, Verdict
from holdfast.lm.generate.sequences import Ends, Sequences
from holdfast.lm.generate.settings import GREEDY, read_settings
from holdfast.lm.generate.speculation import Round

EXAMPLE = Path(__file__).parents[3] / "examples" / "generate"
MODEL = tiny("llama-grouped")
NO_DRAFTS = torch.zeros((1, 0), dtype=torch.long)

# --- Settings ------------------------------------------------------------------------------------

SETTINGS = st.fixed_dictionaries(
    {"do_sample": st.just(True)},
    optional={
        "temperature": st.sampled_from([0.3, 1.0, 2.5, 1e-6, 1e4]),
        "top_k": st.sampled_from([1, 3, 50, 63, 64, 65, 10**6]),  # beyond the vocabulary, too
        "top_p": st.sampled_from([1e-9, 0.2, 0.9, 1.0]),
        "repetition_penalty": st.sampled_from([0.5, 1.0, 1.3, 100.0]),
    },
)


@given(SETTINGS, st.lists(st.integers(3, VOCABULARY - 1), min_size=1, max_size=9))
@pytest.mark.examples(40)
def test_the_next_token_has_the_distribution_of_transformers(
    settings: dict[str, Any], text: list[int]
) -> None:
    """From `generation_config` to the scores that its `generate` would draw from."""
    ids = torch.tensor([text])
    MODEL.generation_config = transformers.GenerationConfig(**settings)
    found = MODEL.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=1,
        output_scores=True,
        return_dict_in_generate=True,
        pad_token_id=0,
    )
    sampling = Sampling(seed=4).over(read_settings(MODEL, None).sampling)
    with torch.inference_mode():
        logits = MODEL(ids).logits[:, -1:]
    token, q = Chooser(sampling, 1e-3, "cpu").draft(logits, [text], NO_DRAFTS)
    assert q is not None
    torch.testing.assert_close(q[0, 0], found.scores[0][0].softmax(-1), atol=1e-6, rtol=1e-4)
    assert float(q[0, 0, token]) > 0


@given(SETTINGS)
@pytest.mark.examples(20)
def test_a_checkpoint_that_does_not_sample_is_greedy(settings: dict[str, Any]) -> None:
    MODEL.generation_config = transformers.GenerationConfig(**settings | {"do_sample": False})
    read = read_settings(MODEL, None)
    assert read.sampling.temperature == 0
    assert read.sampling.repetition_penalty == settings.get("repetition_penalty", 1.0)
    assert read.ignored == {}


@pytest.mark.parametrize(
    ("named", "ends"), [(None, set()), (7, {7}), ([7, 9], {7, 9}), ([], set()), (0, {0})]
)
def test_ends_that_a_checkpoint_names(named: Any, ends: set[int]) -> None:
    MODEL.generation_config = transformers.GenerationConfig(eos_token_id=named)
    assert read_settings(MODEL, None).ends == ends


FIELDS = ("temperature", "top_k", "top_p", "repetition_penalty", "seed")
SAMPLINGS = st.builds(
    Sampling,
    *(st.one_of(st.none(), st.sampled_from(values)) for values in ([0.0, 0.5], [0, 7], [0.3, 1.0])),
    st.one_of(st.none(), st.sampled_from([1.0, 1.2])),
)


@given(SAMPLINGS, SAMPLINGS, SAMPLINGS)
@pytest.mark.examples(30)
def test_settings_over_others(a: Sampling, b: Sampling, c: Sampling) -> None:
    merged = vars(a.over(b))
    for name in FIELDS[:4]:
        own = getattr(a, name)
        assert merged[name] == (getattr(b, name) if own is None else own)
    assert a.over(b.over(c)) == a.over(b).over(c)
    assert (Sampling().over(a), a.over(a), a.over(Sampling())) == (a, a, a)
    assert None not in vars(a.over(GREEDY)).values()


@pytest.mark.parametrize(
    ("place", "value"),
    [
        *(("top_k", value) for value in (2.5, 2.0, "3", float("nan"))),
        *(("seed", value) for value in (-1, 2**63, 2**64, 1.5, "1")),
        *(("temperature", value) for value in ("0.5", [1.0])),
    ],
)
def test_settings_that_are_not_numbers_of_their_kind(place: str, value: Any) -> None:
    with pytest.raises(InputError) as refused:
        Sampling(**{place: value})
    assert (refused.value.code, refused.value.place) == ("out-of-range", place)


@pytest.mark.parametrize("seed", [0, 1, 2**63 - 1])
def test_every_seed_that_is_accepted_draws(seed: int) -> None:
    generator = Generator(tiny("llama"))
    sampling = Sampling(1.0, seed=seed)
    first, again = (
        generator.generate([[3]], max_new=4, sampling=sampling, speculate="off").tokens
        for _ in range(2)
    )
    assert first == again


# --- Prompts -------------------------------------------------------------------------------------

MESSAGE = st.fixed_dictionaries({"role": st.just("user"), "content": st.text(max_size=4)})
PROMPTS = st.one_of(
    st.text(min_size=1).filter(lambda text: bool(text.strip())),
    st.lists(st.integers(-5, 10**6), min_size=1, max_size=4),
    st.lists(MESSAGE, min_size=1, max_size=3),
)


@given(st.lists(PROMPTS, min_size=1, max_size=4), st.booleans(), st.booleans())
@pytest.mark.examples(40)
def test_prompts_in_json_come_back(
    tmp_path_factory: pytest.TempPathFactory, prompts: list[Any], wrapped: bool, ascii_only: bool
) -> None:
    """Of JSON Lines, wrapped in objects or not, whatever separators of lines a text contains."""
    lines = []
    for prompt in prompts:
        chat = isinstance(prompt, list) and isinstance(prompt[0], dict)
        key = "messages" if chat else "prompt"
        lines.append(json.dumps({key: prompt} if wrapped else prompt, ensure_ascii=ascii_only))
    path = tmp_path_factory.mktemp("prompts") / "p.jsonl"
    try:
        path.write_bytes(("\n".join(lines) + "\n").encode())
    except UnicodeEncodeError:  # half a surrogate pair is in no file
        return
    assert read_prompts(path) == prompts


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return transformers.AutoTokenizer.from_pretrained(EXAMPLE)


@given(st.text(max_size=12), st.lists(st.integers(0, 511), max_size=6))
@pytest.mark.examples(40)
def test_a_text_is_spelled_piece_by_piece(tokenizer: Any, text: str, more: list[int]) -> None:
    """Decoded at once or in two parts: the same, but where a character is cut."""
    ids = [*tokenizer(text).input_ids, *more]

    def decoded(part: list[int]) -> str:
        return tokenizer.decode(part, skip_special_tokens=True, clean_up_tokenization_spaces=False)

    assert spell(tokenizer, [], ids) == decoded(ids)
    for place in range(len(ids) + 1):
        before = decoded(ids[:place])
        if "\ufffd" not in before:
            assert before + spell(tokenizer, ids[:place], ids[place:]) == decoded(ids)
    assert spell(None, ids[:1], ids[1:]) == ""


@pytest.mark.parametrize(
    ("prompt", "code"),
    [
        ([3.7], "out-of-range"),
        ([3, "4"], "out-of-range"),
        ([None], "out-of-range"),
        ([[3, 4]], "out-of-range"),
        ([], "empty-input"),
        ((), "empty-input"),
        ([-1], "out-of-range"),
        ([VOCABULARY], "out-of-range"),
    ],
)
def test_ids_that_are_not_ids(prompt: Any, code: str) -> None:
    with pytest.raises(InputError) as refused:
        Generator(tiny("llama")).encode([[3], prompt])
    assert (refused.value.code, refused.value.place) == (code, "prompt 2")


def test_ids_of_other_libraries() -> None:
    generator = Generator(tiny("llama"))
    kinds = ([3, 4], (3, 4), range(3, 5), np.array([3, 4]), torch.tensor([3, 4]))
    assert [generator.encode([ids]) for ids in kinds] == [[[3, 4]]] * 5


@pytest.mark.parametrize("exit_layer", [0, 5, -1])
def test_perplexity_of_an_exit_outside_of_the_model(exit_layer: int) -> None:
    generator = Generator(tiny("llama"))
    assert generator.perplexity([[3, 4, 5]], exits=[1, 4]).keys() == {1, 4}
    with pytest.raises(InputError) as refused:
        generator.perplexity([[3, 4, 5]], exits=[exit_layer])
    assert (refused.value.code, refused.value.place) == ("out-of-range", "exits")


# --- Ends of texts -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def example() -> Generator:
    return Generator(f"hf:{EXAMPLE}?dtype=float32")


@pytest.fixture(scope="module")
def peer() -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(EXAMPLE, dtype=torch.float32)


@pytest.mark.parametrize("stop", [["\n"], ["return", "):"], ["e"], ["elf.", "zzz"], ["    "]])
def test_texts_stop_where_those_of_transformers_do(
    example: Generator, peer: Any, stop: list[str]
) -> None:
    """`stop_strings` of its `generate`: the tokens end with the first that completes a string."""
    prompts = ["def area(self, ", "import os\n\n\nclass "]
    expected = []
    for prompt in prompts:
        ids = torch.tensor([example.tokenizer(prompt).input_ids])
        out = peer.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=24,
            stop_strings=stop,
            tokenizer=example.tokenizer,
            pad_token_id=0,
        )
        expected.append(out[0, ids.shape[1] :].tolist())
    for plan in ("off", "lookup:5"):
        result = example.generate(prompts, max_new=24, stop=stop, speculate=plan, batch=2)
        assert result.tokens == expected
    for text, tokens in zip(result.details, expected, strict=True):
        whole = example.tokenizer.decode(tokens)
        assert (
            text.text == whole[: min((whole.find(one) for one in stop if one in whole), default=99)]
        )
        assert text.ended == ("stop" if any(one in whole for one in stop) else "length")


SAMPLED = "--temperature 0.7 --top-k 9 --top-p 0.8 --repetition-penalty 1.2 --seed 5 --max-new 6"


@pytest.mark.parametrize(
    ("words", "options"),
    [
        (SAMPLED.split(), {"sampling": Sampling(0.7, 9, 0.8, 1.2, 5), "max_new": 6}),
        (
            ["--stop", "(", "--stop", "):", "--batch", "2"],
            {"stop": ["(", "):"], "batch": 2, "max_new": 128},
        ),
    ],
)
def test_the_command_is_the_function(
    example: Generator,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    options: dict[str, Any],
) -> None:
    prompts = ["def area(self", "import os"]
    line = ["lm", "generate", f"hf:{EXAMPLE}?dtype=float32", "--speculate", "lookup:3", "--json"]
    for prompt in prompts:
        line += ["--prompt", prompt]
    assert cli._run([*line, *words]) == 0
    answer = json.loads(capsys.readouterr().out)
    made = example.generate(prompts, speculate="lookup:3", **options)
    assert answer["tokens"] == made.tokens
    assert (answer["texts"], answer["ends"]) == (
        list(made.texts),
        [text.ended for text in made.details],
    )
    assert answer["settings"] == dict(made.settings)


@pytest.mark.parametrize(
    ("words", "place"),
    [
        (["--seed", str(2**64)], "seed"),
        (["--temperature", "1e-7"], "temperature"),
        (["--speculate", "early-exit:6,2"], "speculate"),
    ],
)
def test_options_that_the_command_refuses(
    capsys: pytest.CaptureFixture[str], words: list[str], place: str
) -> None:
    assert cli._run(["lm", "generate", str(EXAMPLE), "--prompt", "x", *words]) == 2
    assert capsys.readouterr().err.startswith(f"error: {place}:")


@given(st.data())
@pytest.mark.examples(40)
def test_a_batch_that_grows_by_rounds(data: st.DataObject) -> None:
    """Rounds of any length over texts of any: each ends by itself, and rows are those that still grow."""
    count, new, context = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 7)), 9
    texts = [[5] * data.draw(st.integers(1, 8)) for _ in range(count)]
    state = Sequences(texts, new, Ends(frozenset({0}), (), None, context))
    alone = [list(text) for text in texts]  # by hand
    ended = [""] * count
    while not all(state.ended):
        rows = [data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=4)) for _ in state.rows]
        near = [[token == 1 for token in row] for row in rows]
        places = list(state.rows)
        before, most = state.left, max(state.left)
        lengths, reach = state.accept(Round(Plan(), Verdict(rows, near), [3] * len(rows)))
        for place, row, length in zip(places, rows, lengths, strict=True):
            taken = 0
            for token in row:
                if ended[place]:
                    break
                alone[place].append(token)
                taken += 1
                if token == 0:
                    ended[place] = "end"
                elif len(alone[place]) == min(len(texts[place]) + new, context):
                    ended[place] = "context" if len(texts[place]) + new >= context else "length"
            assert length == taken
            before[place] -= taken
        assert (state.texts, state.ended) == (alone, ended)
        assert reach == most - max(before)  # of limits: an end before them is not counted
        if data.draw(st.booleans()):
            sources = state.close_rows()
            if sources:
                assert state.rows == [places[source] for source in sources]
                assert all(
                    row == source or source >= len(sources) for row, source in enumerate(sources)
                )
                assert sorted(state.rows) == [n for n in range(count) if not ended[n]]
    for text, prompt, whole in zip(state.results(), texts, alone, strict=True):
        assert text.tokens == whole[len(prompt) :]
        assert text.near_ties == [n for n, token in enumerate(text.tokens) if token == 1]
        assert (text.prompt_tokens, text.text) == (len(prompt), "")


def test_texts_do_not_depend_on_their_place_in_a_batch() -> None:
    """Any order, any batch size, beside longer and shorter ones; and exactly so where bits count."""
    random = np.random.default_rng(0)
    prompts = [random.integers(3, VOCABULARY, n).tolist() for n in (1, 9, 4, 17, 2)]
    for exact in (False, True):
        generator = Generator(tiny("gpt2", seed=2), exact=exact)
        alone = generator.generate(prompts, max_new=7, speculate="off").tokens
        for batch in (2, 5):
            order = random.permutation(5).tolist()
            mixed = generator.generate(
                [prompts[n] for n in order], max_new=7, speculate="early-exit:2,3", batch=batch
            )
            assert mixed.tokens == [alone[n] for n in order]
