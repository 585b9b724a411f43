"""Who may act on nodes from the console: roles, clusters, forms of other sites."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from logs import Attempt, Log

import holdfast.fleet as fleet
from holdfast.errors import InputError
from holdfast.fleet import Assumptions
from holdfast.fleet.console.access import word_for
from holdfast.fleet.console.app import Console, create_app
from holdfast.fleet.console.snapshots import Snapshots
from holdfast.fleet.live import journal
from holdfast.fleet.live.morning import LOOKS
from holdfast.fleet.live.settings import Cluster, Limits, Notices, Person, Settings

TOKENS = {
    "ADA_TOKEN": "ada's secret is this",
    "BO_TOKEN": "bo's secret is another",
    "EVA_TOKEN": "eva reads, this is hers",
}
PEOPLE = (
    Person("ada", "operator", "ADA_TOKEN"),
    Person("bo", "operator", "BO_TOKEN", cluster="beta"),
    Person("eva", "viewer", "EVA_TOKEN"),
)
SEEN = "printf 'n2|main|idle\\nn3|main|idle\\n'; echo \"n1|main|$(cat {file} 2>/dev/null || echo idle)\""
DAY = 86_400


def bad_log() -> Log:
    """Node n1 fails every second day."""
    log = Log(nodes=dict.fromkeys(("n1", "n2", "n3"), 8))
    for day in range(60):
        for number, node in enumerate(("n1", "n2", "n3")):
            state = "NODE_FAIL" if node == "n1" and day % 2 else "COMPLETED"
            log.attempts.append(
                Attempt(3 * day + number, (node,), DAY * day, DAY * (day + 1) - 60, state)
            )
    return log


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bad_log().store(tmp_path_factory.mktemp("operators"))


@pytest.fixture
def client(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    for name, value in TOKENS.items():
        monkeypatch.setenv(name, value)
    (store / journal.FILE).unlink(missing_ok=True)
    drained = ("sh", "-c", f"echo drained > {tmp_path}/n1")
    resumed = ("sh", "-c", f"echo resumed > {tmp_path}/n1")
    cluster = Cluster(
        nodes=("sh", "-c", SEEN.format(file=tmp_path / "n1")), drain=drained, resume=resumed
    )
    settings = Settings(Limits(share=0.5), {"default": cluster}, PEOPLE)
    app = create_app(store, settings=settings)
    with TestClient(app, base_url="http://127.0.0.1:8000", follow_redirects=False) as made:
        yield made


def shown(client: TestClient, token: str) -> str:
    answer = client.get("/actions", headers={"Authorization": f"Bearer {TOKENS[token]}"})
    assert answer.status_code == 200
    return answer.text


def decide(client: TestClient, address: str, token: str, word: str, **headers: str) -> int:
    authorization = {"Authorization": f"Bearer {TOKENS[token]}", **headers}
    data = {"word": word, "why": "it fails"}
    return int(client.post(address, data=data, headers=authorization).status_code)


def form(page: str, deed: str) -> tuple[str, str]:
    """Address and word of a form."""
    [address] = re.findall(rf'formaction="(/actions/[0-9a-f]+/{deed})"', page)
    return address, re.findall(r'name="word" value="([0-9a-f]+)"', page)[0]


def test_an_operator_drains_and_undoes(client: TestClient, store: Path, tmp_path: Path) -> None:
    address, word = form(shown(client, "ADA_TOKEN"), "approve")
    here = {"Origin": "http://127.0.0.1:8000"}
    for bad in (
        {"word": ""},
        {"word": "0" * 64},
        {"word": word, "Origin": "http://evil.example"},
        {"word": word, "Origin": "null"},
        {"word": word, "Origin": "http://127.0.0.1:8001"},
    ):
        assert decide(client, address, "ADA_TOKEN", **bad) == 403
    assert not (tmp_path / "n1").exists()
    assert decide(client, address, "ADA_TOKEN", word, **here) == 303
    assert (tmp_path / "n1").read_text() == "drained\n"
    last = journal.entries(store)[-1]
    assert (last.event, last.node, last.who, last.why) == ("drained", "n1", "ada", "it fails")
    assert decide(client, address, "ADA_TOKEN", word, **here) == 400  # it is drained already
    address, word = form(shown(client, "ADA_TOKEN"), "undo")
    assert decide(client, address, "ADA_TOKEN", word) == 303
    assert (tmp_path / "n1").read_text() == "resumed\n"


@pytest.mark.parametrize("token", ["EVA_TOKEN", "BO_TOKEN"])
def test_others_cannot(client: TestClient, store: Path, tmp_path: Path, token: str) -> None:
    """A viewer, and an operator of another cluster: no button, and no way without one."""
    address, word = form(shown(client, "ADA_TOKEN"), "approve")
    page = shown(client, token)
    assert "formaction" not in page
    assert decide(client, address, token, word) == 403  # ada's word
    [person] = [each for each in PEOPLE if each.token == token]
    assert decide(client, address, token, word_for(person)) == 400
    assert not (tmp_path / "n1").exists()
    assert {each.event for each in journal.entries(store)} == {"proposed"}


def test_nobody_in_particular_cannot(store: Path) -> None:
    """A console with one token for all, and one without."""
    for token in (None, "the token of all readers"):
        with TestClient(create_app(store, token=token), base_url="http://127.0.0.1:8000") as client:
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            assert "formaction" not in client.get("/actions", headers=headers).text
            answer = client.post("/actions/00000000/approve", data={"word": ""}, headers=headers)
            assert answer.status_code == 403


def test_each_reader_has_a_look_of_their_own(client: TestClient, store: Path) -> None:
    (store / LOOKS).unlink(missing_ok=True)
    authorization = {"Authorization": f"Bearer {TOKENS['EVA_TOKEN']}"}
    page = client.get("/", headers=authorization).text
    [word] = re.findall(r'name="word" value="([0-9a-f]+)"', page)
    assert decide(client, "/seen", "EVA_TOKEN", "0" * 64) == 403
    assert decide(client, "/seen", "ADA_TOKEN", word) == 403
    assert decide(client, "/seen", "EVA_TOKEN", word) == 303
    assert [*json.loads((store / LOOKS).read_text())] == ["eva"]


def test_wrong_deeds_and_ids(client: TestClient) -> None:
    _, word = form(shown(client, "ADA_TOKEN"), "approve")
    assert decide(client, "/actions/00000000/approve", "ADA_TOKEN", word) == 400
    assert decide(client, "/actions/00000000/remove", "ADA_TOKEN", word) == 404
    authorization = {"Authorization": "Bearer of nothing at all"}
    assert client.post("/actions/0/approve", headers=authorization).status_code == 401


def test_a_token_that_is_not_set_or_too_short(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for value, code in ((None, "missing-key"), ("short", "token-too-short")):
        monkeypatch.delenv("ADA_TOKEN", raising=False)
        if value:
            monkeypatch.setenv("ADA_TOKEN", value)
        with pytest.raises(InputError) as caught:
            create_app(store, settings=Settings(people=PEOPLE[:1]))
        assert caught.value.code == code


def test_the_console_tells_of_what_is_new(store: Path) -> None:
    (store / journal.FILE).unlink(missing_ok=True)
    wanted, got = Notices("URLS", digest="08:00"), list[str]()

    def send(title: str, text: str) -> bool:
        got.append(text)
        return True

    console = Console(Snapshots(store, Assumptions()), settings=Settings(notices=wanted))
    morning = 1_767_600_000.0  # 08:00 UTC of a day
    assert len(console.notify(send, morning - 60)) == 1
    assert got[0].startswith("n1 should be pulled")
    assert console.notify(send, morning) == ["digest 2026-01-05"]
    assert got[1].splitlines()[0] == "This morning"
    assert console.notify(send, morning + 60) == []


def test_a_token_of_one_cluster_never_works_for_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have a bad node n1; ada operates alpha, bo beta; one screen shows both to everybody."""
    for name, value in TOKENS.items():
        monkeypatch.setenv(name, value)
    ran, clusters = tmp_path / "ran", {}
    for name in ("alpha", "beta"):
        log = bad_log()
        log.nodes = {}
        [path] = log.write(tmp_path / name)
        path.write_text(path.read_text().replace("|c|", f"|{name}|"))
        fleet.ingest([path], tmp_path / "store")
        drain = ("sh", "-c", f"echo {name} >> {ran}; echo drained > {tmp_path / name}-n1")
        seen = ("sh", "-c", SEEN.format(file=tmp_path / f"{name}-n1"))
        clusters[name] = Cluster(nodes=seen, drain=drain, resume=drain)
    people = (Person("ada", "operator", "ADA_TOKEN", "alpha"), *PEOPLE[1:])
    app = create_app(tmp_path / "store", settings=Settings(Limits(share=0.5), clusters, people))
    with TestClient(app, base_url="http://127.0.0.1:8000", follow_redirects=False) as client:
        addresses, words = {}, {}
        for cluster, token in (("alpha", "ADA_TOKEN"), ("beta", "BO_TOKEN")):
            authorization = {"Authorization": f"Bearer {TOKENS[token]}"}
            for page in ("/", "/?cluster=alpha", "/?cluster=beta"):
                text = client.get(page, headers=authorization).text
                assert "formaction" not in text
                assert ("alpha:n1" in text, "beta:n1" in text) == (
                    page != "/?cluster=beta",
                    page != "/?cluster=alpha",
                )
            addresses[cluster], words[token] = form(shown(client, token), "approve")
        assert len(set(addresses.values())) == 2  # each sees the form of their own cluster alone
        for token, other in (("ADA_TOKEN", "beta"), ("BO_TOKEN", "alpha"), ("EVA_TOKEN", "beta")):
            word = words.get(token) or word_for(PEOPLE[2])
            own = "beta" if other == "alpha" else "alpha"
            for query in ("", f"?cluster={own}", f"?who={own}"):
                address = addresses[other] + query
                assert decide(client, address, token, word) == 400
        assert client.get("/?cluster=gamma", headers=authorization).status_code == 404
        assert not ran.exists()
        assert decide(client, addresses["beta"], "BO_TOKEN", words["BO_TOKEN"]) == 303
    assert ran.read_text() == "beta\n"
    steps = [(step.cluster, step.who) for step in journal.entries(tmp_path / "store")]
    assert steps == [*((name, "holdfast") for name in clusters), *2 * [("beta", "bo")]]
