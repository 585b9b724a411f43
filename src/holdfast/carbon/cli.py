"""`holdfast carbon`: each command calls the function of the same name and returns its result."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from holdfast.command import Answer, Duration, Options, Share, option, room

if TYPE_CHECKING:
    from holdfast.carbon.signals import Signal
    from holdfast.carbon.workloads import Load

app = room("carbon", "CO2 of machine time, and when to spend power.")


@Options
@dataclass(frozen=True)
class SignalOptions:
    """How a file with a grid signal is read."""

    zone: str = ""
    """Zone to read, where a file has several; the name of the zone, where it has none."""
    timezone: Annotated[str, option(metavar="ZONE")] = ""
    """Time zone of times that state none, such as America/Los_Angeles."""
    scope: Literal["", "lifecycle", "direct"] = ""
    """Emissions over the life of a plant (default), or of its fuel alone, where a file has both."""

    def read(self, path: Path) -> Signal:
        """The signal of a file."""
        from holdfast.carbon.formats import read_signal

        return read_signal(path, zone=self.zone, timezone=self.timezone, scope=self.scope)


@Options
@dataclass(frozen=True, kw_only=True)
class PlanOptions(SignalOptions):
    """What is planned, and within which limits."""

    load: Annotated[Path, option(metavar="FILE")]
    """CSV with a column of times and one column of MW per workload."""
    signal: Annotated[Path, option(metavar="FILE")]
    """Average or marginal intensity; formats as for `account`."""
    penalties: Annotated[Path | None, option(metavar="FILE")] = None
    """What moving each workload costs (TOML or JSON; default: nothing)."""
    flex: Share = 0.4
    """Share of its power that a workload can curtail."""
    cap: Annotated[float | None, option(metavar="MW", at_least=0)] = None
    """Maximum power of the whole site (default: the most that the load draws)."""
    window: Duration = 86_400.0
    """Time within which batch work is made up for."""

    def opened(self) -> tuple[Load, Signal]:
        """The load and the signal."""
        from holdfast.carbon.workloads import read_load

        load = read_load(self.load, timezone=self.timezone, penalties=self.penalties)
        return load, self.read(self.signal)


@app.command
def account(
    store: Path,
    /,
    *,
    intensity: Annotated[str, option(metavar="FILE|NUMBER")],
    energy: Annotated[Path | None, option(metavar="FILE")] = None,
    checkpoint: Duration | None = None,
    reading: SignalOptions = SignalOptions(),
    pue: float = 1.1,
    watts_per_gpu: Annotated[float, option(metavar="W", at_least=0)] = 400.0,
) -> Answer:
    """Account for the CO2 of past jobs, by user, month, job and node, and of failed work.

    Args:
        store: Store folder that `holdfast fleet ingest` wrote.
        intensity: Average intensity: g CO2/kWh of every hour, such as 385, or a file of hours: EIA-930,
            ENTSO-E, Electricity Maps, WattTime, the UK's API, or CSV with timestamp,value,unit,kind.
        energy: Measured energy by job: sacct's JobIDRaw and ConsumedEnergyRaw, codecarbon (experiment_id
            is the job), or CSV with job,energy_kwh.
        checkpoint: Time between checkpoints: a failure loses half of it (default: 1h).
        pue: Power usage effectiveness: energy of the site over energy of its machines.
        watts_per_gpu: Mean power per allocated GPU, with its share of the server.
    """
    from holdfast.carbon.accounting import account as run

    try:
        signal: Signal | float = float(intensity)
    except ValueError:
        signal = reading.read(Path(intensity))
    options: dict[str, Any] = {"energy": energy, "checkpoint_s": checkpoint}
    return run(store, signal, pue=pue, watts_per_gpu=watts_per_gpu, **options)


@app.command
def plan(
    *,
    options: PlanOptions,
    policy: Literal["efficient", "fair"] = "efficient",
    strength: Annotated[float | None, option(at_least=0)] = None,
    ramp: Annotated[float | None, option(metavar="MW/h", at_least=0)] = None,
    event: Annotated[str, option(metavar="START..END")] = "",
    shed: Annotated[float | None, option(metavar="MW", at_least=0)] = None,
    price: Annotated[Path | None, option(metavar="FILE")] = None,
    carbon_price: Annotated[float | None, option(at_least=0)] = None,
    forecast: bool = False,
    output: Annotated[Path | None, option("--output", "-o", metavar="FILE")] = None,
    form: Literal["csv", "json", "slurm", "nvidia-smi"] = "csv",
    watts_per_node: Annotated[float, option(metavar="W")] = 10_000.0,
    idle_watts_per_node: Annotated[float | None, option(metavar="W")] = None,
    watts_per_gpu: Annotated[float, option(metavar="W")] = 700.0,
    least_watts_per_gpu: Annotated[float, option(metavar="W")] = 200.0,
) -> Answer:
    """Shift load to cleaner hours at a provable optimum.

    Args:
        policy: Least total penalty, or equal burden.
        strength: Penalty units per t CO2 (efficient), or at most per MWh of entitlement (fair).
        ramp: Most change of the site's power from one hour to the next.
        event: Demand response: hours in which the site sheds power.
        shed: Power shed in the event, below that without a plan.
        price: Price of energy per MWh (ENTSO-E, or CSV with timestamp,value,unit,kind), saved beside CO2.
        carbon_price: What a tonne of CO2 is worth, in the money of the price.
        forecast: Plan each day over 48 h on a forecast from the past (policy efficient), and compare
            with perfect foresight.
        output: Write the schedule to FILE; scripts are for review, nothing is run.
        form: Form of the schedule.
        watts_per_node: Power of a busy node, for Slurm reservations.
        idle_watts_per_node: Power of an idle node, which a reservation cannot save (default: 35 % of it).
        watts_per_gpu: Power limit of a GPU without a plan, for nvidia-smi.
        least_watts_per_gpu: Lowest power limit that the GPU takes.
    """
    from holdfast import progress
    from holdfast.carbon.formats import read_signal
    from holdfast.carbon.planning import plan as run
    from holdfast.carbon.problems import Event
    from holdfast.carbon.rolling_horizon import rolling
    from holdfast.carbon.schedules import write_schedule
    from holdfast.carbon.signals import refused

    load, signal = options.opened()
    limits: dict[str, Any] = {"flex": options.flex, "cap": options.cap, "strength": strength}
    alone = ("efficient", PlanOptions.window, "", None, None)
    if forecast and (policy, options.window, event, ramp, price) != alone:
        only = (
            "a plan on a forecast is of the policy efficient, without window, ramp, event and price"
        )
        raise refused(only, "unsupported", None, "--forecast")
    if forecast:
        schedule = rolling(load, signal, **limits)
    else:
        schedule = run(
            load,
            signal,
            policy=policy,
            window_s=options.window,
            ramp=ramp,
            event=None
            if (event, shed) == ("", None)
            else Event.read(event, shed, options.timezone),
            price=None if price is None else read_signal(price, timezone=options.timezone),
            carbon_price=carbon_price,
            **limits,
        )
    if output is not None:
        write_schedule(
            schedule,
            output,
            form,
            watts_per_node=watts_per_node,
            idle_watts_per_node=idle_watts_per_node,
            watts_per_gpu=watts_per_gpu,
            least_watts_per_gpu=least_watts_per_gpu,
        )
        progress.remark(f"schedule: {output}")
    return schedule


@app.command
def compare(*, options: PlanOptions) -> Answer:
    """Compare all policies and the usual baselines at equal total penalty; --penalties are needed."""
    from holdfast.carbon.comparing import compare as run

    load, signal = options.opened()
    return run(load, signal, flex=options.flex, cap=options.cap, window_s=options.window)
