"""Trust between peers: signed requests to join, protected against replay, and the exchange of database passwords.

RSA-2048, PSS with SHA-256 for signatures and OAEP with SHA-256 for passwords, as released; the whole record is signed,
with a nonce of its own instead of a constant (docs/protocols.md, "SPIRT"). A signature alone proves that the owner of a
key wrote a record, not that the owner is a peer: anybody can make a key. So records also carry a code made with the
run's admission secret, which the driver gives every peer when it starts, and which no execution's input shows.
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
    """A record with a wrong signature, or one that was not asked for."""


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
        """The private key in PKCS #8, not encrypted: it stays in the peer's own database."""
        return self._private_key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )

    @property
    def public_pem(self) -> str:
        """The public key as text."""
        encoded = self._private_key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        return encoded.decode()

    def sign(self, record: Mapping[str, Any], admission: str) -> dict[str, Any]:
        """Return the record with this peer's public key, a nonce, a code by the admission secret, all of it signed."""
        signed = {**record, "nonce": secrets.token_hex(16), "public_key": self.public_pem}
        signed["admission"] = _code(signed, admission)
        signature = self._private_key.sign(_canonical(signed), PSS, hashes.SHA256())
        return {**signed, "signature": base64.b64encode(signature).decode()}

    def decrypt(self, text: str) -> str:
        """Decrypt a text that was encrypted with this peer's public key; Untrusted if it was not."""
        try:
            return self._private_key.decrypt(base64.b64decode(text), OAEP).decode()
        except (TypeError, ValueError) as error:
            raise Untrusted("a password was not encrypted for this peer") from error


def encrypt(text: str, public_pem: str) -> str:
    """Encrypt a text for the owner of this public key; return base64."""
    return base64.b64encode(_public_key(public_pem).encrypt(text.encode(), OAEP)).decode()


def verify(body: bytes, admission: str) -> dict[str, Any]:
    """Return what a signed record says, as `sign` made it and JSON carried it.

    Untrusted unless the signature is of this record and of its own key, and its signer knows the admission secret;
    `body` may be anything.
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
