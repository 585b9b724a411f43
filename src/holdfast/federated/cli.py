"""`holdfast federated`: each command calls the function of the same name and returns its result."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from holdfast.command import Answer, Count, Positive, option, room

app = room(
    "federated", "Learning on devices that differ: rules, device simulation, failing clients."
)

_Rule = Literal["fedavg", "median", "trimmed-mean", "krum", "multi-krum", "bulyan"]
_Config = Annotated[Path, option(metavar="CONFIG.toml")]


@app.command
def run(config: _Config, /, *, resume: bool = False) -> Answer:
    """Train a model over many clients, with a rule that survives those that fail or lie.

    Args:
        config: Data, clients, model, rule and training.
        resume: Continue an interrupted run, or one that shall have more rounds.
    """
    from holdfast.federated.configuration import run_config

    return run_config(config, resume)


@app.command
def characterize(config: _Config, /) -> Answer:
    """Train on each device and test on every other; say which stage of the camera costs most.

    Args:
        config: Data, model, devices and training, as for `run`; rounds are passes over the photos.
    """
    from holdfast.federated.device_gap import characterize as compute

    return compute(config)


@app.command
def study(
    config: _Config,
    /,
    *,
    seeds: Positive = 5,
    leave_out: bool = False,
    processes: Positive = 1,
    ray: Annotated[str | None, option(metavar="URL")] = None,
) -> Answer:
    """Compare rules on the same devices and photos: mean, worst device, variance over devices.

    Args:
        config: Data, model, devices and training, as for `run`, and the rules under compare.
        seeds: Number of seeds.
        leave_out: Also train without the clients of each device, and test on it.
        processes: Number of worker processes.
        ray: Ray cluster to run on, such as ray://head:10001, or local.
    """
    from holdfast.federated.rule_study import study as compute

    return compute(config, seeds, leave_out, processes, ray)


@app.command
def aggregate(
    updates: Annotated[list[Path], option(metavar="UPDATE.safetensors...")],
    /,
    *,
    output: Annotated[Path, option("--output", "-o", metavar="OUT")],
    rule: _Rule = "fedavg",
    f: Count = 1,
    largest_norm: Annotated[float | None, option(at_least=0, metavar="NORM")] = None,
) -> Answer:
    """Aggregate updates of clients, without those that are not finite or do not fit.

    Args:
        updates: Weights as tensors; the metadata has the number of examples.
        output: File of the aggregated weights (safetensors).
        rule: Aggregation rule.
        f: Number of lying clients that the rule has to withstand (not fedavg).
        largest_norm: Exclude updates farther than this from the median of all.
    """
    from holdfast.federated.update_files import aggregate_files

    return aggregate_files(updates, output, rule, f, largest_norm)


ledger = room("ledger", "Contribution ledgers: who took part, with what, and what it got back.")
app.command(ledger)


@ledger.command
def verify(
    file: Annotated[Path, option(metavar="FILE")],
    /,
    *,
    key: Annotated[str | None, option(metavar="HEX")] = None,
    head: Annotated[str | None, option(metavar="HASH")] = None,
) -> Answer:
    """Check chain, signatures and balances of a ledger; exit with 1 and the first bad entry.

    Args:
        file: Ledger, with its .head file beside it.
        key: Public key of the server (default: the one that the ledger names).
        head: Published hash of a line that the ledger has to contain.
    """
    from holdfast.federated.contribution_ledger import verify_ledger

    return verify_ledger(file, key, head)
