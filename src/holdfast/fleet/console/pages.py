"""What each page shows, from a snapshot: the template's name and its context."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote, urlencode

from holdfast.fleet.console import access, evidence
from holdfast.fleet.console.snapshots import Snapshot
from holdfast.fleet.console.views import CLUSTER_LINK, JOB_LINK, NODE_LINK, PAGES, SECTIONS
from holdfast.fleet.fleet_report import FleetReport
from holdfast.fleet.live import actions
from holdfast.fleet.live import morning as live
from holdfast.fleet.live.journal import OUT
from holdfast.fleet.live.settings import Person, Settings
from holdfast.report import Page, Section, parts

# Address -> template, what stands in the place of no section, whether new data are shown or told of
OF_REPORT = {
    "/summary": ("summary.html.j2", "", "show"),
    "/rate": ("sections.html.j2", "Nothing ran, so there is no failure rate.", "show"),
    "/ettr": ("sections.html.j2", "The log has no jobs, so there is no ETTR.", "tell"),
}


@dataclass(frozen=True)
class View:
    """A page to be written."""

    template: str
    context: dict[str, Any]


class Unknown(Exception):
    """Something that was asked for and is not there."""

    def __init__(self, what: str, remedy: str, links: dict[str, str]) -> None:
        super().__init__(what)
        self.what, self.remedy, self.links = what, remedy, links


def prepare(snapshot: Snapshot) -> None:
    """Compute what most pages need, before the first of them is asked for."""
    morning(snapshot)


def report(snapshot: Snapshot) -> Page:
    """The report on the store, whose parts the pages show."""
    return snapshot.cache("report", lambda analysis: FleetReport(analysis).page())


def digest(snapshot: Snapshot) -> str:
    """This morning as a message: its title, what makes it doubtful, its findings."""
    page = snapshot.read(lambda analysis: live.morning(analysis).page())
    doubts = [f"Doubtful: {each.text}" for each in page.unknowns if each.doubt]
    texts = (" ".join((each.lead, each.text)).strip() for each in page.findings)
    return "\n".join([page.title, *doubts, *(f"- {text}" for text in texts)])


def _page(snapshot: Snapshot, here: str, template: str, **context: Any) -> View:
    """A page of the console; with `sections`, those that are laid out already."""
    page = report(snapshot)
    laid = context.get("sections", ())
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
    sections = {section.id: section for section in report(snapshot).sections}
    names = (name for name in SECTIONS.get(here, ()) if name in sections)
    return [_laid_section(snapshot, sections[name]) for name in names]


def _laid_section(snapshot: Snapshot, section: Section) -> dict[str, Any]:
    return snapshot.cache(f"section {section.id}", lambda _: _laid(section))


def _laid(section: Section) -> dict[str, Any]:
    """A section, with the nodes and jobs of its tables as links."""
    links = {"node": NODE_LINK, "job_id": JOB_LINK, "cluster": CLUSTER_LINK}
    tables = []
    for each in section.tables:
        columns = {n: replace(form, link=links.get(n, "")) for n, form in each.columns.items()}
        tables.append(replace(each, columns=columns))
    return parts.lay_out(replace(section, tables=tables))


def of_report(snapshot: Snapshot, here: str) -> View:
    """A page of sections of the report: the summary, the failure rate or the ETTR."""
    template, empty, on_news = OF_REPORT[here]
    return _page(
        snapshot,
        here,
        template,
        sections=_sections(snapshot, here),
        page=report(snapshot),
        empty=empty,
        on_news=on_news,
    )


def morning(snapshot: Snapshot, person: Person | None = None, cluster: str = "") -> View:
    """The first screen: what changed since the reader's last look, under what makes it doubtful.

    Where the log has several clusters, it has a row for each, and each has such a screen of its own.
    """
    reader = person.name if person else ""
    key = f"{reader} {snapshot.read(lambda analysis: live.looks(analysis.log)).get(reader)}"
    news = snapshot.cache(f"morning {key}", lambda analysis: live.morning(analysis, reader=reader))
    if cluster and cluster not in news.clusters:
        links = {CLUSTER_LINK.format(quote(name)): name for name in news.clusters}
        raise Unknown(
            f"The log knows no cluster “{cluster}”.", "Choose one:", {"/": "All", **links}
        )
    own = news.clusters.get(cluster, news)
    page = snapshot.cache(f"morning page {key} {cluster}", lambda _: own.page())
    laid = [*map(_laid, page.sections)]
    word = access.word_for(person) if person else ""
    parts = {
        "sections": laid,
        "page": page,
        "word": word,
        "on_news": "show",
        "subtitle": cluster and f"Cluster {cluster}",
    }
    shown = ("loss", "rate", "lemons") if not news.clusters else ()
    tiles = [tile for tile in report(snapshot).tiles if tile.section_id in shown]
    return _page(snapshot, "/", "morning.html.j2", tiles=tiles, **parts)


def nodes(snapshot: Snapshot) -> View:
    """All nodes."""
    laid = snapshot.cache("nodes", lambda analysis: _laid(evidence.node_section(analysis)))
    return _page(snapshot, "/nodes", "nodes.html.j2", sections=[laid], empty="")


def node(snapshot: Snapshot, name: str) -> View:
    """The evidence on one node."""
    page = snapshot.read(lambda analysis: evidence.node(analysis, name))
    if page is None:
        raise Unknown(
            f"The log knows no node “{name}”.",
            "Check the name; the list has every node of the inventory and the logs.",
            {"/nodes": "All nodes"},
        )
    return _evidence(snapshot, "/nodes", page)


def job(snapshot: Snapshot, job_id: str) -> View:
    """One job."""
    page = snapshot.read(lambda analysis: evidence.job(analysis, job_id))
    if page is None:
        raise Unknown(
            f"The log has no job “{job_id}”.",
            "Write the id as sacct prints it, for example 93, 306_4 or 98+1; or search.",
            {f"/jobs?{urlencode({'q': job_id})}": "Search for it", "/jobs": "All jobs"},
        )
    return _evidence(snapshot, "/jobs", page)


def _evidence(snapshot: Snapshot, here: str, page: Page) -> View:
    laid = [_laid(section) for section in page.sections]
    return _page(snapshot, here, "evidence.html.j2", title=page.title, page=page, sections=laid)


def acting(snapshot: Snapshot, settings: Settings, person: Person | None) -> View:
    """What should be done about nodes, and the buttons of an operator."""
    decisions = snapshot.read(lambda analysis: actions.actions(analysis, settings))
    forms = []
    if person is not None and person.role == "operator":
        forms = [
            {"id": each.id, "node": actions.named(each), "deeds": actions.deeds(each)}
            for each in (
                *decisions.proposals,
                *(life for life in decisions.lives if life.state in OUT),
            )
            if person.may_act_on(each.cluster)
        ]
    laid = [_laid(section) for section in decisions.sections()]
    word = access.word_for(person) if person else ""
    return _page(
        snapshot,
        "/actions",
        "actions.html.j2",
        sections=laid,
        forms=forms,
        person=person,
        word=word,
        unknowns=decisions.unknowns(),
    )


def jobs(snapshot: Snapshot, words: str) -> View:
    """The jobs that lost most, or that match a search."""
    matches = snapshot.read(lambda analysis: _laid(evidence.find_jobs(analysis, words)))
    more = [] if words else _sections(snapshot, "/jobs")
    return _page(snapshot, "/jobs", "jobs.html.j2", words=words, sections=[matches, *more])
