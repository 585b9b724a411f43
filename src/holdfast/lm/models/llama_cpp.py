"""Models in GGUF files, through llama.cpp: many prefixes in one pass, each token of their tree once.

llama.cpp's cache holds, for every cell, the set of sequences that see it. The prefixes of a call are laid
out as a tree: a token that several prefixes share is computed once and seen by all their sequences. A
sequence is kept after the call, and lends its beginning to prefixes that come later.
"""

from __future__ import annotations

import ctypes
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.errors import InputError, MissingExtraError
from holdfast.lm.models.fingerprints import fingerprint
from holdfast.lm.models.naming import at_least, one_of, split_options
from holdfast.lm.models.protocol import F64, Cost, ModelStopped, NextToken, Prefix
from holdfast.lm.tokenizers.tokenizer import Tokenizer

_OPTIONS: dict[str, Callable[[str], Any]] = {
    "n_ctx": at_least(8),
    "threads": at_least(1),
    "sequences": at_least(2),
    "kv": one_of("f16", "f32"),
    "bos": lambda text: None if text == "none" else at_least(0)(text),
}
_KINDS = {1: "bpe", 2: "bpe", 3: "wordpiece", 4: "unigram"}
_WITHOUT_BYTES = 1 << 0 | 1 << 1 | 1 << 3  # unknown, unused, control


def open_gguf(name: str) -> LlamaCpp:
    """A model in a GGUF file.

    Args:
        name: ``gguf:FILE?n_ctx=2048&threads=4``; options are ``n_ctx`` (cells of the cache, and the longest
            prefix; else the model's own length, at most 4,096), ``threads``, ``sequences`` (prefixes in the
            cache, 64), ``kv=f32`` (the cache in full precision; llama.cpp's own choice is f16), ``bos``
            (an id, or ``none``; else what the file says, else its end of text).

    Raises:
        InputError: if the name or the file cannot be read.
        MissingExtraError: without llama-cpp-python.
    """
    path, options = split_options(name.removeprefix("gguf:"), _OPTIONS)
    if not Path(path).is_file():
        raise InputError("model file not found", code="not-found", path=path)
    return LlamaCpp(Path(path), **options)


class LlamaCpp:
    """A language model that llama.cpp runs; close it, or use it in a ``with`` statement.

    Args:
        path: the GGUF file.
        n_ctx: cells of the cache; None: the length the model was trained on, at most 4,096.
        threads: None: what llama.cpp takes.
        sequences: prefixes that the cache can hold; half of them may be asked for in one forward pass.
        kv: number format of the cache.
        bos: the token in front of every prefix; -1: the file's, else its end of text.
    """

    def __init__(
        self,
        path: Path,
        n_ctx: int | None = None,
        threads: int | None = None,
        sequences: int = 64,
        kv: str = "f16",
        bos: int | None = -1,
    ) -> None:
        try:
            import llama_cpp
        except ImportError as error:
            raise MissingExtraError("llama_cpp", "gguf") from error

        self._library = llama_cpp
        self.name = f"gguf:{path}"
        self.fingerprint = fingerprint([Path(path)])
        self.cost = Cost()
        self._context: Any = None
        self._batch: Any = None
        errors: list[str] = []
        # Kept: llama.cpp calls it as long as it runs.
        self._log = llama_cpp.llama_log_callback(lambda level, text, _: _note(errors, level, text))
        llama_cpp.llama_log_set(self._log, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        self._model = llama_cpp.llama_model_load_from_file(
            str(path).encode(), llama_cpp.llama_model_default_params()
        )
        if not self._model:
            raise InputError(
                "llama.cpp cannot read this file",
                code="damaged",
                path=path,
                found=_last(errors),
            )
        self._vocab = llama_cpp.llama_model_get_vocab(self._model)
        self.tokenizer = self._read_tokenizer(bos)
        self._bos = self.tokenizer.bos
        trained = llama_cpp.llama_model_n_ctx_train(self._model)
        cells = n_ctx or min(trained, 4096)
        self._sequences = min(sequences, llama_cpp.llama_max_parallel_sequences())
        # Recurrent layers keep one state for a sequence, which cannot lend its beginning.
        self._shares = not (
            llama_cpp.llama_model_is_recurrent(self._model)
            or llama_cpp.llama_model_is_hybrid(self._model)
        )
        params = llama_cpp.llama_context_default_params()
        # llama.cpp allocates cells in steps of 256, and wants a batch to hold an output for each sequence.
        params.n_ctx = -(-max(cells, self._sequences) // 256) * 256
        params.n_batch = params.n_ubatch = min(params.n_ctx, 512)
        params.n_seq_max = self._sequences
        params.kv_unified = params.swa_full = True
        params.type_k = params.type_v = 0 if kv == "f32" else 1
        params.flash_attn_type = 0  # on processors it rounds to f16 on the way
        if threads is not None:
            params.n_threads = params.n_threads_batch = threads
        self._context = llama_cpp.llama_init_from_model(self._model, params)
        if not self._context:
            raise InputError(
                "llama.cpp cannot run this model",
                code="invalid-value",
                path=path,
                found=_last(errors),
                remedy="a smaller n_ctx",
            )
        self._errors = errors
        self._most = int(llama_cpp.llama_n_batch(self._context))
        self._batch = llama_cpp.llama_batch_init(self._most, 0, self._sequences)
        self._memory = llama_cpp.llama_get_memory(self._context)
        self._longest_prefix = cells - (self._bos is not None)
        self.context: int | None = self._longest_prefix
        self._held: OrderedDict[int, Prefix] = OrderedDict.fromkeys(range(self._sequences), ())
        """What each sequence of the cache holds, BOS included; the one used longest ago first."""

    def __enter__(self) -> LlamaCpp:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Free the model; its tokenizer cannot encode afterwards."""
        if getattr(self, "_batch", None) is not None:
            self._library.llama_batch_free(self._batch)
            self._batch = None
        if getattr(self, "_context", None):
            self._library.llama_free(self._context)
            self._context = None
        if getattr(self, "_model", None):
            self._library.llama_model_free(self._model)
            self._model = None

    def logprobs(self, prefixes: Sequence[Prefix]) -> list[NextToken]:
        """The distribution after each prefix; one longer than `context` is wholly in `rest`.

        Raises:
            InputError: for the empty prefix of a model without BOS.
            ModelStopped: if llama.cpp fails.
        """
        started = time.perf_counter()
        first = () if self._bos is None else (self._bos,)
        found: dict[Prefix, NextToken] = {}
        wanted = [
            first + prefix
            for prefix in dict.fromkeys(prefixes)
            if len(prefix) <= self._longest_prefix
        ]
        if () in wanted:
            raise InputError(
                "the model has no BOS: no probability is defined in front of the first token",
                code="no-bos",
                place=self.name,
                remedy="give the query a prefix, or name the token that stands in front: ?bos=ID",
            )
        try:
            most = self._sequences // 2
            for start in range(0, len(wanted), most):
                self._ask(wanted[start : start + most], found)
        except ModelStopped as stopped:
            stopped.answered = {
                place: found[first + prefix]
                for place, prefix in enumerate(prefixes)
                if first + prefix in found
            }
            raise
        finally:
            self.cost.nodes += len(found)
            self.cost.seconds += time.perf_counter() - started
        nothing = NextToken(np.full(self.tokenizer.size, -np.inf), 1.0)
        return [found.get(first + prefix, nothing) for prefix in prefixes]

    # --- The cache ---------------------------------------------------------------------------------

    def _ask(self, prefixes: list[Prefix], found: dict[Prefix, NextToken]) -> None:
        """The answers to at most half as many prefixes as the cache has sequences."""
        sources = [self._lender(prefix) for prefix in prefixes]
        lending = {source for source, shared in sources if shared}
        free = [sequence for sequence in self._held if sequence not in lending][: len(prefixes)]
        if len(free) < len(prefixes):
            half = len(prefixes) // 2
            self._ask(prefixes[:half], found)
            self._ask(prefixes[half:], found)
            return
        for sequence, prefix, (source, shared) in zip(free, prefixes, sources, strict=True):
            self._forget(sequence)
            if shared:
                self._library.llama_memory_seq_cp(self._memory, source, sequence, 0, shared)
                self._held.move_to_end(source)
            self._held[sequence] = prefix
            self._held.move_to_end(sequence)
        nodes = self._tree(free, prefixes, [shared for _, shared in sources])
        for start in range(0, len(nodes), self._most):
            if not self._decode(nodes[start : start + self._most], free, found):
                # The cells are all taken: begin again, with less in the cache.
                for sequence in list(self._held):
                    self._forget(sequence)
                if len(prefixes) == 1:
                    # Alone in the cache it has room: `context` is the number of cells.
                    self._ask_alone(prefixes[0], free[0], found)
                else:
                    half = len(prefixes) // 2
                    self._ask(prefixes[:half], found)
                    self._ask(prefixes[half:], found)
                return

    def _ask_alone(self, prefix: Prefix, sequence: int, found: dict[Prefix, NextToken]) -> None:
        self._held[sequence] = prefix
        nodes = self._tree([sequence], [prefix], [0])
        for start in range(0, len(nodes), self._most):
            if not self._decode(nodes[start : start + self._most], [sequence], found):
                raise self._failed(1)

    def _lender(self, prefix: Prefix) -> tuple[int, int]:
        """(sequence, tokens) of the longest beginning that the cache holds, the last token left out."""
        best = (-1, 0)
        if self._shares:
            for sequence, held in self._held.items():
                shared = 0
                for one, other in zip(held, prefix[:-1], strict=False):
                    if one != other:
                        break
                    shared += 1
                if shared > best[1]:
                    best = (sequence, shared)
        return best

    def _forget(self, sequence: int) -> None:
        self._library.llama_memory_seq_rm(self._memory, sequence, -1, -1)
        self._held[sequence] = ()

    def _tree(
        self, sequences: list[int], prefixes: list[Prefix], shared: list[int]
    ) -> list[tuple[Prefix, list[int], Prefix | None]]:
        """(path to the token, sequences that see it, the prefix that ends there), parents first."""
        seen_by: dict[Any, list[int]] = {}
        for sequence, prefix, known in zip(sequences, prefixes, shared, strict=True):
            for size in range(known + 1, len(prefix) + 1):
                path = prefix[:size]
                seen_by.setdefault(path if self._shares else (path, sequence), []).append(sequence)
        ends = set(prefixes)
        nodes = []
        for key, sequence_ids in seen_by.items():
            path = key if self._shares else key[0]
            ended = path in ends and (self._shares or prefixes[sequences.index(key[1])] == path)
            nodes.append((path, sequence_ids, path if ended else None))
        return sorted(nodes, key=lambda node: len(node[0]))

    def _decode(
        self,
        nodes: list[tuple[Prefix, list[int], Prefix | None]],
        sequences: list[int],
        found: dict[Prefix, NextToken],
    ) -> bool:
        """One forward pass; False when the cache has no room for it."""
        batch = self._batch
        batch.n_tokens = len(nodes)
        for place, (path, seen_by, end) in enumerate(nodes):
            batch.token[place] = path[-1]
            batch.pos[place] = len(path) - 1
            batch.n_seq_id[place] = len(seen_by)
            for number, sequence in enumerate(seen_by):
                batch.seq_id[place][number] = sequence
            batch.logits[place] = end is not None
        status = self._library.llama_decode(self._context, batch)
        if status == 1:
            return False
        if status:
            raise self._failed(status)
        self.cost.calls += 1
        self.cost.evaluations += len(nodes)
        for place, (_, _, end) in enumerate(nodes):
            if end is not None:
                scores = self._library.llama_get_logits_ith(self._context, place)
                row = np.ctypeslib.as_array(scores, (self.tokenizer.size,)).astype(np.float64)
                found[end] = NextToken(_log_softmax(row))
        return True

    def _failed(self, status: int) -> ModelStopped:
        for sequence in list(self._held):
            self._forget(sequence)
        return ModelStopped(f"llama.cpp failed with status {status}: {_last(self._errors)}")

    # --- The tokenizer -----------------------------------------------------------------------------

    def _read_tokenizer(self, bos: int | None) -> Tokenizer:
        library, vocab = self._library, self._vocab
        pieces = tuple(self._piece(token) for token in range(library.llama_vocab_n_tokens(vocab)))
        kind = int(library.llama_vocab_type(vocab))
        end = library.llama_vocab_eos(vocab)
        if bos == -1:
            bos = next(
                (token for token in (library.llama_vocab_bos(vocab), end) if token >= 0), None
            )
        # SentencePiece writes a space in front of a text, and takes it away again.
        spaced = kind in (1, 4) and self._told("tokenizer.ggml.add_space_prefix") != "false"
        return Tokenizer(
            self.name,
            pieces,
            self._encode,
            bos=bos,
            eos=end if end >= 0 else None,
            more_ends=tuple(
                token
                for token in range(len(pieces))
                if token != end and library.llama_vocab_is_eog(vocab, token)
            ),
            lead=b" " if spaced else b"",
            kind=_KINDS.get(kind, "bpe"),  # type: ignore[arg-type]
        )

    def _piece(self, token: int) -> bytes | None:
        """The bytes of an id; None for control tokens and the like."""
        if self._library.llama_vocab_get_attr(self._vocab, token) & _WITHOUT_BYTES:
            return None
        size = 32
        while True:
            buffer = ctypes.create_string_buffer(size)
            written = self._library.llama_token_to_piece(self._vocab, token, buffer, size, 0, False)
            if written >= 0:
                return buffer.raw[:written] or None
            size = -written

    def _encode(self, text: bytes) -> list[int]:
        if not self._model:
            raise ValueError(f"{self.name} is closed")
        size = len(text) + 8
        while True:
            tokens = (ctypes.c_int32 * size)()
            written = self._library.llama_tokenize(
                self._vocab, text, len(text), tokens, size, False, False
            )
            if written >= 0:
                return list(tokens[:written])
            size = -written

    def _told(self, key: str) -> str | None:
        """A value of the file's metadata."""
        buffer = ctypes.create_string_buffer(64)
        size = self._library.llama_model_meta_val_str(
            self._model, key.encode(), buffer, len(buffer)
        )
        return buffer.value.decode(errors="replace") if size >= 0 else None


def _log_softmax(scores: F64) -> F64:
    shifted = scores - scores.max()
    logprobs: F64 = shifted - np.log(np.exp(shifted).sum())
    return logprobs


def _note(errors: list[str], level: int, text: bytes) -> None:
    if level in (2, 3) and text.strip():  # warnings and errors
        errors.append(text.decode(errors="replace").strip())
        del errors[:-5]


def _last(errors: list[str]) -> str | None:
    return errors[-1] if errors else None
