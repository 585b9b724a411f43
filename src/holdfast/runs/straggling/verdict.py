"""What `stragglers` found: sentences, tables and charts of one answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from holdfast.answer import Answer, ColumnFormat, How, Section, Table, Unknown, Value
from holdfast.numbers import brief, counted, duration, number, percent
from holdfast.runs.ranks import named, ranges
from holdfast.runs.straggling.costs import Costs
from holdfast.runs.straggling.delays import Delays
from holdfast.runs.straggling.groups import Groups, least_blocks
from holdfast.runs.straggling.matrix import StepMatrix
from holdfast.runs.straggling.persistence import least_steps
from holdfast.runs.straggling.transients import Spell, Spells

MOST_ROWS = 500
"""Maximum rows of a table on the page; `--json` contains all."""
MOST_NAMED = 2
"""Labels and values that sentences name of a kind; tables have the rest."""
SOURCE = (
    "Jiang et al., MegaScale: Scaling Large Language Model Training to More Than 10,000 GPUs, "
    "arXiv 2402.15627, section 5 (heat map of the ranks' own times)"
)
UNKNOWN = (
    "Who is slow cannot be told: in synchronous training every rank's step lasts as long as the slowest "
    "rank's, and these steps do not say how much of them was waiting for others."
)
DATA_ONLY = (
    "Only waiting for data is compared: these steps do not say how much of them was waiting for others, "
    "so a rank that computes slowly does not show."
)
REMEDY = (
    "Put `with step.sync():` around the collectives (or set step.sync_s), or give traces of "
    "torch.profiler."
)
Verdict = Literal["slow_ranks", "slow_network", "no_slow_rank", "cannot_tell"]
SLOW_NETWORK = 0.4
"""Share of a step from which collectives whose last rank has come are told first."""
LEAST_TOLD = 0.02
"""Where a program tells less waiting than this share of a step, it may wait elsewhere, too."""
_COMPARED = {
    "own": "each rank's own time: the step without waiting for others",
    "data_wait": "each rank's waiting for data",
    "unknown": "nothing: steps include waiting for others",
}


@dataclass(frozen=True)
class Stragglers(Answer):
    """What `stragglers` found. Without known own times (`base` "unknown") all verdicts are null."""

    matrix: StepMatrix
    """The own times."""
    delays: Delays
    ranks: pa.Table
    """One row per rank, the slowest first. rank; node; score (robust standard deviations by which it is
    late in its typical step); delay_s (its typical delay over the step's median); slowdown (delay_s
    over the median own time); late_share (of the steps); q_value; persistent (null: too few steps to
    tell); since_step (persistent ranks; delay_s, slowdown and late_share count from there);
    cost_gpu_hours ((max - median) x GPUs of the steps in which it was the slowest);
    recoverable_gpu_hours (saved if it were never slower than the next slowest); data_share (of its
    typical delay, what is waiting for data; null: not told apart)."""
    spells: Spells
    """Ranks that were slow for a while only."""
    groups: Groups | None
    """Two groups into which the ranks fall that are not slow by themselves."""
    costs: Costs
    recoverable_gpu_hours: float
    """Saved if no persistently slow rank were slower than the slowest other one."""
    block: int
    """Steps that were taken together in the test, because neighbours are not independent."""
    false_alarm_rate: float
    """At most this share of runs of equal ranks with independent noise get a persistent straggler."""
    least_slowdown: float
    """A rank that is late by less than this share of a step is not a straggler."""

    @property
    def title(self) -> str:
        """The heading of the page."""
        return "Stragglers"

    @property
    def known(self) -> bool:
        """Whether anything can be said about who is slow."""
        return self.matrix.base != "unknown"

    @cached_property
    def verdict(self) -> Verdict:
        """What slows the run down, as far as these steps can tell."""
        if not self.known or self.matrix.steps.size < self.least_steps:
            return "cannot_tell"
        if self.persistent or self.groups is not None:
            return "slow_ranks"
        if (self.network_share or 0.0) >= SLOW_NETWORK:
            return "slow_network"
        return "cannot_tell" if self.matrix.base == "data_wait" or self._blind else "no_slow_rank"

    @property
    def _blind(self) -> bool:
        """Whether the ranks may wait for each other where nothing measures it."""
        told = self.matrix.reported_share
        return told is not None and told < LEAST_TOLD

    @cached_property
    def network_s(self) -> float | None:
        """Time in collectives that passes on every rank, in nine of ten steps; None: not measured.

        The last rank that comes to them waits so long, too: it is the network's and the reduction's. On
        machines with too few processors single steps wait for those; most steps do so for a network.
        """
        waited = self.matrix.waited_s
        return None if waited is None else float(np.quantile(waited.min(axis=0), 0.1))

    @property
    def network_share(self) -> float | None:
        """`network_s` over such a step of the slowest rank."""
        if self.network_s is None:
            return None
        whole_s = self.network_s + float(np.median(self.matrix.own_s.max(axis=0)))
        return self.network_s / whole_s if whole_s else 0.0

    @property
    def least_steps(self) -> int:
        """With fewer steps, no rank can be called persistently slow."""
        return self.block * least_steps(self.matrix.ranks.size, self.false_alarm_rate)

    @property
    def least_steps_of_groups(self) -> int:
        """With fewer steps, no two groups of ranks can be told apart."""
        return self.block * least_blocks(self.false_alarm_rate)

    @cached_property
    def persistent(self) -> list[dict[str, Any]]:
        """The rows of `ranks` that are persistently slow."""
        return [row for row in self.ranks.to_pylist() if row["persistent"]]

    def to_dict(self) -> dict[str, Any]:
        """The JSON of ``holdfast runs stragglers``."""
        matrix, known = self.matrix, self.known
        return {
            "sentence": self.sentence,
            "verdict": self.verdict,
            "network_s": self.network_s,
            "network_share": self.network_share,
            "base": matrix.base,
            "within": matrix.peers or None,
            "ranks": self.ranks.to_pylist(),
            "transient": [vars(spell) for spell in self.spells.spells] if known else None,
            "groups": self._groups_dict(),
            "total_cost_gpu_hours": self.costs.total if known else None,
            "worked_gpu_hours": self.costs.worked if matrix.base == "own" else None,
            "recoverable_gpu_hours": self.recoverable_gpu_hours if known else None,
            "usual_s": self.delays.usual_s if known else None,
            "steps_used": int(matrix.steps.size),
            "steps_per_block": self.block,
            "least_steps": self.least_steps,
            "steps_not_shared": matrix.steps_not_shared,
            "ranks_set_aside": list(matrix.ranks_set_aside),
            "rows_rejected": matrix.rejected,
            "false_alarm_rate": self.false_alarm_rate,
            "least_slowdown": self.least_slowdown,
            "least_spell_steps": self.spells.least_length,
            "remarks": list(matrix.remarks),
        }

    def values(self) -> Sequence[Value]:
        """Costs and the number of slow ranks."""
        if not self.known:
            return []
        cost, saved = self.costs.total, self.recoverable_gpu_hours
        return [
            Value("total_cost_gpu_hours", cost, "GPU-hours", better="lower"),
            Value("recoverable_gpu_hours", saved, "GPU-hours", better="lower"),
            Value("slow_ranks", float(len(self.persistent)), better="lower"),
        ]

    def inputs(self) -> list[tuple[str, str]]:
        """Source, what is compared, steps and rows that were used."""
        matrix = self.matrix
        used = f"{matrix.steps.size:,} of {matrix.steps.size + matrix.steps_not_shared:,}"
        return [
            ("Source", matrix.source),
            ("Ranks", f"{matrix.ranks.size:,}"),
            ("Compared", self._compared),
            ("Steps used", used),
            ("Rows set aside", f"{matrix.rejected:,}"),
        ]

    def unknowns(self) -> list[Unknown]:
        """What cannot be told from these steps, and what of the input was not used."""
        matrix, found = self.matrix, list[Unknown]()
        if matrix.base == "data_wait":
            found.append(Unknown(DATA_ONLY, REMEDY))
        elif not self.known:
            found.append(Unknown(UNKNOWN, REMEDY))
        sentences = []
        if self.block > 1:
            waves = "Slow and fast steps come in waves"
            sentences.append(f"{waves}: {self.block} steps count as one in the test for habit.")
        if matrix.peers:
            sentences.append(f"Compared: {self._compared}.")
        if matrix.steps_not_shared:
            used = counted(matrix.steps.size, "step")
            sentences.append(
                f"{used} used; {matrix.steps_not_shared:,} left out that not all ranks did."
            )
        if matrix.ranks_set_aside:
            few = named(matrix.ranks_set_aside)
            sentences.append(f"Set aside, with less than half of the others' steps: {few}.")
        if matrix.rejected:
            first = matrix.rejects[0]
            where = f"{first.file.name}, line {first.line}: {first.reason}"
            sentences.append(
                f"{counted(matrix.rejected, 'row')} could not be used; the first: {where}."
            )
        remarks = [f"{remark[0].upper()}{remark[1:]}." for remark in matrix.remarks]
        return [*found, *(Unknown(text) for text in (*sentences, *remarks))]

    def sections(self) -> list[Section]:
        """The slow ranks, and who was slow for a while."""
        if not self.known:
            return [Section("stragglers", "Which ranks are slow?", self.sentence)]
        return [self._slow_ranks(), *self._spells()]

    # --- Sentences -------------------------------------------------------------------------------

    @cached_property
    def sentence(self) -> str:
        """The verdict."""
        if not self.known:
            return UNKNOWN
        if self.matrix.steps.size < self.least_steps:
            return self._too_short()
        alone = [row for row in self.persistent if not self._in_group(row)]
        sentences = []
        if len(alone) == 1:
            sentences.append(self._one(alone[0]))
        elif alone:
            delays = [row["delay_s"] for row in alone]
            low, high = short(min(delays)), short(max(delays))
            late = low if low == high else f"{low} to {high}"
            sentences.append(
                f"Ranks {ranges(row['rank'] for row in alone)} are persistently slow"
                f"{self._common(alone)}: late by {late} in their typical step; {self._bill}."
            )
        if self.groups is not None:
            sentences.append(self._two_groups(self.groups, bool(alone)))
        if not sentences:
            sentences = [self._nobody()]
        if (self.network_share or 0.0) >= SLOW_NETWORK:
            sentences.insert(self.verdict != "slow_network", self._network())
        return " ".join(sentences)

    def _network(self) -> str:
        share = percent(self.network_share or 0.0)
        return (
            f"The network takes {short(self.network_s or 0.0)} or more ({share}) of nine steps in ten: so "
            "long collectives last after the last rank has come."
        )

    @property
    def _compared(self) -> str:
        peers = f", among ranks of the same {self.matrix.peers}" if self.matrix.peers else ""
        return _COMPARED[self.matrix.base] + peers

    def _in_group(self, row: dict[str, Any]) -> bool:
        return self.groups is not None and row["rank"] in self.matrix.ranks[[*self.groups.slow]]

    def _two_groups(self, groups: Groups, others: bool) -> str:
        ranks = self.matrix.ranks
        slow, fast = (ranks[[*each]].tolist() for each in (groups.slow, groups.fast))
        with_label = ""
        if groups.label is not None:
            # One value names a place; several are listed.
            values = ", ".join(groups.values[:5]) + (" ..." if len(groups.values) > 5 else "")
            with_label = f" ({groups.label} {values})"
        verb = "is" if len(slow) == 1 else "are"
        since = f" since step {self.matrix.steps[groups.since]:,}" if groups.since else ""
        share = percent(groups.delay_s / self.delays.usual_s)
        text = (
            f"The {'other ' if others else ''}ranks fall into two groups: {named(slow)}{with_label} {verb} "
            f"slower than {ranges(fast)}{since}, by {short(groups.delay_s)} ({share} of a step) in the "
            f"typical step{'' if others else f'; {self._bill}'}."
        )
        if groups.label is None:
            return text + " No label separates them, so which of them is normal cannot be told."
        if groups.label not in ("node", "host"):
            text += f" If their work differs, compare with --within {groups.label}."
        return text

    def _common(self, slow: list[dict[str, Any]]) -> str:
        """The first label with a value that all of the slow ranks have, and no other rank."""
        of_rank = dict(zip(self.matrix.ranks.tolist(), self.matrix.labels, strict=True))
        for label, value in of_rank[slow[0]["rank"]].items():
            carriers = {rank for rank, own in of_rank.items() if own.get(label) == value}
            if carriers == {row["rank"] for row in slow}:
                named_after = value.lower().startswith(label.lower())
                return f", the ranks with {value if named_after else f'{label} {value}'}"
        return ""

    def _one(self, row: dict[str, Any]) -> str:
        on = f" on {row['node']}" if row["node"] else ""
        begin = row["since_step"]
        since = "" if begin == int(self.matrix.steps[0]) else f" since step {begin:,}"
        why = ""
        if row["data_share"] is not None and row["data_share"] >= 0.5:
            why = f", {percent(row['data_share'])} of it waiting for data"
        return (
            f"Rank {row['rank']}{on} is persistently slow{since}: late by {short(row['delay_s'])} "
            f"({percent(row['slowdown'])} of a step) in its typical step{why}; {self._bill}."
        )

    @property
    def _bill(self) -> str:
        saved, cost = map(self._gpu_time, (self.recoverable_gpu_hours, self.costs.total))
        return (
            f"without such delays the run would save {saved}; waiting for the slowest cost {cost}"
        )

    def _too_short(self) -> str:
        row = max(self.ranks.to_pylist(), key=lambda row: row["delay_s"])
        size = f"{counted(self.matrix.steps.size, 'step')} of {counted(self.matrix.ranks.size, 'rank')}"
        return (
            f"{size} are too few to tell habit from chance ({self.least_steps} are needed); slowest in "
            f"its typical step was rank {row['rank']}, late by {short(row['delay_s'])}."
        )

    def _nobody(self) -> str:
        # A rank that computes slowly lets the others wait, which these steps do not tell.
        blind = self.matrix.base == "data_wait"
        first = "Who computes slowly cannot be told from these steps; w" if blind else "W"
        data = f"{first}aiting for data, no rank" if blind else "No rank"
        if self._blind:
            said = percent(self.matrix.reported_share or 0.0)
            data = f"Who is slow cannot be told: the program measured waiting for {said} of a step, and "
            data += "may wait elsewhere, too; by that, no rank"
        steps = counted(self.matrix.steps.size, "step")
        text = (
            f"{data} is persistently slow in {steps} of {counted(self.matrix.ranks.size, 'rank')}"
        )
        if self.spells.spells:
            spells = counted(len(self.spells.spells), "spell")
            text += (
                f"; {spells} of slowness passed, the costliest on rank {self.spells.spells[0].rank}"
            )
        text += f"; waiting for the slowest cost {self._gpu_time(self.costs.total)}."
        if self.matrix.steps.size < self.least_steps_of_groups:
            needed = self.least_steps_of_groups
            text += f" Whether half of the ranks or more are slow takes {needed} steps to tell."
        return text

    def _gpu_time(self, hours: float) -> str:
        """``"12.3 GPU-hours"``; minutes for a run of less than ten hours, as in the report of a run."""
        worked = self.costs.worked
        if worked >= 10:
            return f"{brief(hours)} GPU-hours"
        if 60 * worked >= 1:
            return f"{brief(60 * hours)} GPU-minutes"
        return f"{brief(3600 * hours)} GPU-seconds"

    # --- Sections --------------------------------------------------------------------------------

    def _slow_ranks(self) -> Section:
        from holdfast.runs.straggling import figures

        first = int(self.matrix.steps[0])

        def habit(row: dict[str, Any]) -> str:
            if row["persistent"] is None and self._in_group(row):
                return "slower group"
            if row["persistent"]:
                since = row["since_step"]
                return "persistently" if since == first else f"since step {since:,}"
            return "for a while" if row["rank"] in self.spells.ranks else ""

        rows = self.ranks.slice(0, MOST_ROWS)
        slow = pa.array([habit(row) for row in rows.to_pylist()], pa.string())
        delay_ms = pa.array([1000 * each for each in rows["delay_s"].to_pylist()], pa.float64())
        columns = {
            "rank": ColumnFormat("Rank", right=True),
            "node": ColumnFormat("Node"),
            "slow": ColumnFormat("Slow"),
            "delay_ms": ColumnFormat("Late in its typical step", "ms"),
            "slowdown": ColumnFormat("of a step", "%", digits=1),
            "late_share": ColumnFormat("Late in steps", "%", digits=0),
            "score": ColumnFormat("Score", digits=2),
            "q_value": ColumnFormat("q-value", digits=4, detail=True),
            "data_share": ColumnFormat("Late for data", "%", digits=0, detail=True),
            "cost_gpu_hours": ColumnFormat("Cost", "GPU-hours"),
            "recoverable_gpu_hours": ColumnFormat("Recoverable", "GPU-hours", detail=True),
        }
        for name in ("node", "data_share"):
            if not any(rows[name].to_pylist()):
                del columns[name]
        hidden = self.ranks.num_rows - rows.num_rows
        caption = "One row per rank, persistently slow ones first, then by cost."
        caption += f" {hidden:,} more with --json." if hidden else ""
        table = rows.append_column("slow", slow).append_column("delay_ms", delay_ms)
        shown = [Table(table, columns, caption=caption)]
        return Section(
            "stragglers",
            "Which ranks are slow?",
            self.sentence,
            [figures.heat_map(self)],
            shown,
            self._how(),
        )

    def _how(self) -> How:
        peers = f" of the same {self.matrix.peers}" if self.matrix.peers else ""
        return How(
            [
                "own time of a rank = the step less waiting for others, plus waiting for data",
                f"delay = own time - median over the ranks{peers} in that step",
                "score = median over steps of delay / max(1.4826 MAD over ranks, noise from step to step)",
                "late: delay above the least slowdown",
                "persistent: late in most steps; late, far behind or the slowest in more steps than "
                "chance gives (Poisson-binomial, Benjamini-Hochberg); typical delay beyond 3 x 1.4826 MAD",
                "cost = sum over steps of (max - median) x GPUs, given to the slowest rank of the step",
                "recoverable = the same with (max - second slowest)",
            ],
            {
                "compared": self._compared,
                "steps that all ranks share": int(self.matrix.steps.size),
                "steps left out": self.matrix.steps_not_shared,
                "usual step": short(self.delays.usual_s),
                "noise of a rank from step to step": short(self.delays.noise_s),
                "least slowdown": percent(self.least_slowdown),
                "runs of equal ranks with a false alarm, at most": percent(self.false_alarm_rate),
                "steps taken together, as neighbours are not independent": self.block,
                "steps in a row that make a spell": self.spells.least_length,
            },
            SOURCE,
            [
                "A slow network is not a slow rank: in a collective everybody waits. A pair test finds it.",
                "Own times hold what happens before a rank is ready. What it does inside a collective "
                "(its own reductions) counts as waiting.",
            ],
        )

    def _spells(self) -> list[Section]:
        if not self.spells.spells:
            return []
        node_of = {
            rank: labels.get("node", "")
            for rank, labels in zip(self.matrix.ranks.tolist(), self.matrix.labels, strict=True)
        }
        rows = [
            {
                **vars(spell),
                "node": node_of[spell.rank],
                "attempt": spell.attempt + 1,
                "delay_ms": 1000 * spell.delay_s,
            }
            for spell in self.spells.spells[:MOST_ROWS]
        ]
        columns = {
            "rank": ColumnFormat("Rank", right=True),
            "node": ColumnFormat("Node"),
            "attempt": ColumnFormat("Attempt"),
            "first_step": ColumnFormat("From step"),
            "last_step": ColumnFormat("To step"),
            "steps": ColumnFormat("Shared steps"),
            "delay_ms": ColumnFormat("Late, mean", "ms"),
            "ongoing": ColumnFormat("To the end"),
            "cost_gpu_hours": ColumnFormat("Cost", "GPU-hours"),
        }
        count = counted(len(self.spells.spells), "spell")
        worst = "; ".join(map(_spell, self.spells.spells[:MOST_NAMED]))
        caption = "One row per spell: steps in a row, far behind in each; the costliest first."
        how = How(
            "n = least steps in a row with ranks x steps x p^n <= false alarm rate",
            {"n": self.spells.least_length},
            notes="p is the share of cells in which a rank is far behind (z > 3), at least 0.00135.",
        )
        return [
            Section(
                "spells",
                "Which ranks were slow for a while?",
                f"{count}, the costliest: {worst}.",
                tables=[Table(pa.Table.from_pylist(rows), columns, caption=caption)],
                how=how,
            )
        ]

    def _groups_dict(self) -> dict[str, Any] | None:
        groups = self.groups
        if groups is None or not self.known:
            return None
        ranks, usual_s = self.matrix.ranks, self.delays.usual_s
        return {
            "slow_ranks": ranks[[*groups.slow]].tolist(),
            "fast_ranks": ranks[[*groups.fast]].tolist(),
            "label": groups.label,
            "values": list(groups.values),
            "delay_s": groups.delay_s,
            "slowdown": groups.delay_s / usual_s if usual_s else 0.0,
            "since_step": int(self.matrix.steps[groups.since]),
            "p_value": groups.p_value,
        }


def short(seconds: float) -> str:
    """``"16.8 ms"``, ``"1.2 s"``, ``"1 min 5 s"``."""
    milliseconds = 1000 * seconds
    if 0 < abs(seconds) < 1:
        digits = 0 if abs(milliseconds) >= 100 else 1 if abs(milliseconds) >= 1 else 3
        return f"{number(milliseconds, digits)} ms"
    return duration(seconds)


def _spell(spell: Spell) -> str:
    steps = f"steps {spell.first_step:,} to {spell.last_step:,}"
    still = " and still is" if spell.ongoing else ""
    return f"rank {spell.rank}, {steps}: late by {short(spell.delay_s)} on average{still}"
