"""What is planned: a load and a signal on the hours that both have, within the limits of the site."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from holdfast.carbon.formats import instants
from holdfast.carbon.policies import Window, part_of
from holdfast.carbon.signals import HOUR_S, FloatArray, Signal, refused, utc
from holdfast.carbon.workloads import Load, Workload


@dataclass(frozen=True)
class Event:
    """Hours in which the grid asks for less: the site sheds MW of what it would draw without a plan."""

    start_s: int
    end_s: int
    shed: float

    @classmethod
    def read(cls, text: str, shed: float | None, timezone: str = "") -> Event:
        """From ``START..END`` and MW, as on the command line."""
        ends = text.split("..")
        if len(ends) != 2:
            expected = "START..END, such as 2022-05-03T17:00Z..2022-05-03T20:00Z"
            raise refused("not a span of time", "invalid-value", None, "--event", text, expected)
        if shed is None or not 0 < shed < np.inf:
            problem = "an event says how much power is shed"
            raise refused(problem, "missing-key", None, "--shed", f"{shed}", "MW, above 0")
        start, end = instants(None, ends, ["--event"] * 2, timezone)
        return cls(int(start), int(end), shed)


@dataclass(frozen=True)
class Problem:
    """A load and a signal on the hours that both have.

    Attributes:
        workloads: in these hours.
        signal: interpolated.
        grams: [H] signal of every hour.
        start_s: start of the first hour.
        weights: [H] what a plan minimizes per MWh: grams, and the price of energy in CO2 of its worth.
        outside: hours of the load of which the signal says nothing.
        prices: [H] money per MWh.
    """

    workloads: tuple[Workload, ...]
    signal: Signal
    grams: FloatArray
    start_s: int
    weights: FloatArray
    outside: int = 0
    prices: FloatArray | None = None

    @property
    def costs(self) -> bool:
        """Whether any work has a penalty."""
        return any(workload.costs for workload in self.workloads)

    @property
    def total(self) -> FloatArray:
        """[H] MW of the site without a plan."""
        return np.sum([each.power for each in self.workloads], axis=0)  # type: ignore[no-any-return]

    def in_event(self, event: Event) -> slice:
        """The hours of an event.

        Raises:
            InputError: ``no-match`` for one that is not whole hours of load and signal.
        """
        last = self.start_s + HOUR_S * len(self.grams)
        first, end = ((each - self.start_s) / HOUR_S for each in (event.start_s, event.end_s))
        if not 0 <= first < end <= len(self.grams) or first % 1 or end % 1:
            found = f"{utc(event.start_s)}..{utc(event.end_s)}"
            expected = f"full hours between {utc(self.start_s)} and {utc(last)}"
            raise refused("no such hours", "no-match", None, "--event", found, expected)
        return slice(int(first), int(end))

    def limit(self, cap: float | None, event: Event | None = None) -> FloatArray:
        """[H] MW that the site may draw: the cap, else the load's own maximum; less in an event."""
        most = np.full(len(self.grams), self.total.max() if cap is None else cap, float)
        if event is not None:
            hours = self.in_event(event)
            most[hours] = np.minimum(most[hours], self.total[hours] - event.shed)
        return most

    def windows(self, window_s: float, flex: float, limit: FloatArray) -> list[Window]:
        """All whole windows; the limit [H] is in MW.

        Raises:
            InputError: ``out-of-range`` for a window that is not a number of hours, or is too long.
        """
        hours = round(window_s / HOUR_S)
        if not 1 <= hours <= len(self.grams) or abs(hours * HOUR_S - window_s) > 1e-6:
            problem, found = "invalid window", f"{window_s / HOUR_S:g} h"
            expected = f"whole hours, at most the {len(self.grams)} that load and signal share"
            raise refused(problem, "out-of-range", None, "--window", found, expected)
        windows = []
        for first in range(0, len(self.grams) - hours + 1, hours):
            chosen = slice(first, first + hours)
            parts = tuple(part_of(workload, chosen, flex) for workload in self.workloads)
            start_s = self.start_s + HOUR_S * first
            windows.append(Window(parts, self.weights[chosen], start_s, limit[chosen]))
        return windows


def aligned(
    load: Load, signal: Signal, price: Signal | None = None, carbon_price: float | None = None
) -> Problem:
    """A load and a signal, and perhaps a price of energy, on the hours that they have in common.

    Raises:
        InputError: ``no-match`` where they have no hour in common; ``no-data`` for long gaps;
            ``conflict`` for a signal that is a price, or a price that is none.
    """
    if signal.kind == "price":
        expected = "average or marginal intensity"
        raise refused("not an intensity", "conflict", signal.source, "kind", "price", expected)
    start = signal.start_s if load.start_s is None else load.start_s
    signal = signal.interpolated().at_minute_of(start)
    first = max(start, signal.start_s)
    end = min(start + HOUR_S * load.hours, signal.end_s)
    if end <= first:
        found = f"load {utc(start)} to {utc(start + HOUR_S * load.hours)}"
        expected = f"hours between {utc(signal.start_s)} and {utc(signal.end_s)}"
        problem = "the load and the signal have no hours in common"
        raise refused(problem, "no-match", load.source, None, found, expected)
    own = slice((first - start) // HOUR_S, (end - start) // HOUR_S)
    grams = signal.between(first, end)
    workloads = tuple(replace(each, power=each.power[own]) for each in load.workloads)
    outside = 0 if load.start_s is None else load.hours - len(grams)
    if price is None and carbon_price is None:
        return Problem(workloads, signal, grams, first, grams, outside)
    if price is None or carbon_price is None or not 0 < carbon_price < np.inf:
        place = "--price" if price is None else "--carbon-price"
        problem = "a price of energy needs one of CO2 (money per t, above 0), and the reverse"
        raise refused(problem, "missing-key", None, place, f"{carbon_price}")
    if price.kind != "price":
        raise refused("not a price", "conflict", price.source, "kind", price.kind, "price")
    price = price.interpolated().at_minute_of(start)
    if price.start_s > first or price.end_s < end:
        found = f"prices {utc(price.start_s)} to {utc(price.end_s)}"
        expected = f"all hours from {utc(first)} to {utc(end)}"
        raise refused("hours without a price", "no-match", price.source, None, found, expected)
    prices = price.between(first, end)
    weights = grams + 1000 * prices / carbon_price
    return Problem(workloads, signal, grams, first, weights, outside, prices)
