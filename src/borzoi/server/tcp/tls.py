"""TLS for listeners: the operator's certificate, or one we make.

A self-made certificate is a leaf signed by a CA of our own, both kept in `<data>/tls`, because official
clients refuse a certificate that signs itself. Give them `<data>/tls/ca.pem` as their CA file.
"""

import datetime as dt
import ipaddress
import ssl
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography.x509 import KeyUsage

_VALID_DAYS = 825
_RENEW_DAYS = 30
_CA_NAME = "ca.pem"


class TlsError(Exception):
    """The certificate cannot be used; the text says which file and why."""


def server_context(cert_file: Path, key_file: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(cert_file, key_file)
    except (OSError, ssl.SSLError) as error:
        raise TlsError(f"cannot use certificate {cert_file} with key {key_file}: {error}") from error
    return context


def self_signed(directory: Path, host: str) -> tuple[Path, Path]:
    """Certificate and key for `host` and the loopback names, made if missing or about to expire."""
    certificate, key = directory / "server.pem", directory / "server.key"
    try:
        if not _are_usable(directory, certificate, key, host):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            _make(directory, certificate, key, host)
    except OSError as error:
        raise TlsError(f"cannot make a certificate in {directory}: {error}") from error
    return certificate, key


def _are_usable(directory: Path, certificate: Path, key: Path, host: str) -> bool:
    """A stop in the middle of making them may have left a pair that does not fit."""
    if not all(path.exists() for path in (directory / _CA_NAME, certificate, key)):
        return False
    try:
        server_context(certificate, key)
    except TlsError:
        return False
    return _is_fresh(certificate, host)


def _names(host: str) -> tuple[set[str], set[str]]:
    names, addresses = {"localhost"}, {"127.0.0.1", "::1"}
    try:
        addresses.add(str(ipaddress.ip_address(host)))
    except ValueError:
        names.add(host)
    return names, addresses


def _is_fresh(certificate: Path, host: str) -> bool:
    from cryptography import x509  # noqa: PLC0415 - only servers with TLS pay for it

    try:
        found = x509.load_pem_x509_certificate(certificate.read_bytes())
        sans = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound):
        return False
    names, addresses = _names(host)
    left = found.not_valid_after_utc - dt.datetime.now(dt.UTC)
    return (
        names <= set(sans.get_values_for_type(x509.DNSName))
        and addresses <= {str(address) for address in sans.get_values_for_type(x509.IPAddress)}
        and left > dt.timedelta(days=_RENEW_DAYS)
    )


def _make(directory: Path, certificate: Path, key: Path, host: str) -> None:
    from cryptography import x509  # noqa: PLC0415 - only servers with TLS pay for it
    from cryptography.hazmat.primitives import hashes  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415
    from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    names, addresses = _names(host)
    now = dt.datetime.now(dt.UTC)

    def builder(subject: str, issuer: str, public_key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, subject)]))
            .issuer_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, issuer)]))
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(days=1))
            .not_valid_after(now + dt.timedelta(days=_VALID_DAYS))
        )

    ca_key, leaf_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca = (
        builder("borzoi local CA", "borzoi local CA", ca_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    alternatives = [
        *(x509.DNSName(name) for name in sorted(names)),
        *(x509.IPAddress(ipaddress.ip_address(address)) for address in sorted(addresses)),
    ]
    leaf = (
        builder("borzoi", "borzoi local CA", leaf_key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(
            # Strict verifiers, Python 3.13's among them, ask for it.
            x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()),
            critical=False,
        )
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    key.touch(mode=0o600)
    key.write_bytes(leaf_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    certificate.write_bytes(leaf.public_bytes(Encoding.PEM))
    (directory / _CA_NAME).write_bytes(ca.public_bytes(Encoding.PEM))


def _usage(*, signs: bool) -> "KeyUsage":
    """What a key is for: signing certificates, or identifying a server."""
    from cryptography.x509 import KeyUsage  # noqa: PLC0415 - only servers with TLS pay for it

    return KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
