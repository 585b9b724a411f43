"""Where things are in the console: the pages, and on which of them each section of the report stands."""

from __future__ import annotations

NODE_LINK = "/nodes/{}"
JOB_LINK = "/jobs/{}"

PAGES = {
    "/": "Morning summary",
    "/rate": "Failure rate",
    "/nodes": "Nodes",
    "/jobs": "Jobs",
    "/ettr": "ETTR explorer",
    "/whatif": "What if",
}
"""Address -> name, in the order of the navigation."""

SECTIONS = {
    "/": ("loss", "causes", "preemptions", "status"),
    "/rate": ("rate", "mttf"),
    "/nodes": ("lemons",),
    "/jobs": ("loops", "owners"),
    "/ettr": ("ettr",),
}
"""Address -> the sections of the report that stand there."""

PLACES = {
    **{section: f"{page}#{section}" for page, sections in SECTIONS.items() for section in sections},
    "unknown": "/#unknown",
}
"""Section -> its address."""
