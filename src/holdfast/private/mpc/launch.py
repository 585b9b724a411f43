"""Runs a script at parties that are processes (all on this machine, or one of them here) or threads.

A script defines ``main(party)``. All parties run the same script; the result is what `main` returns at
party 0.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import hashlib
import importlib.util
import json
import multiprocessing
import os
import random
import runpy
import signal
import socket
import sys
import sysconfig
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, TypeVar

from holdfast.errors import HoldfastError, InputError
from holdfast.files import read_whole, write_whole
from holdfast.plain import plain
from holdfast.private.mpc.accounting import Cost
from holdfast.private.mpc.certificates import make_certificate
from holdfast.private.mpc.handshake import (
    Agreement,
    Meeting,
    Member,
    Mode,
    Session,
    compare,
    meet,
)
from holdfast.private.mpc.party import Party
from holdfast.private.mpc.ring import invalid
from holdfast.private.mpc.store import Store, read_items, state_folder, store_path
from holdfast.private.mpc.supply import Items, LiveSupply, Supply, local_supplies, serve
from holdfast.private.mpc.transport import (
    DEALER,
    Channel,
    Network,
    PeerError,
    local_channels,
    named,
)

Main = Callable[[Any], Any]
_FACTS = ("peer", "op", "round")
_GRACE_S = 30.0  # for the others to notice that a party has died
_END_S = 2.0  # for a process to end when it is asked to


@dataclass(frozen=True)
class PartyResult:
    """What one party reports."""

    rank: int
    rounds: int
    bytes_sent: int
    offline_bytes: int
    seconds: float
    result: Any
    costs: list[Cost]
    items: Items


class PartyError(HoldfastError):
    """Parties of a local run failed.

    Args:
        failures: rank -> the facts of its error: code, message, and peer, op and round where it has them.
    """

    def __init__(self, failures: dict[int, dict[str, Any]]) -> None:
        self.failures = failures
        # The party whose failure is not about another party comes first: it is the cause.
        ranks = sorted(failures, key=lambda rank: ("peer" in failures[rank], rank))
        self.code = failures[ranks[0]]["code"]
        super().__init__("\n".join(f"{named(rank)}: {failures[rank]['message']}" for rank in ranks))


def load_script(path: Path) -> Main:
    """The function ``main`` of a script.

    Raises:
        InputError: if there is none.
    """
    read_whole(path, "a Python script")
    main = runpy.run_path(str(path), run_name="holdfast_script").get("main")
    if not callable(main):
        raise InputError(
            "the script does not define main",
            code="missing-key",
            path=path,
            expected="def main(party): ...",
        )
    return main


def hashes(script: Path) -> tuple[str, dict[str, str]]:
    """SHA-256 of a script, and of the modules that it imports anywhere, by name; not of installed ones."""
    text = read_whole(script, "a Python script")
    modules: dict[str, str] = {}
    waiting = _imported(text, "")
    while waiting:
        name = waiting.pop()
        source = None if name in modules else _own_source(name)
        if source is not None:
            content = source.read_bytes()
            modules[name] = hashlib.sha256(content).hexdigest()
            package = name if source.name == "__init__.py" else name.rpartition(".")[0]
            waiting += _imported(content, package)
    return hashlib.sha256(text).hexdigest(), modules


def _imported(text: bytes, package: str) -> list[str]:
    """Names that the import statements of a module could mean, modules or what is in them."""
    names = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            outer = package.split(".")[: len(package.split(".")) - node.level + 1]
            parts = [*(outer if node.level else []), *([node.module] if node.module else [])]
            base = ".".join(parts)
            names += [base, *(f"{base}.{alias.name}" for alias in node.names)]
    return names


def _own_source(name: str) -> Path | None:
    """The file of a module that is not of Python, of an installed package or of this one."""
    try:
        found = importlib.util.find_spec(name)
    except (ImportError, AttributeError, ValueError):
        return None
    if found is None or not found.origin or not found.origin.endswith(".py"):
        return None
    path = Path(found.origin).resolve()
    installed = {Path(each).resolve() for each in sysconfig.get_paths().values()}
    known = {*installed, Path(__file__).resolve().parents[2]}
    return None if known & set(path.parents) else path


def run_party(
    session: Session,
    rank: int,
    script: Path,
    *,
    store: Path | None = None,
    items: Path | None = None,
    listener: socket.socket | None = None,
    network: Network | None = None,
    threads: int | None = None,
    state: Path | None = None,
) -> PartyResult:
    """Run a script as one party, in this process.

    Args:
        session: addresses, certificates and settings.
        rank: of this party.
        script: file with ``main(party)``.
        store: this party's preprocessing store; by default a dealer is online.
        items: file with what this run will take, by which a dealer that is online works ahead.
        listener: a bound socket for this party, where the launcher has made one.
        network: to imitate; only if all parties are on this machine.
        threads: of torch; by default torch decides.
        state: where claims of stores are noted besides; by default the user's state folder.

    Raises:
        PeerError: if another party fails or differs.
        SupplyError: if the store does not have what the script needs.
    """
    import torch

    from holdfast.private.mpc.party import Party

    if threads:
        torch.set_num_threads(threads)
    main = load_script(script)
    meeting = Meeting(session, rank, listener)
    agreement = _agreement(session, script)
    preprocessed = None
    if store is not None:
        try:
            preprocessed = _checked(Store(store, state), session, rank)
        except HoldfastError as error:
            # The others end at once, rather than wait for this party.
            with contextlib.suppress(HoldfastError):
                meet(meeting, dataclasses.replace(agreement, store=f"refused ({error.code})"), {})
            raise
        agreement = dataclasses.replace(agreement, store=preprocessed.header.identity)
    position = preprocessed.position if preprocessed else 0
    try:
        links, facts = meet(meeting, agreement, {"position": position})
    except HoldfastError as error:
        if session.dealer is not None and store is None:  # which would wait for this party
            refused = dataclasses.replace(_agreement(session), store=f"refused ({error.code})")
            with contextlib.suppress(HoldfastError), meeting.connect(DEALER) as link:
                compare(link, DEALER, refused, {"rank": rank})
        raise
    channel = Channel(rank, links, timeout_s=session.timeout, network=network)
    try:
        supply = _supply(session, rank, channel, meeting, agreement, preprocessed, facts)
        if isinstance(supply, LiveSupply) and items is not None:
            supply.foresee(read_items(items))
        start = time.perf_counter()
        party = Party(channel, supply, **session.protocol)
        with contextlib.redirect_stdout(sys.stderr):  # standard output is for the result
            result = plain(main(party))
        seconds = time.perf_counter() - start
        if isinstance(supply, LiveSupply):
            supply.finish()
    except BaseException as error:
        _abort(channel, error)
        raise
    finally:
        if preprocessed:
            preprocessed.close()
    channel.close()
    total = channel.ledger.total()
    return PartyResult(
        rank,
        channel.round,
        total.bytes_sent,
        total.offline_bytes,
        seconds,
        result,
        list(channel.ledger.rows.values()),
        supply.items if supply else [],
    )


def _abort(channel: Channel, error: BaseException) -> None:
    """End, and tell the others why: its kind only, as the text of an error may quote private values."""
    reason = error.code if isinstance(error, HoldfastError) else type(error).__name__
    if isinstance(error, PeerError):
        reason = str(error).splitlines()[0]
    channel.abort(f"{reason} in {channel.path()} after round {channel.round}")


def run_dealer(
    session: Session, listener: socket.socket | None = None, network: Network | None = None
) -> tuple[int, int]:
    """Deal for one session, in this process; the number of items and the bytes of corrections.

    Raises:
        PeerError: if a party does not come, or belongs to another session.
    """
    meeting = Meeting(session, DEALER, listener)
    links = meeting.accept_all(set(range(len(session.party))))
    agreement = _agreement(session)
    with contextlib.ExitStack() as stack:  # parties must not wait for a dealer that has failed
        for link in links.values():
            stack.enter_context(link)
        for rank, link in links.items():
            compare(link, rank, agreement, {"rank": DEALER})
        # Parties do not wait longer for each other.
        channel = Channel(DEALER, links, network=network, timeout_s=2 * session.timeout)
        try:
            return serve(channel)
        except BaseException as error:
            _abort(channel, error)
            raise


def run_local(
    parties: int,
    script: Path,
    *,
    mode: Mode = "dealer",
    stores: Path | None = None,
    items: Path | None = None,
    network: Network | None = None,
    threads: int | None = None,
    **settings: Any,
) -> list[PartyResult]:
    """Run a script at parties on this machine: one process each, and one for the dealer.

    They talk as they would across machines: TLS over loopback sockets, with certificates made for this run.

    Args:
        parties: number of parties.
        script: file with ``main(party)``.
        mode: ``dealer`` or ``replicated3``.
        stores: folder with a store per party, instead of a dealer.
        items: file with what the run will take, by which the dealer works ahead.
        network: to imitate.
        threads: of torch, per party; by default the machine's cores are shared out.
        settings: `fraction_bits`, `comparison` and `timeout` (in seconds), as in ``parties.toml``.

    Raises:
        PartyError: if a party fails; every process has ended then.
    """
    load_script(script)  # what is wrong with it is said once
    with_dealer = mode == "dealer" and stores is None
    ranks = [*range(parties), *([DEALER] if with_dealer else [])]
    listeners = {rank: socket.create_server(("127.0.0.1", 0)) for rank in ranks}
    context = multiprocessing.get_context("forkserver")
    # The server imports torch once; the parties are copies of it.
    context.set_forkserver_preload(
        ["holdfast.private.mpc.launch", "holdfast.private.mpc.functions"]
    )
    with tempfile.TemporaryDirectory(prefix="holdfast-parties-") as name:
        folder = Path(name)
        members = {}
        for rank in ranks:
            certificate, _ = make_certificate(named(rank).replace(" ", "-"), folder, days=1)
            port = listeners[rank].getsockname()[1]
            members[rank] = Member(f"127.0.0.1:{port}", certificate.name)
        session = Session(
            folder.name,
            [members[rank] for rank in range(parties)],
            members.get(DEALER),
            mode=mode,
            folder=folder,
            **settings,
        )
        threads = threads or max(1, (os.cpu_count() or 1) // parties)
        common: dict[str, Any] = {
            "script": script.resolve(), "network": network, "threads": threads, "state": state_folder(),
            "items": items,
        }  # fmt: skip
        processes = {}
        for rank in ranks:
            store = None if stores is None else store_path(stores, rank)
            processes[rank] = context.Process(
                target=_process,
                args=(session, rank, listeners[rank]),
                kwargs={"store": store, **common},
                daemon=True,
            )
            processes[rank].start()
        for listener in listeners.values():
            listener.close()
        _wait_for(list(processes.values()))
        return _collect(folder, {rank: each.exitcode for rank, each in processes.items()})


def _process(session: Session, rank: int, listener: socket.socket, **settings: Any) -> None:
    """The body of a party's or dealer's process; leaves its result or error in a file."""
    try:
        _seed_generators()
        if rank == DEALER:
            run_dealer(session, listener, settings["network"])
            content: dict[str, Any] = {}
        else:
            content = dataclasses.asdict(run_party(session, rank, listener=listener, **settings))
    except HoldfastError as error:
        facts = {"code": error.code, "message": str(error)}
        facts |= {name: value for name, value in vars(error).items() if name in _FACTS}
        content = {"error": facts}
    except KeyboardInterrupt:
        sys.exit(130)
    except BaseException as error:
        traceback.print_exc()
        content = {"error": {"code": "script", "message": f"{type(error).__name__}: {error}"}}
    write_whole(_report(session.folder, rank), json.dumps(content).encode())
    if "error" in content:
        sys.exit(2)


def _seed_generators() -> None:
    """Parties that are forks of one process must not share its generators, as machines do not."""
    import numpy as np
    import torch

    torch.seed()
    np.random.seed()  # noqa: NPY002 - scripts may use the old generator
    random.seed()


def _report(folder: Path, rank: int) -> Path:
    return folder / f"report{rank}.json"


def _wait_for(processes: Sequence[Any]) -> None:
    """Return when all have ended; after a failure the others have a moment to notice."""
    try:
        deadline = None
        while running := [each for each in processes if each.is_alive()]:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                break
            wait([each.sentinel for each in running], left)
            if deadline is None and any(each.exitcode for each in processes):
                deadline = time.monotonic() + _GRACE_S
    finally:
        for each in processes:
            each.terminate()
        for each in processes:
            each.join(_END_S)
            each.kill()  # what was stopped by a signal does not see SIGTERM
            each.join()


def _collect(folder: Path, exit_codes: dict[int, int | None]) -> list[PartyResult]:
    failures: dict[int, dict[str, Any]] = {}
    results = []
    for rank, code in exit_codes.items():
        path = _report(folder, rank)
        content = json.loads(path.read_text()) if path.exists() else {}
        if "error" in content:
            failures[rank] = content["error"]
        elif code == -signal.SIGTERM:
            problem = "stopped, as it did not end"
            failures[rank] = {"code": "stopped", "message": problem, "peer": None}
        elif code:
            failures[rank] = {"code": "party-died", "message": f"the process ended with {code}"}
        elif rank != DEALER:
            content["costs"] = [Cost(**cost) for cost in content["costs"]]
            results.append(PartyResult(**content))
    if failures:
        raise PartyError(failures)
    return results


def _checked(store: Store, session: Session, rank: int) -> Store:
    parties = len(session.party)
    if (store.header.rank, store.header.parties) != (rank, parties):
        raise invalid(
            "store",
            f"of party {store.header.rank} of {store.header.parties}",
            f"that of party {rank} of {parties}",
            "conflict",
            path=store.path,
        )
    return store


def _supply(
    session: Session,
    rank: int,
    channel: Channel,
    meeting: Meeting,
    agreement: Agreement,
    store: Store | None,
    facts: dict[int, dict[str, Any]],
) -> Supply | None:
    if session.mode == "replicated3":
        return None
    if store is not None:
        run = max(int(each["position"]) for each in facts.values())
        store.claim(run)
        return store.supply(run, channel.ledger)
    if session.dealer is None:
        raise InputError(
            "no source of preprocessing items",
            code="missing-key",
            place="dealer",
            expected="a dealer in the configuration, or --store",
        )
    link = meeting.connect(DEALER)
    compare(link, DEALER, _agreement(session), {"rank": rank})
    channel.attach(DEALER, link)
    return LiveSupply(channel)


def _agreement(session: Session, script: Path | None = None) -> Agreement:
    """What the members agree on; the dealer does not need the script."""
    digest, modules = ("", {}) if script is None else hashes(script)
    return Agreement(session.session, len(session.party), digest, session.protocol, modules)


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
