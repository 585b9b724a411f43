"""When to spend power: grid signals, the CO2 of past jobs, plans that shift work to cleaner hours.

    signal = holdfast.carbon.read_signal("CISO_2022_hourly.csv")
    load = holdfast.carbon.read_load("load.csv")
    holdfast.carbon.plan(load, signal, flex=0.4, cap=125).saved_share

Names are imported when they are first used, so that a command that needs one does not pay for all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import lazily

if TYPE_CHECKING:
    from holdfast.carbon.accounting import account
    from holdfast.carbon.comparing import compare
    from holdfast.carbon.formats import read_signal
    from holdfast.carbon.planning import plan
    from holdfast.carbon.problems import Event
    from holdfast.carbon.rolling_horizon import rolling
    from holdfast.carbon.schedules import write_schedule
    from holdfast.carbon.signals import Signal
    from holdfast.carbon.workloads import Load, Workload, read_load

_HOMES = {
    "Event": "problems",
    "Load": "workloads",
    "Signal": "signals",
    "Workload": "workloads",
    "account": "accounting",
    "compare": "comparing",
    "plan": "planning",
    "read_load": "workloads",
    "read_signal": "formats",
    "rolling": "rolling_horizon",
    "write_schedule": "schedules",
}

__all__ = [
    "Event",
    "Load",
    "Signal",
    "Workload",
    "account",
    "compare",
    "plan",
    "read_load",
    "read_signal",
    "rolling",
    "write_schedule",
]

__getattr__ = lazily(__name__, _HOMES)
