"""Opening a model to generate from, and the settings that its checkpoint ships."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.errors import InputError
from holdfast.lm.generate.architectures import check_config
from holdfast.lm.generate.prompts import read_prompts

if TYPE_CHECKING:
    from holdfast.lm.generate.results import Generation

_TOKENIZER_FILES = ("tokenizer*", "vocab*", "merges*", "spiece*", "sentencepiece*", "tekken*")


def open_model(model: Any, tokenizer: Any = None) -> tuple[Any, Any, bool]:
    """(model of transformers, tokenizer of transformers or None, whether its weights may be released).

    A folder is opened in the dtype of its checkpoint, or in that of ``?dtype=``.

    Raises:
        InputError: ``unsupported`` for other kinds of models, before any weights are read.
    """
    if isinstance(model, str | Path):
        from holdfast.lm.models.huggingface import _open
        from holdfast.lm.models.naming import split_options
        from holdfast.lm.tokenizers.loading import local_folder

        name = str(model)
        kind, colon, place = name.partition(":")
        if colon and kind != "hf" and not Path(name).exists():
            raise _unsupported("model", name)
        place = place if kind == "hf" and colon else name
        path, options = split_options(place, {"device": str, "dtype": str})
        folder = local_folder(path)
        _check_folder(folder)
        opened = _open(folder, options.get("device", "cpu"), options.get("dtype", "auto"))
        return opened, open_tokenizer(folder) if tokenizer is None else tokenizer, True
    if not hasattr(model, "config") or not hasattr(model, "get_output_embeddings"):
        raise _unsupported("model", type(model).__name__)
    if tokenizer is not None and not hasattr(tokenizer, "apply_chat_template"):
        raise _unsupported("tokenizer", type(tokenizer).__name__)
    return model.eval(), tokenizer, False


def _unsupported(place: str, found: str) -> InputError:
    return InputError(
        f"this kind of {place} cannot be used to generate",
        code="unsupported",
        place=place,
        found=found,
        expected=f"a folder, hf:FOLDER, or a {place} of transformers",
    )


def open_tokenizer(folder: Path) -> Any:
    """The tokenizer of transformers in a folder; None where the folder has none.

    Raises:
        InputError: ``unreadable`` if its files are damaged.
    """
    if not any(path for pattern in _TOKENIZER_FILES for path in folder.glob(pattern)):
        return None
    import transformers

    try:
        return transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except Exception as error:  # the libraries raise whatever their parsers do
        raise InputError(
            "this tokenizer cannot be opened",
            code="unreadable",
            path=folder,
            found=f"{type(error).__name__}: {error}"[:200],
            expected="a tokenizer of transformers",
            remedy="save it again with save_pretrained",
        ) from error


def _check_folder(folder: Path) -> None:
    """Refuse an unsupported model by its configuration, before its weights are read."""
    if not (folder / "config.json").is_file():
        return  # opening it says what is missing
    import transformers

    try:
        config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, KeyError):
        return
    check_config(config)
    path = folder / "generation_config.json"
    if path.is_file():
        try:  # with the weights, a damaged file would be left out silently
            transformers.GenerationConfig.from_pretrained(folder, local_files_only=True)
        except Exception as error:
            raise InputError(
                "the settings of generation cannot be read",
                code="unreadable",
                path=path,
                found=f"{type(error).__name__}: {error}"[:200],
                expected="settings of transformers, in JSON",
            ) from error


def generate_file(
    model: str,
    prompt_file: Path | None = None,
    prompts: Sequence[str] = (),
    *,
    chat: bool = False,
    heads: str = "auto",
    heads_mode: str = "auto",
    exact: bool = False,
    low_memory: bool = False,
    **options: Any,
) -> Generation:
    """Continue the prompts of a file, and measure the perplexity of the prompts.

    Args:
        model: as of `Generator`.
        prompt_file: of `read_prompts`.
        prompts: further prompts.
        chat: as of `Generator.generate`.
        heads: a calibration file, ``off``, or ``auto``: ``chai.json`` in the model's folder, if it exists.
        heads_mode: as of `read_heads`.
        exact: as of `Generator`.
        low_memory: as of `Generator`.
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
    policy = _policy(heads, heads_mode, model, exact)
    generator = Generator(model, exact=exact, heads=policy, low_memory=low_memory)
    tokens = generator.encode(texts, chat=chat)
    result = generator.generate(tokens, **options)
    by_exit = generator.perplexity(tokens, candidate_exits(result.layers))
    everything = generator.perplexity(tokens, all_heads=True) if generator.heads else {}
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
    from holdfast.lm.generate.heads import read_heads

    return read_heads(path, mode)  # type: ignore[arg-type]
