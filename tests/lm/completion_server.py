"""A server of the toy model that speaks ``/v1/completions`` in the dialects of real servers, with faults.

Run as a process, it prints its port. ``POST /control`` sets `Switches` for the requests that follow.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
from toy import BOS, EOS, PIECES, TOKENIZER, ToyModel

MODEL = "toy/model:7b"


@dataclass
class Switches:
    """What the server is to do with the next requests for completions."""

    dialect: str = "vllm"
    """``vllm``, ``llama.cpp``, or ``text``: tokens listed by their text alone."""
    seed: int = 0
    most: int = 1000
    """Log-probabilities that it lists at most; more is refused."""
    context: int = 1000
    """Prompt and completion together."""
    key: str = ""
    after: int = 0
    """So many requests are answered first."""
    faults: int = 0
    """So many requests, then, meet the fault."""
    fault: str = ""
    """A status, or ``hang``, ``drop`` (in the middle of the answer), ``garbage``, ``die``."""
    retry_after: str = ""
    cached: int = 0
    """Tokens of each prompt that the server says it had computed before."""


class Toy(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.switches = Switches()
        self.lock = threading.Lock()
        self.released = threading.Event()
        self.requests: list[dict[str, Any]] = []
        """Bodies, with the authorization beside them."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # header and body in one packet
    server: Toy

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        switches = self.server.switches
        if not self.path.endswith("/models"):
            self.answer(404, {"error": {"message": "Not Found"}})
            return
        if self.refused():
            return
        listed: dict[str, Any] = {"id": MODEL, "object": "model"}
        if switches.dialect == "vllm":
            listed["max_model_len"] = switches.context
        elif switches.dialect == "llama.cpp":
            listed["meta"] = {"n_vocab": len(PIECES), "n_ctx": switches.context}
        self.answer(200, {"object": "list", "data": [listed]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server = self.server
        if self.path == "/control":
            server.released.set()
            server.released = threading.Event()
            server.switches = Switches(**body)
            told = server.requests
            server.requests = []
            self.answer(200, told)
            return
        with server.lock:
            server.requests.append(body | {"authorization": self.headers.get("Authorization")})
            switches = server.switches
            faulty = switches.after == 0 and switches.faults > 0
            switches.faults -= faulty
            switches.after -= switches.after > 0
        if faulty:
            self.fail(switches)
        elif not self.refused():
            self.answer(*completions(body, switches))

    def refused(self) -> bool:
        switches = self.server.switches
        if switches.key and self.headers.get("Authorization") != f"Bearer {switches.key}":
            given = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
            self.answer(401, {"error": {"message": f"Incorrect API key provided: {given}"}})
            return True
        return False

    def fail(self, switches: Switches) -> None:
        match switches.fault:
            case "hang":
                self.server.released.wait(30)
                self.close_connection = True
            case "drop":
                self.send_response(200)
                self.send_header("Content-Length", "1000")
                self.end_headers()
                self.wfile.write(b'{"choices": [')
                self.close_connection = True
            case "garbage":
                self.send_response(200)
                self.send_header("Content-Length", "13")
                self.end_headers()
                self.wfile.write(b'{"choices": [')
            case "die":
                os._exit(1)
            case status:
                headers = {"Retry-After": switches.retry_after} if switches.retry_after else {}
                self.answer(int(status), {"error": {"message": "slow down"}}, **headers)

    def answer(self, status: int, told: Any, **headers: str) -> None:
        content = json.dumps(told).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def completions(body: dict[str, Any], switches: Switches) -> tuple[int, Any]:
    if body["model"] != MODEL and switches.dialect == "vllm":
        return 404, {
            "error": {"message": f"The model `{body['model']}` does not exist.", "code": 404}
        }
    if body["logprobs"] > switches.most:
        told = (
            f"Requested sample logprobs of {body['logprobs']}, which is greater than max allowed: "
        )
        return 400, {"error": {"message": f"{told}{switches.most}", "type": "BadRequestError"}}
    if isinstance(body["prompt"], list) and isinstance(body["prompt"][0], list | str):
        prompts = body["prompt"]
    else:
        prompts = [body["prompt"]]
    prompts = [
        [BOS, *TOKENIZER.encode(each.encode())] if isinstance(each, str) else each
        for each in prompts
    ]
    longest = max(map(len, prompts))
    if longest + 1 > switches.context:
        if switches.dialect == "llama.cpp":
            return 400, {"error": {"code": 400, "message": "the request exceeds the available context size",
                                   "type": "exceed_context_size_error"}}  # fmt: skip
        told = f"This model's maximum context length is {switches.context} tokens."
        return 400, {"error": {"message": told, "type": "BadRequestError", "code": 400}}
    choices = []
    for place, prompt in enumerate(prompts):
        assert prompt[0] == BOS
        logprobs = ToyModel(switches.seed).distribution(prompt[1:])
        order = np.argsort(-logprobs, kind="stable")[: body["logprobs"]].tolist()
        choices.append(
            {"index": place, "text": text(order[0]), "finish_reason": "length",
             "logprobs": listed(logprobs, order, body, switches.dialect)}
        )  # fmt: skip
    sent = sum(map(len, prompts))
    usage: dict[str, Any] = {"prompt_tokens": sent, "completion_tokens": len(prompts)}
    if switches.cached:
        usage["prompt_tokens_details"] = {"cached_tokens": switches.cached}
    told = {"object": "text_completion", "model": MODEL, "choices": choices[::-1], "usage": usage}
    if switches.dialect == "llama.cpp" and switches.cached:
        told["timings"] = {"cache_n": switches.cached, "prompt_n": sent - switches.cached}
        del usage["prompt_tokens_details"]
    return 200, told


def listed(logprobs: np.ndarray, order: list[int], body: dict[str, Any], dialect: str) -> Any:
    if dialect == "llama.cpp":
        if text(order[0]).endswith("\ufffd"):
            return None  # as it does when what it wrote ends within a character
        lowest = float(np.finfo(np.float32).min)
        entries = [
            {"id": token, "token": text(token), "bytes": list(PIECES[token] or b""),
             "logprob": max(logprobs[token], lowest)}
            for token in order
        ]  # fmt: skip
        return {"content": [{**entries[0], "top_logprobs": entries}]}
    as_ids = dialect == "vllm" and body.get("return_tokens_as_token_ids")
    names = [f"token_id:{token}" if as_ids else text(token) for token in order]
    top = {name: max(logprobs[token], -9999.0) for name, token in zip(names, order, strict=True)}
    return {"tokens": names[:1], "token_logprobs": [logprobs[order[0]]], "top_logprobs": [top]}


def text(token: int) -> str:
    return "<end>" if token == EOS else (PIECES[token] or b"").decode(errors="replace")


class Server:
    """The process, seen from a test."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stdout is not None
        self.root = f"http://127.0.0.1:{int(process.stdout.readline())}"
        self.url = f"{self.root}/v1"

    def set(self, **switches: Any) -> list[dict[str, Any]]:
        """Switch, and take the requests since the last time."""
        import requests

        with requests.post(
            f"{self.root}/control", json=asdict(Switches(**switches)), timeout=30
        ) as told:
            found: list[dict[str, Any]] = told.json()
        return found


@contextmanager
def serving() -> Iterator[Server]:
    """A server in a process of its own."""
    command = [sys.executable, str(Path(__file__)), "serve"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Server(process)
        finally:
            process.kill()


if __name__ == "__main__":
    toy_server = Toy()
    print(toy_server.server_port, flush=True)
    toy_server.serve_forever()
