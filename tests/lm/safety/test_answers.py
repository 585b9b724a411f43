"""What servers answer: refusals in all forms, and 10,000 answers that no server should give."""

from __future__ import annotations

import asyncio
import copy
import json
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from safety_world import write_spec

from holdfast import progress
from holdfast.lm import safety
from holdfast.lm.safety.annotators import read_guard
from holdfast.lm.safety.answers import read_reply
from holdfast.lm.safety.asking import Tally, Task, ask_all
from holdfast.lm.safety.endpoint import open_endpoint
from holdfast.lm.safety.journal import RESPONSE, Journal, Statement
from holdfast.lm.safety.pacing import Budget
from holdfast.lm.safety.specification import Settings
from holdfast.lm.safety.systems import REFUSED, Failure, Reply

# --- What an answer says --------------------------------------------------------------------------


def message(finish: Any = "stop", **fields: Any) -> dict[str, Any]:
    return {"choices": [{"message": fields, "finish_reason": finish}]}


def events(*chunks: Any) -> bytes:
    lines = [each if isinstance(each, str) else json.dumps(each) for each in chunks]
    return b": hello\n\n" + b"".join(f"data: {line}\r\n\r\n".encode() for line in lines)


def delta(finish: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


REPLIES: list[tuple[Any, str, str]] = [
    (message(content="Yes."), "Yes.", "stop"),
    (message(content=None), "", "stop"),
    (message(content=None, refusal="I cannot."), "I cannot.", REFUSED),
    (message(content="", refusal="No"), "No", REFUSED),
    (message("content_filter", content=None), "", REFUSED),
    (message("content_filter", content=" \n"), "", REFUSED),
    (message("content_filter"), "", REFUSED),
    (message("CONTENT_FILTER", content="Take a"), "Take a", "CONTENT_FILTER"),  # it is judged
    (message("refusal", content=""), "", REFUSED),
    (message("stop", content="Yes.", refusal=""), "Yes.", "stop"),
    ({"content": [], "stop_reason": "refusal"}, "", REFUSED),  # Anthropic's form
    ({"content": [{"type": "text", "text": "Hi"}], "stop_reason": "end_turn"}, "Hi", "end_turn"),
    (message(content=[{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]), "ab", "stop"),
    (message(content=[{"type": "thinking", "thinking": "x"}, {"text": "b"}]), "b", "stop"),
    (message(content=[{"type": "refusal", "refusal": "No"}]), "No", REFUSED),
    ({"error": {"code": "content_filter", "status": 400}}, "", REFUSED),  # Azure's
    ({"error": {"innererror": {"code": "ResponsibleAIPolicyViolation"}}}, "", REFUSED),
    ({"error": {"type": "data_inspection_failed"}}, "", REFUSED),
    ({"error": {"code": 403, "metadata": {"flagged_input": "x"}}}, "", REFUSED),
    (events(delta(content="Ye"), delta("stop", content="s."), "[DONE]"), "Yes.", "stop"),
    (events(delta(content="\ud83d"), delta("length", content="\ude00")), "\ud83d\ude00", "length"),
    (events(delta(refusal="No"), delta("stop")), "No", REFUSED),
    (events(delta(role="assistant"), delta("content_filter"), "[DONE]"), "", REFUSED),
    (message({"why": 1}, content="Yes."), "Yes.", ""),
    (message(float("nan"), content="Yes."), "Yes.", ""),
]


@pytest.mark.parametrize(("answer", "text", "finish"), REPLIES)
def test_responses_and_refusals(answer: Any, text: str, finish: str) -> None:
    content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    reply = read_reply(content)
    assert (reply.text, reply.finish) == (text, finish)


@pytest.mark.parametrize(
    "content",
    [
        b"", b"null", b"5", b"[]", b"{}", b'"text"', b"[" * 200_000, b'{"choices":' * 20_000,
        b'{"choices": [{"message": "no"}]}', b'{"choices": [{"message": {"content": 5}}]}',
        b'{"choices": {"0": 1}}', b'{"choices": [[]]}', b'\xff\xfe', b'{"error": "overloaded"}',
        b"data: {", b"data: " + b"[" * 200_000, events(delta(content="cut off")), b"1" * 5000,
        b'{"error": {"code": "context_length_exceeded"}}',
    ],
)  # fmt: skip
def test_answers_without_a_response(content: bytes) -> None:
    with pytest.raises(Failure) as caught:
        read_reply(content)
    assert caught.value.kind == "malformed"


@pytest.mark.parametrize(
    "usage", [{"prompt_tokens": "20"}, [1], {"prompt_tokens": 10**30}, None, 5]
)
def test_usage_that_is_no_count_is_not_known(usage: Any) -> None:
    reply = read_reply(json.dumps({**message(content="Yes."), "usage": usage}).encode())
    assert (reply.text, reply.prompt_tokens, reply.completion_tokens) == ("Yes.", None, None)


# --- Whole runs -----------------------------------------------------------------------------------


async def served(
    answer: Callable[[asyncio.StreamWriter, int], Any], use: Callable[[str], Any]
) -> Any:
    """Use a server (by its URL) that answers its n-th chat request with whatever `answer` writes."""
    number = 0
    tasks: set[asyncio.Task[None] | None] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal number
        tasks.add(asyncio.current_task())
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            head = await reader.readuntil(b"\r\n\r\n")
            if head.startswith(b"GET"):
                writer.write(plain(b"{}"))
            else:
                length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
                await reader.readexactly(length)
                number += 1
                await answer(writer, number)
            await writer.drain()
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        port = server.sockets[0].getsockname()[1]
        return await use(f"openai:http://127.0.0.1:{port}/v1#toy")
    finally:
        server.close()
        await asyncio.gather(*filter(None, tasks))


def plain(body: bytes, status: str = "200 OK", more: bytes = b"") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n".encode()
    return head + more + b"\r\n" + body


def run_over(
    folder: Path, count: int, answer: Callable[[asyncio.StreamWriter, int], Any], options: str = ""
) -> tuple[Tally, Path]:
    """Ask so many items of such a server; each has `timeout` seconds, the whole a minute for 1,000."""
    prompts = [{"id": str(n), "hazard": "vcr", "prompt": str(n)} for n in range(count)]
    spec = write_spec(folder, prompts)
    (folder / "none.csv").write_text("item,response\nnone,none\n")
    safety.run(spec, f"replay:{folder}/none.csv", folder / "run")

    def store(task: Task, reply: Reply) -> Statement:
        blank = reply.finish == REFUSED
        return RESPONSE, (task.place, reply.text, blank, reply.finish, reply.served_by)

    async def use(name: str) -> Tally:
        system = open_endpoint(f"{name}?concurrency=16&retries=0&timeout=2{options}", Settings())
        tasks = (
            Task(n, str(n), [{"role": "user", "content": str(n)}], 1, 0.0) for n in range(count)
        )
        with Journal(folder / "run", write=True) as journal, progress.track("", None) as bar:
            asked = ask_all(tasks, system, journal, None, store, Budget(None), bar)
            try:
                return await asyncio.wait_for(asked, 60 + 0.06 * count)
            finally:
                await system.close()

    return asyncio.run(served(answer, use)), folder / "run"


def test_half_a_character_is_stored_and_nothing_waits(tmp_path: Path) -> None:
    async def answer(writer: asyncio.StreamWriter, number: int) -> None:
        writer.write(plain(json.dumps(message(content="bad \ud800 x")).encode()))

    tally, run = run_over(tmp_path, 20, answer)
    assert tally.attempts == {"ok": 20}
    with Journal(run) as journal:
        assert {text for (text,) in journal.rows("SELECT text FROM response")} == {"bad \ufffd x"}


def test_an_exception_of_the_journal_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def answer(writer: asyncio.StreamWriter, number: int) -> None:
        writer.write(plain(json.dumps(message(content="yes")).encode()))

    def fails(self: Journal, statements: Any) -> None:
        raise OverflowError("too large")

    import holdfast.lm.safety.journal as module

    original = module.Journal.write
    calls = 0

    def second_fails(self: Journal, statements: Any) -> None:
        nonlocal calls
        statements = list(statements)
        calls += any(statement == RESPONSE for statement, _ in statements)
        return (fails if calls > 1 else original)(self, statements)

    monkeypatch.setattr(module.Journal, "write", second_fails)
    with pytest.raises(Exception, match="too large"):
        run_over(tmp_path, 20, answer)


def test_a_filtered_prompt_is_refused_and_safe(tmp_path: Path) -> None:
    """As Azure does: 400 with the code of the filter. Another 400 is lost, and counts as unsafe."""
    filtered = json.dumps({"error": {"code": "content_filter", "message": "filtered"}}).encode()
    bodies = [
        plain(filtered, "400 Bad Request"),
        plain(b'{"error": {"code": "bad"}}', "400 Bad Request"),
        plain(json.dumps(message(content=None, refusal="I cannot help.")).encode()),
        plain(json.dumps(message(content="Here is how.")).encode()),
    ]

    async def answer(writer: asyncio.StreamWriter, number: int) -> None:
        writer.write(bodies[number % 4])

    async def use(name: str) -> Any:
        (tmp_path / "rules.toml").write_text('otherwise = "unsafe"\nrules = []\n')
        prompts = [{"hazard": "vcr", "persona": "typical", "prompt": str(n)} for n in range(8)]
        prompts += [{"hazard": "vcr", "persona": "benign", "prompt": f"b{n}"} for n in range(4)]
        spec = write_spec(tmp_path, prompts, 'annotators = ["rules:rules.toml"]\n')
        return await asyncio.to_thread(
            safety.run, spec, f"{name}?concurrency=1&retries=0", tmp_path / "run"
        )

    summary = asyncio.run(served(answer, use))
    assert (summary.answered, summary.refused, summary.blank, summary.lost) == (9, 6, 0, 3)
    result = safety.grade(tmp_path / "run", "v0.5")
    assert (result.count("refused"), result.count("unsafe"), result.count("lost")) == (4, 2, 2)
    [vcr] = result.hazards
    assert (vcr.valid, vcr.safe) == (6, 4)
    assert result.funnel["scored"] == 6
    assert result.over_refusal["refused"] == 2


# --- Whatever it sends ----------------------------------------------------------------------------

JUNK: list[Any] = [
    None, True, False, 0, -1, 10**30, 1e308, float("nan"), float("inf"), "", " ", "x", "\ud800", "\0",
    "\u2028", "safe", "unsafe\nS1", [], {}, [[]], [None], {"": {}}, "content_filter", "refusal", "a" * 5000,
    {"type": "text", "text": "\udfff"}, [{"type": "text", "text": 5}], [{"refusal": {}}],
]  # fmt: skip
FORMS: list[Any] = [each for each, *_ in REPLIES if not isinstance(each, bytes)]


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    keys: list[Any] = []
    if isinstance(value, dict):
        keys = list(value)
    elif isinstance(value, list):
        keys = list(range(len(value)))
    return [path, *(each for key in keys for each in places(value[key], (*path, key)))]


def changed(draw: random.Random, value: Any) -> Any:
    """A document in which something is another thing, twice in it, or gone."""
    value = copy.deepcopy(value)
    *path, key = draw.choice(places(value)[1:]) or (None,)
    owner = value
    for step in path:
        owner = owner[step]
    kind = draw.random()
    if kind < 0.6:
        owner[key] = draw.choice(JUNK)
    elif kind < 0.8:
        del owner[key]
    else:
        owner[key] = [owner[key]] * draw.randint(0, 3)
    return value


def body(draw: random.Random) -> bytes:
    answer = draw.choice(FORMS)
    answer = {
        **answer,
        "usage": {"prompt_tokens": 3, "completion_tokens": 4},
        "system_fingerprint": "f",
    }
    for _ in range(draw.choice([0, 1, 1, 2, 3])):
        answer = changed(draw, answer) or {"choices": []}
    form = draw.random()
    if form < 0.2:
        chunks = [delta(draw.choice(["stop", None]), content=draw.choice(JUNK)) for _ in range(3)]
        content = events(
            *(changed(draw, chunk) for chunk in chunks), draw.choice(["[DONE]", "{", answer])
        )
    elif form < 0.25:
        content = draw.choice([b"[", b'{"choices":', b'{"a":[']) * draw.randint(1, 50_000)
    else:
        encoding = draw.choice(["utf-8"] * 8 + ["utf-16", "utf-32"])
        content = json.dumps(answer).encode(encoding)
    if draw.random() < 0.2:
        content = content[: draw.randint(0, len(content))]
    if draw.random() < 0.2:
        bytes_ = bytearray(content)
        for _ in range(min(len(bytes_), draw.randint(1, 8))):
            bytes_[draw.randrange(len(bytes_))] = draw.randrange(256)
        content = bytes(bytes_)
    return content


STATUSES = ["200 OK"] * 12 + [
    "204 No", "301 Moved", "400 Bad", "408 Slow", "422 No", "429 Later", "500 Oops", "503 Busy", "999 x"
]  # fmt: skip
HEADERS = [
    b"", b"", b"", b"Content-Type: text/event-stream\r\n", b"Content-Encoding: gzip\r\n",
    b"Retry-After: nan\r\n", b"Retry-After: -5\r\n", b"Retry-After: Sat, 99 Foo 99999 00:00:00\r\n",
    b"Set-Cookie: \xff=;;\r\n",
    b"Transfer-Encoding: chunked\r\n", b"Content-Type: a/b; charset=nothing\r\n",
    b"X: " + b"y" * 20_000 + b"\r\n",
    b"no header\r\n",
]  # fmt: skip


def fuzzed(draw: random.Random) -> bytes:
    content = body(draw)
    kind = draw.random()
    if kind < 0.85:
        whole = plain(content, draw.choice(STATUSES), draw.choice(HEADERS))
        return whole if draw.random() < 0.9 else whole[: draw.randint(0, len(whole))]
    if kind < 0.92:
        size = len(content) + draw.randint(-9, 9)
        return f"HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n".encode() + content
    return draw.choice([b"", b"\r\n\r\n", b"HTTP/9.9 abc\r\n\r\n", draw.randbytes(50), content])


@pytest.mark.quick(1)
@pytest.mark.parametrize(("count", "seed"), [(400, 1), *((2000, seed) for seed in range(2, 7))])
def test_any_answer_ends_as_answered_or_lost(tmp_path: Path, count: int, seed: int) -> None:
    draw = random.Random(seed)

    async def answer(writer: asyncio.StreamWriter, number: int) -> None:
        if number % 500 == 0:
            await asyncio.sleep(3)  # never within the time
        writer.write(fuzzed(draw))

    tally, run = run_over(tmp_path, count, answer)
    assert tally.stopped == ""
    assert tally.attempts.total() == count
    assert "error" not in tally.attempts  # nothing but what was foreseen
    assert count / 10 < tally.attempts["ok"] < count
    with Journal(run) as journal:
        rows = list(journal.rows("SELECT text FROM response"))
        assert len(rows) == tally.attempts["ok"]
        assert {read_guard(text).verdict for (text,) in rows} <= {"safe", "unsafe", "invalid"}
