"""Systems under test by name: a server, a local model, a Python function, recorded responses."""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import inspect
import sys
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from holdfast.errors import HoldfastError, InputError
from holdfast.lm.models.naming import at_least, split_options
from holdfast.lm.models.protocol import Prefix
from holdfast.lm.safety.rows import invalid_row, read_rows
from holdfast.lm.safety.specification import Settings

Messages = Sequence[Mapping[str, str]]
_FORMS = "openai:URL#MODEL, hf:FOLDER, python:MODULE:FUNCTION, replay:FILE"


REFUSED = "refused"
"""`Reply.finish` where the system, or a filter in front of it, says that it gives no response."""


@dataclass(frozen=True)
class Reply:
    """What a system answered."""

    text: str
    finish: str = ""
    """Why it ended: ``stop``, ``length``, ``refused`` ...; empty where it does not say."""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    served_by: str = ""
    """Fingerprint of the server's backend, if the server sends one."""


def is_blank(text: str) -> bool:
    """Whether a response says nothing: it has no letter, digit or symbol, whatever else it has."""
    return not any(unicodedata.category(character)[0] in "LNS" for character in text)


def answer_of(text: str) -> str:
    """A response without the reasoning that a model wrote before it; empty if it never came to an answer.

    Some servers hand on the tag that opens the reasoning, others only the one that ends it.
    """
    before, end, answer = text.partition("</think>")
    if end:
        return answer.lstrip()
    return "" if before.lstrip().startswith("<think>") else text


class Failure(Exception):
    """A request without a usable answer.

    Args:
        kind: ``rate-limit``, ``overload``, ``timeout``, ``network``, ``malformed``, ``server``; these are
            tried again. ``refused``: the server does not take this item; ``error``: a function failed;
            ``missing``: nothing is recorded.
        detail: what was met.
        wait_s: seconds that the server asks to wait.
        fatal: no other item can succeed either, such as a wrong key.
    """

    def __init__(
        self, kind: str, detail: str = "", wait_s: float | None = None, fatal: bool = False
    ) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind, self.detail, self.wait_s, self.fatal = kind, detail, wait_s, fatal

    @property
    def again(self) -> bool:
        """Whether the same request may succeed."""
        return self.kind not in ("refused", "error", "missing") and not self.fatal

    @property
    def congestion(self) -> bool:
        """Whether fewer requests at a time may help."""
        return self.kind in ("rate-limit", "overload", "timeout")


@dataclass(frozen=True)
class Limits:
    """How a system may be asked; options of its name."""

    concurrency: int = 16
    """Requests under way at once."""
    retries: int = 7
    """Requests sent again after a failure; four times as many after a rate limit."""
    rpm: float | None = None
    """Requests per minute."""
    tpm: float | None = None
    """Tokens per minute."""
    price_in: float = 0.0
    """Price of a million prompt tokens."""
    price_out: float = 0.0
    """Price of a million tokens of the response."""

    def cost(self, prompt_tokens: float, completion_tokens: float) -> float:
        """What a request costs."""
        return (self.price_in * prompt_tokens + self.price_out * completion_tokens) / 1e6


LIMIT_OPTIONS: dict[str, Callable[[str], Any]] = {
    "concurrency": at_least(1),
    "retries": at_least(0),
    **dict.fromkeys(("rpm", "tpm"), at_least(1e-9, float)),
    **dict.fromkeys(("price_in", "price_out"), at_least(0, float)),
}


class System(Protocol):
    """What answers prompts."""

    name: str
    limits: Limits

    async def fingerprint(self) -> str:
        """What tells this system from another of the same name.

        Raises:
            InputError: if it cannot be reached.
        """
        ...

    async def ask(self, messages: Messages, item: str = "") -> Reply:
        """The answer to a conversation; `item` is the id of what is asked.

        Raises:
            Failure: if there is none.
        """
        ...

    async def close(self) -> None:
        """Release what it holds."""
        ...


def open_system(name: str, settings: Settings) -> System:
    """A system by its name; options follow a ``?``, such as ``?concurrency=64&rpm=500``.

    Args:
        name: ``openai:URL#MODEL`` (a server with ``/chat/completions``), ``hf:FOLDER``,
            ``python:MODULE:FUNCTION`` (prompt -> response; may be async), ``replay:FILE`` (CSV with
            ``item`` or ``prompt``, and ``response``).
        settings: how it is asked.

    Raises:
        InputError: if the name cannot be read, or what it names cannot be opened.
    """
    kind, _, place = name.partition(":")
    if kind == "openai" and place:
        from holdfast.lm.safety.endpoint import open_endpoint

        return open_endpoint(name, settings)
    if kind == "hf" and place:
        return LocalModel(name, settings)
    if kind == "python" and place:
        return _Function(name)
    if kind == "replay" and place:
        return _Replay(name)
    raise InputError(
        "unknown kind of system", code="unknown-name", place="--system", found=name, expected=_FORMS
    )


class Threads:
    """Calls of a function that blocks, in threads of their own."""

    def __init__(self, count: int) -> None:
        self._pool = ThreadPoolExecutor(count)

    async def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """What the function gives; of an async function, once it is awaited.

        Raises:
            Failure: if it raises.
        """
        loop = asyncio.get_running_loop()
        try:
            found = await loop.run_in_executor(self._pool, function, *arguments)
            return await found if inspect.isawaitable(found) else found
        except Failure:
            raise
        except Exception as error:
            raise _error(error) from error

    async def close(self) -> None:
        """Forget what has not begun."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _error(error: Exception) -> Failure:
    fatal = isinstance(error, (HoldfastError, MemoryError))
    return Failure("error", f"{type(error).__name__}: {error}"[:300], fatal=fatal)


class _Function(Threads):
    """A Python function; the text of its file is its fingerprint."""

    def __init__(self, name: str) -> None:
        place, options = split_options(name, {"concurrency": at_least(1)})
        self.name, self.limits = name, Limits(**{"retries": 0, **options})
        super().__init__(self.limits.concurrency)
        self._function = load_function(place.removeprefix("python:"), name)

    async def fingerprint(self) -> str:
        return source_digest(self._function)

    async def ask(self, messages: Messages, item: str = "") -> Reply:
        text = await self.call(self._function, messages[-1]["content"])
        if not isinstance(text, str):
            raise Failure("error", f"the function gave a {type(text).__name__}, not a text")
        return Reply(text)


class LocalModel(Threads):
    """A model folder (``hf:FOLDER``), one response at a time; served models are faster for whole runs.

    The folder's chat template writes the conversation; without one the prompt is continued as it is.

    Args:
        name: ``hf:FOLDER`` with the options of `holdfast.lm.models`.
        settings: longest response, temperature.
    """

    def __init__(self, name: str, settings: Settings) -> None:
        super().__init__(1)
        self.name, self.limits = name, Limits(concurrency=1, retries=0)
        self._settings = settings
        from holdfast.lm.models.loading import load

        self._model = load(name)

    async def fingerprint(self) -> str:
        """Fingerprint of the model's files."""
        model: Any = self._model
        return str(model.fingerprint)

    async def ask(self, messages: Messages, item: str = "") -> Reply:
        """A sampled response; the same prompt gets the same one."""
        reply: Reply = await self.call(self._respond, messages)
        return reply

    def _respond(self, messages: Messages) -> Reply:
        tokenizer = self._model.tokenizer
        if tokenizer.chat:
            text = tokenizer.chat(messages)
            tokens = tuple(tokenizer.parsed(text))
            prompt = tokens[1:] if tokens[:1] == (tokenizer.bos,) else tokens
        else:
            text = messages[-1]["content"]
            prompt = tuple(tokenizer.encode(text.encode()))
        seed = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())
        written = self._sample(prompt, np.random.default_rng(seed))
        finish = "length" if len(written) == self._settings.max_tokens else "stop"
        response = tokenizer.spell(written).decode(errors="replace")
        return Reply(response, finish, len(prompt), len(written))

    def _sample(self, prompt: Prefix, generator: np.random.Generator) -> list[int]:
        """Token ids until the end of text or the longest response."""
        context = self._model.context
        if context is not None and len(prompt) >= context:
            raise Failure("refused", f"a prompt of {len(prompt)} tokens; the context is {context}")
        written: list[int] = []
        ends = self._model.tokenizer.ends
        most = min(self._settings.max_tokens, (context or 1 << 30) - len(prompt))
        while len(written) < most:
            [following] = self._model.logprobs([prompt + tuple(written)])
            token = draw(following.logprobs, self._settings.temperature, generator)
            if token in ends:
                break
            written.append(token)
        return written


def draw(logprobs: np.ndarray, temperature: float, generator: np.random.Generator) -> int:
    """A token of a distribution; at temperature 0 the most probable one.

    Args:
        logprobs: [V] natural logarithms.
        temperature: divides them.
        generator: of the random number.
    """
    if temperature == 0:
        return int(np.argmax(logprobs))
    scaled = (logprobs - np.max(logprobs)) / temperature
    weights = np.exp(scaled)
    return int(generator.choice(len(weights), p=weights / weights.sum()))


class _Replay:
    """Responses that were recorded elsewhere, found by the item's id or by its prompt."""

    def __init__(self, name: str) -> None:
        self.name, self.limits = name, Limits(retries=0)
        self._path = Path(name.removeprefix("replay:"))
        self._responses: dict[str, str] = {}
        for line, row in read_rows(self._path, ("response",), "the recorded responses"):
            key = row.get("item") or row.get("prompt") or ""
            if not key or self._responses.setdefault(key, row["response"]) != row["response"]:
                problem = "two responses to one item" if key else "a response without its item"
                raise invalid_row(self._path, line, problem, key, "one item or prompt each")

    async def fingerprint(self) -> str:
        return hashlib.sha256(self._path.read_bytes()).hexdigest()

    async def ask(self, messages: Messages, item: str = "") -> Reply:
        text = self._responses.get(item)
        if text is None:
            text = self._responses.get(messages[-1]["content"])
        if text is None:
            raise Failure("missing", "no recorded response")
        return Reply(text)

    async def close(self) -> None:
        pass


def load_function(place: str, name: str) -> Callable[..., Any]:
    """The function of ``MODULE:FUNCTION``; modules of the current folder count.

    Raises:
        InputError: if there is none.
    """
    module, _, function = place.partition(":")
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        found: Callable[..., Any] = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(
            "the function cannot be imported",
            code="not-found",
            place=name,
            found=f"{type(error).__name__}: {error}",
            expected="python:MODULE:FUNCTION",
        ) from error
    finally:
        sys.path.remove(here)
    return found


def source_digest(function: Callable[..., Any]) -> str:
    """The digest of the file that defines a function."""
    try:
        path = inspect.getsourcefile(inspect.unwrap(function))
    except TypeError:  # an object that is called
        path = inspect.getsourcefile(type(function))
    return hashlib.sha256(Path(path).read_bytes() if path else b"").hexdigest()
