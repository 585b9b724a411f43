"""What a party sees: uniform bytes, except for values that were revealed to it."""

from __future__ import annotations

import os

import numpy as np
import pytest
import torch
from scipy import stats

from holdfast.errors import InputError
from holdfast.private.mpc import arithmetic, functions
from holdfast.private.mpc.launch import simulate
from holdfast.private.mpc.training import SGD, cross_entropy
from holdfast.private.mpc.transport import Channel, local_channels


def is_uniform(data):
    """Chi-square of byte values, at a level that an honest run misses once in a billion."""
    counts = np.bincount(np.frombuffer(data, dtype=np.uint8), minlength=256)
    return stats.chisquare(counts).pvalue > 1e-9


class Recorder(Channel):
    """A channel that keeps every message by the operation that it belongs to, and all openings."""

    def start(self):
        self.messages = {}
        return self

    def _keep(self, received):
        self.messages.setdefault(self.ledger.path.split("/")[0], []).append(received)

    def exchange(self, payload, group=None):
        received = super().exchange(payload, group)
        parts = [
            np.frombuffer(each, payload.dtype) if hasattr(payload, "dtype") else each
            for each in received
        ]
        for each in received:
            self._keep(each.tobytes() if hasattr(each, "dtype") else bytes(each))
        if hasattr(payload, "dtype"):  # what the shares combine to is what is opened
            total = parts[0].copy()
            for each in parts[1:]:
                total = total + each if payload.dtype != np.uint8 else total ^ each
            if payload.dtype != np.uint8:
                self._keep(total.tobytes())
        return received

    def receive(self, frm, nbytes):
        received = super().receive(frm, nbytes)
        self._keep(bytes(received))
        return received


def recorded(parties, main, **settings):
    channels = local_channels(parties)
    for channel in channels:
        channel.__class__ = Recorder
        channel.start()
    simulate(parties, main, channels=channels, **settings)
    return channels


def workload(party):
    """Zeros and constants, which would show at once."""
    x = party.secret(torch.zeros(60, 64) if party.rank == 0 else None, owner=0, shape=(60, 64))
    w = party.secret(torch.ones(64, 32) if party.rank == 1 else None, owner=1, shape=(64, 32))
    w.fix()
    labels = torch.zeros(60, dtype=torch.int64)
    y = party.secret(labels if party.rank == 1 else None, owner=1, shape=(60,), integer=True)
    hidden = (x @ w).relu()
    functions.gelu(hidden[:, :8])
    functions.log(hidden[:, :4] + 1.0)
    SGD([w], lr=0.1)
    out = x @ w
    cross_entropy(out[:, :10], y).backward()
    hidden.argmax(1).reveal(to=0)


@pytest.mark.parametrize(
    ("parties", "settings"),
    [(2, {}), (2, {"comparison": "dcf"}), (3, {}), (3, {"mode": "replicated3"})],
    ids=["2", "dcf", "3", "replicated"],
)
def test_every_message_is_uniform_except_what_is_revealed(parties, settings):
    for channel in recorded(parties, workload, **settings):
        assert {"setup"} <= set(channel.messages)
        for op, messages in channel.messages.items():
            data = b"".join(messages)
            if op == "reveal" and channel.rank != 0:
                pytest.fail("a party received what was revealed to another")
            if op in ("setup", "reveal") or len(data) < 20_000:
                continue
            assert is_uniform(data), op


def test_the_recorder_notices_an_opening_without_a_mask():
    def leak(party):
        x = party.secret(torch.full((9_000,), 3.0) if party.rank == 0 else None, owner=0)
        x.run("leak", arithmetic.opened(x.share))

    channel = recorded(2, leak)[0]
    assert not is_uniform(b"".join(channel.messages["leak"]))


def test_every_share_of_a_constant_is_uniform():
    def main(party):
        x = party.secret(torch.full((5_000,), 1.5) if party.rank == 0 else None, owner=0)
        shares = [x.share, (x * x).share, x.relu().share, (x > 1).share, functions.sigmoid(x).share]
        return [each.contiguous().numpy().tobytes() for each in shares]

    for parties in (2, 3):
        for shares in simulate(parties, main):
            assert all(is_uniform(share) for share in shares)


def test_two_runs_use_different_masks():
    runs = [
        simulate(2, lambda party: party.secret(torch.zeros(4), owner=0).share) for _ in range(2)
    ]
    assert not torch.equal(runs[0][0], runs[1][0])


@pytest.mark.parametrize(("parties", "settings"), [(2, {}), (3, {}), (3, {"mode": "replicated3"})])
def test_revealing_reaches_only_the_parties_named(parties, settings):
    def main(party):
        x = party.secret([1.0, 2.0] if party.rank == 0 else None, owner=0)
        return [x.reveal(to=to) for to in (1, [0, 1], [parties - 1], None)]

    results = simulate(parties, main, **settings)
    for number, readers in enumerate(({1}, {0, 1}, {parties - 1}, set(range(parties)))):
        got = {rank for rank in range(parties) if results[rank][number] is not None}
        assert got == readers
        assert all(results[rank][number].tolist() == [1.0, 2.0] for rank in readers)


def test_a_policy_follows_the_values_computed_from_an_input():
    def main(party):
        x = party.secret([1.0, 2.0] if party.rank == 0 else None, owner=0, reveal_to=[1])
        y = party.secret([1.0, 2.0] if party.rank == 1 else None, owner=1)
        for value in (x, x + y, y @ x, (y * x).relu().reshape(2, 1), functions.cat([y, x]), 1 / x):
            for to in (None, 0, [0, 1]):
                with pytest.raises(InputError) as error:
                    value.reveal(to=to)
                assert error.value.code == "reveal-not-allowed"
            value.reveal(to=1)
        y.reveal()

    simulate(2, main)


def test_a_fork_cannot_draw_the_same_masks(monkeypatch):
    party = simulate(1, lambda party: party)[0]
    party.streams.zero((1,))
    monkeypatch.setattr(os, "getpid", lambda: -1)  # as it is in a fork
    for draw in (lambda: party.streams.zero((1,)), lambda: party.take("mask", shape=(1,))):
        with pytest.raises(InputError) as error:
            draw()
        assert (error.value.code, error.value.place) == ("conflict", "party")
