"""`holdfast private`: each command calls the function of the same name and returns its result."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

from holdfast.command import Answer, Duration, Positive, option, room
from holdfast.errors import InputError
from holdfast.private.mpc.transport import Network

app = room("private", "Computing on secrets: parties that see only their own input.")

FractionBits = Annotated[int, option(at_least=8, at_most=26)]
Bandwidth = Annotated[str | None, option(metavar="RATE")]


@app.command
def run(
    script: Annotated[Path, option(metavar="SCRIPT")],
    /,
    *,
    local: Annotated[int, option(metavar="N", at_least=2)],
    mode: Literal["dealer", "replicated3"] = "dealer",
    stores: Annotated[Path | None, option(metavar="DIR")] = None,
    comparison: Literal["tree", "dcf"] = "tree",
    fraction_bits: FractionBits = 16,
    rtt: Duration = 0.0,
    bandwidth: Bandwidth = None,
    timeout: Duration = 60.0,
    items: Annotated[Path | None, option(metavar="FILE")] = None,
) -> Answer:
    """Run a script at N parties on this machine: one process each, one for the dealer, TLS between them.

    Args:
        script: Python file that defines main(party).
        local: Number of parties.
        mode: Trusted dealer, or three parties with an honest majority.
        stores: Folder with a preprocessing store per party (default: a dealer process).
        comparison: Comparison protocol.
        fraction_bits: Bits after the binary point.
        rtt: Round-trip time to imitate.
        bandwidth: Bandwidth to imitate per connection and direction, such as 100Mbit.
        timeout: Longest wait for a message.
        items: Write the preprocessing items that the script took, for `private dealer --items`.
    """
    from holdfast.private.mpc.answers import Run
    from holdfast.private.mpc.launch import run_local
    from holdfast.private.mpc.store import write_items

    if mode == "replicated3" and local != 3:
        raise InputError(
            "invalid number of parties",
            code="out-of-range",
            place="--local",
            found=str(local),
            expected="3 in mode replicated3",
        )
    results = run_local(
        local,
        script,
        mode=mode,
        stores=stores,
        network=_network(rtt, bandwidth),
        fraction_bits=fraction_bits,
        comparison=comparison,
        timeout_s=timeout,
    )
    if items is not None:
        write_items(items, results[0].items, local)
    return Run(mode, results, local)


@app.command
def party(
    script: Annotated[Path, option(metavar="SCRIPT")],
    /,
    *,
    config: Annotated[Path, option(metavar="PARTIES.TOML")],
    rank: Annotated[int, option(at_least=0)],
    store: Annotated[Path | None, option(metavar="FILE")] = None,
) -> Answer:
    """Run a script as one party; the others run theirs on their machines.

    Args:
        script: Python file that defines main(party); the same at all parties.
        config: Addresses and certificates of the parties and the dealer.
        rank: Rank of this party, from 0, in the order of the configuration.
        store: Preprocessing store of this party (default: the dealer of the configuration).
    """
    from holdfast.private.mpc.answers import Run
    from holdfast.private.mpc.handshake import read_session
    from holdfast.private.mpc.launch import run_party

    session = read_session(config)
    if rank >= len(session.party):
        raise InputError(
            "unknown party",
            code="out-of-range",
            place="--rank",
            found=str(rank),
            expected=f"0 to {len(session.party) - 1}",
        )
    return Run(session.mode, [run_party(session, rank, script, store=store)], len(session.party))


@app.command
def dealer(
    *,
    config: Annotated[Path | None, option(metavar="PARTIES.TOML")] = None,
    items: Annotated[Path | None, option(metavar="FILE")] = None,
    parties: Annotated[int, option(at_least=2)] = 2,
    runs: Positive = 1,
    output: Annotated[Path | None, option("--output", "-o", metavar="DIR")] = None,
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
    output: Annotated[Path, option("--output", "-o", metavar="DIR")] = Path(),
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
    rtt: Duration = 0.0,
    bandwidth: Bandwidth = None,
    parties: Annotated[int, option(at_least=2)] = 2,
    mode: Literal["dealer", "replicated3"] = "dealer",
    comparison: Literal["tree", "dcf"] = "tree",
    fraction_bits: FractionBits = 16,
    items: Annotated[Path | None, option(metavar="FILE")] = None,
    measure: bool = False,
) -> Answer:
    """Forecast rounds, bytes and time of a model on secret weights and inputs, by layer.

    Args:
        model: FILE.py:NAME, a torch module or a function that returns one.
        input: Shape of the input, such as 1x1x28x28; int:1x32 for token ids; several separated by commas.
        rtt: Round-trip time of the network.
        bandwidth: Bandwidth per connection and direction, such as 100Mbit.
        parties: Number of parties.
        mode: Trusted dealer, or three parties with an honest majority.
        comparison: Comparison protocol.
        fraction_bits: Bits after the binary point.
        items: Write the preprocessing items of one run, for `private dealer --items`.
        measure: Also run the model at parties on this machine, on an imitated network, and compare.
    """
    from holdfast.private.mpc.forecast import plan as forecast
    from holdfast.private.mpc.store import write_items

    answer = forecast(
        model,
        input,
        network=_network(rtt, bandwidth),
        parties=parties,
        mode=mode,
        comparison=comparison,
        fraction_bits=fraction_bits,
        measure=measure,
    )
    if items is not None:
        write_items(items, answer.items, parties)
    return answer


_RATE = re.compile(r"(\d+(?:\.\d+)?)\s*([kMG]?)bit(?:/s|ps)?")


def _network(rtt: float, bandwidth: str | None) -> Network | None:
    """The network to imitate, or to forecast for; None: this machine's."""
    if not rtt and bandwidth is None:
        return None
    rate = float("inf")
    if bandwidth is not None:
        parts = _RATE.fullmatch(bandwidth.strip())
        rate = float(parts[1]) * {"": 1, "k": 1e3, "M": 1e6, "G": 1e9}[parts[2]] if parts else 0.0
        if rate <= 0:
            raise InputError(
                "invalid bandwidth",
                code="invalid-value",
                place="--bandwidth",
                found=bandwidth,
                expected="bits per second, such as 100Mbit or 1.5Gbit",
            )
    return Network(rtt / 2, rate)
