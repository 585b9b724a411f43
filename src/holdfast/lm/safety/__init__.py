"""The AI safety benchmark: a test specification, runs that resume, grades with their uncertainty.

    from holdfast.lm import safety
    safety.run("spec.toml", "openai:http://127.0.0.1:8000/v1#MODEL", "runs/one")
    safety.grade("runs/one", "v0.5").p_grade

Names are imported when they are first used, so that a command that needs one does not pay for all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import lazily

if TYPE_CHECKING:
    from holdfast.lm.safety.calibration import calibrate
    from holdfast.lm.safety.comparing import compare
    from holdfast.lm.safety.ensemble import Ensemble
    from holdfast.lm.safety.grading import grade
    from holdfast.lm.safety.running import annotate, resume, run
    from holdfast.lm.safety.specification import count_items, import_ailuminate, read_specification

_HOMES = {
    "Ensemble": "ensemble",
    "annotate": "running",
    "calibrate": "calibration",
    "compare": "comparing",
    "count_items": "specification",
    "grade": "grading",
    "import_ailuminate": "specification",
    "read_specification": "specification",
    "resume": "running",
    "run": "running",
}

__all__ = [
    "Ensemble",
    "annotate",
    "calibrate",
    "compare",
    "count_items",
    "grade",
    "import_ailuminate",
    "read_specification",
    "resume",
    "run",
]

__getattr__ = lazily(__name__, _HOMES)
