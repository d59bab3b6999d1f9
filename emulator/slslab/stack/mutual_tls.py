"""Mutual TLS among the parts of the embedded S3 server, which would serve anyone on this host without S3's keys.

Its master, volume server and filer talk to each other over ports of loopback, where any user, any function (functions
share the host's network) and any web page could read and write all objects. With this they serve the holder of one key
alone, made at each start and removed with the data: nobody else gets past the handshake.

Tokens (JWT) for the volume server's plain HTTP would give large gets back the third of their throughput that TLS takes,
but do not hold: its /status names all buckets with their sizes to whoever asks, and the list of addresses that would
close it closes the master's HTTP to us, too.
"""

import os
import ssl
import urllib.request
from datetime import UTC, datetime
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

HTTP_PARTS = ("MASTER", "VOLUME", "FILER", "CLIENT")
GRPC_PARTS = (*HTTP_PARTS, "S3")


class MutualTLS:
    """A new key and a certificate of itself, the only one that it trusts, in a file for this user alone.

    `settings` are the environment variables by which SeaweedFS serves and asks with it; `opener` opens URLs with it,
    past any proxy. Raises OSError if the file exists or cannot be written.
    """

    def __init__(self, path: Path) -> None:
        write_certificate(path)
        self.settings = {
            "WEED_GRPC_CA": str(path),
            **{f"WEED_GRPC_{part}_{what}": str(path) for part in GRPC_PARTS for what in ("CERT", "KEY")},
            **{f"WEED_HTTPS_{part}_{what}": str(path) for part in HTTP_PARTS for what in ("CA", "CERT", "KEY")},
            "WEED_HTTPS_CLIENT_ENABLED": "true",
            # Variables stand above a security.toml of the user's, which may say otherwise.
            "WEED_HTTPS_FILER_DISABLE_TLS_VERIFY_CLIENT_CERT": "false",
        }
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(path)
        context.load_cert_chain(path)
        self.opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )


def mutual_context(path: Path, protocol: int) -> ssl.SSLContext:
    """Return what one end of a connection uses: the file's certificate is the only one that it trusts, whatever the
    address of its holder."""
    context = ssl.SSLContext(protocol)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(path)
    context.load_cert_chain(path)
    return context


def write_certificate(path: Path) -> None:
    """Write a new key and its own certificate of this host's loopback address, for this user alone; OSError if the file
    exists or cannot be written."""
    key = ec.generate_private_key(ec.SECP256R1())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public = _certificate(key).public_bytes(serialization.Encoding.PEM)
    with open(path, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(private + public)


def _certificate(key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    """Return a certificate of this host's loopback address, signed by its own key; it ends by being removed."""
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
