"""Models and prompts from files, stop strings, and the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli import main
from holdfast.errors import InputError
from holdfast.lm.generate import Generator
from holdfast.lm.generate.loading import generate_file, open_model
from holdfast.lm.generate.prompts import read_prompts

EXAMPLE = Path(__file__).parents[3] / "examples" / "generate"


@pytest.fixture(scope="module")
def generator() -> Generator:
    return Generator(f"hf:{EXAMPLE}?dtype=float32")


def test_stop_strings_cut_inside_an_accepted_run(generator: Generator) -> None:
    prompt = "for name in sorted("
    free = generator.generate([prompt], max_new=60, speculate="off", ignore_end=True).texts[0]
    stop = free[24:29]  # not at the border of a token, as a rule
    for plan in ("off", "early-exit:3,6", "lookup:6"):
        result = generator.generate(
            [prompt], max_new=60, speculate=plan, stop=[stop, "\0never"], ignore_end=True
        )
        assert result.texts[0] == free[: free.index(stop)]
        assert result.details[0].ended == "stop"
        # The tokens end with the first that completes the stop string.
        assert stop in generator.tokenizer.decode(result.tokens[0])
        assert stop not in generator.tokenizer.decode(result.tokens[0][:-1])


def test_texts_and_token_ids_are_the_same_prompt(generator: Generator) -> None:
    text = "import os"
    ids = generator.tokenizer(text).input_ids
    one, other = (generator.generate([p], max_new=10, speculate="off") for p in (text, ids))
    assert one.tokens == other.tokens


def test_perplexity_is_that_of_transformers(generator: Generator) -> None:
    import torch
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(EXAMPLE, dtype=torch.float32)
    ids = torch.tensor([[0, *generator.tokenizer("def close(self):\n    return None\n").input_ids]])
    with torch.inference_mode():
        out = model(ids, labels=ids, output_hidden_states=True)
        early = model.lm_head(model.model.norm(out.hidden_states[2]))[0, :-1]
    measured = generator.perplexity([ids[0].tolist()], exits=[2])
    assert measured[6] == pytest.approx(float(out.loss.exp()), rel=1e-4)
    expected = torch.nn.functional.cross_entropy(early, ids[0, 1:]).exp()
    assert measured[2] == pytest.approx(float(expected), rel=1e-4)


def test_prompts_of_text_and_json_lines(tmp_path: Path) -> None:
    text = tmp_path / "prompts.txt"
    text.write_text('one\n[1] two\n"three"\n', encoding="utf-8")
    assert read_prompts(text) == ["one", "[1] two", '"three"']
    lines = tmp_path / "prompts.jsonl"
    lines.write_text(
        '"a\\nb\u2028"\n{"prompt": "c"}\n[1, 2]\n{"messages": [{"role": "user"}]}\n',
        encoding="utf-8",
    )
    assert read_prompts(lines) == ["a\nb\u2028", "c", [1, 2], [{"role": "user"}]]


@pytest.mark.parametrize(
    ("name", "content", "code", "place"),
    [
        ("p.txt", b"", "empty-input", "line 1"),
        ("p.txt", b"one\n\ntwo\n", "empty-input", "line 2"),
        ("p.txt", b"\xff\n", "invalid-encoding", "byte 0"),
        ("p.jsonl", b'"a"\n{"text": "b"}\n', "invalid-syntax", "line 2"),
        ("p.jsonl", b"{\n", "invalid-syntax", "line 1"),
        ("p.jsonl", b"[1, 2.5]\n", "invalid-syntax", "line 1"),
        ("p.jsonl", b"[]\n", "empty-input", "line 1"),
        ("p.jsonl", b'[1, {"role": "user"}]\n', "invalid-syntax", "line 1"),
        ("p.jsonl", b"[" * 100_000 + b"\n", "invalid-syntax", "line 1"),
    ],
)
def test_invalid_prompts(
    tmp_path: Path, name: str, content: bytes, code: str, place: str | None
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError) as raised:
        read_prompts(path)
    assert (raised.value.code, raised.value.place) == (code, place)


def test_missing_prompts(tmp_path: Path) -> None:
    absent = tmp_path / "none.txt"
    for options, code in (
        ((absent,), "not-found"),
        ((), "empty-input"),
        ((None, [""]), "empty-input"),
    ):
        with pytest.raises(InputError) as raised:
            generate_file(str(EXAMPLE), *options)
        assert raised.value.code == code


def test_models_that_are_refused_before_their_weights_are_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "mixtral"}))
    for name, code in (
        (str(tmp_path), "unsupported"),
        ("openai:http://127.0.0.1:1/v1#m", "unsupported"),
        (str(tmp_path / "absent"), "not-found"),
    ):
        with pytest.raises(InputError) as raised:
            open_model(name, None)
        assert raised.value.code == code


def test_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    line = ["lm", "generate", str(EXAMPLE), "--prompt", "import sys", "--prompt", "class A:"]
    line += ["--max-new", "12", "--batch", "2", "--speculate", "early-exit:3,3", "--check"]
    with pytest.raises(SystemExit) as ended:
        main([*line, "--json", "--html", str(page)])
    assert ended.value.code == 0
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert answer["speculation"] == "on"
    assert answer["checked"]
    assert len(answer["texts"]) == len(answer["tokens"]) == 2
    assert 0 <= answer["acceptance"] <= 1
    assert len(answer["rows_per_layer"]) == 6
    assert "Is this what plain decoding gives?" in page.read_text(encoding="utf-8")
