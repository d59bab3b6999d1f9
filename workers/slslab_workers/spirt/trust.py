"""Trust between peers: signed requests to join, protected against replay, and the exchange of database passwords.

As released, signatures use RSA-2048 and PSS with SHA-256, and passwords OAEP with SHA-256. Unlike there, the whole
record is signed, with a fresh nonce instead of a constant (docs/protocols.md, "SPIRT"). A signature proves who wrote a
record, but not that the writer is a peer: anybody can make a key. So records also carry a code made with the run's
admission secret. The driver gives it to every peer at the start, and no execution's input shows it.
"""

import base64
import hashlib
import hmac
import json
import secrets
from collections.abc import Mapping
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

KEY_BITS = 2048
PSS = padding.PSS(mgf=padding.MGF1(hashes.SHA256()), salt_length=padding.PSS.MAX_LENGTH)
OAEP = padding.OAEP(mgf=padding.MGF1(hashes.SHA256()), algorithm=hashes.SHA256(), label=None)


class Untrusted(Exception):
    """A record has a wrong signature or wasn't expected."""


class Identity:
    """A peer's key pair."""

    def __init__(self, private_key: rsa.RSAPrivateKey) -> None:
        self._private_key = private_key

    @classmethod
    def fresh(cls) -> "Identity":
        """Make a new key pair."""
        return cls(rsa.generate_private_key(public_exponent=65537, key_size=KEY_BITS))

    @classmethod
    def from_pem(cls, pem: bytes) -> "Identity":
        """Read the pair that `private_pem` wrote."""
        # This peer made the key itself: checking its primes again would take a small function seconds.
        key = serialization.load_pem_private_key(pem, password=None, unsafe_skip_rsa_key_validation=True)
        if not isinstance(key, rsa.RSAPrivateKey):
            raise Untrusted("the private key is not an RSA key")
        return cls(key)

    @property
    def private_pem(self) -> bytes:
        """Return the private key in PKCS #8, unencrypted: it stays in the peer's own database."""
        return self._private_key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )

    @property
    def public_pem(self) -> str:
        """Return the public key as text."""
        encoded = self._private_key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        return encoded.decode()

    def sign(self, record: Mapping[str, Any], admission: str) -> dict[str, Any]:
        """Return the record with this peer's public key, a nonce and a code by the admission secret, all signed."""
        signed = {**record, "nonce": secrets.token_hex(16), "public_key": self.public_pem}
        signed["admission"] = _code(signed, admission)
        signature = self._private_key.sign(_canonical(signed), PSS, hashes.SHA256())
        return {**signed, "signature": base64.b64encode(signature).decode()}

    def decrypt(self, text: str) -> str:
        """Decrypt a text for this peer. Raises Untrusted if it was encrypted with another public key."""
        try:
            return self._private_key.decrypt(base64.b64decode(text), OAEP).decode()
        except (TypeError, ValueError) as error:
            raise Untrusted("a password was not encrypted for this peer") from error


def encrypt(text: str, public_pem: str) -> str:
    """Encrypt a text for the owner of this public key, in base64."""
    return base64.b64encode(_public_key(public_pem).encrypt(text.encode(), OAEP)).decode()


def verify(body: bytes, admission: str) -> dict[str, Any]:
    """Return the contents of a record that `sign` made and JSON carried.

    Raises Untrusted unless its own key signed it and the signer knows the admission secret. `body` may be anything.
    """
    try:
        record = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Untrusted("it is not JSON") from error
    if not isinstance(record, dict):
        raise Untrusted("it is not a record")
    try:
        signature = base64.b64decode(record.pop("signature"), validate=True)
        _public_key(record["public_key"]).verify(signature, _canonical(record), PSS, hashes.SHA256())
    except (InvalidSignature, UnsupportedAlgorithm, AttributeError, KeyError, TypeError, ValueError) as error:
        raise Untrusted("it is not signed with its key") from error
    code = record.pop("admission", None)
    if not isinstance(code, str) or not hmac.compare_digest(code.encode(), _code(record, admission).encode()):
        raise Untrusted("its sender does not know the run's admission secret")
    return record


def _public_key(pem: str) -> rsa.RSAPublicKey:
    key = serialization.load_pem_public_key(pem.encode())
    if not isinstance(key, rsa.RSAPublicKey):
        raise ValueError("not an RSA key")
    return key


def _code(record: Mapping[str, Any], admission: str) -> str:
    return hmac.new(admission.encode(), _canonical(record), hashlib.sha256).hexdigest()


def _canonical(record: Mapping[str, Any]) -> bytes:
    return json.dumps(record, sort_keys=True, separators=(",", ":")).encode()
