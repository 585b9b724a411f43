"""Keys and certificates of parties, and TLS that accepts exactly the certificates that were exchanged.

There is no certificate authority. Each party makes its own key and self-signed certificate and gives the
certificate to the others beforehand; a connection is accepted only from a pinned certificate that is valid
today.
"""

from __future__ import annotations

import datetime
import hashlib
import os
import ssl
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from holdfast.errors import InputError
from holdfast.files import read_whole, sync, write_whole


def make_certificate(
    name: str, folder: Path, *, days: float = 365.0, start: datetime.datetime | None = None
) -> tuple[Path, Path]:
    """Make a private key and its self-signed certificate.

    Args:
        name: of the party, and of the files ``NAME.crt`` (to give away) and ``NAME.key`` (to keep).
        folder: where they are written; made if there is none.
        days: validity.
        start: when it begins; by default five minutes ago, for clocks that differ.

    Returns:
        The paths of certificate and key.

    Raises:
        InputError: if the key exists already.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    if not 0 < len(name) <= 64 or Path(name).name != name:
        raise InputError(
            "invalid name",
            code="invalid-value",
            found=repr(name),
            expected="1 to 64 characters that the name of a file may have",
        )
    certificate_path, key_path = folder / f"{name}.crt", folder / f"{name}.key"
    if key_path.exists():
        raise InputError(
            "the key exists already",
            code="output-exists",
            path=key_path,
            remedy="name another folder, or remove the old key and give the new certificate to all parties",
        )
    folder.mkdir(parents=True, exist_ok=True)
    key = Ed25519PrivateKey.generate()
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    begin = start or datetime.datetime.now(datetime.UTC) - datetime.timedelta(minutes=5)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + datetime.timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, None)
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    with open(key_path, "xb", opener=partial(os.open, mode=0o600)) as file:
        file.write(private)
    sync(key_path)
    write_whole(certificate_path, certificate.public_bytes(serialization.Encoding.PEM))
    return certificate_path, key_path


def certificate_bytes(path: Path) -> bytes:
    """A certificate in DER.

    Raises:
        InputError: if the file is missing or is not a certificate.
    """
    text = read_whole(path, "a certificate in PEM")
    try:
        return ssl.PEM_cert_to_DER_cert(text.decode("ascii").strip() + "\n")
    except (ValueError, UnicodeDecodeError) as error:
        raise InputError(
            "not a certificate",
            code="invalid-syntax",
            path=path,
            expected="a certificate in PEM, such as `holdfast private certs` makes",
        ) from error


def fingerprint(path: Path) -> str:
    """SHA-256 of a certificate, to read out over the telephone."""
    return hashlib.sha256(certificate_bytes(path)).hexdigest()


def validity_problem(path: Path) -> str | None:
    """Why a certificate is not valid today; None if it is."""
    from cryptography import x509

    certificate = x509.load_der_x509_certificate(certificate_bytes(path))
    now = datetime.datetime.now(datetime.UTC)
    if now > certificate.not_valid_after_utc:
        return f"certificate expired on {certificate.not_valid_after_utc:%Y-%m-%d %H:%M} UTC"
    if now < certificate.not_valid_before_utc:
        return f"certificate not valid before {certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC"
    return None


def tls_context(
    certificate: Path, key: Path, pinned: Sequence[Path], *, server: bool
) -> ssl.SSLContext:
    """TLS 1.3 with a certificate on both sides, of which only the pinned ones are trusted.

    Raises:
        InputError: if a file is missing, or the key does not belong to the certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # the certificate itself is pinned, whatever address it has
    context.verify_mode = ssl.CERT_REQUIRED
    if server:
        context.num_tickets = 0  # a resumed session would not show its certificate again
    certificate_bytes(certificate)
    read_whole(key, "a private key")
    try:
        context.load_cert_chain(certificate, key)
    except ssl.SSLError as error:
        raise InputError(
            "the key does not belong to the certificate, or is not a private key",
            code="conflict",
            path=key,
            found=str(error.reason),
            expected=f"the private key of {certificate}",
        ) from error
    for path in pinned:
        context.load_verify_locations(cadata=certificate_bytes(path))
    return context
