"""Input pipelines: which stage limits one, what would change it, and settings that are verified.

traced = pipeline.trace(loader)              # a torch DataLoader, wrapped inside its workers
pipeline.explain(traced).bottleneck
tuned = pipeline.tune(make_loader)           # predicts, tries, rolls back
loader = pipeline.apply(loader, tuned.settings)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import lazily

if TYPE_CHECKING:
    from holdfast.data.pipeline.cache_plan import CachePlan
    from holdfast.data.pipeline.explanation import Explanation, explain
    from holdfast.data.pipeline.graph import Pipeline
    from holdfast.data.pipeline.running import Failure, SampleFailures
    from holdfast.data.pipeline.stages import Resources, Stage, Trace
    from holdfast.data.pipeline.tracing import trace
    from holdfast.data.pipeline.tuning import Tuning, apply, tune

_HOMES = {
    "CachePlan": "cache_plan",
    **dict.fromkeys(["Explanation", "explain"], "explanation"),
    **dict.fromkeys(["Failure", "SampleFailures"], "running"),
    **dict.fromkeys(["Resources", "Stage", "Trace"], "stages"),
    **dict.fromkeys(["Tuning", "apply", "tune"], "tuning"),
    "Pipeline": "graph",
    "trace": "tracing",
}

__all__ = [
    "CachePlan",
    "Explanation",
    "Failure",
    "Pipeline",
    "Resources",
    "SampleFailures",
    "Stage",
    "Trace",
    "Tuning",
    "apply",
    "explain",
    "trace",
    "tune",
]

__getattr__ = lazily(__name__, _HOMES)
