"""The page of `holdfast runs stragglers --html`."""

from __future__ import annotations

from holdfast import __version__
from holdfast.numbers import counted, percent
from holdfast.report import Finding, Page, Section, Tile, Unknown
from holdfast.runs.straggling import sections, wording
from holdfast.runs.straggling.scores import Stragglers


def page(found: Stragglers) -> Page:
    """Everything that is known of the stragglers of a run."""
    shown = _sections(found)
    return Page(
        title="Stragglers",
        subtitle=f"{counted(found.matrix.ranks.size, 'rank')}, "
        f"{counted(found.matrix.steps.size, 'step')} that all of them did",
        inputs=_inputs(found),
        findings=_findings(found, {section.id for section in shown}),
        tiles=_tiles(found) if found.known else [],
        sections=shown,
        unknowns=_unknowns(found),
        footer=f"holdfast {__version__}",
    )


def _sections(found: Stragglers) -> list[Section]:
    made: list[Section | None] = [sections.slow_ranks(found)]
    if found.known:
        made += [sections.shared_section(found), sections.spell_section(found)]
    return [section for section in made if section is not None]


def _inputs(found: Stragglers) -> list[tuple[str, str]]:
    matrix = found.matrix
    used = f"{matrix.steps.size:,} of {matrix.steps.size + matrix.steps_not_shared:,}"
    return [
        ("Source", matrix.source),
        ("Compared", wording.compared(found)),
        ("Steps used", used),
        ("Rows set aside", f"{matrix.rejected:,}"),
    ]


def _findings(found: Stragglers, ids: set[str]) -> list[Finding]:
    made = [Finding(wording.sentence(found), "stragglers")]
    if not found.known:
        return made
    made += [
        Finding(f"{wording.shared_sentence(each)}.", "shared", "Shared:")
        for each in found.shared[:2]
    ]
    made += [
        Finding(f"{wording.spell_sentence(spell)}.", "spells", "For a while:")
        for spell in found.spells.found[:2]
    ]
    return [each for each in made if each.section_id in ids]


def _tiles(found: Stragglers) -> list[Tile]:
    cost, worked = found.costs.total, found.costs.worked
    value, unit = wording.gpu_time(found, cost).split(" ")
    share = f"{percent(cost / worked)} of own time" if found.matrix.base == "own" and worked else ""
    saved, saved_unit = wording.gpu_time(found, found.recoverable_gpu_hours).split(" ")
    usual, usual_unit = wording.short(found.delays.usual_s).split(" ", 1)
    noise, noise_unit = wording.short(found.delays.noise_s).split(" ", 1)
    slow = len(found.persistent)
    undecided = found.matrix.steps.size < found.least_steps
    return [
        Tile(
            "Persistently slow",
            "–" if undecided else f"{slow:,}",
            "" if undecided else f"of {found.matrix.ranks.size:,} ranks",
            note="too few steps to tell" if undecided else "",
            section_id="stragglers",
        ),
        Tile("Waiting for the slowest cost", value, unit, note=share, section_id="stragglers"),
        Tile("Recoverable", saved, saved_unit, note="if persistently slow ranks kept pace"),
        Tile(
            "Spells",
            f"{len(found.spells.found):,}",
            note=f"at least {found.spells.least_length} steps in a row",
            section_id="spells" if found.spells.found else None,
        ),
        Tile("Usual step", usual, usual_unit, note="median own time"),
        Tile("Noise", noise, noise_unit, note="of a rank from step to step"),
    ]


def _unknowns(found: Stragglers) -> list[Unknown]:
    base = found.matrix.base
    made = []
    if base != "own":
        text = wording.UNKNOWN if base == "unknown" else wording.DATA_ONLY
        made.append(Unknown(text, wording.first_upper(wording.UNKNOWN_REMEDY) + "."))
    return made + [
        Unknown(f"{wording.first_upper(each)}.") for each in wording.input_remarks(found)
    ]
