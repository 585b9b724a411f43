"""What the commands return: certificates, deals, and runs with their costs by module and operation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.answer import Answer, ColumnFormat, How, Section, Table, Tile, Value
from holdfast.numbers import duration, number, size
from holdfast.private.mpc.accounting import Cost
from holdfast.private.mpc.launch import PartyResult
from holdfast.report.figures import bars

MODES = {
    "dealer": "semi-honest parties and a trusted dealer that colludes with none of them",
    "replicated3": "three semi-honest parties of which no two collude",
    "insecure-local": "no security: all parties in one process",
}

COST_COLUMNS = {
    "module": ColumnFormat("Module"),
    "op": ColumnFormat("Operation"),
    "rounds": ColumnFormat("Rounds"),
    "bytes": ColumnFormat("Sent", "bytes"),
    "offline_bytes": ColumnFormat("Offline", "bytes"),
    "milliseconds": ColumnFormat("Time", "ms", digits=1),
    "margin_bits": ColumnFormat("Margin", "bits", digits=1),
}


def cost_section(rows: Sequence[Mapping[str, Any]], sentence: str, how: How) -> Section:
    """Costs by layer: bars of bytes sent, and the table.

    Args:
        rows: `module`, `op`, `rounds`, `bytes`, `offline_bytes`, `seconds`, in order of execution.
        sentence: the answer.
        how: the fold-out.
    """
    shown = [{**row, "milliseconds": 1e3 * row["seconds"]} for row in rows]
    largest = sorted(rows, key=lambda row: -row["bytes"])[:25]
    figure = bars(
        [{"layer": layer_name(row), "bytes": row["bytes"]} for row in largest],
        "layer",
        "bytes",
        "Bytes sent per party",
    )
    table = Table(
        pa.Table.from_pylist(shown),
        {name: each for name, each in COST_COLUMNS.items() if name in shown[0]} if shown else {},
        "One row per module and operation, in order of execution.",
    )
    return Section("costs", "What does each layer cost?", sentence, [figure], [table], how)


class Costly(Answer):
    """An answer that leads with rounds, bytes sent, bytes of preprocessing and seconds."""

    note = ""
    """What the time is for."""

    def figures(self) -> tuple[int, int, int, float]:
        """Those four."""
        raise NotImplementedError

    def values(self) -> Sequence[Value]:
        """The same, to compare by."""
        rounds, sent, offline, seconds = self.figures()
        return [
            Value("rounds", rounds, better="lower"),
            Value("bytes_sent", sent, "bytes", better="lower"),
            Value("offline_bytes", offline, "bytes", better="lower"),
            Value("seconds", seconds, "s", better="lower"),
        ]

    def tiles(self) -> Sequence[Tile]:
        """The same under the findings."""
        rounds, sent, offline, seconds = self.figures()
        return [
            Tile("Rounds", number(rounds)),
            Tile("Sent per party", size(sent)),
            Tile("Offline", size(offline)),
            Tile("Time", duration(seconds), note=self.note),
        ]


@dataclass(frozen=True)
class Run(Costly):
    """A run of a script: what it returned, and what it cost.

    Args:
        mode: security mode.
        parties: results of the parties that reported: all of a local run, or this one.
        total_parties: number of parties.
    """

    mode: str
    parties: list[PartyResult]
    total_parties: int

    @property
    def title(self) -> str:
        """The heading of the page."""
        return "Private computation"

    def costs(self) -> list[dict[str, Any]]:
        """Costs of the party with the most rounds, with the largest offline bytes of any party."""
        longest = max(self.parties, key=lambda each: each.rounds)
        largest = largest_costs([each.costs for each in self.parties])
        rows = largest_costs([longest.costs]).items()
        return [row | {"offline_bytes": largest[key]["offline_bytes"]} for key, row in rows]

    def to_dict(self) -> dict[str, Any]:
        """The JSON of ``--json``."""
        rounds, _, _, seconds = self.figures()
        return {
            "parties": self.total_parties,
            "mode": self.mode,
            "rounds": rounds,
            "bytes_sent": [each.bytes_sent for each in self.parties],
            "offline_bytes": [each.offline_bytes for each in self.parties],
            "seconds": seconds,
            "result": self.parties[0].result,
            "costs": self.costs(),
        }

    def figures(self) -> tuple[int, int, int, float]:
        """Rounds, bytes and time: the largest of any party."""
        names = ("rounds", "bytes_sent", "offline_bytes", "seconds")
        return tuple(max(getattr(each, name) for each in self.parties) for name in names)  # type: ignore[return-value]

    def inputs(self) -> Sequence[tuple[str, str]]:
        """Who computed, and what they had to trust."""
        return [
            ("parties", str(self.total_parties)),
            ("security", f"{self.mode}: {MODES[self.mode]}"),
        ]

    def sections(self) -> Sequence[Section]:
        """The result, and the costs."""
        result = repr(self.parties[0].result)
        shown = result if len(result) <= 300 else f"{result[:300]} ... (--json prints all of it)"
        rounds, sent, _, seconds = self.figures()
        sentence = (
            f"{self.total_parties} parties in mode {self.mode} took {number(rounds)} rounds, sent at "
            f"most {size(sent)} each, and needed {duration(seconds)}."
        )
        how = How(
            "rounds = longest chain of messages that had to follow each other",
            notes=(
                "Counted by the transport. Bytes are payloads and frame headers (28 bytes per message), "
                "without those of TLS and TCP. Time includes waiting for messages."
            ),
        )
        return [
            Section(
                "result",
                "What was revealed?",
                f"main returned {shown} at party {self.parties[0].rank}.",
            ),
            cost_section(self.costs(), sentence, how),
        ]


def layer_name(row: Mapping[str, Any]) -> str:
    """An operation and its module: ``relu (features.1)``."""
    return f"{row['op']} ({row['module']})" if row["module"] else str(row["op"])


def largest_costs(parties: Sequence[Iterable[Cost]]) -> dict[tuple[str, str], dict[str, Any]]:
    """Rows of costs as JSON shows them, the largest figures of any party; margins are in forecasts."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for cost in (cost for costs in parties for cost in costs):
        row: dict[str, Any] = asdict(cost)
        row["bytes"] = row.pop("bytes_sent")
        del row["margin_bits"]
        largest = rows.setdefault((cost.module, cost.op), row)
        largest |= {name: max(row[name], largest[name]) for name in row}
    return rows


@dataclass(frozen=True)
class Certificate(Answer):
    """A new key and certificate.

    Args:
        certificate: file to give to the other parties.
        key: file to keep.
        sha256: fingerprint of the certificate.
    """

    certificate: Path
    key: Path
    sha256: str

    def sections(self) -> Sequence[Section]:
        """What to do with them."""
        sentence = (
            f"Give {self.certificate.name} to the other parties, keep {self.key.name}, and compare the "
            f"fingerprint by telephone: {self.sha256}."
        )
        return [Section("certificate", "What goes where?", sentence)]


@dataclass(frozen=True)
class Deal(Answer):
    """What a dealer made.

    Args:
        items: preprocessing items per run.
        runs: number of runs.
        correction_bytes: sent or written for the last party, per run.
        stores: files, by party; none for a live session.
    """

    items: int
    runs: int
    correction_bytes: int
    stores: list[Path]

    def written(self) -> Mapping[str, Path]:
        """The stores."""
        return {f"party {rank}": path for rank, path in enumerate(self.stores)}

    def sections(self) -> Sequence[Section]:
        """How much it was."""
        sentence = (
            f"{number(self.items)} items per run, {number(self.runs)} runs; the corrections of the last "
            f"party take {size(self.correction_bytes)} per run."
        )
        return [Section("deal", "What was dealt?", sentence)]
