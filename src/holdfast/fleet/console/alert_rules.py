"""The Prometheus alert rules that ship with the console."""

from __future__ import annotations

from importlib import resources


def alert_rules() -> str:
    """The rules as a YAML file for `rule_files` of Prometheus."""
    folder = resources.files("holdfast.fleet.console")
    return folder.joinpath("alerts.yaml").read_text(encoding="utf-8")
