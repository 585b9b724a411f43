"""A causal language model of Hugging Face: an object in memory, or a local folder."""

from __future__ import annotations

import hashlib
import inspect
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.errors import InputError, LimitError, MissingExtraError
from holdfast.lm.models.caching import Answers
from holdfast.lm.models.naming import fingerprint
from holdfast.lm.models.protocol import F64, Cost, ModelStopped, NextToken, Prefix
from holdfast.lm.models.tree_attention import BUDGET_BYTES, PrefixTree
from holdfast.lm.tokenizers.loading import load_tokenizer, local_folder, of_transformers
from holdfast.lm.tokenizers.tokenizer import Tokenizer

STARTS_WITH_EOS = frozenset({"gpt2", "gpt_neo", "gptj", "gpt_neox", "gpt_bigcode", "codegen"})
"""Families whose texts were trained one after the other, each behind the end of the one before."""
LEAST_WINDOW = 8
"""Shortest sliding window within which a cache is worth its check."""
_LOGITS = 1 << 25
_SWITCHES = ("active_adapters", "disable_adapters", "merged_adapters", "scaling")
"""Attributes of the layers of PEFT."""
_CHECK_LOGPROB = {"float32": 1e-3, "float64": 1e-6}


class HuggingFaceModel:
    """A transformer that computes every prefix once: see `PrefixTree`.

        model = HuggingFaceModel(transformers_model, transformers_tokenizer)   # objects in memory
        model = HuggingFaceModel("models/gpt2", device="cuda")                 # a local folder

    A batch of prefixes is one forward pass over the tokens that are new. Prefixes longer than a sliding
    window, and models whose attention does not follow a mask of ancestors (ALiBi, recurrent layers), are
    evaluated without a cache, whole prefix by whole prefix; `remarks` says so. The configuration decides,
    and a small computation that is done both ways when the model is opened.

    Log-probabilities are a log-softmax in float64 of the model's logits. Logits beyond the tokenizer (a
    padded vocabulary) are tokens without bytes that keep their probability; tokens without a logit have
    none. A text ends with any of the ids that the tokenizer, the configuration or the generation
    configuration names; its probability is their sum.

    Args:
        model: a folder with ``config.json`` and safetensors; or a causal transformer of transformers, also
            wrapped by PEFT, quantized, or spread over devices (it is switched to evaluation mode). Nothing
            is downloaded, and no code from a folder is run.
        tokenizer: a tokenizer of transformers, fast or slow, or one of `load_tokenizer`; None takes that of
            the folder.
        device: where to compute, such as ``cpu`` or ``cuda``; of a folder only.
        dtype: such as ``float32`` or ``bfloat16``; None is float32 on a CPU, else as in the files. Of a
            folder only.
        bos: token in front of every text; None takes that of the tokenizer, then of the configuration, then
            the end of text for families in `STARTS_WITH_EOS`; -1 is none.
        batch: most new tokens in one forward pass; None by the size of the vocabulary, at most 256.
        cache_bytes: memory for keys and values.

    Raises:
        InputError: if the model or the tokenizer cannot be read.
        MissingExtraError: if transformers or torch is not installed.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any = None,
        device: str = "cpu",
        dtype: str | None = None,
        bos: int | None = None,
        batch: int | None = None,
        cache_bytes: int = BUDGET_BYTES,
    ) -> None:
        self.cost = Cost()
        if isinstance(model, str | Path):
            self.name = f"hf:{model}"
            self.model = _open(Path(model), device, dtype)
            self._files = [Path(model) / "config.json", *Path(model).glob("*.safetensors")]
        else:
            self.name = f"hf:{getattr(model.config, 'name_or_path', '') or type(model).__name__}"
            self.model = _unwrapped(model).eval()
            self._files = []
        config = self.model.config.get_text_config()
        head = self.model.get_output_embeddings()
        # A quantized head packs its weights: it says its width itself.
        self.width = int(getattr(head, "out_features", None) or head.weight.shape[0])
        if tokenizer is None:
            tokenizer = load_tokenizer(self.name)
        elif not isinstance(tokenizer, Tokenizer):
            tokenizer = of_transformers(tokenizer)
        remarks: list[str] = []
        self.bos = _begin(bos, tokenizer, config)
        self.tokenizer = _matched(tokenizer, self.width, self.bos, self.model, remarks)
        longest = getattr(config, "max_position_embeddings", None)
        self.context: int | None = None
        if isinstance(longest, int) and longest > 0:
            self.context = longest - (self.bos is not None)
        self.batch = batch or max(1, min(256, _LOGITS // self.width))
        self._keep_arguments = "logits_to_keep" in inspect.signature(self.model.forward).parameters
        self._answers = Answers()
        self._asked: set[Prefix] = set()
        self._tree: PrefixTree | None = None
        self._window, reason = _window(config)
        reason = reason or self._objection()
        if reason is None:
            self._tree = PrefixTree(self.model, self.bos, cache_bytes)
            if self._window is not None and (self.context is None or self._window < self.context):
                remarks.append(
                    f"prefixes of more than {self._window:,} tokens are computed without a cache"
                )
        else:
            remarks.append(f"without a cache of keys and values: {reason}")
        self.remarks = tuple(dict.fromkeys(remarks))

    @cached_property
    def fingerprint(self) -> str:
        """A digest of the files, or of the weights in memory."""
        if self._files:
            return fingerprint(self._files)
        digest = hashlib.sha256()
        for name, values in sorted(self.model.state_dict().items()):
            digest.update(f"{name} {_summary(values)} ".encode())
        # Adapters of one model: which of them act, and how much, is in no weight.
        for name, layer in self.model.named_modules():
            switches = [getattr(layer, key, None) for key in _SWITCHES]
            digest.update(f"{name} {switches} ".encode())
        return digest.hexdigest()

    def logprobs(self, prefixes: Sequence[Prefix]) -> list[NextToken]:
        """The distribution after each prefix, in order.

        Raises:
            InputError: for an empty prefix, if the model has no token to begin with.
            LimitError: for a prefix longer than `context`.
            ModelStopped: if memory runs out.
        """
        begin = time.perf_counter()
        known: dict[Prefix, NextToken] = {}
        unknown: list[Prefix] = []
        for prefix in dict.fromkeys(prefixes):
            self._check(prefix)
            answer = self._answers.get(prefix)
            if answer is None:
                unknown.append(prefix)
            else:
                known[prefix] = answer
        before = len(self._asked)
        self._asked.update(prefixes)
        self.cost.nodes += len(self._asked) - before
        try:
            self._evaluate(sorted(unknown), known)
        finally:
            self.cost.seconds += time.perf_counter() - begin
        return [known[prefix] for prefix in prefixes]

    def _evaluate(self, unknown: Sequence[Prefix], known: dict[Prefix, NextToken]) -> None:
        import torch

        def keep(prefix: Prefix, logprobs: F64) -> None:
            known[prefix] = answer = NextToken(logprobs)
            self._answers.keep(prefix, answer)

        try:
            with torch.inference_mode():
                # Within the window every token sees all before it, as the tree's masks say.
                far = [prefix for prefix in unknown if not self._fits(prefix)]
                self._one_by_one(far, keep)
                if self._tree is not None:
                    near = [prefix for prefix in unknown if self._fits(prefix)]
                    self._as_tree(self._tree, near, keep)
        except torch.OutOfMemoryError as error:
            raise ModelStopped(
                f"the device's memory is full: {str(error).splitlines()[0]}"
            ) from error

    def _fits(self, prefix: Prefix) -> bool:
        """Whether keys and values of a prefix can be kept."""
        if self._tree is None:
            return False
        return self._window is None or len(prefix) + (self.bos is not None) <= self._window

    def _as_tree(
        self, tree: PrefixTree, unknown: Sequence[Prefix], keep: Callable[[Prefix, F64], None]
    ) -> None:
        for start in range(0, len(unknown), self.batch):
            wanted = set(unknown[start : start + self.batch])
            rows = tree.missing(sorted(wanted))
            for first in range(0, len(rows), self.batch):
                part = rows[first : first + self.batch]
                places = [place for place, prefix in enumerate(part) if prefix in wanted]
                logits = tree.forward(part, places or [0])
                self.cost.calls += 1
                self.cost.evaluations += len(part)
                for place, values in zip(places, self._distributions(logits), strict=False):
                    keep(part[place], values)

    def _one_by_one(self, unknown: Sequence[Prefix], keep: Callable[[Prefix, F64], None]) -> None:
        """Without a cache; prefixes of one length together, so that nothing is padded."""
        by_length: dict[int, list[Prefix]] = {}
        for prefix in unknown:
            by_length.setdefault(len(prefix), []).append(prefix)
        for length, same in by_length.items():
            size = max(1, self.batch * 8 // (length + 1))
            for start in range(0, len(same), size):
                part = same[start : start + size]
                logits = self._plain(part)
                self.cost.calls += 1
                self.cost.evaluations += len(part) * (length + (self.bos is not None))
                for prefix, values in zip(part, self._distributions(logits), strict=True):
                    keep(prefix, values)

    def _plain(self, prefixes: Sequence[Prefix]) -> Any:
        """[N, width] logits after prefixes of one length, each evaluated whole."""
        import torch

        first = () if self.bos is None else (self.bos,)
        tokens = torch.tensor([[*first, *prefix] for prefix in prefixes], device=self.model.device)
        options = {"logits_to_keep": 1} if self._keep_arguments else {}
        return self.model(input_ids=tokens, use_cache=False, **options).logits[:, -1]

    def _distributions(self, logits: Any) -> list[F64]:
        """[N, width] logits -> N arrays [V], in float64: bounds need sums that are 1 to the last digits."""
        import torch

        if logits.device.type == "mps":  # has no float64
            logits = logits.cpu()
        values = torch.log_softmax(logits.double(), -1).cpu().numpy()
        if np.isnan(values).any():
            raise InputError(
                "the model's logits are not numbers",
                code="invalid-value",
                path=self.name,
                remedy="compute with more digits: ?dtype=float32",
            )
        missing = self.tokenizer.size - self.width
        rows = []
        for row in values:
            whole = np.concatenate([row, np.full(missing, -np.inf)])  # a separate copy
            whole.flags.writeable = False
            rows.append(whole)
        return rows

    def _check(self, prefix: Prefix) -> None:
        if not prefix and self.bos is None:
            raise InputError(
                "the model has no token that begins a text",
                code="no-bos",
                path=self.name,
                remedy="name one after the folder (?bos=ID), or give the query a prefix",
            )
        if self.context is not None and len(prefix) > self.context:
            raise LimitError(
                "a prefix is longer than the model's context",
                needed=f"{len(prefix):,} tokens",
                allowed=f"{self.context:,}",
                remedy="set max_tokens; the mass beyond it counts in the upper bound",
            )

    def _objection(self) -> str | None:
        """Why keys and values cannot be kept by prefix; None if they can."""
        import torch

        if not self._keep_arguments:
            return "its forward pass takes no logits_to_keep"
        one, two, three = (place % self.width for place in (1, 2, 3))
        first: list[Prefix] = [(one,)] if self.bos is None else [(), (one,)]
        second: list[Prefix] = [(one, two), (one, two, one), (one, three), (one, three, two)]
        tree = PrefixTree(self.model, self.bos)
        try:
            with torch.inference_mode():
                tree.missing(first)
                tree.forward(first, [0])
                tree.missing(second)
                logits = tree.forward(second, range(len(second)))
                plain = torch.cat([self._plain([prefix]) for prefix in second])
                gap = (logits.float().log_softmax(-1) - plain.float().log_softmax(-1)).abs().max()
        except (
            Exception
        ) as error:  # whatever a model of any family does with a mask that it does not know
            return f"its forward pass refuses a mask of ancestors ({type(error).__name__})"
        allowed = _CHECK_LOGPROB.get(str(self.model.dtype).removeprefix("torch."), 0.1)
        if not float(gap) <= allowed:
            return "its attention does not follow a mask of ancestors"
        return None


def open_huggingface(place: str) -> HuggingFaceModel:
    """Open ``FOLDER`` or ``NAME`` in the hub cache, with options after it.

    Options: ``?device=cuda&dtype=bfloat16&bos=1&batch=64&cache_mb=1024``.

    Raises:
        InputError: if an option or the folder is not understood.
        MissingExtraError: if transformers or torch is not installed.
    """
    from holdfast.lm.models.naming import at_least, split_options

    readers: dict[str, Callable[[str], Any]] = {
        "device": str,
        "dtype": str,
        "bos": lambda text: -1 if text == "none" else at_least(0)(text),
        "batch": at_least(1),
        "cache_mb": at_least(0),
    }
    path, options = split_options(place, readers)
    if "cache_mb" in options:
        options["cache_bytes"] = options.pop("cache_mb") << 20
    return HuggingFaceModel(local_folder(path), **options)


def _open(path: Path, device: str, dtype: str | None) -> Any:
    try:
        import torch
        import transformers
        from safetensors import SafetensorError
    except ImportError as error:
        raise MissingExtraError(error.name or "transformers", "hf") from error
    if not (path / "config.json").is_file():
        raise InputError(
            "there is no model in this folder",
            code="not-found",
            path=path,
            expected="config.json and model.safetensors",
            remedy="give a local folder, or the name of a model in the hub cache; nothing is downloaded",
        )
    kind = dtype or ("float32" if device.startswith("cpu") else "auto")
    if kind != "auto" and not isinstance(getattr(torch, kind, None), torch.dtype):
        raise InputError(
            "unknown dtype", code="unknown-name", found=kind, expected="float32, bfloat16, float16"
        )
    logging = transformers.utils.logging
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        model = transformers.AutoModelForCausalLM.from_pretrained(
            str(path), local_files_only=True, use_safetensors=True, dtype=kind
        )
        return model.to(device).eval().requires_grad_(False)
    except (OSError, ValueError, KeyError, RuntimeError, AssertionError, SafetensorError) as error:
        raise InputError(
            "this model cannot be opened",
            code="unreadable",
            path=path,
            found=str(error).strip().splitlines()[0]
            if str(error).strip()
            else type(error).__name__,
            expected="a causal language model of transformers, in safetensors files",
            remedy="save it again with save_pretrained, or check the device",
        ) from error
    finally:
        if shown:
            logging.enable_progress_bar()


def _summary(values: Any) -> str:
    """What stands for an entry of the state of a model: weights that changed by anything show."""
    if isinstance(values, tuple):  # a quantized layer: its packed weights and its bias
        return " ".join(map(_summary, values))
    if not hasattr(values, "detach"):
        return repr(values)
    numbers = values.detach()
    numbers = (numbers.dequantize() if numbers.is_quantized else numbers).flatten().double()
    return (
        f"{tuple(values.shape)} {numbers.sum()} {numbers.norm()}"  # the norm: signs do not cancel
    )


def _begin(bos: int | None, tokenizer: Tokenizer, config: Any) -> int | None:
    if bos is not None:
        return None if bos < 0 else bos
    if tokenizer.bos is not None:
        return tokenizer.bos
    told = getattr(config, "bos_token_id", None)
    if isinstance(told, int):
        return told
    if config.model_type not in STARTS_WITH_EOS:
        return None
    end = getattr(config, "eos_token_id", None)
    return tokenizer.eos if tokenizer.eos is not None else end if isinstance(end, int) else None


def _unwrapped(model: Any) -> Any:
    """The transformer itself: adapters of PEFT live inside it, and act there.

    Raises:
        InputError: if the wrapper does more than its transformer: virtual tokens (prompt tuning), or
            adapters that it switches by what it reads (aLoRA).
    """
    if not hasattr(model, "get_base_model"):
        return model
    import torch

    base = model.eval().get_base_model()
    config = getattr(model, "active_peft_config", None)
    switch = getattr(config, "alora_invocation_tokens", None) or ()
    tokens = torch.tensor([[1, 2, *switch, 3]], device=base.device)
    with torch.inference_mode():
        logits = [one(input_ids=tokens, use_cache=False).logits for one in (model, base)]
    if logits[0].shape != logits[1].shape or not torch.allclose(*logits, rtol=1e-3, atol=1e-3):
        raise InputError(
            "the wrapper changes what its transformer computes",
            code="unsupported",
            place="model",
            found=type(config or model).__name__,
            expected="adapters that act inside the layers, such as LoRA",
        )
    return base


def _window(config: Any) -> tuple[int | None, str | None]:
    """(tokens that every layer sees, None for all; or why prefixes cannot share keys)."""
    kinds = {
        *(getattr(config, "layer_types", None) or ()),
        *(getattr(config, "attention_layers", None) or ()),
    }
    sizes = {"sliding_attention": "sliding_window", "chunked_attention": "attention_chunk_size"}
    if strange := kinds - set(sizes) - {"full_attention", "global", "attention"}:
        return None, f"layers of {', '.join(sorted(strange))}"
    named = [sizes[kind] for kind in kinds if kind in sizes]
    if not kinds and getattr(config, "use_sliding_window", True):
        named = ["sliding_window"]
    windows = [size for name in named if (size := getattr(config, name, None))]
    window = min(windows, default=None)
    if window is not None and window < LEAST_WINDOW:
        return window, f"a sliding window of {window} tokens"
    return window, None


def _ends(tokenizer: Tokenizer, model: Any, remarks: list[str]) -> list[int]:
    """The ids that end a text: by the tokenizer, and by the model's configurations."""
    found = list(tokenizer.ends)
    for config in (
        model.config.get_text_config(),
        model.config,
        getattr(model, "generation_config", None),
    ):
        named = getattr(config, "eos_token_id", None)
        for token in named if isinstance(named, (list, tuple)) else [named]:
            if not isinstance(token, int) or token in found:
                continue
            piece = tokenizer.pieces[token] if 0 <= token < tokenizer.size else None
            if piece is None or not tokenizer.ends:
                found.append(token)
            else:  # often the default of a class of configurations
                remarks.append(
                    f"eos_token_id {token} spells {piece!r}: it is not taken as an end of text"
                )
    return found


def _matched(
    tokenizer: Tokenizer, width: int, bos: int | None, model: Any, remarks: list[str]
) -> Tokenizer:
    """The tokenizer with an id for every logit, and with the model's BOS and every end of text."""
    ends = _ends(tokenizer, model, remarks)
    for name, token in (("bos", bos), ("eos", ends[0] if ends else None)):
        if token is not None and not token < width:
            raise InputError(
                f"the {name} token has no embedding",
                code="out-of-range",
                found=str(token),
                expected=f"an id below {width:,}",
            )
    ends = [token for token in ends if token < width]
    padding = width - tokenizer.size
    if padding < 0:
        remarks.append(
            f"the tokenizer has {tokenizer.size:,} tokens, the model {width:,} logits: the last "
            f"{-padding:,} tokens are never produced"
        )
    elif padding:
        remarks.append(
            f"the last {padding:,} logits belong to no token; they keep their probability"
        )
    pieces = (*tokenizer.pieces, *[None] * max(padding, 0))
    eos = ends[0] if ends else None
    return replace(tokenizer, pieces=pieces, bos=bos, eos=eos, more_ends=tuple(ends[1:]))
