"""A model behind a server: the same probabilities as without one, whatever the network does."""

from __future__ import annotations

import math
import socket
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import toy
from completion_server import MODEL, Server, serving
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import InputError
from holdfast.lm.models.completions import TokenNames, read_completions
from holdfast.lm.models.endpoint import Endpoint, Settings, open_endpoint
from holdfast.lm.models.protocol import ModelStopped, NextToken, Prefix
from holdfast.lm.tokenizers import loading
from holdfast.lm.tokenizers.tokenizer import Tokenizer

PREFIXES: list[Prefix] = [(), (0,), (0, 1), (20, 7), (15, 15, 12), (3,)]


@pytest.fixture(scope="module")
def process() -> Iterator[Server]:
    with serving() as server:
        yield server


@pytest.fixture
def server(process: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    for variable in ("HOLDFAST_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    process.set()
    return process


def opened(server: Server, pauses: list[float] | None = None, model: str = MODEL,
           **settings: Any) -> Endpoint:  # fmt: skip
    """An endpoint that notes its pauses in place of waiting."""
    made = Settings(**({"logprobs": None, "concurrency": 3} | settings))
    noted = pauses if pauses is not None else []
    return Endpoint(server.url, model, toy.TOKENIZER, made, noted.append)


def expect_equal(found: list[NextToken], prefixes: list[Prefix], seed: int = 0) -> None:
    for each, prefix in zip(found, prefixes, strict=True):
        np.testing.assert_allclose(
            each.logprobs, toy.ToyModel(seed).distribution(prefix), atol=1e-12
        )
        assert each.rest == 0


@pytest.mark.parametrize("dialect", ["vllm", "llama.cpp"])
@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("concurrency", [1, 3])
def test_the_whole_vocabulary_is_told(
    server: Server, dialect: str, batch: int, concurrency: int
) -> None:
    server.set(dialect=dialect)
    with opened(server, batch=batch, concurrency=concurrency) as model:
        found = model.logprobs([*PREFIXES, PREFIXES[1]])
    # llama.cpp lists nothing where it would write a part of a character.
    told = [each for each in found if each.rest < 1]
    asked = [
        prefix
        for prefix, each in zip([*PREFIXES, PREFIXES[1]], found, strict=True)
        if each.rest < 1
    ]
    expect_equal(told, asked)
    assert len(told) == 7 if dialect == "vllm" else len(told) >= 5
    assert model.cost.nodes == 6
    assert model.cost.calls == math.ceil(6 / batch)
    assert model.cost.evaluations == sum(len(prefix) + 1 for prefix in PREFIXES)


@pytest.mark.parametrize("dialect", ["vllm", "llama.cpp"])
def test_what_is_not_listed_is_the_rest(server: Server, dialect: str) -> None:
    server.set(dialect=dialect, most=5)
    with opened(server, logprobs=5) as model:
        found = model.logprobs(PREFIXES[:2])
    for each, prefix in zip(found, PREFIXES, strict=False):
        whole = toy.ToyModel().distribution(prefix)
        best = np.argsort(-whole)[:5]
        np.testing.assert_allclose(each.logprobs[best], whole[best], atol=1e-12)
        assert np.isneginf(np.delete(each.logprobs, best)).all()
        assert each.rest == pytest.approx(1 - np.exp(whole[best]).sum(), abs=1e-12)
        assert each.ranked is None


def test_a_text_that_may_be_several_ids_is_not_used(server: Server) -> None:
    server.set(dialect="text")
    with opened(server, end="<end>") as model:
        (found,) = model.logprobs([(0,)])
    whole = toy.ToyModel().distribution((0,))
    # Some servers drop the space of " a", others the byte of "\xa9a": "a" may be any of the three.
    used = np.isfinite(found.logprobs)
    np.testing.assert_allclose(found.logprobs[used], whole[used], atol=1e-12)
    pieces = {toy.PIECES[token] for token in np.flatnonzero(used)}
    assert {b"a", b"b", b"\xc3", b"\xa9"}.isdisjoint(pieces)
    assert {b"x", b"ab", b" a", "é".encode(), None} <= pieces
    assert found.logprobs[toy.EOS] == whole[toy.EOS]
    assert found.rest == pytest.approx(1 - np.exp(whole[used]).sum(), abs=1e-12)
    assert found.ranked == 0


def test_a_prompt_as_text_is_asked_only_in_its_own_encoding(server: Server) -> None:
    with opened(server, prompts="text") as model:
        whole, split, half = model.logprobs([(10,), (0, 1), (6,)])
    expect_equal([whole], [(10,)])
    assert split.rest == half.rest == 1  # "ab" in two tokens, and half of "é"
    assert [request["prompt"] for request in server.set()] == ["ab"]


def test_fields_that_openai_knows(server: Server) -> None:
    with opened(server, fields="standard", logprobs=5) as model:
        model.logprobs([()])
    (request,) = server.set()
    assert set(request) - {"authorization"} == {
        "model",
        "prompt",
        "max_tokens",
        "temperature",
        "logprobs",
    }
    assert request["prompt"] == [toy.BOS]
    assert request["max_tokens"] == 1


def test_the_server_tells_what_it_computed(server: Server) -> None:
    for dialect in ("vllm", "llama.cpp"):
        server.set(dialect=dialect, cached=2)
        with opened(server) as model:
            model.logprobs([(0, 1, 2)])
        assert model.cost.evaluations == 2


# --- Names and keys ------------------------------------------------------------------------------


def test_a_name_opens_a_model(server: Server) -> None:
    name = f"openai:{server.url}/#{MODEL}?logprobs=all&concurrency=2&batch=2&context=9&bos=28&timeout=5.5"
    with open_endpoint(name, tokenizer=toy.TOKENIZER) as model:
        expect_equal(model.logprobs(PREFIXES), PREFIXES)
    assert model.name == f"openai:{server.url}#{MODEL}"
    assert model.context == 7
    assert model.settings == Settings(None, 2, 2, 5.5, bos=28, context=9)


def test_a_name_holds_the_name_of_the_tokenizer(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def load_tokenizer(name: str) -> Tokenizer:
        asked.append(name)
        return toy.TOKENIZER

    monkeypatch.setattr(loading, "load_tokenizer", load_tokenizer)
    name = (
        f"openai:{server.url}#{MODEL}?tokenizer=tiktoken:/a+b/c.tiktoken?pattern=x%26y&logprobs=5"
    )
    with open_endpoint(name) as model:
        assert model.settings.logprobs == 5
    assert asked == ["tiktoken:/a+b/c.tiktoken?pattern=x&y"]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("openai:localhost:80#m?tokenizer=x", "openai:http://host"),
        ("openai:http://localhost/v1?tokenizer=x", "#MODEL"),
        ("openai:http://localhost/v1#m", "needs its tokenizer"),
        ("openai:http://localhost/v1#m?logprob=5", "not known"),
        ("openai:http://localhost/v1#m?logprobs=0", "option logprobs of"),
        ("openai:http://localhost/v1#m?timeout=inf", "option timeout of"),
        ("openai:http://localhost/v1#m?prompts=both", "option prompts of"),
        ("openai:http://localhost/v1#m?bos", "option bos of"),
    ],
)
def test_names_that_cannot_be_read(name: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        open_endpoint(name)


def test_a_key_is_sent_and_never_shown(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"openai:{server.url}#{MODEL}"
    server.set(key="sesame")
    with pytest.raises(InputError, match="HOLDFAST_API_KEY"):
        open_endpoint(name, tokenizer=toy.TOKENIZER)
    monkeypatch.setenv("OPENAI_API_KEY", "open-secret")
    with pytest.raises(InputError, match="status 401") as refusal:
        open_endpoint(name, tokenizer=toy.TOKENIZER)
    assert "open-secret" not in str(refusal.value)
    assert "***" in str(refusal.value)
    monkeypatch.setenv("HOLDFAST_API_KEY", "sesame")
    with open_endpoint(name, tokenizer=toy.TOKENIZER) as model:
        assert len(model.logprobs([()])) == 1
        assert "sesame" not in repr(vars(model))


def test_a_wrong_model_is_named(server: Server) -> None:
    with (
        opened(server, model="other") as model,
        pytest.raises(InputError, match="`other` does not exist"),
    ):
        model.logprobs([()])


def test_more_than_the_server_lists_is_refused_with_a_remedy(server: Server) -> None:
    server.set(most=20)
    with opened(server) as model, pytest.raises(InputError, match="--max-logprobs"):
        model.logprobs(PREFIXES)


def test_a_model_without_bos_has_no_first_token(server: Server) -> None:
    with opened(server, bos=None) as model, pytest.raises(InputError, match="bos=ID"):
        model.logprobs([()])


def test_no_server_at_all() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # taken, and nobody listens
        name = f"openai:http://127.0.0.1:{silent.getsockname()[1]}/v1#m?retries=0"
        with pytest.raises(InputError, match="no server answers"):
            open_endpoint(name, tokenizer=toy.TOKENIZER)


# --- Faults --------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["429", "500", "503", "drop", "garbage"])
def test_passing_faults_change_nothing(server: Server, fault: str) -> None:
    server.set(faults=3, fault=fault)
    pauses: list[float] = []
    with opened(server, pauses, concurrency=1) as model:
        expect_equal(model.logprobs(PREFIXES), PREFIXES)
    assert model.cost.retries == len(pauses) == 3
    assert model.cost.calls == len(PREFIXES)
    longest = np.array([0.5, 1, 2])
    assert (longest / 2 <= pauses).all()
    assert (pauses <= longest).all()


def test_the_server_says_how_long_to_wait(server: Server) -> None:
    pauses: list[float] = []
    with opened(server, pauses) as model:
        for told in ("7", "Wed, 21 Oct 2015 07:28:00 GMT", "100000", "soon"):
            server.set(faults=1, fault="429", retry_after=told)
            model.logprobs([()])
    assert pauses[:3] == [7, 0, 300]
    assert 0.25 <= pauses[3] <= 0.5


def test_a_slow_answer_is_asked_for_again(server: Server) -> None:
    server.set(faults=1, fault="hang")
    with opened(server, timeout=0.4) as model:
        expect_equal(model.logprobs([(1,)]), [(1,)])
    assert model.cost.retries >= 1
    server.set()


@pytest.mark.parametrize("concurrency", [1, 3])
def test_what_arrived_before_the_server_stopped_is_kept(server: Server, concurrency: int) -> None:
    with opened(server, concurrency=concurrency, retries=2) as model:
        expect_equal(model.logprobs(PREFIXES[:2]), PREFIXES[:2])
        server.set(faults=1000, fault="503")
        with pytest.raises(ModelStopped, match="503, slow down; tried 3 times") as stopped:
            model.logprobs(PREFIXES)
        assert stopped.value.answered == {}
        server.set()
        expect_equal(model.logprobs(PREFIXES), PREFIXES)  # it may come back


def test_a_server_that_dies() -> None:
    with serving() as server, opened(server, concurrency=1, retries=1) as model:
        calm = Settings(None, concurrency=1, retries=1)
        with Endpoint(
            server.url, MODEL, toy.TOKENIZER, calm, lambda _: server.process.kill()
        ) as dying:
            model.logprobs([(0,)])
            server.set(faults=1, fault="die")
            with pytest.raises(ModelStopped, match="connection failed"):
                dying.logprobs([(0,), (1,)])
        with pytest.raises(ModelStopped) as stopped:
            model.logprobs([(2,)])
        assert stopped.value.answered == {}


@pytest.mark.parametrize("concurrency", [1, 3])
def test_answers_of_a_broken_batch_are_kept(server: Server, concurrency: int) -> None:
    server.set(after=3, faults=1000, fault="500")
    with opened(server, concurrency=concurrency, retries=0) as model:
        with pytest.raises(ModelStopped) as stopped:
            model.logprobs([*PREFIXES, PREFIXES[0]])
        assert model.cost.nodes == 3
    answered = stopped.value.answered
    if concurrency == 1:
        assert set(answered) == {0, 1, 2, 6}  # the first was asked for twice
    assert len(answered) >= 3
    prefixes = [*PREFIXES, PREFIXES[0]]
    expect_equal(list(answered.values()), [prefixes[place] for place in answered])


# --- The context ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", ["vllm", "llama.cpp"])
def test_the_context_is_told_or_learned(server: Server, dialect: str) -> None:
    server.set(dialect=dialect, context=4)
    with open_endpoint(
        f"openai:{server.url}#{MODEL}?logprobs=all", tokenizer=toy.TOKENIZER
    ) as model:
        assert model.context == 2  # BOS, two tokens, and the one to come
        expect_equal(model.logprobs([(0, 1), (0, 1, 2)])[:1], [(0, 1)])
        assert len(server.set(dialect=dialect, context=4)) == 1
    with opened(server, batch=2, concurrency=1) as model:
        assert model.context is None
        short, long = model.logprobs([(0, 1), (0, 1, 2)])
        expect_equal([short], [(0, 1)])
        assert long.rest == 1
        assert np.isneginf(long.logprobs).all()
        assert model.context == 2


# --- Answers -------------------------------------------------------------------------------------


def choice(listed: Any, text: str = "a") -> dict[str, Any]:
    return {"choices": [{"index": 0, "text": text, "logprobs": listed}]}


NAMES = TokenNames(toy.TOKENIZER)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({}, "0 choices"),
        ([], "0 choices"),
        ({"choices": "none"}, "0 choices"),
        (choice(None), "lists no log-probabilities"),
        (choice({"content": []}), "lists no log-probabilities"),
        (choice({"top_logprobs": [{"x": -0.1, "ab": -0.1}]}), "more than 1"),
    ],
)
def test_answers_that_cannot_be_used(body: Any, told: str) -> None:
    with pytest.raises(InputError, match=told):
        read_completions(body, 1, 30, NAMES)


def test_answers_to_several_prompts_must_be_numbered() -> None:
    body = choice({"top_logprobs": [{"x": -1.0}]})
    twice = [body, body]
    with pytest.raises(InputError, match="batch=1"):
        read_completions(twice, 2, 30, NAMES)
    second = choice({"top_logprobs": [{"x": -2.0}]})
    second["choices"][0]["index"] = 1
    found = read_completions([second, body], 2, 30, NAMES)
    assert [each.logprobs[8] for each in found] == [-1, -2]


@pytest.mark.parametrize("text", ["", "\ufffd"])
def test_nothing_is_listed_when_nothing_readable_is_written(text: str) -> None:
    (found,) = read_completions(choice(None, text), 1, 30, NAMES)
    assert found.rest == 1


def test_probabilities_rounded_by_the_server_add_up_to_one() -> None:
    exact = toy.ToyModel().distribution(())
    rounded = {
        f"token_id:{token}": float(np.float32(value)) for token, value in enumerate(exact + 1e-7)
    }
    rounded["token_id:28"] = -9999.0
    (found,) = read_completions(choice({"top_logprobs": [rounded]}), 1, 30, NAMES)
    assert np.exp(found.logprobs).sum() == pytest.approx(1, abs=1e-15)
    assert found.rest == 0


@given(
    st.lists(
        st.binary(min_size=1, max_size=3) | st.text("aé ", min_size=1).map(str.encode), min_size=1
    )
)
def test_a_text_never_means_another_id(pieces: list[bytes]) -> None:
    """However a server decodes a token, its text is found as that token or not at all."""
    names = TokenNames(Tokenizer("drawn", tuple(pieces), list))
    for token, piece in enumerate(pieces):
        for text in (piece.decode(errors="replace"), piece.decode(errors="ignore")):
            assert names.find(text) in (token, None)
            assert names.find(text.removeprefix(" ")) in (token, None)
        if pieces.count(piece) == 1:
            assert names.find(piece) == token


def test_bytes_and_ids_outside_the_vocabulary() -> None:
    names = TokenNames(
        Tokenizer("two", (b"a", b"a", b"\xff", b"<end>", None), list, eos=4), end="</s>"
    )
    assert names.find("token_id:1") == 1
    assert names.find("token_id:5") is None  # padding of the model's output
    assert names.find(b"a") is None
    assert names.find("a") is None
    assert names.find("bytes:\\xff") == names.find(b"\xff") == 2
    assert names.find("</s>") == 4
    assert names.find("") is None
    listed = {"token_id:7": -1.5, "token_id:2": -2.0, "token_id:0": -1.0}
    (found,) = read_completions(choice({"top_logprobs": [listed]}), 1, 5, names)
    assert found.ranked == 1
