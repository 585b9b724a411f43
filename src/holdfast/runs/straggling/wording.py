"""How the results read in sentences, alike in the terminal, on the page and in the JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.numbers import brief, counted, duration, number, percent
from holdfast.runs.ranks import ranges

if TYPE_CHECKING:
    from holdfast.runs.straggling.groups import Groups
    from holdfast.runs.straggling.scores import Stragglers
    from holdfast.runs.straggling.sharing import Shared
    from holdfast.runs.straggling.transients import Spell

_BASES = {
    "own": "each rank's own time: the step without waiting for others",
    "data_wait": "each rank's waiting for data",
    "unknown": "nothing: steps include waiting for others",
}

UNKNOWN = (
    "Who is slow cannot be told: in synchronous training every rank's step lasts as long as the slowest "
    "rank's, and these steps do not say how much of them was waiting for others."
)
UNKNOWN_REMEDY = (
    "put `with step.sync():` around the collectives (or set step.sync_s), or give traces of "
    "torch.profiler"
)
DATA_ONLY = (
    "Only waiting for data is compared: these steps do not say how much of them was waiting for others, "
    "so a rank that computes slowly does not show."
)


def sentence(found: Stragglers) -> str:
    """The verdict."""
    if not found.known:
        return UNKNOWN
    slow = found.persistent
    if found.matrix.steps.size < found.least_steps:
        return _too_short(found)
    groups = found.groups
    alone = [row for row in slow if groups is None or not _in_group(found, row)]
    said = []
    if len(alone) == 1:
        said.append(_one(found, alone[0]))
    elif alone:
        said.append(
            f"Ranks {ranges(row['rank'] for row in alone)} are persistently slow"
            f"{_common(found, alone)}: late by {_range(alone)} in their typical step; {_bill(found)}."
        )
    if groups is not None:
        said.append(_two_groups(found, groups, bool(alone)))
    return " ".join(said) or _nobody(found)


def _in_group(found: Stragglers, row: dict[str, Any]) -> bool:
    return found.groups is not None and row["rank"] in found.matrix.ranks[[*found.groups.slow]]


def _two_groups(found: Stragglers, groups: Groups, others: bool) -> str:
    ranks = found.matrix.ranks
    slow, fast = (ranks[[*each]].tolist() for each in (groups.slow, groups.fast))
    name = "Rank" if len(slow) == 1 else "Ranks"
    has = "is" if len(slow) == 1 else "are"
    with_label = ""
    if groups.label is not None:
        # One value names a place; several are listed.
        values = ", ".join(groups.values[:5]) + (" ..." if len(groups.values) > 5 else "")
        with_label = f" ({groups.label} {values})"
    since = f" since step {found.matrix.steps[groups.since]:,}" if groups.since else ""
    text = (
        f"The {'other ' if others else ''}ranks fall into two groups: {name.lower()} {ranges(slow)}"
        f"{with_label} {has} slower than {ranges(fast)}{since}, by {short(groups.delay_s)} "
        f"({percent(groups.delay_s / found.delays.usual_s)} of a step) in the typical step"
    )
    text += "." if others else f"; {_bill(found)}."
    if groups.label is None:
        text += " No label separates them, so which of them is normal cannot be told."
    elif groups.label not in ("node", "host"):
        text += f" If their work differs, compare with --within {groups.label}."
    return text


def _common(found: Stragglers, slow: list[dict[str, Any]]) -> str:
    """What most of the slow ranks share."""
    carriers = dict(zip(found.matrix.ranks.tolist(), found.matrix.labels, strict=True))
    for each in found.shared:
        count = sum(carriers[row["rank"]].get(each.label) == each.value for row in slow)
        if count == len(slow):
            return f", all with {_label(each)}"
        if count > len(slow) / 2:
            return f", {count:,} of {len(slow):,} with {_label(each)}"
    return ""


def _one(found: Stragglers, row: dict[str, Any]) -> str:
    on = f" on {row['node']}" if row["node"] else ""
    since = ""
    if row["since_step"] != int(found.matrix.steps[0]):
        since = f" since step {row['since_step']:,}"
    why = ""
    if row["data_share"] is not None and row["data_share"] >= 0.5:
        why = f", {percent(row['data_share'])} of it waiting for data"
    return (
        f"Rank {row['rank']}{on} is persistently slow{since}: late by {short(row['delay_s'])} "
        f"({percent(row['slowdown'])} of a step) in its typical step{why}; {_bill(found)}."
    )


def _bill(found: Stragglers) -> str:
    return (
        f"without such delays the run would save {gpu_time(found, found.recoverable_gpu_hours)}; "
        f"waiting for the slowest cost {gpu_time(found, found.costs.total)}"
    )


def _too_short(found: Stragglers) -> str:
    row = max(found.ranks.to_pylist(), key=lambda row: row["delay_s"])
    return (
        f"{counted(found.matrix.steps.size, 'step')} of {counted(found.matrix.ranks.size, 'rank')} are "
        f"too few to tell habit from chance ({found.least_steps} are needed); slowest in its typical "
        f"step was rank {row['rank']}, late by {short(row['delay_s'])}."
    )


def _nobody(found: Stragglers) -> str:
    steps = counted(found.matrix.steps.size, "step")
    text = f"No rank is persistently slow in {steps} of {counted(found.matrix.ranks.size, 'rank')}"
    if found.spells.found:
        spells = counted(len(found.spells.found), "spell")
        text += f"; {spells} of slowness passed, the costliest on rank {found.spells.found[0].rank}"
    text += f"; waiting for the slowest cost {gpu_time(found, found.costs.total)}."
    if found.matrix.steps.size < found.least_steps_of_groups:
        text += (
            " Whether half of the ranks or more are slow takes "
            f"{found.least_steps_of_groups} steps to tell."
        )
    return text


def compared(found: Stragglers) -> str:
    """What is compared."""
    peers = f", among ranks of the same {found.matrix.peers}" if found.matrix.peers else ""
    return _BASES[found.matrix.base] + peers


def spell_sentence(spell: Spell) -> str:
    """One spell."""
    return (
        f"rank {spell.rank}, steps {spell.first_step:,} to {spell.last_step:,}: late by "
        f"{short(spell.delay_s)} on average{' and still is' if spell.ongoing else ''}"
    )


def shared_sentence(each: Shared) -> str:
    """What slow ranks share."""
    return (
        f"{each.slow:,} of the {each.ranks:,} ranks with {_label(each)} are slow "
        f"({'q < 0.0001' if each.q_value < 1e-4 else f'q = {each.q_value:.4f}'})"
    )


def gpu_time(found: Stragglers, hours: float) -> str:
    """``"12.3 GPU-hours"``; minutes for a run of less than ten hours, as in the report of a run."""
    worked = found.costs.worked
    if worked >= 10:
        return f"{brief(hours)} GPU-hours"
    if 60 * worked >= 1:
        return f"{brief(60 * hours)} GPU-minutes"
    return f"{brief(3600 * hours)} GPU-seconds"


def short(seconds: float) -> str:
    """``"16.8 ms"``, ``"1.2 s"``, ``"1 min 5 s"``."""
    milliseconds = 1000 * seconds
    if 0 < abs(seconds) < 1:
        digits = 0 if abs(milliseconds) >= 100 else 1 if abs(milliseconds) >= 1 else 3
        return f"{number(milliseconds, digits)} ms"
    return duration(seconds)


def _label(each: Shared) -> str:
    named_after = each.value.lower().startswith(each.label.lower())
    return each.value if named_after else f"{each.label} {each.value}"


def _range(slow: list[dict[str, Any]]) -> str:
    delays = [row["delay_s"] for row in slow]
    low, high = short(min(delays)), short(max(delays))
    return low if low == high else f"{low} to {high}"


def habit(row: dict[str, Any], found: Stragglers) -> str:
    """How slow a rank is, in a word or two."""
    if row["persistent"] is None and _in_group(found, row):
        return "slower group"
    if row["persistent"]:
        since = row["since_step"]
        return "persistently" if since == int(found.matrix.steps[0]) else f"since step {since:,}"
    return "for a while" if row["rank"] in found.spells.ranks else ""


def input_remarks(found: Stragglers) -> list[str]:
    """What of the input could not be used or had to be guessed, and what was compared."""
    matrix = found.matrix
    said = []
    if found.block > 1:
        said.append(
            f"slow and fast steps come in waves: {found.block} steps count as one in the test for habit"
        )
    if matrix.peers:
        said.append(f"compared: {compared(found)}")
    if matrix.steps_not_shared:
        used = counted(matrix.steps.size, "step")
        said.append(f"{used} used; {matrix.steps_not_shared:,} left out that not all ranks did")
    if matrix.ranks_set_aside:
        said.append(
            f"set aside, with less than half of the others' steps: rank {ranges(matrix.ranks_set_aside)}"
        )
    if matrix.rejected:
        first = matrix.rejects[0]
        said.append(
            f"{counted(matrix.rejected, 'row')} could not be used; the first: {first.file.name}, "
            f"line {first.line}: {first.reason}"
        )
    return [*said, *matrix.remarks]


def first_upper(text: str) -> str:
    """The text with a capital."""
    return text[:1].upper() + text[1:]
