"""A server on the loopback that speaks ``/v1/chat/completions``, with the faults of real ones."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from aiohttp import web

MODEL = "toy"
Fault = str | tuple[int, dict[str, str]]
"""``hang``, ``drip``, ``truncated``, ``drop``, ``not-json``, ``empty``, or a status with headers."""


class ChatServer:
    """Answers; `fault` says for each request, by its number and prompt, what goes wrong instead."""

    def __init__(self) -> None:
        self.fault: Callable[[int, str], Fault | None] = lambda number, prompt: None
        self.reply: Callable[[list[dict[str, str]]], str] = lambda messages: "I cannot help."
        self.delay_s = 0.0
        self.listed: list[dict[str, Any]] = [{"id": MODEL, "owned_by": "tests"}]
        self.bodies: list[dict[str, Any]] = []
        self.keys: set[str] = set()
        self.answered: Counter[str] = Counter()
        """Prompt -> whole answers that were sent."""
        self.active = self.most_active = 0
        self.url = ""
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()

    async def models(self, request: web.Request) -> web.Response:
        return web.json_response({"data": self.listed})

    async def chat(self, request: web.Request) -> web.StreamResponse:
        self.active += 1
        self.most_active = max(self.most_active, self.active)
        try:
            return await self._chat(request)
        finally:
            self.active -= 1

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.bodies.append(body)
        self.keys.add(request.headers.get("Authorization", ""))
        prompt = body["messages"][-1]["content"]
        fault = self.fault(len(self.bodies), prompt)
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        answer = {
            "choices": [
                {"message": {"content": self.reply(body["messages"])}, "finish_reason": "stop"}
            ],
            "usage": {"prompt_tokens": 10, "completion_tokens": 5},
            "system_fingerprint": "fp_1",
        }
        text = json.dumps(answer).encode()
        if fault is None:
            self.answered[prompt] += 1
            return web.Response(body=text, content_type="application/json")
        if isinstance(fault, tuple):
            status, headers = fault
            return web.json_response(
                {"error": {"message": f"no {prompt}"}}, status=status, headers=headers
            )
        if fault == "hang":
            await self._stop.wait()
        if fault == "not-json":
            return web.Response(text="<html>busy</html>")
        if fault == "empty":
            return web.json_response({"choices": []})
        response = web.StreamResponse(headers={"Content-Length": str(len(text))})
        await response.prepare(request)
        if fault == "drip":  # a byte now and then, for ever
            while (
                not self._stop.is_set() and request.transport and not request.transport.is_closing()
            ):
                await response.write(b" ")
                await asyncio.sleep(0.01)
        await response.write(text[: len(text) // 2])
        assert request.transport is not None
        request.transport.abort() if fault == "drop" else request.transport.close()
        return response

    def _run(self, started: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)

        async def serve() -> None:
            app = web.Application()
            app.router.add_get("/v1/models", self.models)
            app.router.add_post("/v1/chat/completions", self.chat)
            runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            host, port = runner.addresses[0]
            self.url = f"http://{host}:{port}/v1"
            started.set()
            await self._stop.wait()
            await runner.cleanup()

        self._loop.run_until_complete(serve())
        self._loop.close()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)


@contextmanager
def chat_server() -> Iterator[ChatServer]:
    """A server in a thread of its own."""
    server, started = ChatServer(), threading.Event()
    thread = threading.Thread(target=server._run, args=(started,), daemon=True)
    thread.start()
    assert started.wait(30)
    try:
        yield server
    finally:
        server.stop()
        thread.join(30)
