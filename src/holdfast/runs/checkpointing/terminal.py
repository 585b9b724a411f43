"""How a folder of checkpoints reads in a terminal."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from holdfast.numbers import duration, number
from holdfast.report.terminal import table
from holdfast.runs.checkpointing.folder import Checkpoint, CheckpointFolder

_UNITS = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1, "B"))
_MOST_DAMAGE = 10


def listed(result: CheckpointFolder) -> RenderableType:
    """The checkpoints in order of publication, and what else is in the folder."""
    complete = result.complete
    head = (
        f"latest complete: step {complete[-1].step:,}"
        if complete
        else "no complete checkpoint: a run would start from scratch"
    )
    parts: list[RenderableType] = [Text(head)]
    if result.checkpoints:
        parts.append(
            table(
                {
                    "step": "right",
                    "name": "left",
                    "state": "left",
                    "size": "right",
                    "files": "right",
                    "ranks": "right",
                    "age": "right",
                },
                [_row(result, each) for each in result.checkpoints],
            )
        )
    damage = [f"{each.path.name}/{one}" for each in result.checkpoints for one in each.damage]
    parts += [Text(f"damaged: {line}") for line in damage[:_MOST_DAMAGE]]
    if len(damage) > _MOST_DAMAGE:
        parts.append(Text(f"and {len(damage) - _MOST_DAMAGE:,} more; --json has all"))
    if result.unfinished:
        parts.append(
            Text(
                f"unfinished, under way or dead: {', '.join(result.unfinished)} "
                "(the next run that saves here removes dead ones)"
            )
        )
    if result.foreign:
        parts.append(Text(f"not ours, left alone: {', '.join(result.foreign)}"))
    return Group(*parts)


def _row(result: CheckpointFolder, each: Checkpoint) -> tuple[str, ...]:
    state: str = each.status
    if each.status == "newer":
        state = "of a newer holdfast"
    elif each.status == "complete" and each.checked == "checksums":
        state = "complete, checksums agree"
    facts = each.manifest
    if facts is None:
        return (f"{each.step:,}", each.path.name, state, "–", "–", "–", "–")
    return (
        f"{each.step:,}",
        each.path.name,
        state,
        _size(facts.size_bytes),
        f"{len(facts.files):,}",
        f"{facts.world_size:,}",
        duration(max(0.0, result.looked_s - facts.published_s)),
    )


def _size(size_bytes: int) -> str:
    """Bytes in the largest unit of which there is one."""
    for unit_bytes, unit in _UNITS:
        if size_bytes >= unit_bytes:
            return f"{number(size_bytes / unit_bytes, 0 if unit == 'B' else 2)} {unit}"
    return "0 B"
