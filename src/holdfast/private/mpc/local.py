"""All parties as threads of one process: for tests and debugging. It keeps no secrets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from holdfast.private.mpc.party import Party
from holdfast.private.mpc.supply import local_supplies
from holdfast.private.mpc.transport import local_channels

Result = TypeVar("Result")


def simulate(
    parties: int,
    main: Callable[[Party], Result],
    *,
    channels: Sequence[Any] | None = None,
    **settings: Any,
) -> list[Result]:
    """Run a function as every party, in threads.

    Args:
        parties: number of parties.
        main: what each party runs.
        channels: instead of plain ones.
        settings: of `Party`; mode ``insecure-local`` by default.

    Returns:
        What each party's function returned, by rank.

    Raises:
        Exception: the error of the first party that failed.
    """
    options: dict[str, Any] = {"mode": "insecure-local"} | settings
    channels = channels or local_channels(parties)
    supplies = local_supplies(parties)
    for supply, channel in zip(supplies, channels, strict=True):
        supply.ledger = channel.ledger
    errors: list[BaseException] = []

    def run(rank: int) -> Result:
        try:
            return main(Party(channels[rank], supplies[rank], **options))
        except BaseException as error:
            errors.append(error)  # before the others notice
            raise
        finally:
            channels[rank].close()

    with ThreadPoolExecutor(parties) as pool:
        runs = [pool.submit(run, rank) for rank in range(parties)]
    if errors:
        raise errors[0]
    return [each.result() for each in runs]
