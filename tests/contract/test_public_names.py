"""What holds of the Python interface however it is built: the names of the rooms, parameters, answers.

`NAMES` and `CALLS` are recorded in `expected/python.json` by `record.py`, like the cases of the commands.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import pkgutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from holdfast import automata as fa
from holdfast import carbon, federated, fleet, go, ledger, profile, runs, sparse
from holdfast.data import croissant, curation, pipeline, records
from holdfast.lm import generate, safety
from holdfast.lm import query as q
from holdfast.private import bandits, mpc
from holdfast.profile import numerics
from holdfast.profile import ops as profile_ops
from holdfast.speech import recognize, speak

ROOMS: dict[str, ModuleType] = {
    "carbon": carbon,
    "federated": federated,
    "fleet": fleet,
    "go": go,
    "ledger": ledger,
    "runs": runs,
    "lm.query": q,
    "lm.generate": generate,
    "lm.safety": safety,
    "automata": fa,
    "data.croissant": croissant,
    "data.curation": curation,
    "data.pipeline": pipeline,
    "data.records": records,
    "profile.numerics": numerics,
    "sparse": sparse,
    "speech.recognize": recognize,
    "speech.speak": speak,
    "profile": profile,
    "private.bandits": bandits,
    "private.mpc": mpc,
}
CLASSES = {
    *("Assumptions", "LemonDetector", "RunRecorder", "Query", "Fst", "SymbolTable", "Arc"),
    *("LazyRecordSet", "Cache", "Settings"),
}
"""Classes whose parameters count too: users make them."""
LOAD_TORCH = {
    *("compose_tensors", "emissions"),
    *("profile", "quantization", "register_flop_formula", "sweep"),
    *("inspect", "install", "load", "pack", "pack_file", "save"),
}
"""Names that are not touched: torch takes seconds to load."""
TORCH_ROOMS = {
    "holdfast.federated",
    "holdfast.lm.generate",
    "holdfast.private.bandits",
    "holdfast.private.mpc",
    "holdfast.speech.recognize",
}
"""Rooms of which that holds for every name."""


def names() -> dict[str, dict[str, Any]]:
    """Every public name of a room, and the parameters of what is called."""
    return {
        room: {name: _parameters(module, name) for name in sorted(module.__all__)}
        for room, module in ROOMS.items()
    }


def _parameters(module: ModuleType, name: str) -> list[str] | None:
    if (
        module.__name__ in TORCH_ROOMS
        or (name[0].isupper() and name not in CLASSES)
        or name in LOAD_TORCH
    ):
        return None
    given = getattr(module, name)
    return list(inspect.signature(given).parameters) if callable(given) else None


MACHINE = "0 1 1 2 0.5\n0 1 2 2 1.5\n1 2 2 3 0.25\n2 1\n"
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def _machine() -> fa.Fst:
    return fa.Fst.from_text(MACHINE, semiring="tropical")


def _events(folder: Path) -> Any:
    """The keys of each kind of event that a recorder writes, in the order of the first."""
    with runs.RunRecorder(folder / "events", "a-run", rank=0, world_size=1, gpus=2) as recorder:
        recorder.ready(resumed_from=None)
        for number in (1, 2):
            with recorder.data_wait():
                pass
            with recorder.step(number, tokens=64) as step:
                step.loss = 0.5
        with recorder.checkpoint(2):
            pass
        recorder.published(2)
        with recorder.evaluation(2):
            pass
    (file,) = folder.glob("events/a-run/rank-00000-*.jsonl")
    return [",".join(sorted(json.loads(line))) for line in file.read_text().splitlines()]


def _read_run(folder: Path) -> Any:
    run = runs.read_run(EXAMPLES / "watch")
    table = run.events
    return [
        run.attempts,
        len(run.processes),
        run.processes[0].end,
        table.num_rows,
        ",".join(table.column_names),
    ]


def _records(folder: Path) -> Any:
    written = records.write(EXAMPLES / "signs" / "photos" / "0", folder / "d", quality_images=0)
    verified = records.verify(folder / "d")
    return [
        written.to_dict()["images"],
        verified.to_dict()["ok"],
        records.info(str(folder / "d")).to_dict()["images"],
    ]


CALLS: dict[str, Callable[[Path], Any]] = {
    "fleet.expected_ettr": lambda _: fleet.expected_ettr(1024, 0.0065, 3600.0, init_s=300.0),
    "fleet.expected_ettr full": lambda _: fleet.expected_ettr(
        1024, 0.0065, 3600.0, queue_s=60.0, write_s=30.0, form="full"
    ),
    "fleet.ettr": lambda _: fleet.ettr(256, 0.01, 1800.0, write_s=30.0).to_dict(),
    "fleet.optimal_ettr": lambda _: fleet.optimal_ettr(256, 0.01, write_s=30.0),
    "fleet.intervals": lambda _: [
        interval(256, 0.01, write_s=30.0)
        for interval in (
            fleet.young_interval,
            fleet.daly_interval,
            fleet.optimal_checkpoint_interval,
        )
    ],
    "fleet.Assumptions": lambda _: fleet.Assumptions().checkpoint_interval_s,
    "runs.hang": lambda _: runs.hang(EXAMPLES / "hang" / "subgroups").to_dict()["missing_ranks"],
    "runs.breakdown": lambda _: dict(runs.breakdown(EXAMPLES / "watch").parts),
    "runs.plan_pairs": lambda _: [
        list(test.nodes) for test in runs.plan_pairs(["n1", "n2", "n3"]).tests
    ],
    "runs.read_run": _read_run,
    "runs.RunRecorder": _events,
    "q.escape": lambda _: q.escape("a.b*c"),
    "q.count": lambda _: q.count(q.Query("[ab]{3}|c+")).to_dict(),
    "q.Query": lambda _: [q.Query("a").eos, q.Query("a").encodings, q.Query("a").temperature],
    "fa.compose": lambda _: (
        fa.compose(_machine(), fa.string_fst([2, 3], semiring="tropical"))
        .to_text()
        .replace("\t", " ")
        .splitlines()
    ),
    "fa.shortest_path": lambda _: [
        [path.weight, list(path.ilabels), list(path.olabels)]
        for path in fa.paths(fa.shortest_path(_machine(), 2))
    ],
    "fa.count_paths": lambda _: fa.count_paths(_machine()),
    "fa.equivalent": lambda _: fa.equivalent(
        fa.union(
            fa.string_fst([1, 2], semiring="tropical"), fa.string_fst([3], semiring="tropical")
        ),
        fa.union(
            fa.string_fst([3], semiring="tropical"), fa.string_fst([1, 2], semiring="tropical")
        ),
    ),
    "fa.shortest_distance": lambda _: fa.shortest_distance(_machine()),
    "croissant.validate": lambda _: [
        [finding["code"], finding["pointer"], finding["line"]]
        for finding in croissant.validate(EXAMPLES / "planets-broken").to_dict()["errors"]
    ],
    "croissant.describe": lambda _: [
        [field["@id"], field["dataType"]]
        for records_of in croissant.describe(EXAMPLES / "planets").to_dict()["metadata"][
            "recordSet"
        ]
        for field in records_of["field"]
    ],
    "records.write": _records,
}


def calls(name: str, folder: Path) -> Any:
    """What a call gives, as it is recorded."""
    given = CALLS[name](folder)
    return _product().outline(json.loads(json.dumps(given)), folder)


def _product() -> ModuleType:
    if "product" not in sys.modules:  # this folder is on no path
        spec = importlib.util.spec_from_file_location(
            "product", Path(__file__).with_name("product.py")
        )
        assert spec is not None
        assert spec.loader is not None
        sys.modules["product"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules["product"])
    return sys.modules["product"]


EXPECTED = Path(__file__).with_name("expected") / "python.json"


@pytest.fixture(scope="module")
def expected() -> Any:
    return json.loads(EXPECTED.read_text())


def test_the_public_names_and_their_parameters(expected: Any) -> None:
    made = names()
    for room, recorded in expected["names"].items():
        assert not set(recorded) - set(made[room])
        for name, parameters in recorded.items():
            # New parameters may come; those that were stay, in their order.
            kept = [each for each in made[room][name] or () if each in (parameters or ())]
            assert kept == (parameters or []), name


@pytest.mark.parametrize("room", [*ROOMS.values(), profile_ops], ids=lambda room: room.__name__)
def test_no_name_is_that_of_a_module_beside_it(room: ModuleType) -> None:
    """`from room import name` would give the module, not the function, once the module is loaded."""
    modules = {module.name for module in pkgutil.iter_modules(room.__path__)}
    assert not modules & set(room.__all__)


@pytest.mark.parametrize("name", CALLS)
def test_a_call(name: str, expected: Any, tmp_path: Path) -> None:
    found = list(_product().differences(expected["calls"][name], calls(name, tmp_path), 1e-6))
    assert not found, "\n".join(found)
