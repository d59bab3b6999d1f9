"""S3's checksums follow their standards, also when computed in parts."""

import asyncio
import base64
import hashlib
import re

import pytest

from slslab.aws.errors import ServiceError
from slslab.installation import install_command
from slslab.object_store import checksums

TEXT = b"123456789"
# The check values of CRC-32/ISO-HDLC, CRC-32/ISCSI and CRC-64/NVME: https://reveng.sourceforge.io/crc-catalogue
EXPECTED = {
    "CRC32": "cbf43926",
    "CRC32C": "e3069283",
    "CRC64NVME": "ae8b14860a799888",
    "SHA1": hashlib.sha1(TEXT).hexdigest(),
    "SHA256": hashlib.sha256(TEXT).hexdigest(),
}


@pytest.mark.parametrize("algorithm", checksums.ALGORITHMS)
def test_checksums(algorithm: str) -> None:
    if algorithm in ("CRC32C", "CRC64NVME"):
        pytest.importorskip("awscrt", reason="pip install '.[checksums]'")
    total = checksums.new(algorithm)
    asyncio.run(checksums.add(iter([TEXT[:4], b"", TEXT[4:]]), total.update))
    found = total.b64digest()
    assert base64.b64decode(found).hex() == EXPECTED[algorithm]
    assert checksums.given({f"Checksum{algorithm}": found}) == {algorithm: found}


def test_without_its_package_a_checksum_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checksums, "HAS_CRT", False)
    with pytest.raises(ServiceError, match=re.escape(install_command("checksums"))):
        checksums.new("CRC32C")
