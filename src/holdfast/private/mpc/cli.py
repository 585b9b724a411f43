"""`holdfast private`: each command calls the function of the same name and returns its result."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from holdfast.command import Answer, Duration, Options, Positive, option, room
from holdfast.errors import InputError
from holdfast.private.mpc.transport import Network

app = room("private", "Computing on secrets: parties that see only their own input.")

Folder = Annotated[Path, option("--output", "-o", metavar="DIR")]
Parties = Annotated[int, option(at_least=2)]
_RATE = re.compile(r"(\d+(?:\.\d+)?)\s*([kMG]?)bit(?:/s|ps)?")


@Options
@dataclass(frozen=True, kw_only=True)
class Setting:
    """How the parties compute, and the network between them."""

    mode: Literal["dealer", "replicated3"] = "dealer"
    """Trusted dealer, or three parties with an honest majority."""
    comparison: Literal["tree", "dcf"] = "tree"
    """Comparison protocol."""
    fraction_bits: Annotated[int, option(at_least=8, at_most=26)] = 16
    """Bits after the binary point."""
    rtt: Duration = 0.0
    """Round-trip time to imitate, or to forecast for."""
    bandwidth: Annotated[str | None, option(metavar="RATE")] = None
    """Bandwidth per connection and direction, such as 100Mbit; as for --rtt."""
    items: Annotated[Path | None, option(metavar="FILE")] = None
    """Write the preprocessing items of one run; if they are there, a dealer that is online works ahead."""

    def arguments(self) -> dict[str, Any]:
        """Of `run_local` and `plan`."""
        names = ("mode", "comparison", "fraction_bits")
        return {name: getattr(self, name) for name in names} | {"network": self._network()}

    def write_items(self, items: Any, parties: int) -> None:
        """Write the items to the file, if one is named."""
        from holdfast.private.mpc.store import write_items

        if self.items is not None:
            write_items(self.items, items, parties)

    def _network(self) -> Network | None:
        """The network to imitate, or to forecast for; None: this machine's."""
        if self.bandwidth is None:
            return Network(self.rtt / 2) if self.rtt else None
        parts = _RATE.fullmatch(self.bandwidth.strip())
        rate = float(parts[1]) * {"": 1, "k": 1e3, "M": 1e6, "G": 1e9}[parts[2]] if parts else 0.0
        if rate <= 0:
            from holdfast.private.mpc.ring import invalid

            expected = "bits per second, such as 100Mbit or 1.5Gbit"
            raise invalid("bandwidth", self.bandwidth, expected, place="--bandwidth")
        return Network(self.rtt / 2, rate)


@app.command
def run(
    script: Annotated[Path, option(metavar="SCRIPT")],
    /,
    *,
    local: Annotated[int, option(metavar="N", at_least=2)],
    stores: Annotated[Path | None, option(metavar="DIR")] = None,
    timeout: Duration = 60.0,
    setting: Setting = Setting(),
) -> Answer:
    """Run a script at N parties on this machine: one process each, one for the dealer, TLS between them.

    Args:
        script: Python file that defines main(party).
        local: Number of parties.
        stores: Folder with a preprocessing store per party (default: a dealer process).
        timeout: Longest wait for a message.
    """
    from holdfast.private.mpc.answers import Run
    from holdfast.private.mpc.launch import run_local
    from holdfast.private.mpc.ring import invalid

    if setting.mode == "replicated3" and local != 3:
        expected = "3 in mode replicated3"
        raise invalid("number of parties", local, expected, "out-of-range", place="--local")
    known = setting.items if setting.items and setting.items.exists() else None
    results = run_local(
        local, script, timeout=timeout, stores=stores, items=known, **setting.arguments()
    )
    setting.write_items(results[0].items, local)
    return Run(setting.mode, results, local)


@app.command
def party(
    script: Annotated[Path, option(metavar="SCRIPT")],
    /,
    *,
    config: Annotated[Path, option(metavar="PARTIES.TOML")],
    rank: Annotated[int, option(at_least=0)],
    store: Annotated[Path | None, option(metavar="FILE")] = None,
    items: Annotated[Path | None, option(metavar="FILE")] = None,
) -> Answer:
    """Run a script as one party; the others run theirs on their machines.

    Args:
        script: Python file that defines main(party); the same at all parties.
        config: Addresses and certificates of the parties and the dealer.
        rank: Rank of this party, from 0, in the order of the configuration.
        store: Preprocessing store of this party (default: the dealer of the configuration).
        items: Items of one run, by which the dealer works ahead; the last party asks it.
    """
    from holdfast.private.mpc.answers import Run
    from holdfast.private.mpc.handshake import read_session
    from holdfast.private.mpc.launch import run_party
    from holdfast.private.mpc.ring import invalid

    session = read_session(config)
    parties = len(session.party)
    if rank >= parties:
        raise invalid("rank", rank, f"0 to {parties - 1}", "out-of-range", place="--rank")
    result = run_party(session, rank, script, store=store, items=items)
    return Run(session.mode, [result], parties)


@app.command
def dealer(
    *,
    config: Annotated[Path | None, option(metavar="PARTIES.TOML")] = None,
    items: Annotated[Path | None, option(metavar="FILE")] = None,
    parties: Parties = 2,
    runs: Positive = 1,
    output: Folder | None = None,
) -> Answer:
    """Deal preprocessing items: live for one session (--config), or into stores (--items, --output).

    Args:
        config: Addresses and certificates of the parties and the dealer.
        items: Items of one run, written by `private run` or `private plan`.
        parties: Number of parties of the stores.
        runs: Number of runs in the stores.
        output: Folder for the stores, one file per party.
    """
    from holdfast.private.mpc.answers import Deal
    from holdfast.private.mpc.handshake import read_session
    from holdfast.private.mpc.launch import run_dealer
    from holdfast.private.mpc.store import read_items, write_stores
    from holdfast.private.mpc.supply import total_correction_bytes

    if config is not None and items is None and output is None:
        count, size = run_dealer(read_session(config))
        return Deal(count, 1, size, [])
    if config is not None or items is None or output is None:
        raise InputError(
            "either a live session or stores",
            code="conflict",
            place="--config",
            expected="--config PARTIES.TOML, or --items FILE --output DIR",
        )
    wanted = read_items(items)
    paths = write_stores(output, wanted, parties, runs)
    return Deal(len(wanted), runs, total_correction_bytes(wanted, parties - 1, parties), paths)


@app.command
def certs(
    name: Annotated[str, option(metavar="NAME")],
    /,
    *,
    output: Folder = Path(),
    days: Positive = 365,
) -> Answer:
    """Make the key and the certificate of a party or dealer.

    Args:
        name: Name of the party, and of the files NAME.crt and NAME.key.
        output: Folder for both files.
        days: Validity of the certificate.
    """
    from holdfast.private.mpc.answers import Certificate
    from holdfast.private.mpc.certificates import fingerprint, make_certificate

    certificate, key = make_certificate(name, output, days=days)
    return Certificate(certificate, key, fingerprint(certificate))


@app.command
def plan(
    model: Annotated[str, option(metavar="MODEL")],
    /,
    *,
    input: Annotated[str, option("--input", metavar="SHAPE")],
    parties: Parties = 2,
    bound: Annotated[float | None, option(metavar="X")] = None,
    calibration: Annotated[str | None, option(metavar="NAME")] = None,
    margin: Annotated[float, option(metavar="X")] = 2.0,
    measure: bool = False,
    setting: Setting = Setting(),
) -> Answer:
    """Forecast rounds, bytes and time of a model on secret weights and inputs, by layer.

    Args:
        model: FILE.py:NAME, a torch module or a function that returns one.
        input: Shape of the input, such as 1x1x28x28; int:1x32 for token ids; several separated by commas.
        parties: Number of parties.
        bound: Largest magnitude of the inputs (default: 1,024).
        calibration: Name in FILE.py of typical inputs, or of what gives them, as for import_model.
        margin: How much larger than theirs the results of other inputs may be.
        measure: Also run the model at parties on this machine, on an imitated network, and compare.
    """
    from holdfast.private.mpc.forecast import plan as forecast

    answer = forecast(
        model,
        input,
        parties=parties,
        bound=bound,
        calibration=calibration,
        margin=margin,
        measure=measure,
        **setting.arguments(),
    )
    setting.write_items(answer.items, parties)
    return answer
