"""A party: its place among the others, its channel, its preprocessing, and what may be revealed to whom."""

from __future__ import annotations

import math
import struct
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from holdfast.private.mpc import randomness, replicated, ring
from holdfast.private.mpc.bounds import DEFAULT, DEFAULT_INTEGER, Bound, Limits
from holdfast.private.mpc.ring import invalid
from holdfast.private.mpc.rounds import Result, Rounds

if TYPE_CHECKING:
    from holdfast.private.mpc.dealing import Item
    from holdfast.private.mpc.tensor import SharedTensor

_DIMENSIONS = 8
_HEADER = struct.Struct(f"<q2d{1 + _DIMENSIONS}q")  # scale, lowest, highest, dimensions, sizes


class Party:
    """One participant of a computation on secrets.

    Args:
        channel: connection to the other parties (`transport.Channel`).
        supply: preprocessing items in order; None in mode ``replicated3``, where party 2 makes them.
        mode: ``dealer`` (a trusted dealer who colludes with nobody), ``replicated3`` (replicated secret
            sharing among 3 parties, of whom no two collude), or ``insecure-local`` (one process, for
            tests). All are semi-honest.
        fraction_bits: fractional bits of encoded numbers, 8 to 26.
        comparison: ``tree`` (3 rounds, few bytes of preprocessing), or ``dcf`` (2 parties, 1 round,
            large keys).
    """

    def __init__(
        self,
        channel: Any,
        supply: Any,
        *,
        mode: Literal["dealer", "replicated3", "insecure-local"] = "dealer",
        fraction_bits: int = 16,
        comparison: Literal["tree", "dcf"] = "tree",
    ) -> None:
        for name, value, choices in (
            ("mode", mode, ("dealer", "replicated3", "insecure-local")),
            ("comparison", comparison, ("tree", "dcf")),
            ("fraction_bits", fraction_bits, range(8, 27)),
        ):
            if value not in choices:
                raise invalid(name, value, f"one of {list(choices)}")
        if mode == "replicated3" and channel.parties != 3:
            raise invalid("parties", channel.parties, "3 parties in mode replicated3")
        if comparison == "dcf" and channel.parties != 2 and mode != "replicated3":
            raise invalid("comparison", comparison, "tree, or dcf with 2 parties or replicated3")
        self.channel, self.mode = channel, mode
        self.fraction_bits, self.comparison = fraction_bits, comparison
        self.rank: int = channel.rank
        self.parties: int = channel.parties
        with channel.scope("setup"):
            seeds, self.session_id = randomness.agree(channel)
        self.kind: type[SharedTensor] | None = None  # of its tensors, where not SharedTensor itself
        self.expected: float | None = None
        """Largest magnitude expected of operands of products: see `SharedTensor.checked`."""
        self.checkpoints = 0
        """Checkpoints saved so far: the next one's number is the same at all parties."""
        self.streams = randomness.PairwiseStreams(self.rank, seeds)
        self.group: tuple[int, ...] | None = None  # who opens masked values: None is everybody
        self.supply = supply
        self._outside: list[tuple[str, str, np.ndarray]] = []  # operation, domain, bits "inside"
        if mode == "replicated3":
            self.supply = replicated.item_supply(channel, seeds)
            self.group = replicated.PAIR

    @property
    def lead(self) -> bool:
        """Whether this party adds public values to its share."""
        return self.rank == 0

    def take(self, kind: str, **parameters: Any) -> Item:
        """This party's part of the next preprocessing item."""
        self.streams.check()
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
            # Party 2 of replicated3 walks the protocol to make its items, and sees no opening.
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
        bound: Limits | None = None,
        fraction_bits: int | None = None,
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
            bound: largest magnitude, or (lowest, highest), which all parties learn; by default below 1,024,
                integers below 2^31. The owner's counts, but with `shape`, where all declare the same.
            fraction_bits: of these numbers, where all declare the same; by default the party's, more for
                small bounds, fewer for large ones.
            reveal_to: ranks to which they, and whatever is computed from them, may be revealed
                (default: all).
            name: what error messages call them.

        Raises:
            InputError: ``not-finite``, or ``overflow`` for values outside the bound, at the owner;
                ``out-of-range`` for an unknown rank.
        """
        if owner not in range(self.parties):
            raise invalid("owner", owner, f"a rank from 0 to {self.parties - 1}")
        value, tensor = None, None
        if self.rank == owner:
            if values is None:
                raise invalid(name, None, f"values at party {owner}, which owns them")
            tensor = ring.numbers(values, name)
            if shape is None:
                integer = not tensor.is_floating_point()
            if integer and tensor.is_floating_point():
                raise invalid(name, f"numbers of type {tensor.dtype}", "integers, as declared")
            tensor = tensor.to(torch.int64 if integer else torch.float64)
            if shape is not None and tuple(tensor.shape) != tuple(shape):
                raise invalid(name, f"shape {tuple(tensor.shape)}", f"shape {tuple(shape)}")
            if tensor.ndim > _DIMENSIONS:
                raise invalid(name, f"{tensor.ndim} dimensions", f"at most {_DIMENSIONS}")
        with self.channel.scope("secret"):
            if shape is None:
                facts = self._announce(owner, tensor, self._declared(bound, integer, fraction_bits))
            else:
                declared, scale = self._declared(bound, integer, fraction_bits)
                facts = (scale, declared.low, declared.high, *shape)
        scale, low, high, *size = facts
        self.agree("secret", facts)
        if tensor is not None:
            value = ring.encode(tensor, scale, name)
            ring.check_within(tensor, low, high, name)
        second = None
        if self.group is not None:
            share, second = replicated.shared(self, owner, tuple(size), value)
        else:
            share = self.streams.share(owner, tuple(size), value)
        allowed = _policy(reveal_to, self.parties)
        return self.tensor(share, scale, allowed, Bound(low, high), scale, name, second)

    def tensor(self, *args: Any, **kwargs: Any) -> SharedTensor:
        """A tensor of this party, of its kind; arguments as of `SharedTensor`."""
        from holdfast.private.mpc.tensor import SharedTensor

        return (self.kind or SharedTensor)(self, *args, **kwargs)

    def _declared(
        self, bound: Limits | None, integer: bool, fraction_bits: int | None
    ) -> tuple[Bound, int]:
        """The bound of an input and its fractional bits: more for small bounds, fewer for large ones."""
        if bound is None:
            bound = DEFAULT_INTEGER if integer else DEFAULT
        declared = Bound.of(bound)
        if declared.magnitude == math.inf:
            raise invalid("bound", bound, "finite numbers")
        if integer:
            return declared, 0
        wanted = declared.scale(self.fraction_bits) if fraction_bits is None else fraction_bits
        if wanted < 0:
            raise invalid("fraction_bits", wanted, "0 or more")
        return declared, min(wanted, declared.room)

    def _announce(
        self, owner: int, tensor: Tensor | None, declared: tuple[Bound, int]
    ) -> tuple[Any, ...]:
        """Tell the other parties what is public of an input: scale, lowest, highest, sizes."""
        if tensor is None:
            scale, low, high, ndim, *sizes = _HEADER.unpack(
                self.channel.receive(owner, _HEADER.size)
            )
            return (scale, low, high, *sizes[:ndim])
        bound, scale = declared
        padding = [0] * (_DIMENSIONS - tensor.ndim)
        facts = (scale, bound.low, bound.high)
        header = _HEADER.pack(*facts, tensor.ndim, *tensor.shape, *padding)
        for peer in range(self.parties):
            if peer != self.rank:
                self.channel.send(peer, header)
        return (*facts, *tensor.shape)

    def broadcast(self, data: bytes, owner: int) -> bytes:
        """What the owner says, at all parties; `data` has as many bytes at each."""
        return bytes(self.channel.exchange(data)[owner])

    def public(self, values: Any, scale: int | None = None) -> SharedTensor:
        """A value that all parties know, as a shared tensor; it must be the same at all of them."""
        tensor = ring.numbers(values)
        bound = Bound.around(tensor)
        if not tensor.is_floating_point():
            scale = 0
        elif scale is None:
            scale = bound.scale(self.fraction_bits)
        scale = max(0, min(scale, bound.room))
        encoded = ring.encode(tensor, scale)
        self.agree(encoded.numpy().tobytes(), scale)
        bound = bound.widened(2.0**-scale if scale else 0.0)
        zero, second = torch.zeros_like(encoded), None
        share = encoded if self.lead else zero
        if self.group is not None:  # replicated, as the summand of parties 0 and 1
            second = encoded if self.rank in self.group else zero
        return self.tensor(share, scale, bound=bound, name="a public value", second=second)

    # --- What all parties must see the same ------------------------------------------------------

    def agree(self, *facts: Any) -> None:
        """Take public facts into the running hash of the session, which every message carries.

        Parties whose public operands differ are found out at the next message, before anything is opened.
        """
        self.channel.note(*facts)

    def same(self, identity: bytes, op: str, problem: str) -> None:
        """End where another party shows another identity of what it computes with.

        Raises:
            PeerError: ``handshake``, with the problem.
        """
        from holdfast.private.mpc.transport import PeerError

        with self.channel.scope(op):
            for peer, other in enumerate(self.channel.exchange(identity)):
                if bytes(other) != identity:
                    number = self.channel.round
                    raise PeerError(problem, code="handshake", peer=peer, op=op, round=number)

    def require(self, inside: np.ndarray, domain: str) -> None:
        """Bits, shared by XOR, that must be 1: they are checked before anything is revealed next.

        Args:
            inside: whether each value is in the domain of the operation that runs now.
            domain: the domain, for the message.
        """
        if inside.size:
            outside = inside ^ np.uint8(self.lead)
            self._outside.append((self.channel.path(), domain, outside.reshape(-1)))

    def settle(self) -> None:
        """Open how many values were outside the domains since the last call.

        Raises:
            RangeError: if there were any; nothing else is opened.
        """
        pending, self._outside = self._outside, []
        if not pending:
            return
        from holdfast.private.mpc import arithmetic, comparison

        with self.channel.scope("domains"):
            bits = np.concatenate([bits for *_, bits in pending])
            ones = self.run(comparison.to_arithmetic(self, bits))
            parts = ones.split([len(bits) for *_, bits in pending])
            counts = self.run(arithmetic.opened(torch.stack([part.sum() for part in parts])))
        if self.channel.imagined:
            return
        for (path, domain, bits), count in zip(pending, counts.tolist(), strict=True):
            if count:
                raise ring.RangeError(path, f"{count} of {bits.size} values outside", domain)


def _policy(reveal_to: Collection[int] | None, parties: int) -> frozenset[int] | None:
    if reveal_to is None:
        return None
    for rank in reveal_to:
        if rank not in range(parties):
            raise invalid("reveal_to", rank, f"ranks from 0 to {parties - 1}")
    return frozenset(reveal_to)
