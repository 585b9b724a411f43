"""What each page shows, from a snapshot: the template's name and its context."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from holdfast.durations import duration_text
from holdfast.fleet.analysis import Analysis
from holdfast.fleet.console import evidence, explorer, views
from holdfast.fleet.console.experiments import Experiment
from holdfast.fleet.console.snapshots import Snapshot
from holdfast.fleet.console.views import JOB_LINK, NODE_LINK, PAGES, SECTIONS
from holdfast.fleet.fleet_report import FleetReport
from holdfast.numbers import duration
from holdfast.report import Page, Section, parts


@dataclass(frozen=True)
class View:
    """A page to be written."""

    template: str
    context: dict[str, Any]


def prepare(snapshot: Snapshot) -> None:
    """Compute what most pages need, before the first of them is asked for."""
    summary(snapshot)


def report(snapshot: Snapshot) -> Page:
    """The report on the store, whose parts the pages show."""
    return snapshot.kept("report", lambda analysis: FleetReport(analysis).page())


def _page(snapshot: Snapshot, here: str, template: str, **context: Any) -> View:
    """A page of the console; with `sections`, those that are laid out already."""
    page = report(snapshot)
    laid: Sequence[dict[str, Any]] = context.get("sections", ())
    common = {
        "fleet": page.title.removeprefix("Fleet report: "),
        "extent": dict(page.inputs)["Window"],
        "generation": snapshot.generation,
        "here": here,
        "title": PAGES.get(here, ""),
        "live": any(section["figures"] for section in laid),
    }
    return View(template, {**common, **context})


def _sections(snapshot: Snapshot, here: str) -> list[dict[str, Any]]:
    """The sections of the report that stand on a page."""
    found = {section.id: section for section in report(snapshot).sections}
    return [_kept(snapshot, found[name]) for name in SECTIONS.get(here, ()) if name in found]


def _kept(snapshot: Snapshot, section: Section) -> dict[str, Any]:
    return snapshot.kept(f"section {section.id}", lambda _: _laid(section))


def _laid(section: Section) -> dict[str, Any]:
    """A section, with the nodes and jobs of its tables as links."""
    links = {"node": NODE_LINK, "job_id": JOB_LINK}
    tables = [
        replace(
            table,
            columns={
                name: replace(form, link=links.get(name, form.link))
                for name, form in table.columns.items()
            },
        )
        for table in section.tables
    ]
    return parts.lay_out(replace(section, tables=tables))


def summary(snapshot: Snapshot) -> View:
    """The morning summary."""
    return _page(
        snapshot,
        "/",
        "summary.html.j2",
        page=report(snapshot),
        sections=_sections(snapshot, "/"),
        on_news="show",
    )


def rate(snapshot: Snapshot) -> View:
    """The trend of the failure rate, and what it means for a job."""
    sections = _sections(snapshot, "/rate")
    empty = "Nothing ran, so there is no failure rate."
    return _page(
        snapshot, "/rate", "sections.html.j2", sections=sections, empty=empty, on_news="show"
    )


def nodes(snapshot: Snapshot) -> View:
    """All nodes."""
    laid = snapshot.kept("nodes", lambda analysis: _laid(evidence.node_section(analysis)))
    return _page(snapshot, "/nodes", "nodes.html.j2", sections=[laid], empty="")


def node(snapshot: Snapshot, name: str) -> View | None:
    """The evidence on one node; None if the log does not know it."""
    found = snapshot.read(lambda analysis: evidence.node(analysis, name))
    return None if found is None else _evidence(snapshot, "/nodes", found)


def job(snapshot: Snapshot, job_id: str) -> View | None:
    """One job; None if the log does not know it."""
    found = snapshot.read(lambda analysis: evidence.job(analysis, job_id))
    return None if found is None else _evidence(snapshot, "/jobs", found)


def _evidence(snapshot: Snapshot, here: str, found: Page) -> View:
    laid = [_laid(section) for section in found.sections]
    return _page(snapshot, here, "evidence.html.j2", title=found.title, page=found, sections=laid)


def jobs(snapshot: Snapshot, words: str) -> View:
    """The jobs that lost most, or that match a search."""
    found = snapshot.read(lambda analysis: _laid(evidence.find_jobs(analysis, words)))
    more = [] if words else _sections(snapshot, "/jobs")
    return _page(snapshot, "/jobs", "jobs.html.j2", words=words, sections=[found, *more])


def default_setting(snapshot: Snapshot) -> explorer.Setting:
    """Where the ETTR explorer begins."""
    return snapshot.kept("setting", explorer.default_setting)


def ettr(snapshot: Snapshot, setting: explorer.Setting, problem: str = "") -> View:
    """The ETTR explorer at a setting."""
    default = default_setting(snapshot)
    figure = explorer.figure(setting, default)
    curve = parts.lay_out(Section("curve", "How often should a job checkpoint?", "", [figure]))
    return _page(
        snapshot,
        "/ettr",
        "ettr.html.j2",
        fields=_fields(setting),
        problem=problem,
        figure=curve["figures"][0],
        answer=_answer(setting),
        origin=snapshot.kept("origin", _origin),
        sections=_sections(snapshot, "/ettr"),
        live=True,
    )


def _answer(setting: explorer.Setting) -> dict[str, Any]:
    """The section of `holdfast fleet ettr`."""
    (section,) = explorer.at(setting).sections()
    return parts.lay_out(replace(section, id="answer"))


def _fields(setting: explorer.Setting) -> list[dict[str, Any]]:
    made = []
    for name, field in explorer.FIELDS.items():
        value = setting[name]
        low, high = field.slider
        made.append(
            {
                "name": name,
                "label": field.label,
                "text": explorer.field_text(name, value),
                "value": value,
                # A value of the log beyond the usual range moves the end of the slider.
                "low": min(low, value) if low and value else low,
                "high": max(high, 10 * value) if value > high else high,
                "time": field.is_time,
                "whole": name == "nodes",
            }
        )
    return made


def _origin(analysis: Analysis) -> str:
    assumed = analysis.log.assumptions
    if analysis.mttf is None or not analysis.largest_job_nodes:
        return "The log has no failure rate of jobs; the values are those of the published RSC-1 fleet."
    bound = "" if analysis.mttf.model.failures_ else " (its upper bound: nothing failed)"
    write = duration(explorer.WRITE_SHARE * assumed.checkpoint_interval_s)
    write = "" if assumed.write_s else f" No log states the time of a write: {write} is a guess."
    return (
        f"The log as it is: the largest job that ran, at the measured failure rate{bound}, with the "
        f"measured wait before restarts and the assumed checkpoints.{write}"
    )


def curve(snapshot: Snapshot, setting: explorer.Setting) -> dict[str, Any]:
    """What the ETTR explorer redraws."""
    return {
        "query": explorer.query(setting),
        "fields": {
            each["name"]: {"value": each["value"], "text": each["text"]}
            for each in _fields(setting)
        },
        "curve": explorer.curve(setting, default_setting(snapshot)),
        "answer": views.html("answer.html.j2", {"answer": _answer(setting)}),
    }


def common_changes(analysis: Analysis) -> list[tuple[str, str]]:
    """Changes that suit the log: (change, what it means)."""
    named = analysis.lemons.lemons if analysis.status.attempts else []
    worst = named[:5]
    assumed = analysis.log.assumptions
    best = explorer.at(explorer.default_setting(analysis)).optimal_interval_s
    halved = duration_text(assumed.checkpoint_interval_s / 2)
    interval = duration_text(round(best)) if best and best >= 1 else halved
    return [
        ("lemons=off", "every lemon node is replaced by a healthy one"),
        *([_without(analysis, worst)] if worst else []),
        ("failure_rate*0.5", "nodes fail half as often"),
        (f"checkpoint.interval={interval}", "jobs checkpoint at this interval"),
        ("checkpoint.write*0.5", "a checkpoint is written in half the time"),
        ("preempt_after=4h", "a job may be preempted once it has run for 4 h"),
    ]


def _without(analysis: Analysis, nodes: Sequence[str]) -> tuple[str, str]:
    """The change that takes these nodes away: for good, if the largest job still fits."""
    named = ",".join(nodes)
    if analysis.log.count("nodes") - len(nodes) < analysis.largest_job_nodes:
        return f"replace={named}", "these nodes are replaced by healthy ones"
    return f"pull={named}", "these nodes leave, and nothing takes their place"


def whatif(
    snapshot: Snapshot,
    experiments: Sequence[Experiment],
    form: dict[str, str],
    picked: Sequence[str] = (),
    problem: str = "",
) -> View:
    """The what-if form."""
    common = snapshot.kept("common changes", common_changes)
    offered = {change for change, _ in common}
    own = [each for each in picked if each not in offered]
    changes = "\n".join([*own, *(line for line in form.get("changes", "").splitlines() if line)])
    defaults = {"given": "", "replicas": "8", "days": "", "seed": "0"}
    return _page(
        snapshot,
        "/whatif",
        "whatif.html.j2",
        common=common,
        picked=[each for each in picked if each in offered],
        form={**defaults, **form, "changes": changes},
        experiments=experiments,
        problem=problem,
    )


def experiment(snapshot: Snapshot, run: Experiment, again: str) -> View:
    """One what-if run: how far it is, or what came out."""
    headings = {
        "running": "Running",
        "done": "What was asked",
        "failed": "The run failed",
        "cancelled": "Cancelled",
    }
    return _page(
        snapshot,
        "/whatif",
        "experiment.html.j2",
        title=f"What if: run {run.number}",
        heading=headings[run.state],
        run=run,
        active=run.state == "running",
        status=status(run),
        page=run.page,
        sections=run.sections,
        days="as long as the log" if run.request.days is None else f"{run.request.days:g}",
        took=duration(run.seconds) if run.seconds else "",
        again=again,
    )


def status(run: Experiment) -> str:
    """How far a run is, in a sentence."""
    told = run.to_dict()
    if not run.total:
        return f"Calibrating the simulator to the log, {duration(told['seconds'])} so far."
    left = told["seconds_left"]
    rest = "" if left is None else f", about {duration(left)} left"
    return f"{run.done:,} of {run.total:,} simulations{rest}."
