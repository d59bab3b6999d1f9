"""Set up mutual TLS between an owner's processes: both ends hold one key of this start and trust only its
certificate."""

import ssl
from datetime import UTC, datetime
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from slslab.host.state import only_owner


def mutual_context(path: Path, protocol: int) -> ssl.SSLContext:
    """Return the context for one end of a connection. It trusts only the file's certificate, at whatever address."""
    context = ssl.SSLContext(protocol)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(path)
    context.load_cert_chain(path)
    return context


def write_certificate(path: Path) -> None:
    """Write a new key and its certificate for loopback, readable only by this user; OSError if the file exists or can't
    be written."""
    key = ec.generate_private_key(ec.SECP256R1())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public = _certificate(key).public_bytes(serialization.Encoding.PEM)
    with open(path, "xb", opener=only_owner) as file:
        file.write(private + public)


def _certificate(key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    """Return a self-signed certificate for this host's loopback address; it is valid until it is removed."""
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "slslab")])
    return (
        x509.CertificateBuilder(issuer_name=name, subject_name=name, public_key=key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime(1970, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(9999, 12, 31, tzinfo=UTC))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
