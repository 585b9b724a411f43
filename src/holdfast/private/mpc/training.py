"""Training on secrets: gradients, cross entropy, SGD, and checkpoints of shares.

    parameters = [party.secret(w, owner=0, name="w") ...]
    optimizer = SGD(parameters, lr=0.1, momentum=0.9)
    cross_entropy(logits, labels).backward()          # fills .grad, opens nothing
    optimizer.step()

Every operation on a tensor with ``requires_grad`` remembers how gradients pass through it; `backward` walks
these memories from the end.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from holdfast.errors import InputError
from holdfast.files import read_whole, write_whole
from holdfast.private.mpc.bounds import Bound
from holdfast.private.mpc.functions import log_softmax, one_hot
from holdfast.private.mpc.party import Party
from holdfast.private.mpc.ring import invalid
from holdfast.private.mpc.tensor import SharedTensor, narrow_together, within_together

_MAGIC = b"holdfast mpc checkpoint 2\n"
_NONCE_BYTES = 12


def backward(result: SharedTensor, gradient: SharedTensor | None = None) -> None:
    """Add the gradient of the sum of `result` to `grad` of every tensor it was computed from.

    Args:
        result: any shape.
        gradient: gradient of `result`; ones by default.
    """
    if gradient is None:
        gradient = result.party.public(torch.ones(tuple(result.shape), dtype=torch.float64))
    pending: dict[int, SharedTensor] = {id(result): gradient}
    for tensor in _order(result):
        # A sum of many contributions is truncated once.
        incoming = pending.pop(id(tensor)).detach().narrowed()
        if not tensor.sources:
            tensor.grad = incoming if tensor.grad is None else (tensor.grad + incoming).detach()
        for source, to_source in tensor.sources:
            part = to_source(incoming).detach()
            pending[id(source)] = pending[id(source)] + part if id(source) in pending else part


def _order(result: SharedTensor) -> list[SharedTensor]:
    """The tensors behind a result, each before its sources."""
    done: set[int] = set()
    order: list[SharedTensor] = []
    stack = [(result, False)]
    while stack:
        tensor, leave = stack.pop()
        if leave:
            order.append(tensor)
        elif id(tensor) not in done:
            done.add(id(tensor))
            stack.append((tensor, True))
            stack += [(source, False) for source, _ in tensor.sources]
    return order[::-1]


def cross_entropy(logits: SharedTensor, labels: SharedTensor) -> SharedTensor:
    """Mean cross entropy of class scores.

    Args:
        logits: ``[n, classes]``.
        labels: secret integers ``[n]``, or one-hot vectors ``[n, classes]``.

    Returns:
        The loss, still secret.
    """
    n, classes = logits.shape
    targets = labels if labels.ndim == 2 else one_hot(labels, classes)
    if targets.shape != logits.shape:
        raise invalid("labels", labels.shape, f"one for each of {n} rows")
    with logits.scope("cross_entropy"):
        return -(log_softmax(logits) * targets).sum() / n


class SGD:
    """Stochastic gradient descent with momentum, as torch.optim.SGD.

    Args:
        parameters: tensors that every party shares.
        lr: learning rate.
        momentum: share of the last step that the next one keeps.
        bound: largest magnitude of a parameter. Where gradients could carry one farther, that is checked
            in secret after the step, and is a `RangeError` when something is revealed next.
    """

    def __init__(
        self,
        parameters: Iterable[SharedTensor],
        lr: float,
        momentum: float = 0.0,
        *,
        bound: float = 64.0,
    ) -> None:
        self.parameters = list(parameters)
        self.bound = bound
        for parameter, new in zip(
            self.parameters, within_together(self.parameters, bound), strict=True
        ):
            parameter.adopt(new)
            parameter.requires_grad = True
        self.lr, self.momentum = lr, momentum
        self.velocities: list[SharedTensor | None] = [None] * len(self.parameters)

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for parameter in self.parameters:
            parameter.grad = None

    def step(self) -> None:
        """Move every parameter against its gradient: one round for all of them."""
        moves = []
        for number, parameter in enumerate(self.parameters):
            if parameter.grad is None:
                continue
            velocity, last = parameter.grad, self.velocities[number]
            if self.momentum and last is not None:
                velocity = last * self.momentum + velocity
            self.velocities[number] = velocity if self.momentum else None
            move = velocity * self.lr
            move.keep = parameter.keep  # more bits would be lost in the sum
            moves.append((parameter, move, velocity))
        if not moves:
            return
        with moves[0][0].scope("sgd"):
            narrow_together([tensor for _, move, velocity in moves for tensor in (move, velocity)])
            news = within_together([each.detach() - move for each, move, _ in moves], self.bound)
        for (parameter, *_), new in zip(moves, news, strict=True):
            # The same tensor object: the optimizer and the model both hold it.
            parameter.adopt(new)
            parameter.allowed = new.allowed
            # What was known of the old values is not known of these.
            parameter.fixed = parameter.row_sum = None


# --- Checkpoints ---------------------------------------------------------------------------------


def save_checkpoint(path: str | Path, tensors: Mapping[str, SharedTensor], key: bytes) -> None:
    """Write this party's shares, encrypted with AES-GCM; every party calls this, at the same place.

    Args:
        path: this party's file.
        tensors: by name.
        key: 16 or 32 bytes that this party keeps.
    """
    (party,) = {tensor.party for tensor in tensors.values()}
    party.settle()
    party.checkpoints += 1
    identity = hashlib.sha256(party.session_id + party.checkpoints.to_bytes(8, "little"))
    facts = {
        name: (
            [tensor.scale, tensor.keep, tensor.unmasked().bound.low, tensor.bound.high],
            None if tensor.allowed is None else sorted(tensor.allowed),
        )
        for name, tensor in tensors.items()
    }
    header = {
        "rank": str(party.rank),
        "identity": identity.hexdigest(),
        "tensors": json.dumps(facts),
    }
    shares = {name: tensor.share.contiguous() for name, tensor in tensors.items()}
    nonce = os.urandom(_NONCE_BYTES)
    sealed = _cipher(key).encrypt(nonce, safetensors.torch.save(shares, header), _MAGIC)
    write_whole(path, _MAGIC, nonce, sealed)


def load_checkpoint(path: str | Path, party: Party, key: bytes) -> dict[str, SharedTensor]:
    """Read what `save_checkpoint` wrote.

    Raises:
        InputError: ``damaged`` if the file or the key is wrong; ``conflict`` for another party's file.
        PeerError: ``handshake`` if another party loads a checkpoint of another step or session.
    """
    data = read_whole(path, "a checkpoint of shares")
    if not data.startswith(_MAGIC):
        raise InputError("not a checkpoint of shares", code="unknown-format", path=path)
    start = len(_MAGIC) + _NONCE_BYTES
    try:
        plain = _cipher(key).decrypt(data[len(_MAGIC) : start], data[start:], _MAGIC)
    except InvalidTag as error:
        raise InputError(
            "the checkpoint cannot be decrypted",
            code="damaged",
            path=path,
            expected="an intact file, and the key that it was written with",
        ) from error
    size = int.from_bytes(plain[:8], "little")
    header = json.loads(plain[8 : 8 + size])["__metadata__"]
    if int(header["rank"]) != party.rank:
        raise invalid("checkpoint", f"party {header['rank']}", f"party {party.rank}", "conflict")
    identity = bytes.fromhex(header["identity"])
    party.same(identity, "checkpoint", "loads a checkpoint of another step or session")
    tensors = {}
    for name, share in sorted(safetensors.torch.load(plain).items()):
        (scale, keep, low, high), ranks = json.loads(header["tensors"])[name]
        allowed = None if ranks is None else frozenset(ranks)
        bound = Bound(low, high)
        party.agree(name, scale, keep, bound)
        tensors[name] = party.tensor(share, scale, allowed, bound, keep, name)
    return tensors


def _cipher(key: bytes) -> AESGCM:
    if len(key) not in (16, 32):
        raise invalid("key", f"{len(key)} bytes", "16 or 32 bytes")
    return AESGCM(key)
