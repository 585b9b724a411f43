"""The Flower app of examples/: one SuperLink and three SuperNodes on the loopback, beside the engine.

`flwr run` ends with 0 when a run failed: what is checked is what the run left in its folder.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open

from holdfast import federated
from holdfast.config import read_config
from holdfast.federated.configuration import RunConfig, client_data

REPOSITORY = Path(__file__).resolve().parents[2]
APP = REPOSITORY / "examples" / "federated" / "flower"
DIGITS = REPOSITORY / "examples" / "federated" / "digits.npz"
PROGRAMS = REPOSITORY / ".venv-flower" / "bin"
LONGEST_S = 600
"""Of anything here: then it hangs."""

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(
        not (PROGRAMS / "flower-superlink").exists(),
        reason="the environment of the Flower app is missing: make flower",
    ),
]

CONFIG = """
output = "run"
model = "mlp"
data = {{ path = "{data}", clients = 3, split = "dirichlet", alpha = 0.3 }}
rule = {{ name = "{rule}" }}
training = {{ rounds = {rounds}, per_round = {per_round}, learning_rate = 0.3 }}
{more}
"""


def configuration(
    folder: Path, rule: str = "fedavg", rounds: int = 2, per_round: int = 2, **other: Any
) -> Path:
    folder.mkdir(exist_ok=True)
    texts = {"data": DIGITS, "more": "", **other}
    path = folder / "run.toml"
    path.write_text(CONFIG.format(rule=rule, rounds=rounds, per_round=per_round, **texts))
    return path


@dataclass
class Federation:
    """A SuperLink with its nodes."""

    environment: dict[str, str]
    nodes: list[subprocess.Popen[bytes]]

    def begin(self, config: Path, resume: bool = False) -> subprocess.Popen[str]:
        """Run a configuration; what Flower says is its output."""
        settings = f'config="{config}" resume={str(resume).lower()}'
        command = [PROGRAMS / "flwr", "run", APP, "here", "--stream", "--run-config", settings]
        return subprocess.Popen(
            command,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def play(self, config: Path, resume: bool = False) -> str:
        """Run a configuration to its end."""
        with self.begin(config, resume) as process:
            said, _ = process.communicate(timeout=LONGEST_S)
        assert process.returncode == 0
        return said


@contextmanager
def running(program: str, *options: str, env: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A server, which ends with all that it started."""
    log = Path(env["FLWR_HOME"]) / f"{program}-{options[-1][:20].replace('/', '')}.log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [PROGRAMS / program, "--insecure", *options],
            env=env,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        taken = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in taken]


def wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    """Until a server listens; an error if it ended."""
    for _ in range(10 * LONGEST_S):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.1)
        else:
            return
    raise TimeoutError


@contextmanager
def started(home: Path, own_data: str = "") -> Iterator[Federation]:
    """A SuperLink and three SuperNodes, of which the last may have data of its own."""
    port, *others = free_ports(4)
    server = f"127.0.0.1:{port}"
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "{server}"\ninsecure = true\n'
    )
    env = os.environ | {
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        # Flower's programs look for each other there.
        "PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}",
    }
    with ExitStack() as stack:
        options = "--disable-runtime-dependency-installation", "--port", str(port)
        superlink = stack.enter_context(running("flower-superlink", *options, env=env))
        wait_for(port, superlink)
        nodes = []
        for place, own in enumerate(["", "", own_data]):
            named = f'client="client-{place}"{own}'
            options = "--superlink", server, "--port", str(others[place]), "--node-config", named
            nodes.append(stack.enter_context(running("flower-supernode", *options, env=env)))
        yield Federation(env, nodes)


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    home = tmp_path_factory.mktemp("flower")
    # The third device has a file of its own, with the examples that are its part of the data elsewhere.
    path = configuration(home / "parts")
    clients, _, _ = client_data(read_config(path, RunConfig, "the configuration"), path.parent)
    x, y = clients["client-2"]
    assert set(y.tolist()) < set(range(10)), "a device that lacks a class is the harder case"
    np.savez(home / "own.npz", x=x, y=y)
    with started(home, f' data="{home / "own.npz"}"') as found:
        yield found


def state(folder: Path) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Arrays of a run's state, and its rounds and failures."""
    with safe_open(folder / "run" / "state.safetensors", framework="np") as file:
        arrays = {name: file.get_tensor(name).tobytes() for name in file.keys()}  # noqa: SIM118
        noted = json.loads(file.metadata()["run"])
    return arrays, {"history": noted["history"], "failures": noted["failures"]}


@pytest.mark.parametrize("rule", ["fedavg", "scaffold"])
def test_every_round_is_the_engines_to_the_last_bit(
    federation: Federation, tmp_path: Path, rule: str
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for rounds in (1, 2):
        said = federation.play(configuration(there, rule, rounds), resume=rounds > 1)
        result = federated.run_config(configuration(here, rule, rounds), resume=rounds > 1)
        assert (there / "run" / "result.json").exists(), said
        assert state(there) == state(here)
        assert json.loads((there / "run" / "result.json").read_text()) == result.to_dict()
        weights = [folder / "run" / "weights.safetensors" for folder in (here, there)]
        assert weights[0].read_bytes() == weights[1].read_bytes()


def test_a_device_that_cannot_train_is_named(federation: Federation, tmp_path: Path) -> None:
    with np.load(DIGITS) as digits:
        few = digits["y"] < 3
        np.savez(tmp_path / "few.npz", x=digits["x"][few], y=digits["y"][few])
    path = configuration(tmp_path, "fedavg", 1, 3, data=tmp_path / "few.npz")
    said = federation.play(path)
    assert (tmp_path / "run" / "result.json").exists(), said
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    # The third device's own file has digits that the server does not know.
    assert [(f["client"], f["code"]) for f in result["failed_clients"]] == [("client-2", "error")]
    assert state(tmp_path)[1]["history"][0]["used"] == 2


@pytest.mark.parametrize("more", ["privacy = { noise = 1.0 }", "ledger = true"])
def test_what_is_not_true_of_real_clients_is_refused(
    federation: Federation, tmp_path: Path, more: str
) -> None:
    said = federation.play(configuration(tmp_path, more=more))
    assert f"run.toml, {more.split()[0]}:" in said
    assert not (tmp_path / "run").exists()


def test_a_device_that_is_gone_is_named_and_the_others_go_on(tmp_path: Path) -> None:
    path = configuration(tmp_path / "run", "fedavg", 3, 3)
    folder = path.parent / "run"
    with started(tmp_path) as federation, federation.begin(path) as process:
        while not (folder / "state.safetensors").exists():
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.1)
        os.killpg(federation.nodes[1].pid, signal.SIGKILL)
        said, _ = process.communicate(timeout=LONGEST_S)
    assert (folder / "result.json").exists(), said
    *_, last = state(path.parent)[1]["failures"]
    assert (last["round"], last["client"], last["code"]) == (3, "client-1", "no-answer")
    assert state(path.parent)[1]["history"][-1]["used"] == 2


ANSWERS = """
import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from holdfast_flower.messages import answer_of, array_record

weights = {"w": np.zeros(2, np.float32)}
counted = {"num-examples": 3, "loss": 0.5}
good = {
    "arrays": array_record(weights),
    "metrics": MetricRecord(counted),
    "control": array_record({"client": np.zeros(4, np.float32)}),
}
pickled = ArrayRecord({"w": Array("object", (1,), "numpy.ndarray", b"not an array")})
for name, record in {
    "": None,
    "arrays": pickled,
    "metrics": MetricRecord({"num-examples": 3}),
    "metrics ": MetricRecord({**counted, "loss": [0.5, 0.5]}),
    "control": array_record({"client": np.zeros(5, np.float32)}),
    "failure": ConfigRecord({"text": "no JSON"}),
}.items():
    content = RecordDict({**good, **({name.strip(): record} if name else {})})
    print(type(answer_of(content, "a", {"loss"}, 4)).__name__)
    for missing in good if not name else ():
        part = RecordDict({key: value for key, value in good.items() if key != missing})
        print(type(answer_of(part, "a", {"loss"}, 4)).__name__)
"""


def test_whatever_a_device_sends_is_an_update_or_a_failure() -> None:
    done = subprocess.run(
        [PROGRAMS / "python", "-c", ANSWERS],
        env=os.environ | {"PYTHONPATH": str(APP), "FLWR_TELEMETRY_ENABLED": "0"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=LONGEST_S,
    )
    assert done.stdout.split() == ["Update"] + 8 * ["Failure"]
