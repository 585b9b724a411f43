"""`holdfast lm audit memorization`, `bias`, `toxicity` and `cloze`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from holdfast.command import Answer, option, room
from holdfast.lm.query.live import Notes, watching
from holdfast.lm.query.options import Model, open_model

app = room("audit", "Audit a model for memorization, bias, toxicity or cloze accuracy.")

Template = Annotated[Path, option(metavar="FILE", help="TOML file that describes the audit.")]


@app.command
def memorization(*, template: Template, model: Model) -> Answer:
    """Extract the most probable texts of a pattern and look for known training texts among them.

    Exit code 1 if the audit stopped before it was complete.
    """
    from holdfast.lm.query.audits.memorization import audit_memorization
    from holdfast.lm.query.audits.templates import read_template

    read: Any = read_template(template, "memorization")
    opened = open_model(model)
    notes = Notes()
    with watching(notes) as watch:
        audit = audit_memorization(opened, read, watch=watch)
    notes.show(audit.extracted.notes)
    return audit


@app.command
def bias(*, template: Template, model: Model) -> Answer:
    """Measure how outcomes depend on a group: exact shares and odds ratios, then samples.

    Exit code 1 if the audit stopped before it was complete.
    """
    from holdfast.lm.query.audits.bias import audit_bias
    from holdfast.lm.query.audits.templates import read_template

    read: Any = read_template(template, "bias")
    opened = open_model(model)
    return audit_bias(opened, read)


@app.command
def toxicity(*, template: Template, model: Model) -> Answer:
    """Bound the probability of listed words, unprompted and after prompts.

    Exit code 1 if the audit stopped before it was complete.
    """
    from holdfast.lm.query.audits.templates import read_template
    from holdfast.lm.query.audits.toxicity import audit_toxicity

    read: Any = read_template(template, "toxicity")
    opened = open_model(model)
    return audit_toxicity(opened, read)


@app.command
def cloze(*, template: Template, model: Model) -> Answer:
    """Measure how often the most probable last word of a passage is the right one.

    Exit code 1 if the audit stopped before it was complete.
    """
    from holdfast.lm.query.audits.cloze import audit_cloze
    from holdfast.lm.query.audits.templates import read_template

    read: Any = read_template(template, "cloze")
    opened = open_model(model)
    return audit_cloze(opened, read)
