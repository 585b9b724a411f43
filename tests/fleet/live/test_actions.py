"""What is proposed, approved and refused, on a cluster of a few lines of shell."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from logs import BASE, COLUMNS, Attempt, Log, Outage

import holdfast.fleet as fleet
from holdfast.errors import InputError
from holdfast.fleet.live import journal
from holdfast.fleet.live.actions import DEEDS, act, actions
from holdfast.fleet.live.journal import AFTER, Entry, Life
from holdfast.fleet.live.limits import check_limits
from holdfast.fleet.live.settings import Cluster, Limits, Settings, read_settings

DAY = 86_400
BAD = ("n03", "n07", "n11")
NAMES = [f"n{each:02d}" for each in range(20)]

# States are the names of files; `drain` fails where the file `broken` is.
SCRIPT = """
cd "$(dirname "$0")"
case "$1" in
nodes) for n in n*; do echo "$n|main|$(cat "$n")"; done; echo "n07|rare|$(cat n07)";;
drain) test -e broken && { echo "slurm_update error: Access denied" >&2; exit 1; }
       echo drained > "$2"; echo "$2 $3" >> calls;;
resume) echo idle > "$2"; echo "$2 resumed" >> calls;;
esac
"""


def bad_log() -> Log:
    """Twenty nodes with a job a day each; three of them end theirs in NODE_FAIL every other day."""
    log = Log(nodes=dict.fromkeys(NAMES, 8))
    job = 0
    for day in range(60):
        for node in NAMES:
            job += 1
            failed = node in BAD and day % 2 == 0
            end = DAY * day + (DAY // 2 if failed else DAY - 60)
            log.attempts.append(
                Attempt(job, (node,), DAY * day, end, "NODE_FAIL" if failed else "COMPLETED")
            )
            if failed:
                log.outages.append(Outage(node, end, end + 7200))
    return log


@pytest.fixture(scope="module")
def ingested(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bad_log().store(tmp_path_factory.mktemp("bad"))


@pytest.fixture
def store(ingested: Path, tmp_path: Path) -> Path:
    """A copy of the store, without a journal."""
    import shutil

    return Path(shutil.copytree(ingested, tmp_path / "store"))


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    folder = tmp_path / "cluster"
    folder.mkdir()
    (folder / "control").write_text(SCRIPT)
    for name in NAMES:
        (folder / name).write_text("idle\n")
    return folder


def settings(cluster: Path, **limits: float) -> Settings:
    control = ("sh", str(cluster / "control"))
    here = Cluster(
        nodes=(*control, "nodes"),
        drain=(*control, "drain", "{node}", "{reason}"),
        resume=(*control, "resume", "{node}"),
    )
    free = {"nodes": 20, "share": 1.0, "cooldown": 0.0}
    return Settings(Limits(**{**free, **limits}), {"default": here, "c": here})  # type: ignore[arg-type]


def ids(store: Path) -> dict[str, str]:
    """Node -> the id of its proposal."""
    return {each.node: each.id for each in actions(store).proposals}


def test_a_life_from_proposal_to_return(store: Path, cluster: Path) -> None:
    held = settings(cluster)
    found = actions(store, held)
    assert sorted(each.node for each in found.proposals) == sorted(BAD)
    assert not (cluster / "calls").exists(), "a list does nothing"
    first = found.proposals[0]
    node = first.node

    done = act(store, "approve", first.id, who="ada", why="see the log", settings=held)
    assert done.event == "drained"
    assert (cluster / node).read_text() == "drained\n"
    assert (cluster / "calls").read_text().startswith(f"{node} holdfast {first.id}: 30.0 failures")
    assert node not in [each.node for each in actions(store, held).proposals]
    lemons = fleet.lemons(store)
    assert node not in lemons.lemons
    assert lemons.lemons_out == [node]

    act(store, "repaired", first.id, who="bo", why="new GPU 3", settings=held)
    act(store, "give-back", first.id, who="bo", settings=held)
    assert (cluster / node).read_text() == "idle\n"
    [life] = [each for each in actions(store).lives if each.id == first.id]
    assert [(step.event, step.who) for step in life.steps] == [
        ("proposed", "holdfast"),
        ("approved", "ada"),
        ("drained", "ada"),
        ("repaired", "bo"),
        ("returned", "bo"),
    ]
    assert node not in ids(store), "what it did before its repair is no new evidence"
    assert node not in fleet.lemons(store).lemons


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("days", "again", "verdict"), [(60, False, "mended"), (60, True, "as bad"), (34, False, "")]
)
def test_a_returned_node_is_judged(tmp_path: Path, days: int, again: bool, verdict: str) -> None:
    """n03 is drained on day 30 and back on day 31; the log goes on for a while."""
    log = bad_log()
    fails = {day for day in range(0, 60, 2) if day < 30 or again}
    log.attempts = [
        replace(each, end=each.start + DAY - 60, state="COMPLETED")
        if each.nodes == ("n03",) and each.start // DAY not in fails
        else each
        for each in log.attempts
        if each.start is not None and each.start < days * DAY
    ]
    log.outages = []
    store = log.store(tmp_path)
    with journal.writing(store) as writer:
        for event, day in (("approved", 30), ("drained", 30), ("returned", 31)):
            writer.add(Entry(BASE + day * DAY, "0" * 8, event, "", "n03", "ada"))
    actions(store)
    actions(store)
    found = [each.why for each in journal.entries(store) if each.event == "judged"]
    assert [each.startswith(verdict) for each in found] == ([True] if verdict else [])
    assert ("n03" in ids(store)) is again
    assert ids(store).get("n03") != "0" * 8  # a new life


def test_undo_and_reject(store: Path, cluster: Path) -> None:
    held, proposed = settings(cluster), ids(store)
    act(store, "approve", proposed["n03"], settings=held)
    act(store, "undo", proposed["n03"], settings=held)
    assert (cluster / "n03").read_text() == "idle\n"
    act(store, "reject", proposed["n07"], why="ours", settings=held)
    assert "n07" not in ids(store)
    with pytest.raises(InputError) as caught:
        act(store, "give-back", proposed["n03"], settings=held)
    assert caught.value.code == "conflict"


def test_what_a_pull_wins(store: Path) -> None:
    """By hand: a failure loses half an interval of 8 GPUs; a bad node is in use 3/4 of its time."""
    each = 8 * min(12.0, fleet.open(store).assumptions.checkpoint_interval_s / 2 / 3600)
    rows = {row["node"]: row for row in fleet.lemons(store).nodes.to_pylist()}
    window = 60 - 60 / DAY  # days, to the last end
    for found in actions(store).proposals:
        row = rows[found.node]
        month = 30 * (30 * 0.5 + 30 * (1 - 60 / DAY)) / window  # node-days
        usual, rate = row["usual_rate"] / 1000, row["shrunk_rate"] / 1000
        assert found.wins == pytest.approx((rate - usual) * month * each, rel=1e-4)
        assert found.wins_ci95 is not None
        low, high = found.wins_ci95
        assert low < found.wins < high
        assert found.costs == pytest.approx(8 * 2.0)


def test_what_a_pull_wins_beside_another_cluster(tmp_path: Path, store: Path) -> None:
    """One with a longer log, of short jobs that fail now and then; the rates share a prior."""
    alone = {each.node: (each.wins, each.wins_ci95) for each in actions(store).proposals}
    rng = random.Random(1)
    other = [
        {
            **Attempt(10**6 + k, (NAMES[k % 20],), 9000 * k, 9000 * k + 900, state).fields(),
            "Cluster": "other",
        }
        for k, state in enumerate(rng.choices(["COMPLETED", "NODE_FAIL"], (9, 1), k=2000))
    ]
    lines = ["|".join(COLUMNS), *("|".join(row[name] for name in COLUMNS) for row in other)]
    (tmp_path / "other.psv").write_text("\n".join(lines) + "\n")
    fleet.ingest([tmp_path / "other.psv"], store)
    found = {each.node: each for each in actions(store).proposals if each.cluster == "c"}
    assert found.keys() == alone.keys()
    for node, (wins, ci95) in alone.items():
        assert (found[node].wins, found[node].wins_ci95) == (
            pytest.approx(wins, rel=0.15),
            pytest.approx(ci95, rel=0.15),
        )


def test_a_log_of_an_hour_tells_no_month(tmp_path: Path) -> None:
    nodes = {f"n{each:02d}": 8 for each in range(20)}
    fails = [Attempt(k, ("n03",), 600 * k, 600 * k + 300, "NODE_FAIL") for k in range(1, 8)]
    runs = [Attempt(100 + k, (node,), 0, 7000) for k, node in enumerate(nodes) if node != "n03"]
    found = actions(Log(fails + runs, nodes=nodes).store(tmp_path))
    assert [(each.node, each.wins) for each in found.proposals] == [("n03", None)]
    assert {each.name: each.value for each in found.values()}["wins_a_month"] is None


def test_a_log_that_names_no_nodes_cannot_tell(tmp_path: Path, store: Path) -> None:
    columns = [each for each in COLUMNS if each != "NodeList"]
    log = Log([each for each in bad_log().attempts if each.job < 200])
    assert actions(store).blind == ""
    blind = actions(log.store(tmp_path / "blind", columns))
    assert (blind.proposals, bool(blind.blind)) == ([], True)


@pytest.mark.parametrize(
    ("limits", "out", "place"),
    [
        ({"nodes": 2}, ["n01", "n02"], "limits.nodes"),
        ({"share": 0.1}, ["n01", "n02"], "limits.share"),
        ({"share": 0.04}, [], "limits.share"),
        ({"nodes": 0}, [], "limits.nodes"),
        ({}, ["n07"], None),
    ],
)
def test_limits(
    store: Path, cluster: Path, limits: dict[str, float], out: list[str], place: str | None
) -> None:
    for node in out:
        (cluster / node).write_text("down*\n")
    with pytest.raises(InputError) as caught:
        act(store, "approve", ids(store)["n07"], settings=settings(cluster, **limits))
    assert caught.value.code == ("limit" if place else "conflict")
    assert caught.value.place == place
    assert not (cluster / "calls").exists()


def test_the_last_node_of_a_partition(store: Path, cluster: Path) -> None:
    with pytest.raises(InputError) as caught:
        act(store, "approve", ids(store)["n07"], settings=settings(cluster))
    assert (caught.value.code, caught.value.place) == ("limit", "limits.partition")
    for name in NAMES:
        if name != "n03":
            (cluster / name).write_text("mixed-\n" if name == "n05" else "drained\n")
    act(store, "approve", ids(store)["n03"], settings=settings(cluster))
    assert (cluster / "n03").read_text() == "drained\n"


def test_cooldown(store: Path, cluster: Path) -> None:
    held, proposed = settings(cluster, cooldown=3600.0), ids(store)
    act(store, "approve", proposed["n03"], settings=held, clock=lambda: 1e9)
    with pytest.raises(InputError) as caught:
        act(store, "approve", proposed["n11"], settings=held, clock=lambda: 1e9 + 3599)
    assert caught.value.place == "limits.cooldown"
    act(store, "approve", proposed["n11"], settings=held, clock=lambda: 1e9 + 3600)


def test_approvals_at_the_same_moment(store: Path, cluster: Path) -> None:
    """Many at once, from threads and from processes: the limit lets one through, whoever is first."""
    proposed = ids(store)
    held = settings(cluster, nodes=1)
    (cluster / "actions.toml").write_text(
        "[limits]\nnodes = 1\nshare = 1.0\ncooldown = 0\n[clusters.default]\n"
        + "".join(
            f"{key} = {json.dumps(list(getattr(held.clusters['c'], key)))}\n"
            for key in ("nodes", "drain", "resume")
        )
    )
    line = [sys.executable, "-m", "holdfast", "fleet", "act", str(store), "--json"]
    line += ["--actions", str(cluster / "actions.toml"), "--approve"]
    others = [
        subprocess.Popen(
            [*line, proposed[node]], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        for node in ("n03", "n11")
    ]

    def approve(node: str) -> str:
        try:
            act(store, "approve", proposed[node], settings=held)
        except InputError as error:
            return error.code
        return "drained"

    with ThreadPoolExecutor(4) as threads:
        found = [*threads.map(approve, ["n03", "n11"] * 2)]
    done = [other.wait() for other in others]
    assert found.count("drained") + done.count(0) == 1
    assert set(found) <= {"drained", "limit", "conflict"}
    assert len((cluster / "calls").read_text().splitlines()) == 1


def test_a_command_that_fails(store: Path, cluster: Path) -> None:
    held, proposed = settings(cluster), ids(store)
    (cluster / "broken").touch()
    with pytest.raises(InputError) as caught:
        act(store, "approve", proposed["n03"], settings=held)
    assert caught.value.code == "unavailable"
    assert "Access denied" in str(caught.value.found)
    assert journal.lives(journal.entries(store))[proposed["n03"]].state == "failed"
    (cluster / "broken").unlink()
    act(store, "approve", proposed["n03"], settings=held)
    assert journal.lives(journal.entries(store))[proposed["n03"]].state == "drained"


def test_a_command_that_does_nothing(store: Path, cluster: Path) -> None:
    """It ends well, and the cluster says that the node is in service."""
    held, proposed = settings(cluster), ids(store)
    idle = {name: replace(each, drain=("true",)) for name, each in held.clusters.items()}
    with pytest.raises(InputError) as caught:
        act(store, "approve", proposed["n03"], settings=replace(held, clusters=idle))
    assert caught.value.code == "unavailable"
    assert journal.lives(journal.entries(store))[proposed["n03"]].state == "failed"
    assert "n03" in ids(store)


@pytest.mark.parametrize("answer", ["true", "false", "/nowhere/sinfo"])
def test_a_cluster_that_cannot_be_asked(store: Path, answer: str) -> None:
    """Without its word on what is out, nothing is approved."""
    silent = Settings(clusters={"default": Cluster(nodes=(answer,), drain=("true",))})
    with pytest.raises(InputError) as caught:
        act(store, "approve", ids(store)["n03"], settings=silent)
    assert caught.value.code == "unavailable"
    assert journal.lives(journal.entries(store))[ids(store)["n03"]].state == "proposed"


def test_a_killed_approval_counts_as_out(store: Path, cluster: Path) -> None:
    proposed = ids(store)
    with journal.writing(store) as writer:
        writer.add(Entry(1e9, proposed["n03"], "approved", "", "n03", "ada"))
    with pytest.raises(InputError) as caught:
        act(store, "approve", proposed["n11"], settings=settings(cluster, nodes=1))
    assert caught.value.code == "limit"
    act(store, "undo", proposed["n03"], settings=settings(cluster))
    act(store, "approve", proposed["n11"], settings=settings(cluster, nodes=1))


def test_a_killed_approval_that_drained_is_approved_again(store: Path, cluster: Path) -> None:
    proposed = ids(store)
    with journal.writing(store) as writer:
        writer.add(Entry(1e9, proposed["n03"], "approved", "", "n03", "ada"))
    (cluster / "n03").write_text("drained\n")
    held = settings(cluster, nodes=1)
    assert act(store, "approve", proposed["n03"], settings=held).event == "drained"
    with pytest.raises(InputError) as caught:
        act(store, "approve", proposed["n11"], settings=held)
    assert caught.value.code == "limit"


def test_a_share_is_not_rounded() -> None:
    """29 of 100 nodes are 29 %, though 0.29 * 100 is below 29 in floating point."""
    names = "seq -f 'n%g|main|idle' 1 72; seq -f 'n%g|main|down' 73 100"
    life = Life("0" * 8, "", "n1", (Entry(1.0, "0" * 8, "proposed", "", "n1", "ada"),))
    for share, passes in ((0.29, True), (0.28, False)):
        cluster = {"default": Cluster(nodes=("sh", "-c", names))}
        held = Settings(Limits(nodes=100, share=share), cluster)
        with nullcontext() if passes else pytest.raises(InputError):
            check_limits(life, life.steps, held, 2.0)


def test_somebody_elses_cluster(store: Path, cluster: Path) -> None:
    for deed in DEEDS:
        with pytest.raises(InputError) as caught:
            act(store, deed, ids(store)["n03"], settings=settings(cluster), may=lambda name: False)
        assert caught.value.code == "refused"


def test_kubernetes_is_only_told(store: Path) -> None:
    told = Settings(clusters={"default": Cluster(kind="kubernetes")})
    found = actions(store, told)
    assert {each.command for each in found.proposals} == {f"kubectl cordon {node}" for node in BAD}
    with pytest.raises(InputError) as caught:
        act(store, "approve", found.proposals[0].id, settings=told)
    assert caught.value.code == "unsupported"


def test_a_node_that_others_drained_is_left_out(tmp_path: Path) -> None:
    log = bad_log()
    log.outages.append(Outage("n03", 59 * DAY + DAY // 2 + 1, None, "IDLE+DRAIN", "disk"))
    store = log.store(tmp_path / "log")
    assert sorted(ids(store)) == ["n07", "n11"]
    assert fleet.lemons(store).lemons_out == ["n03"]


def test_the_journal_bears_what_a_killed_writer_left(store: Path) -> None:
    ids(store)
    path = store / journal.FILE
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"time_s": 1e9, "id": "dead')
    assert len(journal.entries(store)) == 3
    with journal.writing(store) as writer:
        writer.add(Entry(1e9, "00000000", "proposed", "", "n01", "ada"))
    assert path.read_bytes().startswith(whole)
    assert [each.node for each in journal.entries(store)][-1] == "n01"
    path.write_bytes(b'{"time_s": 1e9}\n' + whole)
    with pytest.raises(InputError) as caught:
        journal.entries(store)
    assert (caught.value.code, caught.value.place) == ("damaged", "line 1")


def test_every_step_that_may_not_follow_is_refused(tmp_path: Path) -> None:
    for number, (event, before) in enumerate((e, b) for e in AFTER for b in ("", *AFTER)):
        life = f"{number:08x}"
        lines = [Entry(1.0, life, before, "", "n", "w")] if before else []
        folder = tmp_path / life
        folder.mkdir()
        with journal.writing(folder) as writer:
            writer.entries += lines
            if before in AFTER[event]:
                writer.add(Entry(2.0, life, event, "", "n", "w"))
                continue
            with pytest.raises(InputError):
                writer.add(Entry(2.0, life, event, "", "n", "w"))


@pytest.mark.parametrize(
    ("text", "code", "place"),
    [
        ("[limits]\nnode = 2", "unknown-key", "limits.node"),
        ("[limits]\nnodes = -1", "invalid-value", "limits"),
        ("[limits]\nshare = 5", "invalid-value", "limits"),
        ('[limits]\ncooldown = "soon"', "invalid-value", "limits.cooldown"),
        ("[clusters.a]\ndrain = []", "invalid-value", "clusters.a.drain"),
        ('[[people]]\nname = "a"\nrole = "root"\ntoken = "T"', "unknown-name", "people[0].role"),
        ('[notices]\nurls = "U"\nquiet = "22"', "invalid-value", "notices.quiet"),
        ('[notices]\nurls = "U"\ndigest = "8 am"', "invalid-value", "notices.digest"),
        ('[notices]\nurls = "U"\ntimezone = "Mars"', "invalid-value", "notices.timezone"),
    ],
)
def test_a_file_of_actions_that_is_wrong(tmp_path: Path, text: str, code: str, place: str) -> None:
    path = tmp_path / "actions.toml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_settings(path)
    assert (caught.value.code, caught.value.place) == (code, place)
