"""A party: its place among the others, its channel, its preprocessing, and what may be revealed to whom."""

from __future__ import annotations

import struct
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from holdfast.private.mpc import randomness, ring
from holdfast.private.mpc.ring import invalid
from holdfast.private.mpc.rounds import Result, Rounds

if TYPE_CHECKING:
    from holdfast.private.mpc.dealing import Item
    from holdfast.private.mpc.tensor import SharedTensor

_DIMENSIONS = 8
_HEADER = struct.Struct(f"<{2 + _DIMENSIONS}q")  # scale, dimensions, sizes


class Party:
    """One participant of a computation on secrets.

    Args:
        channel: connection to the other parties (`transport.Channel`).
        supply: preprocessing items in order; None in mode ``replicated3``, where party 2 makes them.
        mode: ``dealer`` (a trusted dealer who colludes with nobody), ``replicated3`` (3 parties, at
            most one of them dishonest-but-curious), or ``insecure-local`` (one process, for tests). All
            are semi-honest.
        fraction_bits: fractional bits of encoded numbers, 8 to 26.
        comparison: ``tree`` (3 rounds, few bytes of preprocessing), or ``dcf`` (2 parties, 1 round,
            large keys).
        debug: ``ranges`` opens operands to all parties and checks domains; only in ``insecure-local``.
    """

    def __init__(
        self,
        channel: Any,
        supply: Any,
        *,
        mode: Literal["dealer", "replicated3", "insecure-local"] = "dealer",
        fraction_bits: int = 16,
        comparison: Literal["tree", "dcf"] = "tree",
        debug: Literal["ranges"] | None = None,
    ) -> None:
        for name, value, choices in (
            ("mode", mode, ("dealer", "replicated3", "insecure-local")),
            ("comparison", comparison, ("tree", "dcf")),
            ("fraction_bits", fraction_bits, range(8, 27)),
            ("debug", debug, (None, "ranges")),
        ):
            if value not in choices:
                raise invalid(name, value, f"one of {list(choices)}")
        if mode == "replicated3" and channel.parties != 3:
            raise invalid("parties", channel.parties, "3 parties in mode replicated3")
        if comparison == "dcf" and channel.parties != 2 and mode != "replicated3":
            raise invalid("comparison", comparison, "tree, or dcf with 2 parties or replicated3")
        if debug and mode != "insecure-local":
            raise invalid("debug", debug, "mode insecure-local: it opens every operand")
        self.channel, self.mode, self.debug = channel, mode, debug
        self.fraction_bits, self.comparison = fraction_bits, comparison
        self.rank: int = channel.rank
        self.parties: int = channel.parties
        with channel.scope("setup"):
            seeds = randomness.agree(channel)
        self.streams = randomness.PairwiseStreams(self.rank, seeds)
        self.group: tuple[int, ...] | None = None  # who opens masked values: None is everybody
        self.supply = supply
        if mode == "replicated3":
            from holdfast.private.mpc.replicated import HelperSupply

            self.supply = HelperSupply(channel, seeds)
            self.group = (0, 1)

    @property
    def lead(self) -> bool:
        """Whether this party adds public values to its share."""
        return self.rank == 0

    def take(self, kind: str, **parameters: Any) -> Item:
        """This party's part of the next preprocessing item."""
        return self.supply.take(kind, **parameters)  # type: ignore[no-any-return]

    def run(self, protocol: Rounds[Result]) -> Result:
        """Run a protocol to its end, one exchange per round."""
        answer: list[np.ndarray] | None = None
        while True:
            try:
                payload = next(protocol) if answer is None else protocol.send(answer)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            answer = self._open(np.array(payload, order="C", copy=None))

    def _open(self, payload: np.ndarray) -> list[np.ndarray]:
        if self.group is not None and self.rank not in self.group:
            # Party 2 of replicated3 walks the protocol to deal its items, and sees no opening.
            return [np.zeros_like(payload)] * len(self.group)
        received = self.channel.exchange(payload, self.group)
        return [np.frombuffer(each, payload.dtype).reshape(payload.shape) for each in received]

    # --- Inputs ----------------------------------------------------------------------------------

    def secret(
        self,
        values: Any = None,
        *,
        owner: int,
        shape: Collection[int] | None = None,
        integer: bool = False,
        reveal_to: Collection[int] | None = None,
        name: str = "input",
    ) -> SharedTensor:
        """Share values that one party knows; every party calls this, at the same place.

        Args:
            values: at the owner, numbers of any shape; ignored at all others. Integers and booleans stay
                integers.
            owner: rank of the party that knows them.
            shape: their shape, where all parties know it: saves the message that tells it.
            integer: with `shape`, whether they are integers.
            reveal_to: ranks to which they, and whatever is computed from them, may be revealed
                (default: all).
            name: what error messages call them.

        Raises:
            InputError: ``not-finite`` or ``overflow`` at the owner; ``out-of-range`` for an unknown rank.
        """
        from holdfast.private.mpc.tensor import SharedTensor

        if owner not in range(self.parties):
            raise invalid("owner", owner, f"a rank from 0 to {self.parties - 1}")
        value, scale = None, 0 if integer else self.fraction_bits
        if self.rank == owner:
            if values is None:
                raise invalid(name, None, f"values at party {owner}, which owns them")
            tensor = torch.as_tensor(values)
            scale = self.fraction_bits if tensor.is_floating_point() else 0
            if shape is not None and integer != (scale == 0):
                scale = self.fraction_bits * (not integer)
                tensor = tensor.to(torch.int64 if integer else torch.float64)
            value = ring.encode(tensor, scale, name)
            if shape is not None and tuple(value.shape) != tuple(shape):
                raise invalid(name, f"shape {tuple(value.shape)}", f"shape {tuple(shape)}")
        if value is not None and value.ndim > _DIMENSIONS:
            raise invalid(name, f"{value.ndim} dimensions", f"at most {_DIMENSIONS}")
        with self.channel.scope("secret"):
            size = tuple(shape) if shape is not None else self._announce(owner, value, scale)
        if shape is None and self.rank != owner:
            scale, *size = size  # type: ignore[misc]
        if self.mode == "replicated3":
            from holdfast.private.mpc.replicated import share_in_pair

            share = share_in_pair(self, owner, tuple(size), value)
        else:
            share = self.streams.share(owner, tuple(size), value)
        return SharedTensor(self, share, scale, _policy(reveal_to, self.parties))

    def _announce(self, owner: int, value: Tensor | None, scale: int) -> tuple[int, ...]:
        """Tell the other parties the scale and shape of an input; they get (scale, *shape)."""
        if value is None:
            words = _HEADER.unpack(self.channel.receive(owner, _HEADER.size))
            return (words[0], *words[2 : 2 + words[1]])
        header = _HEADER.pack(scale, value.ndim, *value.shape, *[0] * (_DIMENSIONS - value.ndim))
        for peer in range(self.parties):
            if peer != self.rank:
                self.channel.send(peer, header)
        return tuple(value.shape)

    def public(self, values: Any, scale: int | None = None) -> SharedTensor:
        """A value that all parties know, as a shared tensor."""
        from holdfast.private.mpc.tensor import SharedTensor

        tensor = torch.as_tensor(values)
        if scale is None:
            scale = self.fraction_bits if tensor.is_floating_point() else 0
        encoded = ring.encode(tensor, scale)
        share = encoded if self.lead else torch.zeros_like(encoded)
        return SharedTensor(self, share, scale, None)


def _policy(reveal_to: Collection[int] | None, parties: int) -> frozenset[int] | None:
    if reveal_to is None:
        return None
    for rank in reveal_to:
        if rank not in range(parties):
            raise invalid("reveal_to", rank, f"ranks from 0 to {parties - 1}")
    return frozenset(reveal_to)
