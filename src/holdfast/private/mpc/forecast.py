"""What a model will cost on secrets, before anybody sends anything.

The costs of the protocols do not depend on values. So each party runs the model alone, on zeros, over a
channel that records its messages and the computation between them (`EchoChannel`). Replayed against each
other (`critical_path`), the records give the rounds and bytes of a real run, and its time on a network:

    arrival = departure + round-trip time / 2 + 8 * bytes / bandwidth
"""

from __future__ import annotations

import runpy
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
from torch import Tensor, nn

from holdfast.answer import ColumnFormat, How, Section, Table, Unknown
from holdfast.errors import InputError
from holdfast.files import read_whole
from holdfast.numbers import duration, number, size
from holdfast.private.mpc.answers import (
    MODES,
    Costly,
    cost_section,
    largest_costs,
    layer_name,
)
from holdfast.private.mpc.critical_path import replay
from holdfast.private.mpc.importing import Graph, PrivateModel, largest_results, prepare
from holdfast.private.mpc.launch import run_local
from holdfast.private.mpc.party import Party
from holdfast.private.mpc.ring import invalid
from holdfast.private.mpc.supply import Items, dry_supply
from holdfast.private.mpc.transport import EchoChannel, Network, TraceEvent

_OFFLINE = {
    "dealer": "Offline bytes go from the dealer to the last party before the call.",
    "replicated3": "Offline bytes go from party 2 to party 1 during the call.",
}
SETUP = ("setup", "import")
"""Operations that happen once per model, not per call."""
LAN = Network(0.00025, 1e9)
WAN = Network(0.020, 100e6)


@dataclass(frozen=True)
class Forecast(Costly):
    """What one call of a model costs, and what its set-up costs once.

    Args:
        model: as named.
        shapes: of the inputs.
        parties: number of parties.
        mode: security mode.
        network: that the time is for; None: none at all.
        layers: `module`, `op`, `rounds`, `bytes`, `offline_bytes`, `seconds`, `margin_bits`; of one call.
        setup: the same, once per model: agreeing on keys, opening the masked weights.
        items: preprocessing items of set-up and one call.
        traces: messages of one call, and the computation between them, by party.
        measured: rounds, bytes and seconds of a run on this machine; None if there was none.
    """

    model: str
    shapes: list[tuple[int, ...]]
    parties: int
    mode: str
    network: Network | None
    layers: list[dict[str, Any]]
    setup: list[dict[str, Any]]
    items: Items
    traces: list[list[TraceEvent]]
    measured: dict[str, float] | None = None

    @property
    def title(self) -> str:
        """The heading of the page."""
        return "Cost of a private model"

    @property
    def rounds(self) -> int:
        """Rounds of one call."""
        return sum(row["rounds"] for row in self.layers)

    @property
    def bytes(self) -> int:
        """Bytes that one party sends for one call: the one that sends most."""
        return max(sum(e.size for e in trace if not e.received) for trace in self.traces)

    @property
    def offline_bytes(self) -> int:
        """Bytes of preprocessing that one party gets for one call: the one that gets most."""
        return sum(row["offline_bytes"] for row in self.layers)

    @property
    def local_seconds(self) -> float:
        """Computation of the party that computes longest, measured here."""
        return max(sum(event.computing_s for event in trace) for trace in self.traces)

    def seconds(self, network: Network | None) -> float:
        """Time of one call on a network, until the last party ends."""
        return max(replay(self.traces, network or Network()).ends_s)

    def to_dict(self) -> dict[str, Any]:
        """The JSON of ``--json``."""
        return {
            "rounds": self.rounds,
            "bytes": self.bytes,
            "offline_bytes": self.offline_bytes,
            "seconds": self.seconds(self.network),
            "layers": self.layers,
            "setup": self.setup,
            "parties": self.parties,
            "mode": self.mode,
            "measured": self.measured,
        }

    def figures(self) -> tuple[int, int, int, float]:
        """Rounds, bytes, time."""
        return self.rounds, self.bytes, self.offline_bytes, self.seconds(self.network)

    @property
    def note(self) -> str:  # type: ignore[override]
        """The network."""
        return _described(self.network)

    def inputs(self) -> Sequence[tuple[str, str]]:
        """The model, its input, and whom the parties trust."""
        return [
            ("model", self.model),
            ("input", ", ".join("x".join(map(str, shape)) for shape in self.shapes)),
            ("security", f"{self.parties} parties, {self.mode}: {MODES[self.mode]}"),
        ]

    def sections(self) -> Sequence[Section]:
        """By layer; by network; against a measurement."""
        heaviest = max(self.layers, key=lambda row: row["bytes"])
        tightest = min(self.layers, key=lambda row: row["margin_bits"])
        sentence = (
            f"One call takes {number(self.rounds)} rounds and at most {size(self.bytes)} per party; "
            f"{layer_name(heaviest)} sends most of it: {size(heaviest['bytes'])}."
            f" No value can leave its range; {layer_name(tightest)} comes closest, by "
            f"{number(tightest['margin_bits'])} bits."
        )
        how = How(
            "arrival of a message = departure + round-trip time / 2 + 8 x bytes / bandwidth",
            {"computation": f"{self.local_seconds:.3f} s at the party that computes longest"},
            notes=(
                "Each party runs the protocol alone on zeros, on this machine; its messages, and the "
                "computation between them, are replayed against those of the others until the last party "
                "ends. Rounds and bytes do not depend on values. Figures of a layer are the largest of any "
                f"party. {_OFFLINE[self.mode]} The margin is 62 bits less those of the largest number that "
                "the bounds of inputs and weights allow."
            ),
        )
        return [cost_section(self.layers, sentence, how), self._networks()]

    def _networks(self) -> Section:
        choices = {"this machine": Network(), "LAN": LAN, "WAN": WAN}
        choices |= {} if self.network is None else {"as asked": self.network}
        rows = [
            {"network": f"{name} ({_described(network)})", "seconds": self.seconds(network)}
            for name, network in choices.items()
        ]
        if self.measured is not None:
            described = f"measured here ({_described(self.network)})"
            rows.append({"network": described, "seconds": self.measured["seconds"]})
        columns = {
            "network": ColumnFormat("Network"),
            "seconds": ColumnFormat("Time", "s", digits=3),
        }
        caption = "One row per network; on this machine it is computation alone."
        once = size(sum(row["bytes"] for row in self.setup))
        sentence = (
            f"One call takes {duration(self.seconds(LAN))} on a LAN and {duration(self.seconds(WAN))} on a "
            f"WAN; the set-up sends {once} once per model."
        )
        table = Table(pa.Table.from_pylist(rows), columns, caption)
        return Section("networks", "How long does a call take?", sentence, [], [table])

    def unknowns(self) -> Sequence[Unknown]:
        """The dealer's time."""
        if self.mode == "replicated3":  # party 2 deals, and is forecast as the others are
            return []
        return [
            Unknown(
                "The time of the dealer is not in the forecast.",
                "make stores ahead of time with `holdfast private dealer --items FILE --output DIR`",
            )
        ]


def dry_run(
    graph: Graph,
    example: Sequence[Tensor],
    parties: int = 2,
    *,
    bound: float | None = None,
    **settings: Any,
) -> list[Party]:
    """All parties, by rank, after each ran the set-up and one call of a model alone.

    Their channels have the costs (without rounds, which depend on the others) and the traces, their
    supplies the preprocessing items.

    Args:
        graph: the model.
        example: inputs; their values do not matter.
        parties: number of parties.
        bound: largest magnitude of the inputs, as of `Party.secret`.
        settings: of `Party`.
    """
    runs = []
    for rank in range(parties):
        channel = EchoChannel(rank, parties)
        runs.append(Party(channel, dry_supply(rank, parties, channel.ledger), **settings))
        _call(PrivateModel(runs[-1], graph, owner=0), example, bound)
    return runs


def _layers(runs: Sequence[Party]) -> list[dict[str, Any]]:
    """Rows of costs in order of execution: the largest figures of any party, and the rounds of all."""
    rounds = replay([run.channel.trace for run in runs], Network()).row_rounds
    rows = largest_costs([run.channel.ledger.rows.values() for run in runs])
    for key, cost in runs[0].channel.ledger.rows.items():
        rows[key]["rounds"] = rounds.get(key, 0)
        rows[key]["margin_bits"] = cost.margin_bits  # of public bounds: the same at every party
    return list(rows.values())


def _call(model: PrivateModel, example: Sequence[Tensor], bound: float | None) -> None:
    """Share the inputs, run the model, reveal its outputs."""
    given = []
    for each in example:
        integer = not each.is_floating_point()
        given.append(
            model.party.secret(
                each,
                owner=0,
                shape=tuple(each.shape),
                integer=integer,
                bound=None if integer else bound,
            )
        )
    outputs = model(*given)
    for output in outputs if isinstance(outputs, tuple) else (outputs,):
        output.reveal()


def prepared(
    name: str, inputs: str, calibration: str | None, margin: float
) -> tuple[Graph, list[Tensor]]:
    """A named model with the bounds of its calibration, and inputs of the named shapes."""
    example = [_example(text) for text in inputs.split(",")]
    module, typical = load_model(name, calibration)
    graph = prepare(module, example)
    if typical is not None:
        graph.largest = largest_results(module, typical, margin)
    return graph, example


def measure(party: Party, bound: float | None, *named: Any) -> dict[str, float]:
    """The cost of the fastest of some calls of a model: what ``--measure`` runs at every party."""
    graph, example = prepared(*named)
    model = PrivateModel(party, graph, owner=0)
    calls = []
    for _ in range(4):  # the first one allocates
        before, start = party.channel.ledger.total(), time.perf_counter()
        _call(model, example, bound)
        seconds, after = time.perf_counter() - start, party.channel.ledger.total()
        # The forecast leaves the dealer out, who may work ahead of time.
        seconds -= after.offline_s - before.offline_s
        calls.append((seconds, after.rounds - before.rounds, after.bytes_sent - before.bytes_sent))
    return dict(zip(("seconds", "rounds", "bytes"), min(calls), strict=True))


def plan(
    model: str,
    inputs: str,
    *,
    network: Network | None = None,
    parties: int = 2,
    mode: str = "dealer",
    bound: float | None = None,
    calibration: str | None = None,
    margin: float = 2.0,
    measure: bool = False,
    **settings: Any,
) -> Forecast:
    """Forecast the cost of one call of a model.

    Args:
        model: ``FILE.py:NAME``, a module or a function that returns one.
        inputs: shapes, such as ``1x1x28x28``; ``int:`` before one for whole numbers.
        network: to forecast for.
        parties: number of parties.
        mode: security mode.
        bound: largest magnitude of the inputs; by default that of `Party.secret`.
        calibration: name in the same file, of typical inputs or a function that returns them, as they are
            given to `import_model`.
        margin: as of `import_model`.
        measure: also run it at parties on this machine, on that network.
        settings: `fraction_bits` and `comparison`, as of `Party`.

    Raises:
        InputError: if the model or a shape is invalid, or the model has unsupported operations.
        RangeError: if values could leave the range of an operation, whatever is done about it.
    """
    named = (inputs, calibration, margin)
    graph, example = prepared(model, *named)
    settings["mode"] = mode
    for _ in range(2):  # the first run makes the tables that functions look up
        runs = dry_run(graph, example, parties, bound=bound, **settings)
    traces = [[event for event in run.channel.trace if event.row[1] not in SETUP] for run in runs]
    rows = _layers(runs)
    layers = [row for row in rows if row["op"] not in SETUP]
    setup = [row for row in rows if row["op"] in SETUP]
    measured = _measured(model, (bound, named), parties, network, settings) if measure else None
    shapes = [tuple(each.shape) for each in example]
    items = runs[0].supply.items
    return Forecast(model, shapes, parties, mode, network, layers, setup, items, traces, measured)


def load_model(name: str, calibration: str | None = None) -> tuple[nn.Module, Any]:
    """The module that ``FILE.py:NAME`` stands for, and the inputs of another name there; None without one.

    Raises:
        InputError: if there is none.
    """
    path, _, attribute = name.rpartition(":")
    if not path or not attribute.isidentifier():
        expected = "FILE.py:NAME, a torch module or a function that returns one"
        raise invalid("model", name, expected, place="MODEL")
    read_whole(path, "a Python file with a model")
    names = runpy.run_path(path, run_name="holdfast_model")

    def made(attribute: str, kind: Any, described: str) -> Any:
        found = names.get(attribute)
        value = found if isinstance(found, kind) else found() if callable(found) else None
        if isinstance(value, kind):
            return value
        raise InputError(
            f"not a {described}",
            code="unknown-name",
            path=path,
            place=attribute,
            found=type(found).__name__,
            expected=f"a torch {described}, or a function or class that gives one without arguments",
        )

    module = made(attribute, nn.Module, "model")
    kinds = (Tensor, list, tuple)
    return module, None if calibration is None else made(calibration, kinds, "tensor")


def _example(text: str) -> Tensor:
    kind, _, shape = text.strip().rpartition(":")
    sizes = shape.split("x")
    if kind not in ("", "int", "float") or not all(s.isdecimal() and int(s) for s in sizes):
        expected = "sizes such as 1x1x28x28, or int:1x32 for whole numbers"
        raise invalid("input shape", text, expected, place="--input")
    return torch.zeros([int(s) for s in sizes], dtype=torch.int64 if kind == "int" else None)


_SCRIPT = """
from holdfast.private.mpc.forecast import measure

def main(party):
    return measure(party, {bound!r}, {model!r}, *{named!r})
"""


def _measured(
    model: str,
    call: tuple[float | None, tuple[Any, ...]],
    parties: int,
    network: Network | None,
    settings: dict[str, Any],
) -> dict[str, float]:
    """Rounds, bytes and seconds of a call between processes."""
    path, _, attribute = model.rpartition(":")
    with tempfile.TemporaryDirectory(prefix="holdfast-plan-") as folder:
        script = Path(folder) / "measure.py"
        name = f"{Path(path).resolve()}:{attribute}"
        bound, named = call
        script.write_text(_SCRIPT.format(bound=bound, model=name, named=named))
        results = run_local(parties, script, network=network, **settings)
    # Per figure the largest of any party, as in the forecast.
    return {name: max(each.result[name] for each in results) for name in results[0].result}


def _described(network: Network | None) -> str:
    if network is None or network == Network():
        return "no delay"
    rate = "" if network.bits_per_s == float("inf") else f", {network.bits_per_s / 1e6:g} Mbit/s"
    return f"{2e3 * network.delay_s:g} ms round trip{rate}"
