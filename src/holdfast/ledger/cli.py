"""`holdfast ledger`: calls the function of the same name and returns its result."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from holdfast.carbon.cli import SignalOptions
from holdfast.command import Answer, option, room
from holdfast.fleet.options import Losses, Pauses, Window, opened

app = room("ledger", "Of all machine hours, how many trained, and where the others went.")


@app.default
def ledger(
    store: Annotated[Path, option(metavar="STORE")],
    /,
    *,
    runs: Annotated[tuple[Path, ...], option("--runs", metavar="FOLDER")] = (),
    by: Annotated[Literal["user", "partition", "account"] | None, option("--by")] = None,
    signal: Annotated[Path | None, option("--signal", metavar="FILE")] = None,
    grid: SignalOptions = SignalOptions(),
    window: Window = Window(),
    losses: Losses = Losses(),
    pauses: Pauses = Pauses(),
) -> Answer:
    """Divide all machine time of a fleet, from capacity to productive steps.

    Args:
        store: Store that `holdfast fleet ingest` wrote, or a log file.
        runs: Folder with records of runs (`holdfast runs exec`, `RunRecorder`), or around them; repeatable.
        by: Also by user, partition or account.
        signal: Average intensity of the grid, for the CO2 of each part; formats as for `carbon account`.
    """
    from holdfast.ledger.books import ledger as compute

    intensity = None if signal is None else grid.read(signal)
    return compute(opened(store, window, losses, pauses), runs, by=by, signal=intensity)
