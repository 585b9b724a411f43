"""Streams against published vectors of AES, X25519 and HKDF, and what parties make of them."""

from __future__ import annotations

import hashlib
import hmac
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from plain_dealer import MODULUS, integers
from scipy import stats

from holdfast.private.mpc import randomness
from holdfast.private.mpc.randomness import PairwiseStreams, agree, stream, uniform

# AES-128 of one block with the key of zeros: SP 800-38D, test cases 1 and 2 (counters 0, 1, 2), and the
# known answers of the AES Algorithm Validation Suite, VarTxt, whose plaintexts are first counters as well.
COUNTER_BLOCKS = {
    (0, 0): "66e94bd4ef8a2c3b884cfa59ca342b2e",
    (0, 1): "58e2fccefa7e3061367f1d57a4e7455a",
    (0, 2): "0388dace60b6a392f328c2b971b2fe78",
    (0x8000000000000000, 0): "3ad78e726c1ec02b7ebfe92b23d9ec34",
    (0xC000000000000000, 0): "aae5939c8efdf2f04e60b9fe7117b2c2",
    (0xE000000000000000, 0): "f031d4d74f5dcbf39daaf8ca3af6e527",
}
# RFC 7748, section 6.1: private keys, public keys, and the secret that they agree on.
PRIVATE = (
    "77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a",
    "5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb",
)
PUBLIC = (
    "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a",
    "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f",
)
SECRET = "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742"


@pytest.mark.parametrize(("index", "block"), COUNTER_BLOCKS)
def test_a_stream_is_the_published_counter_mode(index: int, block: int) -> None:
    data = stream(bytes(16), index, 16 * (block + 1))
    assert data[-16:].tobytes().hex() == COUNTER_BLOCKS[index, block]


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 1000])
def test_a_longer_stream_begins_with_the_shorter_one(size: int) -> None:
    whole = stream(b"k" * 16, 3, 2000)
    assert np.array_equal(stream(b"k" * 16, 3, size), whole[:size])
    assert whole.flags.writeable
    words = uniform(b"k" * 16, 3, (5, 50)).numpy()
    assert words.tobytes() == whole.tobytes()
    for other in (stream(b"k" * 16, 4, 2000), stream(b"l" * 16, 3, 2000)):
        blocks = {each.tobytes() for each in np.split(other, 125)}
        assert not blocks & {each.tobytes() for each in np.split(whole, 125)}


def hkdf(secret: bytes, salt: bytes, info: bytes) -> bytes:
    """RFC 5869 with SHA-256, one block."""
    extracted = hmac.digest(salt, secret, "sha256")
    return hmac.digest(extracted, info + b"\x01", "sha256")[:16]


def test_the_derivation_of_keys_is_that_of_rfc_5869() -> None:
    # Appendix A.1: the first 16 bytes of the output.
    okm = hkdf(b"\x0b" * 22, bytes(range(13)), bytes(range(0xF0, 0xFA)))
    assert okm.hex() == "3cb25f25faacd57a90434f64d0362f2a"


@pytest.mark.parametrize("rank", [0, 1])
def test_two_parties_agree_on_the_secret_of_rfc_7748(
    rank: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [bytes.fromhex(each) for each in PUBLIC]
    mine = X25519PrivateKey.from_private_bytes(bytes.fromhex(PRIVATE[rank]))
    monkeypatch.setattr(randomness, "X25519PrivateKey", SimpleNamespace(generate=lambda: mine))
    sent: list[bytes] = []

    def exchange(payload: bytes) -> list[bytes]:
        sent.append(payload)
        return keys

    seeds, session = agree(SimpleNamespace(rank=rank, exchange=exchange))
    assert sent == [keys[rank]]  # and nothing else
    info = b"holdfast mpc pairwise seed"
    wanted = hkdf(bytes.fromhex(SECRET), b"".join(sorted(keys)), info)
    assert seeds[1 - rank] == wanted
    assert seeds[rank] == b""
    assert session == hashlib.sha256(b"".join(keys)).digest()


def parties(count: int) -> list[PairwiseStreams]:
    """Streams of parties whose pairs have different seeds."""

    def seed(one: int, other: int) -> bytes:
        return bytes([1 + min(one, other), 1 + max(one, other)] * 8) if one != other else b""

    return [
        PairwiseStreams(one, [seed(one, other) for other in range(count)]) for one in range(count)
    ]


def total(shares: list[Any]) -> list[int]:
    whole = sum(integers(each).ravel() for each in shares)
    return [each % MODULUS for each in whole]


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_shares_of_inputs_and_of_zero_add_up(count: int) -> None:
    streams = parties(count)
    values = torch.tensor([[0, -1, 2**62], [-(2**63), 2**63 - 1, 7]])
    seen = set()
    for owner in range(count):
        shares = [
            each.share(owner, (2, 3), values if each.rank == owner else None) for each in streams
        ]
        assert total(shares) == [each % MODULUS for each in integers(values).ravel()]
        zeros = [each.zero((2, 3)) for each in streams]
        assert total(zeros) == [0] * 6
        seen |= {each.numpy().tobytes() for each in (*shares, *zeros)}
    # No draw repeats another one, but with one party there is nothing to draw.
    assert len(seen) == (2 * count * count if count > 1 else 2)
    assert values[0, 2] == 2**62  # the owner's tensor is left alone


def test_two_of_three_know_a_common_tensor() -> None:
    streams = parties(3)
    for pair in ((0, 1), (2, 1), (0, 2)):
        drawn = [each.common(pair, (4,)) for each in streams]
        (third,) = {0, 1, 2} - set(pair)
        assert drawn[third] is None
        assert torch.equal(drawn[pair[0]], drawn[pair[1]])


@pytest.mark.parametrize("bit", range(0, 64, 7))
def test_a_share_says_nothing_about_its_value(bit: int) -> None:
    """Each bit of each party's share of a secret bit: correlation, at a level missed once in a billion."""
    rng = np.random.default_rng(bit)
    secret = torch.from_numpy(rng.integers(0, 2, 4000))
    for each in parties(3):
        share = each.share(1, (4000,), secret << bit if each.rank == 1 else None)
        seen = (share.numpy() >> bit) & 1
        table = [[np.sum((secret.numpy() == a) & (seen == b)) for b in (0, 1)] for a in (0, 1)]
        assert stats.chi2_contingency(table).pvalue > 1e-9
