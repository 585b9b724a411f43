"""The verdict: the heaviest find of the last attempt, in words, with its reasons and its evidence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Literal

from holdfast.runs.diagnosis.events import Event
from holdfast.runs.diagnosis.results import Diagnosis, EarlierAttempt, Evidence, Other
from holdfast.runs.diagnosis.rules import TRACEBACK, Rule, RuleSet
from holdfast.runs.diagnosis.shapes import FileScan
from holdfast.runs.diagnosis.tracebacks import FirstFailure
from holdfast.runs.diagnosis.weighing import Find, attempts_of, finds_of, weighed
from holdfast.runs.ranks import ranges

SHOWN = 500
"""Characters of an evidence line."""
MOST_EVIDENCE = 6
_CERTAIN, _LIKELY = 70, 50
"""Weights from which a cause is called so."""


def judged(files: Sequence[FileScan], rules: RuleSet, facts: dict[str, Any]) -> Diagnosis:
    """The verdict on what the files of a failed run hold.

    Args:
        files: what each holds.
        rules: by which it was found.
        facts: the fields of `Diagnosis` that do not depend on the verdict.
    """
    found = [find for find in finds_of(files, rules) if find.rule.kind != "info"]
    attempts = attempts_of(found)
    groups: dict[int, list[Find]] = {}
    for find in found:
        if find.rule.kind != "restart":
            groups.setdefault(attempts[find.place], []).append(find)
    count = 1 + max(attempts.values(), default=0)
    if not groups:
        return _nothing(facts, count)
    failures = _failures_by_attempt(files, found, attempts)
    restarts = [find.place for find in found if find.rule.kind == "restart"]
    ordered = {
        attempt: _in_order(weighed(group, failures.get(attempt, []), restarts))
        for attempt, group in groups.items()
    }
    last = max(ordered)
    finds, order_known = ordered[last]
    chosen = _with_rank(finds)
    if chosen.survived:
        return _survived(finds, facts, count)
    earlier = [
        _earlier_attempt(attempt, ordered[attempt][0][0]) for attempt in sorted(ordered)[:-1]
    ]
    named = dict(chosen.event.groups)
    symptom = rules.symptom_of(chosen.rule, named)
    others = _others(finds[1:], chosen)
    first_failures = failures.get(last, [])
    return Diagnosis(
        cause=chosen.rule.id,
        sentence=_sentence(chosen),
        kind=chosen.rule.kind,
        symptom=symptom,
        label=None if symptom is None else rules.taxonomy.symptoms[symptom].label,
        domains=rules.domains_of(chosen.rule, named),
        remedy=chosen.rule.remedy,
        confidence=_confidence(chosen, others),
        why=tuple(_reasons(chosen, finds, others, order_known, first_failures, last + 1, count)),
        first_rank=chosen.rank,
        host=named.get("host", ""),
        time=_iso(chosen),
        traceback=_traceback(chosen),
        order_known=order_known,
        evidence=tuple(_evidence(chosen, others, first_failures, files)),
        cascade=tuple(others),
        attempts=count,
        earlier=tuple(earlier),
        **facts,
    )


def _nothing(facts: dict[str, Any], attempts: int) -> Diagnosis:
    unknown = facts["unknown_templates"]
    most = (
        f"; the most suspicious of {len(unknown)} unknown templates: {unknown[0].template}"
        if unknown
        else ""
    )
    return Diagnosis(
        cause=None,
        sentence=f"No rule knows an error in these {facts['lines']:,} lines{most}.",
        remedy="Look at the unknown templates; one that tells something becomes a rule (--rules).",
        attempts=attempts,
        **facts,
    )


def _survived(finds: Sequence[Find], facts: dict[str, Any], attempts: int) -> Diagnosis:
    """No cause: the run went on after every error that a rule knows."""
    nothing = _nothing(facts, attempts)
    others = _others(finds, replace(finds[0], survived=False))
    names = ", ".join(dict.fromkeys(other.cause for other in others))
    return replace(
        nothing,
        sentence=f"No failure found: the run went on after every error that a rule knows ({names}).",
        remedy="If the run did fail, the log may end before the failure; add the logs of all ranks.",
        evidence=tuple(map(_cascade, others[:MOST_EVIDENCE])),
        cascade=tuple(others),
    )


def _failures_by_attempt(
    files: Sequence[FileScan], finds: Sequence[Find], attempts: Mapping[tuple[int, int], int]
) -> dict[int, list[FirstFailure]]:
    """The summaries of torchrun; one stands at the end of the last attempt of its launcher."""
    last = max((attempts[find.place] for find in finds), default=0)
    return {last: [failure for file in files for failure in file.finds.failures]}


def _in_order(finds: Sequence[Find]) -> tuple[list[Find], bool]:
    """The heaviest first, of equals the earliest; and whether what is earliest is known."""
    heaviest = max(find.weight for find in finds)
    top = [find for find in finds if find.weight == heaviest]
    one_file = len({find.event.file for find in top}) == 1
    timed = all(find.time_s is not None for find in top)

    def earliest(find: Find) -> tuple[float, int, int, int]:
        time = find.time_s if timed and not one_file and find.time_s is not None else 0.0
        rank = find.rank if find.rank is not None else 1 << 30
        if one_file:
            return (time, find.event.line, rank, 0)
        return (time, rank, find.event.file, find.event.line)

    rest = sorted((find for find in finds if find.weight < heaviest), key=lambda find: find.place)
    return [*sorted(top, key=earliest), *rest], one_file or timed


def _with_rank(finds: Sequence[Find]) -> Find:
    """The first find; where its line names no rank, that of the next line of the same kind."""
    chosen = finds[0]
    if chosen.rank is not None:
        return chosen
    ranks = [
        find.rank
        for find in finds
        if find.rule.id == chosen.rule.id
        and find.rank is not None
        and find.event.file == chosen.event.file
        and find.weight == chosen.weight
    ]
    return replace(chosen, rank=ranks[0]) if ranks else chosen


def _others(finds: Iterable[Find], chosen: Find) -> list[Other]:
    """The rest, one entry a rule (and whether it was survived)."""
    groups: dict[tuple[str, bool], list[Find]] = {}
    for find in finds:
        if find.rule.id != chosen.rule.id or find.survived != chosen.survived:
            groups.setdefault((find.rule.id, find.survived), []).append(find)
    made = []
    for (cause, survived), group in groups.items():
        first = min(group, key=_by_time)
        kinds = {
            (find.event.file, find.event.rank, find.event.variant): find.count for find in group
        }
        ranks = sorted({find.rank for find in group if find.rank is not None})
        made.append(
            (
                _by_time(first),
                Other(
                    cause,
                    first.rule.kind,
                    sum(kinds.values()),
                    tuple(ranks[:100]),
                    first.file.log.name,
                    first.event.line + 1,
                    first.event.text[:SHOWN],
                    survived,
                ),
            )
        )
    return [other for _, other in sorted(made, key=lambda pair: pair[0])]


def _by_time(find: Find) -> tuple[float, int, int]:
    return (find.time_s if find.time_s is not None else float("inf"), *find.place)


def _shown(find: Find, role: Literal["cause", "cascade", "summary"]) -> Evidence:
    return Evidence(find.file.log.name, find.event.line + 1, find.event.text[:SHOWN], role)


def _cascade(other: Other) -> Evidence:
    return Evidence(other.file, other.line, other.text, "cascade")


def _evidence(
    chosen: Find,
    others: Sequence[Other],
    failures: Sequence[FirstFailure],
    files: Sequence[FileScan],
) -> list[Evidence]:
    shown = [_shown(chosen, "cause")]
    for failure in failures[:1]:
        file = next(file for file in files if failure in file.finds.failures)
        code = "unknown" if failure.exit_code is None else str(failure.exit_code)
        rank = "unknown" if failure.rank is None else str(failure.rank)
        text = f"torchrun: first observed failure: rank {rank}, exit code {code}"
        shown.append(Evidence(file.log.name, failure.line + 1, text, "summary"))
    shown += [_cascade(other) for other in others if not other.survived]
    return shown[:MOST_EVIDENCE]


class _Blank(dict[str, str]):
    """Groups by name; those that did not take part in the match are empty."""

    def __missing__(self, name: str) -> str:
        return ""


def _fields(event: Event, find: Find) -> _Blank:
    named = _Blank(event.groups)
    if (traceback := find.traceback) is not None:
        named["exception"] = traceback.exception
        named["message"] = traceback.message
        named["frame"] = _short(traceback.frame)
    else:
        named["message"] = event.text[:200]
        named["frame"] = "an unknown place"
    return named


def _short(frame: str) -> str:
    """``/a/b/train.py:12 step`` -> ``step (train.py:12)``."""
    place, _, function = frame.partition(" ")
    place = place.rsplit("/", 1)[-1]
    return f"{function} ({place})" if function else place


def _cause_text(find: Find) -> str:
    text = find.rule.cause.format_map(_fields(find.event, find)).strip().rstrip(":., ")
    return " ".join(text.split())


def _sentence(find: Find) -> str:
    text = _cause_text(find)
    who = [] if find.rank is None else [f"rank {find.rank}"]
    where = ", ".join([*who, f"{find.file.log.name}:{find.event.line + 1}"])
    return f"{text[:1].upper()}{text[1:]} ({where})."


def _earlier_attempt(attempt: int, find: Find) -> EarlierAttempt:
    file, line = find.file.log.name, find.event.line + 1
    return EarlierAttempt(attempt + 1, find.rule.id, _sentence(find), file, line)


def _confidence(chosen: Find, others: Sequence[Other]) -> Literal["high", "medium", "low"]:
    rivals = any(other.kind in ("root", "vague") and not other.survived for other in others)
    if chosen.weight >= _CERTAIN or (
        chosen.rule.id == TRACEBACK and not chosen.note and not rivals
    ):
        return "high"
    return "medium" if chosen.weight >= _LIKELY else "low"


def _reasons(
    chosen: Find,
    finds: Sequence[Find],
    others: Sequence[Other],
    order_known: bool,
    failures: Sequence[FirstFailure],
    attempt: int,
    attempts: int,
) -> Iterable[str]:
    if attempts > 1:
        yield f"The run had {attempts} attempts; this is about attempt {attempt}."
    yield _what_kind(chosen.rule)
    if chosen.note:
        yield f"Note: {chosen.note}."
    if not order_known:
        yield "Without times in all files, what came first over the ranks is not known."
    alike = {
        find.rank for find in finds if find.rule.id == chosen.rule.id and find.rank is not None
    }
    if chosen.rule.symptom == "nccl_timeout" and alike and chosen.rule.kind == "cascade":
        yield f"Ranks that complain: {ranges(alike)}; look at the one that does not."
    elif len(alike) > 1 and order_known:
        yield f"{len(alike)} ranks show it; rank {chosen.rank} is the first."
    after = [other for other in others if other.kind == "cascade" and not other.survived]
    if after and chosen.rule.kind != "cascade":
        count = sum(other.count for other in after)
        kinds = ", ".join(other.cause for other in after[:4])
        yield f"{count:,} lines of lesser weight are its likely consequence: {kinds}."
    rivals = [
        other.cause for other in others if other.kind in ("root", "vague") and not other.survived
    ]
    if rivals:
        yield f"Also found, with less weight or later: {', '.join(rivals[:4])}."
    if any(other.survived for other in others):
        yield "Errors that the run went on after count little."
    for failure in failures[:1]:
        if failure.rank is not None and chosen.rank is not None and failure.rank != chosen.rank:
            yield (
                f"torchrun names rank {failure.rank} first, whose lines show a consequence: "
                "it saw that process end first, not fail first."
            )


def _what_kind(rule: Rule) -> str:
    if rule.kind == "root":
        return "The line names what went wrong by itself."
    if rule.kind == "vague":
        return (
            "The line says that something went wrong here, but not why; nothing better was found."
        )
    return (
        "Only consequences of trouble elsewhere are known to a rule; no known line names the cause."
    )


def _iso(find: Find) -> str | None:
    if find.time_s is None or (find.event.moment is not None and find.time_s < 1e9):
        return None
    return datetime.fromtimestamp(find.time_s, UTC).isoformat(timespec="milliseconds")[:-6]


def _traceback(find: Find) -> dict[str, Any] | None:
    if (found := find.traceback) is None:
        return None
    return {
        "exception": found.exception,
        "message": found.message,
        "frame": found.frame,
        "frames": list(found.frames),
        "file": find.file.log.name,
        "line": found.start + 1,
    }
