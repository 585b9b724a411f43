"""Opening a model to generate from, and reading prompts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.errors import InputError
from holdfast.lm.generate.architectures import check_config

if TYPE_CHECKING:
    from holdfast.lm.generate.results import Generation
    from holdfast.lm.models.huggingface import HuggingFaceModel


def open_model(model: Any, tokenizer: Any) -> tuple[Any, Any, list[int], bool]:
    """(model of transformers, tokenizer, tokens before a text, whether its weights may be released).

    Raises:
        InputError: ``unsupported`` for other kinds of models, before any weights are read.
    """
    from holdfast.lm.models.huggingface import HuggingFaceModel, open_huggingface
    from holdfast.lm.tokenizers.loading import of_transformers
    from holdfast.lm.tokenizers.tokenizer import Tokenizer

    if isinstance(model, str | Path):
        name = str(model)
        kind, colon, place = name.partition(":")
        if colon and kind != "hf" and not Path(name).exists():
            raise InputError(
                "this kind of model cannot be generated from layer by layer",
                code="unsupported",
                place="model",
                found=repr(name),
                expected="hf:FOLDER or a folder",
            )
        place = place if kind == "hf" and colon else name
        _check_folder(place.partition("?")[0])
        opened = open_huggingface(place)
        begin = _as_ids(opened.bos) if "bos=" in place else _begin(opened)
        return opened.model, opened.tokenizer, begin, True
    if isinstance(model, HuggingFaceModel):
        return model.model, model.tokenizer, _as_ids(model.bos), False
    if tokenizer is None or isinstance(tokenizer, Tokenizer):
        return model.eval(), tokenizer, _as_ids(None if tokenizer is None else tokenizer.bos), False
    return model.eval(), of_transformers(tokenizer), _added(tokenizer), False


def _begin(opened: HuggingFaceModel) -> list[int]:
    """What the tokenizer of a folder puts before a text; else the beginning token."""
    import transformers

    try:
        place = opened.model.name_or_path
        return _added(transformers.AutoTokenizer.from_pretrained(place, local_files_only=True))
    except (OSError, ValueError, KeyError):
        return _as_ids(opened.bos)


def _added(tokenizer: Any) -> list[int]:
    """What a tokenizer of transformers puts before a text: nothing in GPT-2, one token in Llama."""
    bare = tokenizer("a", add_special_tokens=False).input_ids
    ids = tokenizer("a").input_ids
    count = next((n for n in range(len(ids)) if ids[n : n + len(bare)] == bare), 0)
    return list(ids[:count])


def _as_ids(token: int | None) -> list[int]:
    return [] if token is None else [token]


def _check_folder(place: str) -> None:
    """Refuse an unsupported model by its configuration, before its weights are read."""
    if not (Path(place) / "config.json").is_file():
        return  # opening it says what is missing
    import transformers

    try:
        config = transformers.AutoConfig.from_pretrained(place, local_files_only=True)
    except (OSError, ValueError, KeyError):
        return
    check_config(config)


def end_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    """Ids that end a text, by tokenizer and configurations."""
    ids = set() if tokenizer is None else set(tokenizer.ends)
    if not ids:
        for config in (model.config, getattr(model, "generation_config", None)):
            ends = getattr(config, "eos_token_id", None)
            ids |= {
                token for token in (ends if isinstance(ends, list) else [ends]) if token is not None
            }
    return frozenset(ids)


def read_prompts(path: Path) -> list[str | list[int]]:
    """One prompt per line: a text, or in a ``.jsonl`` file JSON (text, ``{"prompt": text}``, token ids).

    Raises:
        InputError: ``empty-input`` for a file or line without a prompt, ``invalid-syntax`` for other JSON.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise InputError(
            "prompts cannot be read", code="not-found", path=path, found=error.strerror
        ) from error
    except UnicodeDecodeError as error:
        raise InputError(
            "prompts are not UTF-8", code="invalid-encoding", path=path, place=f"byte {error.start}"
        ) from error
    if not lines:
        raise InputError(
            "no prompts", code="empty-input", path=path, expected="one prompt per line"
        )
    prompts: list[str | list[int]] = []
    for number, line in enumerate(lines, 1):
        prompt = _json_prompt(line, path, number) if path.suffix == ".jsonl" else line
        if not prompt or (isinstance(prompt, str) and not prompt.strip()):
            raise InputError("empty prompt", code="empty-input", path=path, place=f"line {number}")
        prompts.append(prompt)
    return prompts


def _json_prompt(line: str, path: Path, number: int) -> str | list[int]:
    try:
        value = json.loads(line)
    except ValueError:
        value = None
    value = value.get("prompt") if isinstance(value, dict) else value
    ids = isinstance(value, list) and all(type(token) is int for token in value)
    if not isinstance(value, str) and not ids:
        raise InputError(
            "invalid prompt",
            code="invalid-syntax",
            path=path,
            place=f"line {number}",
            found=line[:60],
            expected='"text", {"prompt": "text"} or [1, 2, 3]',
        )
    return value


def generate_file(
    model: str,
    prompt_file: Path | None = None,
    prompts: Sequence[str] = (),
    *,
    heads: str = "auto",
    heads_mode: str = "auto",
    exact: bool = False,
    **options: Any,
) -> Generation:
    """Continue the prompts of a file, and measure the perplexity of the prompts.

    Args:
        model: as of `Generator`.
        prompt_file: of `read_prompts`.
        prompts: further prompts.
        heads: a calibration file, ``off``, or ``auto``: ``chai.json`` in the model's folder, if it exists.
        heads_mode: as of `read_heads`.
        exact: as of `Generator`.
        options: of `Generator.generate`.
    """
    from holdfast.lm.generate.decoding import Generator
    from holdfast.lm.generate.tuning import candidate_exits

    texts = [*(read_prompts(prompt_file) if prompt_file else ()), *prompts]
    if not texts:
        raise InputError(
            "no prompts",
            code="empty-input",
            place="--prompt-file",
            remedy="name a file, or --prompt TEXT",
        )
    generator = Generator(model, exact=exact, heads=_policy(heads, heads_mode, model, exact))
    result = generator.generate(texts, **options)
    by_exit = generator.perplexity(texts, candidate_exits(result.layers))
    everything = generator.perplexity(texts, all_heads=True) if generator.heads else {}
    return replace(
        result,
        perplexity=by_exit.get(result.layers),
        perplexity_by_exit=by_exit,
        perplexity_all_heads=everything.get(result.layers),
    )


def _policy(heads: str, mode: str, model: str, exact: bool) -> Any:
    """The policy for fewer heads of a file; None for all heads."""
    if heads == "off":
        return None
    path = Path(heads)
    if heads == "auto":
        path = Path(model.removeprefix("hf:").partition("?")[0]) / "chai.json"
        if exact or not path.is_file():
            return None
    if not path.is_file():
        raise InputError("calibration not found", code="not-found", place="--heads", found=heads)
    return import_module("holdfast.lm.generate.heads").read_heads(path, mode)
