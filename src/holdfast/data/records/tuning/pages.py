"""The page of a trial: which fidelity training needed, how sure that is, and what it saved."""

from __future__ import annotations

from itertools import pairwise

import altair as alt
import pyarrow as pa

from holdfast.data.records.tuning.tuned import Tuned, wilson
from holdfast.numbers import counted, interval, number, percent
from holdfast.report import (
    ColumnFormat,
    Figure,
    Finding,
    How,
    Page,
    Section,
    Table,
    Tile,
    Unknown,
    charts,
)
from holdfast.report.theme import colour

SHADES = ("hardware", "system", "good", "user", "purple", "sky")
"""Colours of the fidelities below full, from the lowest."""
SOURCE = "Kuchnik, Amvrosiadis, Smith, “Progressive Compressed Records”, VLDB 14(11), 2021"


def tuned_page(tuned: Tuned) -> Page:
    """The report of a trial."""
    low, high = (100 * end for end in wilson(tuned.correct, tuned.tested))
    return Page(
        title="Which fidelity does training need?",
        subtitle=f"{counted(tuned.images, 'training image')}, {counted(len(tuned.epochs), 'epoch')}",
        inputs=[
            ("Dataset", tuned.url),
            ("Fidelities", f"1 to {tuned.groups} (full)"),
            ("Model", str(tuned.settings.get("model", ""))),
            (
                "Settings",
                ", ".join(
                    f"{name} {value}" for name, value in tuned.settings.items() if name != "model"
                ),
            ),
        ],
        findings=_findings(tuned),
        tiles=[
            Tile(
                "Most epochs at fidelity",
                str(tuned.usual),
                f"of {tuned.groups}",
                section_id="fidelity",
            ),
            Tile(
                "Data read",
                number(tuned.saving, 2),
                "times less",
                note="than in full, probes counted",
                section_id="bytes",
            ),
            Tile(
                "Accuracy on held-out images",
                number(100 * tuned.accuracy, 1),
                "%",
                interval=f"{interval(low, high, 1)} at 95 %",
                note=f"{tuned.correct} of {tuned.tested}",
            ),
        ],
        sections=[
            _fidelity_section(tuned),
            *([_score_section(tuned)] if len(tuned.scores) else []),
            _bytes_section(tuned),
        ],
        unknowns=_unknowns(tuned),
    )


def _findings(tuned: Tuned) -> list[Finding]:
    share = percent((tuned.bytes_read + tuned.probe_bytes) / tuned.bytes_full)
    chosen = tuned.epochs["fidelity"].to_pylist()
    below = sum(fidelity < tuned.groups for fidelity in chosen)
    found = [
        Finding(
            f"{_megabytes(tuned.bytes_read + tuned.probe_bytes)} MB were read instead of "
            f"{_megabytes(tuned.bytes_full)} MB: {share} of the data, "
            f"{number(tuned.saving, 2)} times less.",
            "bytes",
        ),
        Finding(
            f"{below} of {counted(len(chosen), 'epoch')} were read below full fidelity, most of "
            f"all epochs at fidelity {tuned.usual} of {tuned.groups}.",
            "fidelity",
        ),
    ]
    if tuned.accuracy_full is not None:
        points = 100 * (tuned.accuracy - tuned.accuracy_full)
        found.append(
            Finding(
                f"{percent(tuned.accuracy, 1)} of {tuned.tested} held-out images are classified "
                f"rightly, and {percent(tuned.accuracy_full, 1)} after the same training at full "
                f"fidelity: {number(points, 1)} points of difference in one run of each.",
                "bytes",
            )
        )
    else:
        low, high = wilson(tuned.correct, tuned.tested)
        found.append(
            Finding(
                f"{percent(tuned.accuracy, 1)} of {tuned.tested} held-out images are classified "
                f"rightly (95 % interval {percent(low, 1)} to {percent(high, 1)}).",
                "bytes",
            )
        )
    if len(tuned.scores):
        last = _last_probe(tuned)
        found.append(
            Finding(
                f"In the last probe (epoch {last[0]['epoch']}) the lowest fidelity above the threshold "
                f"{number(tuned.threshold, 2)} was {_lowest_above(tuned, last)}.",
                "scores",
            )
        )
    return found


def _last_probe(tuned: Tuned) -> list[dict[str, object]]:
    rows = tuned.scores.to_pylist()
    return [row for row in rows if row["epoch"] == rows[-1]["epoch"]]


def _lowest_above(tuned: Tuned, probe: list[dict[str, object]]) -> str:
    for row in probe:
        score, low, high = row["score"], row["low"], row["high"]
        if isinstance(score, float) and tuned.threshold is not None and score > tuned.threshold:
            if row["fidelity"] == tuned.groups:
                return f"{tuned.groups}, full fidelity"
            known = isinstance(low, float) and isinstance(high, float)
            ends = f", 95 % interval {interval(low, high, 3)}" if known else ""  # type: ignore[arg-type]
            return f"{row['fidelity']} (score {score:.3f}{ends})"
    return "none"


def _fidelity_section(tuned: Tuned) -> Section:
    chosen = tuned.epochs["fidelity"].to_pylist()
    changes = sum(a != b for a, b in pairwise(chosen))
    return Section(
        "fidelity",
        "Which fidelity was chosen, and why?",
        f"The fidelity changed {counted(changes, 'time')}; {chosen.count(tuned.groups)} of "
        f"{counted(len(chosen), 'epoch')} were read in full.",
        figures=[_fidelity_figure(tuned)],
        tables=[
            Table(
                tuned.epochs.select(["epoch", "fidelity", "loss", "reason"]),
                {
                    "epoch": ColumnFormat(),
                    "fidelity": ColumnFormat(),
                    "loss": ColumnFormat("training loss", digits=4),
                    "reason": ColumnFormat(),
                },
                "One row an epoch.",
            )
        ],
        how=How(
            "fidelity = min { g : score(g) > threshold }",
            {
                name: tuned.settings[name]
                for name in ("policy", "every", "warmup", "last_full", "patience")
                if name in tuned.settings
            }
            | ({} if tuned.threshold is None else {"threshold": tuned.threshold}),
            SOURCE,
            "The fidelity rises at once when it no longer passes; it falls only with a margin, after "
            "several probes in a row, and while the job waits for storage.",
        ),
    )


def _fidelity_figure(tuned: Tuned) -> Figure:
    rows = tuned.epochs.select(["epoch", "fidelity", "reason"]).to_pylist()
    x = alt.X("epoch", type="quantitative").title("Epoch").axis(tickMinStep=1)
    y = alt.Y("fidelity", type="quantitative").title("Fidelity (groups read)")
    y = y.scale(domain=[0, tuned.groups + 0.5]).axis(values=list(range(1, tuned.groups + 1)))
    base = alt.Chart(charts.data(rows)).encode(
        x=x,
        y=y,
        tooltip=charts.tooltip({"epoch": "epoch", "fidelity": "fidelity", "reason": "why"}),
    )
    line = base.mark_line(interpolate="step", color=colour("user"))
    points = base.mark_point(filled=True, size=45, opacity=1, color=colour("user"))
    return Figure(alt.layer(line, points).properties(height=220))


def _score_section(tuned: Tuned) -> Section:
    probes = sorted(set(tuned.scores["epoch"].to_pylist()))
    unsure = [
        row
        for row in tuned.scores.to_pylist()
        if row["surely_above"] is not None and 0.025 < row["surely_above"] < 0.975
    ]
    below = sum(row["fidelity"] < tuned.groups for row in tuned.scores.to_pylist())
    sentence = (
        f"Of {counted(below, 'score')} in {counted(len(probes), 'probe')}, {len(unsure)} lie so near the "
        "threshold that other batches might say otherwise."
    )
    return Section(
        "scores",
        "How alike are gradients at lower fidelity?",
        sentence,
        figures=[_score_figure(tuned)],
        tables=[
            Table(
                tuned.scores,
                {
                    "epoch": ColumnFormat(),
                    "fidelity": ColumnFormat(),
                    "score": ColumnFormat(digits=3, interval=("low", "high")),
                    "surely_above": ColumnFormat("sure to pass", unit="%", digits=1),
                },
                "One row a probe and fidelity; in brackets the 95 % interval.",
            )
        ],
        how=How(
            [
                "score(g) = cos( Σ_b ∇L_b(full), Σ_b ∇L_b(g) ) over fixed batches b, without augmentation",
                "error² = (B−1)/B Σ_b (score without b − their mean)²",
                "interval = tanh( artanh(score) ± t · error / (1 − score²) )",
            ],
            {"batches B": tuned.settings.get("probe_batches", "")},
            SOURCE,
            "The interval is the jackknife's over batches: it says how the score would scatter with "
            "other batches, not with another training.",
        ),
    )


def _score_figure(tuned: Tuned) -> Figure:
    rows = [
        row | {"which": f"fidelity {row['fidelity']}"}
        for row in tuned.scores.to_pylist()
        if row["fidelity"] < tuned.groups
    ]
    below = sorted({row["fidelity"] for row in rows})
    legend = {f"fidelity {g}": SHADES[place % len(SHADES)] for place, g in enumerate(below)}
    x = alt.X("epoch", type="quantitative").title("Epoch").axis(tickMinStep=1)
    ends = [row[name] for row in rows for name in ("low", "score") if row[name] is not None]
    y = alt.Y("score", type="quantitative").title("Cosine of gradients with full fidelity")
    y = y.scale(domain=[min([0.0, *ends]), 1], clamp=True)
    paint = charts.meaning_colour("which", legend)
    base = alt.Chart(charts.data(rows)).encode(
        x=x,
        color=paint,
        tooltip=charts.tooltip(
            {
                "epoch": "epoch",
                "which": "of",
                "score": ("score", ".3f"),
                "low": ("from", ".3f"),
                "high": ("to", ".3f"),
            }
        ),
    )
    layers: list[alt.Chart] = [
        base.mark_rule(strokeWidth=1.5).encode(y=charts.same_axis(y, "low"), y2=alt.Y2("high")),
        base.mark_line().encode(y=y),
        base.mark_point(filled=True, size=45, opacity=1).encode(y=y),
    ]
    if tuned.threshold is not None:
        told = alt.Chart(charts.data([{"threshold": tuned.threshold}]))
        rule = told.mark_rule(strokeDash=[4, 4], color=colour("muted"))
        layers.append(rule.encode(y=charts.same_axis(y, "threshold")))
    note = "" if tuned.threshold is None else f"Dashed: the threshold {tuned.threshold:g}."
    return Figure(alt.layer(*layers).properties(height=280), legend=legend, caption=note)


def _bytes_section(tuned: Tuned) -> Section:
    total = tuned.bytes_read + tuned.probe_bytes
    x = alt.X("epoch", type="quantitative").title("Epoch").axis(tickMinStep=1)
    y = alt.Y("megabytes", type="quantitative").title("Bytes read so far (MB)")
    rows, read, full = [], tuned.probe_bytes, 0
    for row in tuned.epochs.to_pylist():
        read, full = read + row["bytes"], full + row["bytes_full"]
        for which, value in (("chosen fidelity", read), ("full fidelity", full)):
            rows.append({"epoch": row["epoch"], "which": which, "megabytes": value / 1e6})
    legend = {"full fidelity": "muted", "chosen fidelity": "user"}
    chart = alt.Chart(charts.data(rows)).mark_line(point={"filled": True, "size": 30})
    chart = chart.encode(
        x=x,
        y=y,
        color=charts.meaning_colour("which", legend),
        tooltip=charts.tooltip({"epoch": "epoch", "which": "read at", "megabytes": ("MB", ",.2f")}),
    )
    return Section(
        "bytes",
        "How much data did that save?",
        f"{_megabytes(total)} MB were read, {_megabytes(tuned.probe_bytes)} MB of them for probes, "
        f"where full fidelity reads {_megabytes(tuned.bytes_full)} MB.",
        figures=[Figure(chart.properties(height=260), legend=legend)],
        tables=[
            Table(
                tuned.fidelities.append_column(
                    "epochs",
                    pa.array(
                        [
                            tuned.epochs["fidelity"].to_pylist().count(g)
                            for g in tuned.fidelities["fidelity"].to_pylist()
                        ],
                        pa.int64(),
                    ),
                ),
                {
                    "fidelity": ColumnFormat(),
                    "scans_end": ColumnFormat("last scan"),
                    "bytes": ColumnFormat("a pass reads", unit="bytes"),
                    "cumulative_fraction": ColumnFormat("share of full", unit="%", digits=1),
                    "msssim": ColumnFormat("MS-SSIM", digits=4),
                    "epochs": ColumnFormat("epochs read at it"),
                },
                "One row a fidelity.",
            )
        ],
        how=How(
            "saving = bytes of all epochs at full fidelity / (bytes read for training + for probes)",
            notes="Bytes are those that the store gave; the images of the probes are read once. Records "
            "are read whole, so that images held out for the test count in both.",
        ),
    )


def _unknowns(tuned: Tuned) -> list[Unknown]:
    found = []
    if tuned.accuracy_full is None:
        found.append(
            Unknown(
                "The accuracy that training at full fidelity would have reached was not measured.",
                "Run it with against_full (--against-full).",
            )
        )
    found.append(
        Unknown(
            "This is one run with one seed and one model: another model may need another fidelity.",
            "Run it with the model that you train (--model), and with other seeds (--seed).",
        )
    )
    return found


def _megabytes(size: int) -> str:
    return number(size / 1e6, 2 if size < 1e8 else 0)
