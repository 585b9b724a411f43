"""Models behind a server that speaks OpenAI's ``/v1/completions``: vLLM, llama.cpp, SGLang and others.

The server is asked for one token after each prefix, at temperature 0, and for the log-probabilities of
the N most probable tokens: what servers list are the model's own probabilities, before any sampling rule.
Prompts are sent as token ids, BOS in front, so that nothing is encoded a second time.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

from holdfast.errors import HoldfastError, InputError
from holdfast.lm.models.completions import TokenNames, read_completions, unlisted
from holdfast.lm.models.naming import KEY_VARIABLES, at_least, one_of, split_endpoint, split_options
from holdfast.lm.models.protocol import Cost, ModelStopped, NextToken, Prefix
from holdfast.lm.models.retrying import NoAnswer, RefusedRequest, Requests
from holdfast.lm.tokenizers.tokenizer import Tokenizer

_TOO_LONG = re.compile(
    r"context.?(length|size|window)|(prompt|input) is too long|maximum model length|exceed_context",
    re.I,
)
_REMEDIES = {
    401: f"set the key of the server in {' or '.join(KEY_VARIABLES)}",
    403: f"set a key that may use this model in {' or '.join(KEY_VARIABLES)}",
    404: "check the URL (most servers want /v1 at its end) and the model behind #",
}


@dataclass(frozen=True)
class Settings:
    """How a server is asked; every field is an option of the model's name."""

    logprobs: int | None = 20
    """Tokens listed after each prefix: vLLM allows 20 (`--max-logprobs`), OpenAI 5; ``all`` (None) is V."""
    concurrency: int = 8
    """Requests under way at once."""
    batch: int = 1
    """Prompts in a request."""
    timeout: float = 60.0
    """Seconds to wait for an answer."""
    retries: int = 5
    """Requests sent again, each after a longer pause, until the server counts as gone."""
    bos: int | None = -1
    """The id in front of a prompt; None for ``none``, -1 for the tokenizer's BOS, else its end of text."""
    prompts: str = "tokens"
    """``tokens``, or ``text`` for servers that take no ids: then only prefixes that the tokenizer makes
    of their own text can be asked, nothing is known after others, and the server puts BOS in front."""
    fields: str = "all"
    """``all``, or ``standard``: send no field that OpenAI's own server does not know."""
    context: int | None = None
    """The server's longest prompt and completion together; else what ``/v1/models`` tells, if anything."""
    end: str | None = None
    """End-of-text token of a server that returns no token ids, such as ``<|endoftext|>``."""
    seed: int = 0
    """Seed of the jitter of retry pauses."""


_OPTIONS: dict[str, Callable[[str], Any]] = {
    "tokenizer": str,
    "logprobs": lambda text: None if text == "all" else at_least(1)(text),
    "concurrency": at_least(1),
    "batch": at_least(1),
    "timeout": at_least(0.001, float),
    "retries": at_least(0),
    "bos": lambda text: None if text == "none" else at_least(0)(text),
    "prompts": one_of("tokens", "text"),
    "fields": one_of("all", "standard"),
    "context": at_least(1),
    "end": str,
    "seed": int,
}


def open_endpoint(name: str, *, tokenizer: Tokenizer | None = None) -> Endpoint:
    """A model behind a server.

    Args:
        name: ``openai:http://host:port/v1#model?tokenizer=hf:DIR``, and `Settings` as further options. A
            key is read from the environment, ``HOLDFAST_API_KEY`` or ``OPENAI_API_KEY``.
        tokenizer: in place of the option ``tokenizer``: servers do not tell the bytes of their tokens.

    Raises:
        InputError: if the name cannot be read, no server answers, or it refuses the key.
    """
    front, options = split_options(name, _OPTIONS)
    url, model = split_endpoint(front)
    named = options.pop("tokenizer", None)
    if tokenizer is None:
        if named is None:
            raise InputError(
                "a served model needs its tokenizer: servers do not tell the bytes of their tokens",
                code="invalid-value",
                place=front,
                remedy="add ?tokenizer=hf:DIR (gpt2:DIR, tiktoken:FILE, sentencepiece:FILE)",
            )
        from holdfast.lm.tokenizers.loading import load_tokenizer

        tokenizer = load_tokenizer(named)
    endpoint = Endpoint(url, model, tokenizer, Settings(**options))
    endpoint.connect()
    return endpoint


class Endpoint:
    """A language model behind a server; close it, or use it in a ``with`` statement.

    Args:
        url: up to and with ``/v1``.
        model: as the server names it.
        tokenizer: the model's.
        settings: how to ask.
        sleep: how to wait some seconds before a request is sent again; None: a wait that ends when another
            request made the model stop.
    """

    def __init__(
        self,
        url: str,
        model: str,
        tokenizer: Tokenizer,
        settings: Settings | None = None,
        sleep: Callable[[float], object] | None = None,
    ) -> None:
        self.name = f"openai:{url}#{model}"
        self.tokenizer = tokenizer
        self.settings = settings or Settings()
        self.cost = Cost()
        self._url, self._model = url, model
        own = tokenizer.eos if tokenizer.bos is None else tokenizer.bos
        self._bos = own if self.settings.bos == -1 else self.settings.bos
        self._names = TokenNames(tokenizer, self.settings.end)
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._requests = Requests(
            self.settings.timeout,
            self.settings.retries,
            sleep or self._stopping.wait,
            self._count_retry,
            self.settings.seed,
        )
        self._pool: ThreadPoolExecutor | None = None
        self._answered_once = False
        self.context: int | None = None
        self._limit_context(self.settings.context)

    def __enter__(self) -> Endpoint:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the threads and close the connections."""
        self._stopping.set()
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None
        self._requests.close()

    def connect(self) -> None:
        """Ask the server which models it serves: it answers, takes the key, and may tell its context.

        Raises:
            InputError: if no server answers, or it refuses the key.
        """
        try:
            told = self._requests.send("GET", f"{self._url}/models")
        except NoAnswer as gone:
            raise InputError(
                f"no server answers: {gone}",
                code="network",
                place=self.name,
                remedy="start it, or check the URL",
            ) from None
        except RefusedRequest as refused:
            if refused.status in (401, 403):
                raise self._wrong(refused) from None
            return  # not every server lists its models
        models = told.get("data") if isinstance(told, dict) else None
        models = models if isinstance(models, list) else []
        for each in models:
            if isinstance(each, dict) and (each.get("id") == self._model or len(models) == 1):
                meta = each.get("meta") or {}  # llama.cpp
                context = each.get("max_model_len") or meta.get("n_ctx")
                if isinstance(context, int) and self.settings.context is None:
                    self._limit_context(context)

    def logprobs(self, prefixes: Sequence[Prefix]) -> list[NextToken]:
        """The distribution after each prefix; one that the server cannot continue is wholly in `rest`.

        Raises:
            ModelStopped: if the server stopped answering; what it did answer is in it.
            InputError: if it refuses the first request.
        """
        started = time.perf_counter()
        self._stopping.clear()
        distinct = list(dict.fromkeys(prefixes))
        answers: dict[Prefix, NextToken] = {}
        failure: Exception | None = None
        try:
            failure = self._ask_all(
                [prefix for prefix in distinct if self._can_ask(prefix)], answers
            )
        finally:
            with self._lock:
                self.cost.nodes += len(answers)
                self.cost.seconds += time.perf_counter() - started
        self._answered_once |= bool(answers)
        if not self._answered_once:
            if isinstance(failure, RefusedRequest):
                raise self._wrong(failure)
            if isinstance(failure, HoldfastError):
                raise failure
        if failure is not None:
            answered = {
                place: answers[prefix] for place, prefix in enumerate(prefixes) if prefix in answers
            }
            raise ModelStopped(f"{self.name} stopped answering: {failure}", answered)
        nothing = unlisted(self.tokenizer.size)
        return [answers.get(prefix, nothing) for prefix in prefixes]

    def _ask_all(
        self, prefixes: list[Prefix], answers: dict[Prefix, NextToken]
    ) -> Exception | None:
        """Ask for all prefixes, side by side; the first failure, after which no further request is sent."""
        size = self.settings.batch
        groups = [prefixes[place : place + size] for place in range(0, len(prefixes), size)]
        if len(groups) < 2 or self.settings.concurrency == 1:
            for group in groups:
                try:
                    answers.update(zip(group, self._ask(group), strict=True))
                except (NoAnswer, RefusedRequest, HoldfastError) as failure:
                    return failure
            return None
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.settings.concurrency)
        requests: dict[Future[list[NextToken]], list[Prefix]] = {}
        try:
            for group in groups:
                requests[self._pool.submit(self._ask, group)] = group
            wait(requests, return_when=FIRST_EXCEPTION)
        finally:
            # After a failure or an interruption nothing new starts and pauses end.
            if not all(future.done() and not future.exception() for future in requests):
                self._stopping.set()
                for future in requests:
                    future.cancel()
        wait(requests)
        failures = []
        for future, group in requests.items():
            if not future.cancelled():
                if failed := future.exception():
                    failures.append(failed)
                else:
                    answers.update(zip(group, future.result(), strict=True))
        for unexpected in failures:
            if not isinstance(unexpected, NoAnswer | RefusedRequest | HoldfastError):
                raise unexpected
        return failures[0] if failures else None  # type: ignore[return-value]

    def _ask(self, prefixes: list[Prefix]) -> list[NextToken]:
        """One request; prompts are sent one by one when the server finds one of several too long."""
        prompts = [self._prompt(prefix) for prefix in prefixes]
        try:
            body = self._requests.send("POST", f"{self._url}/completions", self._request(prompts))
        except RefusedRequest as refused:
            if not _TOO_LONG.search(f"{refused.code} {refused.message}"):
                raise
            if len(prefixes) > 1:
                return [answer for prefix in prefixes for answer in self._ask([prefix])]
            self._limit_context(len(prefixes[0]) + (self._bos is not None))
            return [unlisted(self.tokenizer.size)]
        with self._lock:
            self.cost.calls += 1
            self.cost.evaluations += _evaluated(body, sum(map(len, prompts)))
        if _written(body) > len(prefixes):
            # What is listed may be the distribution after a token that the server wrote by itself.
            raise InputError(
                "the server wrote more than one token",
                code="out-of-range",
                found=f"{_written(body)} tokens",
                expected="1",
            )
        return read_completions(body, len(prefixes), self.tokenizer.size, self._names)

    def _request(self, prompts: list[list[int] | str]) -> dict[str, Any]:
        listed = self.settings.logprobs or self.tokenizer.size
        request: dict[str, Any] = {
            "model": self._model,
            "prompt": prompts[0] if len(prompts) == 1 else prompts,
            "max_tokens": 1,
            "temperature": 0,
            "logprobs": listed,
        }
        if self.settings.fields == "all":
            # vLLM: tokens by id. Its default of the penalty may come from a file of the model.
            request |= {"return_tokens_as_token_ids": True, "repetition_penalty": 1.0}
        return request

    def _prompt(self, prefix: Prefix) -> list[int] | str:
        if self.settings.prompts == "text":
            return self.tokenizer.spell(prefix).decode()
        tokens = [*prefix] if self._bos is None else [self._bos, *prefix]
        if not tokens:
            raise InputError(
                "the model has no BOS: no probability is defined in front of the first token",
                code="no-bos",
                place=self.name,
                remedy="give a prefix, or name the token that comes before a text: bos=ID",
            )
        return tokens

    def _can_ask(self, prefix: Prefix) -> bool:
        if self.context is not None and len(prefix) > self.context:
            return False
        if self.settings.prompts == "tokens":
            return True
        text = self.tokenizer.spell(prefix)
        try:
            text.decode()
        except UnicodeDecodeError:
            return False
        return self.tokenizer.encode(text) == list(prefix)

    def _limit_context(self, tokens: int | None) -> None:
        """Learn that BOS, a prefix and the one token that is asked for must fit into so many tokens."""
        if tokens is not None:
            longest = max(0, tokens - 1 - (self._bos is not None))
            with self._lock:
                self.context = longest if self.context is None else min(self.context, longest)

    def _count_retry(self) -> None:
        with self._lock:
            self.cost.retries += 1

    def _wrong(self, refused: RefusedRequest) -> InputError:
        remedy = _REMEDIES.get(refused.status)
        if remedy is None and "logprobs" in refused.message:
            remedy = "set logprobs=N to what the server allows (vLLM: start it with --max-logprobs)"
        return InputError(
            "the server refuses the request",
            code="network",
            place=self.name,
            found=str(refused),
            remedy=remedy,
        )


def _usage(body: Any) -> dict[str, Any]:
    usage = body.get("usage") if isinstance(body, dict) else None
    return usage if isinstance(usage, dict) else {}


def _written(body: Any) -> int:
    written = _usage(body).get("completion_tokens")
    return written if isinstance(written, int) else 0


def _evaluated(body: Any, sent: int) -> int:
    """Tokens that the server computed, as far as it tells: what its cache spared does not count."""
    timings = body.get("timings") if isinstance(body, dict) else None
    if isinstance(timings, dict) and isinstance(timings.get("prompt_n"), int):
        return max(1, int(timings["prompt_n"]))  # llama.cpp
    usage = _usage(body)
    computed = usage.get("prompt_tokens")
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    return int(computed if isinstance(computed, int) else sent) - int(cached or 0)
