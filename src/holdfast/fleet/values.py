"""The figures by which two answers about a fleet are compared (`holdfast diff`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.answer import Value
from holdfast.fleet.job_sizes import bucket_label

if TYPE_CHECKING:
    from holdfast.fleet.ettr_forms import EttrResult
    from holdfast.fleet.ettr_measured import MeasuredEttr
    from holdfast.fleet.failures import Mttf
    from holdfast.fleet.losses import Goodput
    from holdfast.fleet.node_ranking import Lemons
    from holdfast.fleet.page import FleetReport
    from holdfast.fleet.state_mix import Status

PAPER = "arXiv 2410.21680v2"


def report_values(result: FleetReport) -> list[Value]:
    """Losses, the failure rate, lemon nodes and the measured ETTR."""
    analysis = result.analysis
    values = goodput_values(analysis.goodput)
    if analysis.mttf is not None:
        values += mttf_values(analysis.mttf)
    if analysis.nodes_known:
        values += lemon_values(analysis.lemons)
    unattributed, failures = analysis.unattributed
    share = unattributed / failures if failures else None
    values.append(
        Value("unattributed_share", share, better="lower", how="failures without a check")
    )
    return values + measured_values(analysis.measured)


def goodput_values(result: Goodput) -> list[Value]:
    """GPU-hours and the shares that were lost; shares compare over windows of different length."""
    total = result.total_gpu_hours
    orders = {
        "lost_share": result.lost_gpu_hours,
        "lost_first_order_share": result.lost_first_order,
        "lost_second_order_share": result.lost_second_order,
    }
    values = [Value("total_gpu_hours", total, "GPU-hours")]
    for name, lost in orders.items():
        share = lost / total if total else None
        values.append(Value(name, share, better="lower", how="lost / all GPU-hours", source=PAPER))
    return values


def mttf_values(result: Mttf) -> list[Value]:
    """The failure rate with its exact interval."""
    model = result.model
    low, high = model.ci95_
    return [
        Value(
            "failures_per_1000_node_days",
            model.rate_per_1000_node_days_,
            "per 1,000 node-days",
            (low, high),
            "lower",
            "failures / node-days, exact Poisson interval",
        )
    ]


def lemon_values(result: Lemons) -> list[Value]:
    """How many nodes fail more than their exposure explains."""
    return [Value("lemon_nodes", len(result.lemons), "nodes", better="lower")]


def measured_values(result: MeasuredEttr) -> list[Value]:
    """The measured ETTR of long runs by job size."""
    values = []
    for row in result.to_dict()["by_size"]:  # type: ignore[attr-defined]
        name = f"ettr_{bucket_label(int(row['gpus_max']))}_gpus"
        values.append(Value(name, row["ettr"], "", (row["lo"], row["hi"]), "higher", source=PAPER))
    return values


def ettr_values(result: EttrResult) -> list[Value]:
    """The exact expected ETTR and the best one."""
    return [
        Value("exact_ettr", result.exact, better="higher"),
        Value("optimal_ettr", result.optimal_ettr, better="higher"),
    ]


def status_values(result: Status) -> list[Value]:
    """Share of each final state by count and by GPU time."""
    shares = result.to_dict()
    return [
        Value(f"{state.lower()}_share_{name}", share)
        for name in ("by_count", "by_gpu_time")
        for state, share in shares[name].items()  # type: ignore[attr-defined]
    ]
